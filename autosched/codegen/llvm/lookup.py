"""Bytes looked up in a table of 256 that four vector registers hold (AVX-512 VBMI)."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.index import Linear
from autosched.codegen.llvm.types import Value
from autosched.tir.affine import same_int
from autosched.tir.nodes import Buffer

TABLE, PART = 256, 64
"""Bytes of a table, and of the part of it that a register holds."""
MIN_LANES = 16
"""Lanes from which on a look-up is cheaper than a gather."""


def is_table(buffer: Buffer, offset: Linear, width: int) -> bool:
    """Whether lanes are bytes of a table of 256, whatever their numbers, that four registers
    hold."""
    whole = len(buffer.shape) == 1 and same_int(buffer.shape[0], TABLE)
    alone = not (offset.const or offset.step or offset.offsets or any(offset.terms.values()))
    fits = MIN_LANES <= width <= PART and buffer.dtype in ("int8", "uint8")
    return whole and alone and fits and offset.vector is not None


def look_up(
    b: Builder, parts: Sequence[str], offset: Linear, mask: str | None, dtype: str, width: int
) -> Value:
    """Bytes of a table in four registers, picked by their numbers out of its lower and its upper
    half (vpermi2b); 0 where the mask does not hold."""
    at = b.op(f"trunc <{width} x i64> {offset.vector} to <{width} x i8>")
    if width < PART:
        wide = ", ".join(f"i32 {n}" if n < width else "i32 poison" for n in range(PART))
        at = b.op(f"shufflevector <{width} x i8> {at}, <{width} x i8> poison, <64 x i32> <{wide}>")
    name, t = "llvm.x86.avx512.vpermi2var.qi.512", "<64 x i8>"
    b.declare(name, f"{t} @{name}({t}, {t}, {t})")
    low, high = (
        b.op(f"call {t} @{name}({t} {parts[n]}, {t} {at}, {t} {parts[n + 1]})") for n in (0, 2)
    )
    upper = b.op(f"icmp slt {t} {at}, zeroinitializer")
    ref = b.op(f"select <64 x i1> {upper}, {t} {high}, {t} {low}")
    if width < PART:
        kept = ", ".join(f"i32 {n}" for n in range(width))
        ref = b.op(f"shufflevector {t} {ref}, {t} poison, <{width} x i32> <{kept}>")
    if mask is not None:
        kind = f"<{width} x i8>"
        ref = b.op(f"select <{width} x i1> {mask}, {kind} {ref}, {kind} zeroinitializer")
    return Value(ref, dtype, width)
