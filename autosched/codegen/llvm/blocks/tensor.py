"""Writing tensor intrinsics: operands as vectors, the implementation in place of the loops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from autosched.codegen.llvm.blocks.points import Points
from autosched.codegen.llvm.memory import Guard
from autosched.codegen.llvm.permission import DEFINITIONS
from autosched.codegen.llvm.types import Value, type_of
from autosched.errors import CodegenError, ScheduleError
from autosched.target import Target
from autosched.tir.affine import Affine
from autosched.tir.intrin import KEY, Match, TensorIntrin, elements, match, pitch
from autosched.tir.intrin_code import TILE, Implementation, tile_shape
from autosched.tir.nodes import Access, Buffer, For, Site, sites

if TYPE_CHECKING:
    from autosched.codegen.llvm.function import FunctionWriter

_NAME = re.compile(r"%[\w.]+")


def find_match(loop: For, blocks: dict[int, Site], target: Target) -> Match:
    """The intrinsic that the nest from `loop` inwards is marked with.

    Raises CodegenError if it is unknown, does something else, or needs what the target lacks.
    """
    below = next(sites(loop))
    site = blocks[id(below.block)]
    try:
        intrin = TensorIntrin.get(str(loop.annotation(KEY)))
        found = match(site, intrin)
    except ScheduleError as e:
        raise CodegenError(f"loop {loop.var.name} is marked as an intrinsic: {e}") from e
    lacks = sorted(intrin.features - target.features)
    if lacks:
        raise CodegenError(
            f"block {site.block.name} uses the tensor intrinsic {intrin.name}, which needs "
            f"{', '.join(lacks)}; {target.mcpu} lacks it: build for a CPU that has it, or schedule "
            "the block without tensorize"
        )
    if not isinstance(intrin.implementation, Implementation):
        raise CodegenError(
            f"{intrin.name} is implemented by a function, which Schedule.tensorize puts in the "
            f"place of the nest; loop {loop.var.name} is only marked with it"
        )
    if found.loops[0] is not below.loops[0]:
        raise CodegenError(
            f"{intrin.name} is a nest of {len(found.loops)} loops; loop {loop.var.name} is marked "
            f"with it and holds {len(below.loops)}"
        )
    return found


class TensorWriter:
    """Writes one marked nest at the current place of the loops around it."""

    def __init__(self, f: FunctionWriter, points: Points, found: Match) -> None:
        self.f, self.points, self.match = f, points, found
        meaning = next(sites(found.intrin.meaning)).block
        self.models: dict[str, Buffer] = {a.buffer.name: a.buffer for a in meaning.reads}
        self.result = meaning.writes[0].buffer
        self.lanes = elements(self.result)

    def enter(self) -> None:
        """Stand at the first point of the nest, where the operands start."""
        for loop in self.match.loops:
            self.f.index.env[loop.var] = 0

    def leave(self) -> None:
        """Forget the nest's loops."""
        for loop in self.match.loops:
            del self.f.index.env[loop.var]

    def load(self, access: Access, lanes: int, guard: Guard) -> Value:
        """`lanes` elements from the first one of an access on."""
        return self.points.load_run(access, lanes, guard)

    def load_result(self, guard: Guard) -> Value:
        """What has been accumulated."""
        return self.load(self.match.write, self.lanes, guard)

    def call(self, old: Value | None, guard: Guard) -> Value:
        """The implementation's result; `old` is what a reduction has accumulated."""
        b = self.f.b
        names = {
            f"%{name}": self.operand(name, access, guard)
            for name, access in self.match.operands.items()
        }
        if old is not None:
            names[f"%{self.result.name}"] = self.accumulator(old)
        code = self.match.intrin.implementation
        assert isinstance(code, Implementation)  # find_match
        b.declarations.update(code.declarations)
        for name, text in code.lines:
            names[name] = b.op(_NAME.sub(lambda m: names[m.group()], text))
        return self.value(names.get(code.result, code.result))

    def operand(self, name: str, access: Access, guard: Guard) -> str:
        """What stands for a buffer of the meaning in the implementation."""
        return self.load(access, elements(self.models[name]), guard).ref

    def accumulator(self, old: Value) -> str:
        """What has been accumulated, as the implementation takes it."""
        return old.ref

    def value(self, result: str) -> Value:
        """What the implementation returns, as it is kept between calls."""
        return Value(result, self.result.dtype, self.lanes)

    def store(self, value: Value) -> None:
        """Write the result; the caller has branched on what must hold."""
        access = self.match.write
        offset = self.points.offset(access, Guard())
        self.f.memory.store_run(access.buffer, offset, value)

    def write(self, guard: Guard) -> None:
        """The nest by itself, with no loops of the reduction around it in registers."""
        old: Sequence[Value] = ()
        if self.match.block.reducer is not None:
            old = self.points.start([self.load_result(guard)])
        self.store(self.call(old[0] if old else None, guard))


class TilesWriter(TensorWriter):
    """Writes a nest that an intrinsic on tile registers does.

    Between its calls an accumulator is a vector, which LLVM keeps in a tile register: it takes away
    pairs of conversions, chooses registers, and configures and releases them in each function.
    """

    def __init__(self, f: FunctionWriter, points: Points, found: Match) -> None:
        super().__init__(f, points, found)
        self.f.b.declarations.update(DEFINITIONS)
        self.vector = type_of(self.result.dtype, self.lanes)
        self.suffix = f"v{self.lanes}{'f32' if self.result.dtype == 'float32' else 'i32'}"

    def operand(self, name: str, access: Access, guard: Guard) -> str:
        return self.tile(access, self.models[name], guard)

    def load_result(self, guard: Guard) -> Value:
        return self.value(self.tile(self.match.write, self.result, guard))

    def accumulator(self, old: Value) -> str:
        name = f"llvm.x86.cast.vector.to.tile.{self.suffix}"
        self.f.b.declare(name, f"{TILE} @{name}({self.vector})")
        return self.f.b.inst(f"call {TILE} @{name}({self.vector} {old.ref})")

    def value(self, result: str) -> Value:
        name = f"llvm.x86.cast.tile.to.vector.{self.suffix}"
        self.f.b.declare(name, f"{self.vector} @{name}({TILE})")
        ref = self.f.b.inst(f"call {self.vector} @{name}({TILE} {result})")
        return Value(ref, self.result.dtype, self.lanes)

    def tile(self, access: Access, model: Buffer, guard: Guard) -> str:
        """The tile that starts at an access."""
        return self.points.load_tile(
            access, tile_shape(model), self.pitch(access, model), guard
        ).ref

    def pitch(self, access: Access, model: Buffer) -> int:
        """Bytes from row to row of what stands for a buffer of the meaning."""
        block = self.match.intrin.block
        form = next(a for a in (*block.reads, *block.writes) if a.buffer is model).indices[0]
        assert isinstance(form, Affine)  # check_tiles
        axis = form.single_var()
        binding = next(
            b for it, b in zip(block.iters, block.bindings, strict=True) if it.var is axis
        )
        loops = zip(self.match.loops, self.match.intrin.loops, strict=True)
        row = next(mine.var for mine, theirs in loops if theirs.var is binding.single_var())
        return pitch(access, self.match.block, row, self.points.extents)

    def store(self, value: Value) -> None:
        access = self.match.write
        offset = self.points.offset(access, Guard())
        shape = tile_shape(self.result)
        step = self.pitch(access, self.result)
        self.f.memory.store_tile(access.buffer, offset, self.accumulator(value), shape, step)


def writer_of(f: FunctionWriter, points: Points, found: Match) -> TensorWriter:
    """The writer of a marked nest."""
    code = found.intrin.implementation
    tiles = isinstance(code, Implementation) and code.tiles
    return (TilesWriter if tiles else TensorWriter)(f, points, found)
