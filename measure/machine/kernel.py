"""A kernel linked into this process, with memory around it that shows what it should not touch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

from autosched.codegen.artifact import Artifact
from autosched.codegen.llvm.assemble import compile_ir
from autosched.runtime import parallel
from autosched.runtime.call import time_calls, workspace_bytes
from autosched.runtime.link import Library, link
from autosched.target import Target
from measure.machine.threads import Threads
from measure.verify.verification import Buffers, Guarded, param_bytes

STACK_BYTES = 256 << 10
_POISONER = f"""
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @poison_stack() {{
  %room = alloca [{STACK_BYTES} x i8], align 64
  call void @llvm.memset.p0.i64(ptr %room, i8 -1, i64 {STACK_BYTES}, i1 true)
  ret void
}}
"""


class Kernel:
    """Linked code with a guarded workspace, called on fixed memory. Raises BuildError.

    Weights that the code takes pre-transformed are transformed before the first call, which must
    not be made before they are in `memory`.
    """

    def __init__(self, artifact: Artifact, memory: Sequence[Guarded], threads: int) -> None:
        info = artifact.info
        imports = parallel.imports() if info.parallel else {}
        self._library = link(artifact.code, (info.entry,), imports)
        self._entry = self._library[info.entry]
        self._threads = threads
        used = list(memory)
        self._stages: list[Kernel] = []
        for n, stage in artifact.prepare:
            packed = stage.info.params[1]
            used[n] = Guarded(f"the prepared {packed.name}", param_bytes(packed))
            used[n].poison()
            self._stages.append(Kernel(stage, [memory[n], used[n]], threads))
        self._memory = tuple(used)
        self._args = (ctypes.c_uint64 * max(1, len(used)))(*(m.address for m in used))
        self.workspace = Guarded("the workspace", workspace_bytes(info, threads))
        ranges = [n for m in used for n in (m.address, m.address + m.nbytes)]
        self._flush = (ctypes.c_uint64 * (len(ranges) + 2))(*ranges, 0, 0)

    def call(self, number: int = 1, flush: bool = False) -> float:
        """Seconds that `number` calls take. With `flush` the arguments start out of all caches."""
        while self._stages:
            self._stages.pop().call()
        nanoseconds = time_calls(
            self._entry,
            ctypes.addressof(self._args),
            self.workspace.address,
            self._threads,
            number,
            ctypes.addressof(self._flush) if flush else 0,
        )
        return max(nanoseconds, 1) * 1e-9


def poison_stack() -> None:
    """Fill the stack below the caller with bytes that are NaN in every float type.

    Code keeps small intermediates there. Memory that is fresh holds zeros, which hide that an
    element was never written.
    """
    _stack_poisoner()[1]()


@cache
def _stack_poisoner() -> tuple[Library, Any]:
    """Compiled in the template, whose children have it."""
    library = link(compile_ir(_POISONER, Target("llvm")), ("poison_stack",))
    return library, ctypes.CFUNCTYPE(None)(library["poison_stack"])


class Processor:
    """This machine's processor; see `protocol.Machine`."""

    buffers, kernel, scratch = Buffers, Kernel, Guarded

    def __init__(self) -> None:
        self.threads = Threads()

    def poison(self, probe: Artifact) -> None:
        """The stack."""
        poison_stack()
