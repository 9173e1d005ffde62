"""The interference probe: whether another guest shares a core."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from autosched.codegen.artifact import Artifact, KernelInfo
from autosched.codegen.llvm.assemble import assembly
from autosched.target import Target
from measure.local.runner import Probes, observed
from measure.timing import interference
from measure.timing.block import estimate
from measure.timing.interference import (
    APART_NOISE,
    LOOKS,
    SHARED,
    TRIES,
    least,
    shared_by,
    shares_cores,
    usual_cycles,
)

CODE = Artifact(b"", KernelInfo("kernel", ()), "llvm")
PROBES = Probes(CODE, 2, 1.0, 1.0, alone=(14.0, 14.5), barrier=37e-9)


def runs(*seconds: float):  # type: ignore[no-untyped-def]
    times = iter(seconds)
    return lambda: next(times)


def test_probe_says_how_much_slower_a_shared_core_is() -> None:
    assert shared_by(14.0, 14.0) == 0.0
    assert shared_by(14.0 * SHARED, 14.0) == 0.0
    assert shared_by(24.5, 14.0) == pytest.approx(0.75)


def test_probe_does_not_take_one_preemption_for_sharing() -> None:
    assert least(runs(28.0, 14.1), 14.0) == 14.1
    assert least(runs(14.0 * SHARED), 14.0) == 14.0 * SHARED
    assert least(runs(26.0, 24.5, 25.0), 14.0) == 24.5
    with pytest.raises(StopIteration):
        least(runs(*[26.0] * (TRIES - 1)), 14.0)


def test_probe_is_a_row_that_is_not_optimised_away() -> None:
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3")
    text = assembly(interference._IR, target)
    assert text.count("\tnop\n") >= interference.ROW
    assert text.count("xorq") >= interference.LINKS
    assert f"${interference.ITERATIONS}" in text


def test_probe_runs_on_all_threads_and_takes_cycles() -> None:
    """Every processor of today dispatches one to sixteen instructions a cycle."""
    for threads in (1, 2):
        assert interference.ROW / 16 < usual_cycles(threads, 0.0) < 100 * interference.ROW
    assert 0 < interference.barrier_seconds(2) < 1


@pytest.mark.parametrize(("threads", "longer"), [(1, 1), (8, 1), (64, 8)])
def test_probe_takes_longer_on_many_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int, longer: int
) -> None:
    """And the clock that ran faster after the row, or before it, is the one that counts."""
    chains = [1.1, 1.0]

    def time_calls(code: str, each: int, workspace: int, threads: int, number: int) -> float:
        if code == "chain":
            return chains.pop() * interference.CHAIN * interference.LINKS
        assert each == longer
        return 14.0 * longer * interference.ITERATIONS

    monkeypatch.setattr(interference, "load", lambda: {"chain": "chain", "probe": "probe"})
    monkeypatch.setattr(interference, "time_calls", time_calls)
    assert interference.cycles(threads) == pytest.approx(14.0)
    chains += [1.0, 1.1]
    assert interference.cycles(threads) == pytest.approx(14.0)


def test_watching_knows_what_was_seen_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores that are shared all the time are noticed where it is known how they are alone."""
    monkeypatch.setattr(interference, "cycles", lambda threads: 24.0)
    monkeypatch.setattr(interference, "shares_cores", lambda numbers: False)
    assert interference.watch(1, 0.01, inf) == (0.0, 0.0)
    assert interference.watch(1, 0.01, 14.0) == (1.0, 0.0)
    monkeypatch.setattr(interference, "shares_cores", lambda numbers: True)
    assert interference.watch(1, 0.01, 14.0) == (0.0, 0.0)


def test_a_chain_that_was_disturbed_is_not_the_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = iter([14.0, 0.8, *[14.0] * (LOOKS - 1)])
    monkeypatch.setattr(interference, "cycles", lambda threads: next(seen))
    assert usual_cycles(1, 0.0) == 14.0
    looks = observed(estimate([1.0], [1.0], 1.0, 1), inf, [14.1, 0.8, 14.2, 14.1, 20.0], PROBES)
    assert looks.probe_cycles == 14.1
    looks = observed(estimate([1.0], [1.0], 1.0, 1), inf, [14.1, 0.8, 14.2, 14.1], PROBES)
    assert looks.probe_cycles == inf


def test_probe_is_silent_where_sharing_is_usual(tmp_path: Path) -> None:
    for number, text in enumerate(["0,2", "1,3", "0,2", "1,3"]):
        (tmp_path / f"{number}").write_text(text + "\n")
    files = str(tmp_path / "{}")
    assert not shares_cores([0, 1], files)
    assert shares_cores([0, 1, 2], files)
    (tmp_path / "0").write_text("0-1\n")
    assert shares_cores([0, 1], files)
    assert not shares_cores([0], files)
    assert not shares_cores([7, 8], files)


@pytest.mark.parametrize(("barrier", "noise"), [(40e-9, 0.01), (190e-9, APART_NOISE), (inf, 0.01)])
def test_probe_says_when_cores_lie_apart(barrier: float, noise: float) -> None:
    found = observed(replace(estimate([1.0], [1.0], 1.0, 1), noise=0.01), barrier, [], PROBES)
    assert found.noise == noise
    assert (found.barrier_seconds, found.probe_cycles) == (barrier, inf)
