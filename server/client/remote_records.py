"""The records of a service, read as those of a store or a log are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from types import TracebackType
from typing import IO, Self, Unpack

from records import ImportReport, NoRecord, Record, RecordError, Workload
from records.logs.lines import Entry, decode_line
from records.ranking import Scope
from records.types import Filters, Measurement
from server import schemas
from server.client import Client, RequestRefused, ServiceUnreachable


class RemoteRecords:
    """A `RecordSource` over a client, which it closes. Methods also raise what the client does."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def name(self) -> str:
        return self.client.url

    def best(
        self,
        workload_key: str,
        target: str | None = None,
        device: str | None = None,
        *,
        exclude: Collection[int] = (),
    ) -> Record:
        """See `RecordSource.best`."""
        try:
            found = self.client.best(workload_key, target, device, exclude=tuple(exclude))
        except RequestRefused as e:
            raise _error(e) from e
        return self.get(found.id)

    def records(self, **filters: Unpack[Filters]) -> Iterator[Record]:
        """See `RecordSource.records`. Each costs a request: to read many, export them."""
        after, limit = filters.get("after_id") or 0, filters.get("limit")
        named = {
            name: value for name, value in filters.items() if name not in ("after_id", "limit")
        }
        found = (r for r in self.client.records(**named) if r.id > after)  # type: ignore[arg-type]
        return (self.get(record.id) for record in islice(found, limit))

    def get(self, record_id: int) -> Record:
        """See `RecordSource.get`."""
        values = self._detail(record_id).model_dump(exclude={"measurements"})
        return Record(**values)

    def measurements(self, *record_ids: int) -> list[Measurement]:
        """See `RecordSource.measurements`."""
        found = [
            Measurement(record_id=record_id, **one.model_dump())
            for record_id in record_ids
            for one in self._detail(record_id).measurements
        ]
        return sorted(found, key=lambda one: one.id)

    def devices(self, workload_key: str) -> list[Scope]:
        """See `RecordSource.devices`."""
        try:
            found = self.client.workload(workload_key).devices
        except RequestRefused as e:
            if e.status == 404:
                return []
            raise
        return [(scope.target, scope.device) for scope in found]

    def workload(self, key: str) -> Workload:
        """See `RecordSource.workload`."""
        try:
            return Workload(**self.client.workload(key).model_dump(exclude={"devices"}))
        except RequestRefused as e:
            raise _error(e) from e

    def workloads(self) -> Iterator[Workload]:
        """See `RecordSource.workloads`."""
        return (self.workload(listed.key) for listed in self.client.workloads())

    def close(self) -> None:
        """Close the client."""
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _detail(self, record_id: int) -> schemas.RecordDetail:
        try:
            return self.client.record(record_id)
        except RequestRefused as e:
            raise _error(e) from e


def _error(refusal: RequestRefused) -> RecordError | RequestRefused:
    """What a store would raise."""
    if refusal.problem is None or refusal.status not in (404, 409):
        return refusal
    kind = NoRecord if refusal.status == 404 else RecordError
    return kind(refusal.problem.detail)


def exported(client: Client, **filters: str | None) -> Iterator[Entry]:
    """The entries of a service's export. Raises what the client does."""
    rest = b""
    for part in client.export_records(**filters):
        *lines, rest = (rest + part).split(b"\n")
        yield from map(decode_line, lines)
    if rest:
        raise ServiceUnreachable(f"the export of {client.url} broke off in the middle of a line")


def imported(client: Client, log: IO[bytes]) -> ImportReport:
    """What a service made of a log. Raises what the client does."""
    found = client.import_records(log)
    report = ImportReport(found.new, found.known, refused_count=found.refused)
    for told in found.reasons:
        where, _, reason = told.partition(": ")
        report.refused.append((int(where.removeprefix("line ")), reason))
    return report
