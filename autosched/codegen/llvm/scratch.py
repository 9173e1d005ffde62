"""Where scratch memory is handed out."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.tir.affine import Int
from autosched.tir.size import Size


@dataclass
class Scratch:
    """A growing area of scratch memory: constant sizes with stack discipline, then symbolic ones,
    each of which has its place for the whole call."""

    top: int = 0
    high: int = 0
    symbolic: Int = 0

    def take(self, size: int) -> int:
        """Offset of `size` bytes, 64-byte aligned."""
        at = self.top
        self.top += (size + 63) // 64 * 64
        self.high = max(self.high, self.top)
        return at

    def take_symbolic(self, size: Size) -> Int:
        """Offset of `size` bytes, 64-byte aligned, from the end of the constant part."""
        at = self.symbolic
        self.symbolic = at + (size + 63) // 64 * 64
        return at

    @property
    def total(self) -> Int:
        """Bytes in all."""
        return self.high + self.symbolic
