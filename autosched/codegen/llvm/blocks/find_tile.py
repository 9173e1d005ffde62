"""Finding the register tile of a loop nest: which loops, which accumulators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from autosched.codegen.apart import apart
from autosched.tir.affine import Affine, Extents, always
from autosched.tir.expr import Var
from autosched.tir.intrin import KEY, Match
from autosched.tir.nodes import CONSTANT_AXES, Block, For, Node, Predicate, Site
from autosched.tir.scatter import moved_by
from autosched.tir.size import Size

MAX_ACCUMULATORS = 128
"""More than this many vectors cannot be meant to be registers."""


@dataclass(frozen=True)
class Tile:
    """The loops of a register tile, outermost first, and the block inside."""

    loops: tuple[For, ...]
    block: Block
    reduce: frozenset[Var]
    """Variables of the tile's loops that run over the reduction."""
    tensor: Match | None = None
    """The intrinsic that does a nest inside the loops; an accumulator is then its result."""


def find_tile(node: Node, match: Callable[[For], Match], blocks: Mapping[int, Site]) -> Tile | None:
    """The register tile that starts at `node`, if one does. `match` gives the intrinsic of a marked
    nest; `blocks` are all of the program, by identity.

    None where a reduction loop of it moves the element, or two of its places may be one element:
    what waits in a register would then miss what another one holds. Nor where an element of it may
    have no point: it keeps what it held, or is outside of its buffer.
    """
    loops: list[For] = []
    while isinstance(node, For) and node.annotation(KEY) is None:
        if (
            len(node.body) != 1
            or node.allocs
            or node.kind not in ("serial", "unrolled", "vectorized")
        ):
            return None
        loops.append(node)
        node = node.body[0]
    tensor = match(node) if isinstance(node, For) and loops else None
    block = node if isinstance(node, Block) else tensor.block if tensor is not None else None
    if block is None or block.reducer is None or not loops:
        return None
    spatial: set[Var] = set()
    reduce: set[Var] = set()
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "sequential":
            if binding.uses([loop.var for loop in loops]):
                return None
            continue
        (reduce if it.kind == "reduce" else spatial).update(binding.variables())
    if reduce & spatial or not any(loop.var in reduce for loop in loops):
        return None
    # Elsewhere a tile begins inside unrolled loops over results; sums by constant matrices share
    # terms between these (`separable.py`).
    constant = loops[0].kind == "unrolled" and block.annotation(CONSTANT_AXES) is not None
    if loops[0].var not in reduce and loops[0].kind != "vectorized" and not constant:
        return None
    # Copies stand in any order, so a vectorised loop around some moves inside them.
    loops.sort(key=lambda loop: loop.kind == "vectorized")
    count = 1
    for loop in loops:
        if loop.var in spatial:
            if loop.kind == "serial":
                return None
            if isinstance(loop.extent, Size):
                return None
            count *= int(loop.extent)
        elif loop.var not in reduce:
            return None
    if any(loop.kind == "vectorized" for loop in loops[:-1]) or count > 16 * MAX_ACCUMULATORS:
        return None
    inner = [loop.var for loop in loops if loop.var in reduce]
    site = blocks[id(block)]
    if not all(_lets_first(p, inner, reduce, site.extents()) for p in block.predicates):
        return None
    if any(moved_by(block, access, inner, site.extents()) for access in block.writes):
        return None
    if not apart(site, [loop.var for loop in loops if loop.var in spatial]):
        return None
    return Tile(tuple(loops), block, frozenset(inner), tensor)


def _lets_first(
    p: Predicate, inner: Collection[Var], reduce: Collection[Var], extents: Extents
) -> bool:
    """Whether the predicate holds at the first point of the loops over `inner`, for each element
    that it names: with all others that do, it leaves each a point. One that names none, of loops
    over the reduction alone, is the same for all elements."""
    known = {id(v) for v in reduce}
    if not p.form.uses(inner) or all(id(v) in known for v in p.form.variables()):
        return True
    first = p.form.substitute({v: Affine(0) for v in inner}, extents)
    return always(first.span(extents)[1] < p.bound)
