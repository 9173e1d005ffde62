"""The tensor intrinsics on tensor cores of GPUs: products of 16 by 8 results that the 32 threads of
a warp make together (`mma.sync`), and of 64 rows that four warps do (`wgmma`).

The meaning is what one thread makes of 16 by 8: 2 by 2 of the results. Thread 4 * g + t has the
rows g and g + 8 and the columns 2 * t and 2 * t + 1 (PTX ISA, "Matrix Fragments for mma.m16n8k16").
So a nest that is bound to threads that way computes the product without tensor cores too, and the
code generator writes one instruction of the warp in its place (`codegen/gpu/mma.py`).

Of a warpgroup warp w has the 16 rows from 16 * w on, and one instruction makes all columns of an
unrolled loop; both operands lie in shared memory as rows of 16 bytes (`codegen/gpu/wgmma.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from autosched.tir.dtypes import itemsize
from autosched.tir.intrin import TensorIntrin
from autosched.tir.intrin_code import WarpCode

ROWS, COLUMNS = 16, 8
"""Results of a product."""
LANE_ROWS, LANE_COLUMNS = 8, 4
"""Threads of a warp along the rows, and along the columns: 2 by 2 results each."""
ROW_BYTES = 16
"""Of a row of an 8 by 8 matrix of 16-bit elements, which `ldmatrix` loads; two of them are the
terms of one product."""
FEATURE, GROUP_FEATURE = "sm_80", "sm_90a"
"""What a target has whose devices have the instructions: of one warp, of four."""
GROUP = 4
"""Warps of a warpgroup: the first is a multiple of 4."""
MOST_COLUMNS = 256
"""Of one product of a warpgroup: so many of its columns by 8 as stand in one unrolled loop."""


@dataclass(frozen=True)
class Kind:
    """dtypes of both operands and of the sums, and the instruction's names of these."""

    left: str
    right: str
    total: str
    ptx: str

    @property
    def terms(self) -> int:
        """Of one product."""
        return 2 * ROW_BYTES // itemsize(self.left)


KINDS = {
    "f16f16f32": Kind("float16", "float16", "float32", "f32.f16.f16.f32"),
    "bf16bf16f32": Kind("bfloat16", "bfloat16", "float32", "f32.bf16.bf16.f32"),
    "s8s8s32": Kind("int8", "int8", "int32", "s32.s8.s8.s32"),
    "u8s8s32": Kind("uint8", "int8", "int32", "s32.u8.s8.s32"),
    "s8u8s32": Kind("int8", "uint8", "int32", "s32.s8.u8.s32"),
    "u8u8s32": Kind("uint8", "uint8", "int32", "s32.u8.u8.s32"),
}
"""Sums of bytes wrap in int32. Those of halves are float32, in an order that the device chooses."""


def group_columns(kind: str, count: int) -> bool:
    """Whether a product of a warpgroup may have so many columns: of bytes, above 32, only
    multiples of 16 (PTX ISA, "Matrix Shape" of `wgmma`)."""
    step = 2 * COLUMNS if KINDS[kind].total == "int32" and count > 4 * COLUMNS else COLUMNS
    return count % step == 0 and COLUMNS <= count <= MOST_COLUMNS


def name_of(kind: str, warps: int = 1) -> str:
    """The intrinsic of a kind."""
    if warps == GROUP:
        return f"wgmma_m{ROWS * GROUP}k{KINDS[kind].terms}_{kind}"
    return f"mma_m{ROWS}n{COLUMNS}k{KINDS[kind].terms}_{kind}"


def _register(name: str, kind: Kind, code: WarpCode, feature: str) -> None:
    TensorIntrin.register(
        name,
        meaning=f"""
@T.prim_func
def mma(A: T.Buffer((2, {kind.terms}), "{kind.left}"),
        B: T.Buffer((2, {kind.terms}), "{kind.right}"),
        C: T.Buffer((2, 2), "{kind.total}")):
    for i, j, k in T.grid(2, 2, {kind.terms}):
        with T.block("mma"):
            vi = T.axis.spatial(2, i)
            vj = T.axis.spatial(2, j)
            vk = T.axis.reduce({kind.terms}, k)
            C[vi, vj] = C[vi, vj] + (
                T.cast(A[vi, vk], "{kind.total}") * T.cast(B[vj, vk], "{kind.total}"))
""",
        implementation=code,
        features=(feature,),
    )


for _kind, _types in KINDS.items():
    _shape = f"m{ROWS}n{COLUMNS}k{_types.terms}"
    _one = WarpCode(f"mma.sync.aligned.{_shape}.row.col.{_types.ptx}", _types.terms)
    _register(name_of(_kind), _types, _one, FEATURE)
    _shape = f"m{ROWS * GROUP}n{{columns}}k{_types.terms}"
    _sums = _types.ptx.rsplit(".", 1)[0]  # of the results alone
    _four = WarpCode(f"wgmma.mma_async.sync.aligned.{_shape}.{_sums}", _types.terms, GROUP)
    _register(name_of(_kind, GROUP), _types, _four, GROUP_FEATURE)
