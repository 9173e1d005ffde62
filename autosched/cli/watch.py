"""Following a job of a service on a terminal."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from autosched.cli.status import FAILED
from autosched.cli.text import plain
from autosched.tuning.report.progress import format_seconds
from autosched.tuning.report.rounds_table import RoundsTable

if TYPE_CHECKING:
    from rich.live import Live

    from server.client import Client
    from server.schemas import Event, Job

PLAIN_SECONDS = 1.0
"""A line at most so often where no terminal is."""


def watch(client: Client, job_id: str, as_json: bool) -> int:
    """Show what happens to a job until it ends; 0 if it has succeeded.

    With `as_json` every event is a line on standard output, and the job as it ended the last one.
    """
    job = client.job(job_id)
    if job.model is not None:
        from autosched.cli.watch_model import watch_model

        return watch_model(client, job_id, as_json)
    if as_json:
        for event in client.follow(job_id):
            print(event.model_dump_json(), flush=True)
        job = client.job(job_id)
        print(json.dumps({"event": "result", **job.model_dump(mode="json")}), flush=True)
    else:
        view = _View(job, client.workload(job.workload_key).flop)
        with view:
            for event in client.follow(job_id):
                view.show(event)
        job = client.job(job_id)
        print(view.outcome(job))
    return 0 if job.state == "succeeded" else FAILED


class _View:
    """A live table on a terminal, now and then a line elsewhere; all on standard error."""

    def __init__(self, job: Job, flop: float) -> None:
        self._job, self._flop = job, flop
        self._trials, self._best = 0, job.best_seconds
        self._wanted = job.trials_requested
        self._statuses: Counter[str] = Counter()
        self._shown = 0.0
        self._live: Live | None = None
        self._table = RoundsTable(f"job {job.id}", flop)

    def __enter__(self) -> None:
        if sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=8, transient=True)
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, event: Event) -> None:
        """Show what an event tells."""
        if event.kind == "state":
            self._state(event.data)
        elif event.kind == "phase":
            self._print(f"job {self._job.id}: {event.data['phase']}")
        elif event.kind == "progress":
            self._progress(event.data)

    def _state(self, data: Mapping[str, Any]) -> None:
        self._wanted = data.get("trials_requested", self._wanted)
        text = f"{data['state']} ({data['reason']})"
        self._print(f"job {self._job.id}: {text}")

    def _progress(self, data: Mapping[str, Any]) -> None:
        self._trials = data.get("trials_done") or self._trials
        self._best = data.get("best_seconds") or self._best
        for record in data.get("records", ()):
            if record.get("status") != "ok":
                self._statuses[record.get("status", "unknown")] += 1
            self._table.add(record["round"], record["status"], record["seconds"])
        now = time.monotonic()
        if self._live is not None:
            self._live.update(self._table.render(self._line()))
        elif now - self._shown >= PLAIN_SECONDS or self._trials >= self._wanted:
            self._shown = now
            self._print(self._line())

    def _line(self) -> str:
        best = "nothing valid yet"
        if self._best is not None:
            speed = self._flop / self._best / 1e9
            best = f"best {format_seconds(self._best)}, {speed:.4g} GFLOP/s"
        failed = ", ".join(f"{n} {status}" for status, n in sorted(self._statuses.items()))
        return f"{self._trials}/{self._wanted} trials, {best}" + (f"; {failed}" if failed else "")

    def _print(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def outcome(self, job: Job) -> str:
        """How the job ended, in a line or two."""
        self._trials, self._best = job.trials_done, job.best_seconds
        self._wanted = job.trials_requested
        text = f"job {job.id} {job.state}: {self._line()}"
        if job.notice:
            text += f"\n{job.notice}"
        return plain(f"{text}\n{job.error}" if job.error else text)
