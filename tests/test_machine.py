"""The measured limits are finite, consistent and printable; no test asserts a speed."""

from __future__ import annotations

import argparse
import json
import re

import numpy as np
import pytest

from autosched.cli import doctor
from autosched.codegen.llvm.assemble import assembly
from autosched.errors import ArgumentError, TargetError
from autosched.runtime.arrays import empty
from autosched.target import Target, machine


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure for milliseconds: the figures are not looked at."""
    monkeypatch.setattr(machine, "_FMA_STEPS", 1000)
    monkeypatch.setattr(machine, "_RUNS", 3)
    monkeypatch.setattr(machine, "_COPY_RUNS", 2)
    monkeypatch.setattr(machine, "_NOISE_REPEATS", 3)
    monkeypatch.setattr(machine, "_NOISE_MIN_OF", 2)


def values_after_one_call(target: Target, threads: int) -> list[float]:
    kernel, _ = machine._fma_kernel(target, threads, 1000)
    values = machine._fma_values(target)
    values[2:] = -1
    kernel(values)
    return [float(v) for v in values[2:]]


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("cpu", ["host", "x86-64-v3", "x86-64"])
def test_the_peak_kernel_computes_what_its_flop_count_says(cpu: str, threads: int) -> None:
    target = Target("llvm" if cpu == "host" else f"llvm -mcpu={cpu}")
    found = values_after_one_call(target, threads)
    # x -> 0.999 x + 0.001, a thousand times from each start, summed over the accumulators.
    accumulators = 24 if target.vector_registers >= 32 else 12
    decay = 0.999**1000
    expected = sum(1 + (n + 1 - 1) * decay for n in range(accumulators))
    assert found == pytest.approx([expected] * (target.vector_bytes // 4), rel=1e-3)
    _, flop = machine._fma_kernel(target, threads, 1000)
    assert flop == threads * 1000 * accumulators * (target.vector_bytes // 4) * 2


def test_accumulators_stay_in_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(text: str, target: Target) -> bytes:
        seen.append(assembly(text, target))
        return real(text, target)

    real = machine.compile_ir
    monkeypatch.setattr(machine, "compile_ir", spy)
    for cpu in ("x86-64-v3", "x86-64-v4"):
        seen.clear()
        target = Target(f"llvm -mcpu={cpu}")
        if target.missing_here():
            continue
        machine._fma_kernel(target, 1, 1000)
        fused = [line for line in seen[0].splitlines() if "vfmadd" in line]
        assert len(fused) == (24 if target.vector_registers == 32 else 12)
        assert not any("(" in line for line in fused), "an operand comes from memory"


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("pieces", [1, 7, 64])
def test_the_copy_kernel_copies_everything(pieces: int, threads: int, streaming: bool) -> None:
    kernel = machine._copy_kernel(Target("llvm"), threads, pieces, streaming)
    source, copy = empty(pieces * 4096, "uint8"), empty(pieces * 4096, "uint8")
    source[:] = np.arange(pieces * 4096) % 251
    copy[:] = 0
    kernel(source, copy)
    assert (source == copy).all()


def test_measured_limits_are_positive() -> None:
    target = Target("llvm -num-cores=2")
    assert machine.fma_peak(target, 1) > 0
    assert machine.fma_peak(target, 2) > 0
    assert machine.copy_bandwidth(target, 2, array_bytes=1 << 20) > 0
    assert machine.copy_bandwidth(target, 1, streaming=True, array_bytes=1) > 0
    assert machine.noise(target) >= 0


def test_a_run_of_the_peak_kernel_takes_as_long_as_asked() -> None:
    target = Target("llvm")
    short, long = machine.FmaPeak(target, 1, 1e-5), machine.FmaPeak(target, 1, 1e-3)
    assert long._flop / short._flop == pytest.approx(1e-3 / 1e-5, rel=0.01)
    assert machine.FmaPeak(target, 1, 0.0)._flop > 0


def test_misuse_is_refused() -> None:
    target = Target("llvm")
    with pytest.raises(ArgumentError, match="threads is 0; expected 1 or more"):
        machine.fma_peak(target, 0)
    with pytest.raises(ArgumentError, match="array_bytes is 0; expected 1 or more"):
        machine.copy_bandwidth(target, 1, array_bytes=0)
    with pytest.raises(TargetError, match="this machine lacks"):
        machine.fma_peak(Target("llvm -mtriple=aarch64-unknown-linux-gnu"), 1)


def test_doctor_prints_text_and_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.copy_bandwidth, "__defaults__", (False, 1 << 20))
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)

    assert doctor.run(parser.parse_args(["--json"])) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["cores"] >= 1
    assert report["vector_bits"] in (128, 256, 512)
    assert set(report["toolchain"]) == {"nvcc", "NVRTC", "pyopencl", "OpenCL"}
    assert report["limits"]["fma_peak_1"] > 0
    assert Target(report["target"]) == Target("llvm")

    assert doctor.run(parser.parse_args([])) == 0
    text = capsys.readouterr().out
    for word in (
        "processor",
        "FMA peak",
        "GFLOP/s",
        "copy, streaming",
        "clock noise",
        "nvcc",
    ):
        assert word in text

    assert doctor.run(parser.parse_args(["--quick"])) == 0
    assert "FMA peak" not in capsys.readouterr().out


def test_doctor_shows_gpus_as_slots_and_what_a_block_may_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = argparse.ArgumentParser()
    doctor.add_arguments(parser)
    target = "opencl -max-threads-per-block=512"
    assert doctor.run(parser.parse_args(["--target", target])) == 0
    text = capsys.readouterr().out
    assert re.search(r"^block +512 threads; 32 KiB of shared memory$", text, re.M)
    assert "vectors" not in text
    assert "FMA peak" not in text
    assert doctor.run(parser.parse_args(["--target", "cuda -arch=sm_90", "--json"])) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["block"]["max_threads"] == 1024
    assert report["block"]["warp"] == 32
    assert report["vector_bits"] is None
    for name, found in report["slots"]:
        kind, slash, number = name.partition("/")
        assert kind in ("cuda", "opencl")
        # A device, or why there is none, or why it cannot be used.
        assert isinstance(found, str) or (slash and number.isdigit() and found["kind"] == kind)
        assert re.search(rf"^{name} +\S", text, re.M)


def test_doctor_reports_a_driver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(doctor, "_NVIDIA_SMI", ("false",))
    assert doctor._gpus()[0].startswith("nvidia-smi does not answer")
