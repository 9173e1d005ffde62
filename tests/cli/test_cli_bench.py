"""`autosched bench`: what is recorded, timed again beside its baselines."""

from __future__ import annotations

import json
from pathlib import Path

from cli_runner import WORKLOAD, Cli, Tuned

from records import Store


def test_the_best_record_beside_the_baselines(cli: Cli, tuned: Tuned) -> None:
    done = cli("bench", *WORKLOAD, "--db", tuned.db, "--rounds", "2", "--json")
    assert (done.status, done.err) == (0, "")
    found = json.loads(done.out)
    with Store(tuned.db) as store:
        best = store.best(found["workload_key"], found["target"], found["device"])
    names = [row["program"] for row in found["programs"]]
    assert names == [f"record {best.id}", "default schedule", "as written"]
    flop = 12 * 14 * (2 * 10 + 1)
    for row in found["programs"]:
        assert 0 < row["seconds"] < 1
        assert abs(row["gflops"] * row["seconds"] * 1e9 / flop - 1) < 0.01
    assert found["share_of_peak"] > 0
    assert found["numpy_ratio"] > 0


def test_for_people(cli: Cli, tuned: Tuned) -> None:
    done = cli("bench", *WORKLOAD, "--db", tuned.db, "--rounds", "1", "--no-limits")
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("record ")
    assert lines[0].endswith("1.00 x the first")
    assert [line[:10] for line in lines[1:]] == ["default sc", "as written"]


def test_without_a_record(cli: Cli, tuned: Tuned, tmp_path: Path) -> None:
    for db in (tuned.db, tmp_path / "none.db"):
        done = cli("bench", "softmax", "8", "12", "--db", db, "--rounds", "1", "--no-limits")
        assert done.status == 0
        assert "only the default schedule is timed" in done.err
        assert done.out.startswith("default schedule ")
    assert not (tmp_path / "none.db").exists()
