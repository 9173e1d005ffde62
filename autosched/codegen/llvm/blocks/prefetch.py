"""Prefetching what a register tile reads next.

A product reads one panel of packed weights for every few rows, from the second cache, while the
panel after it lies in memory: the first pass over a panel then waits for every line. Each pass over
the present panel asks for its share of the bytes that follow it. A product of few rows reads its
weights once, and asks for what lies a fixed stretch ahead: the multiply-adds of a line fill the
queue of instructions long before memory answers (8 rows by 1280×1000 weights in memory: 580 -> 160
us). Prefetching changes no result and never faults, so nothing of it stands in the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from autosched.codegen.llvm.blocks.find_tile import Tile
from autosched.codegen.llvm.blocks.points import Points
from autosched.codegen.llvm.index import Linear, flat_form
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Buffer, For, Site
from autosched.tir.size import Size

LINE = 64
"""Bytes of a cache line."""
MOST_PASSES = 256
"""Passes over a panel up to which its first one is worth hiding."""
LEAST_PANEL = 4096
"""Bytes of a panel from which the next one is worth asking for."""
AHEAD = 4096
"""Bytes ahead of what is read once to ask for."""
SMALL = 1 << 18
"""Bytes of a buffer that is likely to be in a cache when it is read once."""
MOST_LINES = 4
"""Lines that one iteration of the reduction may ask for."""


@dataclass(frozen=True)
class Prefetch:
    """What each iteration of the reduction loop `loop` asks for."""

    loop: For
    buffer: Buffer
    offset: Affine
    """Bytes from the buffer's start, over the loops around."""
    lines: int
    once: bool
    """Whether what is asked for is read once."""

    def write(self, points: Points) -> None:
        """Write the requests at the current place, inside `loop`."""
        b, index = points.b, points.index
        b.declare("llvm.prefetch.p0", "void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        place = index.linear(self.offset)
        for n in range(self.lines):
            at = index.scalar(Linear(place.const + n * LINE, place.terms))
            start = points.memory.pointers[id(self.buffer)]
            pointer = b.op(f"getelementptr i8, ptr {start}, i64 {at}")
            # Read, into the second cache, as data.
            b.do(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 2, i32 1)")


def find_prefetches(
    tile: Tile, site: Site, points: Points, target: Target, busy: bool
) -> list[Prefetch]:
    """What a register tile reads once; and where it is `busy`, having the sums that keep the
    multiply-add units so, the panels that it reads again and again from the second cache, and that
    are followed by the next."""
    serial = [x for x in tile.loops if x.kind == "serial"]
    if not serial:
        return []
    own = {id(x) for x in (*tile.loops, *_nest(tile))}
    around = [x for x in site.loops if id(x) not in own]
    most = target.l2_bytes // 4  # with the next one half of the cache
    # What reads more than it computes asks only for what no cache holds: requests are loads, too.
    least = SMALL if busy else target.l3_bytes // 4
    # What lives for an iteration of a loop around holds one panel: no other one follows it.
    scratch = {id(b) for x in around for b in x.allocs}
    out = []
    for access in tile.block.reads:
        if id(access.buffer) in scratch:
            continue
        flat = flat_form(points.over_loops(access))
        found = None if flat is None else _of(tile, around, serial[-1], access, flat, most)
        if found is not None and (_has(access.buffer, least) if found.once else busy):
            out.append(found)
    return out


def _has(buffer: Buffer, least: int) -> bool:
    """Whether a buffer of known sizes has so many bytes."""
    sizes = [n for n in buffer.shape if not isinstance(n, Size)]
    return len(sizes) == len(buffer.shape) and (
        prod(map(int, sizes)) * dtypes.itemsize(buffer.dtype) >= least
    )


def _of(
    tile: Tile, around: Sequence[For], loop: For, access: Access, flat: Affine, most: int
) -> Prefetch | None:
    """What `access` has of a panel that is read once, or of one of at most `most` bytes that is
    read again."""
    size = dtypes.itemsize(access.buffer.dtype)
    inside, passes = _split(around, flat)
    again = prod(int(x.extent) for x in passes)
    panel = [x for x in (*inside, *tile.loops, *_nest(tile)) if flat.uses([x.var])]
    if again > MOST_PASSES or loop not in panel:
        return None
    elements = _contiguous(panel, flat, _nest(tile) or tile.loops[-1:])
    if elements is None or elements * size < LEAST_PANEL:
        return None
    if again > 1 and elements * size > most:
        return None
    outside, _ = flat.split({x.var for x in panel})
    if outside.uses([x.var for x in passes]):
        return None
    asking = panel[: panel.index(loop) + 1]
    share = -(-elements * size // again)
    step = -(-share // prod(int(x.extent) for x in asking))
    lines = step // LINE + (again > 1)
    if lines > MOST_LINES:
        return None
    if again == 1:
        if int(flat.coefficient(loop.var)) * size != step:
            return None  # an iteration reads several stretches
        ahead = flat.split({x.var for x in asking})[1]
        return Prefetch(loop, access.buffer, (outside + ahead) * size + AHEAD, lines, True)
    # A pass asks for 1/again of the next panel, each of its iterations for as much as the others.
    offset = outside * size + elements * size
    for loops, each in ((asking, step), (passes, share)):
        for x in reversed(loops):
            offset = offset + Affine.of(x.var) * each
            each *= int(x.extent)
    return Prefetch(loop, access.buffer, offset, lines, False)


def _nest(tile: Tile) -> tuple[For, ...]:
    """The loops inside a tile that an intrinsic does."""
    return () if tile.tensor is None else tile.tensor.loops


def _split(around: Sequence[For], flat: Affine) -> tuple[list[For], list[For]]:
    """Of the loops around a tile: those of one pass over the panel, and those that repeat it."""
    inside: list[For] = []
    passes: list[For] = []
    for x in reversed(around):
        if isinstance(x.extent, Size) or x.kind not in ("serial", "unrolled"):
            break
        if int(x.extent) == 1:
            continue
        if not flat.uses([x.var]):
            passes.insert(0, x)
        elif passes:
            break
        else:
            inside.insert(0, x)
    return inside, passes


def _contiguous(panel: Sequence[For], flat: Affine, inner: Sequence[For]) -> int | None:
    """The elements of a panel whose loops pass over one stretch of memory, the vector loop or all
    of an intrinsic's over neighbours."""
    vectors = len(inner) > 1 or inner[0].kind == "vectorized"
    if not vectors or any(x not in panel for x in inner):
        return None
    steps = []
    for x in panel:
        step = _plain(flat, x.var)
        if step is None or isinstance(x.extent, Size):
            return None
        steps.append((step, int(x.extent), x))
    steps.sort(key=lambda s: s[0])
    done = 1
    for step, extent, _ in steps:
        if step != done:
            return None
        done *= extent
    return done if {id(s[2]) for s in steps[: len(inner)]} == {id(x) for x in inner} else None


def _plain(form: Affine, var: Var) -> int | None:
    """The coefficient of a variable that stands in a form once, outside digits."""
    step = form.coefficient(var)
    once = sum(v is var for v in form.variables()) == 1
    return int(step) if once and not isinstance(step, Size) else None
