"""What a runner measures on: this machine's processor, or a GPU. The runner itself is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autosched.codegen.artifact import Artifact, Param
from autosched.codegen.gpu.generate import GPUArtifact
from measure.machine.threads import Threads
from measure.verify.tolerance import Tolerance
from measure.verify.verification import Array, Buffers, Checked

Code = Artifact | GPUArtifact


@dataclass(frozen=True)
class GPU:
    """A device of this machine: `kind` "cuda" or "opencl", and its number (None: the one that is
    taken where nobody chooses)."""

    kind: str
    index: int | None = None


class Runnable(Protocol):
    """A loaded kernel on fixed memory."""

    @property
    def workspace(self) -> Checked:
        """Its own memory."""
        ...

    def call(self, number: int = 1, flush: bool = False) -> float:
        """Seconds that `number` calls take. With `flush` caches hold nothing before each."""
        ...


class Machine(Protocol):
    """Where candidates run."""

    @property
    def threads(self) -> Threads:
        """What is known of the time that this process had to wait."""
        ...

    def buffers(
        self, params: Sequence[Param], values: Sequence[Array], tolerance: Tolerance, shift: int
    ) -> Buffers:
        """A job's arguments; those of a processor start `shift` bytes past a multiple of 64. Raises
        MemoryError."""
        ...

    def kernel(self, artifact: Any, memory: Sequence[Any], threads: int) -> Runnable:
        """Loaded code on this memory. Raises BuildError, MemoryError."""
        ...

    def scratch(self, name: str, nbytes: int) -> Any:
        """Memory for a kernel, between guard zones."""
        ...

    def poison(self, probe: Any) -> None:
        """Fill memory in which code keeps small intermediates with NaN; `probe` is the artifact
        that the machine's clock probe is."""
        ...
