"""Devices of OpenCL as a local pool: every status provoked on PoCL, and the search goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
from gpu_doubles import BUILD_FUNC
from measure_doubles import PATIENT, Double, limited, vector_add

import autosched as at
from autosched import te
from autosched.codegen.artifact import Artifact, KernelInfo
from autosched.errors import MeasureError
from autosched.schedule import Schedule
from autosched.sketch.default import default_schedule
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of
from measure.local.build import LocalBuilder
from measure.local.lock import SlotLock
from measure.local.pool import LocalPool, runs
from measure.local.runner import Probes
from measure.local.slot import LocalRunner, gpu_slot
from measure.machine.protocol import GPU
from measure.pool import JobHandle
from measure.status import Status

GOOD = Double("right")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    builder = LocalBuilder(timeout=60, n_parallel=1, build_func=BUILD_FUNC)
    folder = tmp_path_factory.mktemp("lock")
    runner = LocalRunner(timeout=PATIENT, baseline_timeout=PATIENT, budget_ms=2, lock_folder=folder)
    with LocalPool("opencl", builder=builder, runner=runner) as made:
        yield made


@pytest.fixture(scope="module")
def job(pool: LocalPool) -> JobHandle:
    return pool.open_job(vector_add())


EXPECTED = {
    "not_opencl": (Status.BUILD_ERROR, "refused the generated code"),
    "too_many_threads": (Status.BUILD_ERROR, "has 10000 threads a block"),
    "wrong_result": (Status.WRONG_RESULT, "out[0] is "),
    "wrong_at_the_end": (Status.WRONG_RESULT, "out[999] is 7.0, expected "),
    "unwritten": (Status.WRONG_RESULT, "out[997] is nan, expected "),
    "reads_unwritten_shared": (Status.WRONG_RESULT, "1000 are NaN"),
    "right_once": (Status.WRONG_RESULT, "the first call was right, a later one was not"),
    "writes_input": (Status.WRONG_RESULT, "input a was changed"),
    "write_after_end": (Status.OUT_OF_BOUNDS, "out (4000 bytes): 4 bytes after its end, the first"),
    "write_before_start": (Status.OUT_OF_BOUNDS, "4 bytes before its start, the nearest 5 away"),
    "write_past_workspace": (Status.OUT_OF_BOUNDS, "workspace 0 (128 bytes)"),
    "huge_workspace": (Status.OUT_OF_MEMORY, "allocating "),
    "segfault": (Status.RUNTIME_ERROR, "killed by SIGSEGV"),
    "endless_loop": (Status.RUN_TIMEOUT, "not done within"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_gpu_status_and_going_on(pool: LocalPool, job: JobHandle, name: str) -> None:
    status, text = EXPECTED[name]
    with limited(pool, 3.0) if status is Status.RUN_TIMEOUT else nullcontext():
        (bad,) = pool.measure(job, [Double(name)])  # type: ignore[list-item]
    (good,) = pool.measure(job, [GOOD])  # type: ignore[list-item]
    assert (bad.status, good.status) == (status, Status.OK), (bad.error, good.error)
    assert text in bad.error
    assert (bad.seconds is None) == (status is not Status.OK)


def test_times_of_the_device(pool: LocalPool, job: JobHandle) -> None:
    """Measured, measured again, and the baseline is the default schedule."""
    assert job.baseline.ok, job.baseline.error
    assert job.baseline_trace == default_schedule(vector_add(), at.Target("opencl")).trace
    (result,) = pool.measure(job, [GOOD])  # type: ignore[list-item]
    (timing,) = pool.remeasure(job, [GOOD], rounds=2)  # type: ignore[list-item]
    assert result.ok, result.error
    assert timing.status is Status.OK, timing.error
    assert timing.timing is not None
    assert len(timing.timing.blocks) == 2
    assert result.runs >= 2


def test_fingerprint(pool: LocalPool) -> None:
    """Name, version, multiprocessors and driver; not this machine's processor as such."""
    device = pool.device
    assert device.arch.startswith("OpenCL ")
    assert device.cores >= 1
    assert device.features
    with LocalPool("llvm") as processor:
        assert processor.device.fingerprint != device.fingerprint


def test_a_device_on_the_processor_has_its_lock(pool: LocalPool, job: JobHandle) -> None:
    """Kernels of PoCL keep the cores busy: nothing else may be timed or built meanwhile."""
    assert pool._slot._lock().path.name == "slot-cpu.lock"
    assert pool._slot._lock(cpu=True) is pool._slot._lock()


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        LocalPool("opencl", runner=LocalRunner(device=77)) as made,
        pytest.raises(MeasureError, match="no device 77 here; it has 0 "),
    ):
        made.open_job(vector_add())
    with LocalPool("opencl", runner=LocalRunner(device=77)) as made:
        probes = Probes(Artifact(b"", KernelInfo("probe", ()), "opencl"), 1)
        outcome = made._slot._get_ready(probes)
        assert outcome is not None
        assert (outcome.kind, outcome.text[:27]) == ("lost", "the GPU cannot be opened: T")
    with pytest.raises(MeasureError, match="device 1 is a GPU's number, and the target is llvm"):
        LocalPool("llvm", runner=LocalRunner(device=1))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-5,3")
    assert gpu_slot(GPU("cuda", 1)) == "cuda/3"
    with pytest.raises(MeasureError, match="there is no GPU 2: CUDA_VISIBLE_DEVICES is 'GPU-5,3'"):
        LocalPool("cuda -arch=sm_90", runner=LocalRunner(device=2))


def test_machine_code_runs_on_its_generation() -> None:
    pairs = ("sm_80", "sm_86"), ("sm_90", "sm_90"), ("sm_90a", "sm_90")
    assert all(runs(made, has) for made, has in pairs)
    pairs = ("sm_86", "sm_80"), ("sm_80", "sm_90"), ("sm_90a", "sm_91")
    assert not any(runs(made, has) for made, has in pairs)


def test_slots_of_a_gpu_and_of_the_processor_are_apart(tmp_path: object) -> None:
    """A GPU's timing keeps nobody from building on the processor."""
    from pathlib import Path

    folder = Path(str(tmp_path))
    one, other = SlotLock("cuda/0", folder), SlotLock("cpu", folder)
    with one.timing(), other.building() as waited:
        assert waited < 60
    one.close()
    other.close()


WORKLOADS = {
    "matmul_add": (16, 24, 8),
    "argmax": (5, 40),
    "lstm": (3, 2, 4, 4),
}


@pytest.fixture(scope="module")
def real_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    folder = tmp_path_factory.mktemp("lock")
    # Flushing writes twice the last cache before each call, which takes a processor long.
    runner = LocalRunner(
        number=1, repeat=2, baseline_timeout=PATIENT, lock_folder=folder, flush_cache=True
    )
    builder = LocalBuilder(n_parallel=1, timeout=60)
    with LocalPool("opencl", builder=builder, runner=runner) as made:
        yield made


@pytest.mark.parametrize("name", WORKLOADS)
def test_default_schedules_are_measured(real_pool: LocalPool, name: str) -> None:
    """Floats, integers, recurrences and several kernels, by the default builder; with the caches
    flushed. The reference is the processor's."""
    func = prim_func_of(at.workloads.get_workload(name), WORKLOADS[name])
    job = real_pool.open_job(func)
    assert job.baseline.ok, job.baseline.error
    job.close()


def test_a_wrong_schedule_does_not_pass(real_pool: LocalPool) -> None:
    """The reference is made from the workload, not from what is built for the device."""
    func = vector_add()
    job = real_pool.open_job(func)
    other = _product()
    trace = default_schedule(other, at.Target("opencl")).trace
    (result,) = real_pool.measure(job, [trace])
    assert result.ok, "the same loops, and this program"
    unbound = Schedule(func).trace
    (alone,) = real_pool.measure(job, [unbound])
    assert alone.ok, alone.error
    assert np.isfinite(alone.seconds or np.inf)


def _product() -> PrimFunc:
    from autosched import te

    a = te.placeholder((1000,), name="a")
    b = te.placeholder((1000,), name="b")
    return te.create_prim_func([a, b, te.compute((1000,), lambda i: a[i] * b[i], name="out")])


def test_large_data_is_no_leak(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner that holds a job's data is not replaced for it."""
    monkeypatch.setattr("measure.local.slot.GROW_BYTES", 200 << 20)
    x = te.placeholder((1 << 24,), name="x")
    func = te.create_prim_func([x, te.compute(x.shape, lambda i: x[i] + 1, name="y")])
    folder = tmp_path_factory.mktemp("lock")
    runner = LocalRunner(baseline_timeout=PATIENT, budget_ms=2, lock_folder=folder)
    builder = LocalBuilder(timeout=60, n_parallel=1)
    with LocalPool("opencl", builder=builder, runner=runner) as pool:
        job = pool.open_job(func)
        begun = pool._slot.child.starts
        (result,) = pool.measure(job, [job.baseline_trace])
        assert result.ok, result.error
        assert pool._slot.child.starts == begun
        assert pool._slot.child.pid is not None
