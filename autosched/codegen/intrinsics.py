"""The tensor intrinsics that come along; see `autosched.tir.intrin`."""

from __future__ import annotations

from autosched.codegen import warp_intrinsics  # noqa: F401  (registers its own)
from autosched.codegen.tile_intrinsics import made
from autosched.tir.intrin import TensorIntrin

__all__ = ["BF16", "PAIRS_16", "PAIRS_S8", "PAIRS_S16", "PAIRS_U8", "PAIRS_U16", "VNNI"]
__all__ += ["VNNI_256", "WORDS_16", "WORDS_S16", "WORDS_U16", "made"]

VNNI = "dot_16x4_u8s8s32_vnni"
"""16 sums of 4 products of unsigned by signed bytes, in int32 that wraps (vpdpbusd)."""
VNNI_256 = "dot_8x4_u8s8s32_avxvnni"
"""The same of 8 sums, in AVX registers."""
PAIRS_U8 = "dot_8x4_u8s8s32_avx2"
"""The same by products of 16 bits, two of which are added (vpmaddwd): no sum saturates, as those
of vpmaddubsw do."""
PAIRS_S8 = "dot_8x4_s8s8s32_avx2"
"""The same of signed by signed bytes."""
PAIRS_U16, PAIRS_S16 = "dot_8x2_u8s16s32_avx2", "dot_8x2_s8s16s32_avx2"
"""8 sums of 2 products of a byte by 16 bits: weights of 8 bits whose zero point was taken off."""
PAIRS_16 = "dot_8x2_s16s16s32_avx2"
"""8 sums of 2 products of 16 bits, in int32 that wraps (vpmaddwd)."""
WORDS_16 = "dot_16x2_s16s16s32_vnni"
WORDS_U16, WORDS_S16 = "dot_16x2_u8s16s32_vnni", "dot_16x2_s8s16s32_vnni"
"""The same of 16 sums (vpdpwssd)."""
BF16 = "dot_16x2_bf16bf16f32"
"""16 sums of 2 products of bfloat16 in float32 (vdpbf16ps): rounded once for each product added;
subnormal operands and results count as 0."""

TensorIntrin.register(
    VNNI,
    meaning="""
@T.prim_func
def dot(A: T.Buffer((4,), "uint8"), B: T.Buffer((16, 4), "int8"), C: T.Buffer((16,), "int32")):
    for i, k in T.grid(16, 4):
        with T.block("dot"):
            vi = T.axis.spatial(16, i)
            vk = T.axis.reduce(4, k)
            C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")
""",
    implementation="""
declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <16 x i32>, <16 x i32>)
define <16 x i32> @dot(<4 x i8> %A, <64 x i8> %B, <16 x i32> %C) {
  %four = bitcast <4 x i8> %A to i32
  %one = insertelement <16 x i32> poison, i32 %four, i64 0
  %a = shufflevector <16 x i32> %one, <16 x i32> poison, <16 x i32> zeroinitializer
  %b = bitcast <64 x i8> %B to <16 x i32>
  %c = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32> %C, <16 x i32> %a, <16 x i32> %b)
  ret <16 x i32> %c
}
""",
    features=("avx512vnni",),
)

TensorIntrin.register(
    BF16,
    meaning="""
@T.prim_func
def dot(A: T.Buffer((2,), "bfloat16"), B: T.Buffer((16, 2), "bfloat16"),
        C: T.Buffer((16,), "float32")):
    for i, k in T.grid(16, 2):
        with T.block("dot"):
            vi = T.axis.spatial(16, i)
            vk = T.axis.reduce(2, k)
            C[vi] = C[vi] + T.cast(A[vk], "float32") * T.cast(B[vi, vk], "float32")
""",
    implementation="""
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define <16 x float> @dot(<2 x i16> %A, <32 x i16> %B, <16 x float> %C) {
  %two = bitcast <2 x i16> %A to i32
  %one = insertelement <16 x i32> poison, i32 %two, i64 0
  %all = shufflevector <16 x i32> %one, <16 x i32> poison, <16 x i32> zeroinitializer
  %a = bitcast <16 x i32> %all to <32 x bfloat>
  %b = bitcast <32 x i16> %B to <32 x bfloat>
  %c = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(
    <16 x float> %C, <32 x bfloat> %a, <32 x bfloat> %b)
  ret <16 x float> %c
}
""",
    features=("avx512bf16",),
)


def _bytes(lanes: int, left: str) -> str:
    """The meaning of `lanes` sums of four products of a byte by a signed one."""
    return f"""
@T.prim_func
def dot(A: T.Buffer((4,), "{left}"), B: T.Buffer(({lanes}, 4), "int8"),
        C: T.Buffer(({lanes},), "int32")):
    for i, k in T.grid({lanes}, 4):
        with T.block("dot"):
            vi = T.axis.spatial({lanes}, i)
            vk = T.axis.reduce(4, k)
            C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")
"""


TensorIntrin.register(
    VNNI_256,
    meaning=_bytes(8, "uint8"),
    implementation="""
declare <8 x i32> @llvm.x86.avx512.vpdpbusd.256(<8 x i32>, <8 x i32>, <8 x i32>)
define <8 x i32> @dot(<4 x i8> %A, <32 x i8> %B, <8 x i32> %C) {
  %four = bitcast <4 x i8> %A to i32
  %one = insertelement <8 x i32> poison, i32 %four, i64 0
  %a = shufflevector <8 x i32> %one, <8 x i32> poison, <8 x i32> zeroinitializer
  %b = bitcast <32 x i8> %B to <8 x i32>
  %c = call <8 x i32> @llvm.x86.avx512.vpdpbusd.256(<8 x i32> %C, <8 x i32> %a, <8 x i32> %b)
  ret <8 x i32> %c
}
""",
    features=("avxvnni",),
)

_EIGHTS = ", ".join(["i16 8"] * 16)
_LOW = ", ".join(["i16 255"] * 16)
_HALVES = {
    "uint8": f"""
  %ae = and <16 x i16> %aw, <{_LOW}>
  %ao = lshr <16 x i16> %aw, <{_EIGHTS}>""",
    "int8": f"""
  %al = shl <16 x i16> %aw, <{_EIGHTS}>
  %ae = ashr <16 x i16> %al, <{_EIGHTS}>
  %ao = ashr <16 x i16> %aw, <{_EIGHTS}>""",
}
"""The bytes of even and of odd numbers as words: those of A lie in all lanes, so that it is read by
one broadcast of four."""

for _name, _left in ((PAIRS_U8, "uint8"), (PAIRS_S8, "int8")):
    TensorIntrin.register(
        _name,
        meaning=_bytes(8, _left),
        implementation=f"""
declare <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16>, <16 x i16>)
define <8 x i32> @dot(<4 x i8> %A, <32 x i8> %B, <8 x i32> %C) {{
  %four = bitcast <4 x i8> %A to i32
  %one = insertelement <8 x i32> poison, i32 %four, i64 0
  %all = shufflevector <8 x i32> %one, <8 x i32> poison, <8 x i32> zeroinitializer
  %aw = bitcast <8 x i32> %all to <16 x i16>{_HALVES[_left]}
  %bw = bitcast <32 x i8> %B to <16 x i16>
  %bl = shl <16 x i16> %bw, <{_EIGHTS}>
  %be = ashr <16 x i16> %bl, <{_EIGHTS}>
  %bo = ashr <16 x i16> %bw, <{_EIGHTS}>
  %pe = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %ae, <16 x i16> %be)
  %po = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %ao, <16 x i16> %bo)
  %p = add <8 x i32> %pe, %po
  %c = add <8 x i32> %C, %p
  ret <8 x i32> %c
}}
""",
        features=("avx2",),
    )

_WORDS = {
    "int16": ("<2 x i16>", "add <2 x i16> %A, zeroinitializer"),
    "uint8": ("<2 x i8>", "zext <2 x i8> %A to <2 x i16>"),
    "int8": ("<2 x i8>", "sext <2 x i8> %A to <2 x i16>"),
}
"""The type of two terms on the left, and what makes words of them."""


def _words(name: str, left: str, lanes: int, declared: str, sums: str, feature: str) -> None:
    """`lanes` sums of two products of 16 bits: `sums` sets %c of %a, %B and %C."""
    type_, widened = _WORDS[left]
    TensorIntrin.register(
        name,
        meaning=f"""
@T.prim_func
def dot(A: T.Buffer((2,), "{left}"), B: T.Buffer(({lanes}, 2), "int16"),
        C: T.Buffer(({lanes},), "int32")):
    for i, k in T.grid({lanes}, 2):
        with T.block("dot"):
            vi = T.axis.spatial({lanes}, i)
            vk = T.axis.reduce(2, k)
            C[vi] = C[vi] + T.cast(A[vk], "int32") * T.cast(B[vi, vk], "int32")
""",
        implementation=f"""
declare {declared}
define <{lanes} x i32> @dot({type_} %A, <{2 * lanes} x i16> %B, <{lanes} x i32> %C) {{
  %words = {widened}
  %two = bitcast <2 x i16> %words to i32
  %one = insertelement <{lanes} x i32> poison, i32 %two, i64 0
  %all = shufflevector <{lanes} x i32> %one, <{lanes} x i32> poison, <{lanes} x i32> zeroinitializer
{sums}
  ret <{lanes} x i32> %c
}}
""",
        features=(feature,),
    )


for _left, _name, _wide in (
    ("int16", PAIRS_16, WORDS_16),
    ("uint8", PAIRS_U16, WORDS_U16),
    ("int8", PAIRS_S16, WORDS_S16),
):
    _words(
        _name,
        _left,
        8,
        "<8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16>, <16 x i16>)",
        """  %a = bitcast <8 x i32> %all to <16 x i16>
  %p = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %a, <16 x i16> %B)
  %c = add <8 x i32> %C, %p""",
        "avx2",
    )
    _words(
        _wide,
        _left,
        16,
        "<16 x i32> @llvm.x86.avx512.vpdpwssd.512(<16 x i32>, <16 x i32>, <16 x i32>)",
        """  %b = bitcast <32 x i16> %B to <16 x i32>
  %c = call <16 x i32> @llvm.x86.avx512.vpdpwssd.512(
    <16 x i32> %C, <16 x i32> %all, <16 x i32> %b)""",
        "avx512vnni",
    )
