"""Later visits of the local pool: beside a yardstick, in quiet moments, and not forever."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from measure_doubles import Double, make_pool, vector_add

from autosched.codegen.artifact import Artifact, KernelInfo
from measure import local
from measure.job import Job
from measure.local import LocalPool
from measure.pool import JobHandle
from measure.status import Status
from measure.timing import Beside, Estimate
from measure.visits import Noise, Turn
from measure.yardstick import Yardstick

GOOD = Double("right")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    with make_pool(tmp_path_factory.mktemp("lock"), n_parallel=2) as made:
        yield made


@pytest.fixture
def job(pool: LocalPool) -> JobHandle:
    return pool.open_job(vector_add())


def test_local_visits_a_candidate_again_and_counts_all_of_it(
    pool: LocalPool, job: JobHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    later: list[Estimate] = []
    turn = pool._slot.turn

    def watched(*args: Any) -> Turn:
        made = turn(*args)
        assert isinstance(made.found, Estimate)
        later.append(made.found)
        if made.yardstick is None:
            return made
        # As on a machine on which nothing disturbs.
        own = made.yardstick.seconds
        usual = dataclasses.replace(made.found, noise=0.0, beside=Beside(1.0, own, own))
        return dataclasses.replace(made, found=usual)

    monkeypatch.setattr(pool._slot, "turn", watched)
    (often,) = pool.measure(job, [GOOD])
    assert often.ok
    assert often.raw_seconds == min(often.samples)
    assert len(often.samples) > sum(len(visit.samples) for visit in later) > 0
    assert often.runs > sum(visit.runs for visit in later) > 0
    later.clear()
    assert isinstance(job, Job)
    assert job.yardstick is not None, "what the visits are taken beside"
    once = dataclasses.replace(pool._slot.plan, most_visits=1)
    monkeypatch.setattr(pool._slot, "plan", once)
    assert pool.measure(job, [GOOD])[0].ok
    assert len(later) == 1
    assert later[0].beside is not None


def test_local_visits_find_the_arguments_in_one_place_after_the_other(
    pool: LocalPool, job: JobHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, places = pool._slot.turn, []

    def watched(*args: Any) -> Turn:
        places.append(args[-1])
        made = turn(*args)
        assert isinstance(made.found, Estimate), "right in each of them"
        return made

    monkeypatch.setattr(pool._slot, "turn", watched)
    results = pool.remeasure(job, [GOOD, GOOD], rounds=10)
    assert [r.status for r in results] == [Status.OK] * 2
    assert isinstance(job, Job)
    assert job.spec.places == 8
    assert [place for place, _ in itertools.groupby(places)] == [*range(8), 0, 1]


def test_local_visits_end_with_the_turn_in_which_they_are_cancelled(
    pool: LocalPool, job: JobHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, turns, cancel = pool._slot.turn, [], threading.Event()

    def cancelled(*args: Any) -> Turn:
        turns.append(turn(*args))
        cancel.set()
        return turns[-1]

    monkeypatch.setattr(pool._slot, "turn", cancelled)
    results = pool.measure(job, [GOOD, GOOD, GOOD], cancel=cancel)
    assert len(turns) == 1
    assert all(r.ok for r in results), "first visits are results"


def test_local_patience_is_earned_by_building_too(
    pool: LocalPool, job: JobHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[float] = []
    assert isinstance(job, Job)
    monkeypatch.setattr(job.patience, "note", lambda waited, work: worked.append(work))
    results = pool.measure(job, [GOOD, GOOD])
    assert sum(worked) > sum(r.build_seconds + r.run_wall_seconds for r in results) / 2


def test_local_waits_for_a_quiet_moment_and_not_forever(
    pool: LocalPool, job: JobHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, noises = pool._slot.turn, [0.9] * 6
    always = Yardstick(Artifact(b"", KernelInfo("kernel", ()), "llvm"), 1e-9).at(0)

    def disturbed(*args: Any) -> Turn:
        made = turn(*args)
        assert isinstance(made.found, Estimate)
        told = {"noise": noises.pop(0) if noises else 0.0, "beside": Beside(1e-9, 1e-9, 1e-9)}
        found = dataclasses.replace(made.found, **told)
        return dataclasses.replace(made, found=found, yardstick=always)

    monkeypatch.setattr(pool._slot, "turn", disturbed)
    monkeypatch.setattr(pool, "_noise", Noise())
    monkeypatch.setattr(job, "yardstick", None)
    monkeypatch.setattr(local, "PAUSE_SECONDS", 0.001)
    results = pool.measure(job, [GOOD, GOOD])
    assert not noises
    assert [(r.ok, r.noise) for r in results] == [(True, 0.0)] * 2
    noises += [0.9] * 10**6
    (never,) = pool.measure(job, [GOOD])
    assert never.ok
    assert never.noise == 0.9


def test_local_visits_go_on_in_a_new_process(pool: LocalPool, job: JobHandle) -> None:
    """Between two visits another candidate crashed: memory is filled again."""
    doubles = [GOOD, *[Double("segfault")] * 3, GOOD] * 4
    results = pool.measure(job, doubles)
    assert [r.ok for r in results] == [d.name == "right" for d in doubles]
