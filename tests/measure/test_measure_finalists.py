"""Finalists: who gets another turn, and what the turns give."""

from __future__ import annotations

from dataclasses import replace

from autosched.codegen.artifact import Artifact, KernelInfo
from measure.finalists import Finalist, contenders
from measure.runner import Pace
from measure.status import MeasureResult, Status
from measure.timing import estimate
from measure.visits import UNSURE, Turn

CODE = Artifact(b"", KernelInfo("kernel", (), parallel=True), "llvm")
PACE = Pace(CODE, 2, serial=1.0, parallel=1.0)


def finalist(*turns: float) -> Finalist:
    made = Finalist("full", CODE)
    made.turns = [estimate([t, t * 1.1], [1.0], 1.0, 2) for t in turns]
    return made


def test_finalists_clearly_behind_get_no_more_turns() -> None:
    first, near, behind = (
        finalist(1.0, 1, 1),
        finalist(1.04, 2, 2),
        finalist(1.2, 1.2, 1.2),
    )
    young = finalist(9.0)
    failed = finalist(1.0)
    failed.status = Status.RUNTIME_ERROR
    assert contenders([first, near, behind, young, failed]) == [first, near, young]
    assert contenders([]) == []
    assert contenders([finalist()]) != []


def test_finalists_turns_count_together() -> None:
    found = finalist(1.5, 1.6).distribution(PACE)
    assert (found.level, found.seconds, found.rounds, found.runs) == ("full", 1.5, (1.5, 1.6), 4)
    apart = finalist(1.5, 1.6)
    apart.turns = [
        replace(turn, noise=noise) for turn, noise in zip(apart.turns, (0.5, 0.2), strict=True)
    ]
    assert apart.distribution(PACE).noise == 0.2
    wrong = finalist(1.5)
    wrong.status, wrong.error = Status.WRONG_RESULT, "o[0] is 1, expected 2"
    failed = wrong.distribution(PACE)
    assert (failed.status, failed.error, failed.seconds) == (wrong.status, wrong.error, None)


def test_finalists_without_a_turn_were_lost() -> None:
    assert finalist().distribution(PACE).status is Status.DEVICE_LOST


def test_finalists_that_were_timed_keep_that_when_a_turn_takes_too_long() -> None:
    late = Turn(MeasureResult(Status.RUN_TIMEOUT, "no answer"), 10.0, note="ended in run_timeout")
    made = finalist(1.0, 1.1)
    made.add(late)
    assert contenders([made]) == []
    found = made.distribution(PACE)
    assert (found.status, found.seconds, found.noise) == (Status.OK, 1.0, UNSURE)
    assert found.error == "ended in run_timeout"
    never = finalist()
    never.add(late)
    assert contenders([never]) == []
    assert never.distribution(PACE).status is Status.RUN_TIMEOUT


def test_finalists_whose_own_fault_it_is_are_out() -> None:
    made = finalist(1.0, 1.1)
    made.add(Turn(MeasureResult(Status.RUNTIME_ERROR, "killed by SIGSEGV"), to_blame=True))
    found = made.distribution(PACE)
    assert (found.status, found.error) == (Status.RUNTIME_ERROR, "killed by SIGSEGV")
    lost = finalist(1.0)
    lost.add(Turn(None))
    assert contenders([lost]) == [lost]
    assert lost.distribution(PACE).seconds == 1.0
