"""A device slot: one runner child, alone on the device while it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from autosched.codegen.artifact import Artifact
from autosched.errors import MeasureError
from measure.build import BuildReply
from measure.child import Child, Outcome
from measure.job import Job
from measure.lock import SlotLock
from measure.runner import Pace, ReferenceReply, RunReply
from measure.status import MeasureResult, Status
from measure.timing import MAX_DRIFT, Estimate, TimingPlan, relative_range
from measure.warm import Limits, Template

RETRIES = 2
PACE_TIMEOUT = 60.0
BARRIER_TRIES = 100
TURN_SAMPLES = 5
FAILURES = {
    "error": Status.RUNTIME_ERROR,
    "memory": Status.OUT_OF_MEMORY,
    "timeout": Status.RUN_TIMEOUT,
    "crash": Status.RUNTIME_ERROR,
    "lost": Status.DEVICE_LOST,
}


@dataclass(frozen=True)
class LocalRunner:
    """How a local pool runs.

    `timeout`: seconds for one candidate's calls (data handling comes on top); `reference_timeout`,
    `baseline_timeout`: for those of the reference and of the baseline. `threads`: of a kernel
    (None: the target's cores). `memory_bytes`: address space that a runner may use beyond what it
    starts with (None: three quarters of the machine's memory). `slot` names the device for the
    host-wide lock, whose folder is `lock_folder` (None: the user's). The rest is the timing
    protocol: see `measure.timing.TimingPlan`.
    """

    timeout: float = 10.0
    number: int = 0
    repeat: int = 20
    min_repeat_ms: float = 0.2
    budget_ms: float = 10.0
    cooldown_ms: float = 0.0
    flush_cache: bool = False
    reference_timeout: float = 120.0
    baseline_timeout: float = 2.0
    threads: int | None = None
    memory_bytes: int | None = None
    slot: str = "cpu"
    lock_folder: Path | None = None

    def plan(self) -> TimingPlan:
        """The timing protocol's parameters. Raises MeasureError on values that mean nothing."""
        positive = (self.timeout, self.reference_timeout, self.repeat, self.min_repeat_ms)
        if min(*positive, self.budget_ms) <= 0 or min(self.number, self.cooldown_ms) < 0:
            raise MeasureError(f"times and counts of a runner must be positive; found {self}")
        return TimingPlan(
            number=self.number,
            repeats=self.repeat,
            min_repeats=min(TimingPlan.min_repeats, self.repeat),
            min_repeat_ms=self.min_repeat_ms,
            budget_ms=self.budget_ms,
            cooldown_ms=self.cooldown_ms,
            flush_cache=self.flush_cache,
        )


class Slot:
    """Runs and times what was built, one at a time, under the host-wide lock.

    `make_pacer` builds the pacer when it is first needed.
    """

    def __init__(
        self,
        template: Template,
        options: LocalRunner,
        threads: int,
        make_pacer: Callable[[], Artifact],
    ) -> None:
        self.options = options
        self.threads = threads
        self.plan = options.plan()
        self.child = Child(template, _limits(options))
        self._make_pacer = make_pacer
        self._lock: SlotLock | None = None
        self._pace: Pace | None = None
        self._used_start = 0

    def building(self) -> AbstractContextManager[float]:
        """Keep the slot, and others on this host, from timing."""
        return self._slot_lock().building()

    def pace(self) -> Pace:
        """The pacer with its nominal times, made and taken on first use. Raises MeasureError."""
        if self._pace is None:
            pacer = self._make_pacer()
            with self._slot_lock().timing():
                serial = parallel = min(self._paces(pacer, 1, 0.0))
                if self.threads > 1:
                    parallel = min(self._paces(pacer, self.threads, serial))
                alone = self._witnessed("measure.witness:alone_seconds")
                barrier = 0.0
                if self.threads > 1:
                    ask = "measure.witness:barrier_seconds"
                    barrier = self._best_barrier(self._witnessed(ask, self.threads, BARRIER_TRIES))
            self._pace = Pace(pacer, self.threads, serial, parallel, alone, barrier)
        return self._pace

    def noise(self) -> float:
        """The machine's unrest now: interquartile range of the pacer's times over their minimum."""
        pace = self.pace()
        with self._slot_lock().timing():
            return relative_range(self._paces(pace.artifact, pace.threads, pace.parallel))

    def make_reference(self, job: Job, artifact: Artifact) -> ReferenceReply:
        """Fill the job's memory by running `artifact`; failures are the reply's `error`."""
        outcome, _ = self._call(
            job,
            "measure.runner:make_reference",
            artifact,
            job.recipe,
            timeout=self.options.reference_timeout,
        )
        # Its writable view of the memory goes with the process, whatever still refers to it.
        self.child.kill()
        if isinstance(outcome.value, ReferenceReply):
            return outcome.value
        return ReferenceReply(error=outcome.text or "no answer")

    def run(
        self,
        job: Job,
        reply: BuildReply,
        best_seconds: float | None,
        timeout: float | None = None,
    ) -> MeasureResult:
        """Verify and time one candidate, again if the device is lost; failed builds as they are."""
        began, started = time.monotonic(), time.time()
        result = MeasureResult(
            reply.status,
            reply.error,
            build_seconds=reply.seconds,
            program_hash=reply.program_hash,
            started_at=started,
        )
        if reply.artifact is not None:
            result = self._attempts(job, reply.artifact, best_seconds, result, timeout)
        # The clock on the wall may be set meanwhile; it is read once.
        return replace(result, finished_at=started + time.monotonic() - began)

    def turn(self, job: Job, artifact: Artifact) -> tuple[Estimate | MeasureResult | None, float]:
        """One turn of a verified candidate: times, the failure, or None if the device was lost; and
        the seconds that the runner took."""
        outcome, _ = self._call(
            job, "measure.runner:sample", artifact, self.plan, self.pace(), TURN_SAMPLES
        )
        if isinstance(outcome.value, Estimate):
            self._learn(artifact, outcome.value)
            return outcome.value, outcome.wall_seconds
        failed = None if outcome.kind == "lost" else _result(MeasureResult(Status.OK), outcome)
        return failed, outcome.wall_seconds

    def close(self) -> None:
        """End the child and give up the lock."""
        self.child.kill()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _attempts(
        self,
        job: Job,
        artifact: Artifact,
        best_seconds: float | None,
        result: MeasureResult,
        timeout: float | None,
    ) -> MeasureResult:
        pace = self.pace()
        lost = 0
        while True:
            fresh = self.child.pid is None or self._used_start != self.child.starts
            outcome, waited = self._call(
                job, "measure.runner:run", artifact, self.plan, pace, best_seconds, timeout=timeout
            )
            self._used_start = self.child.starts
            result = replace(result, queue_seconds=result.queue_seconds + waited, retries=lost)
            if isinstance(outcome.value, RunReply) and outcome.value.status is Status.OK:
                break
            # Code that does one thing wrong may have done more to the process it ran in. So that
            # ends, and what may be the fault of others before is believed of a fresh one only.
            self.child.kill()
            if outcome.kind == "lost" and lost < RETRIES:
                lost += 1
            elif fresh or outcome.kind not in ("crash", "memory"):
                break
        result = replace(result, run_wall_seconds=outcome.wall_seconds)
        if isinstance(outcome.value, RunReply) and outcome.value.estimate is not None:
            self._learn(artifact, outcome.value.estimate)
        return _result(result, outcome)

    def _call(
        self, job: Job, function: str, *args: Any, timeout: float | None = None
    ) -> tuple[Outcome, float]:
        """One call in the runner child, alone on the device; also the seconds waited for that."""
        seconds = (self.options.timeout if timeout is None else timeout) + job.handling_seconds
        with self._slot_lock().timing() as waited:
            outcome = self.child.call(function, job.spec, *args, timeout=seconds, fds=(job.fd,))
        return outcome, waited

    def _paces(self, pacer: Artifact, threads: int, near: float) -> Sequence[float]:
        outcome = self.child.call(
            "measure.runner:pace_nominal", pacer, threads, near, timeout=PACE_TIMEOUT
        )
        if outcome.kind != "value":
            raise MeasureError(f"the pacer cannot be timed: {outcome.text}")
        return tuple(outcome.value)

    def _witnessed(self, function: str, *args: int) -> float:
        outcome = self.child.call(function, *args, timeout=PACE_TIMEOUT)
        if outcome.kind != "value":
            raise MeasureError(f"the witness cannot be timed: {outcome.text}")
        return float(outcome.value)

    def _best_barrier(self, found: float) -> float:
        """The least of `found` and what any slot of this host ever found, which is noted."""
        path = self._slot_lock().path.with_suffix(f".barrier-{self.threads}")
        try:
            known = float(path.read_text())
        except (FileNotFoundError, ValueError):  # never written, or not to its end
            known = inf
        if found < known:
            path.write_text(f"{found!r}\n")
        return min(found, known)

    def _learn(self, artifact: Artifact, found: Estimate) -> None:
        """What a visit saw that was better than the times taken at the start."""
        pace = self.pace()
        self._learn_pace(pace.threads_of(artifact), min(found.pacer_samples))
        if found.barrier_seconds < pace.barrier:
            self._pace = replace(self.pace(), barrier=self._best_barrier(found.barrier_seconds))

    def _learn_pace(self, threads: int, best: float) -> None:
        """Correct a nominal time that was taken while other work kept the pacer from its cores."""
        pace = self.pace()
        if best * MAX_DRIFT < pace.nominal(threads):
            one = threads == 1
            self._pace = replace(pace, serial=best) if one else replace(pace, parallel=best)

    def _slot_lock(self) -> SlotLock:
        if self._lock is None:
            self._lock = SlotLock(self.options.slot, self.options.lock_folder)
        return self._lock


def _result(result: MeasureResult, outcome: Outcome) -> MeasureResult:
    """`result` with what the runner child did."""
    if outcome.kind != "value":
        return replace(result, status=FAILURES[outcome.kind], error=outcome.text)
    reply = outcome.value
    if not isinstance(reply, RunReply):
        text = f"the runner answered {type(reply).__name__}"
        return replace(result, status=Status.RUNTIME_ERROR, error=text)
    result = replace(result, verify_seconds=reply.verify_seconds)
    found = reply.estimate
    if found is None:
        return replace(result, status=reply.status, error=reply.error)
    return replace(
        result,
        status=reply.status,
        error=reply.error,
        seconds=found.seconds,
        raw_seconds=found.raw_seconds,
        spread=found.spread,
        noise=found.noise,
        runs=found.runs,
        samples=found.samples,
    )


def _limits(options: LocalRunner) -> Limits:
    """A kernel may start threads, of the runtime's pool, and never a process."""
    return Limits(options.memory_bytes or _three_quarters(), processes=0, urgent=True)


def _three_quarters() -> int:
    """Of the machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4
