"""What a task and its options accept, and what they say of the rest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import AutoschedError, TargetError, TuningError, WorkloadError
from autosched.tuning import options as module
from measure.local.pool import LocalPool


def rows(n: int, m: int) -> list[te.Tensor]:
    a = te.placeholder((n, m), name="a")
    return [a, te.compute((n, m), lambda i, j: a[i, j] * 2.0, name="c")]


def test_the_same_workload_by_function_name_and_prim_func() -> None:
    at.register_workload(rows, name="test_tuning_task.rows", override=True)
    tasks = [
        at.SearchTask(rows, (4, 6)),
        at.SearchTask(func=rows, args=[np.int64(4), 6]),
        at.SearchTask("test_tuning_task.rows", (4, 6)),
        at.SearchTask(prim_func=te.create_prim_func(rows(4, 6))),
    ]
    assert len({t.workload_key for t in tasks}) == 1
    assert {str(t.target) for t in tasks} == {str(at.Target("llvm"))}
    assert [t.title for t in tasks[2:]] == ["test_tuning_task.rows(4, 6)", "main"]
    assert tasks[1].workload.args == [4, 6]
    assert tasks[3].workload.args is None


def test_a_function_of_a_file_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from autosched import te\n"
        "def rows(n, m):\n"
        "    a = te.placeholder((n, m), name='a')\n"
        "    return [a, te.compute((n, m), lambda i, j: a[i, j] * 2.0, name='c')]\n"
    )
    task = at.SearchTask(f"{file}:rows", (4, 6))
    assert task.workload_key == at.SearchTask(rows, (4, 6)).workload_key
    assert task.workload.name == f"{file}:rows"


def test_the_target_is_resolved() -> None:
    task = at.SearchTask(rows, (4, 6), target="llvm -mcpu=x86-64-v3 -num-cores=3")
    assert task.target.num_cores == 3
    assert "x86-64-v3" in str(task.target)


BAD_TASKS: list[tuple[dict[str, Any], type[AutoschedError], str]] = [
    ({}, WorkloadError, "expected func with args, prim_func, or a workload_key; found neither"),
    ({"func": rows, "prim_func": 1}, WorkloadError, "found both"),
    ({"prim_func": 1}, WorkloadError, "prim_func is a int; expected a PrimFunc"),
    ({"func": "nothing", "args": (1,)}, WorkloadError, "no workload named 'nothing'; known: .*mat"),
    ({"func": rows, "args": (4,)}, WorkloadError, "missing a required argument: 'm'"),
    ({"func": rows, "args": (4, None)}, WorkloadError, "argument None of a workload"),
    ({"func": rows, "args": 4}, WorkloadError, "expected a tuple"),
    ({"func": "matmul", "args": (4, 5, "x")}, WorkloadError, "argument M of matmul.*expected int"),
    ({"func": rows, "args": (4, 6), "target": "vax"}, TargetError, "unknown target kind 'vax'"),
    ({"func": "no.py:rows", "args": (4, 6)}, WorkloadError, "no file .*no.py"),
    ({"func": rows, "args": (4, 6), "hardware_params": 5}, TuningError, "expected HardwareParams"),
    ({"func": rows, "args": (4, 6), "layout_rewrite_option": 3}, TuningError, "is 3; expected one"),
]


@pytest.mark.parametrize(("given", "error", "text"), BAD_TASKS, ids=[t for *_, t in BAD_TASKS])
def test_bad_tasks(given: dict[str, Any], error: type[AutoschedError], text: str) -> None:
    with pytest.raises(error, match=text):
        at.SearchTask(**given)


def test_what_is_no_options_is_refused() -> None:
    task = at.SearchTask(rows, (4, 6))
    for wrong in (64, {"num_measure_trials": 64}):
        with pytest.raises(TuningError, match="expected TuningOptions, such as"):
            task.tune(wrong)  # type: ignore[arg-type]
        with pytest.raises(TuningError, match="expected TuningOptions, such as"):
            at.TaskScheduler([task]).tune(wrong)  # type: ignore[arg-type]


def test_args_do_not_go_with_a_prim_func() -> None:
    with pytest.raises(WorkloadError, match="args go with func"):
        at.SearchTask(args=(1,), prim_func=te.create_prim_func(rows(4, 6)))


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"num_measure_trials": -1}, "num_measure_trials is -1; expected an integer of at least 0"),
    ({"num_measure_trials": 1.5}, "num_measure_trials is 1.5"),
    ({"num_measure_trials": True}, "num_measure_trials is True"),
    ({"early_stopping": -1}, "early_stopping is -1"),
    ({"num_measures_per_round": 0}, "num_measures_per_round is 0"),
    ({"seed": -1}, "seed is -1; expected an integer of at least 0"),
    ({"seed": None}, "seed is None; expected an integer of at least 0"),
    ({"seed": 1 << 80}, "seed is .*; expected an integer below 2"),
    ({"finalists": 0}, "finalists is 0"),
    ({"time_budget_s": 0}, "time_budget_s is 0; expected seconds > 0 or None"),
    ({"time_budget_s": "1"}, "time_budget_s is '1'; expected seconds > 0 or None"),
    ({"measure_callbacks": 3}, "measure_callbacks is 3; expected a list of MeasureCallback"),
    ({"measure_callbacks": [3]}, "measure_callbacks holds 3; expected a MeasureCallback"),
    ({"pool": object(), "builder": at.LocalBuilder()}, "give them or a pool, not both"),
    ({"pool": 5}, "pool is 5; expected an open pool"),
    ({"builder": 5}, "builder is 5; expected a LocalBuilder"),
    ({"runner": 5}, "runner is 5; expected a LocalRunner"),
    ({"num_measure_trials": None}, "num_measure_trials is None"),
    ({"time_budget_s": True}, "time_budget_s is True"),
    ({"resume": "yes"}, "resume is 'yes'; expected True or False"),
    ({"verbose": "no"}, "verbose is 'no'; expected 0 or 1"),
]


@pytest.mark.parametrize(("given", "text"), BAD_OPTIONS, ids=[t for _, t in BAD_OPTIONS])
def test_bad_options(given: dict[str, Any], text: str) -> None:
    with pytest.raises(TuningError, match=text):
        at.TuningOptions(**given)


def test_options_do_not_ask_a_pool_for_its_device() -> None:
    """One of a cluster would wait for it, one of a GPU start processes."""

    class Silent(LocalPool):
        device = property(lambda self: pytest.fail("it was asked"))

    with Silent() as pool:
        assert at.TuningOptions(pool=pool).pool is pool
    with pytest.raises(TuningError, match="expected an open pool"):
        at.TuningOptions(pool=Silent)  # type: ignore[arg-type]


@pytest.mark.parametrize(("trials", "size"), [(1, 8), (64, 8), (100, 12), (512, 64), (9999, 64)])
def test_round_sizes(trials: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than are built at a time, so that the search learns soon; of several devices more."""
    cluster = "tcp://localhost:9190"
    assert at.TuningOptions(num_measure_trials=trials, pool=cluster).round_size == size
    for cores in (1, 2, 8, 32, 128):
        monkeypatch.setattr(module, "available_cores", lambda cores=cores: cores)
        expected = max(8, min(size, cores))
        built = at.LocalBuilder(n_parallel=16)
        assert at.TuningOptions(trials, builder=built).round_size == max(8, min(size, 16))
        assert at.TuningOptions(num_measure_trials=trials).round_size == expected
        assert at.TuningOptions(trials, pool="local").round_size == expected
    assert at.TuningOptions(32 * trials).round_size_of(32) == max(4, min(64, trials // 8))
    assert at.TuningOptions(trials, num_measures_per_round=5).round_size == 5


def test_a_machine_that_cannot_run_the_target_is_told(tmp_path: Path) -> None:
    other = "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1"
    task = at.SearchTask("matmul", (4, 5, 6), target=other)
    options = at.TuningOptions(num_measure_trials=8, verbose=0)
    with pytest.raises(AutoschedError, match=r"this machine cannot run llvm.*neoverse-n1"):
        task.tune(options)


def test_a_key_names_a_task_that_was_made() -> None:
    for made in (
        at.SearchTask("matmul", (8, 16, 32)),
        at.SearchTask(
            "matmul", (8, 16, 32), layout_rewrite_option=at.LayoutRewriteOption.NO_REWRITE
        ),
        at.SearchTask(prim_func=at.SearchTask("softmax", (8, 16)).prim_func),
    ):
        again = at.SearchTask(workload_key=made.workload_key)
        assert again.prim_func.same(made.prim_func)
        assert (again.title, again.workload) == (made.title, made.workload)


def test_a_key_beside_a_function_says_which_workload_it_must_be() -> None:
    key = at.SearchTask("matmul", (8, 16, 32)).workload_key
    assert at.SearchTask("matmul", (8, 16, 32), workload_key=key).workload_key == key
    with pytest.raises(WorkloadError, match=f"not {key}; leave the key out"):
        at.SearchTask("matmul", (8, 16, 16), workload_key=key)
    with pytest.raises(WorkloadError, match="no task with the workload key 'none' was made"):
        at.SearchTask(workload_key="none")
    with pytest.raises(WorkloadError, match="args go with func"):
        at.SearchTask(workload_key=key, args=(8, 16, 32))


def test_hardware_params_replace_what_a_target_leaves_open() -> None:
    target = at.Target("llvm -mcpu=x86-64-v3 -num-cores=2")
    task = at.SearchTask(
        "softmax",
        (8, 16),
        target=target,
        hardware_params=at.HardwareParams(num_cores=1, vector_unit_bytes=32),
    )
    assert task.target == at.Target("llvm -mcpu=x86-64-v3 -num-cores=1")
    with pytest.raises(at.AutoschedError, match=r"vector_unit_bytes=64, and .* has 32; name"):
        at.SearchTask(
            "softmax", (8, 16), target=target, hardware_params=at.HardwareParams(None, 64)
        )


def test_a_plain_key_of_the_predecessor_names_a_workload() -> None:
    by_name = at.SearchTask(func="matmul", args=(32, 16, 8), target="llvm")
    for key in ('["matmul", 32, 16, 8]', '[ "matmul", 32, 16, 8, "float32"]'):
        task = at.SearchTask(workload_key=key, target="llvm")
        assert task.workload_key == by_name.workload_key
        assert (task.name, task.args) == ("matmul", tuple(json.loads(key)[1:]))


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ('["no_such", 1]', "no workload named 'no_such'"),
        ("[1, 2]", "names no workload"),
        ("[]", "names no workload"),
        ("[1", "is no JSON"),
        ('["file.py:function", 1]', "names no workload"),  # a key runs no file's code
        ('["0123456789abcdef0123456789abcdef", 1, 2]', "no workload named '0123"),
        ('["matmul", {"a": 1}]', "is a dict"),
    ],
)
def test_a_key_of_the_predecessor_that_names_nothing_is_refused(key: str, text: str) -> None:
    with pytest.raises(WorkloadError, match=text):
        at.SearchTask(workload_key=key, target="llvm")


def test_beside_a_function_a_key_is_the_one_here() -> None:
    with pytest.raises(WorkloadError, match="is workload"):
        at.SearchTask("matmul", (32, 16, 8), workload_key='["matmul", 9, 9, 9]', target="llvm")
