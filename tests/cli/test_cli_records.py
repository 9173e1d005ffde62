"""`autosched records`: what goes out comes in again."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from cli_runner import COMMAND, WORKLOAD, Cli, Tuned

import autosched as at
from records import RecordReader, Store
from records.types import IMPORT


def test_export_and_import(cli: Cli, tuned: Tuned, tmp_path: Path) -> None:
    log, db = tmp_path / "all.json", tmp_path / "copy.db"
    done = cli("records", "export", log, "--db", tuned.db)
    assert (done.status, done.out, done.err) == (0, "", "10 records written\n")
    first = cli("records", "import", log, "--db", db)
    assert first.err == f"{log}: 10 new, 0 known, 0 refused\n"
    assert cli("records", "import", log, "--db", db).err == f"{log}: 0 new, 10 known, 0 refused\n"
    with Store(db) as store, Store(tuned.db) as original:
        copies, records = list(store.records()), list(original.records())
    assert [(r.key, r.seconds) for r in copies] == [(r.key, r.seconds) for r in records]
    assert {r.origin for r in copies} == {IMPORT}
    # They teach the search; a best program has to be measured here.
    best = cli("best", *WORKLOAD, "--db", db)
    assert best.status == 1
    assert "10 ok, but imported" in best.err


def test_export_to_standard_output(cli: Cli, tuned: Tuned) -> None:
    done = cli("records", "export", "-", "--db", tuned.db)
    lines = [json.loads(line) for line in done.out.splitlines()]
    records = [line for line in lines if line["kind"] in ("trial", "baseline")]
    wanted = {"kind", "status", "round", "slot", "workload_key", "target", "device", "seconds"}
    assert len(records) == 10
    assert all(wanted | {"error"} <= line.keys() for line in records)


def test_export_of_some(cli: Cli, tuned: Tuned) -> None:
    assert cli("records", "export", "-", "--db", tuned.db, "--status", "run_timeout").out == ""
    done = cli("records", "export", "-", "--db", tuned.db, "--status", "ok")
    assert done.err == "10 records written\n"


def test_import_from_standard_input(tuned: Tuned, tmp_path: Path) -> None:
    export = subprocess.run(
        [*COMMAND, "records", "export", "-", "--db", str(tuned.db)], capture_output=True, check=True
    )
    done = subprocess.run(
        [*COMMAND, "records", "import", "-", "--db", "a.db"],
        input=export.stdout + b'{"torn": ',
        cwd=tmp_path,
        capture_output=True,
    )
    assert done.returncode == 0
    text = done.stderr.decode()
    assert "-: 10 new, 0 known, 1 refused\n" in text
    assert re.search(r"^  1 line \(\d+\): not JSON", text, re.MULTILINE)


def test_a_file_that_is_there_is_not_overwritten(cli: Cli, tuned: Tuned, tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    file.write_text("mine\n")
    done = cli("records", "export", file, "--db", tuned.db)
    assert (done.status, file.read_text()) == (1, "mine\n")
    assert done.err == f"autosched records: {file} is there already; name a new file\n"


def test_merge_and_distill(cli: Cli, tuned: Tuned, tmp_path: Path) -> None:
    log, both, best = tmp_path / "a.json", tmp_path / "both.json", tmp_path / "best.json"
    assert cli("records", "export", log, "--db", tuned.db).status == 0
    done = cli("records", "merge", tuned.db, log, "--into", both)
    assert done.err == (
        f"{tuned.db}: 10 new, 0 known, 0 refused\n{log}: 0 new, 10 known, 0 refused\n"
    )
    assert cli("records", "distill", both, best).err == "1 record kept\n"
    (record,) = RecordReader(best)
    assert record.key == json_best(cli, tuned)


def json_best(cli: Cli, tuned: Tuned) -> tuple[str, int, int]:
    data = json.loads(cli("best", *WORKLOAD, "--db", tuned.db, "--json").out)
    return data["job_id"], data["round"], data["slot"]


def test_imported_records_are_measured_and_handed_out(
    cli: Cli, tuned: Tuned, tmp_path: Path
) -> None:
    log, db = tmp_path / "all.json", tmp_path / "copy.db"
    cli("records", "export", log, "--db", tuned.db)
    cli("records", "import", log, "--db", db)
    done = cli("records", "verify", "--db", db, "--top", "2")
    assert done.status == 0, done.err
    assert done.err.startswith("measuring matmul")
    assert done.err.endswith("4 records measured here, 0 withdrawn\n")
    assert cli("best", *WORKLOAD, "--db", db).status == 0
    assert cli("records", "repair", "--db", db).status == 0


def test_repairing_a_store(cli: Cli, tuned: Tuned, tmp_path: Path) -> None:
    db = tmp_path / "copy.db"
    cli("records", "merge", tuned.db, "--into", db)
    with Store(db) as store, store._db.transaction(writes=True) as connection:
        connection.exec_driver_sql("UPDATE jobs SET trials_done = 0")
    found = cli("records", "repair", "--db", db, "--dry-run")
    assert found.status == 1
    assert re.search(r"^to repair: job \w+: trials_done was 0, is 8$", found.err, re.MULTILINE)
    done = cli("records", "repair", "--db", db)
    assert done.status == 0
    assert "repaired: job " in done.err
    assert "repaired" not in cli("records", "repair", "--db", db).err


def test_the_best_of_a_compatible_target(cli: Cli, tuned: Tuned, tmp_path: Path) -> None:
    target = at.Target("llvm")
    wider = f"llvm -mcpu={target.mcpu} -mtriple={target.triple} -num-cores={target.num_cores + 1}"
    best = ("best", *WORKLOAD, "--db", tuned.db, "--target", wider)
    if target.mattr:
        best = (*best[:-1], f"{wider} -mattr={target.mattr}")
    assert cli(*best).status == 1
    done = cli(*best, "--compatible")
    assert done.status == 0
    assert f"this is one of target {target}, whose code runs here" in done.err
    with Store(tuned.db) as store:
        device = next(store.records()).device
    assert cli("best", *WORKLOAD, "--db", tuned.db, "--device", device).status == 0
    assert "'elsewhere'" in cli("best", *WORKLOAD, "--db", tuned.db, "--device", "elsewhere").err
