"""The devices that exist in a process of their own only, for `benchmarks/pool.py`."""

from __future__ import annotations

import importlib
import threading
from pathlib import Path

import numpy as np
import pytest

import autosched as at
from autosched.codegen.build import toolchain
from measure.cluster.pool import ClusterPool
from measure.cluster.registry import Hello
from measure.devices import Device
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
HELLO = Hello(Device("m", "x86_64", 1, (), "f"), "llvm -num-cores=1", toolchain(), 1e-3)
RESULT = MeasureResult(Status.OK, timing=Timing(0.5, 0.5))


def test_simulated_devices_measure_all_and_stop_when_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("simulated_devices")
    task = at.SearchTask("matmul", (16, 16, 16), target="llvm -num-cores=1")
    drawn = task.space.sample(np.random.default_rng(0), 1)
    traces = [task.space.trace(*task.space.candidate(drawn, 0))] * 200
    devices = {f"d{n}": HELLO for n in range(20)}
    transport = module.SimulatedTransport(devices, RESULT, 0.01)
    with ClusterPool("simulated", target="llvm -num-cores=1", transport=transport) as pool:
        job = pool.open_job(task.prim_func)
        assert pool.measure(job, traces) == [RESULT] * 200
        cancel = threading.Event()
        results = pool.measure(job, traces, None, lambda _: cancel.set(), cancel)
        assert {r.status for r in results} == {Status.OK, Status.CANCELLED}
        assert pool.measure(job, traces[:20]) == [RESULT] * 20
