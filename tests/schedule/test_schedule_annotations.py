"""Free annotations stay through primitives, text and traces; keys that mean something do it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from schedule_outcome import assert_same_program

import autosched as at
from autosched.errors import ScheduleError
from autosched.lowering.lower import lower
from autosched.schedule import BlockRV, Decision, Schedule
from autosched.schedule.population import candidate
from autosched.script import parse_func
from autosched.tir import interp
from autosched.tir.annotations import copies_of
from autosched.tir.nodes import PrimFunc, loops_of, sites


def matmul() -> PrimFunc:
    func = at.ops.matmul
    return at.SearchTask(func=func, args=(8, 8, 8), target="llvm").prim_func


def test_free_annotations_are_kept_printed_and_replayed() -> None:
    func = matmul()
    sch = Schedule(func)
    (block,) = sch.get_blocks()
    loops = sch.get_loops(block)
    sch.annotate(block, "my.note", ["a", 1, 0.5])
    sch.annotate(loops[0], "pragma_import_c", "x")
    sch.annotate(loops[2], "software_pipeline_stage", [0, 1])
    sch.split(loops[1], [None, 4])
    text = sch.func.script()
    for key in ("my.note", "pragma_import_c", "software_pipeline_stage"):
        assert key in text
    assert parse_func(text).same(sch.func)
    again = Schedule(func)
    again.replay(sch.trace)
    assert again.func.same(sch.func)
    sch.unannotate(block, "my.note")
    assert "my.note" not in sch.func.script()
    arrays = [np.arange(64, dtype=np.float32).reshape(8, 8) for _ in range(2)]
    out, expected = np.zeros((8, 8), np.float32), arrays[0] @ arrays[1]
    at.build(sch.func, target="llvm")(*arrays, out)
    np.testing.assert_allclose(out, expected)


@pytest.mark.parametrize(("most", "kinds"), [
    (0, ["serial", "serial", "serial"]),
    (8, ["serial", "serial", "unrolled"]),
    (64, ["serial", "unrolled", "unrolled"]),
    (512, ["unrolled", "unrolled", "unrolled"]),
])  # fmt: skip
def test_unrolling_as_far_as_a_pragma_says(most: int, kinds: list[str]) -> None:
    func = matmul()
    sch = Schedule(func)
    sch.annotate(sch.get_loops(sch.get_blocks()[0])[0], "pragma_auto_unroll_max_step", most)
    lowered = lower(sch.func)
    assert [x.kind for x in loops_of(lowered)] == kinds
    assert lower(lowered).same(lowered)
    rng = np.random.default_rng(0)
    a, b = (rng.random((8, 8), np.float32) for _ in range(2))
    expected, built = np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32)
    interp.run(func, [a, b, expected])
    at.build(sch.func, target="llvm")(a, b, built)
    np.testing.assert_allclose(built, expected, rtol=1e-6)


def test_keys_that_mean_something_elsewhere_or_are_misspelt_are_refused() -> None:
    sch = Schedule(matmul())
    (block,) = sch.get_blocks()
    loop = sch.get_loops(block)[0]
    for place, key, value, message in (
        (block, "pragma_auto_unroll_max_step", 16, "it is one of a loop"),
        (loop, "pragma_auto_unroll_max_step", -1, "from 0 to"),
        (loop, "pragma_auto_unroll_max_steps", 16, "did you mean"),
        (loop, "tensorize", "x", "the compiler writes it itself"),
    ):
        with pytest.raises(ScheduleError, match=message):
            sch.annotate(place, key, value)


def test_double_buffer_scope_is_double_buffer_where_memory_is_shared() -> None:
    sch = Schedule(matmul())
    (block,) = sch.get_blocks()
    k = sch.get_loops(block)[-1]
    ko, _ = sch.split(k, [None, 4])
    copy = sch.cache_read(block, 0, "shared")
    sch.compute_at(copy, ko)
    sch.annotate(copy, "double_buffer_scope", 0)
    (copied,) = [s.block for s in sites(sch.func) if s.block.name == sch.get(copy).name]
    assert dict(copied.annotations) == {"double_buffer": True}


def shared_tile(sch: Schedule) -> BlockRV:
    """A copy of A in shared memory, fetched step by step."""
    (block,) = sch.get_blocks()
    i, j, k = sch.get_loops(block)
    steps, _ = sch.split(k, [None, 4])
    sch.reorder(steps, i, j)
    copy = sch.cache_read(block, 0, "shared")
    sch.compute_at(copy, steps)
    return copy


@pytest.mark.parametrize("copies", [None, 2, 3, 8])
def test_a_double_buffer_of_any_number_is_printed_and_replayed(copies: int | None) -> None:
    func = matmul()
    sch = Schedule(func)
    copy = shared_tile(sch)
    sch.double_buffer(copy, copies)
    assert dict(sch.get(copy).annotations) == {"double_buffer": copies or True}
    assert parse_func(sch.func.script()).same(sch.func)
    again = Schedule(func)
    again.replay(sch.trace)
    assert again.func.same(sch.func)
    text = sch.trace.as_python()
    assert (
        text.splitlines()[-1]
        == f"    sch.double_buffer({copy}{f', {copies}' * (copies is not None)})"
    )
    names: dict[str, Any] = {}
    exec(text, names)
    fresh = Schedule(func)
    names["apply"](fresh)
    assert fresh.func.same(sch.func)
    by_hand = Schedule(func)
    by_hand.annotate(shared_tile(by_hand), "double_buffer", copies or True)
    assert by_hand.func.same(sch.func)


def test_how_many_buffers_may_be_decided() -> None:
    """For one program, or for a population."""
    func = matmul()
    sch = Schedule(func, {"stages": np.array([2, 3, 8])})
    copy = shared_tile(sch)
    sch.double_buffer(copy, Decision("stages"))
    np.testing.assert_array_equal(copies_of(sch.get(copy)), [2, 3, 8])
    for n, stages in enumerate((2, 3, 8)):
        alone = sch.trace.apply(func, {"stages": stages})
        assert copies_of(alone.get("A_shared")) == stages
        assert_same_program(candidate(sch.func, n), alone.func)
    with pytest.raises(ScheduleError, match="expected 2 to 8 copies, found 9"):
        sch.trace.apply(func, {"stages": 9})


@pytest.mark.parametrize("copies", [0, 1, 9, -2, True, 2.0, "3", (3,)])
def test_no_number_of_buffers(copies: Any) -> None:
    sch = Schedule(matmul())
    copy = shared_tile(sch)
    with pytest.raises(ScheduleError, match=r"expected 2 to 8 copies|copies is an int"):
        sch.double_buffer(copy, copies)
    if copies is not True:
        with pytest.raises(ScheduleError, match="how many, 2 to 8"):
            sch.annotate(copy, "double_buffer", copies)
    assert "double_buffer" not in sch.func.script()
