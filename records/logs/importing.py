"""Taking the entries of a log, or of another store, into a store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from records.errors import NoRecord, RecordError, StoreDamaged, StoreUnavailable
from records.logs.checks import Check, without_text
from records.logs.import_batch import ImportBatch
from records.logs.import_report import BATCH, ImportReport
from records.logs.lines import Entry
from records.types import Workload

if TYPE_CHECKING:
    from records.store import Store


def import_entries(
    store: Store,
    numbered: Iterable[tuple[int, Entry]],
    origin: str | None,
    check: Check = without_text,
) -> ImportReport:
    """Stores numbered entries, marked as of `origin` (None: as they are), workloads as `check` has
    them.

    A batch is one transaction: all of it is there or nothing, whatever happens meanwhile. What
    cannot be stored is refused in the report, entry by entry. Raises StoreUnavailable, and
    StoreDamaged; what was taken by then stays, and is known when the same is taken in again.
    """
    importer = _Importer(store, origin, check)
    rest = iter(numbered)
    while batch := list(islice(rest, BATCH)):
        importer.take(importer.checked(batch))
    return importer.report


class _Importer:
    def __init__(self, store: Store, origin: str | None, check: Check) -> None:
        self.report = ImportReport()
        self._check = check
        self._store = store
        self._origin = origin
        self._seen: set[tuple[str, str]] = set()

    def checked(self, batch: Sequence[tuple[int, Entry]]) -> list[tuple[int, Entry]]:
        """The entries that may be stored. Not a part of the transaction: it may take long."""
        found: list[tuple[int, Entry]] = []
        for number, entry in batch:
            if isinstance(entry, Workload) and not self._is_stored(entry):
                try:
                    entry = self._check(entry)
                except RecordError as e:
                    self.report.refuse(number, str(e))
                    continue
            found.append((number, entry))
        return found

    def _is_stored(self, workload: Workload) -> bool:
        """Whether it is there as it is, as in an import that is repeated."""
        try:
            stored = self._store.workload(workload.key)
        except NoRecord:
            return False
        return (stored.script, stored.text) == (workload.script, workload.text)

    def take(self, batch: Sequence[tuple[int, Entry]]) -> None:
        """Take a batch; where the database refuses a row, all but that one, by halves."""

        def work(connection: Connection) -> ImportBatch:
            entered = ImportBatch(connection, self._store._traces, self._origin, self._seen)
            entered.take(batch)
            return entered

        try:
            entered = self._store._write(work)
        except (StoreUnavailable, StoreDamaged):
            raise
        except RecordError as e:
            if len(batch) == 1:
                self.report.refuse(batch[0][0], str(e))
                return
            self.take(batch[: len(batch) // 2])
            self.take(batch[len(batch) // 2 :])
        else:
            self._seen |= entered.found
            self.report.add(entered.report)
