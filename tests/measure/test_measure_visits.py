"""Visits: who gets another one, what they give together, and the noise figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autosched.codegen.artifact import Artifact, KernelInfo
from autosched.errors import DeviceError
from measure import runner
from measure.child import Outcome, OutcomeKind
from measure.patience import Patience
from measure.runner import Pace
from measure.slot import QUIET_SECONDS, LocalRunner, Slot
from measure.status import MeasureResult, Status
from measure.timing import Beside, Estimate, TimingPlan, estimate
from measure.visits import UNSEEN, UNSURE, Noise, Turn, Visited
from measure.warm import Template
from measure.yardstick import CALM, ENOUGH, FEW, KEPT, Here, Yardstick

CODE = Artifact(b"", KernelInfo("kernel", ()), "llvm")
PLAN = TimingPlan()
OWN = 0.8e-3
"""What the yardstick takes."""


def times(seconds: float) -> Estimate:
    """A first visit."""
    return estimate([seconds, 1.1 * seconds], [1.0], 1.0, 2)


def turn(seconds: float, own: float = OWN, noise: float = 0.0, wall: float = 0.0) -> Turn:
    """A later one, on a machine on which the yardstick takes `own` seconds."""
    found = replace(times(seconds), beside=Beside(seconds, own, own), noise=noise)
    return Turn(found, wall, yardstick=Here(Yardstick(CODE, OWN), OWN, known=True))


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


def visited(*seconds: float, wall: float = 0.0) -> Visited:
    """After a first visit and these."""
    made = first(seconds[0])
    for s in seconds:
        made.add(turn(s, wall=wall))
    return made


def test_visits_count_together() -> None:
    made = visited(1.2e-3, 1.0e-3, 1.1e-3, wall=0.25)
    found = made.final()
    assert found.seconds == pytest.approx(1.05e-3), "the lower quartile"
    assert found.raw_seconds == 1.0e-3
    assert found.runs == len(found.samples) == 8
    assert found.run_wall_seconds == pytest.approx(1.25)
    assert found.spread
    assert found.spread > 0.1
    assert first(1e-3).final().seconds == 1e-3


def test_visits_are_told_without_what_slowed_the_yardstick() -> None:
    made = first(1e-3)
    yardstick = Yardstick(CODE, OWN)
    here = yardstick.at(0)
    for slow in (1.0, 1.1, 1.2, 0.9) * 4:
        found = replace(times(1e-3), beside=Beside(1e-3 * slow, OWN * slow, OWN * slow))
        made.add(Turn(found, yardstick=here))
        here.note(OWN * slow)
    yardstick.learn([(v.kernel, v.own) for v in made.quiet])
    assert yardstick.share == pytest.approx(1.0, abs=0.01), "what slows the one slows the other"
    assert made.error == pytest.approx(0.0, abs=1e-3)
    for _ in range(40):
        yardstick.learn([(1e-3, OWN), (1e-3, 1.2 * OWN)])
    assert yardstick.share < 0.2, "others are slowed little"


def test_visits_beside_a_yardstick_that_is_unusually_slow_are_disturbed() -> None:
    made = first(1e-3)
    made.add(turn(1.3e-3, 1.3 * OWN))
    assert (len(made.quiet), len(made.disturbed)) == (0, 1)
    made.add(turn(1.01e-3, 1.01 * OWN))
    assert len(made.quiet) == 1
    noise = made.final().noise
    assert noise is not None
    assert noise < 0.02


def test_visits_find_out_what_the_yardstick_takes_and_keep_to_it() -> None:
    here = Yardstick(CODE, 9.0).at(0)
    assert here.unusual(20.0) == 0.0
    for n in range(ENOUGH):
        here.note(1.0 + n % 3)
    assert (here.known, here.seconds) == (True, 1.0)
    here.note(50.0)
    assert here.seconds == 1.0
    assert here.unusual(1.5) == pytest.approx(0.5)


def test_yardstick_is_known_for_each_place_by_itself() -> None:
    yardstick = Yardstick(CODE, 9.0)
    for place, own in enumerate((1.0, 1.1)):
        for _ in range(ENOUGH):
            yardstick.at(place).note(own)
    assert [yardstick.at(place).seconds for place in range(3)] == [1.0, 1.1, 9.0]
    assert yardstick.at(0).cancelled(1.0, 1.0) == yardstick.at(1).cancelled(1.0, 1.1) == 1.0
    assert yardstick.at(1).unusual(1.1) == 0.0


def test_yardstick_gives_way_to_a_candidate_that_is_much_faster() -> None:
    yardstick = Yardstick(CODE, 9.0)
    assert yardstick.replaced_by(CODE, 1.0) is None, "it is not known"
    for _ in range(ENOUGH):
        yardstick.at(1).note(3.0)
    assert yardstick.replaced_by(CODE, 1.6) is None
    yardstick.learn([(1e-3, OWN), (1e-3, 1.2 * OWN)])
    other = yardstick.replaced_by(CODE, 1.4)
    assert other is not None
    assert (other.seconds, other.share) == (1.4, yardstick.share)


def test_yardstick_knows_what_it_takes_in_calm_moments() -> None:
    here = Yardstick(CODE, OWN).at(0)
    for n in range(KEPT):
        assert bool(here.calm_seconds) is (n >= FEW)
        here.note(OWN if n % 4 == 0 else 1.2 * OWN)
    assert here.calm_seconds == pytest.approx(CALM * OWN)
    for _ in range(KEPT):
        here.note(1.3 * OWN)
    assert here.calm_seconds == pytest.approx(CALM * 1.3 * OWN), "there are none any more"


def test_visits_in_calm_moments_count_where_there_are_two() -> None:
    here, made = Here(Yardstick(CODE, OWN), OWN, known=True), first(1e-3)
    for _ in range(FEW):
        here.note(OWN)

    def add(seconds: float, own: float, slowest: float) -> None:
        found = replace(times(seconds), beside=Beside(seconds, own, slowest))
        made.add(Turn(found, yardstick=here))

    add(0.90e-3, OWN, 1.10 * OWN)
    add(0.91e-3, OWN, 1.10 * OWN)
    add(1.00e-3, OWN, 1.04 * OWN)
    assert made.seconds == pytest.approx(0.905e-3), "a single one says little"
    add(1.00e-3, OWN, 1.04 * OWN)
    assert made.seconds == pytest.approx(1.00e-3)
    assert made.error == 0.0


def test_visits_go_on_until_they_agree() -> None:
    far = 2e-3
    assert first(far).unsettled(1e-3, PLAN)
    assert visited(far).unsettled(1e-3, PLAN)
    assert not visited(far, 1.01 * far).unsettled(1e-3, PLAN)
    assert visited(far, 1.2 * far).unsettled(1e-3, PLAN)
    restless = visited(*[far * 1.1**n for n in range(PLAN.most_visits)])
    assert not restless.unsettled(1e-3, PLAN)
    near = visited(1.02e-3, 1.02e-3)
    assert near.unsettled(1e-3, PLAN), "there the order counts"
    near.add(turn(1.02e-3))
    assert not near.unsettled(1e-3, PLAN)


def test_visits_that_are_slowed_by_far_do_not_put_a_candidate_out() -> None:
    made = first(1e-3)
    made.add(turn(9e-3, wall=1.0))
    assert made.seconds == pytest.approx(9e-3)
    assert made.unsettled(1e-3, PLAN), "its first visit took a ninth of that"
    made.add(turn(1e-3))
    made.add(turn(1e-3))
    assert made.seconds == pytest.approx(1e-3)
    assert not made.unsettled(1e-3, PLAN)


def test_visits_end_when_they_took_too_long() -> None:
    for ratio, most in ((1.3, PLAN.most_ms), (1.0, PLAN.most_near_ms)):
        for share, more in ((0.9, True), (1.1, False)):
            wall = share * most * 1e-3 / 3
            unsure = visited(*(ratio * s for s in (1e-3, 1.02e-3, 1.04e-3)), wall=wall)
            assert unsure.unsettled(1e-3, PLAN) is more


def test_visits_are_for_those_in_the_race() -> None:
    assert not first(1e-3 * PLAN.out_of_race * 1.01).unsettled(1e-3, PLAN)
    assert not first(PLAN.long_factor * PLAN.budget_ms * 1.1e-3).unsettled(1.0, PLAN)
    failed = Visited(0, None, MeasureResult(Status.BUILD_ERROR, error="no"))
    assert not failed.unsettled(1e-3, PLAN)
    slow = first(1e-3 * PLAN.out_of_race * 1.5)
    slow.result = replace(slow.result, noise=0.9)
    assert slow.unsettled(1e-3, PLAN), "who shared a core may be in the race"


def test_visits_that_were_disturbed_count_where_none_was_not() -> None:
    made = first(1.5e-3)
    made.add(turn(1.4e-3, noise=0.7))
    assert made.unsettled(0.5e-3, PLAN)
    assert made.final().seconds == pytest.approx(1.4e-3)
    assert made.final().noise == 0.7
    made.add(turn(1e-3))
    assert made.final().seconds == pytest.approx(1e-3)
    assert made.final().noise == 0.0
    restless = first(1e-3)
    for _ in range(PLAN.least_visits):
        assert not restless.restless(PLAN)
        restless.add(turn(1e-3, noise=0.6))
    assert restless.restless(PLAN)
    restless.add(turn(1e-3))
    assert not restless.restless(PLAN)


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
    made = first(1e-3)
    late = MeasureResult(Status.RUN_TIMEOUT, error="no answer within 10 s")
    made.add(Turn(late, 10.0, note="a later visit ended in run_timeout: no answer within 10 s"))
    assert not made.unsettled(1e-3, PLAN)
    found = Noise().note(made)
    assert (found.status, found.seconds, found.noise) == (Status.OK, 1e-3, UNSURE)
    assert "run_timeout" in found.error
    assert found.run_wall_seconds == pytest.approx(10.5)


def test_visits_are_few_where_the_order_does_not_count() -> None:
    long = 4e-3
    assert first(long).unsettled(0.6 * long, PLAN)
    assert not visited(long).unsettled(0.6 * long, PLAN)
    assert visited(long).unsettled(0.7 * long, PLAN)
    assert not visited(long, long).unsettled(0.7 * long, PLAN)


def test_visits_lost_with_the_device_are_restless_in_the_end() -> None:
    made = first(1e-3)
    for _ in range(PLAN.least_visits):
        made.add(Turn(None))
    assert made.restless(PLAN)
    assert made.final().ok


def test_noise_is_how_far_times_of_equal_programs_lie_apart() -> None:
    noise = Noise()
    assert noise.figure() == 0.0
    assert noise.note(first(1e-3)).noise == 0.0
    random = np.random.default_rng(0)
    for _ in range(64):
        noise.note(visited(*(1e-3 * (1 + 0.01 * random.standard_normal(5)))))
    apart = [abs(np.mean(a) - np.mean(b)) for a, b in 0.01 * random.standard_normal((1000, 2, 5))]
    assert noise.figure() == pytest.approx(UNSEEN * np.quantile(apart, 0.9), rel=0.3)
    loud = visited(1e-3, 1e-3)
    loud.quiet[:] = [replace(v, noise=0.3) for v in loud.quiet]
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
        return Outcome(kind, turn(1.0).found if kind == "value" else None, kind, wall_seconds=0.25)

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
    job: Any = SimpleNamespace(
        handling_seconds=0.0,
        spec=SimpleNamespace(size=0, places=1),
        fd=0,
        yardstick=Yardstick(CODE, OWN),
        patience=Patience(),
    )
    made = slot.turn(job, CODE, 1.0)
    assert made.seconds == 0.25 * (len(kinds) - left)
    assert len(child.kinds) == left
    assert getattr(made.found, "status", None) == status
    assert (made.to_blame, bool(made.note)) == (to_blame, noted)
    assert (job.yardstick is None) is (noted and kinds[-1] == "value" and not left), "wild as well"
    assert not (slot._is_fresh and child.pid is not None), "a candidate has run there"


@pytest.mark.parametrize("lost", [True, False])
def test_visits_of_a_device_that_goes_away_blame_nobody(
    lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(where: object) -> object:
        raise DeviceError("the GPU fell off the bus", lost)

    monkeypatch.setattr(runner, "_runner", gone)
    job: Any = SimpleNamespace(
        handling_seconds=0.0,
        spec=SimpleNamespace(where=None, size=0, places=1),
        fd=0,
        yardstick=None,
        patience=Patience(),
    )
    pace = Pace(CODE, 1, 1.0, 1.0)
    slot = Slot(Template([]), LocalRunner(lock_folder=tmp_path), 1, lambda: CODE)
    slot._pace = pace
    child = Shared("value")
    reply = runner.sample(job.spec, CODE, 1.0, None, PLAN, pace, 0.0, 0, [0])
    monkeypatch.setattr(child, "call", lambda *args, **options: Outcome("value", reply))
    monkeypatch.setattr(slot, "child", child)
    found = slot.turn(job, CODE, 1.0).found
    assert getattr(found, "status", None) == (None if lost else Status.RUNTIME_ERROR)


def test_visits_of_a_job_that_waited_in_vain_take_the_cores_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting is not counted as the device's time, and comes on top of the candidate's."""
    job: Any = SimpleNamespace(yardstick=None, patience=Patience())
    slot = Slot(Template([]), LocalRunner(lock_folder=tmp_path), 1, lambda: CODE)
    pace = slot._pace = Pace(CODE, 1, 1.0, 1.0, alone=(14.0, 14.0))
    asked: list[tuple[Pace, float, float]] = []

    def call(job: Any, function: str, *args: Any, timeout: float) -> tuple[Outcome, float]:
        asked.append((*args[-3:-1], timeout - slot.options.timeout))
        found = replace(turn(1.0).found, waited_seconds=args[-2])  # type: ignore[type-var]
        return Outcome("value", found, wall_seconds=args[-2] + 0.25), 0.0

    monkeypatch.setattr(slot, "_call", call)
    while job.patience.seconds:
        assert slot.turn(job, CODE, 1.0).seconds == pytest.approx(0.25)
    assert asked[0] == (pace, QUIET_SECONDS, QUIET_SECONDS)
    assert slot.turn(job, CODE, 1.0).seconds == 0.25
    assert asked[-1] == (replace(pace, alone=(0.0, 0.0)), 0.0, 0.0)
