"""`HardwareParams`: the predecessor's word for what a target says of a machine."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.checks import instance
from autosched.errors import TargetError
from autosched.target import Target
from autosched.target.gpu import MOST, PROCESSORS, REGISTERS, SHARED, THREADS, VIRTUAL, WARP

CACHE_LINE_BYTES = 64
"""Of every CPU that there is code for."""


@dataclass(frozen=True)
class HardwareParams:
    """Figures of a machine that a task can be given beside its target; None: the target's own.

    Of a CPU `num_cores` are the threads that kernels may use; `vector_unit_bytes` and
    `cache_line_bytes` follow from the target's processor, so they can only be confirmed.

    Of a GPU `max_shared_memory_per_block` (bytes) and `max_threads_per_block` are what kernels may
    use; `max_vthread_extent` (virtual threads of a thread), `max_local_memory_per_block`
    (registers of 4 bytes of a multiprocessor) and `multiprocessors` (compute units) describe it to
    the search. They become options of the target. `warp_size` can only be confirmed, on CUDA.
    """

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None
    max_shared_memory_per_block: int | None = None
    max_local_memory_per_block: int | None = None
    max_threads_per_block: int | None = None
    max_vthread_extent: int | None = None
    warp_size: int | None = None
    multiprocessors: int | None = None

    @staticmethod
    def of_opencl(index: int | None = None) -> HardwareParams:
        """What OpenCL says of a device of this machine (None: the first GPU, or else the first
        device). Of a CPU the number of units is left out: the model of one is taken.

        Raises BuildError where there is no such device.
        """
        from autosched.runtime.opencl import open_queue

        info = open_queue(index).info
        return HardwareParams(
            max_shared_memory_per_block=min(info.shared_bytes, MOST[SHARED]),
            max_threads_per_block=min(info.max_threads, MOST[THREADS]),
            multiprocessors=None if info.is_cpu else info.units,
        )

    def applied(self, target: Target) -> Target:
        """`target` with these figures. Raises TargetError for what its processor is not."""
        instance("target", target, Target, "a Target", TargetError)
        gpu = {
            SHARED: self.max_shared_memory_per_block,
            THREADS: self.max_threads_per_block,
            VIRTUAL: self.max_vthread_extent,
            PROCESSORS: self.multiprocessors,
            REGISTERS: self.max_local_memory_per_block,
        }
        cpu = {
            "num_cores": (self.num_cores, None),
            "vector_unit_bytes": (self.vector_unit_bytes, target.vector_bytes),
            "cache_line_bytes": (self.cache_line_bytes, CACHE_LINE_BYTES),
        }
        if target.is_gpu:
            self._check(target, [n for n, (value, _) in cpu.items() if value is not None], "CPU")
            if self.warp_size is not None and (target.kind != "cuda" or self.warp_size != WARP):
                raise TargetError(
                    f"warp_size={self.warp_size}, and generated code takes {WARP} for granted on "
                    f"CUDA, and nothing on OpenCL; {target} has no other: leave it out"
                )
            return _with_options(target, gpu)
        named = [name.replace("-", "_") for name, value in gpu.items() if value is not None]
        self._check(target, named + ["warp_size"] * (self.warp_size is not None), "GPU")
        for name, (wanted, found) in cpu.items():
            if found is not None and wanted is not None and wanted != found:
                raise TargetError(
                    f"{name}={wanted}, and {target} has {found}; name another processor or leave "
                    "out features instead, as in Target('llvm -mcpu=x86-64-v3')"
                )
        return _with_options(target, {"num-cores": self.num_cores})

    def _check(self, target: Target, others: list[str], kind: str) -> None:
        """Raise TargetError for figures of a machine of the other kind."""
        if others:
            raise TargetError(
                f"hardware_params: {', '.join(others)} are figures of a {kind}, and {target} is "
                f"none; leave them out"
            )


def _with_options(target: Target, values: dict[str, int | None]) -> Target:
    """`target` with the options that have a value."""
    given = {name: value for name, value in values.items() if value is not None}
    words = [w for w in str(target).split() if w.lstrip("-").partition("=")[0] not in given]
    return Target(" ".join([*words, *(f"-{name}={value}" for name, value in given.items())]))
