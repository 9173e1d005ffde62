"""What every place that holds records can be asked: the interface of stores and logs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol, Self, Unpack

from records.ranking import Scope
from records.types import Filters, Measurement, Record, Workload


class RecordSource(Protocol):
    """The read side of a store (`Store`) and of a log (`RecordReader`)."""

    @property
    def name(self) -> str:
        """The path, or the URL without its password."""
        ...

    def best(
        self,
        workload_key: str,
        target: str | None = None,
        device: str | None = None,
        *,
        exclude: Collection[int] = (),
    ) -> Record:
        """The fastest valid record measured here, by the rules of `ranking.py`.

        Target and device may be left out where records of only one may be handed out. `exclude`:
        ids of records to pass over, such as those whose replay gives another program.

        Raises NoRecord, saying why, if there is none, and RecordError if target or device have to
        be named.
        """
        ...

    def records(self, **filters: Unpack[Filters]) -> Iterator[Record]:
        """The records selected by `filters`, in order of their ids, those after `after_id`."""
        ...

    def get(self, record_id: int) -> Record:
        """The record of that id. Raises NoRecord if there is none."""
        ...

    def measurements(self, *record_ids: int) -> list[Measurement]:
        """The repeated timings of some records, in order of their own ids."""
        ...

    def devices(self, workload_key: str) -> list[Scope]:
        """The pairs (target, device) of which there are records of a workload, sorted."""
        ...

    def workload(self, key: str) -> Workload:
        """The workload of that key. Raises NoRecord if there is none."""
        ...

    def workloads(self) -> Iterator[Workload]:
        """All workloads, in order of their keys."""
        ...

    def close(self) -> None:
        """Give up what is held. Harmless when repeated."""
        ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
