"""Every operator that is to have sketches: they are made, and random candidates of them compute
what NumPy does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
    gelu,
    layer_norm,
    random_inputs,
    softmax,
    transposed,
    windows,
    winograd,
)

from autosched.codegen.build import build_artifact
from autosched.runtime.function import Function
from autosched.search.evaluate import legal
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Population, Space
from autosched.target import Target
from autosched.tir.nodes import outputs_of
from autosched.workloads import prim_func_of

TARGET = Target("llvm -num-cores=2")
FEW, CANDIDATES = 2, 16


def row_argmax(x: Array) -> tuple[Array, Array]:
    return x.argmax(axis=1), x.max(axis=1)


OPERATORS: dict[str, tuple[str, tuple[int, ...], Callable[..., Any]]] = {
    "matmul": ("matmul", (33, 40, 70), lambda a, b: a @ b),
    "matmul of one row": ("matmul", (1, 70, 45), lambda a, b: a @ b),
    "matrix times vector": ("matmul", (37, 100, 1), lambda a, b: a @ b),
    "matmul of few columns, fused": ("matmul_add", (45, 70, 3), lambda a, b, c: a @ b + c),
    "conv2d into few channels": ("conv2d", (9, 8, 33, 3, 3, 1, 1), convolve(2, 1, 1)),
    "matmul and addition": ("matmul_add", (19, 23, 50), lambda a, b, c: a @ b + c),
    "batched matmul": ("batch_matmul", (3, 17, 20, 35), lambda a, b: a @ b),
    "matmul, bias and gelu": ("matmul_bias_gelu", (18, 20, 37), gelu),
    "two matmuls in a row": ("two_matmuls", (17, 20, 33, 19), lambda a, b, d: a @ b @ d),
    "conv1d": ("conv1d", (25, 9, 20, 3, 2, 1), convolve(1, 2, 1)),
    "conv2d": ("conv2d", (13, 11, 5, 19, 3, 1, 1), convolve(2, 1, 1)),
    "conv2d, dilated": ("conv2d", (12, 11, 4, 18, 3, 2, 2, 2, 1), convolve(2, 2, 2, 2)),
    "conv2d, grouped": ("conv2d", (8, 7, 8, 36, 3, 1, 1, 1, 2), convolve(2, 1, 1, 1, 2)),
    "conv2d, groups of three": ("conv2d", (8, 7, 15, 15, 3, 1, 1, 1, 5), convolve(2, 1, 1, 1, 5)),
    "conv2d, groups of four": ("conv2d", (9, 6, 24, 48, 3, 2, 1, 1, 12), convolve(2, 2, 1, 1, 12)),
    "groups of four, bias and relu": (
        "conv2d_bias_relu",
        (8, 7, 12, 24, 3, 1, 1, 1, 6),
        partial(conv_bias_relu, groups=6),
    ),
    "conv3d": ("conv3d", (5, 6, 7, 4, 18, 2, 1, 1), convolve(3, 1, 1)),
    "depthwise": ("depthwise_conv2d", (13, 12, 20, 3, 2, 1), depthwise),
    "transposed conv": ("conv2d_transpose", (6, 5, 5, 18, 4, 2, 1), transposed(2, 1)),
    "capsule conv": ("conv2d_capsule", (6, 5, 3, 17, 3, 2, 1, 2), capsule),
    "winograd conv": ("winograd_conv2d", (10, 9, 3, 18, 1), winograd(1)),
    "conv, bias and relu": ("conv2d_bias_relu", (9, 8, 5, 19, 3, 1, 1), conv_bias_relu),
    "conv, batch norm and relu": ("conv2d_bn_relu", (9, 8, 5, 19, 3, 1, 1), conv_bn_relu),
    "pooling": (
        "max_pool2d",
        (13, 12, 20, 3, 2, 1),
        lambda x: windows(x, 3, 2, 1, 1, -9).max(axis=(2, 3)),
    ),
    "transpose and batch matmul": (
        "transpose_batch_matmul",
        (20, 3, 18),
        lambda q, k: np.einsum("ihd,jhd->hij", q, k),
    ),
    "the same with softmax": ("transpose_batch_matmul_softmax", (20, 3, 18), attention),
    "norm": ("norm", (70, 33), lambda x: np.linalg.norm(x).reshape(1)),
    "softmax": ("softmax", (9, 100), softmax),
    "layer norm": ("layer_norm", (9, 100), layer_norm),
    "arg-reduce": ("argmax", (9, 300), row_argmax),
    "elementwise chain": (
        "mul_add_relu",
        (30, 50),
        lambda x, scale, shift: np.maximum(x * scale + shift, 0),
    ),
}


def some(space: Space, count: int) -> Population:
    """Legal candidates, as they are drawn, mutated and crossed: one a variant at first."""
    rng = np.random.default_rng(0)
    drawn, others = space.sample(rng, 96), space.sample(rng, 96)
    mixed = [drawn, space.mutate(drawn, rng, 0.2), space.crossover(drawn, others, rng)]
    every = Population.concat([p.take(np.arange(k, 96, 3)) for k, p in enumerate(mixed)])
    every = every.take(every.unique())
    every = every.take(np.flatnonzero(legal(space, every)))
    # Round by round over the variants: the n-th of each before the n+1-st of any.
    turn = np.zeros(len(every), dtype=np.int64)
    for _, rows in every.groups():
        turn[rows] = np.arange(len(rows))
    return every.take(np.argsort(turn, kind="stable")[:count])


@pytest.mark.sampled(5)
@pytest.mark.parametrize("count", [FEW, pytest.param(CANDIDATES, marks=pytest.mark.long)])
@pytest.mark.parametrize("operator", OPERATORS)
def test_random_candidates_compute_what_numpy_does(operator: str, count: int) -> None:
    name, args, reference = OPERATORS[operator]
    func = prim_func_of(name, args)
    space = generate_space(func, TARGET)
    population = some(space, count)
    whole = space.enumerate(count)
    assert len(population) == count if whole is None else len(population) > 0
    inputs = random_inputs(func, name=name)
    wanted = reference(*(x.astype("float64") for x in inputs))
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for row in range(len(population)):
        schedule = space.schedule(*space.candidate(population, row))
        outputs = [
            np.full(b.shape, np.nan if b.dtype == "float32" else -77, b.dtype)
            for b in outputs_of(func)
        ]
        Function(build_artifact(schedule.func, TARGET, "search"))(*inputs, *outputs)
        for found, expected in zip(outputs, wanted, strict=True):
            np.testing.assert_allclose(
                found, expected, rtol=2e-3, atol=2e-4, err_msg=str(schedule.trace)
            )
