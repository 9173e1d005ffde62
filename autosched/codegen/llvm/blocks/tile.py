"""The register tile: a reduction whose accumulators live in registers.

A chain of loops that starts at a reduction loop and holds only serial reduction loops, unrolled
loops and one vectorised loop becomes: initialise one accumulator for each unrolled or vectorised
spatial point, run the reduction loops over all of them, store. Tails of spatial axes read clamped
or masked operands and are only looked at when storing; a tail of the reduction is a shorter trip
and one remainder loop.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING

from autosched.codegen.llvm.blocks.copies import Copies
from autosched.codegen.llvm.blocks.find_tile import Tile
from autosched.codegen.llvm.blocks.gated import GatedLoop
from autosched.codegen.llvm.blocks.padding import Edge, Gate, gates
from autosched.codegen.llvm.blocks.prefetch import Prefetch, find_prefetches
from autosched.codegen.llvm.blocks.tensor import writer_of
from autosched.codegen.llvm.index import Lanes, chunks, lanes_of
from autosched.codegen.llvm.memory import Guard
from autosched.codegen.llvm.trips import trip_count
from autosched.codegen.llvm.types import Value, suffix, type_of
from autosched.tir import dtypes
from autosched.tir.affine import sometimes
from autosched.tir.expr import Var
from autosched.tir.nodes import For, Predicate
from autosched.tir.reducers import known_name
from autosched.tir.size import Size

if TYPE_CHECKING:
    from autosched.codegen.llvm.function import FunctionWriter

CHAINS = 8
"""Independent accumulators that keep the multiply-add units busy (latency 4, two a cycle)."""


class TileWriter:
    """Writes one register tile."""

    def __init__(self, f: FunctionWriter, tile: Tile) -> None:
        assert tile.block.reducer is not None
        self.f, self.tile, self.block, self.reducer = f, tile, tile.block, tile.block.reducer
        self.points = f.points(tile.block)
        inner = {loop.var for loop in tile.loops}
        pending = f.pending(tile.block)
        self.outer = [p for p in pending if not p.form.uses(inner)]
        self.reduce = [p for p in pending if p.form.uses(tile.reduce)]
        self.spatial = tuple(p for p in pending if p not in self.outer and p not in self.reduce)
        self.begins = [q for p in self.spatial if (q := _at_start(p, inner)) is not None]
        last = tile.loops[-1]
        self.vector = last if last.kind == "vectorized" else None
        self.lanes_reduce = self.vector is not None and self.vector.var in tile.reduce
        self.width = f.width(tile.block)
        self.tensor = None if tile.tensor is None else writer_of(f, self.points, tile.tensor)
        self.unrolled = [x for x in tile.loops if x.kind == "unrolled" and x.var not in tile.reduce]
        self.gates: list[Gate] = []
        self.copies = Copies(f, self.points)
        self.accumulators: dict[tuple[int, ...], list[list[str]]] = {}
        self.turn: dict[tuple[int, ...], int] = {}
        self.prefetches: list[Prefetch] = []

    def write(self) -> None:
        """Write the tile at the current place, unless all of it overhangs."""
        extents = self.points.extents
        open_ = [q for q in self.begins if sometimes(q.form.span(extents)[1] >= q.bound)]
        guard = self.points.guard([*self.outer, *open_])
        self.points.know(self.begins)
        if guard.scalar == "false":
            return
        if guard.scalar is not None:
            self.f.branch(guard.scalar, self._tile)
        else:
            self._tile()

    def _tile(self) -> None:
        f = self.f
        self.gates = gates(self.block, self.points.scalars)
        self.copies.edges = self._edges()
        self.points.clamp = self.spatial
        for var in self.tile.reduce:
            f.index.env[var] = 0
        if self.tensor is not None:
            self.tensor.enter()
        first = self.points.at_start()
        places = list(self._places())
        site, busy = f.blocks[id(self.block)], len(places) >= CHAINS
        self.prefetches = find_prefetches(self.tile, site, self.points, f.target, busy)
        partial = self._partials(len(places))
        for key, lanes in places:
            self._go_to(key, lanes)
            self.turn[key] = 0
            sets = []
            old = None
            if first is not True and not self.lanes_reduce:
                old = self._accumulated()
            for p in range(partial):
                names = []
                for n, access in enumerate(self.block.writes):
                    count = self._lanes(lanes)
                    value = self.points.identity(self.reducer, n, count)
                    if p == 0 and old is not None:
                        value = self.points.first_or(first, value, f.index.widen(old[n], count))
                    name = f.alloca(type_of(access.buffer.dtype, count))
                    f.b.do(f"store {value.type} {value.ref}, ptr {name}")
                    names.append(name)
                sets.append(names)
            self.accumulators[key] = sets
        f.index.lanes = None
        self.copies.complete(lambda: self._loops(0))
        for var in self.tile.reduce:
            f.index.env[var] = 0
        for key, lanes in places:
            self._go_to(key, lanes)
            self._finish(key, lanes, first)
        f.index.lanes = None
        if self.tensor is not None:
            self.tensor.leave()
        for loop in self.tile.loops:
            f.index.env.pop(loop.var, None)

    def _lanes(self, lanes: Lanes | None) -> int:
        """Lanes of an accumulator."""
        if self.tensor is not None:
            return self.tensor.lanes
        return lanes.width if lanes is not None else self.width if self.lanes_reduce else 1

    def _accumulated(self) -> list[Value]:
        """What the accumulators' elements hold in memory."""
        if self.tensor is not None:
            return [self.tensor.load_result(Guard())]
        return [self.points.load(a, Guard()) for a in self.block.writes]

    def _places(self) -> list[tuple[tuple[int, ...], Lanes | None]]:
        """Every accumulator: the values of the unrolled spatial loops and the vector's chunk."""
        ranges = [range(int(loop.extent)) for loop in self.unrolled]
        out: list[tuple[tuple[int, ...], Lanes | None]] = []
        for values in product(*ranges):
            if self.vector is None or self.lanes_reduce:
                out.append((values, None))
                continue
            for offset, width, active in chunks(int(self.vector.extent), self.width):
                out.append(((*values, offset), lanes_of(self.vector.var, width, active)))
        return out

    def _go_to(self, key: tuple[int, ...], lanes: Lanes | None) -> None:
        for loop, value in zip(self.unrolled, key, strict=False):
            self.f.index.env[loop.var] = value
        self.f.index.lanes = lanes
        if self.vector is not None and not self.lanes_reduce:
            self.f.index.env[self.vector.var] = key[-1]

    def _partials(self, places: int) -> int:
        """How many accumulators a place needs so that CHAINS are in flight."""
        if self.points.factors:
            return 1  # copies of the tile stand beside it, and most terms vanish
        copies = 1
        for loop in self.tile.loops:
            if loop.var in self.tile.reduce and loop.kind == "unrolled":
                copies *= int(loop.extent)
        if self.lanes_reduce:
            assert self.vector is not None
            extent = self.vector.extent
            copies *= CHAINS if isinstance(extent, Size) else max(1, int(extent) // self.width)
        return max(1, min(copies, CHAINS // places))

    def _edges(self) -> list[Edge]:
        """The gates to ask for single copies."""
        if self.tensor is not None:
            return []
        loops, extents = self.tile.loops, self.points.extents
        clamped = {v for p in self.spatial for v in p.form.variables()}
        found = (Edge.of(gate, loops, extents, clamped) for gate in self.gates)
        return [edge for edge in found if edge is not None]

    def _loops(self, level: int) -> None:
        """The loops from `level` on."""
        self.copies.write(level, lambda: self._inside(level))

    def _inside(self, level: int) -> None:
        f = self.f
        if level == len(self.tile.loops):
            self._update()
            return
        loop = self.tile.loops[level]

        def inside() -> None:
            for prefetch in self.prefetches:
                if prefetch.loop is loop:
                    prefetch.write(self.points)
            self._loops(level + 1)

        if loop.kind == "serial":
            self._serial(loop, lambda: self.copies.complete(inside))
        elif loop.kind == "unrolled":
            for n in range(int(loop.extent)):
                f.index.env[loop.var] = n
                inside()
        elif not self.lanes_reduce:
            for offset, width, active in chunks(int(loop.extent), self.width):
                f.index.env[loop.var] = offset
                f.index.lanes = lanes_of(loop.var, width, active)
                inside()
            f.index.lanes = None
        else:
            self._reduction_lanes(loop, inside)

    def _serial(self, loop: For, inside: Callable[[], None]) -> None:
        """A reduction loop: full iterations, then, for a tail inside unrolled copies, a
        remainder."""
        f = self.f
        mine = [p for p in self.reduce if p.form.uses([loop.var])]
        below = self.tile.loops[self.tile.loops.index(loop) + 1 :]
        serial_below = [x.var for x in below if x.kind == "serial"]
        mine = [p for p in mine if not p.form.uses(serial_below)]
        used = [loop.var, *(x.var for x in below)]
        mine = [p for p in mine if all(_plain(p, v) for v in used if p.form.uses([v]))]
        kept = self.reduce
        copies = [p for p in mine if p.form.uses([x.var for x in below])]
        self.reduce = [p for p in kept if p not in mine]
        spatial = [x.var for x in self.tile.loops if x.var not in self.tile.reduce]
        clamped = {v for p in self.spatial for v in p.form.variables()}
        if self.tensor is not None:
            clamped.update(spatial)  # an intrinsic's rows are not told apart
        gated = GatedLoop(f, loop, self.tile.loops, self.gates, clamped)
        trip = trip_count(f.index, loop, mine, {x.var: 0 for x in below})
        if copies:
            full = trip_count(f.index, loop, mine, {x.var: x.extent - 1 for x in below})
            gated.write(full, spatial, inside)
            self.reduce = [p for p in kept if p not in mine or p in copies]
            f.loop(loop.var, full, trip, inside)
        else:
            gated.write(trip, spatial, inside)
        self.reduce = kept

    def _reduction_lanes(self, loop: For, inside: Callable[[], None]) -> None:
        """A vectorised reduction: groups of whole vectors in a loop, then what is left."""
        f = self.f
        if isinstance(loop.extent, Size):
            self._sized_lanes(loop, str(f.index.number(loop.extent)), inside)
            return
        extent, width = int(loop.extent), self.width
        whole = extent // width
        group = max(1, min(whole, CHAINS // max(1, len(self.accumulators))))
        groups = whole // group
        if groups > 1:
            counter = Var(f"{loop.var.name}_group")

            def body() -> None:
                at = f.index.env[counter]
                for n in range(group):
                    if isinstance(at, int):
                        f.index.env[loop.var] = (at * group + n) * width
                    else:
                        base = f.b.op(f"mul nsw i64 {at}, {group * width}")
                        f.index.env[loop.var] = (
                            f.b.op(f"add nsw i64 {base}, {n * width}") if n else base
                        )
                    f.index.lanes = Lanes(loop.var, width, width)
                    inside()
                f.index.lanes = None

            f.loop(counter, 0, groups, body)
        done = groups * group * width if groups > 1 else 0
        for offset, _, active in chunks(extent - done, width):
            f.index.env[loop.var] = done + offset
            f.index.lanes = Lanes(loop.var, width, active)
            inside()
        f.index.lanes = None

    def _sized_lanes(self, loop: For, extent: str, inside: Callable[[], None]) -> None:
        """A vectorised reduction of symbolic extent: groups of vectors, single ones, a masked."""
        f, width = self.f, self.width
        group = max(1, CHAINS // max(1, len(self.accumulators)))
        span = group * width
        groups = f.b.op(f"udiv i64 {extent}, {span}")
        counter = Var(f"{loop.var.name}_group")

        def lanes(at: str, active: int | str) -> None:
            f.index.env[loop.var] = at
            f.index.lanes = Lanes(loop.var, width, active)
            inside()
            f.index.lanes = None

        def body() -> None:
            start = f.b.op(f"mul nsw i64 {f.index.env[counter]}, {span}")
            for n in range(group):
                lanes(f.b.op(f"add nsw i64 {start}, {n * width}") if n else start, width)

        f.loop(counter, 0, groups, body)
        done = f.b.op(f"mul nsw i64 {groups}, {span}")
        left = Var(f"{loop.var.name}_rest")

        def vector(active: int | str) -> None:
            lanes(f.b.op(f"add nsw i64 {done}, {f.index.env[left]}"), active)

        f.vectors(left, f.b.op(f"sub nsw i64 {extent}, {done}"), width, vector)

    def _key(self) -> tuple[int, ...]:
        values = [self.f.index.env[loop.var] for loop in self.unrolled]
        if self.vector is not None and not self.lanes_reduce:
            values.append(self.f.index.env[self.vector.var])
        return tuple(int(v) for v in values)

    def _update(self) -> None:
        """One point (or vector of points) of the reduction."""
        f = self.f
        guard = self.points.guard(self.reduce)
        if guard.scalar == "false":
            return
        if self.tensor is None and self.points.vanishes():
            return
        key = self._key()
        sets = self.accumulators[key]
        names = sets[self.turn[key] % len(sets)]
        self.turn[key] += 1
        wide = self._lanes(f.index.lanes)
        old = []
        for name, access in zip(names, self.block.writes, strict=True):
            t = type_of(access.buffer.dtype, wide)
            old.append(Value(f.b.inst(f"load {t}, ptr {name}"), access.buffer.dtype, wide))
        if self.tensor is not None:
            new = [self.tensor.call(old[0], guard)]
        else:
            new = self.points.update(self.reducer, old, guard)
        keep = f.memory.mask(guard) if f.index.lanes is not None and self.lanes_reduce else None
        if keep is None and guard.mask is not None:
            keep = f.memory.mask(guard)
        for name, before, after in zip(names, old, new, strict=True):
            value = f.index.widen(after, before.lanes)
            ref = value.ref
            if keep is not None:
                ref = f.b.op(
                    f"select <{wide} x i1> {keep}, {before.type} {ref}, {before.type} {before.ref}"
                )
            elif guard.scalar is not None:
                ref = f.b.op(
                    f"select i1 {guard.scalar}, {before.type} {ref}, {before.type} {before.ref}"
                )
            f.b.do(f"store {before.type} {ref}, ptr {name}")

    def _finish(self, key: tuple[int, ...], lanes: Lanes | None, first: str | bool) -> None:
        """Combine the partial accumulators of one place and store it where it is real."""
        f = self.f
        width = self._lanes(lanes)
        total: list[Value] | None = None
        for names in self.accumulators[key]:
            part = [
                Value(
                    f.b.inst(f"load {type_of(a.buffer.dtype, width)}, ptr {name}"),
                    a.buffer.dtype,
                    width,
                )
                for name, a in zip(names, self.block.writes, strict=True)
            ]
            total = part if total is None else self.points.combine(self.reducer, total, part)
        assert total is not None
        if self.lanes_reduce:
            total = self._horizontal(total)
            if first is not True:
                old = [self.points.load(a, Guard()) for a in self.block.writes]
                start = [
                    self.points.first_or(first, self.points.identity(self.reducer, n, 1), v)
                    for n, v in enumerate(old)
                ]
                total = self.points.combine(self.reducer, start, total)
        guard = self.points.guard(self.spatial)
        if guard.scalar == "false":
            return
        values = total

        def store() -> None:
            if self.tensor is not None:
                self.tensor.store(values[0])
            else:
                f.store(self.points, values, guard)

        if guard.scalar is not None:
            f.branch(guard.scalar, store)
        else:
            store()

    def _horizontal(self, values: list[Value]) -> list[Value]:
        """Combine all lanes: halves, quarters, …

        Sums of integers by LLVM's operation: of halves LLVM 22 makes vpdpbusd where bytes are
        multiplied, and loses three of the four sums of that.
        """
        b = self.f.b
        lanes = values[0].lanes
        if dtypes.is_int(values[0].dtype) and self.reducer and known_name(self.reducer) == "sum":
            return [self._added(v) for v in values]
        while lanes > 1:
            half = lanes // 2
            parts: list[list[Value]] = []
            for offset in (0, half):
                picks = ", ".join(f"i32 {n + offset}" for n in range(half))
                part = []
                for v in values:
                    if half == 1:
                        ref = b.op(f"extractelement {v.type} {v.ref}, i64 {offset}")
                    else:
                        ref = b.op(
                            f"shufflevector {v.type} {v.ref}, {v.type} poison, "
                            f"<{half} x i32> <{picks}>"
                        )
                    part.append(Value(ref, v.dtype, half))
                parts.append(part)
            values = self.points.combine(self.reducer, *parts)
            lanes = half
        return values

    def _added(self, v: Value) -> Value:
        """The sum of all lanes."""
        name, one = f"llvm.vector.reduce.add.{suffix(v.dtype, v.lanes)}", type_of(v.dtype)
        self.f.b.declare(name, f"{one} @{name}({v.type})")
        return Value(self.f.b.op(f"call {one} @{name}({v.type} {v.ref})"), v.dtype)


def _at_start(p: Predicate, inner: set[Var]) -> Predicate | None:
    """The predicate at the tile's first point, if it is weakest there."""
    outside, inside = p.form.split(inner)
    if not all(isinstance(atom, Var) and c > 0 for atom, c in inside.terms):
        return None
    return Predicate(outside, p.bound)


def _plain(p: Predicate, var: Var) -> bool:
    """Whether `var` stands in the predicate with a positive coefficient and outside digits."""
    c = p.form.coefficient(var)
    return isinstance(c, int) and c > 0 and sum(v is var for v in p.form.variables()) == 1
