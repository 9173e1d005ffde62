"""Later blocks of the local pool: who gets them, where, and what their failures do."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from measure_doubles import Double, make_pool, vector_add

from measure.local.job import Job
from measure.local.pool import LocalPool
from measure.local.runner import Sample
from measure.pool import JobHandle
from measure.process.child import Outcome
from measure.status import MeasureResult, Status
from measure.timing.plan import SEARCH
from measure.timing.sampler import UNSURE
from measure.timing.timing import Timing

GOOD = Double("right")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    with make_pool(tmp_path_factory.mktemp("lock"), n_parallel=2) as made:
        yield made


@pytest.fixture
def job(pool: LocalPool) -> JobHandle:
    return pool.open_job(vector_add())


@pytest.fixture
def later(pool: LocalPool, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Timing]]:
    """The blocks after the first as they come, as on a machine on which nothing disturbs, with the
    places of the arguments."""
    sample, taken = pool._slot.sample, []

    def watched(*args: Any) -> MeasureResult:
        made = sample(*args)
        assert made.timing is not None, "right in each place"
        found = dataclasses.replace(made.timing, noise=0.0)
        taken.append((args[-1], found))
        return dataclasses.replace(made, timing=found)

    monkeypatch.setattr(pool._slot, "sample", watched)
    return taken


def test_local_samples_the_best_again_and_counts_all_of_it(
    pool: LocalPool, job: JobHandle, later: list[tuple[int, Timing]]
) -> None:
    (result,) = pool.measure(job, [GOOD])
    assert result.ok
    assert 1 <= len(later) < SEARCH.most
    assert result.raw_seconds == min(result.samples)
    assert len(result.samples) > sum(len(block.samples) for _, block in later)
    assert result.runs > sum(block.runs for _, block in later)


def test_local_finds_the_finalists_arguments_in_one_place_after_the_other(
    pool: LocalPool, job: JobHandle, later: list[tuple[int, Timing]]
) -> None:
    results = pool.remeasure(job, [GOOD], rounds=10)
    assert [r.status for r in results] == [Status.OK]
    assert isinstance(job, Job)
    assert job.spec.places == 8
    places = [place for place, _ in itertools.groupby(later, key=lambda one: one[0])]
    assert places == [*range(len(later))]
    assert len(later) >= 2


def test_local_sampling_ends_with_the_block_in_which_it_is_cancelled(
    pool: LocalPool, job: JobHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, taken, cancel = pool._slot.sample, [], threading.Event()

    def cancelled(*args: Any) -> MeasureResult:
        taken.append(sample(*args))
        cancel.set()
        return taken[-1]

    monkeypatch.setattr(pool._slot, "sample", cancelled)
    results = pool.measure(job, [GOOD, GOOD, GOOD], cancel=cancel)
    assert len(taken) == 1
    assert all(r.ok for r in results), "first blocks are results"


@pytest.mark.parametrize(
    ("outcome", "ok", "text"),
    [
        (Outcome("crash", text="killed by SIGSEGV"), False, "ran again:\nkilled by SIGSEGV"),
        (Outcome("timeout", text="not done"), True, "a later block ended in run_timeout: not done"),
        (Outcome("memory", text="no room"), True, "a later block ended in out_of_memory: no room"),
        (Outcome("lost", text="killed from outside"), True, ""),
    ],
    ids=lambda value: value.kind if isinstance(value, Outcome) else "",
)
def test_local_says_how_a_later_block_failed(
    pool: LocalPool,
    job: JobHandle,
    monkeypatch: pytest.MonkeyPatch,
    outcome: Outcome[MeasureResult],
    ok: bool,
    text: str,
) -> None:
    call = pool._slot._call

    def failing(job: Job, request: Any, timeout: float) -> Any:
        if isinstance(request, Sample):
            return dataclasses.replace(outcome, wall_seconds=1.0), 0.0
        return call(job, request, timeout)

    monkeypatch.setattr(pool._slot, "_call", failing)
    (result,) = pool.measure(job, [GOOD])
    assert result.ok is ok
    assert text in result.error
    assert result.run_wall_seconds > 1.0
    assert (result.seconds is None) is not ok
    if text and ok:
        assert result.noise is not None
        assert result.noise >= UNSURE
    (found,) = pool.remeasure(job, [GOOD])
    assert (found.status is Status.OK) is ok
    assert text in found.error


def test_local_goes_on_in_a_new_process(pool: LocalPool, job: JobHandle) -> None:
    """Between two blocks another candidate crashed: memory is filled again."""
    doubles = [GOOD, *[Double("segfault")] * 3, GOOD] * 4
    results = pool.measure(job, doubles)
    assert [r.ok for r in results] == [d.name == "right" for d in doubles]
