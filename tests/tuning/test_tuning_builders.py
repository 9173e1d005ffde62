"""A user's own builder and runner options, on the real pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import autosched as at
from autosched.errors import AutoschedError, MeasureError, TuningError
from records import BASELINE, OK, Record, RecordReader


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)


def tune(
    log: Path, build_func: str, trials: int = 8, pass_env: tuple[str, ...] = (), **options: object
) -> list[Record]:
    task = at.SearchTask("matmul", (12, 10, 14))
    task.tune(
        at.TuningOptions(
            num_measure_trials=trials,
            measure_callbacks=[at.RecordToFile(log)],
            builder=at.LocalBuilder(build_func=build_func, pass_env=pass_env),
            verbose=0,
            **options,  # type: ignore[arg-type]
        )
    )
    return list(RecordReader(log))


@pytest.mark.parametrize(
    ("builder", "text"),
    [("broken", "this builder builds nothing"), ("exits", "ended with exit code 3")],
)
def test_a_builder_that_fails_gives_statuses_and_one_error(
    tmp_path: Path, builder: str, text: str
) -> None:
    log = tmp_path / "a.json"
    with pytest.raises(TuningError) as caught:
        tune(log, f"tuning_builders:{builder}")
    message = str(caught.value)
    assert "no candidate of matmul(12, 10, 14) gave a right result in 8: 8 build_error" in message
    assert "first error: " in message
    assert text in message
    records = list(RecordReader(log))
    trials = [r for r in records if r.kind != BASELINE]
    assert len(trials) == 8
    for record in trials:
        assert record.status == "build_error"
        assert record.error is not None
        assert text in record.error
        assert record.seconds is None


def test_a_builder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(AutoschedError, match="no_such_module"):
        tune(tmp_path / "a.json", "no_such_module:build")


def test_a_builder_of_ones_own_is_used(tmp_path: Path) -> None:
    records = tune(tmp_path / "a.json", "tuning_builders:untransformed")
    assert {r.status for r in records} == {OK}


def test_some_candidates_fail_and_the_run_goes_on(tmp_path: Path) -> None:
    records = tune(tmp_path / "a.json", "tuning_builders:often_broken", 16)
    trials = [r for r in records if r.kind != BASELINE]
    assert len(trials) == 16
    assert {r.status for r in trials} == {OK, "build_error"}
    assert all("not this one" in (r.error or "") for r in trials if r.status != OK)


@pytest.mark.long
def test_every_fault_becomes_a_record_and_the_search_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = tmp_path / "turns"
    turns.mkdir()
    monkeypatch.setenv("SABOTEUR_TURNS", str(turns))
    records = tune(
        tmp_path / "a.json",
        "tuning_builders:saboteur",
        40,
        ("SABOTEUR_TURNS",),
        runner=at.LocalRunner(timeout=1.0),
    )
    trials = [r for r in records if r.kind != BASELINE]
    assert sorted({(r.round, r.slot) for r in trials}) == sorted((r.round, r.slot) for r in trials)
    assert len(trials) == 40
    texts: dict[str, str] = {}
    for r in trials:
        texts[r.status] = texts.get(r.status, "") + (r.error or "")
        assert (r.error is None) == (r.status == OK)
    assert set(texts) == {
        OK, "build_error", "runtime_error", "run_timeout", "wrong_result", "out_of_bounds",
    }  # fmt: skip
    for status, text in (
        ("build_error", "this one does not build"),
        ("build_error", "exit code 0 before it answered"),
        ("runtime_error", "killed by SIGSEGV"),
        ("runtime_error", "exit code 0 before it answered"),
        ("run_timeout", "not done within"),
        ("wrong_result", "never written"),
        ("out_of_bounds", "before its start"),
    ):
        assert text in texts[status]


def test_runner_options_reach_the_pool(tmp_path: Path) -> None:
    records = tune(
        tmp_path / "a.json", "measure.local.build:build", runner=at.LocalRunner(threads=1)
    )
    assert {r.status for r in records} == {OK}


def test_a_pool_of_ones_own(tmp_path: Path) -> None:
    task = at.SearchTask("matmul", (12, 10, 14))
    with at.LocalPool(task.target) as pool:
        for seed in (0, 1):
            options = at.TuningOptions(num_measure_trials=8, pool=pool, seed=seed, verbose=0)
            assert task.tune(options).trials == 8


def test_a_builder_may_be_given_as_the_function_that_it_is(tmp_path: Path) -> None:
    import tuning_builders

    assert at.LocalBuilder(build_func="default") == at.LocalBuilder()
    builder = at.LocalBuilder(build_func=tuning_builders.broken)
    assert builder == at.LocalBuilder(build_func="tuning_builders:broken")
    with pytest.raises(TuningError, match="this builder builds nothing"):
        tune(tmp_path / "a.json", tuning_builders.broken)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [lambda: None, len, "x", "a:", ":b", "a b:c", None, 3, ["a:b"]])
def test_a_builder_that_no_process_can_import_is_refused(given: Any) -> None:
    with pytest.raises(MeasureError, match=r'build_func is .*; expected "default", "module:func'):
        at.LocalBuilder(build_func=given)
