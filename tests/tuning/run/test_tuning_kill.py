"""`kill -9` at any instant: what was acknowledged stays, nothing is measured twice, and a run
that is resumed ends as one that was never killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from records import BASELINE, BASELINE_ROUND, Record, Store

TRIALS = 48
WORKLOAD = ("matmul_add", "40", "24", "56")
COMMAND = (sys.executable, "-m", "autosched.cli", "tune", *WORKLOAD, "--no-limits", "--json")
REPLAY = ("--pool", "replay:model?seconds=0.01")
LOCAL = ("--pool", "local")
PATIENCE = 100.0
"""Seconds that a step may take before the test gives up."""


class Run:
    """A tuning process, and the records that it has told of: those are acknowledged."""

    def __init__(self, folder: Path, pool: tuple[str, ...], trials: int = TRIALS) -> None:
        self.folder, self.out = folder, folder / "out.jsonl"
        command = [*COMMAND, *pool, "--trials", str(trials), "--db", "a.db", "--resume"]
        with self.out.open("wb") as out, (folder / "err.txt").open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=err, start_new_session=True
            )

    def told(self) -> list[dict[str, Any]]:
        """Events so far; the last line may be half there."""
        whole = self.out.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def until(self, kind: str, count: int) -> bool:
        """Wait for so many events of a kind; False if the run ends before."""
        limit = time.monotonic() + PATIENCE
        while sum(e["event"] == kind for e in self.told()) < count:
            if self.process.poll() is not None:
                return False
            assert time.monotonic() < limit, self.errors()
            time.sleep(0.002)
        return True

    def kill(self) -> None:
        """`kill -9` of the one process."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def finish(self) -> dict[str, Any]:
        """The result of a run that is left alone."""
        assert self.process.wait(PATIENCE) == 0, self.errors()
        result = self.told()[-1]
        assert result["event"] == "result"
        return result

    def errors(self) -> str:
        return (self.folder / "err.txt").read_text()


def stored(folder: Path) -> list[Record]:
    """What another reader sees."""
    if not (folder / "a.db").exists():
        return []
    with Store(folder / "a.db") as store:
        return list(store.records())


def kill_at(run: Run, phase: str, rng: random.Random) -> list[Record]:
    """Let a run go on to a random instant of a phase, and kill it; what a reader saw before."""
    if phase == "start":
        time.sleep(rng.uniform(0.0, 1.5))
    elif phase == "baselines":
        run.until("start", 1)
        time.sleep(rng.uniform(0.0, 0.1))
    elif phase == "trials":
        run.until("record", rng.randint(1, 12))
        time.sleep(rng.uniform(0.0, 0.05))
    else:
        assert phase == "finalists"
        limit = time.monotonic() + PATIENCE
        while run.process.poll() is None and len(stored(run.folder)) < TRIALS + 2:
            assert time.monotonic() < limit, run.errors()
        time.sleep(rng.uniform(0.0, 0.02))
    before = stored(run.folder)
    run.kill()
    return before


def check_kept(before: list[Record], run: Run, after: list[Record]) -> None:
    """All that anybody could know of before the kill is there after it, as it was."""
    here = {r.key: r for r in after}
    assert len(here) == len(after)
    for known in before:
        now = here[known.key]
        assert (now.id, now.created_at, now.seconds) == (known.id, known.created_at, known.seconds)
    slots = {(r.round, r.slot): r.seconds for r in after}
    for event in run.told():
        if event["event"] == "record":
            assert slots[event["round"], event["slot"]] == event["seconds"]


def content(records: list[Record]) -> list[tuple[Any, ...]]:
    """Records in slot order, but for what names the run: ids, job and times of day."""
    return sorted(
        (r.round, r.slot, r.kind, r.program_hash, sorted(r.decisions.items()), r.status, r.seconds)
        for r in records
    )


def killed_again_and_again(folder: Path, phases: list[str], seed: int) -> None:
    """Kill a run in each of the phases, and let the last one finish."""
    rng = random.Random(seed)
    whole, parted = folder / "whole", folder / "parted"
    whole.mkdir()
    parted.mkdir()
    expected = Run(whole, REPLAY).finish()
    for phase in phases:
        run = Run(parted, REPLAY)
        before = kill_at(run, phase, rng)
        check_kept(before, run, stored(parted))
    found = Run(parted, REPLAY).finish()
    assert content(stored(parted)) == content(stored(whole))
    assert found["trials"] == expected["trials"] == TRIALS
    assert found["best_seconds"] == expected["best_seconds"]
    records = stored(parted)
    assert len({(r.program_hash, r.kind) for r in records if r.kind != BASELINE}) == TRIALS
    assert [r.slot for r in records if r.round == BASELINE_ROUND] == [0, 1]
    with Store(parted / "a.db") as store:
        job = store.job(found["job_id"])
        assert {r.job_id for r in records} == {job.id}
    assert (job.state, job.trials_requested, job.trials_done) == ("succeeded", TRIALS, TRIALS)
    # The finalists that decided are the same ones.
    ranked = [
        {(r.round, r.slot): r.remeasured_seconds for r in stored(f) if r.remeasured_seconds}
        for f in (parted, whole)
    ]
    assert ranked[0] == ranked[1]


@pytest.mark.long
def test_killed_at_the_start_among_the_trials_and_among_the_finalists(tmp_path: Path) -> None:
    killed_again_and_again(tmp_path, ["baselines", "trials", "finalists"], seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_at_twenty_instants(tmp_path: Path) -> None:
    phases = ["start"] * 5 + ["baselines"] * 4 + ["trials"] * 6 + ["finalists"] * 5
    killed_again_and_again(tmp_path, phases, seed=2)


def processes_of(session: int) -> set[int]:
    """Living processes of a session."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                rest = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if rest[0] != "Z" and int(rest[3]) == session:
                found.add(int(entry.name))
    return found


@contextmanager
def swept(run: Run) -> Iterator[None]:
    """End what a failing test would leave behind."""
    try:
        yield
    finally:
        for pid in processes_of(run.process.pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_killed_while_this_machine_is_measured(tmp_path: Path) -> None:
    """On the local pool, whose children must go too; times differ from run to run."""
    rng = random.Random(3)
    for phase in ("baselines", "trials", "trials", "finalists"):
        run = Run(tmp_path, LOCAL)
        with swept(run):
            before = kill_at(run, phase, rng)
            limit = time.monotonic() + PATIENCE
            while processes_of(run.process.pid):
                assert time.monotonic() < limit, "children outlive their parent"
                time.sleep(0.02)
        check_kept(before, run, stored(tmp_path))
    found = Run(tmp_path, LOCAL).finish()
    records = stored(tmp_path)
    assert found["trials"] == TRIALS
    assert len({(r.round, r.slot) for r in records}) == len(records) == TRIALS + 2
    assert len({r.job_id for r in records}) == 1
    best = min(records, key=lambda r: r.remeasured_seconds or 1.0)
    assert best.remeasured_seconds == found["best_seconds"]
