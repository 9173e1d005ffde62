"""The tables, as typed SQLAlchemy models.

`REVISION` is the newest of the migrations in `migrations/versions`, which lead to these tables; a
database carries its own in `alembic_version`, and another one is refused (`versions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator

REVISION = "0010"

# SQLite makes only an INTEGER PRIMARY KEY an alias of the row's own number.
RowId = BigInteger().with_variant(Integer, "sqlite")


class UtcDateTime(TypeDecorator[datetime]):
    """Aware datetimes in UTC; SQLite, which has no time zones, stores them without."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        utc = value.astimezone(UTC)
        return utc.replace(tzinfo=None) if dialect.name == "sqlite" else utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Moment(TypeDecorator[datetime]):
    """A time to compare with one that the database's clock has set: SQLite's has milliseconds, and
    compares them as texts."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(Text() if dialect.name == "sqlite" else self.impl_instance)

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        if value is None or dialect.name != "sqlite":
            return value
        utc = value.astimezone(UTC).replace(tzinfo=None)
        return utc.isoformat(" ", "milliseconds")


class Tags(TypeDecorator[Sequence[str]]):
    """Words without commas, as one text `,a,b,` in which `LIKE '%,a,%'` finds a whole word."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[str] | None, dialect: Dialect) -> str:
        return f",{','.join(value)}," if value else ""

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...]:
        return tuple(word for word in (value or "").split(",") if word)


class database_time(FunctionElement[datetime]):
    """The time by the database's clock: now, or `database_time(seconds)` from now."""

    type = UtcDateTime()
    inherit_cache = True


@compiles(database_time)
def _clock(element: database_time, compiler: SQLCompiler, **kw: Any) -> str:
    # CURRENT_TIMESTAMP is when the transaction began, which may have waited for a lock since.
    later = compiler.process(element.clauses, **kw)
    return f"(clock_timestamp() + make_interval(secs => {later}))" if later else "clock_timestamp()"


@compiles(database_time, "sqlite")
def _clock_of_sqlite(element: database_time, compiler: SQLCompiler, **kw: Any) -> str:
    # CURRENT_TIMESTAMP has whole seconds.
    later = compiler.process(element.clauses, **kw)
    shift = f", ({later}) || ' seconds'" if later else ""
    return f"strftime('%Y-%m-%d %H:%M:%f', 'now'{shift})"


class seconds_between(FunctionElement[float]):
    """Seconds from one time to a later one; never negative, since clocks are set."""

    type = Double()
    inherit_cache = True


@compiles(seconds_between)
def _between(element: seconds_between, compiler: SQLCompiler, **kw: Any) -> str:
    begin, end = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"greatest(0, extract(epoch FROM ({end}) - ({begin})))"


@compiles(seconds_between, "sqlite")
def _between_of_sqlite(element: seconds_between, compiler: SQLCompiler, **kw: Any) -> str:
    begin, end = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"max(0.0, (julianday({end}) - julianday({begin})) * 86400.0)"


class Base(DeclarativeBase):
    type_annotation_map = {  # noqa: RUF012 (the form that SQLAlchemy documents)
        str: Text,
        float: Double,
        datetime: UtcDateTime,
        Mapping[str, Any]: JSON(none_as_null=True),
        Sequence[Any]: JSON(none_as_null=True),
    }


class WorkloadRow(Base):
    __tablename__ = "workloads"

    key: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str]
    args: Mapped[Sequence[Any] | None]
    script: Mapped[str]
    text: Mapped[str | None]
    flop: Mapped[float]
    created_at: Mapped[datetime]


class JobRow(Base):
    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    workload_key: Mapped[str] = mapped_column(ForeignKey("workloads.key"))
    target: Mapped[str]
    device: Mapped[str | None]
    seed: Mapped[int | None] = mapped_column(BigInteger)
    options: Mapped[Mapping[str, Any]]
    state: Mapped[str]
    trials_requested: Mapped[int]
    trials_done: Mapped[int]
    best_seconds: Mapped[float | None]
    error: Mapped[str | None]
    origin: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    priority: Mapped[int] = mapped_column(server_default="0")
    client: Mapped[str] = mapped_column(server_default="")
    claimed_at: Mapped[datetime | None]
    lease_owner: Mapped[str | None]
    lease_epoch: Mapped[int] = mapped_column(server_default="0")
    lease_until: Mapped[datetime | None]
    name: Mapped[str | None]
    tags: Mapped[Sequence[str]] = mapped_column(Tags, server_default="")
    phase: Mapped[str | None]
    notice: Mapped[str | None]
    best_record_id: Mapped[int | None] = mapped_column(BigInteger)
    baseline_seconds: Mapped[float | None]
    run_seconds: Mapped[float] = mapped_column(server_default="0")
    not_before: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    token_id: Mapped[str | None] = mapped_column(String(12))
    batch_id: Mapped[str | None] = mapped_column(String(32))
    device_part: Mapped[float] = mapped_column(server_default="1")
    pool: Mapped[str | None]

    __table_args__ = (
        Index("ix_jobs_resume", "workload_key", "target", "seed", "created_at"),
        Index("ix_jobs_state", "state", "created_at", "id"),
        Index("ix_jobs_created", "created_at", "id"),
        Index("ix_jobs_client", "client", "claimed_at"),
        Index("ix_jobs_token", "token_id", "state"),
        Index("ix_jobs_batch", "batch_id"),
        Index("ix_jobs_ended", "ended_at"),
    )


class ClientRow(Base):
    """When a job of a client was last claimed, which outlives the job (`turns.py`)."""

    __tablename__ = "clients"

    name: Mapped[str] = mapped_column(primary_key=True)
    served_at: Mapped[datetime]


class JobTaskRow(Base):
    """A kernel of a model, and a job of the model's batch that tunes it (`model_tasks.py`)."""

    __tablename__ = "job_tasks"

    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    kernel: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    title: Mapped[str]
    weight: Mapped[float]
    estimate: Mapped[float]


class SubmissionRow(Base):
    """What a client submitted under a key of its own choice, so that it is taken but once."""

    __tablename__ = "submissions"

    client: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    created_at: Mapped[datetime] = mapped_column(index=True)


class EventRow(Base):
    """What happened to a job, in the order of the ids."""

    __tablename__ = "events"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    kind: Mapped[str]
    data: Mapped[Mapping[str, Any]]
    created_at: Mapped[datetime]

    __table_args__ = (Index("ix_events_job", "job_id", "id"),)


class TraceRow(Base):
    """The instructions of a variant, once; `hash` is that of dialect and data."""

    __tablename__ = "traces"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    hash: Mapped[str] = mapped_column(unique=True)
    dialect: Mapped[int]
    data: Mapped[Sequence[Any]]


class RecordRow(Base):
    """One trial or baseline.

    `standing` and `ranked_seconds` follow from the other columns (`ranking.py`); they are there for
    the lookup of the best, which reads the head of each standing in `ix_records_best` and no more.
    What a job's curve and counts need is in `ix_records_job`.
    """

    __tablename__ = "records"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"))
    kind: Mapped[str]
    round: Mapped[int]
    slot: Mapped[int]
    workload_key: Mapped[str] = mapped_column(ForeignKey("workloads.key"))
    target: Mapped[str]
    device: Mapped[str]
    toolchain: Mapped[str]
    trace_id: Mapped[int] = mapped_column(ForeignKey("traces.id"))
    decisions: Mapped[Mapping[str, Any]]
    program_hash: Mapped[str]
    status: Mapped[str]
    error: Mapped[str | None]
    seconds: Mapped[float | None]
    spread: Mapped[float | None]
    noise: Mapped[float | None]
    runs: Mapped[int]
    build_seconds: Mapped[float | None]
    origin: Mapped[str]
    created_at: Mapped[datetime]
    remeasured_seconds: Mapped[float | None]
    standing: Mapped[int | None] = mapped_column(SmallInteger)
    ranked_seconds: Mapped[float | None]

    __table_args__ = (
        UniqueConstraint("job_id", "round", "slot", name="uq_records_job_round_slot"),
        Index(
            "ix_records_best",
            *("workload_key", "target", "device", "standing", "ranked_seconds", "id", "status"),
        ),
        Index("ix_records_workload", "workload_key", "id"),
        Index("ix_records_job", "job_id", "id", "kind", "status", "seconds"),
    )


class MeasurementRow(Base):
    __tablename__ = "measurements"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    record_id: Mapped[int] = mapped_column(ForeignKey("records.id"), index=True)
    seconds: Mapped[float]
    spread: Mapped[float | None]
    noise: Mapped[float | None]
    runs: Mapped[int]
    origin: Mapped[str]
    created_at: Mapped[datetime]


class TokenRow(Base):
    """A token of the service: `hash` is that of its secret (`tokens.py`)."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(12), primary_key=True)
    name: Mapped[str]
    scope: Mapped[str]
    hash: Mapped[str]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    max_jobs: Mapped[int | None] = mapped_column(BigInteger)
    max_trials: Mapped[int | None] = mapped_column(BigInteger)
    max_device_seconds: Mapped[float | None]
    previous_hash: Mapped[str | None]
    previous_until: Mapped[datetime | None]
    spent_trials: Mapped[int] = mapped_column(BigInteger, server_default="0")
    """In jobs that were deleted, as are the seconds."""
    spent_seconds: Mapped[float] = mapped_column(server_default="0")


class DeviceLimitsRow(Base):
    """What a device can do at best, as it was measured there (`roofline.py`)."""

    __tablename__ = "device_limits"

    device: Mapped[str] = mapped_column(primary_key=True)
    flops: Mapped[float]
    bytes_per_second: Mapped[float]
    cache_bytes: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


class TrafficRow(Base):
    """What a workload's parameters come to in bytes, and the type of their elements if all have
    one (`roofline.py`)."""

    __tablename__ = "traffic"

    workload_key: Mapped[str] = mapped_column(ForeignKey("workloads.key"), primary_key=True)
    bytes: Mapped[int] = mapped_column(BigInteger)
    dtype: Mapped[str | None]


class WorkerMinuteRow(Base):
    """What a worker did in one minute of the clock, counted from 1970."""

    __tablename__ = "worker_minutes"

    name: Mapped[str] = mapped_column(primary_key=True)
    minute: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    trials: Mapped[int]
    busy_seconds: Mapped[float]
    faults: Mapped[int]

    __table_args__ = (Index("ix_worker_minutes_minute", "minute"),)


class DrainedRow(Base):
    """A worker that is to take no more work, and who said so."""

    __tablename__ = "drained_workers"

    name: Mapped[str] = mapped_column(primary_key=True)
    client: Mapped[str]
    created_at: Mapped[datetime]


class WebhookRow(Base):
    """An address that is told when a job of its client ends."""

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(String(12), primary_key=True)
    client: Mapped[str] = mapped_column(index=True)
    url: Mapped[str]
    secret: Mapped[str]
    created_at: Mapped[datetime]


class DeliveryRow(Base):
    """The end of a job, told or to be told to a webhook."""

    __tablename__ = "deliveries"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    webhook_id: Mapped[str] = mapped_column(ForeignKey("webhooks.id"))
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.id"), index=True)
    state: Mapped[str]
    attempts: Mapped[int]
    not_before: Mapped[datetime]
    error: Mapped[str | None]
    created_at: Mapped[datetime]

    __table_args__ = (
        Index("ix_deliveries_state", "state", "not_before"),
        Index("ix_deliveries_webhook", "webhook_id", "id"),
    )
