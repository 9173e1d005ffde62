"""From loops bound to GPU axes to threads: one variable an axis, whatever loops are bound to it.

All nests of a kernel run on the same threads, as many of each axis as the longest loop bound to it
has iterations; in shorter ones the threads beyond their end do nothing, but wait with the others.
Directly nested loops are one iteration space and have one extent together (`nodes.chained`).
Below two loops bound to one axis the inner one counts (cooperative fetching): as the program is
written, each iteration of the outer one does all of that work; threads do it once, together. A
block that does the same whatever the value of an axis is done by thread (or block) 0 of it, or,
where what it writes is each thread's own, by all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from autosched.codegen.gpu.cooperative import share_out
from autosched.codegen.gpu.kernel import AXES, BLOCKS, THREADS, allocated_in, without_allocs
from autosched.errors import CodegenError
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Expr, Var, walk
from autosched.tir.nodes import Block, Buffer, For, Node, Predicate, chained
from autosched.tir.scope import SHARED, WARP
from autosched.tir.simplify import substitute_loops

NAMES = {
    "blockIdx.x": "bx",
    "blockIdx.y": "by",
    "blockIdx.z": "bz",
    "threadIdx.x": "tx",
    "threadIdx.y": "ty",
    "threadIdx.z": "tz",
}
"""Names of the axes' variables in programs and in generated code."""


@dataclass(frozen=True, eq=False)
class Threaded:
    """A nest without its bound loops: `axes` by name, and the buffers that lived in its loops.
    Each thread has those in `own` for itself, since they lived inside all loops bound to threads;
    each warp those in `warps`, with the axes that tell warps apart.
    """

    body: tuple[Node, ...]
    axes: dict[str, For]
    allocs: tuple[Buffer, ...]
    own: frozenset[Buffer]
    warps: dict[Buffer, tuple[For, ...]]


def thread(nodes: Sequence[Node], around: Sequence[Buffer] = ()) -> Threaded:
    """What each thread does of a root nest of a lowered program, given as `nodes` in which the
    buffers `around` live. Raises CodegenError."""
    chains = [c for node in nodes for c in _chains(node)]
    most: dict[str | None, int] = {}
    for chain in chains:
        most[chain[0].thread] = max(_extent(chain), most.get(chain[0].thread, 1))
    axes = {
        name: For(Var(NAMES[name]), most[name], (), "thread", name)
        for name in AXES
        if most.get(name, 1) != 1
    }
    allocs = (*around, *(b for node in nodes for b in allocated_in(node)))
    check_homes(nodes, around)
    own = _own(nodes, axes)
    values = {v: form for chain in chains for v, form in _digits(chain, axes).items()}
    own_or_local = {b for b in allocs if b.scope == "local"} | own
    ends = {x.var: _extent(chain) for chain in chains for x in chain}
    warps = _warps(nodes, axes)
    run = _Threads(axes, own_or_local, set(allocs), warps, values, ends)
    body = tuple(x for n in nodes for x in run.node(without_allocs(n), _Place()))
    return Threaded(body, axes, allocs, frozenset(own), warps)


def _own(nodes: Sequence[Node], axes: Mapping[str, For]) -> set[Buffer]:
    """Buffers that each thread has for itself because they live inside all loops bound to threads,
    and no block that writes them is shared out below."""
    inside: set[Buffer] = set()
    shared_out: set[Buffer] = set()
    threads = {name for name in axes if name not in BLOCKS}

    def visit(node: Node, around: tuple[str, ...]) -> None:
        if isinstance(node, Block):
            if len(set(around)) < len(around):
                shared_out.update(a.buffer for a in node.writes)
            return
        if node.thread in axes and _next(node) is None:
            assert node.thread is not None
            around = (*around, node.thread)
        if threads <= set(around):
            inside.update(b for b in node.allocs if b.scope not in (*SHARED, WARP))
        for child in node.body:
            visit(child, around)

    for node in nodes:
        visit(node, ())
    return inside - shared_out


def _warps(nodes: Sequence[Node], axes: Mapping[str, For]) -> dict[Buffer, tuple[For, ...]]:
    """Buffers that are one of a warp, and the axes y and z of the loops they live in."""
    found: dict[Buffer, tuple[For, ...]] = {}

    def visit(node: Node, around: tuple[str, ...]) -> None:
        if isinstance(node, For):
            around = (*around, node.thread or "")
            mine = tuple(axes[n] for n in THREADS[1:] if n in axes and n in around)
            found.update((b, mine) for b in node.allocs if b.scope == WARP)
            for child in node.body:
                visit(child, around)

    for node in nodes:
        visit(node, ())
    return found


def check_homes(nodes: Sequence[Node], around: Sequence[Buffer]) -> None:
    """Raise CodegenError if a buffer that lives in a kernel, but outside a loop bound to blocks, is
    written differently by these: each block has a buffer of its own, and none sees another's."""

    def visit(node: Node, homes: dict[Buffer, tuple[For, ...]], loops: tuple[For, ...]) -> None:
        if isinstance(node, Block):
            used = variables(node)
            for b in (a.buffer for a in node.writes if a.buffer in homes):
                for x in loops:
                    blocks = x.thread in BLOCKS and x.extent != 1 and x not in homes[b]
                    if blocks and x.var in used:
                        raise CodegenError(
                            f"{b.name} lives outside loop {x.var.name}, bound to {x.thread}, and "
                            f"{node.name} writes it inside: nothing orders what the blocks do; "
                            "compute it inside that loop, or in a root nest of its own"
                        )
            return
        loops = (*loops, node)
        homes = {**homes, **dict.fromkeys(node.allocs, loops)}
        for child in node.body:
            visit(child, homes, loops)

    for node in nodes:
        visit(node, dict.fromkeys(around, ()), ())


def _next(loop: For) -> For | None:
    """The loop that continues the iteration space of a bound one."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if isinstance(inner, For) and inner.thread == loop.thread and chained(loop, inner):
        return inner
    return None


def _chains(node: Node) -> Iterator[tuple[For, ...]]:
    """The loops bound to an axis, those of one iteration space together."""
    if isinstance(node, For):
        if node.thread in AXES:
            chain = [node]
            while (inner := _next(chain[-1])) is not None:
                chain.append(inner)
            yield tuple(chain)
            node = chain[-1]
        for child in node.body:
            yield from _chains(child)


def _extent(chain: Sequence[For]) -> int:
    return prod(int(x.extent) for x in chain)


def _digits(chain: Sequence[For], axes: Mapping[str, For]) -> dict[Var, Affine]:
    """The loops' variables as digits of the thread axis."""
    axis = axes.get(chain[0].thread or "")
    out = {x.var: Affine(0) for x in chain}
    moving = [x for x in chain if x.extent != 1]
    below = 1
    for x in reversed(moving):
        assert axis is not None
        form = Affine.of(axis.var)
        if len(moving) > 1:
            mod = None if x is moving[0] else x.extent
            form = Affine.of(Digit(form, below, mod))
        out[x.var] = form
        below *= int(x.extent)
    return out


@dataclass(frozen=True, eq=False)
class _Place:
    """What stands around a node: the `values` of loops, the bound ones that are `open`, those that
    are `hidden` below another one of their axis, and how many threads of an axis take part."""

    values: Mapping[Var, Affine] = field(default_factory=dict)
    open: Mapping[str, tuple[For, ...]] = field(default_factory=dict)
    hidden: frozenset[Var] = frozenset()
    threads: Mapping[str, int] = field(default_factory=dict)


class _Threads:
    def __init__(
        self,
        axes: dict[str, For],
        private: set[Buffer],
        inside: set[Buffer],
        warps: Mapping[Buffer, Sequence[For]],
        bound: Mapping[Var, Affine],
        ends: Mapping[Var, int],
    ) -> None:
        self.axes, self.private, self.inside = axes, private, inside
        self.warps, self.bound, self.ends = warps, bound, ends

    def node(self, node: Node, place: _Place) -> tuple[Node, ...]:
        """The nodes in place of `node`."""
        if isinstance(node, Block):
            return (self.block(node, place),)
        if node.thread in AXES:
            place = self.within(node, place)
            return tuple(x for child in node.body for x in self.node(child, place))
        shared = share_out(node, [self.axes[n] for n in THREADS if n in self.axes])
        if shared is not node:  # over all threads, however many take part around
            left = {n: count for n, count in place.threads.items() if n in BLOCKS}
            place = replace(place, threads=left)
        if shared.extent == 1:  # what lowering has left: virtual threads, steps of a fetch
            place = replace(place, values={**place.values, shared.var: Affine(0)})
        body = tuple(x for child in shared.body for x in self.node(child, place))
        return body if shared.extent == 1 else (replace(shared, body=body),)

    def within(self, node: For, place: _Place) -> _Place:
        """The place inside a bound loop."""
        assert node.thread is not None
        outer, hidden = place.open.get(node.thread, ()), place.hidden
        if outer and _next(outer[-1]) is not node:
            hidden, outer = hidden | {x.var for x in outer}, ()
        return _Place(
            {**place.values, node.var: self.bound[node.var]},
            {**place.open, node.thread: (*outer, node)},
            hidden,
            {**place.threads, node.thread: self.ends[node.var]},
        )

    def block(self, block: Block, place: _Place) -> Block:
        for v in variables(block):
            if v in place.hidden:
                raise CodegenError(
                    f"block {block.name} stands below two loops bound to one thread axis and uses "
                    f"the outer one, {v.name}; threads share out only work that is the same in "
                    "each iteration of it"
                )
        block = substitute_loops(block, place.values)
        used = variables(block)
        part = []
        for name, axis in self.axes.items():
            count = place.threads.get(name, int(axis.extent))
            if axis.var not in used and not all(self.has(axis, a.buffer) for a in block.writes):
                count = 1
            if count < int(axis.extent):
                part.append(Predicate(Affine.of(axis.var), count))
        return replace(block, predicates=(*block.predicates, *part))

    def has(self, axis: For, b: Buffer) -> bool:
        """Whether there is such a buffer for each thread, or block, of an axis."""
        if axis.thread in BLOCKS:
            return b in self.inside
        return b in self.private or axis in self.warps.get(b, ())


def variables(block: Block) -> set[Var]:
    """Variables of loops that a block uses."""
    axes = {it.var for it in block.iters}
    found = {v for form in block.bindings for v in form.variables()}
    found |= {v for p in block.predicates for v in p.form.variables()}
    exprs: list[Expr] = [*block.body]
    for access in (*block.reads, *block.writes):
        for index in access.indices:
            if isinstance(index, Affine):
                found |= set(index.variables())
            else:
                exprs.append(index)
    found |= {e for x in exprs for e in walk(x) if isinstance(e, Var)}
    return found - axes
