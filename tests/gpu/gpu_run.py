"""What the tests of GPU code share: running on OpenCL or a CUDA device, compiling for CUDA."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

import autosched as at
from autosched.building.gpu import compile_kernels
from autosched.codegen.cuda import compile_cuda
from autosched.codegen.gpu.generate import GPUArtifact, generate
from autosched.codegen.gpu.lookback import shared_bytes
from autosched.codegen.gpu.lower import Program, kernels_of
from autosched.codegen.gpu.reduce import exchange_bytes
from autosched.lowering.lower import lower
from autosched.runtime.cuda import CUDAFunction
from autosched.runtime.detect import architecture
from autosched.runtime.device import DeviceFunction
from autosched.runtime.opencl import OpenCLFunction
from autosched.script import parse_func
from autosched.search.analysis import analyse
from autosched.target.gpu import limits_of
from autosched.tir import dtypes, interp, whole
from autosched.tir.nodes import PrimFunc, inputs_of, outputs_of

Array = np.ndarray[Any, Any]


@cache
def opencl() -> at.Target:
    return at.Target("opencl")


@cache
def here() -> at.Target:
    """Where tests run kernels: OpenCL, or this machine's CUDA device with GPU_TESTS=cuda."""
    if os.environ.get("GPU_TESTS") == "cuda":
        return at.Target(f"cuda -arch={architecture()}")
    return opencl()


@cache
def cuda() -> at.Target:
    return at.Target("cuda -arch=sm_90")


def program(func: PrimFunc, target: at.Target | None = None) -> Program:
    """The kernels of a scheduled function."""
    return kernels_of(lower(func), limits_of(target or opencl()))


def source(func: PrimFunc, target: at.Target | None = None) -> str:
    return generate(func, target or opencl()).source


def barriers(text: str) -> int:
    """Barriers that a source has, those that skip an iteration included."""
    return text.count("barrier(CLK") + text.count("__syncthreads()")


def poisoned(func: PrimFunc) -> list[Array]:
    return [
        np.full(b.shape, interp.poison(b.dtype), dtypes.array_dtype(b.dtype))
        for b in outputs_of(func)
    ]


def random_inputs(func: PrimFunc, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    out: list[Array] = []
    for b in inputs_of(func):
        if b.dtype == "bfloat16":
            out.append(dtypes.from_float32(rng.uniform(-1, 1, b.shape)))
        elif dtypes.is_float(b.dtype):
            out.append(rng.uniform(-1, 1, b.shape).astype(b.dtype))
        else:
            out.append(rng.integers(0, 5, b.shape).astype(dtypes.array_dtype(b.dtype)))
    return out


def ordered(func: PrimFunc, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[Array]:
    """Arrays in the order of the parameters."""
    given = {id(b): a for b, a in zip(inputs_of(func), inputs, strict=True)}
    given |= {id(b): a for b, a in zip(outputs_of(func), outputs, strict=True)}
    return [given[id(b)] for b in func.params]


def loaded(artifact: GPUArtifact) -> DeviceFunction:
    """Generated kernels on a device of their target."""
    return (CUDAFunction if artifact.target.startswith("cuda") else OpenCLFunction)(artifact)


def run(func: PrimFunc, inputs: Sequence[Array], target: at.Target | None = None) -> list[Array]:
    """Outputs of a scheduled function on the target, or where tests run."""
    outputs = poisoned(func)
    loaded(compile_kernels(func, target or here()))(*ordered(func, inputs, outputs))
    return outputs


def reference(func: PrimFunc, inputs: Sequence[Array]) -> list[Array]:
    """Outputs of the interpreter, of a program that has not been scheduled."""
    outputs = poisoned(func)
    whole.reference(func, ordered(func, inputs, outputs))
    return outputs


def check(
    scheduled: PrimFunc, plain: PrimFunc, seed: int = 0, nvrtc: bool = True, **tolerance: float
) -> str:
    """Hold a scheduled program on OpenCL equal to `plain`, and compile its CUDA; the OpenCL
    source."""
    inputs = random_inputs(plain, seed)
    limits = {"rtol": 1e-4, "atol": 1e-5, **tolerance}
    for found, wanted in zip(run(scheduled, inputs), reference(plain, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, **limits)
    if nvrtc:
        assert compile_cuda(source(scheduled, cuda()), "sm_90")
    return source(scheduled)


def check_kernels(func: PrimFunc, target: at.Target) -> bool:
    """Hold the analysis of a candidate against its kernels; whether it is valid."""
    found = analyse(func, target)
    if not found.valid:
        return False
    limits = limits_of(target)
    program = kernels_of(lower(func), limits)  # refuses races and what exceeds the limits
    kernels = [k for k in program.kernels if not k.name.endswith("_reset")]
    assert len(kernels) == len(found.kernels)
    for mine, real in zip(found.kernels, kernels, strict=True):
        assert float(mine.blocks) == prod(real.grid)
        assert float(mine.threads) == prod(real.block)
        if real.lookback is not None:
            assert float(mine.shared_bytes) == shared_bytes(real.lookback, prod(real.block))
        asked = sum(b.scope == "shared" for b in real.shared)
        exchanged = exchange_bytes(real, 1)
        if asked and not any(s.block.name.startswith("step") for s in real.sites()):
            assert float(mine.shared_bytes) == real.shared_bytes + exchanged
    return True


def check_all(plain: PrimFunc, scheduled: PrimFunc) -> None:
    """The text reads back, and device and interpreter compute what the plain program does."""
    assert parse_func(scheduled.script()).same(scheduled)
    check(scheduled, plain)
    inputs, outputs = random_inputs(plain), poisoned(scheduled)
    interp.run(scheduled, ordered(scheduled, inputs, outputs))
    for found, wanted in zip(outputs, reference(plain, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
