"""Operators of onnxruntime, which its quantiser and its optimiser write, in those of ONNX."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from autosched.graph.onnx_import import attention
from autosched.graph.onnx_import.attention import Call
from autosched.graph.onnx_import.packed import gather_quantized

if TYPE_CHECKING:
    import onnx

DOMAIN = "com.microsoft"
BODIES = """
BiasGelu (x, b) => (y) { s = Add(x, b) y = Gelu(s) }
BiasSplitGelu (x, b) => (y) {
    s = Add(x, b) h, g = Split <axis = -1, num_outputs = 2> (s) t = Gelu(g) y = Mul(h, t) }
DequantizeLinear <axis> (x, s, z) => (y) {
    y = DequantizeLinear <axis: int = @axis> (x, s, z) }
DynamicQuantizeMatMul (a, b, bs, bz, bias) => (y) {
    q, s, z = DynamicQuantizeLinear(a)
    p = MatMulInteger(q, b, z, bz) k = Cast <to = 1> (p)
    t = Mul(s, bs) r = Mul(k, t) y = Sum(r, bias) }
ExpandDims (x, axis) => (y) {
    flat = Constant <value_ints = [-1]> () a = Reshape(axis, flat) n = Cast <to = 7> (a)
    y = Unsqueeze(x, n) }
FastGelu (x, b) => (y) { s = Sum(x, b) y = Gelu <approximate = "tanh"> (s) }
GatherND (x, indices) => (y) { y = GatherND(x, indices) }
Gelu (x) => (y) { y = Gelu(x) }
MatMulIntegerToFloat (a, b, s, bs, z, bz, bias) => (y) {
    p = MatMulInteger(a, b, z, bz) k = Cast <to = 1> (p)
    t = Mul(s, bs) r = Mul(k, t) y = Sum(r, bias) }
Pad <mode: string = "constant"> (x, pads, value) => (y) {
    flat = Constant <value_ints = [-1]> () p = Reshape(pads, flat)
    y = Pad <mode: string = @mode> (x, p, value) }
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
QLinearMatMul (a, as, az, b, bs, bz, s, z) => (y) {
    f = DequantizeLinear <axis = -2> (a, as, az) g = DequantizeLinear <axis = -1> (b, bs, bz)
    h = MatMul(f, g) y = QuantizeLinear <axis = -2> (h, s, z) }
QLinearMul (a, as, az, b, bs, bz, s, z) => (y) {
    f = DequantizeLinear(a, as, az) g = DequantizeLinear(b, bs, bz)
    h = Mul(f, g) y = QuantizeLinear(h, s, z) }
QLinearSigmoid (x, xs, xz, s, z) => (y) {
    f = DequantizeLinear(x, xs, xz) g = Sigmoid(f) y = QuantizeLinear(g, s, z) }
QLinearSoftmax <axis, opset> (x, xs, xz, s, z) => (y) {
    f = DequantizeLinear(x, xs, xz) g = Softmax <axis: int = @axis> (f)
    y = QuantizeLinear(g, s, z) }
QLinearWhere (c, a, as, az, b, bs, bz, s, z) => (y) {
    f = DequantizeLinear(a, as, az) g = DequantizeLinear(b, bs, bz)
    h = Where(c, f, g) y = QuantizeLinear(h, s, z) }
QuantizeLinear <axis> (x, s, z) => (y) {
    y = QuantizeLinear <axis: int = @axis> (x, s, z) }
QuickGelu <alpha: float = 1.702> (x) => (y) {
    a = Constant <value_float: float = @alpha> () t = CastLike(a, x)
    s = Mul(x, t) g = Sigmoid(s) y = Mul(x, g) }
SimplifiedLayerNormalization <axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1>
    (x, gamma) => (y, inv) {
    y = RMSNormalization <axis: int = @axis, epsilon: float = @epsilon,
                          stash_type: int = @stash_type> (x, gamma) }
SkipLayerNormalization <epsilon> (x, skip, gamma, beta, bias) => (y, mean, inv, s) {
    s = Sum(x, skip, bias)
    y, mean, inv = LayerNormalization <axis: int = -1, epsilon: float = @epsilon>
                                      (s, gamma, beta) }
SkipSimplifiedLayerNormalization <epsilon: float = 1e-12> (x, skip, gamma, bias)
    => (y, mean, inv, s) {
    s = Sum(x, skip, bias)
    y = RMSNormalization <axis: int = -1, epsilon: float = @epsilon> (s, gamma) }
Trilu <upper: int = 1> (x, k) => (y) { y = Trilu <upper: int = @upper> (x, k) }
"""
"""Function bodies as ONNX writes them. What a call leaves out is left out of Sum as well."""


OWN_DOMAIN = frozenset({"QLinearConv", "QLinearMatMul", "SimplifiedLayerNormalization"})
"""What is in ONNX's domain: two operators without a function body, and one of onnxruntime's."""


def body(name: str, call: Call) -> onnx.FunctionProto | None:
    """The function body of a call of an operator; None where there is none here. Raises
    Unsupported for a form that has none."""
    if name in FORMS:
        return _parsed(FORMS[name](call))
    for text in BODIES.strip().split("}\n"):
        if text.split(maxsplit=1)[0] == name:
            return _parsed(f"{text.rstrip(' }')} }}")
    return None


def _embedding(call: Call) -> str:
    """Rows of tables by words, positions and segments, added and normalised; the second result
    is the number of words that the mask keeps."""
    batch, rows = call.shape(0, "input_ids", 2)
    text, terms = "words = Gather(w, ids)\n", ["words"]
    if call.given(8):
        text += "places = Gather(p, at)\n"
    else:
        text += "begin = Constant <value_ints = [0]> ()\n"
        text += f"end = Constant <value_ints = [{rows}]> () places = Slice(p, begin, end)\n"
    if call.given(1):
        text, terms = text + "kinds = Gather(t, segments)\n", ["words", "kinds"]
    text += f"total = Sum({', '.join([*terms, 'places'])})\n"
    text += "y = LayerNormalization <axis = -1, epsilon: float = @epsilon> (total, gamma, beta)\n"
    if call.given(7):
        text += "row = Constant <value_ints = [1]> () one = CastLike(row, m) kept = Equal(m, one)\n"
        text += "number = Cast <to = 6> (kept) index = ReduceSum <keepdims = 0> (number, row)\n"
    elif call.wants(1):
        text += f"index = Constant <value = int32[{batch}] {{{', '.join(['0'] * batch)}}}> ()\n"
    return (
        "EmbedLayerNormalization <epsilon: float = 1e-12, mask_index_type>"
        f"(ids, segments, w, p, t, gamma, beta, m, at) => (y, index, total) {{\n{text}}}"
    )


def _qlinear_conv(call: Call) -> str:
    """A convolution of quantised numbers; the bias, int32, is in steps of both scales."""
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    kinds = {"auto_pad": "string", "group": "int"}
    attrs = ", ".join(f"{n}: {kinds.get(n, 'ints')} = @{n}" for n in names)
    text, bias = "", ""
    if call.given(8):
        text, bias = "bs = Mul(xs, ws) c = DequantizeLinear <axis = 0> (b, bs)\n", ", c"
    return (
        f"QLinearConv <{', '.join(names)}> (x, xs, xz, w, ws, wz, s, z, b) => (y) {{\n{text}"
        "f = DequantizeLinear(x, xs, xz) g = DequantizeLinear <axis = 0> (w, ws, wz)\n"
        f"h = Conv <{attrs}> (f, g{bias}) y = QuantizeLinear(h, s, z) }}"
    )


def _distances(call: Call) -> str:
    """Distances of each row of a to each row of b."""
    metrics = {"euclidean": "ReduceL2", "sqeuclidean": "ReduceSumSquare"}
    metric = call.attrs.get("metric", "sqeuclidean")
    if metric not in metrics:
        call.refuse(f"attribute metric is {metric!r}; expected {' or '.join(metrics)}")
    return (
        "CDist <metric> (a, b) => (y) {\n"
        "one = Constant <value_ints = [1]> () left = Unsqueeze(a, one)\n"
        "front = Constant <value_ints = [0]> () right = Unsqueeze(b, front)\n"
        "d = Sub(left, right) last = Constant <value_ints = [2]> ()\n"
        f"y = {metrics[metric]} <keepdims = 0> (d, last) }}"
    )


def _unfolded(call: Call) -> str:
    """Slices of an axis, which begin `step` apart; a last axis is within them."""
    shape, size = call.shape(0, "input"), call.positive("size")
    axis, step = int(call.attrs.get("dim", -1)), int(call.attrs.get("step", 1))
    if step < 1 or not -len(shape) <= axis < len(shape) or size > shape[axis]:
        call.refuse(
            f"attributes dim, size, step are {axis}, {size}, {step} of the shape {shape}; expected "
            "an axis, a size within it and a positive step"
        )
    axis %= len(shape)
    count = (shape[axis] - size) // step + 1
    order = [n + (n > axis) for n in range(len(shape))] + [axis + 1]
    return (
        f"UnfoldTensor <dim, size, step> (x) => (y) {{\n{attention.counting('begin', count)}"
        f"by = Constant <value_int = {step}> () first = Mul(begin, by)\n"
        f"column = Constant <value_ints = [1]> () firsts = Unsqueeze(first, column)\n"
        f"{attention.counting('within', size)}at = Add(firsts, within)\n"
        f"g = Gather <axis = {axis}> (x, at) y = Transpose <perm = {order}> (g) }}"
    )


FORMS = {
    **attention.FORMS,
    "CDist": _distances,
    "EmbedLayerNormalization": _embedding,
    "GatherBlockQuantized": gather_quantized,
    "QLinearConv": _qlinear_conv,
    "UnfoldTensor": _unfolded,
}
"""Function bodies that depend on the call."""


@lru_cache(maxsize=64)
def _parsed(text: str) -> onnx.FunctionProto:
    from onnx import parser

    head = f'<domain: "{DOMAIN}", opset_import: ["" : 23]>\n'
    made: onnx.FunctionProto = parser.parse_function(head + text)
    return made
