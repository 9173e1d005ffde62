"""The stage view of recurrences: `s[scan].split(scan.op.scan_axis)` and stages inside the body."""

from __future__ import annotations

import re

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import ScheduleError
from autosched.lowering.lower import lower
from autosched.tir import interp
from autosched.tir.nodes import loops_of
from autosched.tir.verify import verify

T, N = 9, 6


class Cell:
    """out[t] = out[t - 1] reversed, twice, plus the input scaled."""

    def __init__(self) -> None:
        self.X = te.placeholder((T, N), name="X")
        self.state = te.placeholder((T, N), name="state")
        self.first = te.compute((1, N), lambda t, i: self.X[0, i], name="first")
        self.known = te.compute((T, N), lambda t, i: self.X[t, i] * 3, name="known")
        self.part = te.compute((T, N), lambda t, i: self.state[t - 1, N - 1 - i] * 2, name="part")
        self.step = te.compute((T, N), lambda t, i: self.part[t, i] - self.known[t, i], name="step")
        self.out = te.scan(self.first, self.step, self.state, inputs=[self.X], name="out")
        self.s = te.create_schedule(self.out.op)

    def check(self) -> list[str]:
        """The result stays; the kinds of all loops."""
        done = self.s.replay([self.X, self.out]).func
        verify(done)
        x = np.random.default_rng(0).integers(-3, 4, (T, N)).astype("float32")
        want = [x[0]]
        for t in range(1, T):
            want.append(want[-1][::-1] * 2 - x[t] * 3)
        for program in (done, lower(done)):
            found = np.full_like(x, np.nan)
            interp.run(program, [x, found])
            np.testing.assert_array_equal(found, want)
        return [x.kind for x in loops_of(done)]


def test_as_it_is():
    cell = Cell()
    assert [s.name for s in cell.s.stages if s.nest.leaves] == [
        "first", "part", "known", "step", "out",
    ]  # fmt: skip
    cell.check()
    assert [b.name for b in cell.s.replay().func.params] == ["X", "out"]


def test_the_time_loop_is_split_and_unrolled():
    cell = Cell()
    axis = cell.out.op.scan_axis
    outer, inner = cell.s[cell.out].split(axis, factor=3)
    cell.s[cell.out].unroll(inner)
    assert (outer.extent, inner.extent) == (3, 3)
    assert cell.check().count("unrolled") == 1


def test_init_and_update_are_scheduled_apart():
    cell = Cell()
    s = cell.s
    s[cell.first].vectorize(cell.first.op.axis[1])
    _, lanes = s[cell.step].split(cell.step.op.axis[1], factor=4)
    s[cell.step].vectorize(lanes)
    s[cell.known].parallel(cell.known.op.axis[0])
    kinds = cell.check()
    assert kinds.count("vectorized") == 2
    assert kinds.count("parallel") == 1


def test_a_stage_moves_inside_the_body():
    cell = Cell()
    cell.s[cell.part].compute_at(cell.s[cell.step], cell.step.op.axis[1])
    cell.check()
    cell = Cell()
    cell.s[cell.part].compute_inline()
    cell.check()
    cell = Cell()
    cell.s[cell.known].compute_at(cell.s[cell.out], cell.out.op.scan_axis)
    cell.check()


def test_a_copy_of_what_a_step_reads():
    cell = Cell()
    copy = cell.s.cache_read(cell.X, "local", [cell.known])
    cell.s[copy].compute_at(cell.s[cell.known], cell.known.op.axis[0])
    cell.check()


def test_a_copy_of_the_result():
    cell = Cell()
    after = te.compute((T, N), lambda t, i: cell.out[t, i] + 1, name="after")
    s = te.create_schedule(after.op)
    copy = s.cache_read(cell.out, "local", [after])
    s[copy].compute_at(s[after], after.op.axis[0])
    verify(s.replay([cell.X, after]).func)


def _order(cell: Cell) -> None:
    outer, inner = cell.s[cell.out].split(cell.out.op.scan_axis, factor=3)
    cell.s[cell.out].reorder(inner, outer)


def _outside(cell: Cell) -> None:
    outer, _ = cell.s[cell.out].split(cell.out.op.scan_axis, factor=3)
    cell.s[cell.part].compute_at(cell.s[cell.out], outer)


STEP = (
    "axis t of stage step was given to scan out, which keeps the order of the steps: schedule its "
    "loop over them, s[out] and its op.scan_axis; its loops now are i"
)


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (lambda c: c.s[c.step].split(c.step.op.axis[0], factor=2), STEP),
        (lambda c: c.s[c.step].parallel(c.step.op.axis[0]), STEP),
        (lambda c: c.s[c.step].reorder(c.step.op.axis[1], c.step.op.axis[0]), STEP),
        (lambda c: c.s[c.part].compute_at(c.s[c.step], c.step.op.axis[0]), STEP),
        (lambda c: c.s[c.part].fuse(*c.part.op.axis), "axis t of stage part was given to scan out"),
        (
            lambda c: c.s[c.out].parallel(c.out.op.scan_axis),
            "s[out].parallel(t): loop t runs over a sequential axis of part",
        ),
        (
            lambda c: c.s[c.out].vectorize(c.out.op.scan_axis),
            "s[out].vectorize(t): loop t runs over a sequential axis of part",
        ),
        (_order, "s[out].reorder(t.inner, t.outer): reorder would visit a sequential axis"),
        (_outside, "loop t_0 is outside the body of the recurrence"),
        (lambda c: c.s[c.out].compute_inline(), "out is a scan, whose steps stay where they are"),
        (lambda c: c.s[c.step].compute_inline(), "s[step].compute_inline()"),
        (
            lambda c: c.s.cache_read(c.state, "local", [c.part]),
            "state is a state, whose steps are written while they are read",
        ),
        (lambda c: c.s.cache_write(c.out, "local"), "out is a scan, whose update computes it"),
        (
            lambda c: c.s.cache_write(c.part, "local"),
            "is a stage of a recurrence, which stays one block",
        ),
    ],
)
def test_refusals(apply, message):
    cell = Cell()

    def replay() -> None:
        apply(cell)
        cell.s.replay([cell.X, cell.out])

    with pytest.raises(ScheduleError, match=re.escape(message)):
        replay()


def test_an_update_need_not_read_its_state() -> None:
    X = te.placeholder((5, 3), name="X")
    S = te.placeholder((5, 3), name="S")
    init = te.compute((1, 3), lambda _, i: X[0, i], name="init")
    update = te.compute((5, 3), lambda t, i: X[t, i] * 2.0, name="update")
    scan = te.scan(init, update, S)
    s = te.create_schedule(scan.op)
    s[update].vectorize(update.op.axis[1])
    x = np.arange(15, dtype="float32").reshape(5, 3)
    want = x * 2
    want[0] = x[0]
    out = np.zeros_like(x)
    at.build(s, [X, scan], "llvm")(x, out)
    np.testing.assert_array_equal(out, want)
