"""Loads and stores: contiguous vectors, broadcasts, gathers, masks and guarded addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autosched.codegen.llvm.builder import Builder, Region
from autosched.codegen.llvm.index import Indexer, Linear
from autosched.codegen.llvm.lookup import PART, TABLE, is_table, look_up
from autosched.codegen.llvm.strided import covering, near_lanes
from autosched.codegen.llvm.types import Value, memory_type, suffix, type_of
from autosched.errors import CodegenError
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Expr, Var
from autosched.tir.nodes import Access, Buffer, allocated, strides


@dataclass(frozen=True, slots=True)
class Guard:
    """What must hold for an access to be real: an i1 and a lane mask, either absent when always
    true."""

    scalar: str | None = None
    mask: str | None = None


ALWAYS = Guard()
SLACK = 64
"""Bytes after a buffer on the stack that anybody may read or write: a vector that hangs over the
end needs no mask then. What no mask hides is a register to LLVM."""
ZEROS = 1024
"""Bytes of zeros to read instead of what is not there: more than any vector."""


class Memory:
    """Emits accesses of buffers whose base pointers are known."""

    def __init__(self, b: Builder, index: Indexer, has_permutes: bool = False) -> None:
        """`has_permutes`: the target picks bytes out of two registers (AVX-512 VBMI)."""
        self.b = b
        self.index = index
        self.has_permutes = has_permutes
        self.pointers: dict[int, str] = {}
        self.cache: dict[int, dict[tuple[object, ...], Value]] = {}
        self.slack: set[int] = set()
        """Buffers (by id) with SLACK bytes behind them."""

    def flat(
        self,
        access: Access,
        values: Mapping[Var, str] | None,
        scalar_of: Callable[[Expr], Value] | None,
    ) -> Linear:
        """Offset in elements from the buffer's start. `scalar_of` gives the indices that are not
        affine; None for an access that has none."""
        total = Linear()
        steps = strides(access.buffer.shape, access.buffer.align)
        for index, stride in zip(reversed(access.indices), reversed(steps), strict=True):
            if isinstance(index, Affine):
                part = self.index.linear(index, values)
            else:
                assert scalar_of is not None
                value = scalar_of(index)
                part = Linear()
                if value.lanes == 1:
                    if value.ref.startswith("%"):
                        part.add(value.ref, 1)
                    else:
                        part.const = int(value.ref)
                else:
                    part.vector = value.ref
            self.index.add_scaled(total, part, stride)
        return total

    @property
    def _width(self) -> int:
        return 1 if self.index.lanes is None else self.index.lanes.width

    def address(self, buffer: Buffer, offset: Linear) -> str:
        """Pointer to lane 0's element."""
        pointer = self.pointers[id(buffer)]
        # An address that is outside the buffer though `inbounds` says not is undefined to LLVM,
        # even where it is on the way to the element only, as `x - i` to `x[n - i]`.
        within = "" if self.index.may_fall(offset) else " inbounds"
        step = f"getelementptr{within} {memory_type(buffer.dtype)}, ptr"
        total = self.index.sum(offset.terms)
        if total is not None:
            pointer = self.b.op(f"{step} {pointer}, i64 {total}")
        if offset.const:
            pointer = self.b.op(f"{step} {pointer}, i64 {offset.const}")
        return pointer

    def load(self, buffer: Buffer, offset: Linear, guard: Guard) -> Value:
        """The element or the vector of elements at an offset; 0 where the guard does not hold."""
        dtype = buffer.dtype
        lanes = self.index.lanes
        if not offset.varies:
            return self._cached(
                ("s", id(buffer), self._key(offset), guard),
                lambda: self._scalar(buffer, offset, guard),
            )
        assert lanes is not None
        if offset.vector is None and offset.step == 1:
            return self._cached(
                ("v", id(buffer), self._key(offset), guard, lanes.width, lanes.active),
                lambda: self._contiguous(buffer, offset, guard),
            )
        near = near_lanes(lanes, offset, guard.mask) if dtype != "bool" else []
        if near:
            return self._cached(
                ("n", id(buffer), self._key(offset), offset.step, guard, lanes),
                lambda: self._strided(buffer, offset, guard, near),
            )
        if offset.offsets and offset.vector is None and self._window(offset, guard):
            key = ("p", id(buffer), self._key(offset), offset.offsets, guard, lanes)
            return self._cached(key, lambda: self._picked(buffer, offset, guard))
        if self.has_permutes and is_table(buffer, offset, lanes.width):
            parts = [
                self.load_run(buffer, Linear(PART * n), PART, ALWAYS).ref
                for n in range(TABLE // PART)
            ]
            return look_up(self.b, parts, offset, self.mask(guard), buffer.dtype, lanes.width)
        pointers = self._pointers(buffer, offset)
        kind = "uint8" if dtype == "bool" else dtype
        t = type_of(kind, lanes.width)
        name = f"llvm.masked.gather.{suffix(kind, lanes.width)}.v{lanes.width}p0"
        self.b.declare(name, f"{t} @{name}(<{lanes.width} x ptr>, i32, <{lanes.width} x i1>, {t})")
        mask = self.mask(guard) or "splat (i1 true)"
        size = dtypes.itemsize(dtype)
        ref = self.b.inst(
            f"call {t} @{name}(<{lanes.width} x ptr> {pointers}, i32 {size}, "
            f"<{lanes.width} x i1> {mask}, {t} zeroinitializer)"
        )
        return self._from_memory(ref, dtype, lanes.width)

    def load_run(self, buffer: Buffer, offset: Linear, count: int, guard: Guard) -> Value:
        """`count` elements from an offset on as one vector; 0 where the guard does not hold."""

        def make() -> Value:
            pointer = self.address(buffer, offset)
            if guard.scalar is not None:
                pointer = self._or_zeros(guard.scalar, pointer)
            t = memory_type(buffer.dtype, count)
            align = dtypes.itemsize(buffer.dtype)
            return Value(
                self.b.inst(f"load {t}, ptr {pointer}, align {align}"), buffer.dtype, count
            )

        return self._cached(("r", id(buffer), self._key(offset), guard, count), make)

    def store_run(self, buffer: Buffer, offset: Linear, value: Value) -> None:
        """Store a vector to elements that follow one another from an offset on."""
        self.forget(buffer)
        pointer = self.address(buffer, offset)
        align = dtypes.itemsize(buffer.dtype)
        self.b.do(f"store {value.type} {value.ref}, ptr {pointer}, align {align}")

    def load_tile(
        self, buffer: Buffer, offset: Linear, shape: tuple[int, int], pitch: int, guard: Guard
    ) -> Value:
        """A tile register of (rows, bytes of a row), rows `pitch` bytes apart; 0 where the guard
        does not hold."""

        def make() -> Value:
            pointer, step = self.address(buffer, offset), str(pitch)
            if guard.scalar is not None:
                pointer = self._or_zeros(guard.scalar, pointer)
                step = self.b.op(f"select i1 {guard.scalar}, i64 {pitch}, i64 0")
            name, (rows, width) = "llvm.x86.tileloadd64.internal", shape
            self.b.declare(name, f"x86_amx @{name}(i16, i16, ptr, i64)")
            load = f"call x86_amx @{name}(i16 {rows}, i16 {width}, ptr {pointer}, i64 {step})"
            return Value(self.b.inst(load), buffer.dtype)

        return self._cached(("t", id(buffer), self._key(offset), guard, shape, pitch), make)

    def store_tile(
        self, buffer: Buffer, offset: Linear, tile: str, shape: tuple[int, int], pitch: int
    ) -> None:
        """Store a tile register in rows that lie `pitch` bytes apart."""
        self.forget(buffer)
        pointer, name = self.address(buffer, offset), "llvm.x86.tilestored64.internal"
        self.b.declare(name, f"void @{name}(i16, i16, ptr, i64, x86_amx)")
        of = f"i16 {shape[0]}, i16 {shape[1]}, ptr {pointer}, i64 {pitch}"
        self.b.do(f"call void @{name}({of}, x86_amx {tile})")

    def _key(self, offset: Linear) -> tuple[object, ...]:
        return (offset.const, tuple(sorted((k, v) for k, v in offset.terms.items() if v)))

    def _cached(self, key: tuple[object, ...], make: Callable[[], Value]) -> Value:
        cache = self.cache.setdefault(id(self.b.here), {})
        found = cache.get(key)
        if found is None:
            found = cache[key] = make()
        return found

    def inherit(self, outer: Region, inner: Region) -> None:
        """What has been loaded in `outer` is known in a branch inside it."""
        self.cache[id(inner)] = dict(self.cache.get(id(outer), {}))

    def forget(self, buffer: Buffer) -> None:
        """A store to `buffer`: loads seen before are not valid any more."""
        for cache in self.cache.values():
            for key in [k for k in cache if k[1] == id(buffer)]:
                del cache[key]

    def _scalar(self, buffer: Buffer, offset: Linear, guard: Guard) -> Value:
        pointer = self.address(buffer, offset)
        condition = guard.scalar
        if guard.mask is not None:
            # A lane that does not exist may well be in the mask, and is no reason to read.
            mask, width = self.mask(Guard(None, guard.mask)), self._width
            name = f"llvm.vector.reduce.or.v{width}i1"
            self.b.declare(name, f"i1 @{name}(<{width} x i1>)")
            some = self.b.op(f"call i1 @{name}(<{width} x i1> {mask})")
            condition = some if condition is None else self.b.op(f"and i1 {condition}, {some}")
        if condition is not None:
            pointer = self._or_zeros(condition, pointer)
        dtype = buffer.dtype
        ref = self.b.inst(
            f"load {memory_type(dtype)}, ptr {pointer}, align {dtypes.itemsize(dtype)}"
        )
        return self._from_memory(ref, dtype, 1)

    def _contiguous(self, buffer: Buffer, offset: Linear, guard: Guard) -> Value:
        lanes = self.index.lanes
        assert lanes is not None
        dtype = buffer.dtype
        pointer = self.address(buffer, offset)
        t = memory_type(dtype, lanes.width)
        size = dtypes.itemsize(dtype)
        if guard.scalar is not None:
            # All lanes or none: an address is cheaper to choose than a mask.
            pointer = self._or_zeros(guard.scalar, pointer)
        mask = self.mask(Guard(None, guard.mask))
        if mask is None or self._in_slack(buffer, offset):
            ref = self.b.inst(f"load {t}, ptr {pointer}, align {size}")
            if mask is not None and guard.mask is not None:
                ref = self.b.op(
                    f"select <{lanes.width} x i1> {mask}, {t} {ref}, {t} zeroinitializer"
                )
        else:
            ref = self._masked_load(dtype, pointer, mask)
        return self._from_memory(ref, dtype, lanes.width)

    def _strided(self, buffer: Buffer, offset: Linear, guard: Guard, real: Sequence[int]) -> Value:
        """Every second, third or fourth element, picked from vectors that cover the stretch from
        the first to the last of the `real` lanes, and nothing beyond; 0 in the others."""
        lanes = self.index.lanes
        assert lanes is not None
        width, step = lanes.width, offset.step
        whole = len(real) == width
        ref, known = "poison", [-1] * width
        if not whole:
            ref, known = "zeroinitializer", list(range(width))
        for start, there in covering(real, step, width).items():
            at, most = Linear(offset.const + start, offset.terms), step * real[-1] - start
            if most < width - 1:
                run = self._short_run(buffer, at, most + 1, guard)
            else:
                run = self.load_run(buffer, at, width, Guard(guard.scalar))
            picks = [width + there[n] if n in there else known[n] for n in range(width)]
            words = ", ".join("i32 poison" if x < 0 else f"i32 {x}" for x in picks)
            ref = self.b.op(
                f"shufflevector {run.type} {ref}, {run.type} {run.ref}, <{width} x i32> <{words}>"
            )
            known = [n if x >= 0 else -1 for n, x in enumerate(picks)]
        return Value(ref, buffer.dtype, width)

    def _short_run(self, buffer: Buffer, offset: Linear, count: int, guard: Guard) -> Value:
        """`count` elements from an offset on, and zeros, as a whole vector."""
        pointer, width = self.address(buffer, offset), self._width
        if guard.scalar is not None:
            pointer = self._or_zeros(guard.scalar, pointer)
        real = ", ".join(f"i1 {str(n < count).lower()}" for n in range(width))
        return Value(self._masked_load(buffer.dtype, pointer, f"<{real}>"), buffer.dtype, width)

    def _masked_load(self, dtype: str, pointer: str, mask: str) -> str:
        """A vector whose lanes outside the mask are 0 and not read."""
        width = self._width
        t, kind = memory_type(dtype, width), "uint8" if dtype == "bool" else dtype
        name = f"llvm.masked.load.{suffix(kind, width)}.p0"
        self.b.declare(name, f"{t} @{name}(ptr, i32, <{width} x i1>, {t})")
        size = dtypes.itemsize(dtype)
        return self.b.inst(
            f"call {t} @{name}(ptr {pointer}, i32 {size}, <{width} x i1> {mask}, "
            f"{t} zeroinitializer)"
        )

    def _window(self, offset: Linear, guard: Guard) -> range | None:
        """The elements that lanes are among, if two vectors hold them: neighbours of one another,
        such as the channels of a few groups."""
        lanes = self.index.lanes
        assert lanes is not None
        if guard.mask is not None or isinstance(lanes.active, str):
            return None
        real = offset.offsets[: lanes.active]
        found = range(min(real), max(real) + 1)
        return found if len(found) <= 2 * lanes.width else None

    def _picked(self, buffer: Buffer, offset: Linear, guard: Guard) -> Value:
        """Lanes out of the one or two vectors that have all of them."""
        lanes, window = self.index.lanes, self._window(offset, guard)
        assert lanes is not None
        assert window is not None  # the caller has asked
        dtype, width = buffer.dtype, lanes.width
        t, refs = memory_type(dtype, width), []
        for start in range(0, len(window), width):
            pointer = self.address(buffer, Linear(offset.const + window[start], offset.terms))
            if guard.scalar is not None:
                pointer = self._or_zeros(guard.scalar, pointer)
            if start + width <= len(window):
                size = dtypes.itemsize(dtype)
                refs.append(self.b.inst(f"load {t}, ptr {pointer}, align {size}"))
                continue
            real = ", ".join(f"i1 {str(start + n < len(window)).lower()}" for n in range(width))
            refs.append(self._masked_load(dtype, pointer, f"<{real}>"))
        picks = ", ".join(
            f"i32 {offset.offsets[n] - window.start if n < int(lanes.active) else 0}"
            for n in range(width)
        )
        low, high = (*refs, "poison")[:2]
        ref = self.b.op(f"shufflevector {t} {low}, {t} {high}, <{width} x i32> <{picks}>")
        return self._from_memory(ref, dtype, width)

    def _in_slack(self, buffer: Buffer, offset: Linear) -> bool:
        """Whether a vector at a constant offset ends in the slack of its buffer, if not inside."""
        lanes = self.index.lanes
        assert lanes is not None
        if id(buffer) not in self.slack or any(offset.terms.values()) or offset.const < 0:
            return False
        end = int(allocated(buffer.shape, buffer.align)) + SLACK // dtypes.itemsize(buffer.dtype)
        return offset.const + lanes.width <= end

    def _hangs_over(self, buffer: Buffer, offset: Linear) -> bool:
        """Whether the lanes of a store that do not exist lie behind the buffer, in its slack."""
        lanes = self.index.lanes
        assert lanes is not None
        if isinstance(lanes.active, str) or not self._in_slack(buffer, offset):
            return False
        return offset.const + lanes.active == int(allocated(buffer.shape, buffer.align))

    def _or_zeros(self, condition: str, pointer: str) -> str:
        """`pointer` where the condition holds, else zeros to read: no branch, no mask."""
        self.b.declarations["autosched_zeros"] = (
            f"@autosched_zeros = internal constant [{ZEROS} x i8] zeroinitializer, align 64"
        )
        return self.b.op(f"select i1 {condition}, ptr {pointer}, ptr @autosched_zeros")

    def _pointers(self, buffer: Buffer, offset: Linear) -> str:
        lanes = self.index.lanes
        assert lanes is not None
        base = self.address(buffer, Linear(offset.const, offset.terms))
        ramp: str | None = None
        if offset.step or offset.offsets:
            known = (f"i64 {offset.lane(n) - offset.const}" for n in range(lanes.width))
            ramp = f"<{', '.join(known)}>"
        if offset.vector is not None:
            ramp = (
                offset.vector
                if ramp is None
                else self.b.op(f"add <{lanes.width} x i64> {offset.vector}, {ramp}")
            )
        assert ramp is not None
        return self.b.op(
            f"getelementptr {memory_type(buffer.dtype)}, ptr {base}, <{lanes.width} x i64> {ramp}"
        )

    def mask(self, guard: Guard) -> str | None:
        """The lanes that are real, or None for all."""
        lanes = self.index.lanes
        assert lanes is not None
        width = lanes.width
        real = self.index.real_lanes()
        parts = [] if real is None else [real]
        if guard.mask is not None:
            parts.append(guard.mask)
        if guard.scalar is not None:
            parts.append(self.index.splat(guard.scalar, "i1", width))
        if not parts:
            return None
        mask = parts[0]
        for other in parts[1:]:
            mask = self.index.both(mask, other, width)
        return mask

    def _from_memory(self, ref: str, dtype: str, lanes: int) -> Value:
        if dtype != "bool":
            return Value(ref, dtype, lanes)
        zero = "0" if lanes == 1 else "zeroinitializer"
        return Value(self.b.op(f"icmp ne {memory_type(dtype, lanes)} {ref}, {zero}"), "bool", lanes)

    def store(
        self, buffer: Buffer, offset: Linear, value: Value, guard: Guard, streaming: bool
    ) -> None:
        """Store a value; the caller has branched on the guard's scalar part."""
        self.forget(buffer)
        dtype = buffer.dtype
        size = dtypes.itemsize(dtype)
        lanes = self.index.lanes
        ref = value.ref
        if dtype == "bool":
            ref = self.b.op(f"zext {value.type} {ref} to {memory_type(dtype, value.lanes)}")
        if not offset.varies:
            if value.lanes != 1:
                raise CodegenError(f"all lanes write one element of {buffer.name}")
            pointer = self.address(buffer, offset)
            self.b.do(f"store {memory_type(dtype)} {ref}, ptr {pointer}, align {size}")
            return
        assert lanes is not None
        width = lanes.width
        if value.lanes == 1:
            ref = self.index.splat(ref, memory_type(dtype), width)
        t = memory_type(dtype, width)
        kind = "uint8" if dtype == "bool" else dtype
        mask = self.mask(Guard(None, guard.mask))
        if offset.vector is None and offset.step == 1:
            pointer = self.address(buffer, offset)
            if mask is None or (guard.mask is None and self._hangs_over(buffer, offset)):
                streaming = streaming and mask is None
                extra = f"align {width * size}, !nontemporal !0" if streaming else f"align {size}"
                self.b.do(f"store {t} {ref}, ptr {pointer}, {extra}")
                return
            name = f"llvm.masked.store.{suffix(kind, width)}.p0"
            self.b.declare(name, f"void @{name}({t}, ptr, i32, <{width} x i1>)")
            self.b.do(
                f"call void @{name}({t} {ref}, ptr {pointer}, i32 {size}, <{width} x i1> {mask})"
            )
            return
        name = f"llvm.masked.scatter.{suffix(kind, width)}.v{width}p0"
        self.b.declare(name, f"void @{name}({t}, <{width} x ptr>, i32, <{width} x i1>)")
        pointers = self._pointers(buffer, offset)
        self.b.do(
            f"call void @{name}({t} {ref}, <{width} x ptr> {pointers}, i32 {size}, "
            f"<{width} x i1> {mask or 'splat (i1 true)'})"
        )
