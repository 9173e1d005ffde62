"""Loop kinds that a later primitive would make illegal are checked again, and no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from schedule_programs import padded_conv

from autosched import build, te
from autosched.errors import ScheduleError
from autosched.schedule import LoopRV, Schedule, kinds
from autosched.tir.affine import Affine
from autosched.tir.expr import Slot, Var
from autosched.tir.nodes import Access, Block, Buffer, For, Iter, PrimFunc


def loops(s: Schedule, name: str) -> tuple[LoopRV, ...]:
    return s.get_loops(s.get_block(name))


def test_parallel_is_checked_again_when_blocks_move() -> None:
    """A halo computed inside a parallel loop stays private to its iterations."""
    schedule = Schedule(padded_conv())
    i, *_ = loops(schedule, "conv")
    schedule.compute_at(schedule.get_block("pad"), i)
    schedule.parallel(i)
    schedule.reverse_compute_at(schedule.get_block("relu"), i)
    # With a reader after the loop the window is no longer private, and neighbours write it too.
    schedule.func = _with_late_reader(schedule.func)
    late = schedule.get_block("late")
    with pytest.raises(ScheduleError, match="it cannot be parallel"):
        schedule.cache_read(late, 0)


@pytest.mark.parametrize("lanes", [16, 24, 40, 64])
def test_guards_bound_what_a_parallel_iteration_touches(lanes: int) -> None:
    """Tiles of 40 elements in lanes that do not divide them overlap no neighbour."""
    a = te.placeholder((440,), name="A")
    first = te.compute((440,), lambda i: a[i] * 2.0, name="first")
    second = te.compute((440,), lambda i: first[i] + 1.0, name="second")
    s = Schedule(te.create_prim_func([a, second]))
    tile, _ = s.split(loops(s, "first")[0], [None, 40])
    s.reverse_compute_at(s.get_block("second"), tile)
    _, inner = s.split(loops(s, "second")[-1], [None, lanes])
    s.parallel(tile)
    s.vectorize(inner)
    x = np.arange(440, dtype="float32")
    y = np.empty_like(x)
    build(s)(x, y)
    np.testing.assert_array_equal(y, x * 2 + 1)


def _with_late_reader(func: PrimFunc) -> PrimFunc:

    from autosched.tir.nodes import buffers_of

    pad = next(b for b in buffers_of(func) if b.name == "pad")
    out = Buffer("late_out", pad.shape, pad.dtype)
    i, j, vi, vj = Var("i"), Var("j"), Var("vi"), Var("vj")
    index = (Affine.of(vi), Affine.of(vj))
    block = Block(
        "late",
        (Iter(vi, 11), Iter(vj, 3)),
        (Affine.of(i), Affine.of(j)),
        (),
        (Access(pad, index),),
        (Access(out, index),),
        (Slot(0, pad.dtype),),
    )
    nest = For(i, 11, (For(j, 3, (block,)),))
    return replace(func, params=(*func.params, out), body=(*func.body, nest))


def test_a_nest_that_stays_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    a = te.placeholder((4, 6), name="A")
    first = te.compute((4, 6), lambda i, j: a[i, j] + 1.0, name="first")
    second = te.compute((4, 6), lambda p, q: a[p, q] * 2.0, name="second")
    third = te.compute((4, 6), lambda r, t: second[r, t] * 2.0, name="third")
    s = Schedule(te.create_prim_func([a, first, second, third]))
    for name in ("first", "second"):
        s.parallel(loops(s, name)[0])
    seen: list[str] = []
    monkeypatch.setattr(kinds, "check_loop", lambda func, node, *kind: seen.append(node.var.name))
    s.reorder(*reversed(loops(s, "third")))  # which reads what the second writes
    assert seen == ["p"]
