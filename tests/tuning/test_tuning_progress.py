"""What a run prints while it goes, and that a piece of work is not torn by Ctrl-C."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections.abc import Callable

import pytest
from tuning_doubles import FakePool, Recorder

import autosched as at
from autosched.tuning.report.progress import Progress, format_seconds
from autosched.tuning.run.interrupt import interrupts_deferred
from measure.status import Status


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (5.034e-3, "5.03 ms"), (1.21e-5, "12.1 µs"), (3e-9, "3 ns"), (0.0, "0 ns")],
)
def test_format_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def tune(trials: int, verbose: int, **more: object) -> None:
    pool = FakePool(fail=lambda n: Status.WRONG_RESULT if n == 1 else None)
    options = at.TuningOptions(trials, pool=pool, verbose=verbose, **more)  # type: ignore[arg-type]
    at.SearchTask("matmul_add", (4, 3, 5)).tune(options)


def test_lines_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    tune(16, 1)
    out, err = capsys.readouterr()
    assert out == ""  # standard output is the caller's
    lines = err.splitlines()
    assert lines[0].startswith("tuning matmul_add(4, 3, 5) on llvm ")
    assert lines[1].startswith("baseline, untransformed program: ")
    assert lines[2].startswith("baseline, default schedule: ")
    assert lines[3].startswith("8/16 trials | best 1.")
    assert "trials/s, " in lines[3]
    assert lines[3].endswith("| 1 wrong_result")
    assert lines[-1].startswith("best 1.")
    assert " after 16 trials in " in lines[-1]
    assert "\x1b" not in err


def test_a_terminal_has_a_table_of_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    task, recorder = at.SearchTask("matmul_add", (4, 3, 5)), Recorder()
    task.tune(
        at.TuningOptions(
            32, num_measures_per_round=2, pool=FakePool(), verbose=0, measure_callbacks=[recorder]
        )
    )
    assert recorder.job is not None
    progress = Progress(task, recorder.job, 0)
    progress.on_records(recorder.records)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(progress.table.render(progress.status_line()))
    text = console.export_text()
    rows = [[c.strip() for c in x.strip("│ \n").split("│")] for x in text.splitlines() if "│" in x]
    assert [r[0] for r in rows] == ["baselines", *map(str, range(8, 16))]  # the latest eight
    bests = [r.seconds for r in recorder.records if r.status == "ok" and r.seconds is not None]
    assert rows[-1][4] == format_seconds(min(bests))
    failed = sum(int(r[2] or 0) for r in rows)
    assert failed <= sum(r.status != "ok" for r in recorder.records)
    assert "32/32 trials" in text
    assert "matmul_add(4, 3, 5)" in text


def test_results_that_come_all_at_once_took_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the baselines on: the first round was proposed and built before it was timed."""
    task, recorder = at.SearchTask("matmul_add", (4, 3, 5)), Recorder()
    task.tune(at.TuningOptions(16, pool=FakePool(), verbose=0, measure_callbacks=[recorder]))
    assert recorder.job is not None
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    progress = Progress(task, recorder.job, 0)
    for moment, part in ((105.0, recorder.records[:2]), (107.0, recorder.records[2:10])):
        now[0] = moment
        progress.on_records(part)
    assert progress.status_line().endswith("| 4.0 trials/s, 2 s left")


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    tune(8, 0)
    assert capsys.readouterr() == ("", "")


def interrupted_twice(done: list[int]) -> None:
    with interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        done.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        done.append(2)


def interrupted_once(done: list[int]) -> None:
    with interrupts_deferred():
        os.kill(os.getpid(), signal.SIGINT)
        done.append(1)


@pytest.mark.parametrize("work", [interrupted_once, interrupted_twice])
def test_a_signal_waits_until_the_work_is_done_and_a_second_does_not(
    work: Callable[[list[int]], None],
) -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        work(done)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_have_no_signals_to_wait_for() -> None:
    done = []

    def work() -> None:
        with interrupts_deferred():
            done.append(threading.current_thread().name)

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    thread.join()
    assert done == ["worker"]


def test_tuning_in_a_thread() -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            tune(8, 0)
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failed
