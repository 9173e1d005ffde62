"""One job's own process: `python -m server.runner`, started and watched by the supervisor.

It takes an `Assignment` as a line of JSON from standard input, goes on with the job from what the
store has of it, and leaves when the lease is lost, the job is cancelled, on SIGTERM, or at the end
of standard input, which means that the server has died. Whatever it writes is written under the
lease, so a process that lives longer than it should writes nothing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from autosched.errors import AutoschedError
from records import Lease, LeaseLost, RecordError, StoreUnavailable
from server.leaving import DONE, UNAVAILABLE, Exit, Leave, Why

if TYPE_CHECKING:
    from records import Job
    from records.store import Store
    from server.keeper import Keeper


@dataclass(frozen=True)
class Assignment:
    """What a runner is told: the store, the pool's address, the job and its lease."""

    db: str
    pool: str
    job_id: str
    epoch: int
    lease_seconds: float
    build_seconds: float

    @property
    def lease(self) -> Lease:
        return Lease(self.job_id, self.epoch)

    def line(self) -> bytes:
        """As it is sent."""
        return json.dumps(asdict(self)).encode() + b"\n"


def run(assignment: Assignment, leaving: Exit) -> int:
    """Do the job; returns the exit status."""
    from records.leases import JobQueue
    from records.store import Store
    from server.heartbeat import Heartbeat
    from server.keeper import Keeper

    lease = assignment.lease
    with Store(assignment.db) as store:
        queue = JobQueue(store)

        def settle() -> None:
            """Give the job back, or end it, as it is left."""
            if leaving.why is Why.CANCELLED:
                queue.finish(lease, "cancelled")
            elif leaving.why is Why.PARKED:
                queue.park(lease)

        heartbeat = Heartbeat(store, queue, lease, assignment.lease_seconds, leaving, settle)
        keeper = Keeper(store, lease, heartbeat)
        heartbeat.start()
        try:
            try:
                state, error = _attempt(assignment, store, keeper)
                heartbeat.stop()
                keeper.patiently(lambda: queue.finish(lease, state, error))
            except Leave:
                heartbeat.stop()
                settle()
        except LeaseLost as e:
            print(e, file=sys.stderr)
        except StoreUnavailable as e:
            print(e, file=sys.stderr)
            return UNAVAILABLE
        finally:
            heartbeat.stop()
    return DONE


def _attempt(assignment: Assignment, store: Store, keeper: Keeper) -> tuple[str, str | None]:
    """Tune to the end; the state in which the job is, and the error.

    Raises LeaseLost, StoreUnavailable, and Leave.
    """
    try:
        _tune(assignment, store, keeper)
    except (LeaseLost, StoreUnavailable):
        raise
    except RecordError as e:
        return "failed", str(e).replace(store.name, "the store")
    except AutoschedError as e:
        return "failed", str(e)
    except Exception as e:
        traceback.print_exc()
        return "failed", f"{type(e).__name__}: {e}"
    return "succeeded", None


def _tune(assignment: Assignment, store: Store, keeper: Keeper) -> None:
    from autosched.tuning.pools import PoolAddress, pool_from
    from autosched.tuning.session import Session
    from autosched.tuning.stored import stored_task
    from measure.build import LocalBuilder

    job = store.job(assignment.job_id)
    task = stored_task(store.workload(job.workload_key), job.target)
    local = PoolAddress.parse(assignment.pool).is_local
    builder = LocalBuilder(timeout=assignment.build_seconds) if local else None
    with closing(pool_from(assignment.pool, task.target, builder, seed=job.seed or 0)) as pool:
        session = Session(task, _options(job, keeper, pool), pool)
        before = keeper.before()
        session.started -= before.seconds
        session.patient_from = before.trials
        session.run()


def _options(job: Job, keeper: Keeper, pool: Any) -> Any:
    from autosched.tuning import TuningOptions

    given: Mapping[str, Any] = job.options
    return TuningOptions(
        num_measure_trials=job.trials_requested,
        num_measures_per_round=given["round_size"],
        early_stopping=given.get("early_stopping"),
        time_budget_s=given.get("time_budget_s"),
        finalists=given.get("finalists", 4),
        measure_callbacks=[keeper],
        pool=pool,
        resume=True,
        seed=job.seed or 0,
        verbose=0,
    )


def main() -> int:
    """The process; returns its exit status."""
    leaving = Exit()
    assignment = Assignment(**json.loads(sys.stdin.buffer.readline()))

    def watch() -> None:
        sys.stdin.buffer.read()
        leaving.ask(Why.PARKED)

    threading.Thread(target=watch, name="server", daemon=True).start()
    try:
        return run(assignment, leaving)
    except Leave:  # before there was anything to leave
        return DONE


if __name__ == "__main__":
    # Daemon threads may be reading: they must not hold up, or break, the end of the interpreter.
    status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
