"""Finalists: who gets another turn, and what the turns give."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autosched.codegen.artifact import Artifact, KernelInfo
from measure.finalists import contenders, distribution
from measure.status import MeasureResult, Status
from measure.timing import Beside, estimate
from measure.visits import UNSURE, Turn, Visited
from measure.yardstick import Here, Yardstick

CODE = Artifact(b"", KernelInfo("kernel", (), parallel=True), "llvm")
OK = MeasureResult(Status.OK, seconds=5.0, raw_seconds=5.0, spread=0.0, noise=0.0, samples=(5.0,))
YARDSTICK = Here(Yardstick(CODE, 1.0), 1.0, known=True)


def turn(seconds: float, noise: float = 0.0) -> Turn:
    found = estimate([seconds, seconds * 1.1], [1.0], 1.0, 2)
    return Turn(replace(found, beside=Beside(seconds, 1.0, 1.0), noise=noise), yardstick=YARDSTICK)


def finalist(*turns: float) -> Visited:
    made = Visited(0, CODE, OK)
    for t in turns:
        made.add(turn(t))
    return made


def test_finalists_clearly_behind_get_no_more_turns() -> None:
    first, near, behind = (
        finalist(1.0, 1, 1),
        finalist(1.04, 1.04, 2),
        finalist(1.2, 1.2, 1.2),
    )
    young = finalist(9.0)
    failed = finalist(1.0)
    failed.add(Turn(MeasureResult(Status.RUNTIME_ERROR, "no"), to_blame=True))
    assert contenders([first, near, behind, young, failed]) == [first, near, young]
    assert contenders([]) == []
    assert contenders([finalist()]) != []


def test_finalists_turns_count_together() -> None:
    found = distribution(finalist(1.5, 1.6), "full")
    assert (found.level, found.rounds, found.runs) == ("full", (1.5, 1.6), 4)
    assert found.seconds == pytest.approx(1.525)
    assert found.noise is not None
    assert 0.03 < found.noise < 0.15, "how far the turns lie apart"
    apart = Visited(0, CODE, OK)
    for noise in (0.5, 0.2):
        apart.add(turn(1.5, noise))
    assert distribution(apart, "full").noise == 0.2
    wrong = finalist(1.5)
    wrong.result = MeasureResult(Status.WRONG_RESULT, "o[0] is 1, expected 2")
    failed = distribution(wrong, "full")
    assert (failed.status, failed.seconds) == (Status.WRONG_RESULT, None)
    assert failed.error == "o[0] is 1, expected 2"


def test_finalists_without_a_turn_were_lost() -> None:
    assert distribution(finalist(), "full").status is Status.DEVICE_LOST


def test_finalists_that_were_timed_keep_that_when_a_turn_takes_too_long() -> None:
    late = Turn(MeasureResult(Status.RUN_TIMEOUT, "no answer"), 10.0, note="ended in run_timeout")
    made = finalist(1.0, 1.0)
    made.add(late)
    assert contenders([made]) == []
    found = distribution(made, "full")
    assert (found.status, found.seconds, found.noise) == (Status.OK, 1.0, UNSURE)
    assert found.error == "ended in run_timeout"
    never = finalist()
    never.add(late)
    assert contenders([never]) == []
    once = distribution(never, "full")
    assert (once.status, once.seconds, once.noise) == (Status.OK, 5.0, UNSURE), "its first call"


def test_finalists_whose_own_fault_it_is_are_out() -> None:
    made = finalist(1.0, 1.1)
    made.add(Turn(MeasureResult(Status.RUNTIME_ERROR, "killed by SIGSEGV"), to_blame=True))
    found = distribution(made, "full")
    assert found.status is Status.RUNTIME_ERROR
    assert "killed by SIGSEGV" in found.error
    lost = finalist(1.0)
    lost.add(Turn(None))
    assert contenders([lost]) == [lost]
    assert distribution(lost, "full").seconds == 1.0


def test_finalists_that_are_cancelled_have_no_times() -> None:
    made = finalist(1.0)
    made.cancel("no time")
    found = distribution(made, "full")
    assert (found.status, found.error, found.seconds) == (Status.CANCELLED, "no time", None)
