"""The tensor intrinsics that come along; see `autosched.tir.intrin`."""

from __future__ import annotations

from autosched.tir.intrin import TensorIntrin

VNNI = "dot_16x4_u8s8s32_vnni"
"""16 sums of 4 products of unsigned by signed bytes, in int32 that wraps (vpdpbusd)."""
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
