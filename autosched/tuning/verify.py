"""Measuring imported records again, so that they may be handed out here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import TYPE_CHECKING

from autosched.errors import AutoschedError, TuningError
from autosched.tuning.best import schedule_of
from autosched.tuning.stored import program_of
from records import BASELINE, OK, STALE, Measurement, Record, RecordError, Workload

if TYPE_CHECKING:
    from measure.pool import Pool
    from measure.status import MeasureResult
    from records import Store

ROUNDS = 6
"""Interleaved timings of each record."""
_NOT_ITS_FAULT = ("cancelled", "device_lost")


@dataclass
class VerifyReport:
    """What became of the imported records: how many were `measured` and may be handed out now,
    which were `withdrawn` and why, and what was `left` as it is and why (a line each)."""

    measured: int = 0
    withdrawn: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def verify(
    store: Store,
    pool: Pool,
    target: str,
    *,
    key: str | None = None,
    top: int = 8,
    on_workload: Callable[[Workload], None] = lambda workload: None,
) -> VerifyReport:
    """Measures the `top` fastest imported records of each workload (or of the one of that `key`)
    again, on the pool's device, with outputs verified.

    Only records of this target and this device are measured: a time belongs to both. One whose
    replay gives another program, or whose program fails, is withdrawn with the reason. Baselines
    that were imported are measured as well, since nothing slower than they are is handed out.
    """
    report = VerifyReport()
    device = str(pool.device.fingerprint)
    workloads = [store.workload(key)] if key is not None else list(store.workloads())
    for workload in workloads:
        others = [s for s in store.devices(workload.key) if s != (target, device)]
        report.left += [f"{workload.name}: records of target {t!r}, device {d}" for t, d in others]
        records = _imported(store, workload.key, target, device, top)
        if records:
            on_workload(workload)
            _verify_workload(store, pool, workload, records, report)
    return report


def _imported(store: Store, key: str, target: str, device: str, top: int) -> list[Record]:
    """Baselines and the fastest trials that have not been measured here."""
    baselines: list[Record] = []

    def trials() -> Iterator[Record]:
        for r in store.records(workload_key=key, target=target, device=device, status=OK):
            if r.origin != "local" and r.remeasured_seconds is None:
                if r.kind != BASELINE:
                    yield r
                else:
                    baselines.append(r)

    fastest = nsmallest(top, trials(), key=lambda r: (r.seconds or 0, r.id))
    return baselines + fastest


def _verify_workload(
    store: Store, pool: Pool, workload: Workload, records: list[Record], report: VerifyReport
) -> None:
    try:
        func = program_of(workload)
    except AutoschedError as e:
        report.left.append(f"{workload.name}: {e}")
        return
    replayed = []
    for record in records:
        try:
            replayed.append((record, schedule_of(func, record).trace))
        except TuningError as e:
            _withdraw(store, record, STALE, str(e), report)
        except AutoschedError as e:
            _withdraw(store, record, "instantiation_error", str(e), report)
    if not replayed:
        return
    handle = pool.open_job(func)
    try:
        timings = pool.remeasure(handle, [trace for _, trace in replayed], ROUNDS)
    finally:
        handle.close()
    for (record, _), timing in zip(replayed, timings, strict=True):
        _keep(store, record, timing, report)


def _keep(store: Store, record: Record, timing: MeasureResult, report: VerifyReport) -> None:
    if timing.status in _NOT_ITS_FAULT:
        report.left.append(f"record {record.id}: {timing.status}: {timing.error}")
    elif timing.seconds is None:
        _withdraw(store, record, str(timing.status), timing.error, report)
    else:
        spread = None
        if timing.spread is not None and timing.raw_seconds is not None:
            spread = timing.spread * timing.raw_seconds
        store.add_measurements(
            record.id,
            [
                Measurement(
                    seconds=timing.seconds, spread=spread, noise=timing.noise, runs=timing.runs
                )
            ],
        )
        report.measured += 1


def _withdraw(store: Store, record: Record, status: str, error: str, report: VerifyReport) -> None:
    try:
        store.invalidate(record.id, status, error)
    except RecordError as e:
        report.left.append(f"record {record.id}: {e}")
    else:
        report.withdrawn.append(f"record {record.id}: {status}: {error.splitlines()[0]}")
