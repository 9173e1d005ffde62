"""`graph.tune`: the kernels of a model tuned under one budget, and tried inside the model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from autosched.checks import listed
from autosched.errors import ArgumentError
from autosched.graph.compile import compile_ready, prepared
from autosched.graph.drawing import draw
from autosched.graph.kernels import Artifacts, Choice, Choose, Progress
from autosched.graph.model import CompiledModel
from autosched.graph.tasks import KernelGroup, kernel_groups
from autosched.target import Target
from autosched.target.machine import fma_peak
from autosched.tir.canonical import workload_key
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc
from autosched.tuning.best import opened, schedule_of
from autosched.tuning.callbacks import RecordToStore, recorder_of
from autosched.tuning.graph import best_of
from autosched.tuning.options import TuningOptions, checked
from autosched.tuning.pools import pool_of
from autosched.tuning.report.model_result import TunedModel, tuned_model
from autosched.tuning.run.model_check import kernel_seconds, try_out
from autosched.tuning.run.model_tasks import ModelTasks, model_tasks
from autosched.tuning.run.scheduler import SchedulerResult, TaskScheduler
from autosched.tuning.run.transfer import Transfer
from measure.local.lock import SlotLock
from measure.local.pool import LocalPool
from measure.pool import Pool
from records import Record


def tune(
    module: IRModule,
    options: TuningOptions | None = None,
    target: Target | str = "llvm",
    records: str | None = None,
    params: Mapping[str, Any] | None = None,
    inputs: Sequence[Any] | None = None,
    progress: Progress | None = None,
    precision: str = "float32",
) -> TunedModel:
    """Tune the kernels of the function `main` and compile it with what was found.

    The options' budget is the whole model's: `num_measure_trials` over all kernels, spent where a
    run's time falls fastest; kernels below half a per cent of it keep their default schedule.
    `records`: a log, a SQLite file or a database URL that takes the records, from which
    `graph.build` makes the model again; `resume` goes on with the jobs there. `inputs` (default:
    random ones) are what the model is timed with, where the pool is this machine: tuned and untuned
    in alternation, and kernels that are slower inside the model keep their default schedules.
    `precision` as `graph.build` takes it.

    Raises Unsupported and BuildError as `graph.build` does, TuningError if no kernel has a right
    program, RecordError, and KeyboardInterrupt, everything recorded, on Ctrl-C.
    """
    start = time.perf_counter()
    options = checked(options)
    where = target if isinstance(target, Target) else Target(target)
    if records is not None:
        recorder = recorder_of(records, options.resume)
        options = replace(options, measure_callbacks=(recorder, *options.measure_callbacks))
    ready = prepared(module, params, precision, where)
    artifacts: Artifacts = {}
    untuned = compile_ready(ready, where, progress=progress, artifacts=artifacts)
    groups = kernel_groups(ready, where)
    with pool_of(options, where, aligned=True) as pool:
        given = _inputs(untuned, inputs) if isinstance(pool, LocalPool) else None
        seconds: dict[str, float] = {}
        if given is not None:
            with alone():
                (seconds,) = kernel_seconds([untuned], given)
        recorded = _recorded(options, groups, where, pool)
        plan = model_tasks(groups, seconds, where, frozenset(recorded))
        bounds = None if given is None or where.is_gpu else _bounds(plan, where)
        scheduler = TaskScheduler(
            plan.tasks,
            plan.weights,
            objective_func=plan.objective,
            estimates=plan.estimates,
            bounds=bounds,
        )
        transfer = Transfer(lambda: scheduler.states, options.seed, recorded)
        found = scheduler.tune(replace(options, pool=pool, builder=None, runner=None), transfer)
    with ExitStack() as stack:
        choose = _of_results(plan, found)
        if records is not None:
            choose = best_of(stack.enter_context(opened(records)))
        tried = None
        if given is not None:
            tried = try_out(ready, where, groups, choose, untuned, artifacts, given, alone)
            model = tried.model
        else:
            model = compile_ready(ready, where, choose=choose, artifacts=artifacts)
    elapsed = time.perf_counter() - start
    return tuned_model(model, plan, scheduler.states, found, tried, elapsed)


@contextmanager
def alone() -> Iterator[None]:
    """Nobody else of autosched times or builds here meanwhile."""
    with SlotLock().timing():
        yield


def _bounds(plan: ModelTasks, target: Target) -> list[float]:
    """Seconds below which no schedule of each task goes on this machine."""
    from cost_model.roofline import least_seconds

    with alone():
        peak = fma_peak(target, target.num_cores)
    return [least_seconds(t.prim_func, target, peak) for t in plan.tasks]


def _inputs(model: CompiledModel, given: Sequence[Any] | None) -> list[Any] | None:
    """What a model is timed with; None where sizes are open and nothing was given."""
    if given is not None:
        listed("inputs", given, object, "arrays in the order of the model's inputs", ArgumentError)
        return model.checked(given)
    rng = np.random.default_rng(0)
    if any(i.shape is None for i in model.inputs):
        return None
    return [draw(rng, i.shape or (), i.dtype) for i in model.inputs]


def _recorded(
    options: TuningOptions, groups: Sequence[KernelGroup], target: Target, pool: Pool
) -> dict[str, Sequence[Record]]:
    """The records of the jobs that a resumed run goes on with, by workload."""
    if not options.resume:
        return {}
    stores = [c for c in options.measure_callbacks if isinstance(c, RecordToStore)]
    found: dict[str, Sequence[Record]] = {}
    for key in (a.key for g in groups for a in g.alternatives):
        for store in stores[:1]:
            known = store.history(key, str(target), options.seed, str(pool.device.fingerprint))
            if known is not None:
                found[key] = known[1]
    return found


def _of_results(plan: ModelTasks, found: SchedulerResult) -> Choose:
    """The best schedules of a run."""
    results = {t.workload_key: r for t, r in zip(plan.tasks, found.results, strict=True)}

    def choose(func: PrimFunc, target: Target) -> Choice | None:
        result = results.get(workload_key(func))
        if result is None:
            return None
        scheduled = schedule_of(func, result.best).func
        return Choice(scheduled, result.best_seconds, "this run's best")

    return choose
