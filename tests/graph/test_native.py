"""What runs without Python between kernels: whole models, and loops; and what makes that so."""

from __future__ import annotations

import numpy as np
import pytest
from control_models import any_shape
from graph_models import info, model, node_model, reference, residual_net
from onnx import helper, numpy_helper

from autosched import graph
from autosched.errors import WorkloadError
from autosched.graph import op
from autosched.graph.repeat import ROOM, Repeated
from autosched.script import parse


@pytest.fixture
def repeated(monkeypatch):
    """How often a loop ran over its two tables."""
    calls = []
    run = Repeated.run
    monkeypatch.setattr(Repeated, "run", lambda *a: calls.append(a) or run(*a))
    return calls


def loop_model(condition, ends=None):
    """h = tanh(h w) * (0.5 if its sum is positive, else 2); its sums are scanned. `condition`: the
    loop goes on while the iteration's number is below `ends`."""
    body = [
        helper.make_node("MatMul", ["h_in", "w"], ["hw"]),
        helper.make_node("Tanh", ["hw"], ["t"]),
        helper.make_node("ReduceSum", ["t"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["p"]),
        helper.make_node(
            "If", ["p"], ["h_out"],
            then_branch=helper.make_graph(
                [helper.make_node("Mul", ["t", "half"], ["a"])], "then", [], [info("a", [4, 8])]
            ),
            else_branch=helper.make_graph(
                [helper.make_node("Mul", ["t", "two"], ["b"])], "else", [], [info("b", [4, 8])]
            ),
        ),
        helper.make_node("Less", ["n", "ends"], ["more"])
        if condition
        else helper.make_node("Identity", ["go"], ["more"]),
    ]  # fmt: skip
    inner = helper.make_graph(
        body,
        "body",
        [info("n", [], "int64"), info("go", [], "bool"), info("h_in", [4, 8])],
        [info("more", [], "bool"), info("h_out", [4, 8]), info("s", [])],
    )
    weights = {
        "w": np.random.default_rng(0).standard_normal((8, 8)).astype("f4") * 0.2,
        "zero": np.float32(0),
        "half": np.float32(0.5),
        "two": np.float32(2),
        "ends": np.int64(0 if ends is None else ends),
    }
    return model(
        [helper.make_node("Loop", ["steps", "", "h0"], ["h", "sums"], body=inner)],
        [info("steps", [], "int64"), info("h0", [4, 8])],
        [info("h", [4, 8]), info("sums", ["n"])],
        weights,
    )


@pytest.mark.parametrize("condition", [False, True])
def test_a_loop_of_kernels_runs_over_tables(condition, rng, repeated):
    proto = loop_model(condition, ends=5)
    compiled = graph.build(graph.from_onnx(proto))
    w = numpy_helper.to_array(proto.graph.initializer[0])
    every = (0, 1, 2, 7, ROOM + 9)
    for steps in every:  # each call finds what the one before it left in its arrays
        h0 = rng.standard_normal((4, 8)).astype("f4")
        h, sums = compiled(np.asarray(steps), h0)
        want = h0
        for n in range(min(steps, 6) if condition else steps):
            t = np.tanh(want @ w)
            np.testing.assert_allclose(sums[n], t.sum(), rtol=1e-2, atol=1e-3)
            want = t * (0.5 if t.sum() > 0 else 2)
        np.testing.assert_allclose(h, want, rtol=1e-2, atol=1e-3)
        assert sums.shape == (min(steps, 6) if condition else steps,)
    assert len(repeated) == len(every)


def states_model(scanned, condition):
    """a = a * 0.5 + x[n], b = a + b of what they were; `scanned`: names of values of the body."""
    values = {"a_in": [3], "b_in": [3], "a_out": [3], "b_out": [3], "x": [80, 3], "more": []}
    dtypes = {"more": "bool"}
    body = helper.make_graph(
        [
            helper.make_node("Gather", ["x", "n"], ["row"]),
            helper.make_node("Mul", ["a_in", "half"], ["part"]),
            helper.make_node("Add", ["part", "row"], ["a_out"]),
            helper.make_node("Add", ["a_in", "b_in"], ["b_out"]),
            helper.make_node("Less", ["n", "ends"], ["more"])
            if condition
            else helper.make_node("Identity", ["go"], ["more"]),
            *(helper.make_node("Identity", [name], [f"y{n}"]) for n, name in enumerate(scanned)),
        ],
        "body",
        [info("n", [], "int64"), info("go", [], "bool"), info("a_in", [3]), info("b_in", [3])],
        [
            info("more", [], "bool"),
            info("a_out", [3]),
            info("b_out", [3]),
            *(
                info(f"y{n}", values[name], dtypes.get(name, "float32"))
                for n, name in enumerate(scanned)
            ),
        ],
    )
    outs = ["a", "b", *(f"ys{n}" for n in range(len(scanned)))]
    return model(
        [helper.make_node("Loop", ["steps", "", "a0", "b0"], outs, body=body)],
        [info("steps", [], "int64"), info("a0", [3]), info("b0", [3]), info("x", [80, 3])],
        [any_shape(n) for n in outs],
        {"half": np.float32(0.5), "ends": np.int64(ROOM + 4)},
    )


@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize(
    "scanned",
    [(), ("a_out",), ("b_in",), ("a_out", "a_out"), ("b_out", "a_in", "a_out"), ("b_in", "b_in")],
)
def test_states_that_are_scanned_are_in_their_rows_alone(scanned, condition, rng, repeated):
    compiled = graph.build(graph.from_onnx(states_model(scanned, condition)))
    x = rng.standard_normal((80, 3)).astype("f4")
    every = (0, 1, 7, ROOM, ROOM + 9)
    for steps in every:
        a, b = rng.standard_normal((2, 3)).astype("f4")
        found = compiled(np.asarray(steps), a, b, x)
        rows = {name: [] for name in ("a_in", "b_in", "a_out", "b_out")}
        for n in range(min(steps, ROOM + 5) if condition else steps):
            after = np.float32(0.5) * a + x[n], a + b
            for name, value in zip(rows, (a, b, *after), strict=True):
                rows[name].append(value)
            a, b = after
        want = [a, b, *(np.reshape(rows[name], (-1, 3)) for name in scanned)]
        for f, w in zip(found, want, strict=True):
            np.testing.assert_allclose(f, w, rtol=1e-5, atol=1e-5)
        assert not any(np.shares_memory(f, g) for f in found for g in found if f is not g)
    assert len(repeated) == len(every)


def test_a_condition_that_is_scanned_ends_the_loop(rng, repeated):
    proto = states_model(("more",), True)
    x = rng.standard_normal((80, 3)).astype("f4")
    zero = np.zeros(3, "f4")
    seen = graph.build(graph.from_onnx(proto))(np.asarray(80), zero, zero, x)[2]
    np.testing.assert_array_equal(seen, [True] * (ROOM + 4) + [False])
    assert not repeated  # it would be written to a row alone, where no loop reads it


def test_a_loop_that_is_more_than_kernels_runs_in_python(rng, repeated):
    proto = states_model(("b_out", "x"), False)
    x = rng.standard_normal((80, 3)).astype("f4")
    zero = np.zeros(3, "f4")
    _, _, _, seen = graph.build(graph.from_onnx(proto))(np.asarray(4), zero, zero, x)
    np.testing.assert_array_equal(seen, [x] * 4)
    assert not repeated  # what is scanned is what came in: no kernel writes it


BRANCH = """
@G.module
class M:
    @G.function
    def main(p: G.Tensor((), "bool"), x: {type}) -> {type}:
        if p:
            a = op.{then}(x, G.const({number}, "{dtype}"))
            y = a
        else:
            b = op.add(x, x)
            y = b
        return y
"""


@pytest.mark.parametrize(
    ("case", "shape", "dtype", "then", "number"),
    [
        ("selected", (4, 8), "float32", "div", "0.5"),
        ("selected", (3,), "int64", "mul", "2"),
        ("a division that may trap", (3,), "int64", "div", "2"),
        ("too many elements", (99, 99), "float32", "mul", "0.5"),
    ],
)
def test_cheap_branches_become_selections(case, shape, dtype, then, number, rng):
    of = f'G.Tensor({shape}, "{dtype}")'
    module = parse(BRANCH.format(type=of, dtype=dtype, then=then, number=number))
    after = graph.passes.branches(module)
    assert ("if p:" not in after.script()) == (case == "selected")
    x = (rng.standard_normal(shape) * 9).astype(dtype)
    for p in (True, False):
        want = graph.evaluate(module, "main", np.bool_(p), x)
        np.testing.assert_array_equal(graph.evaluate(after, "main", np.bool_(p), x), want)


@pytest.fixture(scope="module")
def net():
    return residual_net(np.random.default_rng(1))


def test_a_model_of_kernels_is_one_native_call(net, rng, monkeypatch):
    compiled = graph.build(graph.from_onnx(net))
    x = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    slow = compiled(np.asfortranarray(x))[0]
    monkeypatch.setattr(type(compiled._program), "run", None)
    first, second = compiled(x)[0], compiled(2 * x)[0]
    np.testing.assert_array_equal(first, slow)
    assert not np.shares_memory(first, second)


def test_consumed_constants_are_in_the_model_alone(net, rng):
    x = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    module, kept = graph.from_onnx(net), graph.from_onnx(net)
    (want,), (got,) = graph.build(kept)(x), graph.build(module, consume=True)(x)
    np.testing.assert_array_equal(got, want)
    assert all(c.array is not None for c in graph.ir.constants(kept))
    stripped = [c for c in graph.ir.constants(module) if c.array is None]
    assert {c.type.shape for c in stripped} >= {(8, 3, 3, 3), (5, 8)}
    with pytest.raises(WorkloadError, match="is not in the text"):
        _ = stripped[0].value


def test_what_is_in_the_cache_is_not_scheduled_again(net, rng, tmp_path, monkeypatch):
    x = rng.standard_normal((1, 3, 12, 12)).astype("f4")
    (want,) = graph.build(graph.from_onnx(net), cache=tmp_path)(x)
    monkeypatch.setattr("autosched.sketch.default.default_schedule", None)
    again = graph.build(graph.from_onnx(net), cache=tmp_path)
    np.testing.assert_array_equal(again(x)[0], want)
    monkeypatch.undo()
    assert all(k.func is not None for k in again.kernels)  # made when somebody asks


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("window", "attrs"),
    [
        ((2, 2), {"strides": [2, 2]}),
        ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((3, 5), {"strides": [2, 3], "pads": [1, 0, 0, 2]}),
        ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
        ((2, 3), {"strides": [3, 4]}),
        ((3, 3), {"strides": [2, 1], "dilations": [2, 2]}),
    ],
)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_transposed_convolutions_take_the_phases_of_their_stride(
    window, attrs, biased, constant, rng
):
    """Also those of windows that are no multiples of it, which have fewer taps."""
    arrays = [rng.standard_normal(s).astype("f4") for s in [(2, 3, 4, 5), (3, 6, *window), (6,)]]
    proto, given = node_model("ConvTranspose", arrays[: 2 + biased], 1, **attrs)
    bound = {"i1": given[1]} if constant else {}
    compiled = graph.build(graph.from_onnx(proto), params=bound)
    (got,) = compiled(*(a for n, a in enumerate(given) if n != 1 or not constant))
    np.testing.assert_allclose(got, reference(proto, *given)[0], rtol=1e-4, atol=1e-4)


def scattered(x, w, strides, dilations, pads, extra, group):
    """A transposed convolution by its definition: each element times the window, where it lands."""
    spatial, rank = x.shape[2:], x.ndim - 2
    sizes = zip(spatial, strides, w.shape[2:], dilations, extra, strict=True)
    size = [(n - 1) * s + (k - 1) * d + 1 + e for n, s, k, d, e in sizes]
    out = np.zeros((x.shape[0], group * w.shape[1], *size))
    into, each = x.shape[1] // group, w.shape[1]
    for g in range(group):
        part, of = x[:, g * into : (g + 1) * into], w[g * into : (g + 1) * into]
        for at in np.ndindex(*spatial):
            for tap in np.ndindex(*w.shape[2:]):
                where = tuple(
                    i * s + k * d for i, s, k, d in zip(at, strides, tap, dilations, strict=True)
                )
                out[(slice(None), slice(g * each, (g + 1) * each), *where)] += (
                    part[(slice(None), slice(None), *at)] @ of[(slice(None), slice(None), *tap)]
                )
    cut = (slice(pads[d], size[d] - pads[rank + d]) for d in range(rank))
    return out[(slice(None), slice(None), *cut)]


@pytest.mark.parametrize("seed", range(6))
def test_transposed_convolutions_of_any_attributes(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    group = int(rng.integers(1, 3))
    window, strides, dilations = (
        [int(n) for n in rng.integers(1, m, rank)] for m in (6, 4, 3 if seed % 3 == 0 else 2)
    )
    reach = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    pads = [int(rng.integers(0, (r + 1) // 2)) for r in (*reach, *reach)]
    extra = [int(rng.integers(0, s)) for s in strides]
    shapes = (2, 2 * group, *rng.integers(3, 7, rank)), (2 * group, 3, *window)
    x, w = (rng.standard_normal(s).astype("f4") for s in shapes)
    data = graph.var("x", x.shape)
    out = op.conv_transpose(
        data, w, strides=strides, dilations=dilations, group=group, pads=pads,
        output_padding=extra,
    )  # fmt: skip
    mod = graph.module(main=graph.function([data], out))
    want = scattered(x, w, strides, dilations, pads, extra, group)
    for found in (graph.build(mod)(x)[0], graph.evaluate(mod, "main", x)):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
