"""A GPU of a worker as a device of a pool, on PoCL; and slots that cannot run a target."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from cluster_doubles import vector_add
from cluster_processes import Cluster, Process

import autosched as at
from autosched.cli.main import main
from autosched.errors import MeasureError
from autosched.sketch.default import default_schedule
from autosched.target import available_cores
from measure.cluster import supervisor
from measure.cluster.flights import Limits
from measure.cluster.pool import ClusterPool
from measure.cluster.supervisor import SlotOptions, Supervisor, slots_of_gpus
from measure.cluster.worker import local_engine

PATIENT = Limits(batch_seconds=1.0, batch_items=8, silence=30.0, stall=100.0, check=100.0)


def test_slots_are_named_by_device() -> None:
    common = SlotOptions("tcp://127.0.0.1:1", "h200", "box", target="cuda -arch=sm_90")
    slots = slots_of_gpus(common, "cuda", [0, 3])
    assert [s.slot for s in slots] == ["cuda/0", "cuda/3"]
    assert [s.name for s in slots] == ["h200@box:cuda/0", "h200@box:cuda/3"]
    assert SlotOptions.from_json(slots[1].to_json()) == slots[1]


@pytest.mark.skipif(available_cores() < 2, reason="one core is no two slots")
def test_slots_that_share_a_processor_recommend_themselves_for_their_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[SlotOptions] = []

    class Kept(Supervisor):
        def run(self, over: threading.Event) -> None:
            found.extend(slot.options for slot in self._slots)

    monkeypatch.setattr(supervisor, "Supervisor", Kept)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    count = available_cores()
    where = ["--scheduler", "tcp://127.0.0.1:9", "--label", "l", "--slots", str(count)]
    assert main(["worker", *where]) == 0
    assert len(found) == count
    all_cores = os.sched_getaffinity(0)
    try:
        for slot in found:
            os.sched_setaffinity(0, slot.cores)
            assert at.Target(slot.target).num_cores == 1
    finally:
        os.sched_setaffinity(0, all_cores)


@pytest.mark.parametrize(
    ("target", "slot"), [("llvm", "cuda/0"), ("opencl", "cpu"), ("opencl", "cuda/1")]
)
def test_a_slot_of_another_kind_refuses(target: str, slot: str) -> None:
    with pytest.raises(MeasureError, match=f"the slot {slot} is a .* and cannot run {target}"):
        local_engine(at.Target(target), slot)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_gpu_of_a_worker() -> None:
    """Label and device by options; candidates and finalists are measured there."""
    func = vector_add()
    trace = default_schedule(func, at.Target("opencl")).trace
    with Cluster() as cluster:
        options = ("--label", "pocl", "--target", "opencl", "--device", "0", "--name", "here")
        worker = Process("worker", "--scheduler", cluster.address, *options)
        cluster.workers.append(worker)
        worker.wait_for("connected")
        with ClusterPool(
            cluster.address, "pocl", target="opencl", limits=PATIENT, wait_seconds=100
        ) as pool:
            assert pool.device.arch.startswith("OpenCL")
            job = pool.open_job(func)
            assert job.baseline.ok, job.baseline.error
            (result,) = pool.measure(job, [trace])
            (timing,) = pool.remeasure(job, [trace], rounds=2)
            assert result.ok, result.error
            assert str(timing.status) == "ok", timing.error
