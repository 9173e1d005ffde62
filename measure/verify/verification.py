"""Is the result right? Guarded buffers, poisoned outputs, and a comparison with the reference.

What an element may differ by: `measure.verify.tolerance`. Infinities and NaN must stand where they
stand in the reference.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from math import prod, sqrt
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from autosched.codegen.artifact import Param
from autosched.tir import dtypes
from measure.process.guard_pages import fenced
from measure.status import Status
from measure.verify.tolerance import Tolerance

Array = npt.NDArray[Any]
GUARD_BYTES = 16 << 10
PIECE = 1 << 16
"""Elements that are compared at a time."""
_POISON = 0xFF  # NaN in every float type


class Checked(Protocol):
    """Memory that shows what was written next to it."""

    def poison(self) -> None:
        """Fill it with what is NaN in every float type."""
        ...

    def broken(self) -> str:
        """What was written next to it; empty if nothing was."""
        ...


class Guarded:
    """Memory of `nbytes` bytes, `shift` bytes past a multiple of 64, between two guard zones, and
    those between guard pages. Raises MemoryError."""

    def __init__(self, name: str, nbytes: int, shift: int = 0) -> None:
        self.name = name
        self.nbytes = nbytes
        raw = fenced(shift + nbytes + 2 * GUARD_BYTES)[shift:]
        end = GUARD_BYTES + nbytes
        self.bytes = raw[GUARD_BYTES:end]
        self._zones = raw[:GUARD_BYTES], raw[end : end + GUARD_BYTES]
        self._canary = canary(name, GUARD_BYTES)
        self.arm()

    def poison(self) -> None:
        """Fill memory and guards, so that nothing of an earlier run is left to be found."""
        self.bytes[...] = _POISON
        self.arm()

    @property
    def address(self) -> int:
        """Address of the first byte."""
        return int(self._zones[0].ctypes.data) + GUARD_BYTES

    def array(self, shape: tuple[int, ...], dtype: str) -> Array:
        """The memory as an array."""
        return self.bytes.view(dtypes.array_dtype(dtype)).reshape(shape)

    def arm(self) -> None:
        """Fill the guard zones."""
        for zone, wanted in zip(self._zones, self._canary, strict=True):
            zone[...] = wanted

    def broken(self) -> str:
        """What was written next to the memory; empty if nothing was."""
        return damage(self.name, self.nbytes, self._zones, self._canary)


def canary(name: str, nbytes: int) -> Array:
    """What stands in the two guard zones of a buffer, (2, nbytes): different next to every buffer,
    since copying past the end of two of them must show."""
    rng = np.random.default_rng(list(name.encode()))
    return rng.integers(0, 256, (2, nbytes), np.uint8)


def damage(name: str, nbytes: int, zones: Array | Sequence[Array], wanted: Array) -> str:
    """What was written next to memory, by the two guard zones; empty if nothing was."""
    if all(map(same_bytes, zones, wanted)):
        return ""
    words = []
    first, last = (np.flatnonzero(z != w) for z, w in zip(zones, wanted, strict=True))
    if first.size:
        nearest = zones[0].size - first[-1]
        words.append(f"{first.size} bytes before its start, the nearest {nearest} away")
    if last.size:
        words.append(f"{last.size} bytes after its end, the first {last[0]} away")
    return f"{name} ({nbytes} bytes): {' and '.join(words)}, were overwritten"


class Expected:
    """An output's reference values and what may be taken for them."""

    def __init__(self, param: Param, reference: Array, tolerance: Tolerance) -> None:
        self.param = param
        self._halves = param.dtype == "bfloat16"  # arrays hold bit patterns; compared as float32
        self.reference = reference = self.numbers(reference)
        self.is_float = dtypes.is_float(param.dtype)
        self.rtol = tolerance.relative(param.dtype, param.name)
        """0 where elements must be equal."""
        self._finite = True
        self.rms = 0.0
        """Root mean square of the reference values, infinite and NaN ones as 0, if `rtol` is above
        0."""
        if self.rtol:
            self.rms = root_mean_square(reference)
        if self.is_float:
            self._finite = bool(np.isfinite(reference).all())
            self._poison = np.asarray(np.nan)
            # NaN where a number is expected and the reverse: an element never written shows.
            if not self._finite and np.isnan(reference).any():
                self._poison = np.where(np.isnan(reference), 0, np.nan).astype(reference.dtype)
        elif param.dtype == "bool":
            self._poison = np.logical_not(reference)
        else:  # the end of the type that is farther off, further than a tolerance goes
            info = np.iinfo(reference.dtype)
            upper = reference >= (int(info.min) + int(info.max) + 1) // 2
            self._poison = np.where(upper, info.min, info.max).astype(reference.dtype)

    @cached_property
    def _limits(self) -> tuple[Array, Array]:
        """The least and the greatest value that each element may have. Made when they are first
        asked for: where a device compares, nobody does, and for large outputs that is seconds."""
        reference = self.reference
        finite = np.isfinite(reference)
        usual = reference if self._finite else np.where(finite, reference, 0)
        narrow = self.is_float and usual.dtype != np.float64
        wide = usual.astype(np.float32 if narrow else np.float64)
        allowed = np.abs(wide) * self.rtol + self.rtol * self.rms + (0 if self.is_float else 1)
        low, high = wide - allowed, wide + allowed
        if not self._finite:
            low, high = np.where(finite, low, reference), np.where(finite, high, reference)
        return low, high

    @property
    def poison_is_nan(self) -> bool:
        """Whether any NaN in every element poisons the output."""
        return self.is_float and self._poison.ndim == 0

    def poison(self, out: Array) -> None:
        """Fill an output with values that are wrong in every element."""
        out[...] = dtypes.from_float32(self._poison) if self._halves else self._poison

    def numbers(self, values: Array) -> Array:
        """Values of the output's type as they are compared."""
        return dtypes.to_float32(values) if self._halves else values

    def good(self, out: Array) -> Array:
        """Which of these `numbers` may be taken for the reference's."""
        if not self.rtol:
            # Bools as bytes: one that is neither 0 nor 1 is wrong.
            pair = [x.view(np.uint8) if x.dtype == np.bool_ else x for x in (out, self.reference)]
            return np.equal(*pair)
        low, high = self._limits
        good = (out >= low) & (out <= high)
        if not self._finite:
            good |= np.isnan(out) & np.isnan(self.reference)
        return good

    def mismatch(self, out: Array) -> str:
        """How `out` differs, with the first element that does; empty if it does not."""
        out = self.numbers(out)
        if self.rtol and self._finite and self._within(out):
            return ""
        good = self.good(out)
        return "" if good.all() else self._describe(out, np.logical_not(good))

    def _within(self, out: Array) -> bool:
        """Whether every element may be taken for its reference; pieces that stay in caches."""
        if not out.flags.c_contiguous:
            return False
        flat = [x.reshape(-1) for x in (out, *self._limits)]
        for start in range(0, out.size, PIECE):
            found, low, high = (x[start : start + PIECE] for x in flat)
            if not ((found >= low) & (found <= high)).all():
                return False
        return True

    def _describe(self, out: Array, bad: Array) -> str:
        first = tuple(int(n) for n in np.unravel_index(int(np.argmax(bad)), bad.shape))
        place = f"{self.param.name}[{', '.join(map(str, first))}]"
        # As bytes, since a bool that is 7 would print as True.
        shown = out.view(np.uint8) if out.dtype == np.bool_ else out
        text = f"{place} is {shown[first]}, expected {self.reference[first]}"
        if self.rtol:
            untouched = np.isnan(out) & ~np.isnan(self.reference)
            step = "" if self.is_float else "1 and "
            text += f" (within {step}{self.rtol:.2g} of it and of the root mean square)"
            if untouched.any():
                text += (
                    f"; {int(untouched.sum())} are NaN: never written, or made from what was not"
                )
        return f"{text}; {int(bad.sum())} of {bad.size} elements are wrong"


def root_mean_square(values: Array) -> float:
    """Infinite values and NaN as 0; by pieces, which stay in caches."""
    flat = values.reshape(-1)
    total = 0.0
    for start in range(0, flat.size, PIECE):
        piece = flat[start : start + PIECE].astype(np.float64)
        piece[~np.isfinite(piece)] = 0
        total += float(np.square(piece, out=piece).sum())
    return sqrt(total / flat.size) if flat.size else 0.0


def param_bytes(param: Param) -> int:
    """Bytes of an argument."""
    return int(prod(param.shape)) * dtypes.itemsize(param.dtype)


class Buffers:
    """All arguments of a kernel in guarded memory, inputs filled in, outputs poisoned on demand."""

    def __init__(
        self,
        params: Sequence[Param],
        values: Sequence[Array],
        tolerance: Tolerance,
        shift: int = 0,
        guarded: Callable[[str, int, int], Any] = Guarded,
    ) -> None:
        self.params = tuple(params)
        self.values = tuple(values)
        self._shift = shift
        self.memory = [guarded(p.name, param_bytes(p), shift) for p in params]
        self.expected = {
            n: Expected(p, values[n], tolerance) for n, p in enumerate(params) if p.written
        }
        self._dirty = True
        self._places: dict[int, Sequence[Any]] = {0: self.memory}

    def at(self, place: int) -> Sequence[Any]:
        """Memory for each argument in another place, `memory` itself in place 0 and where there is
        no room for more. What is there at first is what `values` holds."""
        if place not in self._places:
            try:
                elsewhere = [Guarded(m.name, m.nbytes, self._shift) for m in self.memory]
            except MemoryError:
                return self.memory
            for guarded, param, value in zip(elsewhere, self.params, self.values, strict=True):
                guarded.array(param.shape, param.dtype)[...] = value
            self._places[place] = elsewhere
        return self._places[place]

    def reset(self) -> None:
        """Inputs as they were, outputs poisoned, guards armed."""
        for n in range(len(self.params)):
            if n in self.expected:
                self.expected[n].poison(self.array(n))
            elif self._dirty:
                self.array(n)[...] = self.values[n]
            if self._dirty:
                self.memory[n].arm()
        self._dirty = False

    def fill(self) -> None:
        """`reset`, where this memory has not held the inputs yet."""
        if self._dirty:
            self.reset()

    def array(self, n: int) -> Array:
        """Argument number `n` as it is now."""
        found: Array = self.memory[n].array(self.params[n].shape, self.params[n].dtype)
        return found

    def mismatch(self, n: int) -> str:
        """How output number `n` differs from the reference; empty if it does not."""
        return self.expected[n].mismatch(self.array(n))

    def unchanged(self, n: int) -> bool:
        """Whether input number `n` is what it was."""
        return same_bytes(self.array(n), self.values[n])

    def check(self, workspace: Checked) -> tuple[Status, str]:
        """Whether a run left everything as it should be."""
        broken = [text for m in (*self.memory, workspace) if (text := m.broken())]
        if broken:
            self._dirty = True
            return Status.OUT_OF_BOUNDS, "\n".join(broken)
        wrong = [text for n in self.expected if (text := self.mismatch(n))]
        for n, param in enumerate(self.params):
            if not param.written and not self.unchanged(n):
                wrong.append(f"input {param.name} was changed")
        self._dirty |= bool(wrong)
        return (Status.WRONG_RESULT, "\n".join(wrong)) if wrong else (Status.OK, "")


def same_bytes(a: Array, b: Array) -> bool:
    """Equality in every bit, NaN included; both are contiguous."""
    return bool(_memcmp()(a.ctypes.data, b.ctypes.data, a.nbytes) == 0)


@cache
def _memcmp() -> Any:
    function = ctypes.CDLL(None).memcmp
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return function
