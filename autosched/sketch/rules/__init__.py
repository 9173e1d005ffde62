"""The rules, as tables of (condition, apply): what Ansor calls sketch generation rules."""

from __future__ import annotations

from autosched.sketch.rules.chained import ChainedProducts
from autosched.sketch.rules.constant import ConstantMatrices
from autosched.sketch.rules.default import DefaultRule
from autosched.sketch.rules.inline import AlwaysInline
from autosched.sketch.rules.lanes import LaneTiling
from autosched.sketch.rules.location import ComputeLocation
from autosched.sketch.rules.outputs import RowOutputs
from autosched.sketch.rules.recurrence import Recurrence
from autosched.sketch.rules.rfactor import AddRfactor
from autosched.sketch.rules.tensorize import Tensorize
from autosched.sketch.rules.tiling import MultiLevelTiling
from autosched.sketch.rules.transformed import TransformedRows
from autosched.sketch.state import Rule

INLINE_RULES: tuple[Rule, ...] = (AlwaysInline(),)
"""Walked first, so that the others see the program without its cheap intermediates."""
CPU_RULES: tuple[Rule, ...] = (
    Recurrence(),
    TransformedRows(),
    ChainedProducts(),
    ConstantMatrices(),
    AddRfactor(),
    Tensorize(),
    LaneTiling(),
    MultiLevelTiling(),
    ComputeLocation(),
    RowOutputs(),
    DefaultRule(),
)
"""Walked second. Every block is placed by the first rule that applies to it and skips the rest."""
