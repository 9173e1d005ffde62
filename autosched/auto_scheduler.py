"""TVM's auto_scheduler by its own names: `from autosched import auto_scheduler`.

What is the same in both is the class of `autosched`; the rest is of `autosched.tuning`.
docs/tvm.md maps every name.
"""

from __future__ import annotations

from importlib import import_module

_SAME = (
    "ApplyHistoryBest",
    "HardwareParams",
    "LayoutRewriteOption",
    "LocalBuilder",
    "PreloadCustomSketchRule",
    "PreloadMeasuredStates",
    "RandomModel",
    "RecordToFile",
    "SearchTask",
    "XGBModel",
    "register_workload",
)
_ELSEWHERE = {
    "ComputeDAG": "autosched.dag",
    "LogEstimatedLatency": "autosched.tuning",
    "extract_tasks": "autosched.graph",
}
_OWN = (
    "EmptyPolicy",
    "LocalRPCMeasureContext",
    "LocalRunner",
    "RPCRunner",
    "SketchPolicy",
    "TaskScheduler",
    "TuningOptions",
    "auto_schedule",
    "make_workload_key",
)
_PAIRS = (
    "MeasureInput",
    "MeasureResult",
    "RecordReader",
    "load_best_record",
    "load_records",
    "save_records",
)
_HOME = (
    dict.fromkeys(_SAME, "autosched")
    | _ELSEWHERE
    | dict.fromkeys(_PAIRS, "autosched.tuning.pairs")
    | dict.fromkeys(_OWN, "autosched.tuning.predecessor")
)
"""Name -> the module that has it."""

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(
            f"autosched.auto_scheduler has no {name}; docs/tvm.md says what stands in its place"
        )
    value: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
