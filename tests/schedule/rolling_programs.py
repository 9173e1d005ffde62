"""Chains of windows, and schedules that roll their stages along a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schedule_fuzz import ACTIONS, Choices
from schedule_rare import MORE

from autosched import te
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.tir.nodes import PrimFunc


def chain(numbers: Sequence[int], dtype: str = "int64") -> PrimFunc:
    """The program of `tensors`."""
    made = tensors(numbers, dtype)
    return te.create_prim_func([made[0], made[-1]])


def tensors(numbers: Sequence[int], dtype: str = "int64") -> list[te.Tensor]:
    """A matrix and two to five stages, each a window over rows of the one before, or pointwise."""
    c = Choices(numbers)
    rows, columns = 9 + c.next(16), 2 + c.next(5)
    a = te.placeholder((rows, columns), name="A", dtype=dtype)
    made = [a, te.compute(a.shape, lambda i, j: a[i, j] * 3 + 1, name="T0")]
    for n in range(1 + c.next(3)):
        made.append(_stage(c, made[-1], f"T{n + 1}"))
    t = made[-1]
    if c.next(3) == 0:
        made.append(te.compute(t.shape, lambda i, j: t[i, j] - 2, name="last"))
    return made


def _stage(c: Choices, t: Any, name: str) -> Any:
    n, m = t.shape
    size, stride, apart = 1 + c.next(4), 1 + c.next(2), 1 + c.next(2)
    reach = (size - 1) * apart + 1
    kind = c.next(6)
    if kind == 0 or reach > n:
        return te.compute((n, m), lambda i, j: t[i, j] * 2 - j, name=name)
    shape = ((n - reach) // stride + 1, m)
    if kind == 1:  # two elements, no reduction
        return te.compute(
            shape, lambda i, j: t[i * stride, j] - t[i * stride + reach - 1, j], name=name
        )
    if kind == 2:  # from the last row on
        top = shape[0] - 1
        return te.compute(shape, lambda i, j: t[top - i, j] + t[top - i + reach - 1, j], name=name)
    r = te.reduce_axis((0, size), name="r")
    if kind == 3:  # along columns as well
        k = te.reduce_axis((0, m), name="k")
        return te.compute(
            shape, lambda i, j: te.sum(t[i * stride + r * apart, k] * (j + 1), axis=[r, k]), name
        )
    return te.compute(
        shape, lambda i, j: te.sum(t[i * stride + r * apart, j] * (r + 1), axis=r), name=name
    )


def rolled(func: PrimFunc, numbers: Sequence[int]) -> tuple[Schedule, int]:
    """A schedule that rolls what it can, and the number of blocks that it rolled; then a few other
    primitives. Those that are refused leave no mark."""
    sch = Schedule(func)
    c = Choices(numbers[:18])
    names = [sch.get(b).name for b in sch.get_blocks()]
    last = names[c.next(2) - 2] if len(names) > 2 else names[-1]
    depth = 0
    if c.next(3) == 0:
        sch.split(sch.get_loops(last)[0], [None, 2 + c.next(4)])
        depth = c.next(3) > 0
    before = names[: names.index(last)]
    for name in reversed(before):
        _tried(lambda name=name: sch.compute_at(name, sch.get_loops(last)[depth]))
    order = before if c.next(4) else before[::-1]
    count = sum(_tried(lambda name=name: sch.rolling_buffer(name)) for name in order if c.next(8))
    for n in range(3, len(numbers) // 6):
        step = Choices(numbers[6 * n : 6 * n + 6])
        _tried(lambda step=step: step.of([*ACTIONS, *MORE])(sch, step))
    return sch, count


def _tried(call: Any) -> bool:
    try:
        call()
    except ScheduleError:
        return False
    return True
