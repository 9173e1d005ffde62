"""What a runner measures on: this machine's processor, or a GPU. The runner itself is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from autosched.codegen.artifact import Artifact, Param
from autosched.codegen.gpu.generate import GPUArtifact
from measure.status import Status
from measure.verify.verification import Checked, Tolerance

Array = npt.NDArray[Any]
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


class Arguments(Protocol):
    """A job's arguments where kernels find them; see `verification.Buffers`."""

    @property
    def memory(self) -> Sequence[Any]:
        """One a parameter."""
        ...

    def at(self, place: int) -> Sequence[Any]:
        """The same in another place; `memory` itself in place 0."""
        ...

    def reset(self) -> None:
        """Inputs as they were, outputs poisoned."""
        ...

    def fill(self) -> None:
        """`reset`, where this memory has not held the inputs yet."""
        ...

    def check(self, workspace: Checked) -> tuple[Status, str]:
        """Whether a run left everything as it should be."""
        ...


class Waiting(Protocol):
    """How long other work kept this process from its cores."""

    def follow(self) -> None:
        """Take in threads that were started meanwhile."""
        ...

    def waited(self) -> float:
        """Seconds so far."""
        ...


class Machine(Protocol):
    """Where candidates run."""

    @property
    def threads(self) -> Waiting:
        """What is known of the time that this process had to wait."""
        ...

    def buffers(
        self, params: Sequence[Param], values: Sequence[Array], tolerance: Tolerance
    ) -> Arguments:
        """A job's arguments. Raises MemoryError."""
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
