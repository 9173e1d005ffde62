"""Progress of a tuning run: a live table on a terminal, plain lines when piped."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from autosched.tuning.callbacks import JobInfo, MeasureCallback
from autosched.tuning.report.rounds_table import RoundsTable
from autosched.tuning.report.units import format_seconds as format_seconds
from records import BASELINE, OK, Record, Workload

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from autosched.tuning.report.result import TuningResult
    from autosched.tuning.task import SearchTask


class Progress(MeasureCallback):
    """Shows best so far, GFLOP/s, trials a second, errors by kind and the time left."""

    def __init__(self, task: SearchTask, job: JobInfo, verbose: int) -> None:
        self.task, self.job, self.verbose = task, job, verbose
        self.flop = float(task.compute_dag.flop_ct)
        self.statuses: Counter[str] = Counter()
        self.table = RoundsTable(task.title, self.flop)
        self.best: float | None = None
        self.best_is_baseline = False
        self.began = time.perf_counter()
        self.resumed_at = 0
        self.shown = 0
        self.console: Console | None = None
        self.live: Live | None = None

    def known(self, records: Iterable[Record]) -> None:
        """Take over what a resumed job has measured already."""
        for record in records:
            self._count(record)
        self.shown = self.resumed_at = sum(self.statuses.values())

    def on_start(self, workload: Workload, job: JobInfo) -> None:
        if self.verbose == 0:
            return
        word = "resuming" if job.resumed else "tuning"
        done = f", {self.resumed_at} of {job.trials} trials are there" if job.resumed else ""
        self._print(f"{word} {self.task.title} on {job.target}{done}")
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self.console = Console(stderr=True)
            self.live = Live(console=self.console, refresh_per_second=8, transient=True)
            self.live.start()
            self.live.update("making inputs, the reference and the baselines …")

    def on_records(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.kind == BASELINE:
                name = ("untransformed program", "default schedule")[record.slot]
                self.note(f"baseline, {name}: {self._outcome(record)}")
                self.began = time.perf_counter()
            self._count(record)
        self._show()

    def _count(self, record: Record) -> None:
        self.table.add(record.round, record.status, record.seconds)
        if record.kind != BASELINE:
            self.statuses[record.status] += 1
        seconds = record.seconds if record.status == OK else None
        if seconds is not None and (self.best is None or seconds < self.best):
            self.best, self.best_is_baseline = seconds, record.kind == BASELINE

    def _outcome(self, record: Record) -> str:
        if record.seconds is None:
            return f"{record.status}: {record.error}"
        return f"{format_seconds(record.seconds)}, {self.flop / record.seconds / 1e9:.4g} GFLOP/s"

    def status_line(self) -> str:
        """One line: trials, best, speed, rate, errors, time left."""
        done = sum(self.statuses.values())
        parts = [f"{done}/{self.job.trials} trials"]
        if self.best is not None:
            parts.append(self._best_text())
        if done > self.resumed_at:
            # Proposing and building count: results of a round may arrive all at once.
            rate = (done - self.resumed_at) / max(time.perf_counter() - self.began, 1e-9)
            left = max(self.job.trials - done, 0) / rate
            parts.append(f"{rate:.1f} trials/s, {left:.0f} s left")
        errors = [f"{n} {s}" for s, n in self.statuses.most_common() if s != OK]
        if errors:
            parts.append(", ".join(errors))
        return " | ".join(parts)

    def _best_text(self) -> str:
        assert self.best is not None
        whose = " (baseline)" if self.best_is_baseline else ""
        speed = self.flop / self.best / 1e9
        return f"best {format_seconds(self.best)}{whose}, {speed:.4g} GFLOP/s"

    def _show(self) -> None:
        if self.verbose == 0:
            return
        if self.live is not None:
            self.live.update(self.table.render(self.status_line()))
            return
        done = sum(self.statuses.values())
        if done >= self.shown + max(8, self.job.trials // 16):
            self.shown = done
            self._print(self.status_line())

    def note(self, text: str) -> None:
        """A line that stays."""
        if self.verbose > 0:
            self._print(text)

    def _print(self, text: str) -> None:
        if self.console is not None:
            self.console.print(text, highlight=False, markup=False)
        elif sys.stderr is not None:  # None where it was closed from the start (`2>&-`)
            print(text, file=sys.stderr, flush=True)

    def result(self, result: TuningResult) -> None:
        """The closing lines."""
        if self.verbose == 0:
            return
        self._stop()
        rate = (result.trials - self.resumed_at) / result.elapsed_s
        self._print(
            f"best {format_seconds(result.best_seconds)}, {result.gflops:.4g} GFLOP/s after "
            f"{result.trials} trials in {result.elapsed_s:.1f} s ({rate:.1f} trials/s)"
        )
        if result.best.kind == BASELINE:
            self._print("no trial beat the baselines, the faster of which is handed out")

    def on_finish(self, job: JobInfo, state: str, error: str | None) -> None:
        self._stop()
        done = sum(self.statuses.values())
        best = [] if self.best is None else [f"{self._best_text()} so far"]
        if self.verbose > 0 and state == "cancelled":
            self._print("; ".join((f"interrupted after {done} trials", *best)))

    def _stop(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None
