"""The store of workloads, jobs and measurements, and logs of them as JSON lines.

`open_records` opens either for reading. SQLAlchemy is imported with the first store: logs are
written and read without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from records.errors import (
    KeyReused,
    LeaseLost,
    NoRecord,
    QueueFull,
    QuotaExceeded,
    RecordError,
    SchemaVersionError,
    StoreDamaged,
    StoreUnavailable,
)
from records.logs.distilling import distill
from records.logs.exchange import export_jsonl, export_lines, import_into, import_jsonl, merge
from records.logs.import_report import ImportReport
from records.logs.jsonl import JsonlReport, JsonlWriter, read_jsonl
from records.logs.reader import RecordReader
from records.opening import open_records, refuse_without_sql
from records.source import RecordSource
from records.types import (
    BASELINE,
    BASELINE_ROUND,
    JOB_STATES,
    OK,
    STALE,
    STATUSES,
    TRIAL,
    CurvePoint,
    Event,
    Filters,
    Job,
    JobPage,
    Lease,
    Measurement,
    Page,
    Record,
    RecordKey,
    SubmissionKey,
    Workload,
    new_job_id,
)

if TYPE_CHECKING:
    from records.operations.repair import RepairReport, repair
    from records.queue.leases import JobQueue
    from records.store import Store

__all__ = [
    "BASELINE",
    "BASELINE_ROUND",
    "JOB_STATES",
    "OK",
    "STALE",
    "STATUSES",
    "TRIAL",
    "CurvePoint",
    "Event",
    "Filters",
    "ImportReport",
    "Job",
    "JobPage",
    "JobQueue",
    "JsonlReport",
    "JsonlWriter",
    "KeyReused",
    "Lease",
    "LeaseLost",
    "Measurement",
    "NoRecord",
    "Page",
    "QueueFull",
    "QuotaExceeded",
    "Record",
    "RecordError",
    "RecordKey",
    "RecordReader",
    "RecordSource",
    "RepairReport",
    "SchemaVersionError",
    "Store",
    "StoreDamaged",
    "StoreUnavailable",
    "SubmissionKey",
    "Workload",
    "distill",
    "export_jsonl",
    "export_lines",
    "import_into",
    "import_jsonl",
    "merge",
    "new_job_id",
    "open_records",
    "read_jsonl",
    "repair",
]


_LAZY = {
    "JobQueue": "records.queue.leases",
    "RepairReport": "records.operations.repair",
    "Store": "records.store",
    "repair": "records.operations.repair",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        try:
            return getattr(import_module(_LAZY[name]), name)
        except ModuleNotFoundError as e:
            refuse_without_sql(e)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
