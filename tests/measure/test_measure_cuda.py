"""Measuring on CUDA as far as it goes without a GPU: guard zones on a driver double, sources."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1] / "runtime"))

from cuda_double import DriverDouble

from autosched.codegen.artifact import Param
from autosched.codegen.cuda import compile_cuda
from autosched.errors import DeviceError
from autosched.runtime.cuda import CUDAQueue
from autosched.runtime.cuda_driver import Driver
from autosched.target import Target
from measure.local import runner
from measure.local.build import BuildProbe, build
from measure.machine.gpu import Workspaces
from measure.machine.gpu_memory import DeviceBuffers, DeviceGuarded
from measure.machine.protocol import GPU
from measure.status import Status
from measure.timing.gpu_clock_probe import probe_source
from measure.verify.tolerance import Tolerance


@pytest.fixture
def queue() -> CUDAQueue:
    return CUDAQueue(Driver(DriverDouble()))


@pytest.mark.parametrize("nbytes", [0, 1, 7, 4096])
def test_guard_zones(queue: CUDAQueue, nbytes: int) -> None:
    """Bytes directly before and after show, whatever the size."""
    memory = DeviceGuarded(queue, "x", nbytes)
    memory.poison()
    assert memory.broken() == ""
    found = np.zeros(nbytes, np.uint8)
    memory.read(found)
    assert (found == 255).all()
    for place, text in ((-1, "1 bytes before its start"), (nbytes, "1 bytes after its end, the")):
        byte = ctypes.c_uint8.from_address(memory.memory.address + place)
        byte.value ^= 255
        assert text in memory.broken()
        memory.arm()
    assert memory.broken() == ""


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "bfloat16"])
def test_outputs_are_poisoned_and_compared(queue: CUDAQueue, dtype: str) -> None:
    params = Param("a", (5,), "float32", False), Param("out", (5,), dtype, True)
    kind = {"bfloat16": "uint16"}.get(dtype, dtype)
    values = np.arange(5, dtype=np.float32), np.ones(5).astype(kind)
    buffers = DeviceBuffers(queue, params, values, Tolerance(1, False))
    spaces = Workspaces(queue, _artifact())
    buffers.reset()
    status, text = buffers.check(spaces)
    assert status is Status.WRONG_RESULT
    assert "5 of 5 elements are wrong" in text
    buffers.reset()
    buffers.memory[1].write(values[1])
    assert buffers.check(spaces) == (Status.OK, "")
    buffers.memory[0].write(values[0] + 1)
    assert buffers.check(spaces) == (Status.WRONG_RESULT, "input a was changed")
    buffers.reset()
    np.testing.assert_array_equal(buffers.array(0), values[0])


def test_results_are_read_into_pages_that_stay(queue: CUDAQueue) -> None:
    """Freed with the array; where there are none to be had, any will do."""
    double = queue.driver.module
    array = queue.host_array((3, 5), np.dtype("float32"))
    part = array[1:]
    assert (array.shape, len(double.pinned)) == ((3, 5), 1)
    del array
    assert len(double.pinned) == 1
    del part
    assert not double.pinned
    double.fails["cuMemHostAlloc"] = double.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    assert queue.host_array((3, 5), np.dtype("float32")).shape == (3, 5)
    assert queue.host_array((0,), np.dtype("float32")).size == 0


def _artifact():  # type: ignore[no-untyped-def]
    from autosched import te

    x = te.placeholder((8,), name="x")
    func = te.create_prim_func([x, te.compute((8,), lambda i: x[i] + 1, name="y")])
    return build(func, None, Target("cuda -arch=sm_90"))


def test_candidates_and_probes_are_machine_code(queue: CUDAQueue) -> None:
    """By NVRTC, in the builder: nothing is compiled where candidates run."""
    assert _artifact().code.startswith(b"\x7fELF")
    request = BuildProbe(Target("cuda -arch=sm_90"), 1, GPU("cuda"), queue.info)
    probe = request.answer([])
    assert probe.code.startswith(b"\x7fELF")
    assert probe.launches[0].grid == (4 * 132, 1, 1)
    assert compile_cuda(probe_source("cuda", 48 << 10), "sm_80")


@pytest.mark.parametrize(
    ("lost", "status"), [(True, Status.DEVICE_LOST), (False, Status.RUNTIME_ERROR)]
)
def test_errors_of_the_device(monkeypatch: pytest.MonkeyPatch, lost: bool, status: Status) -> None:
    """A kernel's error is the candidate's; a device that went away is not."""

    def fail(*_: object) -> None:
        raise DeviceError("it failed", lost)

    monkeypatch.setattr(runner.Run, "_answer", fail)
    reply = runner.Run(None, None, None, None, None).answer([0])  # type: ignore[arg-type]
    assert (reply.status, reply.error) == (status, "it failed")
