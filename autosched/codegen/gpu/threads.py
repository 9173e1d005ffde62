"""From loops bound to GPU axes to threads: one variable an axis, whatever loops are bound to it.

All nests of a kernel run on the same threads, so loops that are bound to one axis have one extent.
Below two loops bound to one axis the inner one counts (cooperative fetching): as the program is
written, each iteration of the outer one does all of that work; threads do it once, together. A
block that does the same whatever the value of an axis is done by thread (or block) 0 of it, or,
where what it writes is each thread's own, by all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.codegen.gpu.kernel import AXES, BLOCKS, allocated_in, without_allocs
from autosched.errors import CodegenError
from autosched.tir.affine import Affine
from autosched.tir.expr import Expr, Var, walk
from autosched.tir.nodes import Block, Buffer, For, Node, Predicate
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
    Each thread has those in `own` for itself, since they lived inside all loops bound to threads.
    """

    body: tuple[Node, ...]
    axes: dict[str, For]
    allocs: tuple[Buffer, ...]
    own: frozenset[Buffer]


def thread(nodes: Sequence[Node], around: Sequence[Buffer] = ()) -> Threaded:
    """What each thread does of a root nest of a lowered program, given as `nodes` in which the
    buffers `around` live. Raises CodegenError."""
    found: dict[str, For] = {}
    for loop in (x for node in nodes for x in _bound(node)):
        assert loop.thread is not None
        first = found.setdefault(loop.thread, loop)
        if first.extent != loop.extent:
            raise CodegenError(
                f"loops {first.var.name} and {loop.var.name} of one kernel are bound to "
                f"{loop.thread} with {first.extent} and {loop.extent} iterations; all nests of a "
                "kernel run on the same threads: split both alike"
            )
    axes = {
        name: For(Var(NAMES[name]), found[name].extent, (), "thread", name)
        for name in AXES
        if name in found and found[name].extent != 1
    }
    allocs = (*around, *(b for node in nodes for b in allocated_in(node)))
    check_homes(nodes, around)
    own = _own(nodes, axes)
    run = _Threads(axes, {b for b in allocs if b.scope == "local"} | own, set(allocs))
    body = tuple(x for n in nodes for x in run.node(without_allocs(n), {}, {}, frozenset()))
    return Threaded(body, axes, allocs, frozenset(own))


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
        if node.thread in axes:
            assert node.thread is not None
            around = (*around, node.thread)
        if threads <= set(around):
            inside.update(b for b in node.allocs if b.scope != "shared")
        for child in node.body:
            visit(child, around)

    for node in nodes:
        visit(node, ())
    return inside - shared_out


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


def _bound(node: Node) -> Iterator[For]:
    if isinstance(node, For):
        if node.thread in AXES:
            yield node
        for child in node.body:
            yield from _bound(child)


class _Threads:
    def __init__(self, axes: dict[str, For], private: set[Buffer], inside: set[Buffer]) -> None:
        self.axes, self.private, self.inside = axes, private, inside

    def node(
        self,
        node: Node,
        values: Mapping[Var, Affine],
        open_axes: Mapping[str, Var],
        hidden: frozenset[Var],
    ) -> tuple[Node, ...]:
        """The nodes in place of `node`."""
        if isinstance(node, Block):
            return (self.block(node, values, hidden),)
        bound = node.thread in AXES
        if bound:
            assert node.thread is not None
            outer = open_axes.get(node.thread)
            hidden = hidden if outer is None else hidden | {outer}
            open_axes = {**open_axes, node.thread: node.var}
            axis = self.axes.get(node.thread)
            values = {**values, node.var: Affine(0) if axis is None else Affine.of(axis.var)}
        body = tuple(x for child in node.body for x in self.node(child, values, open_axes, hidden))
        return body if bound else (replace(node, body=body),)

    def block(
        self,
        block: Block,
        values: Mapping[Var, Affine],
        hidden: frozenset[Var],
    ) -> Block:
        for v in variables(block):
            if v in hidden:
                raise CodegenError(
                    f"block {block.name} stands below two loops bound to one thread axis and uses "
                    f"the outer one, {v.name}; threads share out only work that is the same in "
                    "each iteration of it"
                )
        private = all(a.buffer in self.private for a in block.writes)
        kept = all(a.buffer in self.inside for a in block.writes)
        block = substitute_loops(block, values)
        used = variables(block)
        alone = [
            Predicate(Affine.of(axis.var), 1)
            for name, axis in self.axes.items()
            if axis.var not in used and not (kept if name in BLOCKS else private)
        ]
        return replace(block, predicates=(*block.predicates, *alone))


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
