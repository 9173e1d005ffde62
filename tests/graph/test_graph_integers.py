"""Products of quantised numbers: every form becomes one integer group, and agrees with ONNX's own
evaluator, and with onnxruntime where it is installed, to one step of quantisation."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from quantised_models import CASES, Builder

from autosched import graph
from autosched.graph import passes
from autosched.graph.ir import Call, Function


def operators(module):
    """The names of the operators that the module's functions call."""
    functions = [f for f in module.graphs.values() if isinstance(f, Function)]
    values = [b.value for f in functions for b in f.body.bindings]
    return {v.callee for v in values if isinstance(v, Call) and isinstance(v.callee, str)}


def difference(found, want):
    """The largest, in steps where results are quantised, else in parts of the largest number."""
    assert found.dtype == want.dtype
    assert found.shape == want.shape
    a, b = found.astype(np.float64), want.astype(np.float64)
    unit = 1.0 if found.dtype.kind in "iu" else 1e-5 * max(abs(b).max(), 1)
    return float(abs(a - b).max() / unit)


def wanted(proto, inputs, engine=True):
    """The results of onnx's evaluator, and of onnxruntime where it is installed."""
    newer = type(proto).FromString(proto.SerializeToString())
    newer.opset_import[0].version = max(19, newer.opset_import[0].version)  # it knows no older ones
    out = [ReferenceEvaluator(newer).run(None, inputs)[0]]
    if not engine:
        return out
    try:
        import onnxruntime
    except ImportError:
        return out
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Without it pairs of products saturate at 16 bits on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [*out, session.run(None, inputs)[0]]


def test_products_become_integer_groups():
    """Each case in NumPy; text of one is read again."""
    for n, case in enumerate(CASES):
        proto, inputs = Builder(case, n).made()
        module = graph.from_onnx(proto)
        changed = passes.integers(passes.unsigned(passes.fold(module)))
        names = operators(changed)
        product = "autosched.ConvSums" if case.op == "Conv" else "autosched.MatMulSums"
        assert product in names, (case, names)
        assert not names & {"Conv", "MatMul", "Gemm", "QLinearConv", "QLinearMatMul"}, case
        given = [inputs[name] for name in dict(changed["main"].attrs)["inputs"]]
        found = graph.evaluate(changed, "main", *given)
        for want in wanted(proto, inputs):
            limit = 0 if case.form == "integer" else 1
            assert difference(found, want) <= limit, case


def test_integer_groups_compile():
    """A product, its bias and its quantisation are one kernel."""
    for n in (0, 1, 3, 5, 7, 11, 14, 17):
        proto, inputs = Builder(CASES[n], n).made()
        model = graph.build(graph.from_onnx(proto))
        found = model.run(inputs)
        for want in wanted(proto, inputs):
            assert difference(found[0], want) <= 1, CASES[n]
        assert len(model.kernels) == 1, [k.name for k in model.kernels]


def test_scales_of_other_axes_stay_as_they_are(rng):
    """A weight that is scaled along the axis which is summed over is no integer product."""
    proto, inputs = Builder(CASES[14], 1).made()
    (node,) = [n for n in proto.graph.node if n.input[0] == "w"]
    del node.attribute[:]
    node.attribute.add(name="axis", type=2, i=0)
    for t in proto.graph.initializer:
        if t.name in ("ws", "wz"):
            t.dims[0] = 11
            t.raw_data = np.resize(np.frombuffer(t.raw_data, "f4" if t.name == "ws" else "i1"),
                                   11).tobytes()  # fmt: skip
    module = graph.from_onnx(proto)
    changed = passes.optimise(module)
    assert "MatMul" in operators(changed)
    found = graph.evaluate(changed, "main", inputs["x"])
    assert difference(found, wanted(proto, inputs, False)[0]) <= 1


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_dynamic_quantisation(kind, rng):
    """What onnxruntime's dynamic quantiser writes: the zero point is computed by the model."""
    from onnx import helper, numpy_helper
    from onnx.helper import make_node

    w = rng.integers(*((0, 256) if kind == "uint8" else (-128, 128)), (11, 6)).astype(kind)
    zero = np.array(120 if kind == "uint8" else -2, kind)
    nodes = [
        make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        make_node("MatMulInteger", ["q", "w", "z", "wz"], ["p"]),
        make_node("Cast", ["p"], ["f"], to=1),
        make_node("Mul", ["s", "ws"], ["t"]),
        make_node("Mul", ["f", "t"], ["y"]),
    ]
    make = helper.make_tensor_value_info
    proto = helper.make_model(
        helper.make_graph(
            nodes, "g", [make("x", 1, (3, 11))], [make("y", 1, (3, 6))],
            [numpy_helper.from_array(a, n) for n, a in
             (("w", w), ("wz", zero), ("ws", np.float32(0.01)))],
        ), opset_imports=[helper.make_opsetid("", 17)], ir_version=9,
    )  # fmt: skip
    x = rng.standard_normal((3, 11)).astype("f4")
    model = graph.build(graph.from_onnx(proto))
    assert "autosched.MatMulSums" in operators(passes.optimise(graph.from_onnx(proto)))
    (found,) = model(x)
    for want in wanted(proto, {"x": x}):
        assert difference(found, want) <= 1
