"""SketchPolicy, what it starts from, and models that learn from stores and logs."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tuning_doubles import FakePool, Recorder, proposals

import autosched as at
from autosched.errors import TuningError
from autosched.search.evolution import SearchParams
from autosched.tuning.callbacks import MeasureCallback
from autosched.tuning.models import load_dataset
from cost_model.dataset import Dataset
from records import OK, TRIAL, Store
from records.logs.exchange import import_jsonl


@pytest.fixture(scope="module")
def task() -> at.SearchTask:
    return at.SearchTask("matmul", (32, 24, 40))


def tune(
    task: at.SearchTask,
    policy: at.SketchPolicy,
    trials: int = 24,
    to: Sequence[MeasureCallback] = (),
    device: str = "fake",
) -> Recorder:
    recorder = Recorder()
    pool = FakePool(device)
    callbacks = [recorder, *to]
    task.tune(at.TuningOptions(trials, pool=pool, verbose=0, measure_callbacks=callbacks), policy)
    return recorder


def test_sketches_population_and_search(task: at.SearchTask) -> None:
    policy = at.SketchPolicy(task, params=SearchParams(round_size=8), seed=5)
    sketches = policy.generate_sketches()
    assert [v.name for v in sketches] == [v.name for v in task.space.variants]
    population = policy.sample_initial_population(50)
    assert 0 < len(population) <= 50
    assert len(set(population.keys())) == len(population)
    scores = policy.cost_model.predict(task, population)
    assert (scores.dtype, scores.shape) == (np.float32, (len(population),))
    found = policy.evolutionary_search()
    assert len(found) == 8
    again = at.SketchPolicy(task, params=SearchParams(round_size=8), seed=5)
    assert again.evolutionary_search() == found
    assert len(policy.evolutionary_search(3)) == 3


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"task": 5}, "task is 5; expected a SearchTask"),
        ({"cost_model": 5}, "cost_model is 5; expected a model with predict and fit"),
        ({"params": {"population": 5}}, "params is .*; expected SearchParams"),
        ({"seed": -1}, "seed is -1; expected an integer of at least 0"),
        ({"init_search_callbacks": [5]}, "init_search_callbacks holds 5"),
        ({"init_search_callbacks": at.PreloadMeasuredStates("a.db")}, "expected a list"),
    ],
    ids=["task", "model", "params", "seed", "callback", "no list"],
)
def test_wrong_arguments_are_refused_at_once(
    task: at.SearchTask, given: dict[str, Any], text: str
) -> None:
    with pytest.raises(TuningError, match=text):
        at.SketchPolicy(**{"task": task, **given})
    with pytest.raises(TuningError, match="n is -4; expected an integer of at least 1"):
        at.SketchPolicy(task).sample_initial_population(-4)


def test_a_run_is_guided_by_the_model_that_it_is_given(task: at.SearchTask) -> None:
    learned = tune(task, at.SketchPolicy(task))
    blind = tune(task, at.SketchPolicy(task, at.RandomModel()))
    same = tune(task, at.SketchPolicy(task, at.RandomModel()))
    assert proposals(blind.records) == proposals(same.records) != proposals(learned.records)


def test_preloaded_candidates_are_learned_from_and_not_measured_again(
    task: at.SearchTask, tmp_path: Path
) -> None:
    log = tmp_path / "log.json"
    first = tune(task, at.SketchPolicy(task), to=[at.RecordToFile(log)])
    known = [(t, d) for _, _, t, d in proposals(first.records)]
    policy = at.SketchPolicy(task, init_search_callbacks=[at.PreloadMeasuredStates(log)])
    assert len(policy.preloaded()) == len(known) == 24
    second = tune(task, policy)
    found = [(t, d) for _, _, t, d in proposals(second.records)]
    assert len(found) == 24
    assert not [x for x in found if x in known]
    other = at.SearchTask("matmul", (16, 16, 16))
    assert at.PreloadMeasuredStates(log).measured(other, other.space) == []


def test_what_was_preloaded_from_elsewhere_is_measured_here(
    task: at.SearchTask, tmp_path: Path
) -> None:
    """It would otherwise be handed out by nobody: records of another device are not this one's,
    and imported ones not until they are measured here."""
    log, store, lost = tmp_path / "log.json", tmp_path / "tuning.db", tmp_path / "lost.json"
    first = tune(task, at.SketchPolicy(task), to=[at.RecordToFile(log)])
    with Store(store) as kept:
        import_jsonl(kept, log)
    lost.write_text(log.read_text().replace('"status":"ok"', '"status":"device_lost"'))
    known = {r.program_hash: r.seconds for r in first.records if r.kind == TRIAL}
    for source, device in ((log, "another"), (store, "fake"), (lost, "fake")):
        policy = at.SketchPolicy(task, init_search_callbacks=[at.PreloadMeasuredStates(source)])
        second = tune(task, policy, device=device)
        found = {r.program_hash for r in second.records if r.kind == TRIAL}
        assert found & set(known)
        if source is not lost:
            assert min(known, key=lambda name: known[name] or math.inf) in found


def test_records_of_another_hash_version_are_not_preloaded_and_counted(
    task: at.SearchTask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log, old = tmp_path / "log.json", tmp_path / "old.json"
    tune(task, at.SketchPolicy(task), to=[at.RecordToFile(log)])
    lines = log.read_text().splitlines(keepends=True)
    trials = [n for n, line in enumerate(lines) if '"kind":"trial"' in line]
    for n in trials[:5]:
        lines[n] = lines[n].replace('"program_hash":"1-', '"program_hash":"0-')
    old.write_text("".join(lines))
    assert len(at.PreloadMeasuredStates(log).measured(task, task.space)) == 24
    assert not caplog.records
    assert len(at.PreloadMeasuredStates(old).measured(task, task.space)) == 19
    assert "5 of 24 records of matmul(" in caplog.text


def test_a_model_learns_from_stores_and_logs_of_many_tasks(
    task: at.SearchTask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, log = tmp_path / "tuning.db", tmp_path / "log.json"
    other = at.SearchTask("matmul_add", (48, 16, 64))
    for t in (task, other):
        tune(t, at.SketchPolicy(t), to=[at.RecordToStore(store), at.RecordToFile(log)])
    data, lost = load_dataset(store)
    assert (len(data), lost) == (48, 0)
    assert set(data.tasks) == {task.workload_key, other.workload_key}
    from_log, _ = load_dataset(log)
    for name, array in data.arrays().items():
        np.testing.assert_array_equal(array, from_log.arrays()[name])
    # What was read from records is what the space gives of the same candidates.
    policy = at.SketchPolicy(task, init_search_callbacks=[at.PreloadMeasuredStates(store)])
    measured = policy.preloaded()
    population = task.space.population([(m.variant, dict(m.values)) for m in measured])
    mine = Dataset.of(task, population, np.array([m.seconds for m in measured]))
    theirs = dict(data.by_task())[task.workload_key]
    np.testing.assert_allclose(mine.rows, theirs.rows, rtol=2e-7)
    np.testing.assert_allclose(mine.label, theirs.label)
    model = at.XGBModel().pretrain(store, exclude=task)
    assert model.data.tasks == (other.workload_key,)
    everything = at.XGBModel().update_from_file(log)
    assert len(everything.data) == 48
    assert np.isfinite(everything.predict(task, population)).all()
    assert not caplog.records


def test_trials_that_do_not_replay_are_counted(
    task: at.SearchTask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = tune(task, at.SketchPolicy(task), 8)
    trials = [r for r in recorder.records if r.status == OK and r.round >= 0]
    with Store(tmp_path / "s.db") as store:
        store.put_workload(replace(task.workload, name="gone.py:function", text=None))
        job = store.create_job(
            task.workload_key, str(task.target), device="d", seed=0, trials_requested=8
        )
        store.add_records([replace(r, job_id=job.id) for r in trials])
    with caplog.at_level(logging.WARNING):
        model = at.XGBModel().pretrain(tmp_path / "s.db")
    assert len(model.data) == 0
    assert "8 trials not learned from" in caplog.text


def test_records_that_are_no_candidates_are_neither_learned_from_nor_handed_out(
    task: at.SearchTask, tmp_path: Path
) -> None:
    log = tmp_path / "a.json"
    tune(task, at.SketchPolicy(task), 16, to=[at.RecordToFile(log)])
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    trials = [x for x in lines if x.get("kind") == "trial"]
    names = trials[2]["decisions"]
    for n, damaged in enumerate(({}, dict.fromkeys(names, -3), dict.fromkeys(names, 1 << 62))):
        trials[n] |= {"decisions": damaged, "seconds": 1e-12}
    trials[3] |= {"target": "no such target"}
    trials[4] |= {"dialect": 2, "seconds": 1e-12}
    log.write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert len(at.PreloadMeasuredStates(log).measured(task, task.space)) == 11
    data, _ = load_dataset(log)
    assert len(data) <= 13
    assert np.isfinite(data.prior).all()
    schedule, _ = task.apply_best(log)
    assert schedule.trace
    known = at.SketchPolicy(task, init_search_callbacks=[at.PreloadMeasuredStates(log)])
    assert len(tune(task, known, 8).records) == 10


@pytest.mark.parametrize("use", ["apply_best", "update_from_file", "preload"])
def test_what_holds_no_records_is_refused(task: at.SearchTask, use: str) -> None:
    calls: dict[str, Callable[[Any], Any]] = {
        "apply_best": task.apply_best,
        "update_from_file": at.XGBModel().update_from_file,
        "preload": lambda r: at.PreloadMeasuredStates(r).measured(task, task.space),
    }
    with pytest.raises(TuningError, match="records are 5; expected a log file, an SQLite file"):
        calls[use](5)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"generations": 0}, "generations is 0; expected an integer of at least 1"),
        ({"population": 2.5}, "population is 2.5; expected an integer of at least 1"),
        ({"eps_greedy": 1.5}, "eps_greedy is 1.5; expected a share from 0 to 1"),
        ({"fresh": 0.9}, "expected no more than 1 together"),
    ],
)
def test_parameters_of_a_search_are_checked(params: dict[str, Any], message: str) -> None:
    with pytest.raises(TuningError, match=message):
        SearchParams(**params)


def test_a_population_of_another_task_is_refused(task: at.SearchTask) -> None:
    other = at.SearchTask("softmax", (24, 300))
    population = at.SketchPolicy(other).sample_initial_population(8)
    with pytest.raises(TuningError, match="is not of the space of"):
        at.XGBModel().predict(task, population)


@pytest.mark.parametrize("name", ["tuning.db", "t.SQLITE", "t.sqlite3", "sqlite:///t", "pg://h/t"])
def test_a_log_does_not_take_the_name_of_a_database(name: str, tmp_path: Path) -> None:
    """A log that has such a name already goes on."""
    where = name if "://" in name else str(tmp_path / name)
    with pytest.raises(TuningError, match="RecordToStore in the place of RecordToFile"):
        at.RecordToFile(where)
    if "://" not in name:
        Path(where).write_text("{}\n")
        assert at.RecordToFile(where).where == where
        Path(where).unlink()
        Store(where).close()
        with pytest.raises(TuningError, match="a database's name"):
            at.RecordToFile(where)
