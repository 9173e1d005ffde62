"""A kernel linked into this process, with memory around it that shows what it should not touch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from autosched.codegen.artifact import Artifact
from autosched.runtime import parallel
from autosched.runtime.call import time_calls, workspace_bytes
from autosched.runtime.link import link
from measure.verification import Guarded


class Kernel:
    """Linked code with a guarded workspace, called on fixed memory. Raises BuildError."""

    def __init__(self, artifact: Artifact, memory: Sequence[Guarded], threads: int) -> None:
        info = artifact.info
        imports = parallel.imports() if info.parallel else {}
        self._library = link(artifact.code, (info.entry,), imports)
        self._entry = self._library[info.entry]
        self._threads = threads
        self._memory = tuple(memory)
        self._args = (ctypes.c_uint64 * max(1, len(memory)))(*(m.address for m in memory))
        self.workspace = Guarded("the workspace", workspace_bytes(info, threads))
        ranges = [n for m in memory for n in (m.address, m.address + m.nbytes)]
        self._flush = (ctypes.c_uint64 * (len(ranges) + 2))(*ranges, 0, 0)

    def call(self, number: int = 1, flush: bool = False) -> float:
        """Seconds that `number` calls take. With `flush` the arguments start out of all caches."""
        nanoseconds = time_calls(
            self._entry,
            ctypes.addressof(self._args),
            self.workspace.address,
            self._threads,
            number,
            ctypes.addressof(self._flush) if flush else 0,
        )
        return max(nanoseconds, 1) * 1e-9
