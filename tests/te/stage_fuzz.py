"""Random computations and random calls of the stage view.

Everything is decoded from lists of small integers, so that hypothesis shrinks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from schedule_fuzz import EXTENTS, STAGES, Choices, window

from autosched import te
from autosched.errors import ScheduleError
from autosched.te.tensor import ComputeOp

WIDTH = 6
"""Numbers that one call is made of."""


class Latest(Choices):
    """Choices that prefer the first, which is the tensor made last, so that stages form chains."""

    def next(self, n: int) -> int:
        value = super().next(1000)
        return value // 2 % n if value % 2 else 0


class Program:
    """A computation: its inputs, all its tensors, and those that are outputs."""

    def __init__(self, numbers: Sequence[int], dtype: str = "int64") -> None:
        c = Choices(numbers[::2])
        inner = Latest(numbers[1::2])
        n, m = c.of(EXTENTS), c.of(EXTENTS)
        a = te.placeholder((n, m), name="A", dtype=dtype)
        b = te.placeholder((m, c.of(EXTENTS)), name="B", dtype=dtype)
        self.tensors = [a, b]
        for number in range(2 + c.next(3)):
            make = c.of((*STAGES, window, window))
            self.tensors.append(make(inner, self.tensors, f"T{number}"))
        self.outputs = [self.tensors[-1]]
        self.outputs += [t for t in self.tensors[2:-1] if c.next(5) == 4]
        self.args = [a, b, *self.outputs]

    def schedule(self) -> te.StageSchedule:
        """A fresh schedule without calls."""
        return te.create_schedule([t.op for t in self.outputs])


class Calls:
    """A schedule to which calls are made, and the tensors that can be named."""

    def __init__(self, program: Program) -> None:
        self.s = program.schedule()
        used = {stage.op for stage in self.s.stages}
        self.tensors = [t for t in program.tensors if t.op in used]

    def call(self, numbers: Sequence[int]) -> str:
        """Make the call that `numbers` stand for; returns its name. ScheduleError if refused."""
        c = Choices(numbers)
        action = c.of(ACTIONS)
        action(self, c)
        return action.__name__.strip("_")

    def stage(self, c: Choices) -> te.Stage:
        """A stage, computed ones mostly."""
        stages = [x for x in self.s.stages if isinstance(x.op, ComputeOp) or c.next(16) == 15]
        return c.of(stages)

    def inner(self, c: Choices) -> te.Stage:
        """A stage, mostly one that is neither input nor output."""
        found = [
            x for x in self.s.stages if isinstance(x.op, ComputeOp) and not self.s.is_output(x)
        ]
        return c.of(found) if found and c.next(16) < 15 else self.stage(c)

    def leaf(self, stage: te.Stage, c: Choices) -> Any:
        """A loop of a stage; now and then an axis that is none."""
        if c.next(12) == 11:
            return c.of([*stage.op.axis, *stage.op.reduce_axis, c.of(self.s.stages), None])
        return c.of(stage.leaf_iter_vars or [None])


def _split(x: Calls, c: Choices) -> None:
    stage = x.stage(c)
    axis = x.leaf(stage, c)
    how = c.of(["factor", "factor", "nparts"])
    stage.split(axis, **{how: 1 + c.next(5)})


def _tile(x: Calls, c: Choices) -> None:
    stage = x.stage(c)
    if len(stage.leaf_iter_vars) < 2:
        raise ScheduleError(f"s[{stage.name}] has no two loops")
    at = c.next(len(stage.leaf_iter_vars) - 1)
    a, b = stage.leaf_iter_vars[at : at + 2]
    stage.tile(a, b, 1 + c.next(4), 1 + c.next(4))


def _fuse(x: Calls, c: Choices) -> None:
    stage = x.stage(c)
    leaves = stage.leaf_iter_vars
    first = c.next(max(len(leaves), 1))
    stage.fuse(*leaves[first : first + 1 + c.next(3)])


def _reorder(x: Calls, c: Choices) -> None:
    stage = x.stage(c)
    leaves = list(stage.leaf_iter_vars)
    first = c.next(max(len(leaves), 1))
    part = leaves[first : first + 2 + c.next(3)]
    turn = c.next(max(len(part), 1))
    stage.reorder(*part[turn:], *part[:turn])


def _compute_at(x: Calls, c: Choices) -> None:
    stage = x.inner(c)
    parents = x.s.consumers(stage) if c.next(10) < 9 else x.s.stages
    parent = c.of(parents or x.s.stages)
    stage.compute_at(parent, x.leaf(parent, c))


def _compute_inline(x: Calls, c: Choices) -> None:
    x.inner(c).compute_inline()


def _compute_root(x: Calls, c: Choices) -> None:
    x.stage(c).compute_root()


def _mark(kind: str) -> Callable[[Calls, Choices], None]:
    def mark(x: Calls, c: Choices) -> None:
        stage = x.stage(c)
        innermost = stage.leaf_iter_vars[-1:] if c.next(2) else []
        axis = innermost[0] if innermost and kind == "vectorize" else x.leaf(stage, c)
        getattr(stage, kind)(axis)

    mark.__name__ = kind
    return mark


def _cache_read(x: Calls, c: Choices) -> None:
    tensor = c.of([t for t in x.tensors if x.s.readers(x.s[t])] if c.next(9) < 8 else x.tensors)
    readers = x.s.readers(x.s[tensor]) or x.s.stages
    chosen = [s.op for s in readers if c.next(3)] or [readers[0].op]
    x.tensors.append(x.s.cache_read(tensor, c.of(["local", "global"]), chosen))


def _cache_write(x: Calls, c: Choices) -> None:
    tensors = [t for t in x.tensors if isinstance(x.s[t].op, ComputeOp) or c.next(16) == 15]
    x.tensors.append(x.s.cache_write(c.of(tensors), c.of(["local", "global"])))


def _transform_layout(x: Calls, c: Choices) -> None:
    size = 2 + c.next(3)
    layouts: list[Callable[..., Any]] = [
        lambda *i: i[::-1],
        lambda *i: (i[0] // size, *i[1:], i[0] % size),
        lambda *i: (*i, i[-1] // size, i[-1] % size)[len(i) == 1 :],
        lambda *i: (*i[:-1], i[-1] // size, i[-1] % size),
    ]
    x.inner(c).transform_layout(c.of(layouts))


def _rfactor(x: Calls, c: Choices) -> None:
    found = [t for t in x.tensors if x.s[t].op.reduce_axis] or x.tensors
    tensor = c.of(found)
    reduced = [a for a in x.s[tensor].leaf_iter_vars if a.kind == "reduce"]
    x.tensors.append(x.s.rfactor(tensor, c.of(reduced or [None]), c.next(4) - 1))


def _set_scope(x: Calls, c: Choices) -> None:
    x.inner(c).set_scope(c.of(["local", "global"]))


def _storage_align(x: Calls, c: Choices) -> None:
    stage = x.inner(c)
    factor = 1 + c.next(4)
    stage.storage_align(c.of(stage.op.axis or [None]), factor, c.next(factor))


def _rolling_buffer(x: Calls, c: Choices) -> None:
    """Of a stage that is computed at a loop of the one that reads it, a reduction if any."""
    inner = [t for t in x.s.stages if isinstance(t.op, ComputeOp) and not x.s.is_output(t)]
    windows = [t for t in inner if [bool(r.op.reduce_axis) for r in x.s.readers(t)] == [True]]
    stage = c.of(windows) if windows and c.next(8) else x.inner(c)
    readers = x.s.readers(stage)
    if readers and c.next(8):
        parent = c.of(readers)
        stage.compute_at(parent, c.of(parent.leaf_iter_vars[:1] or [None]))
    stage.rolling_buffer()


ACTIONS: tuple[Callable[[Calls, Choices], None], ...] = (
    _split,
    _compute_at,
    _reorder,
    _mark("vectorize"),
    _tile,
    _compute_at,
    _cache_write,
    _split,
    _mark("parallel"),
    _rfactor,
    _fuse,
    _cache_read,
    _compute_inline,
    _mark("unroll"),
    _compute_root,
    _set_scope,
    _storage_align,
    _rolling_buffer,
    _transform_layout,
)


def random_schedule(
    program: Program, numbers: Sequence[int], count: Counter[str] | None = None
) -> te.StageSchedule:
    """The calls that `numbers` stand for, without those that are refused, at once or in replay.

    `count` counts the calls done by name and, with a "-" before it, those refused.
    """
    kept: list[Sequence[int]] = []
    for n in range(len(numbers) // WIDTH):
        new = numbers[n * WIDTH : n * WIDTH + WIDTH]
        calls = Calls(program)
        for old in kept:
            calls.call(old)
        name = ACTIONS[new[0] % len(ACTIONS)].__name__.strip("_")
        refusal = _refusal(calls, program, new)
        if refusal is None:
            kept.append(new)
        else:
            assert refusal.startswith(("s[", "s.")), f"which call is refused? {refusal}"
            name = f"-{name}"
        if count is not None:
            count[name] += 1
    calls = Calls(program)
    for old in kept:
        calls.call(old)
    return calls.s


def _refusal(calls: Calls, program: Program, numbers: Sequence[int]) -> str | None:
    """Why a further call is refused, at once or in replay; None where it is done."""
    try:
        calls.call(numbers)
        calls.s.replay(program.args)
    except ScheduleError as e:
        return str(e)
    return None
