"""`graph.tune`: one budget over a model's kernels, resuming, falling back."""

from __future__ import annotations

import shutil
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from graph_models import residual_net

from autosched import graph
from autosched.errors import ArgumentError, TuningError, WorkloadError
from autosched.graph import op
from autosched.graph.compile import compile_ready, prepared
from autosched.graph.kernels import Choice
from autosched.graph.planner import Shared
from autosched.graph.tasks import kernel_groups
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tuning import TuningOptions
from autosched.tuning.run import model_check
from autosched.tuning.run.model_tasks import model_tasks
from records import TRIAL
from records.store import Store

sys.path.insert(0, str(Path(__file__).parent.parent / "tuning"))
from tuning_doubles import FakePool, Raises

TARGET = Target("llvm")


@pytest.fixture(scope="module")
def net():
    """Two products of different sizes."""
    rng = np.random.default_rng(1)
    x = graph.var("x", (12, 16))
    a, b = (graph.const(rng.standard_normal(s).astype("f4")) for s in ((16, 24), (24, 8)))
    return graph.module(main=graph.function([x], op.matmul(op.relu(op.matmul(x, a)), b)))


@pytest.fixture
def convolutions(rng):
    """Groups of a model some of whose kernels have several implementations."""
    return kernel_groups(prepared(graph.from_onnx(residual_net(rng))), TARGET)


def options(trials=16, **changes):
    given = {"num_measure_trials": trials, "num_measures_per_round": 4, "verbose": 0}
    return TuningOptions(**{"pool": FakePool(), **given, **changes})


@pytest.fixture(scope="module")
def whole(net, tmp_path_factory):
    """A run that was not disturbed: its store and its result."""
    db = tmp_path_factory.mktemp("whole") / "whole.db"
    return db, graph.tune(net, options(), TARGET, records=str(db))


def trials(path):
    """(workload, round, slot) -> program, of all trials of a store."""
    with Store(path) as store:
        found = list(store.records(kind=TRIAL))
    return {(r.workload_key, r.round, r.slot): r.program_hash for r in found}


def test_the_budget_is_the_models(net, whole, rng):
    db, result = whole
    assert result.trials == len(trials(db)) == 16
    assert sum(k.calls for k in result.kernels) == len(result.model.kernels)
    assert all(k.gain >= 1.0 for k in result.kernels)
    assert result.seconds is None  # the pool is no machine
    x = rng.standard_normal((12, 16)).astype("f4")
    want = graph.evaluate(net, "main", x)
    np.testing.assert_allclose(result.model(x)[0], want, rtol=1e-3, atol=1e-4)
    text = result.as_text()
    assert text.splitlines()[0].split() == [
        "kernel",
        "calls",
        "share",
        "before",
        "after",
        "gain",
        "trials",
    ]
    assert "16 trials in " in text

    # What was found is what a build takes from the records, with the same keys.
    again = graph.build(net, TARGET, records=str(db))
    assert [k.workload_key for k in again.kernels] == [k.workload_key for k in result.model.kernels]
    assert all("record " in k.implementation for k in again.kernels if k.seconds is not None)
    assert sum(k.seconds is not None for k in again.kernels) >= 1


def test_without_records_the_run_itself_says_what_is_best(net):
    result = graph.tune(net, options(), TARGET)
    assert any("this run's best" in k.implementation for k in result.model.kernels)


@pytest.mark.long
@pytest.mark.parametrize("killed_after", [3, 12])
def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(
    net, whole, tmp_path, killed_after
):
    parts = tmp_path / "parts.db"
    stop = Raises(KeyboardInterrupt(), killed_after)
    with pytest.raises(KeyboardInterrupt):
        graph.tune(net, options(measure_callbacks=[stop]), TARGET, records=str(parts))
    before = trials(parts)
    assert 0 < len(before) < 16
    with Store(parts) as store:
        assert {j.state for j in store.jobs().jobs} == {"cancelled"}
    result = graph.tune(net, options(resume=True), TARGET, records=str(parts))
    after = trials(parts)
    assert result.trials == len(after) == 16
    assert before.items() <= after.items()
    assert after == trials(whole[0])


def test_a_complete_run_measures_nothing_again(net, whole, tmp_path):
    db = tmp_path / "a.db"
    shutil.copy(whole[0], db)
    before, pool = trials(db), FakePool()
    graph.tune(net, options(resume=True, pool=pool), TARGET, records=str(db))
    assert trials(db) == before
    assert not [t for t in pool.measured if t]


def test_small_kernels_keep_their_default_schedule(convolutions):
    groups = convolutions
    first = groups[0]
    seconds = {n: 1e-6 for g in groups for n in g.names} | {first.names[0]: 1.0}
    plan = model_tasks(groups, seconds, TARGET)
    assert [g.names for g in plan.groups] == [first.names]
    assert len(plan.tasks) == len(first.alternatives)
    assert {g.names for g in plan.left} == {g.names for g in groups[1:]}
    assert plan.rest == pytest.approx(1e-6 * (len(groups) - 1))
    other = groups[1].alternatives[0].key  # it has a job that is resumed
    kept = model_tasks(groups, seconds, TARGET, frozenset({other})).groups
    assert [g.names for g in kept] == [first.names, groups[1].names]


def test_of_the_implementations_the_fastest_counts(convolutions):
    groups = [g for g in convolutions if len(g.alternatives) > 1][:1]
    plan = model_tasks(groups, {}, TARGET)
    assert len(plan.tasks) == len(groups[0].alternatives)
    assert plan.objective([3.0, 2.0, 9.0][: len(plan.tasks)]) == 2.0 * groups[0].calls


def test_nothing_to_tune_is_refused():
    x = graph.var("x", (2, 3))
    mod = graph.module(main=graph.function([x], x))
    with pytest.raises(WorkloadError, match="no kernel to tune"):
        graph.tune(mod, options(), TARGET)


def test_resuming_needs_a_store(net, tmp_path):
    with pytest.raises(TuningError, match="needs a store"):
        graph.tune(net, options(resume=True), TARGET, records=str(tmp_path / "a.json"))
    with pytest.raises(TuningError, match="needs a store"):
        graph.tune(net, options(resume=True), TARGET)


def test_kernels_that_lose_inside_the_model_fall_back(net, rng, monkeypatch):
    """Times are made up: the first kernel's tuned version is slower, the others' are faster."""
    x = rng.standard_normal((12, 16)).astype("f4")
    ready, artifacts = prepared(net), {}
    untuned = compile_ready(ready, TARGET, artifacts=artifacts)
    groups = kernel_groups(ready, TARGET)
    loser = groups[0]

    def choose(func, target):
        plain = Choice(func, 1e-6, "record 1")  # the program as it is written
        return plain if func.name in {loser.names[0], groups[1].names[0]} else None

    def kernel_seconds(models, inputs, rounds=0):
        def of(model, name):
            tuned = model.by_name[name].func is not untuned.by_name[name].func
            return 1.0 if not tuned else 2.0 if name == loser.names[0] else 0.5

        return [{n: of(m, n) for n in m.by_name} for m in models]

    times = {"tuned": 1.0}
    monkeypatch.setattr(model_check, "kernel_seconds", kernel_seconds)
    monkeypatch.setattr(
        model_check,
        "model_seconds",
        lambda models, inputs: [[2.0 if m is untuned else times["tuned"]] for m in models],
    )

    def tried():
        return model_check.try_out(
            ready, TARGET, groups, choose, untuned, artifacts, [x], nullcontext
        )

    found = tried()
    assert [g.names for g in found.lost] == [loser.names]
    assert "default schedule" in found.model.by_name[loser.names[0]].implementation
    assert "record 1" in found.model.by_name[groups[1].names[0]].implementation
    assert (found.seconds, found.untuned_seconds) == (1.0, 2.0)
    np.testing.assert_allclose(found.model(x)[0], untuned(x)[0], rtol=1e-4, atol=1e-5)
    times["tuned"] = 3.0  # and where all together lose, nothing is taken
    found = tried()
    assert found.model is untuned
    assert {g.names for g in found.lost} == {loser.names, groups[1].names}


def test_a_model_on_this_machine_is_timed_and_never_slower(rng):
    x, w = graph.var("x", (32, 48)), graph.const(rng.standard_normal((48, 64)).astype("f4"))
    mod = graph.module(main=graph.function([x], op.relu(op.matmul(x, w))))
    result = graph.tune(mod, options(4, pool=None), TARGET)
    assert result.seconds is not None
    assert result.untuned_seconds is not None
    a = rng.standard_normal((32, 48)).astype("f4")
    np.testing.assert_allclose(result.model(a)[0], np.maximum(a @ w.value, 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("tiles", [(32, 16), (48, 32), (64, 64)])
def test_builds_that_share_arrays_pack_by_their_own_schedules(tiles, rng):
    """Better records may come between two builds of a model for the sizes of each call."""
    w, x = (rng.standard_normal(s).astype("f4") for s in ((16, 128), (12, 16)))
    v = graph.var("x", x.shape)
    net = graph.module(main=graph.function([v], op.matmul(v, graph.const(w))))
    shared, models = Shared(), []
    for tile in tiles:

        def choose(func, target, tile=tile):
            sch = Schedule(func)
            i, j, k = sch.get_loops("matmul")
            j0, j1 = sch.split(j, [None, tile])
            sch.reorder(j0, i, k, j1)
            sch.cache_read("matmul", 1, "global", layout=[[1, tile], [0], [1, 1, tile]])
            sch.vectorize(j1)
            return Choice(sch.func, 1e-6, "record")

        model = compile_ready(prepared(net), TARGET, choose=choose, shared=shared)
        assert model.kernels[0].artifact.prepare
        np.testing.assert_allclose(model(x)[0], x @ w, rtol=1e-4, atol=1e-4)
        models.append(model)
    first, second = (m.constants[0] for m in models)
    assert (first is second) == (tiles[0] == tiles[1])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"progress": 5}, "progress is 5; expected a function"),
        ({"inputs": 5}, "inputs is 5; expected a list of arrays in the order"),
        ({"inputs": []}, r"takes 1 inputs \(x\), found 0"),
    ],
)
def test_arguments_that_are_none(net, given, said):
    with pytest.raises(ArgumentError, match=said):
        graph.tune(net, options(pool="local"), TARGET, **given)
