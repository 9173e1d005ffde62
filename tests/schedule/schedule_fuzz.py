"""Random small programs, random traces, and what must hold of them.

Everything is decoded from lists of small integers, so that hypothesis shrinks both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autosched import te
from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.tir import interp
from autosched.tir.affine import Affine
from autosched.tir.expr import Var
from autosched.tir.intrin import TensorIntrin
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Node,
    PrimFunc,
    Site,
    inputs_of,
    kind_vars,
    sites,
)

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


def _window(c: Choices, tensors: list[Any], name: str) -> Any:
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
    _window,
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


def _block(sch: Schedule, c: Choices) -> BlockRV:
    return sch.get_block(c.of([s.block.name for s in sites(sch.func)]))


def _loop(sch: Schedule, c: Choices) -> LoopRV:
    loops = sch.get_loops(_block(sch, c))
    if not loops:
        raise ScheduleError("no loops")
    return c.of(loops)


def _decide(sch: Schedule, value: int) -> Decision:
    name = f"d{len(sch.decisions)}"
    sch.decisions[name] = value
    return Decision(name)


def _split(sch: Schedule, c: Choices) -> None:
    loop = _loop(sch, c)
    factors: list[Any] = [None, _decide(sch, 1 + c.next(4))]
    if c.next(3) == 0:
        factors.append(_decide(sch, 1 + c.next(3)))
    sch.split(loop, factors)


def _reorder(sch: Schedule, c: Choices) -> None:
    loops = list(sch.get_loops(_block(sch, c)))
    start = c.next(max(len(loops), 1))
    part = loops[start : start + 2 + c.next(3)]
    shift = 1 + c.next(3)
    part = part[shift % max(len(part), 1) :] + part[: shift % max(len(part), 1)]
    sch.reorder(*part)


def _fuse(sch: Schedule, c: Choices) -> None:
    loops = list(sch.get_loops(_block(sch, c)))
    start = c.next(max(len(loops), 1))
    sch.fuse(*loops[start : start + 2])


def _cache_read(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    reads = sch.get(block).reads
    index = c.next(max(len(reads), 1))
    layout: list[Any] | None = None
    if c.next(2) and index < len(reads) and len(reads[index].buffer.shape) == 2:
        t = _decide(sch, 1 + c.next(4))
        layouts: list[Any] = [[[1, t], 0, [1, 1, t]], [1, 0], [0, [1, t], [1, 1, t]]]
        layout = c.of([*layouts, [0, [1, 1, reads[index].buffer.shape[1], [0, 2]]]])
    sch.cache_read(block, index, "local", layout)


def _rfactor(sch: Schedule, c: Choices) -> None:
    sch.rfactor(_loop(sch, c), c.next(2))


def _decompose(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    sch.decompose_reduction(block, c.of(sch.get_loops(block) or [LoopRV(-1)]))


def _transform_layout(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    access = c.of([*(("read", n) for n in range(len(sch.get(block).reads))), ("write", 0)])
    found = sch.get(block).reads if access[0] == "read" else sch.get(block).writes
    rank, t = len(found[access[1]].buffer.shape), _decide(sch, 1 + c.next(4))
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
    sch.pad_axis(_loop(sch, c), 1 + c.next(5))


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
    sch.storage_align(_block(sch, c), 0, -2, _decide(sch, factor), c.next(factor))


def _split_axis(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    axes = sch.get(block).iters
    if not axes:
        raise ScheduleError("no axes")
    sch.split_axis(block, c.next(len(axes)), 2 + c.next(3))


Action = Callable[[Schedule, Choices], None]
ACTIONS: tuple[Action, ...] = (
    _split,
    lambda s, c: s.compute_at(_block(s, c), _loop(s, c)),
    _reorder,
    lambda s, c: s.reverse_compute_at(_block(s, c), _loop(s, c)),
    _split_axis,
    lambda s, c: s.compute_inline(_block(s, c)),
    _fuse,
    lambda s, c: s.compute_at(_block(s, c), _loop(s, c)),
    lambda s, c: s.parallel(_loop(s, c)),
    lambda s, c: s.vectorize(_loop(s, c)),
    _cache_read,
    lambda s, c: s.cache_write(_block(s, c)),
    lambda s, c: s.reverse_compute_inline(_block(s, c)),
    _rfactor,
    _decompose,
    lambda s, c: s.unroll(_loop(s, c)),
    _transform_layout,
    _pad_axis,
    _storage_align,
    lambda s, c: s.parallel_scan(_block(s, c), 2 + c.next(3)),
    _tensorize,
    lambda s, c: s.reverse_compute_at(_block(s, c), _loop(s, c)),
    _reorder,
)


def _merge(sch: Schedule, c: Choices) -> None:
    """Loops at one depth of blocks that follow each other, more often than not."""
    names = [s.block.name for s in sites(sch.func)]
    start = c.next(len(names))
    chosen = names[start : start + 2 + c.next(2)]
    depth = c.next(3)
    if not all(sch.get_loops(b) for b in chosen):
        raise ScheduleError("no loops")
    sch.merge(*(sch.get_loops(b)[min(depth, len(sch.get_loops(b)) - 1)] for b in chosen))


def _partition(sch: Schedule, c: Choices) -> None:
    loop = _loop(sch, c)
    sch.loop_partition(loop, [1 + c.next(3) for _ in range(1 + c.next(2))])


def _reindex(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    reads = len(sch.get(block).reads)
    sch.reindex(block, c.of([*(("read", n) for n in range(reads)), ("write", 0)]))


def _block_layout(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    rank, t = len(sch.get(block).iters), 1 + c.next(3)
    plain: list[Any] = list(range(2, rank))
    layouts: list[Any] = [[[0, t], [0, 1, t], *range(1, rank)]]
    if rank >= 2:
        layouts += [[1, 0, *plain], [[[0, 1]], *plain], [[1, t], 0, [1, 1, t], *plain]]
    if rank == 3:
        layouts.append([2, 0, 1])
    sch.transform_block_layout(block, c.of(layouts))


def _reorder_axes(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    n = len(sch.get(block).iters)
    sch.reorder_block_iter_var(block, [*range(1, n), 0] if c.next(2) else list(range(n))[::-1])


def _tile(sch: Schedule, c: Choices) -> None:
    loop = _loop(sch, c)
    sch.split(loop, sch.sample_perfect_tile(loop, 2 + c.next(2), 4))


def _sampled_place(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    place = sch.sample_compute_location(block)
    if place is not None:
        sch.compute_at(block, place)


def _decompose_padding(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    sch.decompose_padding(block, c.of(sch.get_loops(block) or [LoopRV(-1)]))


def _pad_einsum(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    sch.pad_einsum(block, [1 + c.next(4) for _ in sch.get(block).iters])


def _pad_read(sch: Schedule, c: Choices) -> None:
    block = _block(sch, c)
    sch.pad_read(block, c.next(max(len(sch.get(block).reads), 1)))


FUNCTION = "fuzz_dot_2x2_by_function"
TensorIntrin.register(
    FUNCTION,
    TensorIntrin.get(INTRIN).meaning,
    """
@T.prim_func
def dot(A: T.Buffer((2,), "int64"), B: T.Buffer((2, 2), "int64"), C: T.Buffer((2,), "int64")):
    products = T.alloc_buffer((2, 2), "int64")
    for k, j in T.grid(2, 2):
        with T.block("products"):
            vk, vj = T.axis.remap("SS", [k, j])
            products[vk, vj] = A[vk] * B[vj, vk]
    for k in T.serial(2):
        for j in T.unroll(2):
            with T.block("dot"):
                vk, vj = T.axis.remap("RS", [k, j])
                C[vj] = C[vj] + products[vk, vj]
""",
)


def _tensorize_by_function(sch: Schedule, c: Choices) -> None:
    matmuls = [s for s in sites(sch.func) if s.block.is_reduction and len(s.block.reads) == 2]
    block = sch.get_block(c.of([s.block.name for s in matmuls] or ["none"]))
    loops = sch.get_loops(block)
    if len(loops) < 2:
        raise ScheduleError("no product")
    *_, j, k = loops
    j0, j1 = sch.split(j, [None, 2])
    k0, k1 = sch.split(k, [None, 2])
    sch.reorder(*((j0, k0) if c.next(2) else (k0, j0)), j1, k1)
    sch.decompose_reduction(block, c.of(sch.get_loops(block)))
    sch.tensorize(j1, FUNCTION)


MORE: tuple[Action, ...] = (
    _tensorize_by_function,
    _merge,
    _partition,
    _reindex,
    _block_layout,
    _reorder_axes,
    _tile,
    _sampled_place,
    _decompose_padding,
    _pad_einsum,
    _pad_read,
    lambda s, c: s.blockize(_loop(s, c)),
    lambda s, c: s.add_unit_loop(_loop(s, c) if c.next(2) else _block(s, c)),
)
"""The primitives that few schedules use."""

# Execution


def outputs(func: PrimFunc, like: PrimFunc, seed: int) -> list[np.ndarray]:
    """What `func` computes on random inputs; `like` says which parameters are inputs."""
    rng = np.random.default_rng(seed)
    inputs = {b.name for b in inputs_of(like)}
    arrays = []
    for b in func.params:
        shape = tuple(int(x) for x in b.shape)
        full = rng.integers(-4, 5, shape) if b.name in inputs else np.full(shape, 10**15)
        arrays.append(full.astype(b.dtype))
    interp.run(func, arrays)
    return [x for x, b in zip(arrays, func.params, strict=True) if b.name not in inputs]


def concurrent(func: PrimFunc) -> PrimFunc:
    """The program with the iterations of its parallel and vectorised loops interleaved: each such
    loop is pushed down to the blocks, and buffers that live inside it get one copy an iteration.

    Equal results mean that the iterations do not depend on one another.
    """
    while True:
        loop = next((x for x in _loops(func.body) if x.kind in ("parallel", "vectorized")), None)
        if loop is None:
            return func
        func = _interleave(func, loop)


def _loops(nodes: Sequence[Node]) -> list[For]:
    out: list[For] = []
    for node in nodes:
        if isinstance(node, For):
            out += [node, *_loops(node.body)]
    return out


def _interleave(func: PrimFunc, loop: For) -> PrimFunc:
    below = list(sites(loop))
    inside = {id(s.block) for s in below}
    others = {
        id(a.buffer)
        for s in sites(func)
        if id(s.block) not in inside
        for a in (*s.block.reads, *s.block.writes)
    } | {id(b) for b in func.params}
    private: dict[int, Buffer] = {}
    for s in below:
        lanes = loop.var in kind_vars(s.block, "reduce")  # these combine in one element
        for a in s.block.writes:
            if id(a.buffer) not in others and not lanes:
                new = replace(a.buffer, shape=(loop.extent, *a.buffer.shape), align=())
                private.setdefault(id(a.buffer), new)

    def access(a: Access) -> Access:
        if id(a.buffer) not in private:
            return a
        return Access(private[id(a.buffer)], (Affine.of(loop.var), *a.indices))

    def push(node: Node) -> Node:
        if isinstance(node, For):
            return replace(node, body=tuple(push(n) for n in node.body))
        reads, writes = tuple(map(access, node.reads)), tuple(map(access, node.writes))
        return replace(loop, kind="serial", body=(replace(node, reads=reads, writes=writes),))

    def find(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        out: list[Node] = []
        for node in nodes:
            if node is loop:
                out += [push(n) for n in loop.body]
            elif isinstance(node, For):
                out.append(replace(node, body=find(node.body)))
            else:
                out.append(node)
        return tuple(out)

    return replace(func, body=find(func.body))


# Populations


def assert_same_program(a: PrimFunc, b: PrimFunc) -> None:
    """Equal trees; bindings, accesses and the conjunction of predicates equal at sampled points."""
    _same_nodes(a.body, b.body)
    rng = np.random.default_rng(0)
    for x, y in zip(sites(a), sites(b), strict=True):
        _same_site(x, y, rng)


def _same_nodes(a: Sequence[Node], b: Sequence[Node]) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert type(x) is type(y)
        if isinstance(x, For):
            assert isinstance(y, For)
            assert (x.var.name, x.kind, x.thread, x.annotations) == (
                y.var.name,
                y.kind,
                y.thread,
                y.annotations,
            )
            assert x.extent == y.extent, (x.var.name, x.extent, y.extent)
            _same_nodes(x.body, y.body)
        else:
            assert isinstance(y, Block)
            assert x.name == y.name


def _same_site(x: Site, y: Site, rng: np.random.Generator) -> None:
    a, b = x.block, y.block
    assert [(i.extent, i.kind) for i in a.iters] == [(i.extent, i.kind) for i in b.iters]
    assert (a.init, a.annotations, a.is_reduction) == (b.init, b.annotations, b.is_reduction)
    for p, q in zip((*a.reads, *a.writes), (*b.reads, *b.writes), strict=True):
        assert (p.buffer.name, p.buffer.shape) == (q.buffer.name, q.buffer.shape)
        assert p.buffer.align == q.buffer.align
    points = {loop.var: rng.integers(0, loop.extent, 64) for loop in x.loops}
    others = {q.var: points[p.var] for p, q in zip(x.loops, y.loops, strict=True)}
    visited = _holds(a, points)
    assert np.all(visited == _holds(b, others)), f"predicates of {a.name}"
    for f, g in zip(a.bindings, b.bindings, strict=True):
        differs = f.evaluate(points) != g.evaluate(others)
        assert not np.any(visited & differs), f"bindings of {a.name}"
    axes = {i.var: f.evaluate(points) for i, f in zip(a.iters, a.bindings, strict=True)}
    theirs = {j.var: axes[i.var] for i, j in zip(a.iters, b.iters, strict=True)}
    for p, q in zip((*a.reads, *a.writes), (*b.reads, *b.writes), strict=True):
        # What a condition keeps from being read may be written in different ways.
        read = visited & _inside(p, axes) & _inside(q, theirs)
        assert np.array_equal(visited & _inside(p, axes), read), f"{p.buffer.name} in {a.name}"
        assert np.array_equal(visited & _inside(q, theirs), read), f"{p.buffer.name} in {a.name}"
        for f, g in zip(p.indices, q.indices, strict=True):
            if isinstance(f, Affine) and isinstance(g, Affine):
                differs = f.evaluate(axes) != g.evaluate(theirs)
                assert not np.any(read & differs), f"{p.buffer.name} in {a.name}"


def _inside(access: Access, points: dict[Var, Any]) -> Any:
    """At which points the access is within its buffer."""
    ok = np.ones(64, bool)
    for index, extent in zip(access.indices, access.buffer.shape, strict=True):
        if isinstance(index, Affine):
            value = index.evaluate(points)
            ok &= (value >= 0) & (value < extent)
    return ok


def _holds(block: Block, points: dict[Var, Any]) -> Any:
    ok = np.ones(64, bool)
    for p in block.predicates:
        ok &= p.form.evaluate(points) < p.bound
    return ok
