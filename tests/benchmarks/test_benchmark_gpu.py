"""The benchmark of GPUs where there is none: it says so, and its cases mean what they say."""

from __future__ import annotations

import subprocess
import sys
from math import prod
from pathlib import Path
from types import ModuleType

import pytest

from autosched.errors import BuildError
from autosched.workloads import get_workload, prim_func_of

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import gpu

    return gpu


def test_cases_are_workloads(bench: ModuleType) -> None:
    """A copy that stands beside an operator on rows moves as much."""
    for case in bench.CASES:
        func = prim_func_of(get_workload(case.workload), case.args)
        if case.op == "copy":
            assert prod(func.params[0].shape) == prod(case.op_args)
        else:
            assert (case.op, case.op_args) == (case.workload, case.args)
    assert len({c.name for c in bench.CASES}) == len(bench.CASES)


def test_without_a_device_it_has_a_status_of_its_own(bench: ModuleType) -> None:
    from autosched.runtime.detect import architecture

    try:
        architecture()
    except BuildError:
        done = subprocess.run(
            [sys.executable, str(BENCHMARKS / "gpu.py")], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == bench.NO_DEVICE
        assert "no CUDA device on this machine, so nothing is measured" in done.stdout
        return
    pytest.skip("this machine has a CUDA device")


def test_a_peer_that_cannot_measure_says_why(bench: ModuleType) -> None:
    """With no torch, or one that sees no device."""
    from autosched.runtime.detect import architecture

    try:
        architecture()
    except BuildError:
        with pytest.raises(RuntimeError, match="PyTorch: "):
            bench.Torch(Path(sys.executable))
        return
    pytest.skip("this machine has a CUDA device")
