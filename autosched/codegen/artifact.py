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
    """An object file (relocatable, position independent) and its entry. Picklable.

    `prepare` holds, by the number of a parameter that takes a pre-transformed weight, the code that
    makes it: its parameters are the weight and the argument (see `autosched.layout_rewrite`).
    """

    code: bytes
    info: KernelInfo
    target: str
    prepare: tuple[tuple[int, Artifact], ...] = ()

    @property
    def given(self) -> tuple[Param, ...]:
        """The parameters with the weights as they are before they are prepared."""
        first = {n: artifact.info.params[0] for n, artifact in self.prepare}
        return tuple(first.get(n, p) for n, p in enumerate(self.info.params))
