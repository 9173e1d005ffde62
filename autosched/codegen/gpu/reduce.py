"""How reductions run: in a register of a thread, across threads, or in memory after a first store.

A reduction whose loops stand innermost is one accumulator a tuple element, stored at the end. Where
its axes run over threads as well, the threads' accumulators are combined. Any other sets its
elements before its outermost reduction loop, in a nest of its own (`decompose`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from autosched.codegen.gpu.kernel import THREADS, Kernel
from autosched.errors import CodegenError
from autosched.tir.affine import Affine, Int, always
from autosched.tir.apart import injective
from autosched.tir.dtypes import itemsize
from autosched.tir.expr import Var
from autosched.tir.intrin import KEY as TENSORIZED
from autosched.tir.nodes import Block, For, Iter, Node, Predicate, Site, kind_vars, sites
from autosched.tir.scatter import moved_by, scatters
from autosched.tir.simplify import prune_reads, substitute_loops


@dataclass(frozen=True, eq=False)
class Chain:
    """A reduction whose loops, `loops`, hold nothing but its block."""

    block: Block
    loops: tuple[For, ...]
    lanes: tuple[str, ...]
    """Thread axes that it runs over: their accumulators are combined."""

    def outside(self) -> tuple[Predicate, ...]:
        """What decides whether there is an element at all: the predicates at the first point of
        the reduction."""
        return at_first(self.block, kind_vars(self.block, "reduce")).predicates

    def inside(self) -> tuple[Predicate, ...]:
        """What is asked at each point."""
        moving = kind_vars(self.block, "reduce")
        return tuple(p for p in self.block.predicates if p.form.uses(moving))


def at_first(block: Block, moving: set[Var]) -> Block:
    """The block at the first point of a reduction, whose loops are over `moving`: if that point is
    none of the block's, the element is not the block's either."""
    first = substitute_loops(block, {v: Affine(0) for v in moving})
    return replace(first, predicates=tuple(p for p in first.predicates if not _holds(p)))


def _holds(p: Predicate) -> bool:
    return p.form.is_const() and always(p.form.const < p.bound)


def lanes_of(block: Block, axes: dict[str, For]) -> tuple[str, ...]:
    """The thread axes that a block reduces over. One that moves the element is none: its threads
    combine into elements of their own, or meet, which `check_races` finds."""
    if block.reducer is None:
        return ()
    moving = kind_vars(block, "reduce")
    found = [n for n in THREADS if n in axes and axes[n].var in moving]
    moved = _moved(block, [axes[n].var for n in found])
    return tuple(n for n in found if axes[n].var not in moved)


def _moved(block: Block, variables: Sequence[Var]) -> set[Var]:
    """Those of the variables of loops that move an element which the block writes."""
    return {v for a in block.writes for v in moved_by(block, a, variables, {})}


def chain_at(node: Node, axes: dict[str, For]) -> Chain | None:
    """The reduction that begins at `node`, if its loops hold nothing else."""
    loops: list[For] = []
    while isinstance(node, For):
        if len(node.body) != 1:
            return None
        loops.append(node)
        node = node.body[0]
    if node.reducer is None:
        return None
    moving = kind_vars(node, "reduce")
    fixed = kind_vars(node, "spatial") | kind_vars(node, "sequential")
    if moving & fixed or any(x.var not in moving for x in loops):
        return None
    if _moved(node, [x.var for x in loops]):
        return None
    chain = Chain(node, tuple(loops), lanes_of(node, axes))
    if not loops and not chain.lanes:
        return None
    # What is added to may only be read where the first point is one of the block's. Threads that
    # combine theirs begin with the identity.
    return chain if node.init or chain.lanes or not chain.inside() else None


def decompose(kernel: Kernel) -> Kernel:
    """`kernel` with the first values of reductions that are no chain set before them.

    Raises CodegenError for a reduction across threads that is none.
    """
    changed = replace(kernel, body=tuple(x for n in kernel.body for x in _visit(n, kernel)))
    chains = {id(c.block): c for c in chains_of(changed)}
    for site in changed.sites():
        lanes = lanes_of(site.block, kernel.axes)
        if lanes and not _is_whole(chains.get(id(site.block)), site):
            raise CodegenError(
                f"{site.block.name} is reduced across {', '.join(lanes)}; its reduction loops must "
                "stand innermost, with no other loop or block between: reorder them"
            )
    return changed


def _is_whole(chain: Chain | None, site: Site) -> bool:
    """Whether a reduction across threads is a chain whose result is not set anew in each iteration
    of a reduction loop around it."""
    if chain is None or not chain.block.init:
        return chain is not None
    moving = kind_vars(site.block, "reduce")
    return not any(
        x.thread is None and x.var in moving and x not in chain.loops for x in site.loops
    )


def chains_of(kernel: Kernel) -> list[Chain]:
    """Every chain of a kernel."""

    def visit(nodes: Sequence[Node]) -> Iterator[Chain]:
        for node in nodes:
            found = chain_at(node, kernel.axes)
            if found is not None:
                yield found
            elif isinstance(node, For):
                yield from visit(node.body)

    return list(visit(kernel.body))


def way_across(chain: Chain, kernel: Kernel, warp: int) -> str:
    """How the accumulators of `chain.lanes` are combined: by "shuffle" in a warp, in "warps" whose
    results go through shared memory, or as a "tree" in shared memory."""
    extents = [int(kernel.axes[n].extent) for n in chain.lanes]
    n = prod(extents)
    if warp == 1 or chain.lanes != ("threadIdx.x",) or n & (n - 1) or prod(kernel.block) % warp:
        return "tree"
    return "shuffle" if n <= warp else "warps"


def exchange_bytes(kernel: Kernel, warp: int) -> int:
    """Shared memory that reductions across threads go through."""
    total = 0
    for chain in chains_of(kernel):
        way = way_across(chain, kernel, warp) if chain.lanes else "shuffle"
        count = {"shuffle": 0, "warps": prod(kernel.block) // warp, "tree": prod(kernel.block)}[way]
        # A bool and what is stored in fewer bits are exchanged as values of up to 4 bytes.
        total += sum(count * max(4, itemsize(a.buffer.dtype)) for a in chain.block.writes)
    return total


def _visit(node: Node, kernel: Kernel) -> tuple[Node, ...]:
    if isinstance(node, Block) or chain_at(node, kernel.axes) is not None:
        return (node,)
    before: list[Node] = []
    for site in list(sites(node)):
        first = _initial(site, node, kernel)
        if first is not None:
            before.append(first)
            node = _without_init(node, site.block)
            assert isinstance(node, For)
    body = tuple(x for child in node.body for x in _visit(child, kernel))
    return (*before, replace(node, body=body))


def extents_in(kernel: Kernel) -> dict[Var, Int]:
    """Extents of all loops, and of the axes that loops are bound to."""
    return {x.var: x.extent for s in kernel.sites() for x in s.loops}


def _without_init(node: Node, block: Block) -> Node:
    if isinstance(node, Block):
        return replace(node, init=False) if node is block else node
    return replace(node, body=tuple(_without_init(child, block) for child in node.body))


def _initial(site: Site, root: For, kernel: Kernel) -> Node | None:
    """The nest that sets the elements of a reduction, of which `root` is the outermost loop; None
    if it is not, or if the block does so better itself."""
    block, loops, extents = site.block, site.loops, extents_in(kernel)
    if block.reducer is None or not block.init or scatters(block):
        return None
    moving = kind_vars(block, "reduce")
    fixed = kind_vars(block, "spatial") | kind_vars(block, "sequential")
    if root.var not in moving or moving & fixed:
        return None
    if all(x.var in moving for x in loops) and _holds_only(root):
        return None
    others = [x for x in loops if x.var not in moving]
    spatial = [
        (i, f) for i, f in zip(block.iters, block.bindings, strict=True) if i.kind != "reduce"
    ]
    used = {v for _, f in spatial for v in f.variables()}
    if any(x.var not in used for x in others):
        return None
    if not always(injective([f for _, f in spatial], [x.var for x in others], extents)):
        return None
    copies = {x.var: Var(x.var.name) for x in others}
    values = {v: Affine.of(w) for v, w in copies.items()}
    setting = _setting(block, spatial, moving, values)
    # Of threads that combine their results the first stores them.
    alone = [Predicate(Affine.of(kernel.axes[n].var), 1) for n in lanes_of(block, kernel.axes)]
    node: Node = replace(setting, predicates=(*setting.predicates, *alone))
    for x in reversed(others):
        kind = x.kind if x.annotation(TENSORIZED) is None else "unrolled"  # registers of a warp
        node = For(copies[x.var], x.extent, (node,), kind)
    return node


def _holds_only(node: Node) -> bool:
    while isinstance(node, For):
        if len(node.body) != 1:
            return False
        node = node.body[0]
    return True


def _setting(
    block: Block,
    spatial: Sequence[tuple[Iter, Affine]],
    moving: set[Var],
    values: dict[Var, Affine],
) -> Block:
    assert block.reducer is not None
    first = at_first(substitute_loops(block, values), moving)
    setting = replace(
        first,
        name=f"{block.name}_init",
        iters=tuple(i for i, _ in spatial),
        bindings=tuple(f.substitute(values) for _, f in spatial),
        body=block.reducer.identity,
        reducer=None,
        init=True,
        annotations=(),
    )
    return prune_reads(setting)  # what is left are numbers of elements


def is_first(block: Block) -> list[Affine]:
    """The reduce axes' values, all 0 at the point that sets the element."""
    return [
        f
        for i, f in zip(block.iters, block.bindings, strict=True)
        if i.kind == "reduce" and not f.is_const()
    ]
