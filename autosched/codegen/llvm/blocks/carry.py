"""State that a sequential loop hands from step to step in registers.

A block that writes `S[t, …]` and reads the same place of the step before, with nothing but unrolled
and vectorised loops between it and the loop over t, finds there what it wrote last: every vector
gets a stack slot that is loaded before the loop and stored with each step, and LLVM makes registers
of them. (Through memory a step waits for its load to meet the store, and cannot store past the
caches.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosched.codegen.llvm.blocks.points import Points
from autosched.codegen.llvm.types import Value, type_of
from autosched.tir.affine import Affine
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Block, For, Index, Site, sites
from autosched.tir.size import Size

if TYPE_CHECKING:
    from autosched.codegen.llvm.function import FunctionWriter

MAX_VECTORS = 16
"""Vectors of state: half of the registers, the other half are for the work."""

Place = tuple[int, ...]


@dataclass(eq=False)
class Carry:
    """The state of one block while the body of `loop` is written."""

    f: FunctionWriter
    loop: For
    inside: tuple[For, ...]
    """The loops between `loop` and the block."""
    source: dict[int, int]
    """Reads (by number) of what was written one step before -> the write's number."""
    depth: int
    """Where the loop stands: how many regions of code are open around it."""
    slots: dict[tuple[int | None, Place | None], str] = field(default_factory=dict)
    """(read, place) -> its stack slot."""

    def _place(self) -> Place | None:
        """The values of the loops inside; None where one is only known at run time."""
        values = [self.f.index.env.get(x.var) for x in self.inside]
        place = tuple(v for v in values if isinstance(v, int))
        return place if len(place) == len(values) else None

    @property
    def _width(self) -> int:
        lanes = self.f.index.lanes
        return lanes.width if lanes is not None else 1

    def _number(self, points: Points, access: Access) -> int | None:
        return next((r for r in self.source if points.block.reads[r] is access), None)

    def holds(self, points: Points, access: Access) -> bool:
        """Whether the value of one of the block's reads is carried at this place."""
        return self._number(points, access) is not None and self._place() is not None

    def read(self, points: Points, access: Access) -> Value:
        """The value of a read that is held."""
        key = self._number(points, access), self._place()
        name = self.slots.get(key)
        if name is None:
            name = self.slots[key] = self._prime(points, access)
        dtype, width = access.buffer.dtype, self._width
        return Value(self.f.b.inst(f"load {type_of(dtype, width)}, ptr {name}"), dtype, width)

    def _prime(self, points: Points, access: Access) -> str:
        """A slot that holds, before the loop, what its first step reads."""
        f, var = self.f, self.loop.var
        name = f.alloca(type_of(access.buffer.dtype, self._width))
        now = f.index.env[var]
        f.index.env[var] = 0
        with f.b.before(self.depth):
            guard = points.guard(f.pending(points.block))
            value = f.index.widen(points.load_from_memory(access, guard), self._width)
            f.b.do(f"store {value.type} {value.ref}, ptr {name}")
        f.index.env[var] = now
        return name

    def wrote(self, write: int, value: Value) -> None:
        """A value was stored by the block's write of this number: the next step reads it."""
        for r, w in self.source.items():
            name = self.slots.get((r, self._place()))
            if w == write and name is not None:
                wide = self.f.index.widen(value, self._width)
                self.f.b.do(f"store {wide.type} {wide.ref}, ptr {name}")


def carries(f: FunctionWriter, loop: For) -> dict[int, Carry]:
    """What the blocks (by id) inside a loop that is about to be written carry from step to step."""
    every = [f.blocks[id(s.block)] for s in sites(loop)]
    writers: dict[int, int] = {}
    for site in every:
        for a in site.block.writes:
            writers[id(a.buffer)] = writers.get(id(a.buffer), 0) + 1
    out: dict[int, Carry] = {}
    for site in every:
        inside = site.loops[site.loops.index(loop) + 1 :]
        source = {
            r: w
            for r, w in _steps(f, loop, site, inside).items()
            if writers[id(site.block.writes[w].buffer)] == 1
        }
        if source:
            out[id(site.block)] = Carry(f, loop, inside, source, len(f.b.stack))
    return out


def _steps(f: FunctionWriter, loop: For, site: Site, inside: tuple[For, ...]) -> dict[int, int]:
    """Reads (by number) of what the block wrote in the iteration of `loop` before -> the write."""
    block, points = site.block, f.points(site.block)
    if (
        block.reducer is not None
        or any(x.kind not in ("unrolled", "vectorized") for x in inside)
        or any(p.form.uses([loop.var]) for p in block.predicates)
        or _vectors(f, block, inside) > MAX_VECTORS
    ):
        return {}
    before = {loop.var: Affine.of(loop.var) + -1}
    out: dict[int, int] = {}
    for w, write in enumerate(block.writes):
        wanted = points.over_loops(write).indices
        for r, read in enumerate(block.reads):
            found = points.over_loops(read)
            moves = [isinstance(x, Affine) and x.uses([loop.var]) for x in wanted]
            if (
                read.buffer is write.buffer
                and any(moves)
                and _same(wanted, found.indices, before)
                # The first step's read is made before the loop, whatever the body's conditions.
                and all(points.is_inside(found, n) for n, moving in enumerate(moves) if moving)
            ):
                out[r] = w
    return out


def _same(write: Sequence[Index], read: Sequence[Index], before: dict[Var, Affine]) -> bool:
    """Whether the element read is that of the write one step before."""
    return all(
        isinstance(x, Affine) and isinstance(y, Affine) and x.substitute(before).same(y)
        for x, y in zip(write, read, strict=True)
    )


def _vectors(f: FunctionWriter, block: Block, inside: tuple[For, ...]) -> int:
    count = 1
    for x in inside:
        if isinstance(x.extent, Size):
            return MAX_VECTORS + 1  # no number of registers
        width = f.width(block) if x.kind == "vectorized" else 1
        count *= -(-int(x.extent) // width)
    return count
