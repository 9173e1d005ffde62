"""TVM's words: the page that maps them, and what they do here."""

from __future__ import annotations

import ctypes
import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import autosched as at
from autosched import auto_scheduler as words
from autosched import te
from autosched.errors import AutoschedError, TuningError

PAGE = (Path(__file__).parents[2] / "docs" / "tvm.md").read_text()


def workload(n: int = 32) -> list[te.Tensor]:
    A, rows = te.placeholder((n, n), name="A"), te.placeholder((n,), "int64", "rows")
    B = te.compute((n, n), lambda i, j: A[te.clamp_index(rows[i], n)][j] * 2.0, name="B")
    return [A, rows, B]


def resolved(path: str) -> Any:
    """What a dotted name of the page stands for."""
    first, *rest = path.split(".")
    found: Any = {"at": at, "te": te}[first]
    for name in rest:
        try:
            found = getattr(found, name)
        except AttributeError:
            found = import_module(f"autosched.{name}")
    return found


def test_every_name_on_the_page_exists() -> None:
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    assert len(rows) > 50
    names = {n for row in rows for n in re.findall(r"`((?:at|te)\.[\w.]+)`", row[-1])}
    assert len(names) > 60
    for name in names:
        assert resolved(name) is not None, name
    # And no word of the module is left out.
    missing = [n for n in words.__all__ if f"`{n}`" not in PAGE and f".{n}`" not in PAGE]
    assert missing == ["LogEstimatedLatency"]
    commands = set(re.findall(r"`autosched (\w+)", PAGE))
    from autosched.cli.main import COMMANDS

    assert commands <= set(COMMANDS)
    with pytest.raises(AttributeError, match=r"has no is_auto_scheduler_enabled; docs/tvm.md says"):
        words.is_auto_scheduler_enabled  # noqa: B018
    with pytest.raises(AttributeError, match=r"te has no decl_tensor_intrin: .*TensorIntrin.reg"):
        te.decl_tensor_intrin  # noqa: B018
    assert not hasattr(te, "hybrid")


def test_tasks_and_keys() -> None:
    dag = words.ComputeDAG(workload())
    task = words.SearchTask(compute_dag=dag, target="llvm")
    func = te.create_prim_func(workload())
    assert task.workload_key == at.SearchTask(prim_func=func).workload_key
    assert words.make_workload_key(workload, (32,)) == task.workload_key
    for wrong, message in (
        (lambda: words.SearchTask(compute_dag=dag, prim_func=func), "not both"),
        (lambda: words.SearchTask(compute_dag=3), "compute_dag is 3; expected a ComputeDAG"),
        (lambda: words.SearchTask(workload, task_inputs={"B": 1}), "has 'B', which is no input"),
        (
            lambda: words.SearchTask(workload, task_inputs={"rows": np.zeros(3)}),
            r"has float64\[3\] for rows; expected int64\[32\]",
        ),
    ):
        with pytest.raises(AutoschedError, match=message):
            wrong()


def test_nothing_is_measured_for_0_trials() -> None:
    task = words.SearchTask(workload, (32,), target="llvm")
    options = words.TuningOptions()
    assert options.num_measure_trials == 0
    with pytest.raises(TuningError, match=r"0: nothing would be measured.*auto_schedule"):
        task.tune(options)
    a, rows = np.random.default_rng(0).random((32, 32), "float32"), np.arange(32)[::-1].copy()
    policy = words.SketchPolicy(task, program_cost_model=words.RandomModel(), verbose=0)
    for chosen in (policy, words.EmptyPolicy(task), None):
        sch, args = words.auto_schedule(task, chosen, options)
        b = np.zeros((32, 32), "float32")
        at.build(sch, args, task.target)(a, rows, b)
        np.testing.assert_array_equal(b, a[rows] * 2)
        assert chosen is not None or sch.trace


@pytest.mark.long
def test_runs_with_real_data_are_recorded(tmp_path: Path) -> None:
    log, copy = tmp_path / "log.json", tmp_path / "copy.json"
    rows = np.full(32, 7)
    task = words.SearchTask(workload, (32,), target="llvm", task_inputs={"rows": rows})
    runner = words.LocalRunner(timeout=20, cooldown_interval=0.001, enable_cpu_cache_flush=True)
    assert (runner.cooldown_ms, runner.flush_cache) == (1.0, True)
    options = words.TuningOptions(
        2,
        verbose=0,
        runner=words.LocalRunner(timeout=20),
        measure_callbacks=[words.RecordToFile(log)],
    )
    sch, args = words.auto_schedule(task, tuning_options=options)
    assert at.build(sch, args, task.target)
    pairs = words.load_records(log)
    assert sum(inp.record.kind == "trial" for inp, _ in pairs) == 2
    check_pairs(log, copy, task)


def test_given_inputs_reach_the_reference() -> None:
    from measure.local.pool import LocalPool
    from measure.local.runner import views

    rows = np.arange(32)[::-1].copy()
    task = words.SearchTask(workload, (32,), target="llvm", task_inputs={"rows": rows})
    with LocalPool(task.target) as pool:
        job = pool.open_job(task.prim_func)
        a, given, b = views(job.spec, job.fd, writable=False)
        np.testing.assert_array_equal(given, rows)
        np.testing.assert_array_equal(b, a[rows] * 2)
    words.SearchTask(workload, (32,), target="llvm", task_inputs={})
    from measure.verify.given import given_inputs

    assert not given_inputs(task.workload_key)


def test_an_rpc_runner_is_a_pool() -> None:
    runner = words.RPCRunner("lab", "tuner", 9190)
    assert words.TuningOptions(8, runner=runner).pool == "tcp://tuner:9190?label=lab"
    secured = words.RPCRunner("lab", "tuner", 9190, "certs")
    assert secured.address == "tls://tuner:9190?label=lab&tls-dir=certs"
    with words.LocalRPCMeasureContext(repeat=3) as context:
        assert context.runner.repeat == 3
    with pytest.raises(TuningError, match="port"):
        words.RPCRunner("lab", "tuner", 0)
    timed = words.RPCRunner("lab", "tuner", 9190, timeout=30, repeat=1, min_repeat_ms=200)
    assert timed.address == runner.address
    with pytest.raises(TuningError, match="tls_dir"):
        words.RPCRunner("lab", "tuner", 9190, 1)


def test_targets() -> None:
    host = at.Target("llvm")
    haswell = at.Target("llvm -keys=cpu -mcpu=core-avx2 -mtriple=x86_64-linux-gnu -model=i7")
    assert haswell.mcpu == "haswell"
    assert at.Target(str(haswell)) == haswell
    assert str(at.Target("nvidia/tesla-t4")).startswith("cuda -arch=sm_75")
    with pytest.raises(AutoschedError, match="tags such as nvidia/geforce-rtx-3070"):
        at.Target("nvidia/geforce-rtx-3071")
    with haswell as entered:
        assert entered is at.Target.current() is haswell
        assert at.SearchTask(workload, (8,)).target == haswell
        with host:
            assert at.Target.current() == host
        assert at.Target.current() == haswell
    assert at.Target.current() == host
    from autosched.target.tags import TAGS

    for tag, text in TAGS.items():
        assert at.Target(tag) == at.Target(text)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_library_is_linked(tmp_path: Path) -> None:
    A = te.placeholder((16,), "float64", "A")
    built = at.build(te.create_prim_func([A, te.tan(A)]), name="tangent")
    library = ctypes.CDLL(str(built.export_library(tmp_path / "x.so")))
    a, b = np.linspace(0, 1, 16), np.zeros(16)
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, b)]
    assert library.tangent(*pointers, None, 1) == 0
    np.testing.assert_allclose(b, np.tan(a), rtol=1e-15)
    with pytest.raises(AutoschedError, match="there is no nowhere-cc here"):
        built.export_library(tmp_path / "y.so", cc="nowhere-cc")


def test_names_of_te() -> None:
    n = te.size_var("n")
    a = te.placeholder((n, 4), name="a")
    c = te.compute((n, 4), lambda i, j: te.if_then_else(te.likely(i < 3), a[i, j], 0.0), name="c")
    assert c.op.output(0) is c
    assert a.op.output() is a
    x, y = te.compute((4,), lambda i: (a[0, i], a[0, i] + 1), name="xy")
    assert [x.op.output(k) for k in (0, 1)] == [x, y]
    with pytest.raises(AutoschedError, match=r"xy has no output 2"):
        x.op.output(2)
    func = at.build(te.create_prim_func([a, c.op.output(0)]))
    found = np.full((5, 4), 7, "float32")
    func(np.ones((5, 4), "float32"), found)
    assert found.sum() == 12
    timing = func.time_evaluator(func.entry_name, at.Target("llvm"), number=2)
    assert timing(np.ones((5, 4), "float32"), found).mean > 0
    with pytest.raises(AutoschedError, match=r"function's name, 'main', .* number=10"):
        func.time_evaluator(10)


def check_pairs(log: Path, copy: Path, task: at.SearchTask) -> None:
    """What users of the predecessor do with its log."""
    pairs = words.load_records(log)
    for inp, res in pairs:
        assert inp.task.workload_key == task.workload_key
        assert inp.task.target == task.target
        assert res.error_no == 0
        assert not res.error_msg
        assert 0 < np.mean(res.costs) < 10
        assert res.timestamp > 1.7e9
        assert res.all_cost >= 0
        inp.state.apply(task.prim_func)
    inputs, results = words.RecordReader(log).read_lines()
    assert [i.record.key for i in inputs] == [i.record.key for i, _ in pairs]
    assert [len(x) for x in words.RecordReader(log).read_lines(1, skip_lines=1)] == [1, 1]
    assert len(list(words.RecordReader(log))) == len(pairs)
    words.save_records(copy, inputs, results)
    assert [i.record.key for i, _ in words.load_records(copy)] == [i.record.key for i in inputs]
    words.save_records(copy, pairs)
    inp, res = words.load_best_record(copy, task.workload_key, task.target)
    assert inp.record.workload_key == task.workload_key
    assert res.error_no == 0
    assert words.load_best_record(copy)[0].record.key == inp.record.key
    assert words.load_best_record(copy, "no such") == (None, None)


def test_an_empty_policy_times_what_is_written(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    task = words.SearchTask(func="matmul", args=(8, 8, 8), target="llvm")
    options = words.TuningOptions(1, verbose=0, measure_callbacks=[words.RecordToFile(str(log))])
    result = task.tune(options, words.EmptyPolicy(task))
    assert result.best.kind == "baseline"
    sch, _ = words.auto_schedule(task, words.EmptyPolicy(task), options)
    assert not sch.trace
    check_pairs(log, tmp_path / "copy.json", task)
    other = words.SearchTask(func="matmul", args=(8, 8, 9), target="llvm")
    for run in (
        lambda: task.tune(options, words.EmptyPolicy(other)),
        lambda: words.auto_schedule(task, words.EmptyPolicy(other), options),
        lambda: words.auto_schedule(task, words.EmptyPolicy(other)),
    ):
        with pytest.raises(TuningError, match=r"is for matmul.*EmptyPolicy\(task"):
            run()
    with pytest.raises(TuningError, match=r"2 inputs and 0 results"):
        words.save_records(log, [i for i, _ in words.load_records(log)][:2], [])
    with pytest.raises(AutoschedError, match=r"unknown target kind 'c' .*autosched.c_source"):
        at.Target("c")


def test_targets_as_dicts_and_words() -> None:
    plain = at.Target("llvm -mcpu=haswell -num-cores=4")
    assert at.Target({"kind": "llvm", "mcpu": "haswell", "num-cores": 4}) == plain
    assert at.Target("llvm -mcpu core-avx2 -num-cores 4", host="llvm") == plain
    gpu = at.Target({"kind": "cuda", "arch": "sm_80", "keys": ["cuda", "gpu"], "host": "llvm"})
    assert gpu == at.Target({"tag": "nvidia/nvidia-a100"}) == at.Target("cuda -arch=sm_80")
    for wrong, message in (
        ({"mcpu": "haswell"}, "a target as a dict has a kind, found {'mcpu': 'haswell'}"),
        ({"kind": 3}, "has a kind"),
        ({"kind": "llvm", "wrong": 1}, "unknown option '-wrong=1'"),
    ):
        with pytest.raises(AutoschedError, match=message):
            at.Target(wrong)


def test_a_scheduler_in_the_predecessors_order(tmp_path: Path) -> None:
    tasks = [words.SearchTask(func=workload, args=(n,), target="llvm") for n in (8, 16)]
    log, model = str(tmp_path / "log.json"), str(tmp_path / "model")

    def options() -> at.TuningOptions:
        store = [words.RecordToFile(log)]
        return words.TuningOptions(2, num_measures_per_round=1, verbose=0, measure_callbacks=store)

    words.TaskScheduler(tasks, [1, 2], None, "gradient").tune(options())
    words.XGBModel().save(model)
    scheduler = words.TaskScheduler(tasks, load_log_file=log, load_model_file=model, gamma=0.1)
    params = {"eps_greedy": 0.1, "evolutionary_search_num_iters": 1, "max_vectorize_size": 16}
    found = scheduler.tune(options(), search_policy_params=params, per_task_early_stopping=64)
    assert found.results
    policy = scheduler._policy("default", params, None)(tasks[0])
    assert (policy.params.eps_greedy, policy.params.generations) == (0.1, 1)
    assert policy.init_search_callbacks[0].records == log  # type: ignore[union-attr]
    with patch.object(at.TaskScheduler, "tune") as tune:
        scheduler.tune(options(), "sketch.random", params)
    policy = tune.call_args.args[1](tasks[0])
    assert isinstance(policy.cost_model, at.RandomModel)
    assert policy.init_search_callbacks[0].records == log  # type: ignore[union-attr]
    with pytest.raises(TuningError, match="params has 'wrong'; expected some of eps_greedy"):
        words.SketchPolicy(tasks[0], params={"wrong": 1})


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "uint16", "bool"])
def test_numbers_of_python_are_scalars(dtype: str) -> None:
    scale = te.placeholder((), dtype, "scale")
    B = te.compute((2,), lambda i: scale().astype("float32") * 1.0, name="B")
    func, result = at.build(te.create_prim_func([scale, B])), np.empty(2, np.float32)
    good, bad = {
        "float32": ([2.5, 3, -(10**30), float("inf")], [1e39, 10**400]),
        "float16": ([2.5, 65504], [65505.0]),
        "bfloat16": ([2.5, 3e38], [1e39]),
        "int8": ([-128, 127, True], [128, 1.0]),
        "uint16": ([65535], [-1]),
        "bool": ([True, False], [1, 0.0]),
    }[dtype]
    for value in good:
        func(value, result)
        np.testing.assert_allclose(result, float(value), rtol=4e-3 if dtype[0] == "b" else 1e-6)
    for value in bad:
        with pytest.raises(AutoschedError, match=f"is .*, which is no {dtype}; pass"):
            func(value, result)
    with pytest.raises(AutoschedError, match=r"argument 1 \(B\) of main is a float"):
        func(good[0], 1.0)


def test_output_blocks_of_the_root() -> None:
    func = te.create_prim_func(workload())
    sch = at.Schedule(func)
    root = sch.get_block("root")
    names = [
        [sch.get(b).name for b in found]
        for found in (sch.get_output_blocks(), sch.get_output_blocks(root))
    ]
    assert names == [["B"], ["B"]]
    assert len(sch.get_output_blocks(scope_block="root")) == 1
    assert "sch.get_output_blocks(" in str(sch.trace)
    with pytest.raises(AutoschedError, match="the scope is 'B'; expected the root"):
        sch.get_output_blocks("B")


def test_states_and_sources(tmp_path: Path) -> None:
    task = words.SearchTask(func=workload, args=(8,), target="llvm")
    log = str(tmp_path / "log.json")
    store = [words.RecordToFile(log)]
    task.tune(words.TuningOptions(2, verbose=0, measure_callbacks=store))
    inp, _ = words.load_best_record(log, task.workload_key)
    schedule, args = task.compute_dag.apply_steps_from_state(inp.state)
    code = task.compute_dag.print_python_code_from_state(inp.state)
    assert code.startswith("def apply(sch)")
    func = at.build(schedule, args, task.target)
    assert func.get_source() == func.get_source("ll") == func.source
    assert func.get_source("asm") == func.assembly()
    with pytest.raises(AutoschedError, match="fmt is 'c'"):
        func.get_source("c")
    with pytest.raises(AutoschedError, match="that of a workload key is Search"):
        words.ComputeDAG(task.workload_key)
