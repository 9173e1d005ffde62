"""`HardwareParams`: the predecessor's word for what a target says of a machine."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.errors import TargetError
from autosched.target import Target

CACHE_LINE_BYTES = 64
"""Of every CPU that there is code for."""


@dataclass(frozen=True)
class HardwareParams:
    """Figures of a CPU that a task can be given beside its target; None: the target's own.

    `num_cores`: the threads that kernels may use. `vector_unit_bytes` and `cache_line_bytes` follow
    from the target's processor, so they can only be confirmed.
    """

    num_cores: int | None = None
    vector_unit_bytes: int | None = None
    cache_line_bytes: int | None = None

    def applied(self, target: Target) -> Target:
        """`target` with these figures. Raises TargetError for what its processor is not."""
        if target.is_gpu:
            raise TargetError(f"hardware_params are figures of a CPU, and {target} is a GPU")
        for name, wanted, found in (
            ("vector_unit_bytes", self.vector_unit_bytes, target.vector_bytes),
            ("cache_line_bytes", self.cache_line_bytes, CACHE_LINE_BYTES),
        ):
            if wanted is not None and wanted != found:
                raise TargetError(
                    f"{name}={wanted}, and {target} has {found}; name another processor or leave "
                    "out features instead, as in Target('llvm -mcpu=x86-64-v3')"
                )
        if self.num_cores is None:
            return target
        words = [w for w in str(target).split() if not w.startswith("-num-cores=")]
        return Target(" ".join([*words, f"-num-cores={self.num_cores}"]))
