"""The store of workloads, jobs and measurements, and logs of them as JSON lines.

`open_records` opens either for reading. SQLAlchemy is imported with the first store: logs are
written and read without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from records.errors import NoRecord, RecordError, SchemaVersionError, StoreUnavailable
from records.exchange import distill, export_jsonl, export_lines, import_jsonl, merge
from records.intake import ImportReport
from records.jsonl import JsonlReport, JsonlWriter, read_jsonl
from records.opening import open_records
from records.reader import RecordReader
from records.source import RecordSource
from records.types import (
    BASELINE,
    BASELINE_ROUND,
    JOB_STATES,
    OK,
    STALE,
    STATUSES,
    TRIAL,
    Filters,
    Job,
    Measurement,
    Record,
    RecordKey,
    Workload,
    new_job_id,
)

if TYPE_CHECKING:
    from records.store import Store

__all__ = [
    "BASELINE",
    "BASELINE_ROUND",
    "JOB_STATES",
    "OK",
    "STALE",
    "STATUSES",
    "TRIAL",
    "Filters",
    "ImportReport",
    "Job",
    "JsonlReport",
    "JsonlWriter",
    "Measurement",
    "NoRecord",
    "Record",
    "RecordError",
    "RecordKey",
    "RecordReader",
    "RecordSource",
    "SchemaVersionError",
    "Store",
    "StoreUnavailable",
    "Workload",
    "distill",
    "export_jsonl",
    "export_lines",
    "import_jsonl",
    "merge",
    "new_job_id",
    "open_records",
    "read_jsonl",
]


def __getattr__(name: str) -> Any:
    if name == "Store":
        from records.store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
