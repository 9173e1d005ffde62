"""Records to test with, made from the few things that a test is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from records import BASELINE_ROUND, Record, RecordSource, Store, Workload

KEY = "w0"
TARGET = "llvm -mcpu=znver5"
DEVICE = "zen5-2c"
JOB = "1" * 32

WORKLOAD = Workload(key=KEY, name="matmul", script="def main(): ...", args=[8, 8, 8], flop=1024.0)


class Clock:
    """In the place of `time`: it goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asked = 0

    def monotonic(self) -> float:
        """Seconds since some moment."""
        self.asked += 1
        return self.now

    def sleep(self, seconds: float) -> None:
        """It is later then, at once."""
        self.now += seconds


@contextmanager
def after_first_select(store: Store, act: Callable[[], object]) -> Iterator[None]:
    """Within it, `act` is called once, after the first row set that the store reads: as if another
    process did it, between two statements."""
    left = [act]

    def selected(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if left and statement.lstrip().startswith(("SELECT", "WITH")):
            left.pop()()

    engine = store._db.engine
    event.listen(engine, "after_cursor_execute", selected)
    try:
        yield
    finally:
        event.remove(engine, "after_cursor_execute", selected)
    assert not left


def trial(slot: int, seconds: float | None = 1e-3, **changes: Any) -> Record:
    """An ok trial, or one that failed if `seconds` is None and `changes` name the status."""
    values: dict[str, Any] = {
        "job_id": JOB,
        "kind": "trial",
        "round": 0,
        "slot": slot,
        "workload_key": KEY,
        "target": TARGET,
        "device": DEVICE,
        "status": "ok",
        "seconds": seconds,
        "trace": [["get_block", ["C"], ["b0"]], ["split", ["l0", "?t0"], ["l1", "l2"]]],
        "decisions": {"t0": 4},
        "program_hash": f"p{slot}",
        "toolchain": "llvmlite 0.45",
        "spread": 1e-6,
        "noise": 0.01,
        "runs": 10,
        "build_seconds": 0.02,
    }
    return Record(**values | changes)


def failure(
    slot: int, status: str = "build_error", error: str = "it broke", **changes: Any
) -> Record:
    return trial(slot, None, status=status, error=error, **changes)


def baseline(slot: int, seconds: float, **changes: Any) -> Record:
    changes = {"kind": "baseline", "round": BASELINE_ROUND, "program_hash": f"base{slot}"} | changes
    return trial(slot, seconds, **changes)


def with_job(
    store: Store, job_id: str = JOB, workload: Workload = WORKLOAD, **changes: Any
) -> Store:
    """`store` with a workload and a job of it."""
    store.put_workload(workload)
    values: dict[str, Any] = {"seed": 0, "trials_requested": 64, "device": DEVICE} | changes
    store.create_job(workload.key, TARGET, job_id=job_id, **values)
    return store


def slots(source: RecordSource) -> list[int]:
    return [record.slot for record in source.records()]
