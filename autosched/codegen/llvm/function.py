"""Writing one LLVM function: loops, branches, blocks and scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosched.codegen.apart import apart
from autosched.codegen.llvm.blocks.carry import Carry, carries
from autosched.codegen.llvm.blocks.find_tile import Tile, find_tile
from autosched.codegen.llvm.blocks.overhang import may_fill
from autosched.codegen.llvm.blocks.points import Points
from autosched.codegen.llvm.blocks.separable import tile_writer
from autosched.codegen.llvm.blocks.tensor import find_match, writer_of
from autosched.codegen.llvm.blocks.transpose import TransposeWriter, find_transposition
from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.control import Control
from autosched.codegen.llvm.index import Indexer, Lanes, chunks, lanes_of
from autosched.codegen.llvm.memory import SLACK, Guard, Memory
from autosched.codegen.llvm.parts import ends, operations, vector_tails, write_parts
from autosched.codegen.llvm.phases import has_parallel
from autosched.codegen.llvm.runs import write_run
from autosched.codegen.llvm.trips import trip_count
from autosched.codegen.llvm.types import Value
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.affine import same_int
from autosched.tir.expr import Var
from autosched.tir.intrin import KEY, Match
from autosched.tir.nodes import (
    CONSTANT_AXES,
    Block,
    Buffer,
    For,
    Node,
    Predicate,
    Site,
    allocated,
    sites,
)
from autosched.tir.size import Size

if TYPE_CHECKING:
    from autosched.codegen.llvm.generate import ModuleWriter

STACK_BYTES = 4096
"""Intermediates up to this size live on the stack, where LLVM may turn them into registers."""
MAX_COPIES = 4096
"""Operations in one stretch of copies. A loop whose unrolling would make more stays a loop: LLVM
takes more than linear time over straight code, and no processor keeps so much of it at hand."""


@dataclass
class FunctionWriter:
    """Writes the body of one function over known buffers."""

    module: ModuleWriter
    target: Target
    blocks: dict[int, Site]
    """Every block of the program by identity, with the loops around it."""
    in_parallel: bool = False
    streaming: bool = False
    done: set[int] = field(default_factory=set)
    """Predicates (by identity) that the loops already guarantee here."""

    def __post_init__(self) -> None:
        self.b = Builder(self.module.declarations)
        self.control = Control(self.b, self.module.next_number)
        self.index = Indexer(self.b)
        has_permutes = "avx512vbmi" in self.target.features
        self.memory = Memory(self.b, self.index, has_permutes=has_permutes)
        self.carried: dict[int, Carry] = {}
        """State in registers, by block (id)."""
        self._points: dict[int, Points] = {}
        self._slots: dict[int, str] = {}
        self._filling: dict[int, bool] = {}

    # Structure -----------------------------------------------------------------------------

    def alloca(self, llvm_type: str, align: int = 0) -> str:
        """A stack slot, made once at the head of the function."""
        return self.control.slot(llvm_type, align)

    def loop(self, var: Var, low: int | str, high: int | str, body: Callable[[], None]) -> None:
        """`for var in [low, high)`; bounds may be run-time values."""
        env = self.index.env

        def at(value: int | str) -> None:
            env[var] = value
            body()
            del env[var]

        if not (isinstance(low, int) and isinstance(high, int)) or high > low + 1:
            self.control.counted(low, high, at, line=self.module.lines.get(id(var)))
        elif high > low:
            at(low)

    def branch(self, condition: str, body: Callable[[], None]) -> None:
        """`if condition: body`."""

        def inside() -> None:
            self.memory.inherit(self.b.stack[-2], self.b.here)
            body()

        if condition != "false":
            self.control.branch(condition, inside)

    # Blocks --------------------------------------------------------------------------------

    def points(self, block: Block) -> Points:
        """The evaluator of a block's points."""
        found = self._points.get(id(block))
        if found is None:
            found = Points(
                block,
                self.blocks[id(block)].extents(),
                self.b,
                self.index,
                self.memory,
                self.target,
            )
            self._points[id(block)] = found
        return found

    def pending(self, block: Block) -> list[Predicate]:
        """Predicates of the block that are not guaranteed yet."""
        return [p for p in block.predicates if id(p) not in self.done]

    def width(self, block: Block) -> int:
        """Lanes of a vector of the block's widest element."""
        accesses = (*block.writes, *block.reads)
        return max(
            1, self.target.vector_bytes // max(dtypes.itemsize(a.buffer.dtype) for a in accesses)
        )

    def written(self, node: Node) -> int:
        """Operations that stand below each other once `node` is written, if all unrolled loops
        are copied out."""
        if isinstance(node, Block):
            if node.annotation(CONSTANT_AXES) is not None:
                return 1  # of the terms of a point; the rest is folded
            return max(1, sum(map(operations, node.body)))
        inside = sum(self.written(x) for x in node.body)
        if node.kind == "unrolled":
            return int(node.extent) * inside
        if node.kind == "vectorized":
            if isinstance(node.extent, Size):
                return 2 * inside  # in a loop, and masked at the end
            width = min(self.width(s.block) for s in sites(node))
            return -(-int(node.extent) // width) * inside
        return inside

    def node(self, node: Node) -> None:
        """Write a loop or a block."""
        with self.b.at(self.module.lines.get(id(node))):
            self._node(node)

    def _node(self, node: Node) -> None:
        if isinstance(node, Block):
            self.block(node)
            return
        short = self.written(node) <= MAX_COPIES
        # Below lanes every block is a vector already.
        if self.index.lanes is None and short:
            tile = self.tile(node)
            if tile is not None:
                with self.b.at(self.module.lines.get(id(tile.block))):
                    tile_writer(self, tile).write()
                return
        if node.annotation(KEY) is not None:
            self.tensor(node)
            return
        if node.kind == "parallel" and not self.in_parallel:
            self.module.parallel(self, node)
            return
        if node.kind == "serial" and not self.in_parallel and has_parallel(node):
            self.module.team(self, node)
            return
        turned = find_transposition(node, self) if self.index.lanes is None else None
        if turned is not None:
            TransposeWriter(self, turned).write()
        elif node.kind == "vectorized":
            if not write_run(self, node, 0, self.index.number(node.extent)):
                self.vectorized(node)
        elif node.kind == "unrolled" and short:
            for n in range(int(node.extent)):
                self.index.env[node.var] = n
                self.body(node)
            del self.index.env[node.var]
        else:
            self.serial(node)

    def tile(self, loop: For) -> Tile | None:
        """The register tile that starts at a loop; unrolled copies ask again and again."""
        found = self.module.tiles
        if id(loop) not in found:
            found[id(loop)] = find_tile(loop, self.match, self.blocks)
        return found[id(loop)]

    def match(self, loop: For) -> Match:
        """The intrinsic that does the nest from `loop` inwards."""
        return find_match(loop, self.blocks, self.target)

    def tensor(self, loop: For) -> None:
        """A nest that an intrinsic does."""
        found = self.match(loop)
        points = self.points(found.block)
        writer = writer_of(self, points, found)
        writer.enter()
        guard = points.guard(self.pending(found.block))
        if guard.scalar is None:
            writer.write(guard)
        elif guard.scalar != "false":
            self.branch(guard.scalar, lambda: writer.write(Guard()))
        writer.leave()

    def body(self, loop: For) -> None:
        """What stands inside a loop, with its scratch buffers."""
        self.scratch(loop.allocs, loop.body)

    def scratch(self, buffers: Sequence[Buffer], body: Sequence[Node]) -> None:
        """Write `body` with scratch memory for `buffers`."""
        area = self.module.thread_scratch if self.in_parallel else self.module.shared_scratch
        mark = area.top
        for buffer in buffers:
            size = dtypes.itemsize(buffer.dtype) * allocated(buffer.shape, buffer.align)
            if isinstance(size, Size):
                pointer = self._slots.get(id(buffer)) or self._sized(buffer, size)
                self._slots[id(buffer)] = pointer
            elif size <= STACK_BYTES:
                # Unrolled copies of a loop come here again; their buffers live one after the other.
                room = f"[{int(size) + SLACK} x i8]"
                pointer = self._slots.get(id(buffer)) or self.alloca(room, 64)
                self._slots[id(buffer)] = pointer
                self.memory.slack.add(id(buffer))
            elif id(buffer) in self.module.hosts:
                host = self.module.hosts[id(buffer)]
                place = self.memory.flat(host, None, None)
                pointer = self.memory.address(host.buffer, place)
            else:
                base = self.b.name(self._base, 0)
                at = area.take(int(size))
                pointer = self.b.op(f"getelementptr inbounds i8, ptr {base}, i64 {at}")
            self.memory.pointers[id(buffer)] = pointer
        for node in body:
            self.node(node)
        area.top = mark

    @property
    def _base(self) -> str:
        """Where the scratch memory of this function begins."""
        return "%thread_space" if self.in_parallel else "%workspace"

    def _sized(self, buffer: Buffer, size: Size) -> str:
        """Scratch memory of a symbolic size."""
        at = self.module.place(self.in_parallel, buffer, size)
        end = "@@THREAD@@" if self.in_parallel else "@@SHARED@@"
        start = self.b.op(f"add nsw i64 {self.index.number(at)}, {end}")
        base = self.b.name(self._base, 0)
        return self.b.op(f"getelementptr inbounds i8, ptr {base}, i64 {start}")

    def serial(self, loop: For) -> None:
        """A loop, shortened where a predicate of all blocks inside ends it; where lanes of its last
        iterations do not exist, these stand apart, and the others need no masks."""
        inside = [s.block for s in sites(loop)]
        common = [
            p
            for p in self.pending(inside[0])
            if ends(self, p, loop)
            and all(
                any(same_int(p.bound, q.bound) and p.form.same(q.form) for q in self.pending(x))
                for x in inside
            )
        ]
        trip = trip_count(self.index, loop, common, {})
        added = {
            id(q)
            for x in inside
            for q in self.pending(x)
            if any(same_int(p.bound, q.bound) and p.form.same(q.form) for p in common)
        }
        self.done |= added
        carried = carries(self, loop)
        self.carried |= carried
        whole: int | str = 0
        tails = [] if carried else vector_tails(self, loop)
        if tails:
            vector = loop.body[0]
            assert isinstance(vector, For)  # what has tails
            whole = trip_count(self.index, loop, [*common, *tails], {vector.var: vector.extent - 1})
            trip = trip_count(self.index, loop, [*common, *tails], {vector.var: 0})
            mine = {id(p) for p in tails} - self.done
            self.done |= mine
            write_parts(self, loop, 0, whole)
            self.done -= mine
        if carried:
            self.loop(loop.var, whole, trip, lambda: self.body(loop))
        else:
            write_parts(self, loop, whole, trip)
        self.carried = {k: c for k, c in self.carried.items() if k not in carried}
        self.done -= added

    def vectorized(self, loop: For) -> None:
        """A vectorised loop outside a register tile: whole vectors, then what is left."""
        blocks = [s.block for s in sites(loop)]
        if id(loop) not in self.module.combining:
            found = any(_combines(self.blocks[id(block)], loop.var) for block in blocks)
            self.module.combining[id(loop)] = found
        if self.module.combining[id(loop)]:
            # Lanes fall on few elements, in no pattern: one after the other.
            self.serial(loop)
            return
        width = min(self.width(block) for block in blocks)
        if isinstance(loop.extent, Size):
            self._sized_vectors(loop, str(self.index.number(loop.extent)), width)
            return
        extent = int(loop.extent)
        whole = extent // width
        covered = 0
        if whole > 4 and not any(id(block) in self.carried for block in blocks):
            counter = Var(f"{loop.var.name}_vector")

            def body() -> None:
                self.index.env[loop.var] = self.b.op(
                    f"mul nsw i64 {self.index.env[counter]}, {width}"
                )
                self._in_lanes(loop, lanes_of(loop.var, width, width))

            self.loop(counter, 0, whole, body)
            covered = whole * width
        for offset, lanes, active in chunks(extent - covered, width):
            self.index.env[loop.var] = covered + offset
            self._in_lanes(loop, lanes_of(loop.var, lanes, active))
        self.index.env.pop(loop.var, None)

    def _in_lanes(self, loop: For, lanes: Lanes | None) -> None:
        self.index.lanes = lanes
        self.body(loop)
        self.index.lanes = None

    def _sized_vectors(self, loop: For, extent: str, width: int) -> None:
        """A vectorised loop of symbolic extent: whole vectors in a loop, then a masked one."""

        def body(active: int | str) -> None:
            self._in_lanes(loop, lanes_of(loop.var, width, active))

        self.vectors(loop.var, extent, width, body)

    def vectors(self, var: Var, extent: str, width: int, body: Callable[[int | str], None]) -> None:
        """`body` at every vector of [0, extent), `var` being its first lane; it is told how many
        lanes are active: all, or at the end an i64 name."""
        whole = self.b.op(f"udiv i64 {extent}, {width}")
        counter = Var(f"{var.name}_vector")

        def inside() -> None:
            self.index.env[var] = self.b.op(f"mul nsw i64 {self.index.env[counter]}, {width}")
            body(width)

        self.loop(counter, 0, whole, inside)
        covered = self.b.op(f"mul nsw i64 {whole}, {width}")
        rest = self.b.op(f"sub nsw i64 {extent}, {covered}")

        def tail() -> None:
            self.index.env[var] = covered
            body(rest)

        if width > 1:
            self.branch(self.b.op(f"icmp sgt i64 {rest}, 0"), tail)
        self.index.env.pop(var, None)

    def block(self, block: Block) -> None:
        """One point, or one vector of points, of a block."""
        points = self.points(block)
        points.carried = self.carried.get(id(block))
        guard = points.guard(self.pending(block))
        if guard.scalar == "false":
            return
        if guard.scalar is None:
            self._point(points, guard)
            return
        self.branch(guard.scalar, lambda: self._point(points, Guard(None, guard.mask)))

    def _point(self, points: Points, guard: Guard) -> None:
        block = points.block
        if block.reducer is None:
            self.store(points, [points.scalars.evaluate(e, guard) for e in block.body], guard)
            return
        old = points.start([points.load(a, guard) for a in block.writes])
        self.store(points, points.update(block.reducer, old, guard), guard)

    def store(self, points: Points, values: Sequence[Value], guard: Guard) -> None:
        """Store the block's values at the current point; `guard.scalar` has been branched on."""
        wanted = self.streaming and bool(points.block.annotation("streaming", False))
        carry = self.carried.get(id(points.block))
        for n, (access, value) in enumerate(zip(points.block.writes, values, strict=True)):
            offset = points.offset(access, guard)
            lanes = self.index.lanes.width if self.index.lanes is not None else 1
            streaming = (
                wanted
                and offset.const % lanes == 0
                and all(
                    self.module.multiple(self, name) * c % lanes == 0
                    for name, c in offset.terms.items()
                )
            )
            if guard.mask is not None and offset.step == 1 and self._fills(points):
                mask = self.memory.mask(Guard(None, guard.mask))
                value = self.index.widen(value, lanes)
                zeros = f"{value.type} zeroinitializer"
                ref = self.b.op(f"select <{lanes} x i1> {mask}, {value.type} {value.ref}, {zeros}")
                value, guard = Value(ref, value.dtype, lanes), Guard(guard.scalar)
            self.memory.store(access.buffer, offset, value, guard, streaming)
            if carry is not None:
                carry.wrote(n, value)

    def _fills(self, points: Points) -> bool:
        """Whether lanes for which the block's predicates do not hold are stored as zeros."""
        block = points.block
        found = self._filling.get(id(block))
        if found is None:
            others = (s.block for s in self.blocks.values())
            found = may_fill(block, others, self.module.func.params)
            found = self._filling[id(block)] = found and points.is_safe(block.writes[0])
        return found


def _combines(site: Site, var: Var) -> bool:
    """Whether iterations of the loop over `var` may combine into the same element."""
    block = site.block
    return block.reducer is not None and (
        any(
            it.kind != "spatial" and binding.uses([var])
            for it, binding in zip(block.iters, block.bindings, strict=True)
        )
        or not apart(site, [var])
    )
