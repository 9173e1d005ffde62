"""Free annotations stay through primitives, text and traces; keys that mean something do it."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched.errors import ScheduleError
from autosched.lowering.lower import lower
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir import interp
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
