"""float16: operators of sums and of several steps are computed in float32 and rounded once."""

from __future__ import annotations

import numpy as np
import pytest
from graph_models import node_model

from autosched import graph, te
from autosched.graph import op
from autosched.graph.ops.alternatives import conv_product, gemm_rows
from autosched.graph.ops.registry import python_name

RNG = np.random.default_rng(3)


def halves(*shape, spread=1.0, mean=0.0):
    return (RNG.standard_normal(shape) * spread + mean).astype("f2")


def standard(x, axes, epsilon=1e-5):
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def windows(x, n):
    return np.lib.stride_tricks.sliding_window_view(x, (n, n), (2, 3))


def neighbours(x, size=5):
    squares = np.pad(x * x, [(0, 0), (size // 2, size // 2), (0, 0), (0, 0)])
    return sum(squares[:, k : k + x.shape[1]] for k in range(size))


def scattered(x, w):
    """What a transposed convolution of stride 2 gives."""
    out = np.zeros((1, w.shape[1], 2 * x.shape[2] + 2, 2 * x.shape[3] + 2))
    for k, m in np.ndindex(w.shape[2:]):
        at = (slice(None), slice(None), slice(k, k + 2 * x.shape[2], 2),
              slice(m, m + 2 * x.shape[3], 2))  # fmt: skip
        out[at] += np.einsum("ncyx,cf->nfyx", x, w[:, :, k, m])
    return out


ROWS, FAR = halves(4, 768, spread=12), halves(4, 768, spread=0.1, mean=200)
IMAGE, SIDE = halves(1, 4, 64, 64, spread=5, mean=20), halves(2, 12, 4, 4, spread=100)
FEW = np.concatenate([np.linspace(-17, 17, 100), [-9, 1e-3, -1e-3, 60000]]).astype("f2")
ONE, MINUS = np.ones(768, "f2"), np.full((2, 64), -1000, "f2")
CASES = {
    "layer norm": ("LayerNormalization", [ROWS, ONE], {}, lambda x, s: standard(x, 1)),
    "layer norm of equal elements": (
        "LayerNormalization", [np.full((2, 768), 3.3, "f2"), ONE], {"epsilon": 1e-12},
        lambda x, s: 0 * x),
    "rms norm": ("RMSNormalization", [ROWS * 8, ONE], {},
                 lambda x, s: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5)),
    "group norm": ("GroupNormalization", [SIDE, ONE[:12], ONE[:12]], {"num_groups": 3},
                   lambda x, s, b: standard(x.reshape(2, 3, -1), 2).reshape(x.shape) + 1),
    "instance norm": ("InstanceNormalization", [IMAGE * 9, ONE[:4], ONE[:4]], {},
                      lambda x, s, b: standard(x, (2, 3)) + 1),
    "batch norm": ("BatchNormalization", [SIDE, ONE[:12], ONE[:12], ONE[:12], ONE[:12] * 1e-7],
                   {}, lambda x, s, b, m, v: (x - m[0]) / np.sqrt(v[0] + 1e-5) + 1),
    "global average": ("GlobalAveragePool", [IMAGE], {},
                       lambda x: x.mean((2, 3), keepdims=True)),
    "average pool": ("AveragePool", [IMAGE * 40], {"kernel_shape": (32, 32)},
                     lambda x: windows(x, 32).mean((-1, -2))),
    "lp pool": ("LpPool", [IMAGE * 40], {"kernel_shape": (8, 8)},
                lambda x: np.sqrt((windows(x, 8) ** 2).sum((-1, -2)))),
    "mean of a row": ("ReduceMean", [MINUS * 4], {"axes": (1,)},
                      lambda x: x.mean(1, keepdims=True)),
    "root of squares": ("ReduceL2", [MINUS], {"axes": (1,)},
                        lambda x: np.sqrt((x * x).sum(1, keepdims=True))),
    "squares": ("ReduceSumSquare", [halves(2, 600, spread=0.003)], {"axes": (1,)},
                lambda x: (x * x).sum(1, keepdims=True)),
    "sum out of range": ("ReduceSum", [MINUS * 4], {"axes": (1,)},
                         lambda x: x.sum(1, keepdims=True)),
    "log of a sum": ("ReduceLogSum", [MINUS * -4], {"axes": (1,)},
                     lambda x: np.log(x.sum(1, keepdims=True))),
    "product": ("ReduceProd", [np.array([[300, 300, 0.001]], "f2")], {"axes": (1,)},
                lambda x: x.prod(1, keepdims=True)),
    "running sum": ("CumSum", [np.full(3000, 0.1, "f2")], {"axis": 0}, np.cumsum),
    "lp norm": ("LpNormalization", [halves(4, 300, spread=90)], {},
                lambda x: x / np.sqrt((x * x).sum(1, keepdims=True))),
    "lrn": ("LRN", [SIDE * 2], {"size": 5},
            lambda x: x / (1 + 1e-4 / 5 * neighbours(x)) ** 0.75),
    "softmax": ("Softmax", [np.zeros((1, 70000), "f2")], {}, softmax),
    "log softmax": ("LogSoftmax", [np.zeros((1, 70000), "f2")], {}, lambda x: np.log(softmax(x))),
    "mean": ("Mean", [MINUS * 40, MINUS * 40], {}, lambda x, y: x),
    "sum": ("Sum", [MINUS * 40, MINUS * 40, MINUS * -40], {}, lambda x, y, z: x),
    "gemm": ("Gemm", [halves(8, 2000), halves(2000, 4), halves(4)], {},
             lambda a, b, c: a @ b + c),
    "transposed convolution": ("ConvTranspose", [halves(1, 256, 4, 4), halves(256, 3, 4, 4)],
                               {"strides": (2, 2)}, scattered),
    "mish": ("Mish", [FEW], {}, lambda x: x * np.tanh(np.logaddexp(0, x))),
    "softplus": ("Softplus", [FEW], {}, lambda x: np.logaddexp(0, x)),
    "sigmoid": ("Sigmoid", [FEW], {}, lambda x: np.exp(-np.logaddexp(0, -x))),
    "elu": ("Elu", [FEW], {}, lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x)),
    "celu": ("Celu", [FEW], {}, lambda x: np.where(x < 0, np.expm1(np.minimum(x, 0)), x)),
    "gelu": ("Gelu", [FEW[FEW > -3]], {"approximate": "tanh"},
             lambda x: x * 0.5 * (1 + np.tanh((x + 0.044715 * x**3) * np.sqrt(2 / np.pi)))),
}  # fmt: skip


def assert_near(found, want, ulps=2):
    """`want`, of float64, within so many steps of float16."""
    with np.errstate(over="ignore"):
        half = np.asarray(want).astype("f2")
    assert found.dtype == "float16"
    finite = np.isfinite(half)
    np.testing.assert_array_equal(found[~finite], half[~finite])
    wide = half[finite].astype("f8")
    step = np.maximum(2.0 ** (np.floor(np.log2(np.maximum(abs(wide), 1e-30))) - 10), 2.0**-24)
    np.testing.assert_array_less(abs(found[finite] - wide), (ulps + 0.5) * step)


@pytest.mark.parametrize("case", sorted(CASES))
def test_operators_round_once(case: str) -> None:
    name, arrays, attrs, oracle = CASES[case]
    inputs = [graph.var(f"x{n}", a.shape, "float16") for n, a in enumerate(arrays)]
    made = graph.module(
        main=graph.function(inputs, getattr(op, python_name(name))(*inputs, **attrs))
    )
    want = oracle(*(a.astype("f8") for a in arrays))
    assert_near(graph.evaluate(made, "main", *arrays), want)
    assert_near(graph.build(made)(*arrays)[0], want)


def test_a_layer_norm_far_from_zero_and_its_statistics():
    x = graph.var("x", FAR.shape, "float16")
    made = graph.module(main=graph.function([x], op.layer_normalization(x, ONE, outputs=3)))
    wide = FAR.astype("f8")
    want = [standard(wide, 1), wide.mean(1, keepdims=True), 1 / np.sqrt(wide.var(1) + 1e-5)]
    for found in (graph.evaluate(made, "main", FAR), graph.build(made)(FAR)):
        assert [a.dtype for a in found] == ["float16", "float32", "float32"]
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b.reshape(a.shape), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("compute", "shapes", "attrs"),
    [(gemm_rows, [(2, 64), (8, 64), (8,)], {"transB": 1}),
     (conv_product, [(1, 64, 3, 3), (8, 64, 1, 1), (8,)], {})],
)  # fmt: skip
def test_other_definitions_sum_in_float32(compute, shapes, attrs):
    inputs = [te.placeholder(s, "float16", f"x{n}") for n, s in enumerate(shapes)]
    made = compute(*inputs, **attrs)
    text = te.create_prim_func([*inputs, made]).script()
    assert made.dtype == "float16"
    assert "T.float32(0.0)" in text
    assert "T.float16(0.0)" not in text


def test_function_bodies_with_constants_of_float32():
    proto, arrays = node_model("MeanVarianceNormalization", [IMAGE], 1, axes=[0, 2, 3])
    found = graph.build(graph.from_onnx(proto))(*arrays)[0]
    assert_near(found, standard(IMAGE.astype("f8"), (0, 2, 3), 0))


def test_a_sum_before_a_layer_norm():
    x, scale = halves(2, 3, 64, spread=12), halves(64)
    more = {"domain": "com.microsoft", "epsilon": 1e-5}
    proto, arrays = node_model("SkipLayerNormalization", [x, x, scale], 1, **more)
    found = graph.build(graph.from_onnx(proto))(*arrays)[0]
    assert_near(found, standard(2 * x.astype("f8"), 2) * scale, 3)
