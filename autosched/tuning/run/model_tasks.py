"""The tasks of a model: its kernels as they are built, and what each is taken to cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosched.errors import WorkloadError
from autosched.graph.compile import prepared
from autosched.graph.kernels import Alternative
from autosched.graph.tasks import KernelGroup, kernel_groups
from autosched.target import Target
from autosched.tir.module import IRModule
from autosched.tuning.task import SearchTask

SMALLEST_SHARE = 0.005
"""Of the model's time: kernels below it get their default schedule."""


def extract_tasks(
    module: IRModule,
    target: Target | str = "llvm",
    params: Mapping[str, Any] | None = None,
    precision: str = "float32",
) -> tuple[list[SearchTask], list[float]]:
    """The tasks of a module's function `main`, and how often a run of it calls each.

    This is `graph.build` stopped before code is generated, so the tasks' keys are those of
    `build(module, target, params=params, precision=precision).kernels`. Other implementations of
    the same kernels, which `graph.tune` tunes besides, are left out. Raises Unsupported for what
    cannot be compiled.
    """
    where = target if isinstance(target, Target) else Target(target)
    groups = kernel_groups(prepared(module, params, precision, where), where)
    tasks = [search_task(g, g.alternatives[0], where) for g in groups]
    return tasks, [float(g.calls) for g in groups]


def search_task(group: KernelGroup, one: Alternative, target: Target) -> SearchTask:
    """The task of one implementation of a group's kernel, named after both."""
    task = SearchTask(prim_func=one.func, target=target)
    task.name = f"{one.func.name} by {one.name}" if len(group.alternatives) > 1 else one.func.name
    return task


@dataclass(frozen=True)
class ModelTasks:
    """What is tuned of a model: `groups[n]` by the tasks `of[n]`, indices into `tasks`, the groups
    in falling order of the time they are taken to need. `estimates`: seconds of one call of each
    task; `weights`: its calls. The groups in `left` are not tuned; `left_seconds`, by the first
    name of each, is what they are taken to need in a run."""

    groups: tuple[KernelGroup, ...]
    of: tuple[tuple[int, ...], ...]
    tasks: tuple[SearchTask, ...]
    weights: tuple[float, ...]
    estimates: tuple[float, ...]
    left: tuple[KernelGroup, ...]
    left_seconds: Mapping[str, float]

    @property
    def rest(self) -> float:
        """Seconds of all groups that are left."""
        return sum(self.left_seconds.values())

    def objective(self, seconds: Sequence[float]) -> float:
        """Seconds of a run of the model, given those of one call of each task: of the
        implementations of a kernel the fastest is taken."""
        return self.rest + sum(
            g.calls * min(seconds[n] for n in of)
            for g, of in zip(self.groups, self.of, strict=True)
        )


def model_tasks(
    groups: Sequence[KernelGroup],
    seconds: Mapping[str, float],
    target: Target,
    wanted: frozenset[str] = frozenset(),
    most: int | None = None,
) -> ModelTasks:
    """The tasks worth tuning, and those whose key is in `wanted`; at most `most` of them, of the
    kernels that need the most time. `seconds`: of all calls of a kernel in a run, by its name,
    where they were measured; else a bound is taken, of arithmetic and memory traffic."""
    from cost_model.roofline import bound_seconds

    called = [g for g in groups if g.calls]
    if not called:
        raise WorkloadError(
            "the model has no kernel to tune: all that it computes are views, constants, arrays of "
            "size 0, or operators that run in NumPy"
        )
    cost = []
    for g in called:
        timed = [seconds[n] for n in g.names if n in seconds]
        bound = bound_seconds(g.alternatives[0].func, target)
        cost.append(sum(timed) if timed else g.calls * bound)
    least = SMALLEST_SHARE * sum(cost)
    order = sorted(range(len(called)), key=lambda n: -cost[n])
    keep = [
        n for n in order if cost[n] >= least or any(a.key in wanted for a in called[n].alternatives)
    ]
    while most is not None and sum(len(called[n].alternatives) for n in keep) > most:
        keep.pop()
    left = [n for n in order if n not in keep]
    tasks: dict[str, SearchTask] = {}
    weights: dict[str, float] = {}
    estimates: dict[str, float] = {}
    # Every kernel has its first round before the second implementation of any has.
    most = max(len(called[n].alternatives) for n in keep)
    for n, a in (
        (n, called[n].alternatives[which])
        for which in range(most)
        for n in keep
        if which < len(called[n].alternatives)
    ):
        if a.key not in tasks:
            tasks[a.key] = search_task(called[n], a, target)
            estimates[a.key] = cost[n] / called[n].calls
        weights[a.key] = weights.get(a.key, 0.0) + called[n].calls
    place = {key: n for n, key in enumerate(tasks)}
    return ModelTasks(
        tuple(called[n] for n in keep),
        tuple(tuple(place[a.key] for a in called[n].alternatives) for n in keep),
        tuple(tasks.values()),
        tuple(weights.values()),
        tuple(estimates.values()),
        tuple(called[n] for n in left),
        {called[n].names[0]: cost[n] for n in left},
    )
