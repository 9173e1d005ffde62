"""precision="int8": asked for, rows times weights of 8 bits are sums of integers."""

from __future__ import annotations

import numpy as np
import pytest
from graph_models import info, model
from onnx import helper
from quantised_models import CASES, Builder
from test_graph_integers import operators

from autosched import graph
from autosched.errors import WorkloadError
from autosched.graph import op, passes
from autosched.sketch.default import default_schedule
from autosched.target import Target

M, K, N = 10, 37, 21


def node(name, inputs, output, **attrs):
    return helper.make_node(name, inputs, [output], **attrs)


def column(a):
    return a[:, None]


def bytes_of(rng, kind, shape):
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    return rng.integers(low, high + 1, shape).astype(kind)


def stored(form, rng):
    """Nodes that make the float weight `w` of one that is stored, their constants, and it."""
    scale = rng.uniform(0.01, 0.02, N).astype("f4")
    kind = "uint8" if "unsigned" in form else "int8"
    turned = "turned" in form
    q = bytes_of(rng, kind, (N, K) if turned else (K, N))
    if "linear" in form:
        zero = bytes_of(rng, kind, N)
        axis = 0 if turned else 1
        real = (q.astype("f4") - (column(zero) if turned else zero)) * (
            column(scale) if turned else scale
        )
        made = [node("DequantizeLinear", ["q", "s", "z"], "d", axis=axis)]
        return made, {"q": q, "s": scale, "z": zero}, real
    if "tensor" in form:
        scale = scale[:1]
    by = column(scale) if turned else scale[None]
    cast = [node("Cast", ["q"], "f", to=1)]
    zero = np.zeros(1, "f4")
    made, constants = [node("Mul", ["f", "s"], "d")], {"q": q, "s": by}
    if "zero" in form:
        zero = bytes_of(rng, kind, (N, 1) if turned else (1, N)).astype("f4")
        made = [node("Sub", ["f", "z"], "g"), node("Mul", ["s", "g"], "d")]
        constants["z"] = zero
    if "divided" in form:
        made, constants["s"] = [node("Div", ["f", "s"], "d")], (1 / by).astype("f4")
    return cast + made, constants, (q.astype("f4") - zero) * by


FORMS = (
    "column", "tensor", "zero", "unsigned zero", "divided", "linear", "unsigned linear",
    "column turned", "zero turned", "unsigned linear turned",
)  # fmt: skip


def product_of(form, rng, product="MatMul"):
    """A model of one product, and its weight (K, N)."""
    nodes, constants, real = stored(form, rng)
    turned = "turned" in form
    if product == "MatMul":
        nodes += [node("Transpose", ["d"], "w", perm=[1, 0])] if turned else []
        nodes += [node("MatMul", ["x", "w" if turned else "d"], "y")]
    else:
        constants["b"] = rng.standard_normal(N).astype("f4")
        nodes += [node("Gemm", ["x", "d", "b"], "y", transB=int(turned), alpha=2.0)]
    proto = model(nodes, [info("x", [M, K])], [info("y", [M, N])], constants)
    return proto, (real.T if turned else real).astype("f8"), constants.get("b")


def bound(x, w):
    """Half a step of each row, for each term of a result, and what float32 rounds."""
    step = (x.max(-1, keepdims=True) - x.min(-1, keepdims=True)) / 255
    return step / 2 * abs(w).sum(0) + 1e-4 * (abs(x) @ abs(w))


def rows(rng, shape=(M, K)):
    """Rows of different ranges, some without zero in them."""
    x = rng.standard_normal(shape) * rng.uniform(0.1, 9, (shape[0], 1))
    return (x + rng.uniform(-4, 4, (shape[0], 1))).astype("f4")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_each_file(form, rng):
    """Results differ from float64's by what rounding rows may do, and by something."""
    for name in ("MatMul", "Gemm"):
        proto, w, bias = product_of(form, rng, name)
        module = graph.from_onnx(proto)
        built = graph.build(module, precision="int8")
        assert graph.int8_products(built.module) == (1, 1)
        assert not operators(built.module) & {"MatMul", "Gemm"}
        x = rows(rng)
        (found,) = built(x)
        factor, plus = (1, 0) if bias is None else (2, bias)
        error = abs(found - (factor * (x.astype("f8") @ w) + plus))
        assert (error <= factor * bound(x, w)).all(), error.max()
        assert error.max() > 1e-3
        np.testing.assert_allclose(
            found, graph.evaluate(built.module, "main", x), rtol=1e-4, atol=2e-2
        )


def test_sums_are_exact(rng):
    """Bytes as NumPy rounds them, and their sums by extreme weights as 64 bits have them."""
    x = rows(rng, (23, 130))
    w = np.where(rng.random((130, 40)) < 0.5, -128, 127).astype("i1")
    v = graph.var("x", x.shape)
    made = op.autosched_quantize_rows(v, outputs=3)
    sums = op.autosched_matmul_sums(made[0], graph.const(w))
    module = graph.module(main=graph.function([v], [*made, sums]))
    low = x.min(-1, keepdims=True)
    scale = (x.max(-1, keepdims=True) - low) * np.float32(1 / 255)
    want = np.rint((x - low) * (np.float32(1) / scale)).astype("u1")
    for results in (graph.build(module)(x), graph.evaluate(module, "main", x)):
        rounded, steps, whole, found = results
        np.testing.assert_array_equal(steps[:, 1:], low)
        np.testing.assert_allclose(steps[:, :1], scale, rtol=1e-6)
        assert abs(rounded.astype(int) - want).max() <= 1  # where one is halfway
        assert (rounded.min(-1) == 0).all()
        assert (rounded.max(-1) == 255).all()
        np.testing.assert_array_equal(whole[:, 0], rounded.sum(-1, dtype="i8"))
        np.testing.assert_array_equal(found, rounded.astype("i8") @ w.astype("i8"))


def test_rows_of_equal_elements_and_of_no_numbers(rng):
    """A row without a range is exact; one with NaN or infinity gives no finite number."""
    proto, w, _ = product_of("column", rng)
    built = graph.build(graph.from_onnx(proto), precision="int8")
    x = rows(rng)
    x[1], x[2] = 0, -3.25
    x[3, 5], x[4, 6], x[5, 7] = np.nan, np.inf, -np.inf
    (found,) = built(x)
    np.testing.assert_allclose(found[1:3], x[1:3] @ w, rtol=1e-5, atol=1e-5)
    assert (found[1] == 0).all()
    assert not np.isfinite(found[3:6]).any()
    rest = np.r_[0:3, 6:M]
    assert (abs(found[rest] - x[rest].astype("f8") @ w) <= bound(x[rest], w) + 1e-4).all()


def test_other_products_stay(rng):
    """Without being asked for nothing is rounded; float weights, and those that are scaled along
    what is summed over, never are."""
    proto, w, _ = product_of("column", rng)
    module = graph.from_onnx(proto)
    x = rows(rng)
    for precision in ("float32", "bfloat16"):
        assert "autosched.QuantizeRows" not in operators(passes.optimise(module, precision))
    np.testing.assert_allclose(graph.build(module)(x)[0], x @ w, rtol=1e-4, atol=1e-4)
    plain = graph.build(module)
    with pytest.raises(WorkloadError, match="int8_products takes"):
        graph.int8_products(plain.module)
    constants = {
        "q": bytes_of(rng, "int8", (K, N)), "s": rng.uniform(1, 2, (K, 1)).astype("f4"),
        "w2": rng.standard_normal((N, 4)).astype("f4"),
    }  # fmt: skip
    nodes = [
        node("Cast", ["q"], "f", to=1), node("Mul", ["f", "s"], "w"),
        node("MatMul", ["x", "w"], "h"), node("MatMul", ["h", "w2"], "y"),
    ]  # fmt: skip
    rowwise = graph.from_onnx(model(nodes, [info("x", [M, K])], [info("y", [M, 4])], constants))
    built = graph.build(rowwise, precision="int8")
    assert graph.int8_products(built.module) == (0, 2)
    np.testing.assert_array_equal(built(x)[0], graph.build(rowwise)(x)[0])


def test_operands_that_the_file_quantises_are_left_to_it(rng):
    """Products of QDQ models are the integer ones that they are anyway."""
    for n, case in enumerate(CASES):
        if case.op in ("MatMul", "Gemm") and case.form == "qdq" and case.fixed:
            proto, inputs = Builder(case, n).made()
            module = graph.from_onnx(proto)
            built = graph.build(module, precision="int8")
            assert graph.int8_products(built.module) == (0, 0)
            np.testing.assert_array_equal(built.run(inputs)[0], graph.build(module).run(inputs)[0])
            return
    pytest.fail("no case of such a product is left")


def test_rows_are_rounded_once_and_kernels_have_their_epilogues(rng):
    """Three products of one operand, of which one has a bias and an activation: four kernels, whose
    tasks are those of the model, and of its skeleton."""
    nodes, constants = [], {}
    for n in range(3):
        made, given, _ = stored("column", rng)
        for m in made:
            renamed = [f"{i}{n}" for i in m.input]
            nodes.append(node(m.op_type, renamed, f"{m.output[0]}{n}"))
            nodes[-1].attribute.extend(m.attribute)
        constants |= {f"{k}{n}": v for k, v in given.items()}
        nodes.append(node("MatMul", ["x", f"d{n}"], f"y{n}"))
    constants["b"] = rng.standard_normal(N).astype("f4")
    nodes += [node("Add", ["y2", "b"], "a"), node("Relu", ["a"], "z")]
    outputs = [info(n, [M, N]) for n in ("y0", "y1", "z")]
    proto = model(nodes, [info("x", [M, K])], outputs, constants)
    built = graph.build(graph.from_onnx(proto), precision="int8")
    assert graph.int8_products(built.module) == (3, 3)
    assert len(built.kernels) == 4
    keys = {k.workload_key for k in built.kernels}
    for module in (graph.from_onnx(proto), graph.from_skeleton(graph.skeleton(proto))):
        assert keys == {t.workload_key for t in graph.extract_tasks(module, precision="int8")[0]}


def test_targets_with_vnni_take_its_instruction(rng):
    proto, _, _ = product_of("column", rng)
    target = Target("llvm -mcpu=icelake-server -num-cores=2")
    tasks = graph.extract_tasks(graph.from_onnx(proto), target, precision="int8")[0]
    texts = [default_schedule(t.prim_func, target).mod.script() for t in tasks]
    assert sum("dot_16x4_u8s8s32_vnni" in text for text in texts) == 1
