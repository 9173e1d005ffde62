"""Targets that are GPUs: `cuda -arch=sm_90` and `opencl`, and what a block may use there.

    opencl [-max-threads-per-block=256] [-max-shared-memory-per-block=32768]
    cuda [-arch=sm_90] [the same two]

Plain `cuda` is this machine's first device.

The limits of `opencl` are what any GPU grants. CUDA's are those of all architectures without asking
for more when a kernel is launched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosched.errors import BuildError, TargetError

if TYPE_CHECKING:
    from autosched.codegen.gpu.kernel import Limits
    from autosched.target import Target

WARP = 32
"""Threads that run in step, and exchange values by shuffles, on all GPUs of CUDA."""
THREADS, SHARED = "max-threads-per-block", "max-shared-memory-per-block"
_DEFAULT = {
    "cuda": {THREADS: 1024, SHARED: 48 << 10},
    "opencl": {THREADS: 256, SHARED: 32 << 10},
}
_MOST = {THREADS: 4096, SHARED: 1 << 20}
_ARCH = re.compile(r"sm_[1-9][0-9]{1,2}[af]?")


@dataclass(frozen=True)
class Device:
    """What models of a GPU know of it. Rates are those of the whole device, a second."""

    processors: int
    """Streaming multiprocessors, or compute units: a block runs on one."""
    clock: float
    """Cycles a second."""
    lanes: int
    """float32 multiply-adds of a processor in a cycle."""
    threads: int
    """Of a processor at once; `blocks`, `registers` (of 4 bytes) and `shared_bytes` likewise."""
    blocks: int
    registers: int
    shared_bytes: int
    thread_registers: int
    """The most that one thread may have."""
    max_virtual: int
    """Virtual threads of a thread above which registers run out."""
    l2_bytes: int
    l2: float
    """Bytes from the second-level cache."""
    memory: float
    """Bytes from memory."""
    launch: float
    """Seconds to launch a kernel."""


H100 = Device(132, 1.75e9, 128, 2048, 32, 65536, 227 << 10, 255, 8, 50 << 20, 7e12, 4.0e12, 3e-6)
A100 = Device(108, 1.41e9, 64, 2048, 32, 65536, 163 << 10, 255, 8, 40 << 20, 4e12, 1.5e12, 4e-6)
POCL = Device(4, 3e9, 8, 4096, 16, 65536, 64 << 10, 255, 8, 16 << 20, 1e11, 2e10, 2e-5)


def device_of(target: Target) -> Device:
    """What is taken for granted of a target: CUDA from sm_90 on is a device of the class of an H100
    or H200, below of an A100; OpenCL, of which the target says nothing, a CPU under PoCL."""
    if target.kind == "opencl":
        return POCL
    return H100 if int(re.sub(r"\D", "", target.mcpu)) >= 90 else A100


def options(kind: str) -> tuple[str, ...]:
    """Names of the options of a kind."""
    return (("arch",) if kind == "cuda" else ()) + (THREADS, SHARED)


def fields(kind: str, given: Mapping[str, str]) -> tuple[str, str]:
    """(architecture, limits that differ from the usual ones, as text). Raises TargetError."""
    arch = given.get("arch", "")
    if kind == "cuda" and not arch:
        arch = _arch_here()
    if kind == "cuda" and not _ARCH.fullmatch(arch):
        raise TargetError(
            f"a cuda target names its architecture, as in -arch=sm_90; found -arch={arch}"
        )
    limits = []
    for name in (THREADS, SHARED):
        value = given.get(name)
        if value is None:
            continue
        if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= _MOST[name]:
            raise TargetError(f"-{name}={value} is no limit; expected 1 to {_MOST[name]}")
        if int(value) != _DEFAULT[kind][name]:
            limits.append(f"-{name}={int(value)}")
    return arch, " ".join(limits)


def _arch_here() -> str:
    """The architecture of this machine's first CUDA device. Raises TargetError."""
    from autosched.runtime.cuda import architecture

    try:
        return architecture()
    except BuildError as e:
        raise TargetError(
            "a cuda target names its architecture, as in -arch=sm_90; found none, and no device to "
            f"ask: {e}"
        ) from e


def text(kind: str, arch: str, limits: str) -> str:
    """The canonical text of a target."""
    return " ".join(x for x in (kind, f"-arch={arch}" if arch else "", limits) if x)


def limits_of(target: Target) -> Limits:
    """What a block may use on `target`."""
    from autosched.codegen.gpu.kernel import Limits

    found = dict(_DEFAULT[target.kind])
    for word in target.mattr.split():
        name, _, value = word.lstrip("-").partition("=")
        found[name] = int(value)
    if target.kind == "cuda":
        blocks = (("blockIdx.x", 2**31 - 1), ("blockIdx.y", 65535), ("blockIdx.z", 65535))
        return Limits(found[THREADS], found[SHARED], WARP, (*blocks, ("threadIdx.z", 64)))
    return Limits(found[THREADS], found[SHARED])
