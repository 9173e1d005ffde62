"""CUDA kernels give NumPy's results where there is no GPU: on fibers, in two orders of threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cuda_on_host
import numpy as np
import pytest
from cuda_on_host import run_on_host, translated
from gpu_programs import rows_in_one_kernel, shared_rows, tiled_matmul, transposed
from gpu_run import cuda, random_inputs, reference
from test_gpu_candidates import CASES, candidates

from autosched.sketch.generate import generate_space
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of

pytestmark = pytest.mark.skipif(cuda_on_host.CXX is None, reason="no C++ compiler (g++)")
PROGRAMS: dict[str, Callable[[], tuple[PrimFunc, PrimFunc]]] = {
    "tiled": tiled_matmul,
    "doubled": lambda: tiled_matmul(doubled="AB"),
    "softmax by warps": lambda: rows_in_one_kernel("softmax", (4, 100), 64),
    "softmax by shuffles": lambda: rows_in_one_kernel("softmax", (4, 100), 32),
    "layer norm by a tree": lambda: rows_in_one_kernel("layer_norm", (3, 100), 48),
    "argmax": lambda: rows_in_one_kernel("argmax", (3, 100), 64),
    "shared rows": lambda: shared_rows(32, True),
    "transposed": lambda: transposed(1),
}


def agree(scheduled: PrimFunc, plain: PrimFunc, folder: Path) -> bool:
    """Whether both modes give the results of the interpreter."""
    inputs = random_inputs(plain)
    wanted = reference(plain, inputs)
    return all(
        np.allclose(found, want, 1e-3, 1e-4)
        for outputs in run_on_host(scheduled, inputs, folder)
        for found, want in zip(outputs, wanted, strict=True)
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path) -> None:
    plain, scheduled = PROGRAMS[name]()
    assert agree(scheduled, plain, tmp_path)


@pytest.mark.parametrize("what", ["__syncthreads();", "copied();"])
def test_a_barrier_or_a_wait_too_few_is_found(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, scheduled = tiled_matmul(doubled="AB")
    monkeypatch.setattr(
        cuda_on_host, "translated", lambda text: translated(text).replace(what, ";")
    )
    assert not agree(scheduled, plain, tmp_path)


@pytest.mark.parametrize(
    ("name", "sizes"), [("layer_norm", (5, 300, "float64")), ("mul_add_relu", (9, 50, "int64"))]
)
def test_elements_of_eight_bytes(name: str, sizes: tuple[int | str, ...], tmp_path: Path) -> None:
    func = prim_func_of(name, sizes)
    space = generate_space(func, cuda())
    assert agree(space.schedule(*space.default()).func, func, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_candidates(name: str, tmp_path: Path) -> None:
    func = prim_func_of(name, (*CASES[name], "float32"))
    space = generate_space(func, cuda())
    for n, candidate in enumerate(candidates(space, 4, seed=5)):
        folder = tmp_path / str(n)
        folder.mkdir()
        assert agree(space.schedule(*candidate).func, func, folder), candidate
