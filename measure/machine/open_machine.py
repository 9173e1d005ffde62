"""The machine that a runner works on: this processor, or a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.codegen.artifact import Artifact, Param
from measure.machine.kernel import Kernel, poison_stack
from measure.machine.protocol import GPU, Array, Machine
from measure.machine.threads import Threads
from measure.verify.verification import Buffers, Guarded, Tolerance


class Processor:
    """This machine's processor."""

    def __init__(self) -> None:
        self.threads = Threads()

    def buffers(
        self, params: Sequence[Param], values: Sequence[Array], tolerance: Tolerance
    ) -> Buffers:
        """See `Machine.buffers`."""
        return Buffers(params, values, tolerance)

    def kernel(self, artifact: Artifact, memory: Sequence[Guarded], threads: int) -> Kernel:
        """See `Machine.kernel`."""
        return Kernel(artifact, memory, threads)

    def scratch(self, name: str, nbytes: int) -> Guarded:
        """See `Machine.scratch`."""
        return Guarded(name, nbytes)

    def poison(self, probe: Artifact) -> None:
        """The stack."""
        poison_stack()


def machine(where: GPU | None) -> Machine:
    """The machine that `where` names. Raises BuildError if there is none."""
    if where is None:
        return Processor()
    from measure.machine.gpu import GPUMachine, open_gpu

    return GPUMachine(open_gpu(where))
