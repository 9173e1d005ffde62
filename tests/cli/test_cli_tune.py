"""`autosched tune`, `best` and `show` on a small workload."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runner import COMMAND, WORKLOAD, Cli, Tuned

import autosched as at
from autosched.cli.show import describe
from records import BASELINE, Store, open_records


def test_tune_prints_the_result_first_and_no_program(tuned: Tuned) -> None:
    task = at.SearchTask("matmul_add", (12, 10, 14))
    tail = tuned.out
    assert tail.startswith("best       ")
    assert len(tail.splitlines()) <= 9
    assert "def apply(sch)" not in tail
    for word in ("GFLOP/s", "default schedule", "untransformed program", "8 trials (8 ok) in "):
        assert word in tail
    assert f"records    {tuned.db}, workload {task.workload_key}" in tail


def test_tune_shows_progress_on_standard_error(tuned: Tuned) -> None:
    assert tuned.err.startswith("tuning matmul_add(12, 10, 14) on llvm ")
    assert "8/8 trials | best " in tuned.err


@pytest.mark.parametrize("form", ["schedule", "script"])
def test_tune_prints_the_program_on_request(cli: Cli, tmp_path: Path, form: str) -> None:
    db = tmp_path / "a.db"
    tune = ("tune", *WORKLOAD, "--trials", 4, "--db", db, "--pool", "replay:model", "--quiet")
    done = cli(*tune, "--as", form)
    assert done.status == 0
    assert done.out.startswith("best       ")
    task = at.SearchTask("matmul_add", (12, 10, 14))
    assert done.out.endswith(f"\n\n{task.print_best(db, form)}\n")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (("--as", "cuda"), "print_mode 'cuda': the program is scheduled for llvm"),
        (("--as", "schedule", "--json"), "--json prints no program"),
    ],
)
def test_a_form_is_refused_before_the_run(
    cli: Cli, tmp_path: Path, more: tuple[str, ...], error: str
) -> None:
    db = tmp_path / "a.db"
    done = cli("tune", *WORKLOAD, "--trials", 4, "--db", db, "--pool", "replay:model", *more)
    assert (done.status, done.out) == (1, "")
    assert error in done.err
    assert not db.exists()


def test_tune_names_the_best_record(tuned: Tuned, cli: Cli) -> None:
    (line,) = [line for line in tuned.out.splitlines() if "autosched show" in line]
    command, _, others = line.partition("   (or ")
    _, _, *arguments = command.split()
    done = cli(*arguments)
    assert done.status == 0
    assert "def apply(sch)" in done.out
    assert others == "script, llvm, asm)"


def test_the_job_can_be_resumed(tuned: Tuned, cli: Cli) -> None:
    resume = ("tune", *WORKLOAD, "--db", tuned.db, "--resume", "--no-limits", "--quiet")
    with Store(tuned.db) as store:
        before = list(store.records())
    done = cli(*resume, "--trials", 8)
    assert done.status == 0
    assert "8 trials (8 ok)" in done.out
    with Store(tuned.db) as store:
        assert list(store.records()) == before


def test_limits_are_timed_beside(cli: Cli, tmp_path: Path) -> None:
    done = cli("tune", *WORKLOAD, "--trials", 8, "--db", tmp_path / "a.db", "--quiet")
    assert done.status == 0
    assert done.err == ""
    assert "% of the measured multiply-add peak, " in done.out
    assert " x as fast as NumPy's BLAS" in done.out


def test_json_is_one_object_a_line(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "a.json"
    done = cli("tune", *WORKLOAD, "--trials", 8, "--db", log, "--json")
    assert (done.status, done.err) == (0, "")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [e["event"] for e in events] == ["start", *["record"] * 10, "result"]
    start, *records, result = events
    assert start["trials"] == 8
    assert [r["kind"] for r in records[:3]] == ["baseline", "baseline", "trial"]
    assert result["statuses"] == {"ok": 8}
    assert result["share_of_peak"] > 0
    assert result["numpy_ratio"] > 0
    with open_records(log) as source:
        best = source.get(result["record_id"])
    assert best.remeasured_seconds == result["best_seconds"]
    assert (best.job_id, best.device) == (start["job_id"], start["device"])


def test_a_replay_says_that_nothing_was_run(cli: Cli, tmp_path: Path) -> None:
    tune = ("tune", *WORKLOAD, "--trials", 8, "--db", tmp_path / "a.db", "--quiet")
    done = cli(*tune, "--pool", "replay:model")
    assert (done.status, done.err) == (0, "")
    assert "pool       replay:model: these times are answers, nothing was run" in done.out
    assert "as fast as NumPy" not in done.out
    done = cli(*tune, "--pool", "nowhere")
    assert done.status == 1
    assert "'nowhere' is no pool's address; expected local, replay:model" in done.err


def test_layouts_are_tuned_and_found_apart(cli: Cli, tmp_path: Path) -> None:
    where = (*WORKLOAD, "--db", tmp_path / "a.db")
    pre = ("--layout-rewrite", "pre")
    assert cli("tune", *where, *pre, "--trials", 4, "--pool", "replay:model").status == 0
    assert cli("best", *where, *pre).status == 0
    done = cli("best", *where, "--layout-rewrite", "none")
    assert done.status == 1
    assert "autosched tune matmul_add 12 10 14 --layout-rewrite none --db" in done.err


def test_a_function_of_ones_own(cli: Cli, my_ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(my_ops.parent)
    rows = ("my_ops.py:rows", "6", "10")
    done = cli("tune", *rows, "--trials", 4, "--db", "a.db")
    assert done.status == 0, done.err
    assert "tuning my_ops.py:rows(6, 10) on" in done.err
    printed = cli("best", *rows, "--db", "a.db", "--as", "schedule")
    assert "workload = parse_func(" in printed.out
    Path("printed.py").write_text(printed.out)
    ran = subprocess.run([sys.executable, "printed.py"], capture_output=True, text=True)
    assert ran.stdout.startswith("right result, "), ran.stderr
    assert cli("show", 3, "--db", "a.db", "--as", "schedule").status == 0
    # From elsewhere the store has all that is needed, but for stores of older versions.
    (my_ops.parent / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    show = ("show", 3, "--db", "../a.db", "--as", "script")
    assert cli(*show).status == 0
    with Store("../a.db") as store, store._db.transaction(writes=True) as connection:
        connection.exec_driver_sql("UPDATE workloads SET text = NULL")
    lost = cli(*show)
    assert lost.status == 1
    assert "record 3 is of my_ops.py:rows(6, 10): say where that function is" in lost.err
    assert cli(*show, "--workload", "../my_ops.py:rows").status == 0
    other = cli(*show, "--workload", "../my_ops.py:gives_a_number")
    assert other.status == 1
    assert cli("show", 3, "--db", "../a.db").status == 0  # a record needs no function


def test_a_faster_record_of_another_run_is_mentioned(cli: Cli, tmp_path: Path) -> None:
    db = tmp_path / "a.db"
    tune = ("tune", "matmul", "4", "3", "5", "--trials", 4, "--db", db, "--no-limits", "--quiet")
    assert cli(*tune).status == 0
    with Store(db) as store:
        best = min(
            (r for r in store.records() if r.remeasured_seconds is not None),
            key=lambda r: r.remeasured_seconds or 0.0,
        )
    import sqlite3

    connection = sqlite3.connect(db)
    with connection:
        faster = "ranked_seconds = 1e-12, remeasured_seconds = 1e-12"
        connection.execute(f"UPDATE records SET {faster} WHERE id = ?", (best.id,))
    connection.close()
    again = cli(*tune, "--seed", 1)
    assert f"record {best.id} there, of another run, took" in again.out


FORMS = {"schedule": "def apply(sch):", "script": "@T.prim_func", "llvm": "define", "asm": ".text"}


@pytest.mark.parametrize("form", FORMS)
def test_best_and_show_in_every_form(cli: Cli, tuned: Tuned, form: str) -> None:
    best = cli("best", *WORKLOAD, "--db", tuned.db, "--as", form)
    assert best.status == 0
    assert FORMS[form] in best.out
    assert best.err == ""
    record = json.loads(cli("best", *WORKLOAD, "--db", tuned.db, "--json").out)
    shown = cli("show", record["id"], "--db", tuned.db, "--as", form)
    assert shown.out == best.out


def test_best_is_described(cli: Cli, tuned: Tuned) -> None:
    done = cli("best", *WORKLOAD, "--db", tuned.db)
    fields = dict(line.split(maxsplit=1) for line in done.out.splitlines())
    assert fields["status"] == "ok"
    assert fields["workload"].startswith("matmul_add(12, 10, 14), key 1-")
    assert "measured again; in its trial" in fields["time"]


def test_show_describes_any_record(cli: Cli, tuned: Tuned) -> None:
    with Store(tuned.db) as store:
        records = list(store.records())
    for record in records:
        data = json.loads(cli("show", record.id, "--db", tuned.db, "--json").out)
        assert data["status"] == record.status
        assert data["seconds"] == record.seconds
    assert records[0].kind == BASELINE
    text = cli("show", records[0].id, "--db", tuned.db).out
    assert text.startswith(f"record     {records[0].id}: baseline, of job {records[0].job_id}")


def test_messages_of_others_do_not_steer_the_terminal(tuned: Tuned) -> None:
    with Store(tuned.db) as store:
        record = next(r for r in store.records() if r.kind != BASELINE)
        workload = store.workload(record.workload_key)
    text = describe(replace(record, error="no \x1b]0;title\x07 here\nbut\tthere"), workload)
    assert text.endswith("error      no \\x1b]0;title\\x07 here\n  but\tthere")


def test_help_teaches(cli: Cli) -> None:
    for command in ("tune", "best", "show", "records"):
        done = cli(command, "--help")
        assert done.status == 0
        assert "examples:" in done.out
        assert f"autosched {command} " in done.out
    tune = cli("tune", "--help").out
    assert "  matmul_add N L M dtype=float32" in tune
    for option in ("--trials", "--resume", "--db", "--seed", "--target", "--json"):
        assert option in tune


def test_the_installed_command_is_the_module() -> None:
    script = Path(sys.executable).with_name("autosched")
    for command in ([str(script)], list(COMMAND)):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True)
        assert done.stdout.split() == ["autosched", at.__version__]
