"""The live table of a tuning run: what each of the last rounds found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autosched.tuning.report.units import format_seconds
from records import BASELINE_ROUND, OK

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 8
"""Rounds that are shown beside the baselines, the latest."""
HEADINGS = ("round", "trials", "failed", "best of it", "best so far", "GFLOP/s")


@dataclass
class _Round:
    trials: int = 0
    failed: int = 0
    best: float | None = None


class RoundsTable:
    """Counts records by round. `flop` is the workload's number of operations."""

    def __init__(self, title: str, flop: float) -> None:
        self.title, self.flop = title, flop
        self.rounds: dict[int, _Round] = {}

    def add(self, number: int, status: str, seconds: float | None) -> None:
        """Count a record of a round, trial or baseline."""
        row = self.rounds.setdefault(number, _Round())
        row.trials += 1
        if status != OK or seconds is None:
            row.failed += 1
        elif row.best is None or seconds < row.best:
            row.best = seconds

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Cells under HEADINGS: the baselines, then the latest rounds in order."""
        so_far: float | None = None
        found = []
        for number, row in sorted(self.rounds.items()):
            if row.best is not None and (so_far is None or row.best < so_far):
                so_far = row.best
            best = "" if row.best is None else format_seconds(row.best)
            known = (
                ("", "")
                if so_far is None
                else (format_seconds(so_far), f"{self.flop / so_far / 1e9:.4g}")
            )
            name = "baselines" if number == BASELINE_ROUND else str(number)
            found.append((name, str(row.trials), str(row.failed or ""), best, *known))
        first = 1 if BASELINE_ROUND in self.rounds else 0
        yield from (*found[:first], *found[first:][-SHOWN:])

    def render(self, caption: str) -> Table:
        """The table, with a line below it."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=Text(self.title), caption=Text(caption), caption_justify="left")
        for heading in HEADINGS:
            table.add_column(heading, justify="left" if heading == HEADINGS[0] else "right")
        for row in self.rows():
            table.add_row(*row)
        return table
