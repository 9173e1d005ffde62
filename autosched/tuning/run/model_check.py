"""Tuned kernels tried inside the model: there weights come from memory, and activations from the
cache that the kernel before has left."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from autosched.graph.compile import compile_ready
from autosched.graph.kernels import Artifacts, Choice, Choose
from autosched.graph.model import CompiledModel
from autosched.graph.tasks import KernelGroup
from autosched.target import Target
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc

TURNS, TURN_SECONDS, CALLS = 12, 0.05, 5
"""Of timing whole models: rounds a side, and what a round takes at least."""
ROUNDS = 10
"""Of timing kernel by kernel: both sides in each."""

Hold = Callable[[], AbstractContextManager[Any]]
"""Makes the context in which nobody else of autosched times or builds."""


@dataclass(frozen=True)
class Tried:
    """`model` is the faster one of the tuned and the untuned, `seconds` and `untuned_seconds` the
    times of a whole call, `kernels` and `untuned_kernels` those of all calls of a kernel in a run,
    by name. `lost`: groups whose tuned kernels were slower inside the model."""

    model: CompiledModel
    seconds: float
    untuned_seconds: float
    kernels: dict[str, float]
    untuned_kernels: dict[str, float]
    lost: tuple[KernelGroup, ...]


def try_out(
    ready: IRModule,
    target: Target,
    groups: Sequence[KernelGroup],
    choose: Choose,
    untuned: CompiledModel,
    artifacts: Artifacts,
    inputs: Sequence[Any],
    hold: Hold,
) -> Tried:
    """Compile a prepared module by `choose`, without the choices that lose inside it."""
    tuned = compile_ready(ready, target, choose=choose, artifacts=artifacts)
    with hold():
        kernels, before = kernel_seconds([tuned, untuned], inputs)
    lost = [g for g in groups if _slower(g, tuned, untuned, kernels, before)]
    if lost:
        out = {a.key for g in lost for a in g.alternatives}
        tuned = compile_ready(ready, target, choose=without(choose, out), artifacts=artifacts)
    with hold():
        seconds, first = model_seconds([tuned, untuned], inputs)
        if lost:
            kernels, before = kernel_seconds([tuned, untuned], inputs)
    if statistics.median(a / b for a, b in zip(seconds, first, strict=True)) > 1.0:
        changed = [g for g in groups if _changed(g, tuned, untuned)]
        tuned, seconds, kernels, lost = untuned, first, before, [*lost, *changed]
    return Tried(
        tuned,
        statistics.median(seconds),
        statistics.median(first),
        kernels,
        before,
        tuple(lost),
    )


def without(choose: Choose, keys: set[str]) -> Choose:
    """Choices for all loop functions but those of some keys."""
    from autosched.tir.canonical import workload_key

    def chosen(func: PrimFunc, target: Target) -> Choice | None:
        return None if workload_key(func) in keys else choose(func, target)

    return chosen


def _changed(group: KernelGroup, tuned: CompiledModel, untuned: CompiledModel) -> bool:
    pairs = ((tuned.by_name[n].artifact, untuned.by_name[n].artifact) for n in group.names)
    return any(a.code != b.code for a, b in pairs)


def _slower(
    group: KernelGroup,
    tuned: CompiledModel,
    untuned: CompiledModel,
    seconds: dict[str, float],
    before: dict[str, float],
) -> bool:
    timed = [n for n in group.names if n in seconds]
    slower = sum(seconds[n] for n in timed) > sum(before[n] for n in timed)
    return slower and _changed(group, tuned, untuned)


def kernel_seconds(
    models: Sequence[CompiledModel], inputs: Sequence[Any], rounds: int = ROUNDS
) -> list[dict[str, float]]:
    """Seconds of all calls of each kernel in a run of each model, by the kernel's name: the least
    of each call, the models in alternation. Kernels inside branches and loops are left out."""
    best: list[dict[tuple[str, str], float]] = [{} for _ in models]
    for _ in range(rounds):
        for model, known in zip(models, best, strict=True):
            for result, kernel, seconds in model.profile(*inputs, repeat=2):
                at = kernel.name, result
                known[at] = min(seconds, known.get(at, seconds))
    found: list[dict[str, float]] = []
    for known in best:
        total: dict[str, float] = {}
        for (name, _), seconds in known.items():
            total[name] = total.get(name, 0.0) + seconds
        found.append(total)
    return found


def model_seconds(models: Sequence[CompiledModel], inputs: Sequence[Any]) -> list[list[float]]:
    """The least seconds of a call in each round of each model."""
    found: list[list[float]] = [[] for _ in models]
    for model in models:
        model(*inputs)
    for _ in range(TURNS):
        for model, times in zip(models, found, strict=True):
            least, calls, start = float("inf"), 0, time.perf_counter()
            while calls < CALLS or time.perf_counter() - start < TURN_SECONDS:
                began = time.perf_counter()
                model(*inputs)
                least = min(least, time.perf_counter() - began)
                calls += 1
            times.append(least)
    return found
