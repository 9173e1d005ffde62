"""What taking records into a store or log came to."""

from __future__ import annotations

from dataclasses import dataclass, field

from records.logs.jsonl import LISTED, JsonlReport

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
