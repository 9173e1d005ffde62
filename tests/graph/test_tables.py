"""Functions of one byte between quantised operators are looked up, and what they were."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper, parser

from autosched import graph
from autosched.graph import passes
from autosched.graph.ir import Call, Function

HEAD = '<ir_version: 10, opset_import: ["" : 20]> '
LOOKUP = "autosched.Lookup"
ALL = np.arange(256, dtype=np.uint8).reshape(4, 64)


def module_of(body: str, shape: str = "4,64", result: str = "uint8"):
    """A module of a byte `q`, whose numbers are `y`; `r` is the result."""
    text = (
        f"g (uint8[{shape}] q) => ({result}[{shape}] r) {{ y = DequantizeLinear(q, s, z)\n{body} }}"
    )
    model = parser.parse_model(HEAD + text)
    numbers = {"s": np.float32(0.043), "z": np.uint8(131), "half": np.float32(0.5),
               "one": np.float32(1), "row": np.float32([0.25] * 64)}  # fmt: skip
    for n in range(3):
        numbers[f"s{n}"], numbers[f"z{n}"] = np.float32(0.02 + 0.013 * n), np.uint8(17 + 40 * n)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(a), name) for name, a in numbers.items()
    )
    return graph.from_onnx(model)


def operators(module) -> list[str]:
    """Of all kernels."""
    return [
        b.value.callee
        for f in module.graphs.values()
        if isinstance(f, Function)
        for b in f.body.bindings
        if isinstance(b.value, Call) and isinstance(b.value.callee, str)
    ]


ROUNDED = "aq = QuantizeLinear(a, s0, z0) b = DequantizeLinear(aq, s0, z0)"
CHAINS = {
    "silu": f"a = Sigmoid(y) {ROUNDED} c = Mul(y, b) r = QuantizeLinear(c, s1, z1)",
    "gelu, tanh": f"a = Gelu(y) {ROUNDED} c = Tanh(b) r = QuantizeLinear(c, s1, z1)",
    "hard swish": f"a = HardSigmoid(y) {ROUNDED} c = Mul(b, y) r = QuantizeLinear(c, s1, z1)",
    "NaN": "a = Log(y) r = QuantizeLinear(a, s1, z1)",
    "comparison": "e = Exp(y) l = Less(e, half) a = Where(l, one, e) r = QuantizeLinear(a, s0, z0)",
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_are_looked_up(name):
    """All 256 bytes give what the operators give, in the graph and as a kernel."""
    module = module_of(CHAINS[name])
    want = graph.evaluate(module, "main", ALL)
    changed = passes.optimise(module)
    assert set(operators(changed)) == {LOOKUP}, name
    np.testing.assert_array_equal(graph.evaluate(changed, "main", ALL), want)
    np.testing.assert_array_equal(graph.build(module)(ALL)[0], want)


KEPT = {
    "one rounding costs less": "a = Relu(y) r = QuantizeLinear(a, s1, z1)",
    "by row": "a = Mul(y, row) b = Tanh(a) r = QuantizeLinear(b, s1, z1)",
    "above the diagonal": "a = Exp(y) b = Trilu(a) r = QuantizeLinear(b, s1, z1)",
    "neighbours": "a = Softmax(y) b = Tanh(a) r = QuantizeLinear(b, s1, z1)",
    "sums in order": "t = Constant<value_int = 1>() a = CumSum(y, t) b = Tanh(a) "
    "r = QuantizeLinear(b, s1, z1)",
    "turned": "t = Transpose(y) u = Reshape(t, to) a = Add(y, u) b = Tanh(a) "
    "to = Constant<value_ints = [4, 64]>() r = QuantizeLinear(b, s1, z1)",
}


@pytest.mark.parametrize("name", KEPT)
def test_other_functions_stay(name):
    """What depends on more than one byte, or is cheap, is computed."""
    body = KEPT[name]
    if "to = " in body:
        start, to, rest = body.partition("to = Constant<value_ints = [4, 64]>() ")
        body = to + start + rest
    module = module_of(body)
    changed = passes.optimise(module)
    assert LOOKUP not in operators(changed), name
    found = graph.build(module)(ALL)[0].astype(int)
    assert np.abs(found - graph.evaluate(module, "main", ALL)).max() <= 1


def test_readers_of_floats_keep_them():
    """A float that is also read by others is computed for these."""
    text = "a = Sigmoid(y) c = Mul(y, a) b = QuantizeLinear(c, s1, z1) "
    text += "d = DequantizeLinear(b, s1, z1) "
    module = module_of(text + "m = ReduceMax<keepdims = 1>(c) r = Add(d, m)", result="float")
    found = graph.build(module)(ALL)[0]
    np.testing.assert_allclose(found, graph.evaluate(module, "main", ALL), rtol=1e-5, atol=1e-6)
