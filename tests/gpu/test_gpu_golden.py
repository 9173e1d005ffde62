"""Kernels as text: what a reader sees, and that a change of the printer shows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from factored_programs import by_stages
from gpu_programs import rows_in_one_kernel, tiled_matmul, transposed
from gpu_run import cuda, opencl, source
from scope_programs import rows_of_warps

from autosched.sketch.default import default_schedule
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of


def default(name: str, *args: int) -> PrimFunc:
    return default_schedule(prim_func_of(name, (*args, "float32")), opencl()).func


KERNELS: dict[str, Callable[[], PrimFunc]] = {
    "matmul_tiled": lambda: tiled_matmul()[1],
    "matmul_doubled": lambda: tiled_matmul(doubled="AB")[1],
    "matmul_dynamic": lambda: tiled_matmul(doubled="AB", scope="shared.dyn")[1],
    "rows_of_warps": lambda: rows_of_warps(True)[1],
    "transpose_aligned": lambda: transposed(1)[1],
    "softmax_in_one_kernel": lambda: rows_in_one_kernel("softmax", (8, 100), 64)[1],
    "sum_factored": lambda: by_stages(10, 50)[1],
    "conv2d_default": lambda: default("conv2d", 14, 14, 8, 16, 3, 1, 1, 1, 1),
    "argmax_default": lambda: default("argmax", 4, 1000),
    "cumsum_default": lambda: default("cumsum", 16, 1000),
    "rnn_default": lambda: default("rnn", 4, 2, 3, 40),
}


@pytest.mark.parametrize("language", ["opencl", "cuda"])
@pytest.mark.parametrize("name", KERNELS)
def test_kernel(name: str, language: str, golden: Callable[[str, str], None]) -> None:
    golden(
        f"{name}_{language}", source(KERNELS[name](), cuda() if language == "cuda" else opencl())
    )
