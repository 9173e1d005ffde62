"""What is measured on: the fingerprint under which measurements are kept apart."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import dataclass
from pathlib import Path

from autosched.runtime.queue import QueueInfo
from autosched.target import available_cores


@dataclass(frozen=True)
class Device:
    """One device. Two with equal fingerprints may share a ranking; any others never do.

    Of a CPU: `caches` are "L1d 48K" and so on, one core's, in order of level; `features` is a hash
    of the processor's feature flags; `cores` are those that this process may use. Of a GPU: `arch`
    is its compute capability, or the version of OpenCL; `cores` are its multiprocessors; `features`
    are the versions of its driver and, of CUDA, of NVRTC.
    """

    model: str
    arch: str
    cores: int
    caches: tuple[str, ...]
    features: str

    @property
    def fingerprint(self) -> str:
        """12 hexadecimal digits."""
        fields = [self.model, self.arch, self.cores, self.caches, self.features]
        return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:12]

    def __str__(self) -> str:
        has = [f"{self.cores} cores", *self.caches, f"features {self.features}"]
        return f"{self.model}, {', '.join(has)} [{self.fingerprint}]"


def gpu_device(info: QueueInfo) -> Device:
    """A GPU."""
    caches = (f"L2 {info.cache_bytes >> 10}K",)
    return Device(info.model, info.version, info.units, caches, info.driver)


def this_device(
    cpuinfo: Path = Path("/proc/cpuinfo"), system: Path = Path("/sys/devices/system/cpu")
) -> Device:
    """The machine that asks."""
    info = _first_processor(cpuinfo.read_text() if cpuinfo.exists() else "")
    arch = platform.machine()
    name = info.get("model name") or info.get("CPU part") or platform.processor() or arch
    # A hypervisor may name every processor alike; family, model and stepping tell them apart.
    numbers = [info[k] for k in ("cpu family", "model", "stepping") if k in info]
    model = f"{name} ({'/'.join(numbers)})" if numbers else name
    flags = sorted((info.get("flags") or info.get("Features") or "").split())
    features = hashlib.sha256(" ".join(flags).encode()).hexdigest()[:8]
    return Device(model, arch, available_cores(), _caches(system / "cpu0" / "cache"), features)


def _first_processor(text: str) -> dict[str, str]:
    """Fields of the first processor; ARM puts some in a section of their own at the end."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    return fields


def _caches(folder: Path) -> tuple[str, ...]:
    found = []
    for entry in sorted(folder.glob("index*")):
        kind, level, size = ((entry / n).read_text().strip() for n in ("type", "level", "size"))
        if kind != "Instruction":
            found.append(f"L{level}{'d' if kind == 'Data' else ''} {size}")
    return tuple(found)
