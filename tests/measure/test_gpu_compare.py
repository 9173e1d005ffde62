"""Comparing on the device: what passes there passes on the host, and the other way round."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autosched.codegen.artifact import Param
from autosched.codegen.cuda import compile_cuda
from autosched.runtime.opencl import default_queue
from autosched.runtime.queue import Queue
from measure.machine import gpu as gpu_machine
from measure.machine.gpu_compare import Comparison, compare_source
from measure.machine.gpu_memory import DeviceBuffers
from measure.status import Status
from measure.verify.tolerance import Tolerance

Array = np.ndarray[Any, Any]


class Nothing:
    """No workspace."""

    def poison(self) -> None:
        """Nothing to poison."""

    def broken(self) -> str:
        """Nothing to break."""
        return ""


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return Comparison(default_queue())


def buffers_of(queue: Queue, comparison: Comparison, wanted: Array, dtype: str) -> DeviceBuffers:
    params = (
        Param("a", wanted.shape, "float32", False),
        Param("out", wanted.shape, dtype, True),
    )
    values = np.arange(wanted.size, dtype=np.float32), wanted
    made = DeviceBuffers(queue, params, values, Tolerance(1, False), comparison)
    made.reset()
    return made


def special() -> Array:
    wanted = np.random.default_rng(0).standard_normal(10_001).astype(np.float32)
    wanted[[3, 70, 9_000]] = np.inf, -np.inf, np.nan
    return wanted


@pytest.mark.parametrize("place", [0, 3, 70, 4_096, 9_000, 10_000])
def test_one_wrong_element_shows(comparison: Comparison, place: int) -> None:
    """Wherever it stands, and whatever is expected there."""
    wanted = special()
    buffers = buffers_of(default_queue(), comparison, wanted, "float32")
    buffers.memory[1].write(wanted * np.float32(1 + 1e-7))
    assert buffers.check(Nothing()) == (Status.OK, "")
    for value in (2.5, np.inf, -np.inf, np.nan):
        if np.array_equal(np.float32(value), wanted[place], equal_nan=True):
            continue
        found = wanted.copy()
        found[place] = value
        buffers.memory[1].write(found)
        status, text = buffers.check(Nothing())
        assert status is Status.WRONG_RESULT
        assert text.startswith(f"out[{place}] is "), text
        assert text.endswith("1 of 10001 elements are wrong")


@pytest.mark.parametrize("dtype", ["int32", "bool", "int64", "float64", "float16"])
def test_other_types(comparison: Comparison, dtype: str) -> None:
    wanted = (np.arange(4_000) % 7 > 2).astype(dtype)
    buffers = buffers_of(default_queue(), comparison, wanted, dtype)
    assert buffers.check(Nothing())[0] is Status.WRONG_RESULT
    buffers.reset()
    buffers.memory[1].write(wanted)
    assert buffers.check(Nothing()) == (Status.OK, "")


def test_a_changed_input_shows(comparison: Comparison) -> None:
    wanted = special()
    buffers = buffers_of(default_queue(), comparison, wanted, "float32")
    buffers.memory[1].write(wanted)
    changed = np.arange(wanted.size, dtype=np.float32)
    changed[-1] += 1
    buffers.memory[0].write(changed)
    assert buffers.check(Nothing()) == (Status.WRONG_RESULT, "input a was changed")


def test_what_is_right_is_not_copied(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = special()
    buffers = buffers_of(default_queue(), comparison, wanted, "float32")
    buffers.memory[1].write(wanted)
    monkeypatch.setattr(DeviceBuffers, "array", lambda self, n: pytest.fail("it was copied"))
    assert buffers.check(Nothing()) == (Status.OK, "")


def test_a_full_device_compares_on_the_host(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Comparison, values: Array) -> None:
        raise MemoryError("full")

    monkeypatch.setattr(Comparison, "copied", full)
    wanted = special()
    buffers = buffers_of(default_queue(), comparison, wanted, "float32")
    assert buffers.check(Nothing())[0] is Status.WRONG_RESULT
    buffers.reset()
    buffers.memory[1].write(wanted)
    assert buffers.check(Nothing()) == (Status.OK, "")


def test_copies_make_room_for_what_kernels_need(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = special()
    machine = gpu_machine.GPUMachine(default_queue())
    params = (Param("out", wanted.shape, "float32", True),)
    buffers = machine.buffers(params, (wanted,), Tolerance(1, False))

    def kernel(*args: Any) -> str:
        if buffers._wanted:
            raise MemoryError("full")
        return "loaded"

    monkeypatch.setattr(gpu_machine, "DeviceKernel", kernel)
    found: Any = machine.kernel(None, buffers.memory, 1)  # type: ignore[arg-type]
    assert found == "loaded"
    buffers.memory[0].write(wanted)
    assert buffers.check(Nothing()) == (Status.OK, "")

    def full(*args: Any) -> None:
        raise MemoryError("full")

    monkeypatch.setattr(gpu_machine, "DeviceKernel", full)
    with pytest.raises(MemoryError):
        machine.kernel(None, buffers.memory, 1)  # type: ignore[arg-type]


def test_as_cuda_it_is_machine_code() -> None:
    assert compile_cuda(compare_source("cuda", 1056), "sm_90").startswith(b"\x7fELF")


def test_large_numbers_are_not_taken_for_each_other(comparison: Comparison) -> None:
    """The sum of two of them is infinite; what may be taken for one is not."""
    wanted = np.full(1000, 3e38, np.float32)
    found, expected = comparison.copied(wanted / 3), comparison.copied(wanted)
    assert not comparison.near(found, expected, wanted.size, 1e-5, 3e38)
    assert comparison.near(expected, expected, wanted.size, 1e-5, 3e38)
