"""The passes of quantised models: bytes that are unsigned, moved as they are, and stored; scales
that are divided out."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper, parser

from autosched import graph
from autosched.graph import op, passes
from autosched.graph.ir import Call, Const, Function, Global, Var

HEAD = '<ir_version: 10, opset_import: ["" : 21]> '


def numbered(**arrays) -> list:
    return [numpy_helper.from_array(np.asarray(a), name) for name, a in arrays.items()]


def weights() -> list:
    """Weights of int8 with a scale one an output, and scales and zero points of activations."""
    rng = np.random.default_rng(0)
    zeros = {f"z{n}": np.int8(z) for n, z in enumerate((-3, 11, -128, 5, 0))}
    scales = {f"s{n}": np.float32(s) for n, s in enumerate((0.03, 0.042, 0.024, 0.051, 0.037))}
    return numbered(
        w=rng.integers(-128, 128, (8, 3, 3, 3)).astype("i1"), v=rng.integers(
            -128, 128, (8, 8, 3, 3)).astype("i1"), m=rng.integers(-128, 128, (8, 6)).astype("i1"),
        ws=rng.uniform(1e-3, 3e-3, 8).astype("f4"), wz=np.zeros(8, "i1"), ms=np.float32(0.002),
        mz=np.int8(0), row=np.array([1, 8, -1]), **zeros, **scales,
    )  # fmt: skip


def proto_of(text: str):
    """The model of a graph in ONNX's text, given `weights`."""
    model = parser.parse_model(HEAD + text)
    model.graph.initializer.extend(weights())
    return model


QDQ = """g (TYPE[1,3,9,8] x) => (int8[1,8,4,4] y, float[1,6,32] f, int8[1,8,9,8] k) {
    START
    d = DequantizeLinear(q, s0, z0)
    wd = DequantizeLinear<axis = 0>(w, ws, wz)
    c = Conv<pads = [1, 1, 1, 1]>(d, wd)
    k = QuantizeLinear(c, s1, z1)
    kd = DequantizeLinear(k, s1, z1)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(kd)
    pq = QuantizeLinear(p, s1, z1)
    pd = DequantizeLinear(pq, s1, z1)
    vd = DequantizeLinear<axis = 0>(v, ws, wz)
    c2 = Conv<pads = [1, 1, 1, 1]>(pd, vd)
    c3 = Relu(c2)
    rq = QuantizeLinear(c3, s2, z2)
    rd = DequantizeLinear(rq, s2, z2)
    a = Add(pd, rd)
    aq = QuantizeLinear(a, s3, z3)
    ad = DequantizeLinear(aq, s3, z3)
    y = QuantizeLinear(ad, s1, z1)
    l = Reshape(ad, row)
    lq = QuantizeLinear(l, s3, z3)
    ld = DequantizeLinear(lq, s3, z3)
    t = Transpose<perm = [0, 2, 1]>(ld)
    tq = QuantizeLinear(t, s3, z3)
    td = DequantizeLinear(tq, s3, z3)
    md = DequantizeLinear(m, ms, mz)
    mm = MatMul(td, md)
    mq = QuantizeLinear(mm, s4, z4)
    e = DequantizeLinear(mq, s4, z4)
    both = Concat<axis = 1>(e, e)
    bq = QuantizeLinear(both, s4, z4)
    bd = DequantizeLinear(bq, s4, z4)
    f = Transpose<perm = [0, 2, 1]>(bd)
}"""
QLINEAR = """g (TYPE[1,3,9,8] x) => (int8[1,16,12] y, int8[1,8,4,4] p) {
    START
    k = QLinearConv<pads = [1, 1, 1, 1]>(q, s0, z0, w, ws, wz, s1, z1)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(k)
    l = Reshape(p, row)
    t = Transpose<perm = [0, 2, 1]>(l)
    a = QLinearMatMul(t, s1, z1, m, ms, mz, s2, z2)
    b = QLinearMatMul(t, s1, z1, m, ms, mz, s2, z2)
    y = Concat<axis = 2>(a, b)
}"""
FLOAT = ("float", "q = QuantizeLinear(x, s0, z0)")
BYTES = ("int8", "q = Identity(x)")


def engine(proto, x: np.ndarray) -> list[np.ndarray]:
    """onnxruntime's results."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    # Its rewriting of some of these models fails.
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    # Without it pairs of products saturate at 16 bits on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = runtime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})


def signed(module) -> list[str]:
    """Kernels that read or write int8 which is no constant, no input and no result of `main`."""
    main = module["main"]
    outside = {id(a) for a in (*main.params, *main.body.results)}
    found = []
    for b in main.body.bindings:
        atoms = [*b.vars, *b.value.args] if isinstance(b.value, Call) else list(b.vars)
        inner = [a for a in atoms if isinstance(a, Var) and id(a) not in outside]
        found += [str(b.value.callee) for a in inner if a.type.dtype == "int8"]
    return found


def near(found, want, unit: float = 1.0) -> None:
    """At most a step apart, and few elements at all."""
    assert found.dtype == want.dtype
    assert found.shape == want.shape
    steps = np.abs(found.astype("f8") - want.astype("f8")) / unit
    assert steps.max() <= 1.001
    assert (steps > 1e-3).mean() < 0.02


@pytest.mark.sampled(3)
@pytest.mark.parametrize("start", [FLOAT, BYTES], ids=["float", "int8"])
@pytest.mark.parametrize("text", [QDQ, QLINEAR], ids=["qdq", "qlinear"])
def test_int8_models_are_of_unsigned_bytes(text: str, start) -> None:
    """Results are those of onnxruntime, and kernels hand on unsigned bytes."""
    proto = proto_of(text.replace("TYPE", start[0]).replace("START", start[1]))
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 3, 9, 8)).astype("f4")
    if start is BYTES:
        x = rng.integers(-128, 128, x.shape).astype("i1")
    module = graph.from_onnx(proto)
    ready = passes.optimise(module)
    assert signed(module)
    assert not signed(ready)
    model = graph.build(module, threads=1)
    found = [graph.evaluate(ready, "main", x), model(x)]
    for n, w in enumerate(graph.evaluate(module, "main", x)):
        for out in found:
            near(out[n], w, 0.037 if w.dtype == np.float32 else 1.0)
    for n, w in enumerate(engine(proto, x)):
        for out in found:
            near(out[n], w, 0.037 if w.dtype == np.float32 else 1.0)


def calls(function) -> list[Call]:
    """The calls of operators in a function."""
    if not isinstance(function, Function):
        return []
    return [b.value for b in function.body.bindings if isinstance(b.value, Call)]


def names(module, function: str = "main") -> list[str]:
    return [str(v.callee) for v in calls(module[function])]


def numbers(scale=0.05, zero: int | None = 3, kind: str = "uint8") -> tuple:
    """Constants of a scale and a zero point."""
    less = () if zero is None else (graph.const(np.array(zero, kind)),)
    return graph.const(np.asarray(scale, "f4")), *less


def main_of(params, *results):
    return graph.module(main=graph.function(params, results[0] if len(results) == 1 else
                                            tuple(results)))  # fmt: skip


def equal(before, after, *args, exact: bool = True) -> None:
    """Two modules give the same."""
    a, b = (graph.evaluate(m, "main", *args) for m in (before, after))
    for x, y in zip(*(v if isinstance(v, tuple) else (v,) for v in (a, b)), strict=True):
        if exact:
            np.testing.assert_array_equal(x, y)
        else:
            near(y, x)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kinds", [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")], ids=str)
@pytest.mark.parametrize("name", ["MatMulInteger", "ConvInteger", "MatMul"])
def test_both_operands_are_computed(name: str, kinds) -> None:
    """Products of two activations, either of int8."""
    rng = np.random.default_rng(2)
    x, y = graph.var("x", (6, 6), "float32"), graph.var("y", (6, 6), "float32")
    scale = numbers(0.02)[0]
    zeros = [graph.const(np.array(5, k)) for k in kinds]
    a, b = (op.quantize_linear(v, scale, z) for v, z in zip((x, y), zeros, strict=True))
    if name == "MatMulInteger":
        made = op.matmul_integer(a, b, *zeros)
    elif name == "ConvInteger":
        made = op.conv_integer(
            op.unsqueeze(a, axes=(0,)), op.unsqueeze(b, axes=(2,)), *zeros
        )  # fmt: skip
    else:
        made = op.matmul(
            *(op.dequantize_linear(v, scale, z) for v, z in zip((a, b), zeros, strict=True))
        )
    module = main_of([x, y], made)
    args = [rng.standard_normal((6, 6)).astype("f4") for _ in range(2)]
    want = graph.evaluate(module, "main", *args)
    for found in (
        graph.evaluate(passes.unsigned(module), "main", *args),
        graph.evaluate(passes.optimise(module), "main", *args),
        graph.build(module, threads=1)(*args)[0],
    ):
        assert found.dtype == want.dtype
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("zero", [None, -9])
def test_integer_operators_read_unsigned_bytes(zero: int | None) -> None:
    """ConvInteger and MatMulInteger of constant weights, with a zero point or none."""
    rng = np.random.default_rng(8)
    x = graph.var("x", (1, 4, 6, 6), "float32")
    scale, *less = numbers(0.02, zero, "int8")
    q = op.quantize_linear(x, scale, *less, output_dtype="int8")
    w = graph.const(rng.integers(-128, 128, (5, 4, 3, 3)).astype("i1"))
    m = graph.const(rng.integers(-128, 128, (6, 3)).astype("i1"))
    module = main_of([x], op.conv_integer(q, w, *less), op.matmul_integer(q, m, *less))
    changed = passes.dead_code(passes.unsigned(module))
    products = [v for v in calls(changed["main"]) if "Integer" in str(v.callee)]
    assert [v.args[0].type.dtype for v in products] == ["uint8", "uint8"]
    value = rng.standard_normal((1, 4, 6, 6)).astype("f4") * 2
    equal(module, changed, value)
    equal(module, passes.optimise(module), value)


def test_operators_of_signed_numbers_read_them() -> None:
    """What takes int8 gets it: Cast, Where, a concatenation with a constant, a result."""
    x = graph.var("x", (4, 6), "float32")
    scale, zero = numbers(0.02, -7, "int8")
    q = op.quantize_linear(x, scale, zero)
    chosen = op.where(op.greater(x, graph.const(np.float32(0))), q, graph.const(np.int8(9)))
    joined = op.concat(q, graph.const(np.full((2, 6), -128, "i1")), axis=0)
    whole = op.cast(q, to="float32")
    module = main_of([x], q, chosen, op.dequantize_linear(joined, scale, zero), whole)
    value = np.random.default_rng(3).standard_normal((4, 6)).astype("f4") * 3
    equal(module, passes.unsigned(module), value)
    equal(module, passes.optimise(module), value)


def test_zero_points_that_are_left_out_or_computed() -> None:
    """None stands for 0, which is 128 of the unsigned bytes; one that is computed stays."""
    x = graph.var("x", (4, 6), "float32")
    scale, _ = numbers(0.02)
    q = op.quantize_linear(x, scale, output_dtype="int8")
    module = main_of([x], op.dequantize_linear(q, scale))
    value = np.random.default_rng(3).standard_normal((4, 6)).astype("f4") * 3
    changed = passes.unsigned(module)
    assert {v.type.dtype for b in changed["main"].body.bindings for v in b.vars} == {
        "uint8", "float32",
    }  # fmt: skip
    equal(module, changed, value)
    z = graph.var("z", (), "int8")
    q = op.quantize_linear(x, scale, z)
    module = main_of([x, z], op.dequantize_linear(q, scale, z))
    equal(module, passes.optimise(module), value, np.int8(-100))


SHAPE = (1, 4, 6, 6)
MOVES = {
    "MaxPool": lambda *y: op.max_pool(y[0], kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
    "Reshape": lambda *y: op.reshape(y[0], shape=(4, 36)),
    "Concat": lambda *y: op.concat(*y, axis=1),
    "Transpose": lambda *y: op.transpose(y[0], perm=(0, 2, 3, 1)),
    "Slice": lambda *y: op.slice(y[0], starts=(1,), ends=(3,), axes=(1,)),
}
KEPT = {
    "other scale": (numbers(0.05), numbers(0.04)),
    "other zero point": (numbers(0.05), numbers(0.05, 4)),
    "negative scale": (numbers(-0.05), numbers(-0.05)),
    "a scale for each channel": (numbers([0.05, 0.04, 0.03, 0.02], None),) * 2,
}


def move(name: str, first: tuple, second: tuple, last: tuple):
    """Two values of bytes, dequantised, moved and quantised again."""
    params = [graph.var(n, SHAPE, "uint8") for n in "ab"]
    pairs = zip(params, (first, second), strict=True)
    reals = [op.dequantize_linear(p, *by, axis=1) for p, by in pairs]
    return main_of(params if name == "Concat" else params[:1],
                   op.quantize_linear(MOVES[name](*reals), *last))  # fmt: skip


def bytes_of(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(4)
    return [rng.integers(0, 256, SHAPE).astype("u1") for _ in range(count)]


@pytest.mark.parametrize("zero", [None, 0, 3])
@pytest.mark.parametrize("name", MOVES)
def test_moves_of_equal_numbers_move_bytes(name: str, zero: int | None) -> None:
    """Neither quantised nor dequantised again."""
    by = numbers(0.05, zero)
    one = graph.const(np.full((1,), 0.05, "f4"))  # the same, as an array of one element
    module = move(name, by, (one, *by[1:]), by)
    after = passes.dead_code(passes.quantised_moves(module))
    assert names(after) == [name]
    equal(module, after, *bytes_of(len(module["main"].params)))


@pytest.mark.parametrize("why", KEPT)
@pytest.mark.parametrize("name", MOVES)
def test_moves_of_other_numbers_stay(name: str, why: str) -> None:
    before, after = KEPT[why]
    last = after if why != "a scale for each channel" else numbers(0.05)
    module = move(name, before, before, last)
    changed = passes.dead_code(passes.quantised_moves(module))
    assert names(changed)[-1] == "QuantizeLinear"
    if why in ("negative scale", "a scale for each channel"):
        assert names(changed)[-2] == name
    equal(module, changed, *bytes_of(len(module["main"].params)))


def test_joined_values_of_different_numbers_stay() -> None:
    by = numbers(0.05)
    for other in (numbers(0.04), numbers(0.05, 4), numbers(0.05, None)):
        module = move("Concat", by, other, by)
        changed = passes.dead_code(passes.quantised_moves(module))
        assert names(changed) == names(module)
        equal(module, changed, *bytes_of(2))


@pytest.mark.parametrize("by", [numbers(), numbers(0.05, None), numbers(0.05, -9, "int8")])
def test_quantised_again_by_the_same_numbers(by) -> None:
    """All bytes come back as they are."""
    kind = "uint8" if len(by) < 2 else by[1].type.dtype
    q = graph.var("q", (256,), kind)
    module = main_of([q], op.quantize_linear(op.dequantize_linear(q, *by), *by))
    changed = passes.dead_code(passes.quantised_moves(module))
    assert names(changed) == []
    value = np.arange(256).astype("u1").view(kind)
    equal(module, changed, value)
    # Bytes of the other kind, of zero points that look alike.
    other = {"uint8": "int8", "int8": "uint8"}[kind]
    module = main_of([q], op.quantize_linear(op.dequantize_linear(q, *by), by[0],
                                             graph.const(np.array(3, other))))  # fmt: skip
    changed = passes.dead_code(passes.quantised_moves(module))
    assert names(changed) == names(module)
    equal(module, changed, value)


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_takes_the_scale_in(bias: bool, readers: int) -> None:
    """With one reader its factor is divided; with more what is quantised is multiplied."""
    rng = np.random.default_rng(5)
    q = graph.var("q", (5, 12), "uint8")
    w = graph.const(rng.integers(-128, 128, (12, 7)).astype("i1"))
    made = op.mul(op.cast(op.autosched_matmul_sums(q, w), to="float32"),
                  graph.const(rng.uniform(1e-5, 3e-5, 7).astype("f4")))  # fmt: skip
    if bias:
        made = op.add(made, graph.const(rng.standard_normal(7).astype("f4")))
    results = [op.quantize_linear(made, *numbers(0.0137, 120)), op.exp(made)]
    module = main_of([q], *results[:readers])
    changed = passes.dead_code(passes.rescaled(module))
    assert names(changed).count("Mul") == readers
    # The factors and the bias are there once.
    many = [a for v in calls(changed["main"]) if v.callee in ("Mul", "Add") for a in v.args
            if isinstance(a, Const) and a.type.elements > 1]  # fmt: skip
    assert len(many) == 1 + bias
    (call,) = [v for v in calls(changed["main"]) if v.callee == "QuantizeLinear"]
    assert isinstance(call.args[1], Const)
    assert float(call.args[1].array) == 1
    x = rng.integers(0, 256, (5, 12)).astype("u1")
    before, after = (graph.evaluate(m, "main", x) for m in (module, changed))
    if readers > 1:
        np.testing.assert_array_equal(before[1], after[1])
        before, after = before[0], after[0]
    near(after, before)
    assert len(np.unique(before)) > 20


@pytest.mark.parametrize("scale", [1.0, 1e-35, 3e33, -0.5, [0.1] * 6])
def test_scales_that_stay(scale) -> None:
    """1, those whose reciprocal is imprecise, negative ones and several."""
    x = graph.var("x", (4, 6), "float32")
    module = main_of([x], op.quantize_linear(x, *numbers(scale, None), axis=1))
    assert names(passes.rescaled(module)) == ["QuantizeLinear"]


def test_any_number_is_quantised_a_step_apart() -> None:
    """Extremes, halves and infinities, multiplied instead of divided."""
    rng = np.random.default_rng(6)
    x = graph.var("x", (4096,), "float32")
    module = main_of([x], op.quantize_linear(x, *numbers(0.0371, -5, "int8")))
    changed = passes.rescaled(module)
    assert names(changed) == ["Mul", "QuantizeLinear"]
    steps = rng.integers(-300, 300, 4096) + rng.choice([0, 0.25, 0.5], 4096)
    value = (steps * np.float32(0.0371)).astype("f4")
    value[:4] = np.inf, -np.inf, 3e38, -3e38
    a, b = (graph.evaluate(m, "main", value).astype("i4") for m in (module, changed))
    assert np.abs(a - b).max() <= 1
    assert np.array_equal(a[:4], b[:4])
    assert np.array_equal(a[steps % 1 != 0.5], b[steps % 1 != 0.5])


def kernels(module) -> list[str]:
    """The types of what each kernel of `main` stores."""
    return [
        b.vars[0].type.dtype
        for b in module["main"].body.bindings
        if isinstance(b.value, Call) and isinstance(b.value.callee, Global)
    ]


def test_kernels_store_bytes() -> None:
    """Several read a dequantised value, each from the bytes; a result is stored as float32 once."""
    rng = np.random.default_rng(7)
    x = graph.var("x", SHAPE, "float32")
    by = numbers(0.031, 100)

    def again(value):
        return op.dequantize_linear(op.quantize_linear(value, *by), *by)

    y = again(op.softmax(x, axis=1))
    parts = [again(op.reduce_sum(y, np.array([n]), keepdims=1)) for n in (1, 2, 3)]
    total = again(op.add(op.add(parts[0], parts[1]), parts[2]))
    inner = main_of([x], op.quantize_linear(total, *numbers(0.05)))
    ready = passes.optimise(inner)
    assert set(kernels(ready)) == {"uint8"}
    outer = passes.optimise(main_of([x], y, total))
    assert sorted(kernels(outer)).count("float32") == 2
    value = rng.standard_normal(SHAPE).astype("f4")
    for module, done in ((inner, ready), (main_of([x], y, total), outer)):
        want, found = (graph.evaluate(m, "main", value) for m in (module, done))
        built = graph.build(module, threads=1)(value)
        want, found = (v if isinstance(v, tuple) else (v,) for v in (want, found))
        for w, f, b in zip(want, found, built, strict=True):
            unit = 1.0 if w.dtype == np.uint8 else 0.031
            near(f, w, unit)
            near(b, w, unit)
