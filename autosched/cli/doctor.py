"""`autosched doctor`: what this machine has, and how fast and how steady it is."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import subprocess
from contextlib import closing
from ctypes.util import find_library
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, TypeVar

from autosched.codegen.gpu.kernel import Limits as GPULimits
from autosched.errors import MeasureError
from autosched.runtime.queue import QueueInfo
from autosched.target import Target
from autosched.target.gpu import limits_of
from autosched.target.machine import Limits, measure_limits
from measure.devices import this_device
from measure.local.lock import SlotLock
from measure.machine.gpu import ListGPUs
from measure.machine.threads import Granted
from measure.process.child import Child
from measure.process.protocol import Request
from measure.process.template_client import Limits as ChildLimits
from measure.process.template_client import Template

R = TypeVar("R")
_NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")


@dataclass(frozen=True)
class Report:
    """All that `doctor` prints. `toolchain` maps a name to what was found, or None; `slot` is the
    lock under which this machine is timed, and who has it; `granted` is what the system lets a
    runner have (`measure.machine.threads.Granted`)."""

    device: str
    fingerprint: str
    target: str
    cores: int
    vector_bits: int | None
    vector_registers: int | None
    """None of a GPU's target; `block` is what a block of it may use, None of a CPU's."""
    block: GPULimits | None
    features: tuple[str, ...]
    caches: tuple[str, ...]
    versions: dict[str, str]
    gpus: tuple[str, ...]
    slots: tuple[tuple[str, QueueInfo | str], ...]
    """Of `measure.machine.gpu.ListGPUs`: GPUs as a worker's slots."""
    toolchain: dict[str, str | None]
    slot: dict[str, Any]
    granted: dict[str, bool]
    limits: Limits | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")
    parser.add_argument("--target", default="llvm", help="what to measure with (default: llvm)")
    parser.add_argument("--quick", action="store_true", help="measure nothing, only look")


def run(options: argparse.Namespace) -> int:
    """Look, measure for some 3 seconds, and print. Returns the exit status."""
    report = examine(Target(options.target), measured=not options.quick)
    print(json.dumps(as_json(report)) if options.json else as_text(report))
    return 0


def examine(target: Target, measured: bool = True) -> Report:
    """The report on this machine; the processor is measured for its own target only. Raises
    TargetError if it cannot run code for the target."""
    device = this_device()
    gpu = target.is_gpu
    measured = measured and not gpu
    return Report(
        device=device.model,
        fingerprint=device.fingerprint,
        target=str(target),
        cores=device.cores,
        vector_bits=None if gpu else target.vector_bytes * 8,
        vector_registers=None if gpu else target.vector_registers,
        block=limits_of(target) if gpu else None,
        features=() if gpu else tuple(sorted(target.features)),
        caches=device.caches,
        versions=_versions(),
        gpus=_gpus(),
        slots=_asked(ListGPUs()),
        toolchain=_toolchain(),
        slot=_slot(),
        granted=_asked(Granted()),
        limits=measure_limits(target) if measured else None,
    )


def as_json(report: Report) -> dict[str, Any]:
    """The report as JSON values; rates in FLOP/s and bytes/s, noise as a fraction."""
    return asdict(report)


def as_text(report: Report) -> str:
    """The report for people."""
    found = {name: place or "not found" for name, place in report.toolchain.items()}
    rows = [
        ("processor", f"{report.device} [{report.fingerprint}]"),
        ("cores", str(report.cores)),
        ("caches", ", ".join(report.caches) or "unknown"),
        ("target", report.target),
        *_shape_rows(report),
        ("versions", ", ".join(f"{name} {number}" for name, number in report.versions.items())),
        ("GPU", ", ".join(report.gpus) or "none"),
        *((name, _slot_of_gpu(found)) for name, found in report.slots),
        *found.items(),
        ("slot lock", _slot_text(report.slot)),
        *_granted_rows(report.granted),
    ]
    if report.limits is not None:
        rows += _limit_rows(report.limits)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _shape_rows(report: Report) -> list[tuple[str, str]]:
    """What the target's code is made for."""
    if report.block is None:
        return [
            ("vectors", f"{report.vector_bits} bits, {report.vector_registers} registers"),
            ("features", " ".join(report.features) or "none beyond the baseline"),
        ]
    block = report.block
    warp = f", {block.warp} of them in step" if block.warp > 1 else ""
    text = f"{block.max_threads} threads{warp}; {block.shared_bytes >> 10} KiB of shared memory"
    return [("block", text)]


def _slot_of_gpu(found: QueueInfo | str) -> str:
    """A device in one line, or the first of what is wrong."""
    if isinstance(found, str):
        return f"none: {found.splitlines()[0]}"
    return (
        f"{found.model}, {found.version}, {found.driver}, {found.units} units, "
        f"{found.memory_bytes / 2**30:.3g} GiB; of a block {found.max_threads} threads, "
        f"{found.shared_bytes >> 10} KiB"
    )


def _limit_rows(limits: Limits) -> list[tuple[str, str]]:
    def rates(one: float, all_cores: float, unit: str) -> str:
        text = f"{one / 1e9:.1f} {unit} at 1 thread"
        if limits.threads > 1:
            text += f", {all_cores / 1e9:.1f} at {limits.threads}"
        return text

    return [
        ("FMA peak", f"{rates(limits.fma_peak_1, limits.fma_peak, 'GFLOP/s')} (float32)"),
        ("copy", rates(limits.copy_1, limits.copy, "GB/s")),
        ("copy, streaming", rates(limits.copy_streaming_1, limits.copy_streaming, "GB/s")),
        ("clock noise", f"{limits.noise:.1%} (p95 - p5 of the minimum of 20 runs)"),
    ]


def _slot() -> dict[str, Any]:
    """The lock of this machine's slot: its file, and who holds it now."""
    with closing(SlotLock()) as lock:
        return {"path": str(lock.path), "holders": lock.holders()}


def _slot_text(slot: dict[str, Any]) -> str:
    held = ", ".join(f"{what} by process {pid}" for what, pid in slot["holders"])
    return f"{slot['path']}: {held or 'free'}"


def _asked(request: Request[R]) -> R:
    """What a child that is contained as runners are says."""
    template = Template()
    # Drivers of GPUs reserve more addresses than they ever use.
    child = Child(template, ChildLimits(memory_bytes=0))
    try:
        outcome = child.call(request, timeout=60)
        if outcome.value is None:
            raise MeasureError(f"no measuring process can work here: {outcome.text}")
        return outcome.value
    finally:
        child.kill()
        template.close()


def _granted_rows(granted: dict[str, bool]) -> list[tuple[str, str]]:
    """What is missing is said with what it takes."""
    return [
        (
            "timing",
            "before all other work, a core a thread"
            if granted["priority"]
            else "at the usual priority (for more: root, or `ulimit -e 40`)",
        ),
        (
            "waiting",
            "counted by the system"
            if granted["waiting"]
            else "not counted by the system: other work on the machine goes unnoticed",
        ),
        (
            "kernels",
            "may start no process, signal none and write no file"
            if granted["confined"]
            else "not confined (no seccomp); processes that they start are ended with them",
        ),
    ]


def _versions() -> dict[str, str]:
    import llvmlite
    import llvmlite.binding as llvm
    import numpy

    return {
        "Python": platform.python_version(),
        "NumPy": numpy.__version__,
        "llvmlite": llvmlite.__version__,
        "LLVM": ".".join(str(n) for n in llvm.llvm_version_info),
    }


def _gpus() -> tuple[str, ...]:
    """One line a GPU, as the driver names them; empty without a driver that answers."""
    if shutil.which(_NVIDIA_SMI[0]) is None:
        return ()
    try:
        done = subprocess.run(_NVIDIA_SMI, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as e:
        return (f"nvidia-smi does not answer: {e}",)
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip())


def _toolchain() -> dict[str, str | None]:
    """Where the tools that GPU code needs are: a path, a version or a library name."""
    return {
        "nvcc": shutil.which("nvcc"),
        "NVRTC": find_library("nvrtc") or _package("nvidia-cuda-nvrtc", "nvidia.cu13"),
        "pyopencl": _package("pyopencl", "pyopencl"),
        "OpenCL": find_library("OpenCL"),
    }


def _package(distribution: str, module: str) -> str | None:
    """Version of an installed package, or None. The module is looked for, not imported."""
    try:
        if find_spec(module) is None:
            return None
        return version(distribution)
    except (ModuleNotFoundError, PackageNotFoundError):
        return None
