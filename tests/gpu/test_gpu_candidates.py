"""Random candidates of the GPU spaces of all operators: on OpenCL equal to NumPy, as CUDA through
NVRTC."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from gpu_run import cuda, opencl, random_inputs, reference, run, source

from autosched.codegen.cuda import compile_cuda
from autosched.ops import OPERATORS
from autosched.search.evaluate import legal
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Candidate, Space
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of

CASES: dict[str, tuple[Any, ...]] = {
    "matmul": (15, 37, 23),
    "matmul_add": (15, 37, 23),
    "batch_matmul": (2, 9, 14, 15),
    "matmul_bias_gelu": (15, 17, 13),
    "transpose_batch_matmul": (15, 2, 13),
    "transpose_batch_matmul_softmax": (14, 2, 13),
    "two_matmuls": (13, 4, 15, 12),
    "mul_add_relu": (40, 50),
    "conv1d": (19, 3, 14, 3, 2, 1),
    "conv2d": (6, 6, 4, 6, 3, 1, 1, 1, 2),
    "conv2d_bias_relu": (7, 6, 3, 4, 3, 1, 1, 1, 1),
    "conv2d_bn_relu": (7, 6, 3, 4, 3, 1, 1, 1, 1),
    "conv2d_capsule": (5, 4, 2, 3, 3, 2, 1, 2),
    "conv2d_transpose": (4, 3, 5, 6, 4, 2, 1),
    "conv3d": (3, 4, 5, 2, 3, 2, 1, 1),
    "depthwise_conv2d": (7, 6, 4, 3, 2, 1),
    "matmul_mixed": (19, 37, 23, "int8"),
    "conv2d_mixed": (4, 18, 17, 10, 3, 1, 1, 1, 1, "float16"),
    "max_pool2d": (7, 6, 3, 3, 2, 1),
    "winograd_conv2d": (4, 4, 3, 2, 1),
    "norm": (17, 19),
    "softmax": (13, 300),
    "layer_norm": (5, 300),
    "argmax": (3, 300),
    "cumsum": (150, 20),
    "ema": (6, 40),
    "rnn": (4, 2, 3, 5),
    "lstm": (4, 2, 3, 5),
    "gru": (4, 2, 3, 5),
}
QUICK = {"matmul_bias_gelu": 2, "conv2d_bias_relu": 1, "softmax": 3, "mul_add_relu": 1, "cumsum": 2}


@cache
def workload(name: str) -> tuple[PrimFunc, Space, list[np.ndarray[Any, Any]]]:
    func = prim_func_of(name, (*CASES[name], "float32"))
    return func, generate_space(func, opencl()), random_inputs(func)


def candidates(space: Space, count: int, seed: int) -> list[Candidate]:
    """Random valid ones, from every variant in turn."""
    found: list[Candidate] = []
    rng = np.random.default_rng(seed)
    while len(found) < count:
        drawn = space.sample(rng, 32)
        ok = np.flatnonzero(legal(space, drawn))
        assert len(ok)
        found += [space.candidate(drawn, int(k)) for k in ok]
    order = sorted(range(len(found)), key=lambda k: (k // len(space.variants), found[k][0]))
    return [found[k] for k in order[:count]]


def agree(name: str, count: int, seed: int = 0) -> None:
    func, space, inputs = workload(name)
    wanted = reference(func, inputs)
    for variant, values in candidates(space, count, seed):
        for found, want in zip(
            run(space.schedule(variant, values).func, inputs), wanted, strict=True
        ):
            np.testing.assert_allclose(
                found, want, rtol=1e-3, atol=1e-4, err_msg=f"{name} {variant} {values}"
            )


def test_every_operator_is_covered() -> None:
    assert set(CASES) == set(OPERATORS)


@pytest.mark.parametrize("name", QUICK)
def test_random_candidates(name: str) -> None:
    agree(name, QUICK[name])


@pytest.mark.long
@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_many_random_candidates(name: str, half: int) -> None:
    # PoCL takes half a minute to compile one of Winograd's.
    agree(name, 2 if name == "winograd_conv2d" else 6, seed=1 + half)


@pytest.mark.parametrize("name", ["matmul", "softmax", "conv2d_bias_relu"])
def test_cuda_of_a_candidate_compiles(name: str) -> None:
    space = generate_space(workload(name)[0], cuda())
    (candidate,) = candidates(space, 1, seed=0)
    assert compile_cuda(source(space.schedule(*candidate).func, cuda()), "sm_90")


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_cuda_of_many_candidates_compiles(name: str) -> None:
    space = generate_space(workload(name)[0], cuda())
    for candidate in candidates(space, 2, seed=3):
        assert compile_cuda(source(space.schedule(*candidate).func, cuda()), "sm_90")
