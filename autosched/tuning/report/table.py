"""Progress of a `TaskScheduler`: a live table on a terminal, plain lines when piped."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from autosched.tuning.report.progress import format_seconds

if TYPE_CHECKING:
    from autosched.tuning.run.task_state import TaskState

EVERY = 2.0
"""Seconds between plain lines."""


class Table:
    """Shows every task's share, best time, gain, speed, trials and state, and the objective.

    `shares` gives the part of the objective that each task makes up.
    """

    def __init__(
        self,
        states: Sequence[TaskState],
        verbose: int,
        shares: Callable[[], Sequence[float] | None] = lambda: None,
    ) -> None:
        self.states, self.verbose, self.shares = states, verbose, shares
        self.first: float | None = None
        self.live: Any = None
        self.began = self.shown = time.perf_counter()

    def __enter__(self) -> Table:
        if self.verbose and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(stderr=True), refresh_per_second=4)
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None

    def show(self, trials: int, total: int, objective: float) -> None:
        """Bring the table up to date, or print a line if the last one is a while ago."""
        if self.live is not None:
            self.live.update(self._table(self._line(trials, total, objective)))
        elif self.verbose and time.perf_counter() - self.shown >= EVERY:
            self.shown = time.perf_counter()
            self._print(self._line(trials, total, objective))

    def finished(self, state: TaskState) -> None:
        """A line for a task whose finalists have been measured."""
        if state.result is None:
            self.note(f"{state.task.title}: no right program: {state.dead}")
            return
        self.note(
            f"{state.task.title}: best {format_seconds(state.result.best_seconds)}, "
            f"{state.result.gflops:.4g} GFLOP/s after {state.trials} trials"
        )

    def interrupted(self) -> None:
        """Lines for what was found until Ctrl-C."""
        self.note(f"interrupted after {sum(s.trials for s in self.states)} trials")
        for s in self.states:
            if math.isfinite(s.best):
                self.note(f"{s.task.title}: best {format_seconds(s.best)} so far")

    def note(self, text: str) -> None:
        """A line that stays."""
        if self.live is not None:
            self.live.console.print(text, highlight=False, markup=False)
        elif self.verbose:
            self._print(text)

    def _line(self, trials: int, total: int, objective: float) -> str:
        seconds = max(time.perf_counter() - self.began, 1e-9)
        value = "unknown yet" if math.isinf(objective) else format_seconds(objective)
        if math.isfinite(objective):
            self.first = self.first or objective
            value += f", {self.first / objective:.2f} x at first"
        return f"{trials}/{total} trials | objective {value} | {trials / seconds:.1f} trials/s"

    def _table(self, caption: str) -> Any:
        from rich.table import Table as RichTable

        table = RichTable(caption=caption)
        for heading in HEADINGS:
            table.add_column(heading)
        for row in rows(self.states, self.shares()):
            table.add_row(*row)
        return table

    def _print(self, text: str) -> None:
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)


HEADINGS = ("task", "weight", "share", "best", "gain", "GFLOP/s", "trials", "")


def rows(states: Sequence[TaskState], shares: Sequence[float] | None) -> Iterator[tuple[str, ...]]:
    """A row a task under `HEADINGS`; what is not known is empty."""
    for n, s in enumerate(states):
        known = math.isfinite(s.seconds)
        yield (
            s.task.title,
            f"{s.weight:g}",
            f"{shares[n]:.1%}" if shares is not None else "",
            format_seconds(s.seconds) if known else "",
            f"{s.gain:.2f}" if s.gain is not None else "",
            f"{s.flop / s.seconds / 1e9:.4g}" if known else "",
            str(s.trials),
            s.dead or "",
        )


def as_text(headings: Sequence[str], found: Iterable[Sequence[str]]) -> str:
    """Rows as aligned columns: the first to the left, the last as it is, those between them to the
    right."""
    table = [tuple(headings), *(tuple(row) for row in found)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]

    def line(row: Sequence[str]) -> str:
        middle = [c.rjust(w) for c, w in zip(row[1:-1], widths[1:-1], strict=True)]
        return "  ".join([row[0].ljust(widths[0]), *middle, row[-1]]).rstrip()

    return "\n".join(map(line, table))
