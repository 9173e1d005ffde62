"""The examples for GPUs run, on OpenCL, and compile for CUDA."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from gpu_run import check

from autosched import te

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_matmul() -> None:
    found = runpy.run_path(str(EXAMPLES / "matmul_gpu.py"))
    s, args = found["matmul"](64)
    text = check(s.replay(args, "main").func, te.create_prim_func(args), rtol=1e-3)
    assert text.count("barrier(") == 1


@pytest.mark.parametrize("name", ["columns_on_threads", "chunks_on_threads"])
def test_scan(name: str) -> None:
    plain, sch = runpy.run_path(str(EXAMPLES / "scan_gpu.py"))[name](300, 5)
    text = check(sch.func, plain, rtol=1e-3, atol=1e-3)
    assert text.count("__kernel") == (2 if name == "columns_on_threads" else 4)
