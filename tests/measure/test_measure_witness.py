"""The witness: whether somebody shares a core."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from autosched.codegen.artifact import Artifact, KernelInfo
from autosched.codegen.llvm.assemble import assembly
from autosched.target import Target
from measure import witness
from measure.runner import Pace, placed
from measure.timing import estimate
from measure.witness import (
    APART_NOISE,
    ATTEMPTS,
    CALIBRATION,
    CROWDED,
    TRIES,
    crowding,
    is_right,
    shares_cores,
)

CODE = Artifact(b"", KernelInfo("kernel", ()), "llvm")


def runs(*seconds: float):  # type: ignore[no-untyped-def]
    times = iter(seconds)
    return lambda: next(times)


def test_witness_says_how_much_slower_a_shared_core_is() -> None:
    assert crowding(runs(1.0), 1.0) == 0.0
    assert crowding(runs(CROWDED), 1.0) == 0.0
    assert crowding(runs(*[1.75] * TRIES), 1.0) == pytest.approx(0.75)
    assert crowding(runs(1.9, 1.75, 1.8), 1.0) == pytest.approx(0.75)


def test_witness_does_not_take_a_moments_absence_for_a_crowd() -> None:
    assert crowding(runs(2.0, 1.01), 1.0) == 0.0


def test_witness_is_a_loop_that_nobody_removed() -> None:
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3")
    text = assembly(witness._IR, target)
    assert text.count("xorq") >= witness.LINKS
    assert f"${witness.ITERATIONS}" in text


def test_witness_runs_on_all_threads_and_takes_time() -> None:
    assert witness.witness_seconds(1) > 0
    assert witness.witness_seconds(2) > 0
    assert witness.alone_seconds() >= 0
    assert 0 < witness.barrier_seconds(2) < 1


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


@pytest.mark.parametrize(("barrier", "noise"), [(40e-9, 0.01), (190e-9, APART_NOISE), (inf, 0.01)])
def test_witness_says_when_cores_lie_apart(barrier: float, noise: float) -> None:
    pace = Pace(CODE, 2, 1.0, 1.0, alone=1.0, barrier=37e-9)
    found = placed(replace(estimate([1.0], [1.0], 1.0, 1), noise=0.01), barrier, pace)
    assert found.noise == noise
    assert found.barrier_seconds == barrier


def test_a_processor_whose_branches_take_longer_is_not_watched() -> None:
    waits: list[float] = []
    assert not is_right(1.0, lambda: 2.0, waits.append)
    assert len(waits) == ATTEMPTS
    seen = iter([*[2.0] * (3 * CALIBRATION - 1), 1.0])
    assert is_right(1.0, lambda: next(seen), waits.append)
