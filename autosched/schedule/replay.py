"""The steps of a trace, done on a schedule."""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.checks import instance
from autosched.errors import NotBatchable, ScheduleError
from autosched.schedule import more
from autosched.schedule.check import is_population
from autosched.schedule.handles import RV
from autosched.schedule.recorder import Recorder
from autosched.schedule.trace import RETURN_TUPLES, Decision, Ref, Step, Trace, step_text

PRIMITIVES = frozenset(
    {
        "get_block",
        "get_blocks",
        "get_loops",
        "get_child_blocks",
        "get_producers",
        "get_consumers",
        "split",
        "split_axis",
        "reorder",
        "fuse",
        "parallel",
        "vectorize",
        "unroll",
        "bind",
        "compute_at",
        "reverse_compute_at",
        "compute_inline",
        "reverse_compute_inline",
        "cache_read",
        "cache_write",
        "pad_axis",
        "rfactor",
        "decompose_reduction",
        "parallel_scan",
        "single_pass_scan",
        "annotate",
        "unannotate",
        "set_scope",
        "storage_align",
        "double_buffer",
        "tensorize",
        "transform_layout",
        *more.MORE,
    }
)
"""The methods that a trace may call."""


def replay(sch: Recorder, trace: Trace) -> None:
    """Do the steps of `trace` on top. Raises ScheduleError, naming the step that fails."""
    instance("replay: the trace", trace, Trace, "a Trace, such as other.trace", ScheduleError)
    handles: dict[str, RV] = {}

    def resolve(value: Any) -> Any:
        if isinstance(value, Ref):
            if value.name not in handles:
                raise ScheduleError(f"{value.name} is not the result of an earlier step")
            return handles[value.name]
        return value

    for n, step in enumerate(trace.steps):
        if step.op not in PRIMITIVES:
            raise ScheduleError(f"step {n + 1}: no primitive {step.op!r}")
        try:
            used = step.map(resolve)
            result = getattr(sch, step.op)(*used.args, **dict(used.kwargs))
        except ScheduleError as e:
            kind = NotBatchable if _may_differ(sch, step) else type(e)
            raise kind(f"step {n + 1}, {step_text(step)}: {e}") from e
        except TypeError as e:
            raise ScheduleError(f"step {n + 1}, {step_text(step)}: {e}") from e
        outs = result if step.op in RETURN_TUPLES else () if result is None else (result,)
        if len(outs) != len(step.outs):
            raise ScheduleError(
                f"step {n + 1}, {step_text(step)}: expected {len(step.outs)} results, found "
                f"{len(outs)}"
            )
        handles.update(zip(step.outs, outs, strict=True))


def _may_differ(sch: Recorder, step: Step) -> bool:
    """Whether a candidate alone may be granted what is refused to the population: its forms may be
    simpler."""
    used = (sch._int(v) for v in step.values() if isinstance(v, Decision))
    return is_population(sch.func) or any(isinstance(v, np.ndarray) for v in used)
