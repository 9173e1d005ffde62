"""Ctrl-C, a signal, a closed pipe: what was measured stays, and nothing is left running."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_runner import COMMAND, WORKLOAD, own

from autosched.cli import main
from records import Job, Record, Store, open_records

AUTOSCHED = " ".join(COMMAND)
TUNE = (
    *(*COMMAND, "tune", "matmul_add", "96", "96", "96", "--no-limits"),
    *("--trials", "5000", "--per-round", "8"),
)


def start(folder: Path, *more: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*TUNE, "--db", "a.db", *more],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def rest(tune: subprocess.Popen[str]) -> tuple[str, str]:
    """What else it writes until it ends, lines that are read already and not taken among it."""
    assert tune.stdout is not None
    assert tune.stderr is not None
    with tune.stdout, tune.stderr:
        found = tune.stdout.read(), tune.stderr.read()
    tune.wait(250)
    return found


def children_of(pid: int) -> set[int]:
    """Living descendants, by the parents in /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - found
        found |= new
    return found


def stored(folder: Path) -> tuple[Job, list[Record]]:
    with Store(folder / "a.db") as store:
        records = list(store.records())
        return store.job(records[0].job_id), records


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_a_run_in_order(tmp_path: Path, number: signal.Signals, status: int) -> None:
    tune = start(tmp_path, "--json")
    assert tune.stdout is not None
    seen = [json.loads(tune.stdout.readline()) for _ in range(8)]
    processes = children_of(tune.pid)
    assert len(processes) >= 3  # what children are forked from, builders, the runner
    tune.send_signal(number)
    out, err = rest(tune)
    seen += map(json.loads, out.splitlines())
    assert tune.returncode == status
    assert "Traceback" not in err
    job, records = stored(tmp_path)
    assert (job.state, job.error) == ("cancelled", "interrupted")
    assert [(r.round, r.slot, r.seconds) for r in records] == [
        (e["round"], e["slot"], e["seconds"]) for e in seen if e["event"] == "record"
    ]
    assert job.trials_done == len(records) - 2 >= 5
    assert not {pid for pid in processes if Path(f"/proc/{pid}").exists()}


def test_a_run_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    tune = start(tmp_path, "--json", preexec_fn=ignore)
    assert tune.stdout is not None
    seen = [json.loads(tune.stdout.readline()) for _ in range(4)]
    tune.send_signal(signal.SIGHUP)
    seen += [json.loads(tune.stdout.readline()) for _ in range(20)]
    assert [e["event"] for e in seen].count("record") >= 20
    tune.send_signal(signal.SIGTERM)
    rest(tune)
    assert tune.returncode == 143


def test_an_interrupted_run_says_what_to_do(tmp_path: Path) -> None:
    tune = start(tmp_path, "--trials", "400")  # every 25 of which are told
    assert tune.stderr is not None
    while "trials" not in tune.stderr.readline():
        pass
    tune.send_signal(signal.SIGINT)
    _, err = tune.communicate(timeout=250)
    assert err.endswith(
        "autosched tune: interrupted; what was measured is in a.db; "
        "the same command with --resume goes on from there\n"
    )


def test_a_reader_that_leaves_ends_a_run_in_order(tmp_path: Path) -> None:
    tune = start(tmp_path, "--json")
    assert tune.stdout is not None
    for _ in range(4):
        tune.stdout.readline()
    tune.stdout.close()
    assert tune.wait(250) == 141
    assert tune.stderr is not None
    assert own(tune.stderr.read()) == ""
    tune.stderr.close()
    job, records = stored(tmp_path)
    assert job.state == "cancelled"
    assert len(records) >= 3


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=250
    )


@pytest.mark.long
def test_piping_into_head(tmp_path: Path) -> None:
    tune = f"{AUTOSCHED} tune {' '.join(WORKLOAD)} --trials 4 --db a.db --no-limits --quiet"
    done = shell(f"{tune} | head -1", tmp_path)
    assert done.stdout.startswith("best       ")
    assert (done.stdout.count("\n"), own(done.stderr)) == (1, "")
    assert stored(tmp_path)[0].state == "succeeded"  # only the report was not read
    best = f"{AUTOSCHED} best {' '.join(WORKLOAD)} --db a.db --as script"
    done = shell(f"{best} | true; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.long
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full to stand for a full disk")
def test_a_full_disk_is_one_message(tmp_path: Path) -> None:
    tune = f"{AUTOSCHED} tune {' '.join(WORKLOAD)} --trials 4 --db a.db --no-limits --quiet"
    done = shell(f"{tune} > /dev/full", tmp_path)
    assert done.returncode == 1
    assert own(done.stderr) == "autosched tune: [Errno 28] No space left on device\n"


def test_a_log_keeps_everything_too(tmp_path: Path) -> None:
    tune = subprocess.Popen(
        [*TUNE, "--db", "a.json", "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tune.stdout is not None
    seen = [json.loads(tune.stdout.readline()) for _ in range(8)]
    tune.send_signal(signal.SIGINT)
    out, _ = rest(tune)
    seen += map(json.loads, out.splitlines())
    assert tune.returncode == 130
    with open_records(tmp_path / "a.json") as log:
        assert len(list(log.records())) == sum(e["event"] == "record" for e in seen)


def test_an_interrupt_while_a_command_is_loaded_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "import_module", interrupted)
    assert main.main(["tune", "matmul", "8", "8", "8"]) == 130
    assert capsys.readouterr().err == "autosched tune: interrupted\n"


@pytest.mark.parametrize(
    ("start", "end"),
    [(signal.default_int_handler, signal.SIG_DFL), (signal.SIG_IGN, signal.SIG_IGN)],
    ids=["heeded", "ignored"],
)
def test_a_second_interrupt_while_the_first_is_answered_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, start: Any, end: Any
) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "main", interrupted)
    before = signal.signal(signal.SIGINT, start)
    try:
        assert main.program() == 130
        assert signal.getsignal(signal.SIGINT) is end
    finally:
        signal.signal(signal.SIGINT, before)
