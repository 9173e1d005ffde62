"""The tensor intrinsics on tile registers (AMX): up to 16 rows by 16 columns by 64 bytes of terms.

There is one for each number of rows, since a product takes as many cycles as it has rows, and of
terms, so that operands of fewer are read as they lie. The largest are registered; the others are
made when they are asked for by name.
"""

from __future__ import annotations

import re
from functools import cache

from autosched.tir.intrin import TensorIntrin, intrin_of

ROWS, COLUMNS, GROUPS = 16, 16, 16
"""The most rows of a tile, results in a row, and groups of terms, of 4 bytes each."""
KINDS = {
    "u8s8s32": ("uint8", "int8", "int32", 4, "tdpbusd", "amx-int8"),
    "s8s8s32": ("int8", "int8", "int32", 4, "tdpbssd", "amx-int8"),
    "s8u8s32": ("int8", "uint8", "int32", 4, "tdpbsud", "amx-int8"),
    "u8u8s32": ("uint8", "uint8", "int32", 4, "tdpbuud", "amx-int8"),
    "bf16bf16f32": ("bfloat16", "bfloat16", "float32", 2, "tdpbf16ps", "amx-bf16"),
}
"""dtypes of both operands and of the sums, terms in 4 bytes, instruction, feature. Sums of bytes
wrap in int32. Of bfloat16 they round after each of two products, and subnormal operands and results
count as 0."""
_NAME = re.compile(r"dot_(\d{1,2})x16x(\d{1,2})_(\w+)_amx")


def name_of(kind: str, rows: int = ROWS, groups: int = GROUPS) -> str:
    """The intrinsic of a kind that makes so many rows of sums of so many groups of terms."""
    return f"dot_{rows}x{COLUMNS}x{groups * KINDS[kind][3]}_{kind}_amx"


def kind_of(intrin: TensorIntrin) -> str | None:
    """The kind of an intrinsic of the most rows and terms; None of all others."""
    return next((kind for kind in KINDS if intrin.name == name_of(kind)), None)


@cache
def made(name: str) -> TensorIntrin | None:
    """The intrinsic of that name; None if it is none of these."""
    found = _NAME.fullmatch(name)
    if found is None or found[3] not in KINDS:
        return None
    rows, kind = int(found[1]), found[3]
    groups = int(found[2]) // KINDS[kind][3]
    if name != name_of(kind, rows, groups) or not 1 < rows <= ROWS or not 1 < groups <= GROUPS:
        return None
    return intrin_of(name, *_parts(kind, rows, groups))


def _parts(kind: str, rows: int, groups: int) -> tuple[str, str, tuple[str, str]]:
    """Meaning, implementation and features."""
    left, right, total, near, instruction, feature = KINDS[kind]
    terms = groups * near
    types = ", ".join(["x86_amx"] * 3)
    meaning = f"""
@T.prim_func
def dot(A: T.Buffer(({rows}, {terms}), "{left}"), B: T.Buffer(({groups}, 16, {near}), "{right}"),
        C: T.Buffer(({rows}, 16), "{total}")):
    for i, j, k, r in T.grid({rows}, 16, {groups}, {near}):
        with T.block("dot"):
            vi = T.axis.spatial({rows}, i)
            vj = T.axis.spatial(16, j)
            vk = T.axis.reduce({groups}, k)
            vr = T.axis.reduce({near}, r)
            C[vi, vj] = C[vi, vj] + (
                T.cast(A[vi, vk * {near} + vr], "{total}") * T.cast(B[vk, vj, vr], "{total}"))
"""
    implementation = f"""
declare x86_amx @llvm.x86.{instruction}.internal(i16, i16, i16, {types})
define x86_amx @dot(x86_amx %A, x86_amx %B, x86_amx %C) {{
  %c = call x86_amx @llvm.x86.{instruction}.internal(
    i16 {rows}, i16 64, i16 {4 * groups}, x86_amx %C, x86_amx %A, x86_amx %B)
  ret x86_amx %c
}}
"""
    return meaning, implementation, ("amx-tile", feature)


for _kind in KINDS:
    TensorIntrin.register(name_of(_kind), *_parts(_kind, ROWS, GROUPS))
