"""The store of workloads, jobs and measurements, and logs of them as JSON lines.

`open_records` opens either for reading. SQLAlchemy is imported with the first store: logs are
written and read without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from records.errors import (
    LeaseLost,
    NoRecord,
    RecordError,
    SchemaVersionError,
    StoreUnavailable,
)
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
    Event,
    Filters,
    Job,
    Lease,
    Measurement,
    Record,
    RecordKey,
    Workload,
    new_job_id,
)

if TYPE_CHECKING:
    from records.leases import JobQueue
    from records.store import Store

__all__ = [
    "BASELINE",
    "BASELINE_ROUND",
    "JOB_STATES",
    "OK",
    "STALE",
    "STATUSES",
    "TRIAL",
    "Event",
    "Filters",
    "ImportReport",
    "Job",
    "JobQueue",
    "JsonlReport",
    "JsonlWriter",
    "Lease",
    "LeaseLost",
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


_LAZY = {"JobQueue": "records.leases", "Store": "records.store"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
