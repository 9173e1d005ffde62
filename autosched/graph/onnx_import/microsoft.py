"""Operators of onnxruntime, which its quantiser and its optimiser write, in those of ONNX."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

DOMAIN = "com.microsoft"
BODIES = """
BiasGelu (x, b) => (y) { s = Add(x, b) y = Gelu(s) }
DequantizeLinear <axis> (x, s, z) => (y) {
    y = DequantizeLinear <axis: int = @axis> (x, s, z) }
DynamicQuantizeMatMul (a, b, bs, bz, bias) => (y) {
    q, s, z = DynamicQuantizeLinear(a)
    p = MatMulInteger(q, b, z, bz) k = Cast <to = 1> (p)
    t = Mul(s, bs) r = Mul(k, t) y = Sum(r, bias) }
FastGelu (x, b) => (y) { s = Sum(x, b) y = Gelu <approximate = "tanh"> (s) }
Gelu (x) => (y) { y = Gelu(x) }
MatMulIntegerToFloat (a, b, s, bs, z, bz, bias) => (y) {
    p = MatMulInteger(a, b, z, bz) k = Cast <to = 1> (p)
    t = Mul(s, bs) r = Mul(k, t) y = Sum(r, bias) }
QLinearAdd (a, as, az, b, bs, bz, s, z) => (y) {
    f = DequantizeLinear(a, as, az) g = DequantizeLinear(b, bs, bz)
    h = Add(f, g) y = QuantizeLinear(h, s, z) }
QLinearAveragePool <auto_pad, ceil_mode, count_include_pad, kernel_shape, pads, strides>
    (x, xs, xz, s, z) => (y) {
    f = DequantizeLinear(x, xs, xz)
    g = AveragePool <auto_pad: string = @auto_pad, ceil_mode: int = @ceil_mode,
                     count_include_pad: int = @count_include_pad,
                     kernel_shape: ints = @kernel_shape, pads: ints = @pads,
                     strides: ints = @strides> (f)
    y = QuantizeLinear(g, s, z) }
QLinearGlobalAveragePool (x, xs, xz, s, z) => (y) {
    f = DequantizeLinear(x, xs, xz) g = GlobalAveragePool(f) y = QuantizeLinear(g, s, z) }
QLinearLeakyRelu <alpha> (x, xs, xz, s, z) => (y) {
    f = DequantizeLinear(x, xs, xz) g = LeakyRelu <alpha: float = @alpha> (f)
    y = QuantizeLinear(g, s, z) }
QLinearMul (a, as, az, b, bs, bz, s, z) => (y) {
    f = DequantizeLinear(a, as, az) g = DequantizeLinear(b, bs, bz)
    h = Mul(f, g) y = QuantizeLinear(h, s, z) }
QLinearSigmoid (x, xs, xz, s, z) => (y) {
    f = DequantizeLinear(x, xs, xz) g = Sigmoid(f) y = QuantizeLinear(g, s, z) }
QLinearSoftmax <axis, opset> (x, xs, xz, s, z) => (y) {
    f = DequantizeLinear(x, xs, xz) g = Softmax <axis: int = @axis> (f)
    y = QuantizeLinear(g, s, z) }
QuantizeLinear <axis> (x, s, z) => (y) {
    y = QuantizeLinear <axis: int = @axis> (x, s, z) }
QuickGelu <alpha: float = 1.702> (x) => (y) {
    a = Constant <value_float: float = @alpha> () t = CastLike(a, x)
    s = Mul(x, t) g = Sigmoid(s) y = Mul(x, g) }
SkipLayerNormalization <epsilon> (x, skip, gamma, beta, bias) => (y, mean, inv, s) {
    s = Sum(x, skip, bias)
    y, mean, inv = LayerNormalization <axis: int = -1, epsilon: float = @epsilon>
                                      (s, gamma, beta) }
"""
"""Function bodies as ONNX writes them. What a call leaves out is left out of Sum as well."""


@lru_cache(maxsize=64)
def body(name: str) -> onnx.FunctionProto | None:
    """The function body of an operator; None where there is none here."""
    from onnx import parser

    for text in BODIES.strip().split("}\n"):
        if text.split(maxsplit=1)[0] == name:
            head = f'<domain: "{DOMAIN}", opset_import: ["" : 21]>\n'
            made: onnx.FunctionProto = parser.parse_function(f"{head}{text.rstrip(' }')} }}")
            return made
    return None
