"""Targets that are GPUs: `cuda -arch=sm_90` and `opencl`, and what a block may use there.

    opencl [-max-threads-per-block=256] [-max-shared-memory-per-block=32768]
           [-multiprocessors=40] [-registers-per-block=65536] [-max-vthread-extent=8]
    cuda [-arch=sm_90] [the same]

The first two are what a block may use; the others describe the device to the search. Plain `cuda`
is this machine's first device.

The limits of `opencl` are what any GPU grants. CUDA's are those of the architecture: of more than
48 KiB of shared memory a block a launch asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from autosched.errors import BuildError, TargetError

if TYPE_CHECKING:
    from autosched.codegen.gpu.kernel import Limits


class Described(Protocol):
    """What is read of a target here; `autosched.target.Target` is one, and is above this module."""

    @property
    def kind(self) -> str: ...
    @property
    def mcpu(self) -> str: ...
    @property
    def mattr(self) -> str: ...


WARP = 32
"""Threads that run in step, and exchange values by shuffles, on all GPUs of CUDA."""
THREADS, SHARED = "max-threads-per-block", "max-shared-memory-per-block"
PROCESSORS, REGISTERS, VIRTUAL = "multiprocessors", "registers-per-block", "max-vthread-extent"
STATIC = 48 << 10
"""Bytes of shared memory that a block of CUDA has without asking."""
_MOST_SHARED = {70: 96, 72: 96, 75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227}
_MOST_SHARED |= {101: 227, 103: 227, 110: 227, 120: 99, 121: 99}
"""KiB of shared memory that a block has if it asks, by architecture (CUDA C++ Programming Guide,
table "Technical Specifications per Compute Capability"); of others nothing is taken for granted."""
_OPENCL = {THREADS: 256, SHARED: 32 << 10}
MOST = {THREADS: 4096, SHARED: 1 << 20, PROCESSORS: 4096, REGISTERS: 1 << 20, VIRTUAL: 64}
"""The options that are numbers, and the largest value of each."""
_ARCH = re.compile(r"sm_[1-9][0-9]{1,2}[af]?")


@dataclass(frozen=True)
class Device:
    """What models of a GPU know of it. Rates are those of the whole device, a second.

    Those below are estimates: sizes from data sheets, rates what is sustained of the peaks given
    there, the launch a usual one. No measurement kept in this project stands behind them.
    """

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
GPU = Device(40, 1.5e9, 64, 2048, 32, 65536, 64 << 10, 255, 8, 4 << 20, 1.5e12, 4e11, 1e-5)
"""Of OpenCL, of which only the number of processors is known: rates are for 40."""
POCL = Device(4, 3e9, 8, 4096, 16, 65536, 64 << 10, 255, 8, 16 << 20, 1e11, 2e10, 2e-5)


def device_of(target: Described) -> Device:
    """What is taken for granted of a target: CUDA from sm_90 on is a device of the class of an H100
    or H200, below of an A100; OpenCL a CPU under PoCL, or, if -multiprocessors says how many it
    has, a GPU. Options say otherwise."""
    given = _numbers(target.mattr)
    device = _class(target.kind, target.mcpu, PROCESSORS in given)
    count = given.get(PROCESSORS, device.processors)
    scale = count / device.processors
    return replace(
        device,
        processors=count,
        registers=given.get(REGISTERS, device.registers),
        max_virtual=given.get(VIRTUAL, device.max_virtual),
        shared_bytes=max(device.shared_bytes, given.get(SHARED, 0)),
        l2=device.l2 * scale,
        memory=device.memory * scale,
    )


def _class(kind: str, arch: str, is_gpu: bool) -> Device:
    """The device that a target without options is."""
    if kind == "opencl":
        return GPU if is_gpu else POCL
    number = _number_of(arch)
    device = H100 if number >= 90 else A100
    most = _MOST_SHARED.get(number, device.shared_bytes >> 10)
    return replace(device, shared_bytes=min(device.shared_bytes, most << 10))


def _number_of(arch: str) -> int:
    return int(re.sub(r"\D", "", arch))


def _usual(kind: str, arch: str) -> dict[str, int]:
    """Values that options have where they are not given."""
    if kind == "opencl":
        return {**_OPENCL, REGISTERS: GPU.registers, VIRTUAL: GPU.max_virtual}
    device = _class(kind, arch, True)
    shared = _MOST_SHARED.get(_number_of(arch), STATIC >> 10) << 10
    return {
        THREADS: 1024,
        SHARED: shared,
        PROCESSORS: device.processors,
        REGISTERS: device.registers,
        VIRTUAL: device.max_virtual,
    }


def _numbers(words: str) -> dict[str, int]:
    """The options in a target's text that are numbers."""
    pairs = (word.lstrip("-").partition("=") for word in words.split())
    return {name: int(value) for name, _, value in pairs}


def options(kind: str) -> tuple[str, ...]:
    """Names of the options of a kind."""
    return (("arch",) if kind == "cuda" else ()) + tuple(MOST)


def fields(kind: str, given: Mapping[str, str]) -> tuple[str, str]:
    """(architecture, limits that differ from the usual ones, as text). Raises TargetError."""
    arch = given.get("arch", "")
    if kind == "cuda" and not arch:
        arch = _arch_here()
    if kind == "cuda" and not _ARCH.fullmatch(arch):
        raise TargetError(
            f"a cuda target names its architecture, as in -arch=sm_90; found -arch={arch}"
        )
    limits, usual = [], _usual(kind, arch)
    for name in MOST:
        value = given.get(name)
        if value is None:
            continue
        if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= MOST[name]:
            raise TargetError(f"-{name}={value} is no limit; expected 1 to {MOST[name]}")
        if int(value) != usual.get(name):
            limits.append(f"-{name}={int(value)}")
    return arch, " ".join(limits)


def _arch_here() -> str:
    """The architecture of this machine's first CUDA device. Raises TargetError."""
    from autosched.runtime.detect import architecture

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


def features_of(target: Described) -> frozenset[str]:
    """The instructions that devices have beside those of all, as architectures that have them."""
    found = {"sm_90a"} if target.mcpu == "sm_90a" else set()  # of no other architecture
    if target.kind == "cuda" and _number_of(target.mcpu) >= 80:
        found.add("sm_80")
    return frozenset(found)


def limits_of(target: Described) -> Limits:
    """What a block may use on `target`."""
    from autosched.codegen.gpu.kernel import Limits

    found = {**_usual(target.kind, target.mcpu), **_numbers(target.mattr)}
    if target.kind == "cuda":
        blocks = (("blockIdx.x", 2**31 - 1), ("blockIdx.y", 65535), ("blockIdx.z", 65535))
        sizes = (*blocks, ("threadIdx.z", 64))
        features = tuple(sorted(features_of(target)))
        return Limits(found[THREADS], found[SHARED], WARP, sizes, STATIC, features)
    return Limits(found[THREADS], found[SHARED])
