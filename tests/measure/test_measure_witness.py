"""The witness: whether somebody shares a core."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from autosched.codegen.artifact import Artifact, KernelInfo
from autosched.codegen.llvm.assemble import assembly
from autosched.target import Target
from measure import patience, runner, witness
from measure.patience import (
    FIRST_SECONDS,
    MOST_SECONDS,
    PAUSE_SECONDS,
    SPARSE,
    Moment,
    Patience,
)
from measure.runner import Pace, placed
from measure.timing import estimate
from measure.witness import (
    APART_NOISE,
    CROWDED,
    LOOKS,
    TRIES,
    crowding,
    least,
    shares_cores,
    usual_cycles,
)

CODE = Artifact(b"", KernelInfo("kernel", ()), "llvm")
PACE = Pace(CODE, 2, 1.0, 1.0, alone=(14.0, 14.5), barrier=37e-9)


def runs(*seconds: float):  # type: ignore[no-untyped-def]
    times = iter(seconds)
    return lambda: next(times)


def test_witness_says_how_much_slower_a_shared_core_is() -> None:
    assert crowding(14.0, 14.0) == 0.0
    assert crowding(14.0 * CROWDED, 14.0) == 0.0
    assert crowding(24.5, 14.0) == pytest.approx(0.75)


def test_witness_does_not_take_a_moments_absence_for_a_crowd() -> None:
    assert least(runs(28.0, 14.1), 14.0) == 14.1
    assert least(runs(14.0 * CROWDED), 14.0) == 14.0 * CROWDED
    assert least(runs(26.0, 24.5, 25.0), 14.0) == 24.5
    with pytest.raises(StopIteration):
        least(runs(*[26.0] * (TRIES - 1)), 14.0)


def test_witness_is_a_row_that_nobody_removed() -> None:
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3")
    text = assembly(witness._IR, target)
    assert text.count("\tnop\n") >= witness.ROW
    assert text.count("xorq") >= witness.LINKS
    assert f"${witness.ITERATIONS}" in text


def test_witness_runs_on_all_threads_and_takes_cycles() -> None:
    """Every processor of today dispatches one to sixteen instructions a cycle."""
    for threads in (1, 2):
        assert witness.ROW / 16 < usual_cycles(threads, 0.0) < 100 * witness.ROW
    assert 0 < witness.barrier_seconds(2) < 1


@pytest.mark.parametrize(("threads", "longer"), [(1, 1), (8, 1), (64, 8)])
def test_witness_takes_longer_on_many_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int, longer: int
) -> None:
    """And the clock that ran faster after the row, or before it, is the one that counts."""
    chains = [1.1, 1.0]

    def time_calls(code: str, each: int, workspace: int, threads: int, number: int) -> float:
        if code == "chain":
            return chains.pop() * witness.CHAIN * witness.LINKS
        assert each == longer
        return 14.0 * longer * witness.ITERATIONS

    monkeypatch.setattr(witness, "load", lambda: {"chain": "chain", "witness": "witness"})
    monkeypatch.setattr(witness, "time_calls", time_calls)
    assert witness.cycles(threads) == pytest.approx(14.0)
    chains += [1.0, 1.1]
    assert witness.cycles(threads) == pytest.approx(14.0)


def test_who_watches_knows_what_was_seen_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who shares the cores all the time is noticed where it is known how they are alone."""
    monkeypatch.setattr(witness, "cycles", lambda threads: 24.0)
    monkeypatch.setattr(witness, "shares_cores", lambda numbers: False)
    assert witness.watch(1, 0.01, inf) == (0.0, 0.0)
    assert witness.watch(1, 0.01, 14.0) == (1.0, 0.0)
    monkeypatch.setattr(witness, "shares_cores", lambda numbers: True)
    assert witness.watch(1, 0.01, 14.0) == (0.0, 0.0)


def test_a_chain_that_was_disturbed_is_not_the_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([14.0, 0.8, *[14.0] * (LOOKS - 1)])
    monkeypatch.setattr(witness, "cycles", lambda threads: next(seen))
    assert usual_cycles(1, 0.0) == 14.0
    looks = placed(estimate([1.0], [1.0], 1.0, 1), inf, [14.1, 0.8, 14.2, 14.1, 20.0], PACE)
    assert looks.witness_cycles == 14.1
    looks = placed(estimate([1.0], [1.0], 1.0, 1), inf, [14.1, 0.8, 14.2, 14.1], PACE)
    assert looks.witness_cycles == inf


def test_witness_is_silent_where_sharing_is_usual(tmp_path: Path) -> None:
    for number, text in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        (tmp_path / f"{number}").write_text(text + "\n")
    files = str(tmp_path / "{}")
    assert not shares_cores([0, 1], files)
    assert shares_cores([0, 1, 2], files)
    (tmp_path / "0").write_text("0-1\n")
    assert shares_cores([0, 1], files)
    assert not shares_cores([0], files)
    assert not shares_cores([7, 8], files)


class Host:
    """One whose cores are shared, or lie apart, until the clock, which only sleep moves, is at
    `quiet`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, quiet: float, barrier: float) -> None:
        self.now, self.quiet, self.barrier = 0.0, quiet, barrier
        monkeypatch.setattr(patience, "time", self)
        monkeypatch.setattr(runner, "cycles", lambda threads: self.found(24.0, 14.1))
        monkeypatch.setattr(runner, "barrier_seconds", lambda threads, tries: self.found(barrier))

    def found(self, before: float, then: float = 38e-9) -> float:
        return before if self.now < self.quiet else then

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def moment(self, pace: Pace, patience: float, calm_seconds: float = 0.0) -> Moment:
        class Nothing:
            threads = None

        disturbed = runner._Runner(Nothing()).disturbed(pace, 2)  # type: ignore[arg-type]
        return Moment(disturbed, patience, calm_seconds)

    def rest(self, pace: Pace, patience: float) -> float:
        moment = self.moment(pace, patience)
        moment.wait()
        return moment.waited


@pytest.mark.parametrize("pace", [PACE, replace(PACE, alone=(0.0, 0.0))])
@pytest.mark.parametrize("barrier", [38e-9, 190e-9])
def test_a_turn_waits_for_cores_that_nobody_disturbs(
    monkeypatch: pytest.MonkeyPatch, pace: Pace, barrier: float
) -> None:
    host = Host(monkeypatch, 0.2, barrier)
    disturbed = pace is PACE or barrier > 100e-9
    step = PAUSE_SECONDS
    assert host.rest(pace, 1.0) == pytest.approx(0.2 if disturbed else 0.0, abs=1.5 * step)
    assert host.rest(pace, 1.0) == 0.0
    assert Host(monkeypatch, inf, 38e-9).rest(PACE, 0.0) == 0.0
    assert Host(monkeypatch, inf, 38e-9).rest(PACE, 1.0) == pytest.approx(1.0, abs=1.5 * step)


def test_a_turn_waits_for_memory_that_nobody_wears_out(monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(monkeypatch, 0.2, 38e-9)
    moment = host.moment(PACE, 1.0, calm_seconds=1e-3)
    moment.wait()
    assert moment.waited == pytest.approx(0.2, abs=1.5 * PAUSE_SECONDS)
    assert not moment.postponed(1e-3, 4e-3)
    host.quiet = host.now + 0.1
    assert moment.postponed(1.1e-3, 4e-3)
    assert host.now == pytest.approx(0.3, abs=3 * PAUSE_SECONDS), "for the cores as well"
    assert moment.postponed(1.1e-3, 4e-3)
    assert host.now == pytest.approx(0.3 + SPARSE * 4e-3, abs=3 * PAUSE_SECONDS)
    looks = 0
    while moment.postponed(1.1e-3, 1e-2):
        looks += 1
    assert looks == pytest.approx(0.66 / (SPARSE * 1e-2), abs=1.0)
    assert host.now == pytest.approx(1.0), "then it is taken as it is"
    assert moment.waited == pytest.approx(1.0)
    assert not host.moment(PACE, 1.0).postponed(1.1e-3, 4e-3), "nothing is known of it"
    assert not host.moment(PACE, 0.0, 1e-3).postponed(1.1e-3, 4e-3)


def test_patience_is_lost_and_earned() -> None:
    job = Patience()
    assert job.seconds == FIRST_SECONDS
    job.note(FIRST_SECONDS - 1.0, 0.5)
    assert job.seconds == 1.5
    job.note(2.0, 0.1)
    assert job.seconds == 0.0
    job.note(0.0, FIRST_SECONDS - 0.2)
    assert job.seconds == 0.0
    job.note(0.0, 0.2)
    assert job.seconds == pytest.approx(FIRST_SECONDS + 0.1)
    job.note(0.0, 1000.0)
    assert job.seconds == MOST_SECONDS


@pytest.mark.parametrize(("barrier", "noise"), [(40e-9, 0.01), (190e-9, APART_NOISE), (inf, 0.01)])
def test_witness_says_when_cores_lie_apart(barrier: float, noise: float) -> None:
    found = placed(replace(estimate([1.0], [1.0], 1.0, 1), noise=0.01), barrier, [], PACE)
    assert found.noise == noise
    assert (found.barrier_seconds, found.witness_cycles) == (barrier, inf)
