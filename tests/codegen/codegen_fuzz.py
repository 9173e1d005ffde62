"""Random programs and traces for the code generator: those of `schedule_fuzz`, and the shapes that
generated code has special forms for: register tiles, vectorised reductions, packed panels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import schedule_fuzz as base
from schedule_fuzz import Choices

from autosched import te
from autosched.errors import ScheduleError
from autosched.ops.rows import first_largest
from autosched.schedule import BlockRV, LoopRV, Schedule
from autosched.tir import dtypes
from autosched.tir.nodes import PrimFunc, buffers_of, sites
from autosched.tir.whole import reference

EXTENTS = (7, 16, 3, 1, 17, 5, 19, 33, 8, 2, 31, 13)
DTYPES = ("float32", "int32", "float64", "int64", "int8", "uint8", "int16")
FACTORS = (4, 3, 16, 2, 1, 8, 5, 32, 7)
STEP = 14
"""Numbers that one action may use."""


# Programs


def random_program(numbers: Sequence[int]) -> PrimFunc:
    """A DAG of two to five small computations over matrices of one dtype."""
    c = Choices(numbers)
    return base.random_program(numbers[1:], c.of(DTYPES), EXTENTS, STAGES)


def _recent(c: Choices, tensors: list[Any]) -> Any:
    found = [t for t in tensors if len(t.shape) == 2]
    return found[-1 - c.next(len(found))]


def _product(c: Choices, tensors: list[Any], name: str) -> Any:
    """A matrix product of what is there; either side may be transposed."""
    t, u = _recent(c, tensors), _recent(c, tensors)
    left, right = c.next(4) == 3, c.next(4) == 3
    (n, a), (b, m) = (t.shape[::-1] if left else t.shape), (u.shape[::-1] if right else u.shape)
    k = te.reduce_axis((0, min(a, b)), name="k")
    # Long products of floats overflow, and then the order of the terms matters.
    last = te.prod if dtypes.is_int(t.dtype) else te.sum
    reduce = c.of((te.sum, te.sum, te.max, te.min, last))

    def at(i: Any, j: Any) -> Any:
        return reduce((t[k, i] if left else t[i, k]) * (u[j, k] if right else u[k, j]), axis=k)

    return te.compute((n, m), at, name=name)


def _strided(c: Choices, tensors: list[Any], name: str) -> Any:
    """Every second or third element of a row, from the right end."""
    t = _recent(c, tensors)
    n, m = t.shape
    step = 1 + c.next(3)
    return te.compute(
        (n, -(-m // step)), lambda i, j: t[n - 1 - i, m - 1 - j * step] + 1, name=name
    )


def _reshaped(c: Choices, tensors: list[Any], name: str) -> Any:
    """The same elements in rows of another length."""
    t = _recent(c, tensors)
    n, m = t.shape
    width = c.of((4, 3, m, 8))
    rows = max(1, n * m // width)
    width = min(width, n * m)

    def at(i: Any, j: Any) -> Any:
        flat = i * width + j
        return t[flat // m, flat % m]

    return te.compute((rows, width), at, name=name)


def _gather(c: Choices, tensors: list[Any], name: str) -> Any:
    """Rows (or columns) chosen by the values of another matrix."""
    t, chooser = _recent(c, tensors), _recent(c, tensors)
    n, m = t.shape
    whole = dtypes.is_int(t.dtype) and t.dtype != "uint8"

    def index(value: Any, size: int) -> Any:
        if not whole:  # the remainder of a negative float or a large one is inexact
            value = te.max(te.min(value, te.const(9, t.dtype)), te.const(0, t.dtype))
        return te.cast(value, "int64") % size

    if c.next(2):
        return te.compute(chooser.shape, lambda i, j: t[index(chooser[i, j], n), j % m], name=name)
    return te.compute(chooser.shape, lambda i, j: t[i % n, index(chooser[i, j], m)], name=name)


def _guarded_gather(c: Choices, tensors: list[Any], name: str) -> Any:
    """A shifted read through an index that exists only inside."""
    t = _recent(c, tensors)
    n, m = t.shape
    shift, zero = 1 + c.next(3), te.const(0, t.dtype)

    def at(i: Any, j: Any) -> Any:
        inner = te.cast(te.max(te.min(t[i - shift, j], te.const(9, t.dtype)), zero), "int64")
        return te.if_then_else(i >= shift, t[inner % n, j], te.const(1, t.dtype))

    return te.compute((n + shift, m), at, name=name)


def _select(c: Choices, tensors: list[Any], name: str) -> Any:
    t = _recent(c, tensors)
    two = te.const(2, t.dtype)
    return te.compute(
        t.shape,
        lambda i, j: te.select(te.any(t[i, j] > 2, (i + j) % 3 == 1), t[i, j], two),
        name=name,
    )


def _argmax(c: Choices, tensors: list[Any], name: str) -> Any:
    """Index and value of the largest of a row, both outputs of one block."""
    t = _recent(c, tensors)
    k = te.reduce_axis((0, t.shape[1]), name="k")
    index, value = te.compute(
        (t.shape[0],),
        lambda i: first_largest((te.cast(k, "int32"), t[i, k]), axis=k),
        name=f"{name}a",
    )
    tensors += [index, value]
    return te.compute(
        (t.shape[0], t.shape[1]), lambda i, j: value[i] + te.cast(index[i], t.dtype), name=name
    )


def _total(c: Choices, tensors: list[Any], name: str) -> Any:
    """A sum over everything, of rank 0, taken from every element."""
    t = _recent(c, tensors)
    r, s = te.reduce_axis((0, t.shape[0]), name="r"), te.reduce_axis((0, t.shape[1]), name="s")
    total = te.compute((), lambda: te.sum(t[r, s], axis=[r, s]), name=f"{name}s")
    tensors.append(total)
    return te.compute(t.shape, lambda i, j: t[i, j] - total[()], name=name)


def _conv(c: Choices, tensors: list[Any], name: str) -> Any:
    """Padded, dilated, strided: both the padding and the sum in one computation."""
    t = _recent(c, tensors)
    n, m = t.shape
    pad, dilation, stride, size = c.next(3), 1 + c.next(2), 1 + c.next(2), 1 + c.next(3)
    out = (n + 2 * pad - dilation * (size - 1) - 1) // stride + 1
    if out < 1:
        pad, dilation, stride, size, out = 0, 1, 1, 1, n
    r, s = te.reduce_axis((0, size), name="r"), te.reduce_axis((0, size), name="s")

    def at(i: Any, j: Any) -> Any:
        y, x = i * stride + r * dilation - pad, j + s - 1
        inside = te.all(y >= 0, y < n, x >= 0, x < m)
        value = te.if_then_else(inside, t[y, x], te.const(0, t.dtype))
        return te.sum(value * t[r % n, s % m], axis=[r, s])

    return te.compute((out, m), at, name=name)


def _batch(c: Choices, tensors: list[Any], name: str) -> Any:
    """A rank-3 product, summed over its first axis."""
    t, u = _recent(c, tensors), _recent(c, tensors)
    rows, cols = min(t.shape[0], u.shape[0]), min(t.shape[1], u.shape[1])
    b = te.reduce_axis((0, 3), name="b")
    cube = te.compute(
        (3, rows, cols), lambda b, i, j: t[i, j] * u[(i + b) % rows, j], name=f"{name}c"
    )
    tensors.append(cube)
    return te.compute((rows, cols), lambda i, j: te.sum(cube[b, i, j], axis=b), name=name)


STAGES: tuple[base.Stage, ...] = (
    _product,
    *base.STAGES,
    _conv,
    _product,
    _strided,
    _gather,
    _argmax,
    _reshaped,
    _guarded_gather,
    _total,
    _select,
    _batch,
)


def is_exact(func: PrimFunc, arrays: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether every value of the computation is a whole number that its dtype holds exactly, so
    that no order of additions can change a result."""
    inner = [b for b in buffers_of(func) if all(b is not p for p in func.params)]
    memory = [a.copy() for a in arrays]
    memory += [np.zeros(tuple(int(n) for n in b.shape), b.dtype) for b in inner]
    whole = replace(func, params=(*func.params, *inner))
    reference(whole, memory)
    limits = {"float32": 2.0**20, "float64": 2.0**48}
    return all(
        bool(np.all(np.abs(x) < limits[x.dtype.name])) for x in memory if x.dtype.name in limits
    )


# Traces


def random_schedule(func: PrimFunc, trace: Sequence[Sequence[int]]) -> Schedule:
    """Actions chosen by STEP numbers each; those that are refused leave no mark.

    In three of four schedules the first is a register tile, before others spoil the loops for it.
    """
    sch = Schedule(func)
    for n, numbers in enumerate(trace):
        c = Choices(numbers)
        action = c.of(ACTIONS)
        if n == 0 and c.next(4):
            action = _tile
        trial = sch.copy()
        try:
            action(trial, c)
        except ScheduleError:
            continue
        sch = trial
    return sch


def _try(step: Callable[[], object]) -> None:
    """A step that may be refused; what was done before it stands."""
    try:
        step()
    except ScheduleError:
        return


def _kinds(sch: Schedule, block: BlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """The spatial and the reduction loops of a block."""
    from autosched.schedule.check import ordered_vars

    ordered = ordered_vars(sch.get(block))
    loops = sch.get_loops(block)
    reduce = [x for x in loops if sch.get(x).var in ordered]
    return [x for x in loops if x not in reduce], reduce


def _reduction(sch: Schedule, c: Choices) -> BlockRV:
    names = [s.block.name for s in sites(sch.func) if s.block.is_reduction]
    if not names:
        raise ScheduleError("no reduction")
    return sch.get_block(c.of(names))


def _tile(sch: Schedule, c: Choices) -> None:
    """A register tile: rows, vectors, and maybe copies of the reduction loop."""
    block = _reduction(sch, c)
    spatial, reduce = _kinds(sch, block)
    rows, cols, copies = c.of(FACTORS), c.of((16, 32, 8, 3, 5, 20)), c.next(4)
    inner: list[LoopRV] = []
    outer: list[LoopRV] = []
    if len(spatial) > 1:
        a, b = sch.split(spatial[-2], [None, rows])
        outer, inner = [*spatial[:-2], a], [b]
    if spatial:
        a, b = sch.split(spatial[-1], [None, cols])
        outer.append(a)
        inner.append(b)
    deep = list(reduce)
    if copies and deep:
        k0, k1 = sch.split(deep[-1], [None, copies])
        deep[-1:] = [k0, k1]
    middle = c.next(3)
    order = [*outer, *deep, *inner]
    if middle == 1 and len(deep) > 1:  # an outer reduction loop: the tile accumulates in memory
        order = [deep[0], *outer, *deep[1:], *inner]
    elif middle == 2 and len(inner) > 1:
        order = [*outer, *deep[:-1], inner[0], deep[-1], inner[1]]
    _try(lambda: sch.reorder(*order))
    pack = c.next(4)
    if pack and len(spatial) > 1:
        _try(lambda: _pack(sch, block, cols, rows, pack, order, c))
    if len(inner) > 1:
        _try(lambda: sch.unroll(inner[0]))
    if copies and c.next(2) and deep:
        _try(lambda: sch.unroll(deep[-1]))
    if inner:
        _try(lambda: sch.vectorize(inner[-1]) if c.next(5) else sch.unroll(inner[-1]))
    if outer and c.next(2):
        _try(lambda: sch.parallel(outer[0]))
    if len(outer) > 1 and c.next(2):
        _try(lambda: sch.parallel(outer[1]))


def _pack(
    sch: Schedule, block: BlockRV, cols: int, rows: int, pack: int, order: list[LoopRV], c: Choices
) -> None:
    reads = sch.get(block).reads
    n = c.next(len(reads))
    if len(reads[n].buffer.shape) != 2:
        raise ScheduleError("not a matrix")
    layouts = (None, [[1, cols], [0], [1, 1, cols]], [[0, rows], [1], [0, 1, rows]], None)
    panel = sch.cache_read(block, n, "local", layouts[pack])
    if c.next(3):
        _try(lambda: sch.compute_at(panel, c.of(order)))
    if c.next(2):
        _try(lambda: sch.vectorize(sch.get_loops(panel)[-1]))


def _lanes_reduce(sch: Schedule, c: Choices) -> None:
    """A vectorised reduction, with unrolled rows around or unrolled copies inside."""
    block = _reduction(sch, c)
    spatial, reduce = _kinds(sch, block)
    if not reduce:
        raise ScheduleError("reduced already")
    form, factor = c.next(4), c.of((16, 32, 5, 40, 3, 64))
    lane = reduce[-1]
    outside: list[LoopRV] = []
    if form:
        k0, lane = sch.split(reduce[-1], [None, factor])
        outside = [k0]
    if form > 1 and spatial:
        a, b = sch.split(spatial[-1], [None, c.of((2, 3, 1))])
        sch.reorder(
            *spatial[:-1], a, *reduce[:-1], *outside, *([b, lane] if form == 2 else [lane, b])
        )
        sch.unroll(b)
    sch.vectorize(lane)
    if spatial and c.next(2):
        _try(lambda: sch.parallel(sch.get_loops(block)[0]))


def _vector(sch: Schedule, c: Choices) -> None:
    """The last loop in vectors, the one before maybe in copies, the first over threads."""
    block = sch.get_block(c.of([s.block.name for s in sites(sch.func)]))
    loops = list(sch.get_loops(block))
    if not loops:
        raise ScheduleError("no loops")
    if c.next(2):
        loops[-1:] = sch.split(loops[-1], [None, c.of((16, 8, 3, 40, 5))])
    _try(lambda: sch.vectorize(loops[-1]))
    if len(loops) > 1 and c.next(2):
        _try(lambda: sch.unroll(loops[-2]))
    if c.next(2):
        _try(lambda: sch.parallel(loops[0]))
    if c.next(3) == 0:
        _try(lambda: sch.annotate(block, "streaming", True))


def _split(sch: Schedule, c: Choices) -> None:
    sch.split(
        base.drawn_loop(sch, c), [None, c.of(FACTORS), *([c.of(FACTORS)] if c.next(3) == 0 else [])]
    )


def _unroll_below(sch: Schedule, c: Choices) -> None:
    """Copies around loops with tails: what one copy knows must not leak into the next."""
    outer, inner = sch.split(base.drawn_loop(sch, c), [None, c.of((2, 3))])
    sch.unroll(c.of((outer, inner)))


def _deep_compute_at(sch: Schedule, c: Choices) -> None:
    blocks = [s.block.name for s in sites(sch.func)]
    producer = sch.get_block(c.of(blocks))
    consumers = sch.get_consumers(producer)
    loops = sch.get_loops(consumers[-1]) if consumers else ()
    if not loops:
        raise ScheduleError("no consumer's loop")
    sch.compute_at(producer, c.of(loops))


def _deep_reverse(sch: Schedule, c: Choices) -> None:
    consumer = sch.get_block(c.of([s.block.name for s in sites(sch.func)]))
    producers = sch.get_producers(consumer)
    spatial = _kinds(sch, producers[-1])[0] if producers else []
    if not spatial:
        raise ScheduleError("no producer's loop")
    sch.reverse_compute_at(consumer, c.of(spatial))


ACTIONS: tuple[base.Action, ...] = (
    _tile,
    _vector,
    *base.ACTIONS,
    _lanes_reduce,
    _tile,
    _split,
    _deep_compute_at,
    _vector,
    _unroll_below,
    _deep_reverse,
    _lanes_reduce,
    _deep_compute_at,
)
