"""The rules for GPUs, in Ansor's order but for two: a cross-thread reduction is decided on before
what it would read is copied, and copies are made for a block and not for its producers, since
arguments are no blocks."""

from __future__ import annotations

from autosched.sketch.rules.gpu.cache_read import AddCacheRead
from autosched.sketch.rules.gpu.cache_write import AddCacheWrite
from autosched.sketch.rules.gpu.constant import ConstantMatrices
from autosched.sketch.rules.gpu.cross_thread import CrossThreadReduction
from autosched.sketch.rules.gpu.inline import AlwaysInline
from autosched.sketch.rules.gpu.location import SpecialComputeLocation
from autosched.sketch.rules.gpu.recurrence import Recurrence
from autosched.sketch.rules.gpu.split_reduction import SplitReduction
from autosched.sketch.rules.gpu.tensor_cores import TensorCores
from autosched.sketch.rules.gpu.threads import BindThreads
from autosched.sketch.rules.gpu.tiling import MultiLevelTiling
from autosched.sketch.state import Rule

GPU_INLINE_RULES: tuple[Rule, ...] = (AlwaysInline(),)
"""Walked first, as on CPUs."""
GPU_RULES: tuple[Rule, ...] = (
    Recurrence(),
    CrossThreadReduction(),
    TensorCores(),
    SplitReduction(),
    AddCacheRead(),
    SpecialComputeLocation(),
    AlwaysInline(),
    ConstantMatrices(),
    AddCacheWrite(),
    MultiLevelTiling(),
    BindThreads(),
)
"""Walked second. Every block is placed by the first rule that applies to it and skips the rest."""
