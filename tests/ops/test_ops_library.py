"""The operator library against NumPy on small sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from ops_references import (
    Array,
    attention,
    capsule,
    conv_bias_relu,
    conv_bn_relu,
    convolve,
    depthwise,
    ema,
    gelu,
    gru_cell,
    layer_norm,
    lstm_cell,
    random_inputs,
    softmax,
    transposed,
    unrolled,
    windows,
    winograd,
)

from autosched.errors import WorkloadError
from autosched.ops import OPERATORS
from autosched.tir import dtypes, interp, whole
from autosched.tir.nodes import outputs_of, sites
from autosched.workloads import prim_func_of

CASES: list[tuple[str, tuple[Any, ...], Callable[..., Any]]] = [
    ("matmul", (5, 7, 3), lambda a, b: a @ b),
    ("matmul", (1, 1, 1), lambda a, b: a @ b),
    ("matmul_add", (5, 7, 3), lambda a, b, c: a @ b + c),
    ("batch_matmul", (2, 3, 4, 5), lambda a, b: a @ b),
    ("matmul_bias_gelu", (5, 7, 3), gelu),
    ("transpose_batch_matmul", (5, 2, 3), lambda q, k: np.einsum("ihd,jhd->hij", q, k)),
    ("conv1d", (9, 3, 4, 3, 2, 1), convolve(1, 2, 1)),
    ("conv2d", (7, 6, 3, 4, 3, 1, 1), convolve(2, 1, 1)),
    ("conv2d", (7, 6, 3, 4, 3, 2, 0), convolve(2, 2, 0)),
    ("conv2d", (8, 8, 4, 6, 3, 2, 2, 2, 1), convolve(2, 2, 2, 2)),
    ("conv2d", (6, 6, 4, 6, 3, 1, 1, 1, 2), convolve(2, 1, 1, 1, 2)),
    ("conv2d", (5, 5, 3, 3, 1, 1, 0, 1, 3), convolve(2, 1, 0, 1, 3)),
    ("conv2d_bias_relu", (5, 6, 3, 4, 3, 1, 1), conv_bias_relu),
    ("conv3d", (3, 4, 5, 2, 3, 2, 1, 1), convolve(3, 1, 1)),
    ("depthwise_conv2d", (7, 6, 4, 3, 2, 1), depthwise),
    # Their last argument is the dtype of the result alone; sums of bytes are exact.
    ("matmul_mixed", (5, 7, 3, "int8"), lambda a, b: a @ b),
    ("matmul_mixed", (5, 7, 3, "uint8"), lambda a, b: a @ b),
    ("conv2d_mixed", (7, 6, 3, 4, 3, 2, 1, 1, 1, "int8"), convolve(2, 2, 1)),
    ("conv2d_mixed", (8, 8, 4, 6, 3, 2, 2, 2, 1, "uint8"), convolve(2, 2, 2, 2)),
    ("conv2d_mixed", (6, 6, 4, 6, 3, 1, 1, 1, 2, "int8"), convolve(2, 1, 1, 1, 2)),
    ("max_pool2d", (7, 6, 3, 3, 2, 1), lambda x: windows(x, 3, 2, 1, 1, -9).max(axis=(2, 3))),
    ("conv2d_bn_relu", (5, 6, 3, 4, 3, 1, 1), conv_bn_relu),
    ("conv2d_transpose", (4, 3, 5, 6, 4, 2, 1), transposed(2, 1)),
    ("conv2d_transpose", (3, 4, 2, 3, 3, 2, 1), transposed(2, 1)),
    ("conv2d_transpose", (3, 3, 2, 2, 5, 3, 2), transposed(3, 2)),
    ("conv2d_transpose", (4, 3, 2, 2, 2, 2, 0), transposed(2, 0)),
    ("conv2d_transpose", (3, 3, 2, 2, 4, 1, 1), transposed(1, 1)),
    ("conv2d_transpose", (3, 2, 2, 1, 2, 3, 0), transposed(3, 0)),
    ("conv2d_transpose", (3, 3, 1, 2, 5, 2, 3), transposed(2, 3)),
    ("conv2d_capsule", (5, 4, 2, 3, 3, 2, 1, 2), capsule),
    ("two_matmuls", (3, 4, 5, 2), lambda a, b, d: a @ b @ d),
    ("mul_add_relu", (4, 5), lambda x, scale, shift: np.maximum(x * scale + shift, 0)),
    ("transpose_batch_matmul_softmax", (4, 2, 3), attention),
    ("winograd_conv2d", (8, 6, 3, 2, 1), winograd(1)),
    ("winograd_conv2d", (9, 7, 2, 3, 0), winograd(0)),
    ("norm", (5, 9), lambda x: np.linalg.norm(x).reshape(1)),
    ("softmax", (5, 9), softmax),
    ("softmax", (3, 1), softmax),
    ("layer_norm", (5, 9), layer_norm),
    ("argmax", (5, 9), lambda x: (x.argmax(axis=1), x.max(axis=1))),
    ("cumsum", (5, 9), lambda x: np.cumsum(x, axis=0)),
    ("cumsum", (2, 1), lambda x: np.cumsum(x, axis=0)),
    ("ema", (6, 4), ema),
    ("rnn", (4, 2, 3, 5), unrolled(lambda x, y, h: (np.tanh(x + y),), 1)),
    ("lstm", (4, 2, 3, 5), unrolled(lstm_cell, 2)),
    ("lstm", (2, 1, 1, 1), unrolled(lstm_cell, 2)),
    ("gru", (4, 2, 3, 5), unrolled(gru_cell, 1)),
]


def execute(name: str, args: Sequence[Any], inputs: Sequence[Array] | None = None) -> Any:
    """Inputs and outputs; both evaluators must agree."""
    func = prim_func_of(name, args)
    inputs = random_inputs(func, name=name) if inputs is None else inputs
    results = []
    for run in (interp.run, whole.reference):
        outputs = [np.full(b.shape, interp.poison(b.dtype), b.dtype) for b in outputs_of(func)]
        run(func, [*inputs, *outputs])
        results.append(outputs)
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return inputs, results[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "args", "expected"), CASES)
def test_against_numpy(
    name: str, args: tuple[Any, ...], expected: Callable[..., Any], dtype: str
) -> None:
    full = (*args, 1, 1, dtype) if name in TWO_OPTIONS and len(args) == 7 else (*args, dtype)
    inputs, outputs = execute(name, full)
    wanted = expected(*(x.astype("float64") for x in inputs))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    tolerance = 2e-5 if dtype == "float32" else 1e-12
    for found, w in zip(outputs, wanted, strict=True):
        assert found.shape == w.shape
        np.testing.assert_allclose(found, w, rtol=tolerance, atol=tolerance)


TWO_OPTIONS = ("conv2d", "conv2d_bias_relu", "conv2d_bn_relu")


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8"])
def test_integer_matmul(dtype: str) -> None:
    (a, b), (c,) = execute("matmul", (4, 5, 6, dtype))
    np.testing.assert_array_equal(c, (a.astype("int64") @ b.astype("int64")).astype(dtype))


@pytest.mark.parametrize(
    ("dtype", "out", "tolerance"),
    [
        ("float16", "float32", 1e-6),
        ("float16", "float16", 1e-3),
        ("bfloat16", "float32", 1e-6),
        ("bfloat16", "bfloat16", 8e-3),
    ],
)
def test_halves_are_summed_in_float32(dtype: str, out: str, tolerance: float) -> None:
    """A sum in halves would stand still at 2048, or at 256."""
    func = prim_func_of("matmul_mixed", (2, 4000, 3, dtype, out))
    assert [b.dtype for b in func.params] == [dtype, dtype, out]
    ones = {"float16": np.float16(1), "bfloat16": dtypes.from_float32(1)}
    a, b = np.full((2, 4000), ones[dtype]), np.full((4000, 3), ones[dtype])
    found = np.zeros((2, 3), dtypes.array_dtype(out))
    whole.reference(func, [a, b, found])
    value = dtypes.to_float32(found) if out == "bfloat16" else found
    np.testing.assert_allclose(value, 4000, rtol=tolerance)


def test_sums_of_bytes_are_those_of_int32() -> None:
    func = prim_func_of("matmul_mixed", (1, 300, 1, "int8", "int32"))
    assert [s.block.name for s in sites(func)] == ["matmul"]  # the sums are the result
    found = np.zeros((1, 1), np.int32)
    whole.reference(func, [np.full((1, 300), -128, "int8"), np.full((300, 1), -128, "int8"), found])
    assert found[0, 0] == 300 * 128 * 128


def test_layer_norm_of_a_large_mean() -> None:
    """The mean of the squares less the square of the mean would lose every digit here."""
    x = (np.random.default_rng(0).uniform(-1, 1, (3, 64)) + 1000).astype("float32")
    ones, zeros = np.ones(64, "float32"), np.zeros(64, "float32")
    found = np.empty_like(x)
    whole.reference(prim_func_of("layer_norm", (3, 64)), [x, ones, zeros, found])
    np.testing.assert_allclose(found, layer_norm(x.astype("float64"), ones, zeros), atol=2e-3)


def test_argmax_takes_the_first_of_equals() -> None:
    x = np.array([[1, 3, 3, 2], [0, 0, 0, 0], [-np.inf] * 4], "float32")
    _, (index, _) = execute("argmax", (3, 4), [x])
    np.testing.assert_array_equal(index, [1, 0, 0])


def test_weights_are_layout_free() -> None:
    sizes = (4, 4, 2, 2, 3, 1, 1)
    for name, args in [
        ("matmul", (2, 2, 2)),
        ("matmul_mixed", (2, 2, 2)),
        ("conv2d", sizes),
        ("conv2d_mixed", sizes),
    ]:
        func = prim_func_of(name, args)
        assert func.attr("layout_free") == (func.params[1].name,)
    assert prim_func_of("softmax", (2, 2)).attr("layout_free") is None


def test_stages_of_softmax() -> None:
    func = prim_func_of("softmax", (2, 3))
    assert [s.block.name for s in sites(func)] == ["maxelem", "exp", "expsum", "softmax"]


def test_every_operator_is_covered() -> None:
    assert {name for name, _, _ in CASES} == set(OPERATORS)


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("matmul", (0, 1, 1), "N of matmul is 0; expected an int >= 1"),
        ("conv2d", (4, 4, 2, 2, 3, 0, 1), "S of conv2d is 0"),
        ("conv2d", (4, 4, 2, 2, 3, 1, -1), "P of conv2d is -1; expected an int >= 0"),
        ("conv2d", (4, 4, 2, 2, 7, 1, 1), "the window of conv2d covers 7 elements along y"),
        ("conv2d", (4, 4, 3, 2, 3, 1, 1, 1, 2), "CI of conv2d is 3, which 2 groups do not divide"),
        (
            "conv2d_mixed",
            (4, 4, 3, 2, 3, 1, 1, 1, 2),
            "CI of conv2d_mixed is 3, which 2 groups do not divide",
        ),
        ("conv2d_mixed", (4, 4, 2, 2, 7, 1, 1), "the window of conv2d covers 7 elements along y"),
        ("matmul_mixed", (1, 0, 1), "L of matmul_mixed is 0; expected an int >= 1"),
        (
            "matmul_mixed",
            (2, 2, 2, "float32"),
            "dtype of matmul_mixed is 'float32'; expected one of float16, bfloat16, int8, uint8",
        ),
        ("conv2d_transpose", (1, 9, 1, 1, 4, 2, 2), "cuts off all of the 4 elements along H"),
        ("conv2d_capsule", (4, 4, 1, 1, 3, 1, 1, 0), "CAP of conv2d_capsule is 0"),
        ("max_pool2d", (2, 9, 1, 5, 1, 1), "the window of max_pool2d covers 5 elements along H"),
    ],
)
def test_refusals(name: str, args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(message)):
        prim_func_of(name, args)
