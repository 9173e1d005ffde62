"""The thread that runs jobs: claims them, starts a process for each, and watches it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from records import Job, Lease, LeaseLost, RecordError
from records.operations import retention
from records.operations.workers import WorkerLog
from records.queue.fair_share import Scope
from records.queue.leases import JobQueue
from records.store import Store
from server import subprocesses
from server.jobs.assignment import Assignment
from server.jobs.heartbeat import PROGRESS
from server.jobs.shutdown import DONE, UNAVAILABLE
from server.pools.plan import DEFAULT, PoolPlan
from server.pools.workers import Workers
from server.settings import Settings
from server.storage.outage import Outage
from server.storage.readiness import Readiness

_log = logging.getLogger("autosched.jobs")

ERROR_BYTES = 4000
"""How much of the end of a process's standard error stands in the error of its job."""
FORGET_SECONDS = 7 * 86400.0
"""How long a repeated submission is known by its key."""
KEEP_MINUTES_SECONDS = 7 * 86400.0
"""How long it is known what workers did in each minute."""
START_SECONDS = 30.0
"""What a process may take until it looks after its lease itself."""
STOPPED_SECONDS = 10.0
"""A process that is stopped for so long, or for the time of a lease, is killed."""
STALLED_SECONDS = 60.0
"""A supervisor that did not look after its jobs for so long is not healthy."""


@dataclass
class Running:
    """A job's process. Its standard error goes into a file: what outlives the server can write."""

    assignment: Assignment
    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    pool: str = DEFAULT
    stopped_at: float | None = None
    """When it was first found stopped; None while it runs."""
    parking: bool = False
    """Whether it was asked to park its job."""

    @staticmethod
    def start(assignment: Assignment) -> Running:
        """Start the process, in a session of its own, so that it can be ended with its children."""
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        process = subprocess.Popen(
            # The job's id is for whoever reads a list of processes.
            subprocesses.command("server.jobs.runner", assignment.job_id),
            env=subprocesses.environment(),
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has crashed, as its status will say
            process.stdin.write(assignment.line())
            process.stdin.flush()
        return Running(assignment, process, errors)

    def ended(self) -> int | None:
        """The exit status once it has ended (-9: by signal 9); what it left behind is killed."""
        try:
            # Without reaping it: until then nobody else gets its number.
            if os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
        except ChildProcessError:
            return self.process.poll()
        self.kill()
        return self.process.wait()

    def stopped_seconds(self, now: float) -> float:
        """For how long it has been found stopped, as by SIGSTOP; 0 for one that runs."""
        with contextlib.suppress(ChildProcessError):
            if os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT):
                self.stopped_at = now if self.stopped_at is None else self.stopped_at
                return now - self.stopped_at
        self.stopped_at = None
        return 0.0

    def terminate(self) -> None:
        """Ask it to park the job."""
        self.process.terminate()

    def kill(self) -> None:
        """End it and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - ERROR_BYTES))
        return self.errors.read().decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Give up the pipe and the file."""
        if self.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
        self.errors.close()


class Supervisor:
    """Runs jobs of a queue, as many at a time as each pool of the settings has slots, from `start`
    to `stop`. Of a database that was found damaged it claims none. `workers` tells which pools are
    `closed`, all of their workers being drained: their jobs are parked."""

    def __init__(
        self,
        store: Store,
        queue: JobQueue,
        settings: Settings,
        readiness: Readiness,
        workers: Workers | None = None,
        log: WorkerLog | None = None,
    ) -> None:
        self.store, self.queue = store, queue
        self.settings, self.readiness = settings, readiness
        self._workers, self._worker_log = workers, log
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        # A job that is resumed at once may have two processes for a moment: one that leaves.
        self._running: dict[Lease, Running] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self._seen = time.monotonic()
        self._reap_at = self._forget_at = 0.0
        self._outage = Outage(_log, "the queue cannot be looked at")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def begin_to_stop(self) -> None:
        """Have all jobs parked, without waiting for it."""
        self._stopping.set()

    def stop(self) -> None:
        """Park all jobs; returns after at most about `grace_seconds`. Harmless when repeated."""
        self.begin_to_stop()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def running(self) -> list[str]:
        """The ids of the jobs whose processes this server has."""
        return [
            lease.job_id
            for running in list(self._running.values())
            for lease in running.assignment.leases
        ]

    @property
    def healthy(self) -> bool:
        """Whether jobs are being looked after."""
        return self._thread.is_alive() and time.monotonic() - self._seen < STALLED_SECONDS

    def _run(self) -> None:
        while not self._stopping.wait(self.settings.poll_seconds):
            self._seen = time.monotonic()
            try:
                self._look()
                self._outage.over()
            except RecordError as e:
                self.readiness.note(e)
                self._outage.failed(e)
            except Exception:
                # The supervisor serves all jobs, so an unexpected error in one pass must not end
                # the loop. It is logged with its traceback, and the next pass tries again.
                _log.exception("looking after jobs failed")
        self._park_all()

    def _look(self) -> None:
        """One look at the processes and at the queue."""
        now = time.monotonic()
        for running in list(self._running.values()):
            if (status := running.ended()) is not None:
                self._bury(running, status)
            elif running.stopped_seconds(now) > min(self.settings.lease_seconds, STOPPED_SECONDS):
                self._end_stopped(running)
        if now >= self._reap_at:
            for late in self.queue.reap():
                _log.warning("job %s: its lease was over", late.id, extra={"job_id": late.id})
            self._reap_at = now + min(self.settings.lease_seconds / 3, 5.0)
        if now >= self._forget_at:
            self.queue.forget_submissions(FORGET_SECONDS)
            if (days := self.settings.keep_progress_days) is not None:
                self.queue.forget_events(PROGRESS, days * 86400.0)
            self._expire()
            if self._worker_log is not None:
                self._worker_log.forget(KEEP_MINUTES_SECONDS)
            self._forget_at = now + 3600.0
        closed = self._closed()
        for plan in self.settings.all_pools:
            if plan.name in closed:
                self._vacate(plan)
            else:
                self._fill(plan)

    def _closed(self) -> frozenset[str]:
        if self._workers is None or self._worker_log is None:
            return frozenset()
        return self._workers.closed(self._worker_log.drained())

    def _vacate(self, plan: PoolPlan) -> None:
        """Have the jobs of a pool parked: each finishes its trial, and waits."""
        for running in self._running.values():
            if running.pool == plan.name and not running.parking:
                running.parking = True
                running.terminate()

    def _fill(self, plan: PoolPlan) -> None:
        """Start jobs while the pool has room for them."""
        scope = Scope(plan.stored, plan.kinds)
        while not (self._stopping.is_set() or self.readiness.damaged):
            if sum(running.pool == plan.name for running in self._running.values()) >= plan.slots:
                return
            # The process renews the lease from when it is up.
            seconds = self.settings.lease_seconds + START_SECONDS
            jobs = self.queue.claim_together(self.owner, seconds, scope)
            if not jobs:
                return
            self._start(jobs, plan)

    def _expire(self) -> None:
        """Remove the jobs whose time is over."""
        if (days := self.settings.keep_jobs_days) is None:
            return
        if removed := retention.expire(self.store, days * 86400.0):
            _log.info("%d jobs that ended more than %g days ago were removed", removed, days)

    def _start(self, jobs: Sequence[Job], plan: PoolPlan) -> None:
        """Start the process of a job, or of those of a batch, which one token has submitted."""
        job, *mates = jobs
        left = self.queue.device_seconds_left(job)
        if left is not None and left <= 0:
            error = "the device seconds of the token that this job was submitted with are spent"
            for one in jobs:
                self.queue.finish(Lease(one.id, one.lease_epoch), "failed", error)
            return
        assignment = Assignment(
            db=self.settings.db,
            pool=plan.address,
            worker=plan.worker,
            job_id=job.id,
            epoch=job.lease_epoch,
            mates=tuple((one.id, one.lease_epoch) for one in mates),
            lease_seconds=self.settings.lease_seconds,
            build_seconds=self.settings.build_seconds,
            prepare_seconds=self.settings.prepare_seconds,
            prepare_bytes=self.settings.prepare_bytes,
            device_seconds=left,
        )
        running = self._running[assignment.lease] = Running.start(assignment)
        running.pool = plan.name
        _log.info("job %s: started", job.id, extra={"job_id": job.id})

    def _end_stopped(self, running: Running) -> None:
        """Kill a process that was stopped, and put its job back: it may hold SQLite's only writer,
        and the database would write for nobody."""
        job_id = running.assignment.job_id
        _log.warning("job %s: its process was stopped", job_id, extra={"job_id": job_id})
        running.kill()
        running.process.wait()
        self._give_back(running)

    def _bury(self, running: Running, status: int) -> None:
        """Settle the job of a process that has ended."""
        assignment = running.assignment
        words = running.last_words()
        if status not in (DONE, UNAVAILABLE):
            how = f"signal {-status}" if status < 0 else f"status {status}"
            words = words.replace(self.queue.store_name, "the store")
            error = f"the job's process ended by {how}"
            _log.error(
                "job %s: %s:\n%s", assignment.job_id, error, words,
                extra={"job_id": assignment.job_id},
            )  # fmt: skip
            error = error_of(error, words)
            for lease in assignment.leases:
                with contextlib.suppress(LeaseLost):  # it had come to its end before
                    self._settle(lease, status, error)
        elif words:
            _log.info("job %s: %s", assignment.job_id, words, extra={"job_id": assignment.job_id})
        self._give_back(running)

    def _settle(self, lease: Lease, status: int, error: str) -> None:
        """What becomes of the job of a process that crashed. One that was killed from outside is
        tried again: what killed it, mostly a machine without memory, may have passed."""
        if status == -signal.SIGKILL:
            error += (
                "\nsomething killed it from outside: mostly the kernel does, for want of memory "
                "(its log tells)"
            )
            pause = self.settings.retry_seconds
            self.queue.retry(lease, error, most=self.settings.retries, pause=pause)
        else:
            self.queue.finish(lease, "failed", error)

    def _park_all(self) -> None:
        for running in self._running.values():
            running.terminate()
        deadline = time.monotonic() + self.settings.grace_seconds * 0.8
        while self._running and time.monotonic() < deadline:
            for running in list(self._running.values()):
                if running.ended() is not None:
                    self._give_back(running)
            time.sleep(0.02)  # processes are polled: one wait for many of them
        for running in list(self._running.values()):
            running.kill()
            running.process.wait()
            self._give_back(running)

    def _give_back(self, running: Running) -> None:
        """Put jobs back whose process has not done it itself."""
        for lease in running.assignment.leases:
            try:
                self.queue.park(lease)
            except LeaseLost:
                pass  # as it should be: it was parked, or came to its end
            except RecordError as e:
                _log.warning(
                    "job %s could not be parked, and waits for its lease's end: %s",
                    *(lease.job_id, e),
                    extra={"job_id": lease.job_id},
                )
        running.close()
        del self._running[running.assignment.lease]


def error_of(what: str, words: str) -> str:
    """The error of a job whose process wrote `words`. Of a traceback, which the log has, the end
    alone tells a client what happened."""
    if "Traceback (most recent call last)" in words:
        return f"{what}: {words.splitlines()[-1]}"
    return what + (f":\n{words}" if words else "")
