"""Visits: who gets another one, what they give together, and the noise figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autosched.codegen.artifact import Artifact, KernelInfo
from autosched.errors import DeviceError
from measure import runner
from measure.child import Outcome, OutcomeKind
from measure.runner import Pace
from measure.slot import LocalRunner, Slot
from measure.status import MeasureResult, Status
from measure.timing import Estimate, TimingPlan, estimate
from measure.visits import UNSURE, Noise, Turn, Visited
from measure.warm import Template

CODE = Artifact(b"", KernelInfo("kernel", ()), "llvm")
PLAN = TimingPlan()


def times(seconds: float, pace: float = 1.0) -> Estimate:
    """A visit whose clock ran `pace` times as slow as nominal."""
    return estimate([seconds * pace, 1.1 * seconds * pace], [pace], 1.0, 2)


def first(seconds: float) -> Visited:
    found = times(seconds)
    result = MeasureResult(
        Status.OK,
        seconds=found.seconds,
        raw_seconds=found.raw_seconds,
        spread=found.spread,
        noise=found.noise,
        runs=found.runs,
        samples=found.samples,
        run_wall_seconds=0.5,
    )
    return Visited(0, CODE, result)


def visited(*seconds: float) -> Visited:
    made = first(seconds[0])
    for s in seconds[1:]:
        made.add(Turn(times(s), 0.25))
    return made


def test_visits_count_together() -> None:
    found = visited(1.2e-3, 1.0e-3, 1.1e-3).result
    assert (found.seconds, found.raw_seconds) == (1.0e-3, 1.0e-3)
    assert found.runs == len(found.samples) == 6
    assert found.run_wall_seconds == pytest.approx(1.0)
    assert found.spread
    assert found.spread > 0.1


def test_visits_are_compared_without_the_drift_of_the_clock() -> None:
    made = first(1e-3)
    made.add(Turn(times(1e-3, pace=1.2)))
    assert made.gap == pytest.approx(0.0)
    assert made.result.seconds == pytest.approx(1e-3)


def test_visits_go_on_until_the_two_best_agree() -> None:
    assert first(2e-3).unsettled(1e-3, PLAN)
    assert not visited(2e-3, 2.01e-3).unsettled(1e-3, PLAN)
    assert visited(2e-3, 2.4e-3).unsettled(1e-3, PLAN)
    assert not visited(2.4e-3, 2e-3, 2.01e-3).unsettled(1e-3, PLAN)
    restless = visited(*[2e-3 * 1.1**n for n in range(PLAN.most_visits)])
    assert not restless.unsettled(1e-3, PLAN)


def test_visits_are_more_where_the_order_counts() -> None:
    near = visited(1.02e-3, 1.02e-3)
    assert near.unsettled(1e-3, PLAN)
    near.add(Turn(times(1.02e-3)))
    assert not near.unsettled(1e-3, PLAN)


def test_visits_are_most_near_the_best_while_they_differ() -> None:
    restless = [1.0e-3 * 1.02**n for n in range(PLAN.most_near_visits)]
    for count in range(PLAN.near_visits, PLAN.most_near_visits):
        assert visited(*restless[:count]).unsettled(1e-3, PLAN)
    assert not visited(*restless).unsettled(1e-3, PLAN)


def test_visits_are_for_those_in_the_race() -> None:
    assert not first(1e-3 * PLAN.out_of_race * 1.01).unsettled(1e-3, PLAN)
    assert not first(PLAN.long_factor * PLAN.budget_ms * 1.1e-3).unsettled(1.0, PLAN)
    failed = Visited(0, None, MeasureResult(Status.BUILD_ERROR, error="no"))
    assert not failed.unsettled(1e-3, PLAN)


def test_visits_that_were_disturbed_do_not_count() -> None:
    made = first(1.5e-3)
    made.result = replace(made.result, noise=0.7)
    made.quiet.clear()
    made.add(Turn(times(1e-3)))
    assert made.unsettled(0.5e-3, PLAN)
    assert made.gap is None
    made.add(Turn(replace(times(1.4e-3), noise=0.7)))
    assert made.unsettled(0.5e-3, PLAN)
    made.add(Turn(times(1.004e-3)))
    assert not made.unsettled(0.5e-3, PLAN)
    assert made.gap == pytest.approx(0.004)
    assert made.result.noise == 0.0
    restless = first(1e-3)
    restless.result = replace(restless.result, noise=0.7)
    restless.quiet.clear()
    while restless.unsettled(1e-3, PLAN):
        restless.add(Turn(replace(times(1e-3), noise=0.6)))
    assert restless.tried == PLAN.near_visits
    assert Noise().note(restless).noise == 0.6


def test_visits_in_which_the_candidate_fails_make_it_fail() -> None:
    made = first(1e-3)
    made.add(Turn(MeasureResult(Status.RUNTIME_ERROR, error="killed by SIGSEGV"), to_blame=True))
    found = Noise().note(made)
    assert found.status is Status.RUNTIME_ERROR
    assert "killed by SIGSEGV" in found.error
    assert (found.seconds, found.raw_seconds, found.spread, found.noise) == (None,) * 4
    assert (found.runs, found.samples) == (0, ())
    assert not made.unsettled(1e-3, PLAN)


def test_visits_that_took_too_long_leave_what_was_measured_and_say_so() -> None:
    made = visited(1e-3)
    late = MeasureResult(Status.RUN_TIMEOUT, error="no answer within 10 s")
    made.add(Turn(late, 10.0, note="a later visit ended in run_timeout: no answer within 10 s"))
    assert not made.unsettled(1e-3, PLAN)
    found = Noise().note(made)
    assert (found.status, found.seconds, found.noise) == (Status.OK, 1e-3, UNSURE)
    assert "run_timeout" in found.error
    assert found.run_wall_seconds == pytest.approx(10.5)


def test_visits_are_few_where_the_order_does_not_count() -> None:
    far, long = 2e-3, 4e-3
    assert first(far).unsettled(1e-3, PLAN)
    assert not visited(far, 1.02 * far).unsettled(1e-3, PLAN)
    assert visited(far, 1.04 * far).unsettled(1e-3, PLAN)
    assert not first(long).unsettled(0.6 * long, PLAN)
    assert first(long).unsettled(0.7 * long, PLAN)
    disturbed = first(long)
    disturbed.quiet.clear()
    assert disturbed.unsettled(0.6 * long, PLAN)


def test_visits_lost_with_the_device_are_not_without_end() -> None:
    made = first(1e-3)
    while made.unsettled(1e-3, PLAN):
        made.add(Turn(None))
    assert made.tried == PLAN.most_near_visits
    assert made.result.ok


def test_noise_is_how_far_visits_of_one_candidate_lie_apart() -> None:
    noise = Noise()
    assert noise.figure() == 0.0
    assert noise.note(first(1e-3)).noise == 0.0
    for _ in range(8):
        noise.note(visited(1e-3, 1.002e-3))
    assert noise.figure() == pytest.approx(0.002)
    for _ in range(8):
        noise.note(visited(1e-3, 1.2e-3))
    assert noise.figure() == pytest.approx(0.2)
    for _ in range(100):
        last = noise.note(visited(1e-3, 1.002e-3))
    assert last.noise == pytest.approx(0.002)
    loud = visited(1e-3, 1e-3)
    loud.result = replace(loud.result, noise=0.3)
    assert noise.note(loud).noise == 0.3


class Shared:
    """A runner child in which calls end as told; a crash ends the process."""

    def __init__(self, *kinds: OutcomeKind) -> None:
        self.kinds = list(kinds)
        self.pid: int | None = 1
        self.starts = 1

    def call(self, *args: Any, **options: Any) -> Outcome:
        if self.pid is None:
            self.pid, self.starts = 1, self.starts + 1
        kind = self.kinds.pop(0)
        if kind == "crash":
            self.pid = None
        return Outcome(kind, times(1.0) if kind == "value" else None, kind, wall_seconds=0.25)

    def kill(self) -> None:
        self.pid = None


@pytest.mark.parametrize(
    ("kinds", "used", "status", "to_blame", "noted", "left"),
    [
        (("crash", "value"), True, None, False, False, 0),
        (("memory", "value"), True, None, False, False, 0),
        (("crash", "crash"), True, Status.RUNTIME_ERROR, True, False, 0),
        (("crash", "value"), False, None, False, True, 0),
        (("error", "error"), False, Status.RUNTIME_ERROR, True, False, 0),
        (("memory", "memory"), True, Status.OUT_OF_MEMORY, False, True, 0),
        (("timeout", "value"), True, Status.RUN_TIMEOUT, False, True, 1),
        (("lost", "value"), True, None, False, False, 1),
        (("crash", "lost"), False, None, False, True, 0),
    ],
)
def test_visits_that_may_fail_for_others_are_believed_of_a_fresh_process(
    kinds: tuple[OutcomeKind, ...],
    used: bool,
    status: Status | None,
    to_blame: bool,
    noted: bool,
    left: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slot = Slot(Template([]), LocalRunner(lock_folder=tmp_path), 1, lambda: CODE)
    child = Shared(*kinds)
    monkeypatch.setattr(slot, "child", child)
    slot._pace = Pace(CODE, 1, 1.0, 1.0)
    slot._used_start = child.starts if used else 0
    job: Any = SimpleNamespace(handling_seconds=0.0, spec=SimpleNamespace(size=0), fd=0)
    turn = slot.turn(job, CODE)
    assert turn.seconds == 0.25 * (len(kinds) - left)
    assert len(child.kinds) == left
    assert getattr(turn.found, "status", None) == status
    assert (turn.to_blame, bool(turn.note)) == (to_blame, noted)
    assert not (slot._is_fresh and child.pid is not None), "a candidate has run there"


@pytest.mark.parametrize("lost", [True, False])
def test_visits_of_a_device_that_goes_away_blame_nobody(
    lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(where: object) -> object:
        raise DeviceError("the GPU fell off the bus", lost)

    monkeypatch.setattr(runner, "_runner", gone)
    job: Any = SimpleNamespace(handling_seconds=0.0, spec=SimpleNamespace(where=None, size=0), fd=0)
    pace = Pace(CODE, 1, 1.0, 1.0)
    slot = Slot(Template([]), LocalRunner(lock_folder=tmp_path), 1, lambda: CODE)
    slot._pace = pace
    child = Shared("value")
    reply = runner.sample(job.spec, CODE, PLAN, pace, None, [0])
    monkeypatch.setattr(child, "call", lambda *args, **options: Outcome("value", reply))
    monkeypatch.setattr(slot, "child", child)
    found = slot.turn(job, CODE).found
    assert getattr(found, "status", None) == (None if lost else Status.RUNTIME_ERROR)
