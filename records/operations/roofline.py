"""How fast a program could be at best: the limits of devices, and what workloads have to move.

The roofline of Williams, Waterman and Patterson (CACM 52:4, 2009): no program is done before
`flop / flops` seconds, nor, where its arrays do not fit the last cache, before
`bytes / bytes_per_second`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, delete, insert, select

from records.errors import RecordError
from records.sql.rows import chunks, insert_new
from records.sql.schema import (
    DeviceLimitsRow,
    JobRow,
    RecordRow,
    TrafficRow,
    WorkloadRow,
    database_time,
)
from records.types import LOCAL

if TYPE_CHECKING:
    from records.store import Store

DTYPE = "float32"
"""The type whose arithmetic `flops` is of: shares are told of workloads all of whose parameters
have it."""

NEWEST = 2_000
"""The newest jobs, among which the best of each workload is looked for."""


@dataclass(frozen=True, kw_only=True)
class DeviceLimits:
    """What a device can do at best with all of its cores: `flops` in FLOP/s of float32
    multiply-adds, two each; `bytes_per_second` read and written in a copy of arrays far larger than
    the last cache, which has `cache_bytes`."""

    device: str
    flops: float
    bytes_per_second: float
    cache_bytes: int
    created_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one run of a workload has to read and write at least, in bytes: each parameter once;
    `dtype` of the parameters, None if they differ."""

    workload_key: str
    bytes: int
    dtype: str | None


@dataclass(frozen=True, kw_only=True)
class Bound:
    """The least time of a workload on a device in seconds, and the side that says so."""

    seconds: float
    by: str


def bound(flop: float, traffic: Traffic | None, limits: DeviceLimits | None) -> Bound | None:
    """The least seconds of one run; None where limits or traffic are not known, or the arithmetic
    is not that of `flops`."""
    if limits is None or traffic is None or traffic.dtype != DTYPE:
        return None
    arithmetic = flop / limits.flops
    memory = traffic.bytes / limits.bytes_per_second if traffic.bytes > limits.cache_bytes else 0.0
    if not max(arithmetic, memory):
        return None
    by = "arithmetic" if arithmetic >= memory else "memory"
    return Bound(seconds=max(arithmetic, memory), by=by)


def put_limits(store: Store, limits: DeviceLimits) -> None:
    """Stores what a device can do, in place of what was stored of it before. Raises RecordError for
    numbers that are none."""
    for name in ("flops", "bytes_per_second", "cache_bytes"):
        value = getattr(limits, name)
        if not 0 < value < 1e18:
            raise RecordError(f"{name} of device {limits.device} is {value!r}; expected over 0")
    row = {**vars(limits), "created_at": database_time()}

    def put(connection: Connection) -> None:
        connection.execute(delete(DeviceLimitsRow).where(DeviceLimitsRow.device == limits.device))
        connection.execute(insert(DeviceLimitsRow).values(row))

    store._db.write(put)


def put_traffic(store: Store, traffic: Traffic) -> None:
    """Stores what a workload moves, once."""

    def put(connection: Connection) -> None:
        statement = insert_new(connection, TrafficRow, ["workload_key"])
        connection.execute(statement.values(vars(traffic)))

    store._db.write(put)


def limits_of(store: Store, device: str | None) -> DeviceLimits | None:
    """What a device can do; None if nobody measured it."""
    with store._db.transaction(writes=False) as connection:
        row = connection.execute(_LIMITS.where(DeviceLimitsRow.device == device)).first()
    return None if row is None else DeviceLimits(**row._mapping)


def all_limits(store: Store) -> list[DeviceLimits]:
    """Those of all devices, by their fingerprints."""
    with store._db.transaction(writes=False) as connection:
        rows = connection.execute(_LIMITS.order_by(DeviceLimitsRow.device)).all()
    return [DeviceLimits(**row._mapping) for row in rows]


def traffic_of(store: Store, keys: Collection[str]) -> dict[str, Traffic]:
    """What workloads move, by their keys; those that no job of this version was of are left out."""
    with store._db.transaction(writes=False) as connection:
        return {
            row.workload_key: Traffic(**row._mapping)
            for chunk in chunks(sorted(keys))
            for row in connection.execute(_TRAFFIC.where(TrafficRow.workload_key.in_(chunk)))
        }


def exceeded(store: Store, limits: DeviceLimits) -> bool:
    """Whether jobs were faster than the limits allow: these were measured beside something else."""
    found = reached(store, limits.device, NEWEST)
    moved = traffic_of(store, {one.workload_key for one in found})
    bounds = ((one, bound(one.flop, moved.get(one.workload_key), limits)) for one in found)
    return any(most is not None and one.seconds < most.seconds for one, most in bounds)


@dataclass(frozen=True, kw_only=True)
class Reached:
    """The best that jobs reached for a workload on a device."""

    workload_key: str
    name: str
    args: Any
    flop: float
    device: str
    seconds: float
    record_id: int
    job_id: str


def reached(store: Store, device: str | None, limit: int) -> list[Reached]:
    """The bests of jobs made here, one for each workload and device, of the workloads whose jobs
    changed last; at most about `limit`."""
    query = (
        select(
            *(JobRow.workload_key, WorkloadRow.name, WorkloadRow.args, WorkloadRow.flop),
            *(JobRow.device, JobRow.best_seconds.label("seconds")),
            *(JobRow.best_record_id.label("record_id"), JobRow.id.label("job_id")),
        )
        .join(WorkloadRow, WorkloadRow.key == JobRow.workload_key)
        .join(RecordRow, RecordRow.id == JobRow.best_record_id)
        .where(JobRow.origin == LOCAL, JobRow.device.is_not(None), RecordRow.status == "ok")
        .where(JobRow.best_seconds > 0)
        .order_by(JobRow.created_at.desc(), JobRow.id.desc())
        .limit(limit)
    )
    if device is not None:
        query = query.where(JobRow.device == device)
    best: dict[tuple[str, str], Reached] = {}
    with store._db.transaction(writes=False) as connection:
        for row in connection.execute(query):
            found = Reached(**row._mapping)
            known = best.get((found.workload_key, found.device))
            if known is None or found.seconds < known.seconds:
                best[found.workload_key, found.device] = found
    return list(best.values())


_LIMITS = select(
    DeviceLimitsRow.device,
    DeviceLimitsRow.flops,
    DeviceLimitsRow.bytes_per_second,
    DeviceLimitsRow.cache_bytes,
    DeviceLimitsRow.created_at,
)
_TRAFFIC = select(TrafficRow.workload_key, TrafficRow.bytes, TrafficRow.dtype)
