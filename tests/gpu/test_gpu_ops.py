"""Every operator of the library under the default GPU schedule: OpenCL against NumPy, and as CUDA
through NVRTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gpu_run import barriers, check, cuda, opencl, program, random_inputs, run, source

from autosched import te
from autosched.codegen.cuda import compile_cuda
from autosched.ops import OPERATORS, winograd_weight
from autosched.sketch.default import default_schedule
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of

CASES: dict[str, tuple[Any, ...]] = {
    "matmul": (5, 7, 3),
    "matmul_add": (5, 7, 3),
    "batch_matmul": (2, 9, 4, 15),
    "matmul_bias_gelu": (5, 7, 3),
    "transpose_batch_matmul": (5, 2, 3),
    "transpose_batch_matmul_softmax": (4, 2, 3),
    "two_matmuls": (3, 4, 5, 2),
    "mul_add_relu": (40, 5),
    "conv1d": (9, 3, 4, 3, 2, 1),
    "conv2d": (6, 6, 4, 6, 3, 1, 1, 1, 2),
    "conv2d_bias_relu": (5, 6, 3, 4, 3, 1, 1, 1, 1),
    "conv2d_bn_relu": (5, 6, 3, 4, 3, 1, 1, 1, 1),
    "conv2d_capsule": (5, 4, 2, 3, 3, 2, 1, 2),
    "conv2d_transpose": (4, 3, 5, 6, 4, 2, 1),
    "conv3d": (3, 4, 5, 2, 3, 2, 1, 1),
    "depthwise_conv2d": (7, 6, 4, 3, 2, 1),
    "matmul_mixed": (5, 7, 3, "int8"),  # tested at several dtypes of the result
    "conv2d_mixed": (6, 6, 4, 6, 3, 1, 1, 1, 2, "uint8"),
    "max_pool2d": (7, 6, 3, 3, 2, 1),
    "winograd_conv2d": (8, 6, 3, 2, 1),
    "norm": (17, 19),
    "softmax": (3, 300),
    "layer_norm": (5, 300),
    "argmax": (3, 300),
    "cumsum": (5, 150),
    "ema": (6, 4),
    "rnn": (4, 2, 3, 5),
    "lstm": (4, 2, 3, 5),
    "gru": (4, 2, 3, 5),
}
ACROSS = {"norm", "softmax", "layer_norm", "argmax"}
"""Reductions that a block of threads shares at these sizes."""


def scheduled(
    name: str, args: tuple[Any, ...], dtype: str = "float32"
) -> tuple[PrimFunc, PrimFunc]:
    func = prim_func_of(name, (*args, dtype))
    return func, default_schedule(func, opencl()).func


def agree(name: str, args: tuple[Any, ...], dtype: str, **tolerance: float) -> None:
    func, sch = scheduled(name, args, dtype)
    if name != "winograd_conv2d":
        check(sch, func, **tolerance)
        return
    data, _ = random_inputs(func)  # the weight is one that a transform made
    rng = np.random.default_rng(1)
    weight = winograd_weight(rng.uniform(-1, 1, (3, 3, args[2], args[3])).astype(dtype))
    (found,) = run(sch, [data, weight])
    from gpu_run import reference

    np.testing.assert_allclose(found, reference(func, [data, weight])[0], rtol=1e-4, atol=1e-4)
    assert compile_cuda(source(sch, cuda()), "sm_90")


def test_every_operator_is_covered() -> None:
    assert set(CASES) == set(OPERATORS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CASES)
def test_operator(name: str) -> None:
    agree(name, CASES[name], "float32")


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_operator_in_float64(name: str) -> None:
    agree(name, CASES[name], "float64", rtol=1e-9, atol=1e-9)


LARGER: dict[str, tuple[Any, ...]] = {
    "matmul": (65, 130, 67),
    "matmul_add": (33, 64, 130),
    "batch_matmul": (7, 13, 64, 30),
    "transpose_batch_matmul_softmax": (40, 3, 16),
    "conv2d": (17, 19, 8, 12, 3, 2, 1, 1, 4),
    "conv2d_capsule": (6, 7, 5, 4, 3, 1, 1, 3),
    "conv2d_transpose": (7, 6, 9, 10, 4, 2, 1),
    "conv3d": (5, 6, 7, 4, 5, 3, 1, 1),
    "depthwise_conv2d": (17, 15, 12, 3, 1, 1),
    "winograd_conv2d": (15, 13, 8, 9, 1),
    "norm": (70, 80),
    "softmax": (130, 77),
    "layer_norm": (9, 1000),
    "argmax": (40, 513),
    "cumsum": (60, 300),
    "rnn": (5, 3, 17, 40),
    "lstm": (5, 3, 17, 50),
    "gru": (5, 3, 17, 50),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LARGER)
def test_larger_operator(name: str) -> None:
    agree(name, LARGER[name], "float32", rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("name", sorted(ACROSS))
def test_long_reductions_are_shared_by_threads(name: str) -> None:
    _, sch = scheduled(name, CASES[name])
    text = source(sch, cuda())
    assert "__shfl_down_sync" in text
    assert "exchange" in source(sch)


BARRIERS = {
    # A block of threads reduces: one in the loop of its tree, one between its warps.
    "norm": 1,
    "argmax": 1,
    "softmax": 2,
    "layer_norm": 2,
    # A step waits for the one before, and where gates are shared by threads for these.
    "rnn": 1,
    "lstm": 2,
    "gru": 2,
}
"""Of the default schedule, in both languages; any other operator has none."""


@pytest.mark.parametrize("name", CASES)
def test_barriers_are_those_that_are_needed(name: str) -> None:
    _, sch = scheduled(name, CASES[name])
    expected = BARRIERS.get(name, 0)
    assert (barriers(source(sch)), barriers(source(sch, cuda()))) == (expected, expected)


def test_launches_cover_a_large_convolution() -> None:
    """Proofs that threads stay apart do not go through all points."""
    _, sch = scheduled("conv2d", (224, 224, 3, 64, 7, 2, 3, 1, 1))
    (kernel,) = program(sch).kernels
    assert (kernel.grid, kernel.block) == ((112 * 112 * 64 // 128, 1, 1), (128, 1, 1))


@pytest.mark.parametrize("dtype", ["int8", "bool", "bfloat16", "float16"])
def test_element_types_in_memory(dtype: str) -> None:
    """Copies, and for those that compute a little arithmetic."""
    a = te.placeholder((70,), name="a", dtype=dtype)
    copy = te.compute((70,), lambda i: a(69 - i), name="copy")
    func = te.create_prim_func([a, copy])
    check(default_schedule(func, opencl()).func, func)


def test_symbolic_sizes_are_refused() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    func = te.create_prim_func([a, te.compute((n,), lambda i: a(i) + 1, name="b")])
    from autosched.errors import CodegenError, ScheduleError

    raises: Callable[..., Any] = pytest.raises
    with raises(ScheduleError, match="symbolic sizes n: specialize it first"):
        default_schedule(func, opencl())
    with raises(CodegenError, match="has the symbolic sizes n; GPU code is made for constant"):
        program(func)
    check(default_schedule(func.specialize(n=9), opencl()).func, func.specialize(n=9))
