"""Valid calls of what builds, runs, tunes and keeps records."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from doors import A0, C0, FUNC, door, kw, tensors

import autosched as at
from autosched import ops, passes, te
from autosched.script import ir_module, parse, parse_func, parse_module, prim_func
from autosched.search.evolution import SearchParams
from autosched.tuning.run.scheduler_callbacks import TaskSchedulerCallback

# Programs -----------------------------------------------------------------------------------

MODULE = at.IRModule.of(FUNC)
TEXT = FUNC.script()

door("IRModule")(lambda: (at.IRModule, {"main": FUNC}))
door("IRModule.of")(lambda: (at.IRModule.of, FUNC))
door("IRModule[]")(lambda: (MODULE.__getitem__, "main"))
door("IRModule.with_function")(lambda: (MODULE.with_function, "f", FUNC))
door("IRModule.same")(lambda: (MODULE.same, MODULE))
door("PrimFunc.same")(lambda: (FUNC.same, FUNC))
door("PrimFunc.attr")(lambda: (FUNC.attr, "FLOP"))


def sized() -> Any:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    return te.create_prim_func([A, te.compute((n,), lambda i: A[i] + 1.0, name="B")])


SIZED = sized()
door("PrimFunc.specialize")(lambda: (SIZED.specialize, {"n": 4}))
door("PrimFunc.specialize, by name")(lambda: (lambda n: SIZED.specialize(n=n), 4))
for f in (parse, parse_func, parse_module):
    door(f.__name__)(lambda f=f: (f, TEXT))
door("script.prim_func")(lambda: (prim_func, _decorated))
door("script.ir_module")(lambda: (ir_module, _Decorated))


def _decorated() -> None:
    pass


class _Decorated:
    pass


door("Target")(lambda: (at.Target, "llvm"))
door("HardwareParams")(lambda: (at.HardwareParams, 2, 32, 64))
door("HardwareParams.applied")(lambda: (at.HardwareParams(2).applied, at.Target("llvm")))
door("TensorIntrin.get")(lambda: (at.TensorIntrin.get, "dot_16x4_u8s8s32_vnni"))
door("TensorIntrin.register")(
    lambda: (at.TensorIntrin.register, "none", FUNC, "define void @f() { ret void }", ())
)
door("passes.Sequential")(lambda: (passes.Sequential, [passes.simplify]))
door("passes.Sequential()")(lambda: (passes.Sequential([passes.simplify]), MODULE))
for n in ("simplify", "dead_code", "inline", "lower"):
    door(f"passes.{n}")(lambda n=n: (getattr(passes, n), MODULE))
door("passes.func_pass")(lambda: (passes.func_pass, lambda f: f))
door("passes.Pass")(lambda: (passes.Pass, "mine", lambda m: m))

# Operators ----------------------------------------------------------------------------------

SMALL = {
    "matmul": (4, 4, 4), "matmul_add": (4, 4, 4), "batch_matmul": (2, 4, 4, 4),
    "matmul_bias_gelu": (4, 4, 4), "conv1d": (8, 4, 4, 3, 1, 1),
    "conv2d": (8, 8, 4, 4, 3, 1, 1, 1, 1),
    "conv2d_bias_relu": (8, 8, 4, 4, 3, 1, 1, 1, 1), "conv3d": (4, 4, 4, 2, 2, 3, 1, 1),
    "depthwise_conv2d": (8, 8, 4, 3, 1, 1), "conv2d_transpose": (4, 4, 2, 2, 4, 2, 1),
    "conv2d_capsule": (4, 4, 2, 2, 3, 1, 1, 2), "norm": (4, 4), "softmax": (4, 4),
    "layer_norm": (4, 4), "transpose_batch_matmul": (4, 2, 4), "max_pool2d": (8, 8, 4, 2, 2, 0),
    "argmax": (4, 4), "cumsum": (4, 4), "rnn": (2, 2, 2, 2), "lstm": (2, 2, 2, 2),
    "gru": (2, 2, 2, 2),
    "matmul_mixed": (4, 4, 4, "float16"), "conv2d_mixed": (8, 8, 4, 4, 3, 1, 1, 1, 1, "int8"),
}  # fmt: skip
for n, args in SMALL.items():
    door(f"ops.{n}")(lambda n=n, args=args: (getattr(ops, n), *args, "float32"))
door("ops.get")(lambda: (ops.get, "matmul"))

# Building and running -----------------------------------------------------------------------


@cache
def built() -> Any:
    return at.build(FUNC, target="llvm", name="sums")


def arrays() -> tuple[Any, Any]:
    return np.zeros((4, 8), "float32"), np.zeros(4, "float32")


door("lower")(lambda: (at.lower, FUNC, [A0, C0]))
door("c_source")(lambda: (at.c_source, FUNC, [A0, C0]))
door("build")(lambda: (at.build, FUNC, [A0, C0], "llvm", kw(compile_only=True, level="search")))
door("build, of stages")(lambda: (at.lower, te.create_schedule(C0.op), [A0, C0]))
door("built function")(lambda: (built(), *arrays()))
door("Function.time_evaluator")(lambda: (built().function.time_evaluator, 1, 1, 0, 0, False))
door("built.time_evaluator()")(lambda: (built().time_evaluator(), *arrays()))
door("built.export")(lambda: (built().export, "out"))
door("built.prepare")(lambda: (built().prepare, {}))

# Tasks --------------------------------------------------------------------------------------


@cache
def task() -> at.SearchTask:
    return at.SearchTask("matmul", (8, 8, 8))


@cache
def log() -> str:
    """A log with the records of the task."""
    path = Path("log.json").absolute()
    options = at.TuningOptions(
        8, measure_callbacks=[at.RecordToFile(path)], pool="replay:model", verbose=0
    )
    task().tune(options)
    return str(path)


door("SearchTask")(lambda: (at.SearchTask, "matmul", (8, 8, 8), kw(target="llvm", desc="d")))
door("SearchTask, of a program")(lambda: (at.SearchTask, kw(prim_func=FUNC)))
door("SearchTask, an argument")(lambda: (lambda n: at.SearchTask("matmul", (n, 8, 8)), 8))
door("SearchTask, of a key")(lambda: (at.SearchTask, kw(workload_key=task().workload_key)))
door("SearchTask.tune, policy")(
    lambda: (
        lambda policy: task().tune(
            at.TuningOptions(2, pool="replay:model", verbose=0, num_measures_per_round=1), policy
        ),
        "sketch.random",
    )
)
door("SearchTask.tune, options")(
    lambda: (
        lambda options: None if options is None else task().tune(options),  # None: real ones
        at.TuningOptions(1, pool="replay:model", verbose=0),
    )
)
door("SearchTask.apply_best")(lambda: (task().apply_best, log()))
door("SearchTask.print_best")(lambda: (task().print_best, log(), "schedule"))
door("TuningOptions")(
    lambda: (at.TuningOptions, 8, 4, 4, 1.0, (), None, None, None, False, 0, 1, 1)
)
door("LocalBuilder")(lambda: (at.LocalBuilder, 15.0, 1, "default", 1 << 33, ()))
door("LocalRunner")(lambda: (at.LocalRunner,))
door("LocalPool")(lambda: (_opened_pool, "llvm", None, None, 0))
door("ClusterPool")(lambda: (at.ClusterPool, "x", None, None, None, None))


def _opened_pool(*args: Any) -> None:
    at.LocalPool(*args).close()


door("register_workload")(lambda: (at.register_workload, _workload, kw(name="walk", override=True)))


def _workload(n: int) -> Any:
    return tensors()


door("TaskScheduler")(
    lambda: (
        at.TaskScheduler, [task()], [1.0], "gradient",
        kw(objective_func=sum, alpha=0.2, beta=2.0, backward_window_size=3, early_stopping_task=4,
           callbacks=[TaskSchedulerCallback()]),
    )
)  # fmt: skip
door("TaskScheduler, a weight")(lambda: (lambda w: at.TaskScheduler([task()], [w]), 1.0))
door("TaskScheduler, what the objective returns")(
    lambda: (lambda v: at.TaskScheduler([task()], objective_func=lambda s: v).objective([1.0]), 1.0)
)
door("TaskScheduler.objective")(lambda: (at.TaskScheduler([task()]).objective, [1.0]))

# Policies and models ------------------------------------------------------------------------

MODEL = at.RandomModel()
door("SketchPolicy")(lambda: (at.SketchPolicy, task(), MODEL, SearchParams(), 0, ()))
door("SketchPolicy.sample_initial_population")(
    lambda: (at.SketchPolicy(task(), MODEL).sample_initial_population, 2)
)
SHORT = SearchParams(round_size=2, generations=1, population=8)
door("SketchPolicy.evolutionary_search")(
    lambda: (at.SketchPolicy(task(), MODEL, SHORT).evolutionary_search, 2)
)
door("SketchPolicy.search")(lambda: (at.SketchPolicy(task(), MODEL).search, 0, 2, MODEL))
door("SketchPolicy.preloaded")(lambda: (at.SketchPolicy(task(), MODEL).preloaded, "job", "device"))
door("PreloadMeasuredStates")(lambda: (at.PreloadMeasuredStates, log()))
door("PreloadMeasuredStates.measured")(
    lambda: (at.PreloadMeasuredStates(log()).measured, task(), task().space, "job", "device")
)
door("PreloadCustomSketchRule")(
    lambda: (at.PreloadCustomSketchRule, lambda p, s, b: 0, lambda p, s, b: [], "rule")
)


def population() -> Any:
    return at.SketchPolicy(task(), MODEL).sample_initial_population(4)


def seconds() -> Any:
    return np.full(len(population()), 1e-3)


for kind in (at.RandomModel, at.XGBModel):
    n = kind.__name__
    door(n)(lambda kind=kind: (kind, 0))
    door(f"{n}.predict")(lambda kind=kind: (kind().predict, task(), population()))
    door(f"{n}.fit")(lambda kind=kind: (kind().fit, task(), population(), seconds()))
door("XGBModel, boosting")(lambda: (at.XGBModel, 0, None))
door("XGBModel.save")(lambda: (at.XGBModel().save, "model"))
door("XGBModel.load")(lambda: (_saved().load, "saved"))
door("XGBModel.update_from_file")(lambda: (at.XGBModel().update_from_file, log()))
door("XGBModel.pretrain")(lambda: (at.XGBModel().pretrain, log(), task()))


@cache
def dataset() -> Any:
    from cost_model.dataset import Dataset

    return Dataset.of(task(), population(), seconds(), "k")


door("XGBModel.train")(lambda: (at.XGBModel().train, dataset()))
door("XGBModel.predict_data")(lambda: (at.XGBModel().predict_data, dataset()))


def _saved() -> Any:
    model = at.XGBModel()
    model.save("saved")
    return model


# Records ------------------------------------------------------------------------------------

door("RecordToFile")(lambda: (at.RecordToFile, "log.json"))
door("RecordToStore")(lambda: (at.RecordToStore, "store.db"))
door("RecordReader")(lambda: (at.RecordReader, log()))
door("load_best_record")(
    lambda: (at.load_best_record, log(), task().workload_key, task().target, None)
)
door("ApplyHistoryBest")(lambda: (at.ApplyHistoryBest, log()))
door("ApplyHistoryBest.query")(lambda: (_history().query, task().prim_func, task().target))


def _history() -> at.ApplyHistoryBest:
    return at.ApplyHistoryBest(log())


@cache
def store() -> Any:
    from records import Store
    from records.logs.exchange import import_jsonl

    found = Store("walk.db")
    import_jsonl(found, log())
    return found


for name, make in (("RecordReader", lambda: at.RecordReader(log())), ("Store", store)):
    door(f"{name}.best")(lambda make=make: (make().best, task().workload_key, None, None))
    door(f"{name}.best, exclude")(
        lambda make=make: (lambda x: make().best(task().workload_key, exclude=x), ())
    )
    door(f"{name}.get")(lambda make=make: (make().get, 2))
    door(f"{name}.measurements")(lambda make=make: (make().measurements, 2))
    door(f"{name}.workload")(lambda make=make: (make().workload, task().workload_key))
    door(f"{name}.devices")(lambda make=make: (make().devices, task().workload_key))
    for f in ["workload_key", "target", "device", "status", "job_id", "kind", "after_id", "limit"]:
        door(f"{name}.records, {f}")(
            lambda make=make, f=f: (lambda v: list(make().records(**{f: v})), None)
        )
