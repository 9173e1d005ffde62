"""Random small programs, random traces, and what must hold of them.

Everything is decoded from lists of small integers, so that hypothesis shrinks both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched import te
from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.tir.intrin import TensorIntrin
from autosched.tir.nodes import PrimFunc, sites

DTYPE = "int64"


class Choices:
    """A stream of small integers; zeros when it runs out."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers = list(numbers)
        self.at = 0

    def next(self, n: int) -> int:
        """A number below n."""
        if n < 1:
            raise ScheduleError("nothing to choose from")
        value = self.numbers[self.at] if self.at < len(self.numbers) else 0
        self.at += 1
        return value % n

    def of(self, items: Sequence[Any]) -> Any:
        """One of `items`."""
        return items[self.next(len(items))]


# Programs

EXTENTS = (3, 4, 5, 1, 6, 2, 7, 8)


def random_program(
    numbers: Sequence[int],
    dtype: str = DTYPE,
    extents: Sequence[int] = EXTENTS,
    stages: Sequence[Stage] | None = None,
) -> PrimFunc:
    """A DAG of two to five small computations over matrices."""
    c = Choices(numbers)
    n, m = c.of(extents), c.of(extents)
    a = te.placeholder((n, m), name="A", dtype=dtype)
    b = te.placeholder((m, c.of(extents)), name="B", dtype=dtype)
    params, tensors = [a, b], [a, b]
    for number in range(2 + c.next(4)):
        make = c.of(stages or STAGES)
        tensors.append(make(c, tensors, f"T{number}"))
    last = tensors[-1]
    extra = [t for t in tensors[2:-1] if c.next(4) == 3]
    return te.create_prim_func([*params, *extra, last])


def _recent(c: Choices, tensors: list[Any], rank: int) -> Any:
    found = [t for t in tensors if len(t.shape) == rank]
    return found[-1 - c.next(len(found))]


def _pointwise(c: Choices, tensors: list[Any], name: str) -> Any:
    t = _recent(c, tensors, 2)
    same = [u for u in tensors if len(u.shape) == 2 and tuple(u.shape) == tuple(t.shape)]
    other, scale = same[-1 - c.next(len(same))], 1 + c.next(3)
    return te.compute(t.shape, lambda i, j: t[i, j] * scale + other[i, j], name=name)


def _transpose(c: Choices, tensors: list[Any], name: str) -> Any:
    t = _recent(c, tensors, 2)
    return te.compute((t.shape[1], t.shape[0]), lambda i, j: t[j, i] + 1, name=name)


def _padded(c: Choices, tensors: list[Any], name: str) -> Any:
    t, before, after = _recent(c, tensors, 2), c.next(2), c.next(2)
    n, m = t.shape
    return te.compute(
        (n + before + after, m),
        lambda i, j: te.if_then_else(
            te.all(i >= before, i < n + before), t[i - before, j], te.const(0, t.dtype)
        ),
        name=name,
    )


def window(c: Choices, tensors: list[Any], name: str) -> Any:
    t = _recent(c, tensors, 2)
    n, m = t.shape
    size, stride = min(1 + c.next(3), n), 1 + c.next(2)
    r = te.reduce_axis((0, size), name="r")
    reduce = te.max if c.next(2) else te.sum
    return te.compute(
        ((n - size) // stride + 1, m),
        lambda i, j: reduce(t[i * stride + r, j], axis=r),
        name=name,
    )


def _padded_window(c: Choices, tensors: list[Any], name: str) -> Any:
    """A window over padding that is written inside the reduction."""
    t = _recent(c, tensors, 2)
    n, m = t.shape
    size, pad, weight = 1 + c.next(3), 1 + c.next(2), 1 + c.next(3)
    r = te.reduce_axis((0, size), name="r")

    def element(i: Any, j: Any) -> Any:
        x = t[i + r - pad, j]
        zero = te.const(0, t.dtype)
        if c.numbers and c.numbers[0] % 2:
            return te.if_then_else(te.any(i + r < pad, i + r >= n + pad), zero, x + 1) * weight
        return te.if_then_else(te.all(i + r >= pad, i + r < n + pad), x, zero) * weight

    return te.compute(
        (max(n + 2 * pad - size + 1, 1), m), lambda i, j: te.sum(element(i, j), axis=r), name=name
    )


def _matmul(c: Choices, tensors: list[Any], name: str) -> Any:
    t = _recent(c, tensors, 2)
    fitting = [u for u in tensors if len(u.shape) == 2 and u.shape[0] == t.shape[1]]
    if not fitting:
        return _pointwise(c, tensors, name)
    u = fitting[-1 - c.next(len(fitting))]
    k = te.reduce_axis((0, t.shape[1]), name="k")
    return te.compute(
        (t.shape[0], u.shape[1]), lambda i, j: te.sum(t[i, k] * u[k, j], axis=k), name=name
    )


def _rows(c: Choices, tensors: list[Any], name: str) -> Any:
    """A row reduction, broadcast back: the shape of softmax."""
    t = _recent(c, tensors, 2)
    k = te.reduce_axis((0, t.shape[1]), name="k")
    s = te.compute((t.shape[0],), lambda i: te.max(t[i, k], axis=k), name=f"{name}s")
    tensors.append(s)
    return te.compute(t.shape, lambda i, j: t[i, j] - s[i], name=name)


Stage = Callable[[Choices, list[Any], str], Any]
STAGES: tuple[Stage, ...] = (
    _pointwise,
    _matmul,
    _rows,
    window,
    _padded,
    _transpose,
)


# Traces


def random_schedule(
    func: PrimFunc, numbers: Sequence[int], actions: Sequence[Action] | None = None
) -> Schedule:
    """Primitives chosen by `numbers`, six each; those that are refused leave no mark."""
    sch = Schedule(func)
    for n in range(len(numbers) // 6):
        c = Choices(numbers[6 * n : 6 * n + 6])
        before = sch.func
        try:
            c.of(actions or ACTIONS)(sch, c)
        except ScheduleError:
            assert sch.func is before or sch.func is not None
    return sch


def drawn_block(sch: Schedule, c: Choices) -> BlockRV:
    return sch.get_block(c.of([s.block.name for s in sites(sch.func)]))


def drawn_loop(sch: Schedule, c: Choices) -> LoopRV:
    loops = sch.get_loops(drawn_block(sch, c))
    if not loops:
        raise ScheduleError("no loops")
    return c.of(loops)


def drawn_decision(sch: Schedule, value: int) -> Decision:
    name = f"d{len(sch.decisions)}"
    sch.decisions[name] = value
    return Decision(name)


def _split(sch: Schedule, c: Choices) -> None:
    loop = drawn_loop(sch, c)
    factors: list[Any] = [None, drawn_decision(sch, 1 + c.next(4))]
    if c.next(3) == 0:
        factors.append(drawn_decision(sch, 1 + c.next(3)))
    sch.split(loop, factors)


def _reorder(sch: Schedule, c: Choices) -> None:
    loops = list(sch.get_loops(drawn_block(sch, c)))
    start = c.next(max(len(loops), 1))
    part = loops[start : start + 2 + c.next(3)]
    shift = 1 + c.next(3)
    part = part[shift % max(len(part), 1) :] + part[: shift % max(len(part), 1)]
    sch.reorder(*part)


def _fuse(sch: Schedule, c: Choices) -> None:
    loops = list(sch.get_loops(drawn_block(sch, c)))
    start = c.next(max(len(loops), 1))
    sch.fuse(*loops[start : start + 2])


def _cache_read(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    reads = sch.get(block).reads
    index = c.next(max(len(reads), 1))
    layout: list[Any] | None = None
    if c.next(2) and index < len(reads) and len(reads[index].buffer.shape) == 2:
        t = drawn_decision(sch, 1 + c.next(4))
        layouts: list[Any] = [[[1, t], 0, [1, 1, t]], [1, 0], [0, [1, t], [1, 1, t]]]
        layout = c.of([*layouts, [0, [1, 1, reads[index].buffer.shape[1], [0, 2]]]])
    sch.cache_read(block, index, "local", layout)


def _rfactor(sch: Schedule, c: Choices) -> None:
    sch.rfactor(drawn_loop(sch, c), c.next(2))


def _decompose(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    sch.decompose_reduction(block, c.of(sch.get_loops(block) or [LoopRV(-1)]))


def _transform_layout(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    access = c.of([*(("read", n) for n in range(len(sch.get(block).reads))), ("write", 0)])
    found = sch.get(block).reads if access[0] == "read" else sch.get(block).writes
    rank, t = len(found[access[1]].buffer.shape), drawn_decision(sch, 1 + c.next(4))
    layouts: list[Any] = [[[0, t], [0, 1, t]]]
    if rank == 2:
        fused = [0, 1]
        layouts = [[[1, t], 0, [1, 1, t]], [1, 0], [[fused]], [[fused, t], [fused, 1, t]]]
        layouts.append(lambda i, j: (j // 2, i // 3, j % 2, i % 3))
        layouts += _swizzles(found[access[1]].buffer.shape)
    sch.transform_layout(block, access, c.of(layouts), 7 if c.next(3) == 0 else None)


def _swizzles(shape: Sequence[Any]) -> list[Any]:
    """Layouts of a matrix that turn a dimension by the other one."""
    n, m = shape
    return [
        lambda i, j: (i, (i + j) % m),
        [[0, 1, n, [1, 2, 3]], 1],
        lambda i, j: ((j + i // 2) % m, i),
    ]


def _pad_axis(sch: Schedule, c: Choices) -> None:
    sch.pad_axis(drawn_loop(sch, c), 1 + c.next(5))


INTRIN = "fuzz_dot_2x2"


def _register() -> None:
    """An intrinsic for every machine: two sums of two products."""
    TensorIntrin.register(
        INTRIN,
        meaning="""
@T.prim_func
def dot(A: T.Buffer((2,), "int64"), B: T.Buffer((2, 2), "int64"), C: T.Buffer((2,), "int64")):
    for j, k in T.grid(2, 2):
        with T.block("dot"):
            vj = T.axis.spatial(2, j)
            vk = T.axis.reduce(2, k)
            C[vj] = C[vj] + A[vk] * B[vj, vk]
""",
        implementation="""
define <2 x i64> @dot(<2 x i64> %A, <4 x i64> %B, <2 x i64> %C) {
  %b0 = shufflevector <4 x i64> %B, <4 x i64> poison, <2 x i32> <i32 0, i32 2>
  %b1 = shufflevector <4 x i64> %B, <4 x i64> poison, <2 x i32> <i32 1, i32 3>
  %a0 = shufflevector <2 x i64> %A, <2 x i64> poison, <2 x i32> <i32 0, i32 0>
  %a1 = shufflevector <2 x i64> %A, <2 x i64> poison, <2 x i32> <i32 1, i32 1>
  %p0 = mul <2 x i64> %a0, %b0
  %p1 = mul <2 x i64> %a1, %b1
  %s = add <2 x i64> %p0, %p1
  %c = add <2 x i64> %C, %s
  ret <2 x i64> %c
}
""",
    )


_register()


def _tensorize(sch: Schedule, c: Choices) -> None:
    """Bring a product into the form that the intrinsic needs, and mark it."""
    matmuls = [s for s in sites(sch.func) if s.block.is_reduction and len(s.block.reads) == 2]
    block = sch.get_block(c.of([s.block.name for s in matmuls] or ["none"]))
    loops = sch.get_loops(block)
    if len(loops) < 2:
        raise ScheduleError("no product")
    *outer, j, k = loops
    if c.next(4):
        j0, j1 = sch.split(j, [None, 2])
        k0, k1 = sch.split(k, [None, 2])
        sch.reorder(*((j0, k0) if c.next(2) else (k0, j0)), j1, k1)
        sch.cache_read(block, 1, "local", [[1, 2], [0, 2], [1, 1, 2], [0, 1, 2]])
        if c.next(2) and outer:
            sch.unroll(j0)
        j = j1
    sch.tensorize(j, INTRIN)


def _storage_align(sch: Schedule, c: Choices) -> None:
    factor = 1 + c.next(4)
    sch.storage_align(drawn_block(sch, c), 0, -2, drawn_decision(sch, factor), c.next(factor))


def _split_axis(sch: Schedule, c: Choices) -> None:
    block = drawn_block(sch, c)
    axes = sch.get(block).iters
    if not axes:
        raise ScheduleError("no axes")
    sch.split_axis(block, c.next(len(axes)), 2 + c.next(3))


Action = Callable[[Schedule, Choices], None]
ACTIONS: tuple[Action, ...] = (
    _split,
    lambda s, c: s.compute_at(drawn_block(s, c), drawn_loop(s, c)),
    _reorder,
    lambda s, c: s.reverse_compute_at(drawn_block(s, c), drawn_loop(s, c)),
    _split_axis,
    lambda s, c: s.compute_inline(drawn_block(s, c)),
    _fuse,
    lambda s, c: s.compute_at(drawn_block(s, c), drawn_loop(s, c)),
    lambda s, c: s.parallel(drawn_loop(s, c)),
    lambda s, c: s.vectorize(drawn_loop(s, c)),
    _cache_read,
    lambda s, c: s.cache_write(drawn_block(s, c)),
    lambda s, c: s.reverse_compute_inline(drawn_block(s, c)),
    _rfactor,
    _decompose,
    lambda s, c: s.unroll(drawn_loop(s, c)),
    _transform_layout,
    _pad_axis,
    _storage_align,
    lambda s, c: s.parallel_scan(drawn_block(s, c), 2 + c.next(3)),
    _tensorize,
    lambda s, c: s.reverse_compute_at(drawn_block(s, c), drawn_loop(s, c)),
    _reorder,
)
