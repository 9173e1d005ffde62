"""What a build produces: object code and what is needed to call it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Param:
    """One argument of a kernel: a C-contiguous array. `written` marks outputs."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    written: bool


@dataclass(frozen=True)
class KernelInfo:
    """How to call `void entry(ptr args, ptr workspace, i32 threads)`.

    `args` points to one data pointer a parameter, in order. `workspace` is 64-byte aligned and at
    least `workspace_bytes + threads * thread_bytes` long. `parallel` tells whether the code calls
    `autosched_parallel_for`.
    """

    entry: str
    params: tuple[Param, ...]
    workspace_bytes: int = 0
    thread_bytes: int = 0
    parallel: bool = False


@dataclass(frozen=True)
class Artifact:
    """An object file (relocatable, position independent) and its entry. Picklable."""

    code: bytes
    info: KernelInfo
    target: str
