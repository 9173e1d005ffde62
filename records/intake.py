"""Taking the entries of a log, or of another store, into a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from records.errors import RecordError, StoreUnavailable
from records.jsonl import LISTED, JsonlReport
from records.lines import Entry

if TYPE_CHECKING:
    from records.store import Store

BATCH = 500
"""Entries that are taken in by one transaction or one write."""


@dataclass
class ImportReport:
    """What taking records in came to: how many were new, how many were there already, and how many
    lines were refused; of the first LISTED of these, `refused` has the number of the line (of the
    entry, if a store was the source) and the reason.
    """

    new: int = 0
    known: int = 0
    refused: list[tuple[int, str]] = field(default_factory=list)
    refused_count: int = 0

    def refuse(self, number: int, reason: str) -> None:
        """Enter a line that cannot be taken."""
        self.refused_count += 1
        if len(self.refused) < LISTED:
            self.refused.append((number, reason))

    def add(self, later: ImportReport) -> None:
        """Enter what became of the lines that follow."""
        self.new += later.new
        self.known += later.known
        self.refused_count += later.refused_count
        self.refused = sorted(self.refused + later.refused)[:LISTED]

    def add_skipped(self, read: JsonlReport) -> None:
        """Enter the lines that could not even be read."""
        self.refused_count += read.skipped_count
        self.refused = sorted(self.refused + read.skipped)[:LISTED]

    def by_reason(self) -> dict[str, list[int]]:
        """The numbers of the listed lines by the reason why they were refused."""
        found: dict[str, list[int]] = {}
        for number, reason in self.refused:
            found.setdefault(reason, []).append(number)
        return found


def take_in(
    store: Store, numbered: Iterable[tuple[int, Entry]], origin: str | None
) -> ImportReport:
    """Stores numbered entries, marked as of `origin` (None: as they are).

    A batch is one transaction: all of it is there or nothing, whatever happens meanwhile. What
    cannot be stored is refused in the report, entry by entry. Raises StoreUnavailable; what was
    taken by then stays, and is known when the same is taken in again.
    """
    intake = _Intake(store, origin)
    rest = iter(numbered)
    while batch := list(islice(rest, BATCH)):
        intake.take(batch)
    return intake.report


class _Intake:
    def __init__(self, store: Store, origin: str | None) -> None:
        self.report = ImportReport()
        self._store = store
        self._origin = origin
        self._seen: set[tuple[str, str]] = set()

    def take(self, batch: Sequence[tuple[int, Entry]]) -> None:
        """Take a batch; where the database refuses a row, all but that one, by halves."""
        from records.taking import Taking

        try:
            with self._store._writing() as connection:
                taking = Taking(connection, self._store._traces, self._origin, self._seen)
                taking.take(batch)
        except StoreUnavailable:
            raise
        except RecordError as e:
            if len(batch) == 1:
                self.report.refuse(batch[0][0], str(e))
                return
            self.take(batch[: len(batch) // 2])
            self.take(batch[len(batch) // 2 :])
        else:
            self._seen |= taking.found
            self.report.add(taking.report)
