"""autosched: from a tensor computation to the fastest program found for it.

    import autosched as at
    from autosched import te

The public names are handed out on first use, so that importing the package loads neither LLVM nor
a cost model, and `import measure` alone never runs in a circle.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from autosched.version import __version__ as __version__

if TYPE_CHECKING:
    from autosched import auto_scheduler as auto_scheduler
    from autosched import graph as graph
    from autosched import ir as ir
    from autosched import ops as ops
    from autosched import passes as passes
    from autosched import te as te
    from autosched.building.build import build as build
    from autosched.building.build import lower as lower
    from autosched.building.c_source import c_source as c_source
    from autosched.errors import AutoschedError as AutoschedError
    from autosched.lowering.layout_rewrite import LayoutRewriteOption as LayoutRewriteOption
    from autosched.schedule import Schedule as Schedule
    from autosched.target import Target as Target
    from autosched.target.hardware import HardwareParams as HardwareParams
    from autosched.tir.intrin import TensorIntrin as TensorIntrin
    from autosched.tir.module import IRModule as IRModule
    from autosched.tuning import RecordReader as RecordReader
    from autosched.tuning import RecordToFile as RecordToFile
    from autosched.tuning import RecordToStore as RecordToStore
    from autosched.tuning import SearchTask as SearchTask
    from autosched.tuning import TaskScheduler as TaskScheduler
    from autosched.tuning import TuningOptions as TuningOptions
    from autosched.tuning import load_best_record as load_best_record
    from autosched.tuning.history_best import ApplyHistoryBest as ApplyHistoryBest
    from autosched.tuning.models import XGBModel as XGBModel
    from autosched.tuning.policy import PreloadCustomSketchRule as PreloadCustomSketchRule
    from autosched.tuning.policy import PreloadMeasuredStates as PreloadMeasuredStates
    from autosched.tuning.policy import SketchPolicy as SketchPolicy
    from autosched.workloads import register_workload as register_workload
    from cost_model.random import RandomModel as RandomModel
    from measure.cluster.pool import ClusterPool as ClusterPool
    from measure.local.build import LocalBuilder as LocalBuilder
    from measure.local.pool import LocalPool as LocalPool
    from measure.local.slot import LocalRunner as LocalRunner

_HOME = {
    "ApplyHistoryBest": "autosched.tuning.history_best",
    "AutoschedError": "autosched.errors",
    "ClusterPool": "measure.cluster.pool",
    "HardwareParams": "autosched.target.hardware",
    "IRModule": "autosched.tir.module",
    "LayoutRewriteOption": "autosched.lowering.layout_rewrite",
    "LocalBuilder": "measure.local.build",
    "LocalPool": "measure.local.pool",
    "LocalRunner": "measure.local.slot",
    "PreloadCustomSketchRule": "autosched.tuning.policy",
    "PreloadMeasuredStates": "autosched.tuning.policy",
    "RandomModel": "cost_model.random",
    "RecordReader": "autosched.tuning",
    "RecordToFile": "autosched.tuning",
    "RecordToStore": "autosched.tuning",
    "Schedule": "autosched.schedule",
    "SearchTask": "autosched.tuning",
    "SketchPolicy": "autosched.tuning.policy",
    "Target": "autosched.target",
    "TaskScheduler": "autosched.tuning",
    "TensorIntrin": "autosched.tir.intrin",
    "TuningOptions": "autosched.tuning",
    "XGBModel": "autosched.tuning.models",
    "build": "autosched.building.build",
    "c_source": "autosched.building.c_source",
    "load_best_record": "autosched.tuning",
    "lower": "autosched.building.build",
    "register_workload": "autosched.workloads",
}
"""Public name -> the module that defines it."""
_SUBPACKAGES = ("auto_scheduler", "graph", "ir", "ops", "passes", "te")

__all__ = [*_HOME, *_SUBPACKAGES]


def __getattr__(name: str) -> object:
    if name in _HOME:
        value: object = getattr(import_module(_HOME[name]), name)
    elif name in _SUBPACKAGES:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
