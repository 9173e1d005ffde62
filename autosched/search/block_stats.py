"""What the analysis says of blocks and stages, and how loads and scratch are counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autosched.search.footprint import (
    Floats,
    LoopTree,
    SiteUses,
    Traffic,
    Use,
    floats,
)
from autosched.sketch.decisions import Mask
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.affine import Digit, Int, always
from autosched.tir.expr import Var
from autosched.tir.nodes import Buffer, For, Node, PrimFunc, sites

TURNED, TURNED_ROWS = 0.125, 8.0
"""What an element of a square that is transposed in registers costs of one that is gathered, and
the least extent of the loop along its rows."""


@dataclass(frozen=True)
class BlockStats:
    """Figures of one block; see the module's table."""

    iterations: Floats
    lanes: Floats
    copies: Floats
    accumulators: Floats
    live: Floats
    loads: Floats
    wide: Floats
    stores: Floats
    guarded: Floats
    entries: Floats
    waste: Floats


@dataclass(frozen=True)
class StageStats:
    """Figures of one root of the program; `blocks` are the names below it."""

    blocks: tuple[str, ...]
    degree: Floats
    share: Floats
    forks: Floats
    l1_lines: Floats
    l2_lines: Floats
    l3_lines: Floats
    pages: Floats


@dataclass(frozen=True)
class BlockFacts:
    """What follows from the block alone: operations of a point, lanes of a full vector, size of
    the domain, how many copies may be written out, and the share of points that are no padding."""

    ops: float
    vector: int
    itemsize: int
    is_reduction: bool
    points: Floats
    max_copies: float
    present: float


def loads_of(
    use: Use, site: SiteUses, inside: dict[int, Floats], facts: BlockFacts
) -> tuple[Floats, Floats]:
    """(load instructions, elements loaded one by one) of one access in one iteration."""
    steps: dict[int, Floats] = {}
    last: dict[int, Floats] = {}
    tangled: set[int] = set()
    for n, form in enumerate(use.forms):
        if form is None:
            continue
        for atom, c in form.terms:
            lanes = _lanes_of(atom, c, facts) if n == len(use.forms) - 1 else None
            if lanes is not None:
                steps[id(lanes)] = last[id(lanes)] = floats(1.0)
                continue
            if isinstance(atom, Digit):
                tangled |= {id(v) for v in atom.variables()}
                continue
            steps[id(atom)] = steps.get(id(atom), floats(0.0)) + np.abs(floats(c))
            if n == len(use.forms) - 1:
                last[id(atom)] = np.abs(floats(c))
    zero = floats(0.0)
    instructions, by_element = floats(1.0), zero
    turned: Mask | np.bool_ = np.bool_(False)
    for loop, extent in zip(site.site.loops, site.extents, strict=True):
        if loop.kind == "serial" and not facts.is_reduction and id(loop.var) not in tangled:
            next_to = (steps.get(id(loop.var), zero) == 1.0) & (last.get(id(loop.var), zero) == 1.0)
            turned = turned | (next_to & (extent >= TURNED_ROWS))
    slides = _sliding(use)
    widths = {n: (floats(1.0), floats(1.0)) for n in set(slides.values())}
    for loop in site.site.loops:
        key = id(loop.var)
        e = inside[key]
        if loop.kind not in ("unrolled", "vectorized"):
            continue
        used = (steps.get(key, zero) > 0.0) | (key in tangled)
        if loop.kind == "vectorized":
            smooth = (steps.get(key, zero) == 1.0) & (last.get(key, zero) == 1.0)
            smooth = smooth & (key not in tangled)
            strided = used & ~smooth & (e > 1.0)
            by_element = by_element + np.where(strided, np.where(turned, TURNED * e, e), 0.0)
            instructions = instructions * np.where(used, np.ceil(e / facts.vector), 1.0)
        elif key in slides:
            count, span = widths[slides[key]]
            widths[slides[key]] = count * e, span + steps[key] * (e - 1.0)
        else:
            instructions = instructions * np.where(used, e, 1.0)
    # Copies that slide over one dimension load each of its elements once.
    for count, span in widths.values():
        instructions = instructions * np.minimum(count, span)
    return instructions, by_element * instructions / np.maximum(
        np.ceil(by_element / facts.vector), 1.0
    )


def _lanes_of(atom: Var | Digit, step: Int, facts: BlockFacts) -> Var | None:
    """The variable, where all lanes that run over it take what they need out of two vectors: the
    digit of a group, times the elements of one."""
    if not isinstance(atom, Digit) or atom.mod is not None:
        return None
    reach = 1 + np.ceil((facts.vector - 1) / floats(atom.div)) * np.abs(floats(step))
    return atom.base.single_var() if always(reach <= 2 * facts.vector) else None


def _sliding(use: Use) -> dict[int, int]:
    """Id of a variable -> the one dimension that it moves along, with all else there being plain
    variables too."""
    found: dict[int, int] = {}
    several: set[int] = set()
    for n, form in enumerate(use.forms):
        if form is None or any(isinstance(atom, Digit) for atom, _ in form.terms):
            several |= {id(v) for v in form.variables()} if form is not None else set()
            continue
        for atom, _ in form.terms:
            if id(atom) in found:
                several.add(id(atom))
            found[id(atom)] = n
    return {key: n for key, n in found.items() if key not in several}


def stage_of(node: Node, traffic: Traffic, target: Target) -> StageStats:
    blocks = tuple(s.block.name for s in sites(node))
    degree, before = floats(1.0), floats(1.0)
    current: Node | None = node
    started = False
    while isinstance(current, For):
        if current.kind == "parallel":
            degree = degree * floats(current.extent)
            started = True
        elif started:
            break
        else:
            before = before * floats(current.extent)
        current = current.body[0] if len(current.body) == 1 else None
    threads = float(target.num_cores)
    share = np.where(degree > 1.0, np.ceil(degree / threads) / degree, 1.0)
    forks = np.where(degree > 1.0, before if started else 0.0, 0.0)
    l1, l2, l3 = (floats(x) for x in traffic.missed)
    return StageStats(blocks, degree, share, forks, l1, l2, l3, floats(traffic.pages))


def scratch_of(func: PrimFunc, uses: list[SiteUses], tree: LoopTree) -> tuple[Floats, Floats]:
    """Bytes of intermediates: (all of them, those that each thread has for itself)."""
    params = {id(b) for b in func.params}
    shared: dict[int, tuple[Buffer, dict[int, Floats]]] = {}
    for site in uses:
        mine = {
            id(loop): e
            for loop, e in zip(site.site.loops, site.extents, strict=True)
            if loop.kind == "parallel"
        }
        for use in site.uses:
            b = use.access.buffer
            if id(b) not in params:
                old = shared.get(id(b))
                common = mine if old is None else {k: e for k, e in old[1].items() if k in mine}
                shared[id(b)] = (b, common)
    total, private = floats(0.0), floats(0.0)
    for b, loops in shared.values():
        size = tree.allocated(b) * dtypes.itemsize(b.dtype)
        total = total + size
        tasks: Floats = floats(1.0)
        for e in loops.values():
            tasks = tasks * e
        private = private + np.where(tasks > 1.0, size, 0.0)
    return total, private
