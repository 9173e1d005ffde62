"""Schedules with the keywords of TVM do what those with our own do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from schedule_programs import matmul, matmul_add

from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.schedule.keywords import ONLY, RENAMED, WITHOUT_MEANING

Act = Callable[[Schedule], object]


def loop(s: Schedule, n: int = 0, block: str = "C") -> object:
    return s.get_loops(block)[n]


CASES: dict[str, tuple[Act, Act]] = {
    "split": (
        lambda s: s.split(loop=loop(s), factors=[None, 2], preserve_unit_iters=True),
        lambda s: s.split(loop(s), [None, 2]),
    ),
    "fuse": (
        lambda s: s.fuse(loop(s), loop(s, 1), preserve_unit_iters=False),
        lambda s: s.fuse(loop(s), loop(s, 1)),
    ),
    "bind": (
        lambda s: s.bind(loop(s), thread_axis="blockIdx.x"),
        lambda s: s.bind(loop(s), "blockIdx.x"),
    ),
    "cache_read": (
        lambda s: s.cache_read(
            block="C", read_buffer_index=1, storage_scope="shared", consumer_blocks=["C"]
        ),
        lambda s: s.cache_read("C", 1, "shared", consumers=["C"]),
    ),
    "cache_read of none": (
        lambda s: s.cache_read("C", 0, storage_scope="local", consumer_blocks=None),
        lambda s: s.cache_read("C", 0, "local"),
    ),
    "cache_write": (
        lambda s: s.cache_write("C", write_buffer_index=0, storage_scope="global"),
        lambda s: s.cache_write("C", 0, "global"),
    ),
    "annotate": (
        lambda s: s.annotate(block_or_loop="C", ann_key="x", ann_val=1),
        lambda s: s.annotate("C", "x", 1),
    ),
    "add_unit_loop": (
        lambda s: s.add_unit_loop(block_or_loop="C"),
        lambda s: s.add_unit_loop("C"),
    ),
    "blockize": (
        lambda s: s.blockize(target=loop(s, 1), preserve_unit_iters=True),
        lambda s: s.blockize(loop(s, 1)),
    ),
    "pad_einsum": (
        lambda s: s.pad_einsum("C", padding=[4, 4, 4]),
        lambda s: s.pad_einsum("C", [4, 4, 4]),
    ),
    "get_block": (
        lambda s: s.decompose_reduction(s.get_block("C", func_name="main"), loop(s, 2)),
        lambda s: s.decompose_reduction(s.get_block("C"), loop(s, 2)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_is_done(name: str) -> None:
    theirs, ours = (Schedule(matmul(4, 5, 3), seed=0) for _ in range(2))
    CASES[name][0](theirs)
    CASES[name][1](ours)
    assert theirs.func.same(ours.func)
    assert theirs.trace == ours.trace
    again = Schedule(mod=matmul(4, 5, 3), debug_mask="all", enable_check=True)  # type: ignore
    again.replay(theirs.trace)
    assert again.func.same(ours.func)


def test_places_and_scopes_of_a_chain() -> None:
    sch = Schedule(matmul_add(4, 5, 3))
    row = sch.get_loops("out")[0]
    sch.compute_at("matmul", row, preserve_unit_loops=True, index=-1)  # type: ignore[call-arg]
    sch.set_scope("matmul", buffer_index=0, storage_scope="local")  # type: ignore[call-arg]
    assert sch.get("matmul").writes[0].buffer.scope == "local"
    with pytest.raises(ScheduleError, match="compute_at: index is 1; expected -1"):
        sch.compute_at("matmul", row, index=1)  # type: ignore[call-arg]
    with pytest.raises(ScheduleError, match="set_scope: scope and storage_scope are one argument"):
        sch.set_scope("matmul", 0, scope="local", storage_scope="local")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'block_or_loop'"):
        sch.get_loops(block_or_loop="matmul")  # type: ignore[call-arg]


def test_every_method_of_the_tables_is_there() -> None:
    assert all(hasattr(Schedule, name) for name in {**RENAMED, **WITHOUT_MEANING, **ONLY})


def test_main_is_the_only_function(capsys: pytest.CaptureFixture[str]) -> None:
    sch = Schedule(matmul(4, 5, 3))
    assert sch.mod["main"] is sch.func
    sch.mod.show()
    sch.get_block("C")
    sch.trace.show()
    printed = capsys.readouterr().out
    assert printed == sch.mod.script() + str(sch.trace)
