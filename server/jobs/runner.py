"""One job's own process: `python -m server.jobs.runner`, started and watched by the supervisor.

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
import time
import traceback
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from autosched.errors import AutoschedError
from records import LeaseLost, NoRecord, RecordError, StoreUnavailable
from server.jobs.assignment import Assignment
from server.jobs.shutdown import CRASHED, DONE, UNAVAILABLE, Exit, Leave, Why

if TYPE_CHECKING:
    from autosched.tuning import TuningOptions
    from records import Job
    from records.store import Store
    from server.jobs.heartbeat import Heartbeat, Preparing
    from server.jobs.lease_writer import Before, LeaseWriter


def run(assignment: Assignment, leaving: Exit) -> int:
    """Do the job; returns the exit status."""
    from records.queue.leases import JobQueue
    from records.store import Store
    from server.jobs.heartbeat import Heartbeat
    from server.jobs.lease_writer import LeaseWriter

    lease = assignment.lease
    with Store(assignment.db, make=False) as store:
        queue = JobQueue(store)

        def settle() -> None:
            """Give the job back, or end it, as it is left."""
            if leaving.why is Why.CANCELLED:
                queue.finish(lease, "cancelled")
            elif leaving.why is Why.PARKED:
                queue.park(lease)
            elif leaving.why is Why.OVERRUN:
                queue.finish(lease, "failed", leaving.reason)

        heartbeat = Heartbeat(store, queue, lease, assignment.lease_seconds, leaving, settle)
        writer = LeaseWriter(store, lease, heartbeat)
        heartbeat.start()
        try:
            try:
                state, error = _attempt(assignment, store, writer, heartbeat)
                heartbeat.stop()
                notice = writer.notice(lease.job_id)
                writer.patiently(lambda: queue.finish(lease, state, error, notice))
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


def _attempt(
    assignment: Assignment, store: Store, writer: LeaseWriter, heartbeat: Heartbeat
) -> tuple[str, str | None]:
    """Tune to the end; the state in which the job is, and the error.

    Raises LeaseLost, StoreUnavailable, and Leave.
    """
    try:
        _tune(assignment, store, writer, heartbeat)
        _check_complete(store.job(assignment.job_id), writer)
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


def _check_complete(job: Job, writer: LeaseWriter) -> None:
    """Raises AutoschedError for a job that would succeed with trials left and no reason given."""
    if job.trials_done < job.trials_requested and writer.notice(job.id) is None:
        raise AutoschedError(
            f"the run came to its end after {job.trials_done} of {job.trials_requested} trials, "
            "and nothing says why; resume the job for the rest"
        )


def _tune(assignment: Assignment, store: Store, writer: LeaseWriter, heartbeat: Heartbeat) -> None:
    from autosched.tuning.pools import PoolAddress, pool_from
    from autosched.tuning.run.session import Session
    from autosched.tuning.stored import stored_task
    from measure.local.build import LocalBuilder
    from server.jobs import bounds
    from server.jobs.pool_watch import patiently, watch_of

    job = store.job(assignment.job_id)
    before = writer.before()
    started = time.perf_counter() - before.seconds
    options = _options(job, writer, assignment, before)
    heartbeat.preparing = _preparing(job, assignment, before, options.time_budget_s)
    task = stored_task(store.workload(job.workload_key), job.target)
    local = PoolAddress.parse(assignment.pool).is_local
    builder = LocalBuilder(timeout=assignment.build_seconds) if local else None
    make = partial(pool_from, assignment.pool, task.target, builder, seed=job.seed or 0)
    with closing(patiently(make, assignment.pool)) as pool:
        bounds.note(writer, store, task, pool.device.fingerprint if local else None)
        heartbeat.watch = watch_of(pool, assignment, store, [writer])
        session = Session(task, replace(options, pool=pool), pool)
        session.started = started
        session.early_stopping_from = before.trials
        session.run()


def _preparing(job: Job, assignment: Assignment, before: Before, budget: float | None) -> Preparing:
    from server.jobs.heartbeat import Preparing

    # With trials, a budget that is over ends the search, and the finalists decide.
    counts = budget is not None and not job.trials_done
    return Preparing(
        began=time.monotonic() - before.of_this_run,
        seconds=assignment.prepare_seconds,
        memory=assignment.prepare_bytes,
        budget=budget - before.seconds + before.of_this_run if budget and counts else None,
    )


def _options(
    job: Job, writer: LeaseWriter, assignment: Assignment, before: Before
) -> TuningOptions:
    from autosched.tuning import TuningOptions

    given: Mapping[str, Any] = job.options
    budget = given.get("time_budget_s")
    if (left := assignment.device_seconds) is not None:
        quota = before.seconds - before.of_this_run + max(left, 1e-3)
        if budget is None or quota < budget:
            budget = quota
            writer.of_quota = True
    return TuningOptions(
        num_measure_trials=job.trials_requested,
        num_measures_per_round=given["round_size"],
        early_stopping=given.get("early_stopping"),
        time_budget_s=budget,
        finalists=given.get("finalists", 4),
        measure_callbacks=[writer],
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
        if assignment.mates:
            from server.jobs.batch import run as run_batch

            return run_batch(assignment, leaving)
        return run(assignment, leaving)
    except Leave:  # before there was anything to leave
        return DONE
    except (StoreUnavailable, NoRecord) as e:  # before there was anything to give back
        print(e, file=sys.stderr)
        return UNAVAILABLE


if __name__ == "__main__":
    # Daemon threads may be reading: they must not hold up, or break, the end of the interpreter.
    try:
        status = main()
    except Exception:  # the supervisor reads why from the log, and that it crashed from the status
        traceback.print_exc()
        status = CRASHED
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
