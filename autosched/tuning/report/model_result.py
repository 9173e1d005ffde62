"""What tuning a model found, and how it is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autosched.graph.model import CompiledModel
from autosched.graph.tasks import KernelGroup
from autosched.tuning.report.progress import format_seconds
from autosched.tuning.report.table import as_text
from autosched.tuning.run.model_check import Tried
from autosched.tuning.run.model_tasks import SMALLEST_SHARE, ModelTasks
from autosched.tuning.run.scheduler import SchedulerResult
from autosched.tuning.run.task_state import TaskState

HEADINGS = ("kernel", "calls", "share", "before", "after", "gain", "trials", "")


@dataclass(frozen=True)
class TunedKernel:
    """What became of the kernels of one workload. `seconds` and `default_seconds` are of all their
    calls in a run, `note` says what was taken and why."""

    title: str
    calls: int
    seconds: float
    default_seconds: float
    trials: int
    note: str

    @property
    def gain(self) -> float:
        """How many times faster it has become."""
        return self.default_seconds / self.seconds


@dataclass(frozen=True)
class TunedModel:
    """What `graph.tune` found.

    `model` is compiled and ready to run. `kernels`: those that take the most time first.
    `seconds` and `untuned_seconds` are of whole calls, timed in alternation; None where the kernels
    were not measured on this machine. `estimated_seconds` and `untuned_estimate` are sums over
    kernels, timed inside the model where it was; `alone_seconds` is the sum of the tuned kernels as
    the search timed them, each alone.
    """

    model: CompiledModel
    kernels: tuple[TunedKernel, ...]
    trials: int
    elapsed_s: float
    estimated_seconds: float
    untuned_estimate: float
    alone_seconds: float
    seconds: float | None
    untuned_seconds: float | None

    def as_text(self) -> str:
        """The table of kernels, and the model's times."""
        whole = sum(k.seconds for k in self.kernels)
        lines = [
            as_text(
                HEADINGS,
                (
                    (
                        k.title,
                        str(k.calls),
                        f"{k.seconds / whole:.1%}",
                        format_seconds(k.default_seconds),
                        format_seconds(k.seconds),
                        f"{k.gain:.2f}",
                        str(k.trials),
                        k.note,
                    )
                    for k in self.kernels
                ),
            ),
            "",
            f"kernels    {format_seconds(self.untuned_estimate)} untuned, "
            f"{format_seconds(self.estimated_seconds)} tuned: "
            f"{self.untuned_estimate / self.estimated_seconds:.2f} x",
        ]
        if self.seconds is not None and self.untuned_seconds is not None:
            alone = self.alone_seconds / self.estimated_seconds
            lines.append(
                f"alone      {format_seconds(self.alone_seconds)}, each kernel timed alone: "
                f"{alone:.2f} of its time inside the model"
            )
            lines.append(
                f"model      {format_seconds(self.untuned_seconds)} untuned, "
                f"{format_seconds(self.seconds)} tuned: "
                f"{self.untuned_seconds / self.seconds:.2f} x, timed in alternation"
            )
        lines.append(f"search     {self.trials} trials in {self.elapsed_s:.1f} s")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The figures as one object; times in seconds."""
        return {
            "event": "result",
            "kernels": [{**vars(k), "gain": k.gain} for k in self.kernels],
            "trials": self.trials,
            "elapsed_s": self.elapsed_s,
            "estimated_seconds": self.estimated_seconds,
            "untuned_estimate": self.untuned_estimate,
            "alone_seconds": self.alone_seconds,
            "seconds": self.seconds,
            "untuned_seconds": self.untuned_seconds,
        }


def tuned_model(
    model: CompiledModel,
    plan: ModelTasks,
    states: Sequence[TaskState],
    found: SchedulerResult,
    tried: Tried | None,
    elapsed_s: float,
) -> TunedModel:
    """The result of a run whose kernels were tried inside the model, or could not be."""
    rows = [
        *(_tuned(g, [states[n] for n in of], model, tried)
          for g, of in zip(plan.groups, plan.of, strict=True)),
        *(_left(g, plan, model, tried) for g in plan.left),
    ]  # fmt: skip
    rows.sort(key=lambda r: -r.seconds)
    return TunedModel(
        model,
        tuple(rows),
        found.trials,
        elapsed_s,
        sum(r.seconds for r in rows),
        sum(r.default_seconds for r in rows),
        found.objective,
        None if tried is None else tried.seconds,
        None if tried is None else tried.untuned_seconds,
    )


def _tuned(
    group: KernelGroup, states: Sequence[TaskState], model: CompiledModel, tried: Tried | None
) -> TunedKernel:
    kernel = model.by_name[group.names[0]]
    note = kernel.implementation
    if tried is not None and group in tried.lost:
        note = f"{note}: the tuned one was slower inside the model"
    elif all(s.result is None for s in states):
        note = f"{note}: {states[0].dead}"
    first = states[0]
    best = min(s.seconds for s in states)
    default = first.default if math.isfinite(first.default) else first.estimate
    seconds, before = _inside(group, tried, group.calls * best, group.calls * default)
    return TunedKernel(
        group.title, group.calls, seconds, before, sum(s.trials for s in states), note
    )


def _left(
    group: KernelGroup, plan: ModelTasks, model: CompiledModel, tried: Tried | None
) -> TunedKernel:
    cost = plan.left_seconds[group.names[0]]
    seconds, before = _inside(group, tried, cost, cost)
    note = f"{model.by_name[group.names[0]].implementation}: under {SMALLEST_SHARE:.1%}, not tuned"
    return TunedKernel(group.title, group.calls, seconds, before, 0, note)


def _inside(
    group: KernelGroup, tried: Tried | None, seconds: float, default: float
) -> tuple[float, float]:
    """Seconds of a group's calls in a run, tuned and not: timed inside the model, or else these."""
    timed = [n for n in group.names if tried is not None and n in tried.kernels]
    if tried is None or not timed:
        return seconds, default
    return sum(tried.kernels[n] for n in timed), sum(tried.untuned_kernels[n] for n in timed)
