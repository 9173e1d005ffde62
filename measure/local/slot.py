"""A device slot: one runner child, alone on the device while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from autosched.codegen.artifact import Artifact
from autosched.errors import MeasureError
from autosched.integers import settle
from autosched.runtime.queue import QueueInfo
from measure.local.build import BuildReply, check_times
from measure.local.job import Job, machine_memory
from measure.local.lock import SlotLock
from measure.local.runner import (
    Examine,
    MakeReference,
    OpenGPU,
    Probes,
    Run,
    Sample,
    TimeClock,
)
from measure.machine.protocol import GPU, Code
from measure.phases import WAITING, PhaseClock
from measure.process.child import GROW_BYTES, RETRIES, Child, Outcome
from measure.process.protocol import Request
from measure.process.template_client import Limits, Template
from measure.status import MeasureResult, Status
from measure.timing.block import MAX_DRIFT
from measure.timing.plan import TimingPlan
from measure.timing.timing import Timing
from measure.verify.independent import Examined

R = TypeVar("R")
PROBE_TIMEOUT = 60.0
OPEN_TIMEOUT = 60.0
CPU = "cpu"
DATA_COPIES = 8
"""Times a job's data that a runner may hold: values, guarded memory, what is compared, packed
weights."""
PRINTED_BYTES = 64 << 20
"""What a candidate may print, which is held in memory; its runner writes no file."""
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

    `timeout`: seconds for one candidate's calls, after which its process is ended (data handling
    comes on top), and for the fastest of them; `reference_timeout`, `baseline_timeout`: for those
    of the reference and of the baseline. `threads`: of a kernel
    (None: the target's cores). `memory_bytes`: address space that a runner may use beyond what it
    starts with (None: three quarters of the machine's memory, and for a GPU's runner any). `slot`
    names the device for the host-wide lock, whose folder is `lock_folder` (None: the user's); a
    GPU is "cuda/0" there where nothing else is said.
    `device`: number of the GPU (None: the first; of OpenCL the first that is no CPU, if there is
    one), of those that CUDA_VISIBLE_DEVICES names or that OpenCL lists. `aligned`: arguments start
    at cache lines, as those of a model's kernels do; else 16 bytes past one, as NumPy's large
    arrays do. The rest is the timing protocol: see `measure.timing.plan.TimingPlan`. Raises
    MeasureError on values that mean nothing.
    """

    timeout: float = 10.0
    number: int = 0
    repeat: int = TimingPlan.repeats
    min_repeat_ms: float = 0.2
    budget_ms: float = 10.0
    cooldown_ms: float = 0.0
    flush_cache: bool = False
    reference_timeout: float = 120.0
    baseline_timeout: float = 2.0
    threads: int | None = None
    memory_bytes: int | None = None
    slot: str = CPU
    lock_folder: Path | None = None
    device: int | None = None
    aligned: bool = False

    def __post_init__(self) -> None:
        settle(self, MeasureError, number=0, repeat=1, threads=1, memory_bytes=1, device=0)
        check_times(self, "timeout", "reference_timeout", "baseline_timeout")
        check_times(self, "min_repeat_ms", "budget_ms")
        check_times(self, "cooldown_ms", zero=True)

    def plan(self) -> TimingPlan:
        """The timing protocol's parameters."""
        return TimingPlan(
            number=self.number,
            repeats=self.repeat,
            min_repeat_ms=self.min_repeat_ms,
            budget_ms=self.budget_ms,
            cooldown_ms=self.cooldown_ms,
            flush_cache=self.flush_cache,
        )


class Slot:
    """Runs and times what was built, one at a time, under the host-wide lock.

    `make_probe` builds the clock probe when it is first needed. `where` is the GPU that candidates
    run on, None for this machine's processor, which computes references in any case.
    """

    def __init__(
        self,
        template: Template,
        options: LocalRunner,
        threads: int,
        make_probe: Callable[[], Code],
        where: GPU | None = None,
        clock: PhaseClock | None = None,
    ) -> None:
        self.options = options
        self.clock = PhaseClock() if clock is None else clock
        self.host_threads = threads
        self.threads = threads if where is None else 1
        self.where = where
        self.plan = options.plan()
        self.child = Child(template, _limits(options, where))
        self._host = self.child if where is None else Child(template, _limits(options, None))
        self._info: QueueInfo | None = None
        self._make_probe = make_probe
        self._locks: dict[str, SlotLock] = {}
        self._probes: Probes | None = None
        self._used_start = 0

    @property
    def children(self) -> tuple[Child, ...]:
        """Its processes: the runner, and on a GPU the one that computes references."""
        return (self.child,) if self._host is self.child else (self.child, self._host)

    def gpu(self) -> QueueInfo:
        """What the slot's GPU is. Raises MeasureError if it is not there."""
        if self._info is None:
            assert self.where is not None
            from measure.machine.gpu import DescribeGPU

            asked = self.child.ask(DescribeGPU(self.where), OPEN_TIMEOUT)
            if not isinstance(asked.value, QueueInfo):
                raise MeasureError(f"no GPU can be used here: {asked.value or asked.text}")
            self._info = asked.value
        return self._info

    def building(self) -> AbstractContextManager[float]:
        """Keep this machine's processor, and so the slot if it is that one, from timing."""
        return self._waited(self._lock(cpu=True).building())

    @contextmanager
    def _waited(self, lock: AbstractContextManager[float]) -> Iterator[float]:
        """Hold a lock; the time until it is had is `WAITING`."""
        with ExitStack() as held:
            with self.clock.phase(WAITING):
                seconds = held.enter_context(lock)
            yield seconds

    def probes(self) -> Probes:
        """The probe with its nominal times, made and taken on first use. Raises MeasureError."""
        if self._probes is None:
            probes = Probes(self._make_probe(), self.threads)
            with self._waited(self._lock().timing()):
                for threads in sorted({1, self.threads}):
                    timed = self.child.ask(TimeClock(probes, threads, self.where), PROBE_TIMEOUT)
                    if timed.value is None:
                        raise MeasureError(f"the clock probe cannot be timed: {timed.text}")
                    probes = replace(probes, nominal={**probes.nominal, threads: timed.value})
            self._probes = probes
        return self._probes

    def make_reference(self, job: Job, artifact: Artifact) -> tuple[float, float] | str:
        """Fill the job's memory by running `artifact`: how good its inputs were, or an error."""
        with self._waited(self._lock(cpu=True).timing()):
            outcome = self._on_host(job, MakeReference(job.spec, artifact, job.recipe))
        return outcome.value or outcome.text

    def examine(self, job: Job) -> Examined:
        """Have the interpreter recompute the reference in the job's memory. Raises MeasureError
        where that comes to no end."""
        outcome = self._on_host(job, Examine(job.spec, job.func_pickle))
        if outcome.value is not None:
            return outcome.value
        raise MeasureError(
            f"the interpreter cannot check the reference of {job.func.name}: {outcome.text}"
        )

    def _on_host(self, job: Job, request: Request[R]) -> Outcome[R]:
        """Ask for what writes to the job's memory."""
        seconds = self.options.reference_timeout + job.handling_seconds
        outcome = self._host.ask(request, seconds, (job.fd,))
        # Its writable view of the memory goes with the process, whatever still refers to it.
        self._host.kill()
        return outcome

    def run(
        self,
        job: Job,
        reply: BuildReply,
        best_seconds: float | None,
        timeout: float | None = None,
    ) -> MeasureResult:
        """Verify a candidate and take its first block, again if the device is lost; failed builds
        as they are."""
        result = MeasureResult(
            reply.status,
            reply.error,
            build_seconds=reply.seconds,
            program_hash=reply.program_hash,
        )
        if reply.artifact is None:
            return result
        lost, limit = 0, self.options.timeout if timeout is None else timeout
        while True:
            fresh = self._is_fresh
            request = Run(job.spec, reply.artifact, self.plan, self.probes(), best_seconds)
            outcome, waited = self._call(job, request, limit)
            result = replace(result, queue_seconds=result.queue_seconds + waited, retries=lost)
            if outcome.value is not None and outcome.value.status is Status.OK:
                break
            # Code that does one thing wrong may have done more to the process it ran in. So that
            # ends, and a crash, which may be the doing of those before, is believed of a fresh one
            # only. Wrong results are believed at once: code that races is not to have two chances.
            self.child.kill()
            if _is_lost(outcome) and lost < RETRIES:
                lost += 1
            elif fresh or outcome.kind in ("value", "timeout"):
                break
        result = _result(replace(result, run_wall_seconds=outcome.wall_seconds), outcome)
        timing = result.timing
        if timing is not None:
            self._learn(reply.artifact, timing)
            if timing.raw_seconds > limit:
                # There was time left that handling the data did not need.
                text = f"its fastest call took {timing.raw_seconds:.3g} s; {limit:g} s are allowed"
                return result.failed(Status.RUN_TIMEOUT, text)
        return result

    def sample(
        self, job: Job, artifact: Code, result: MeasureResult, seconds: float, place: int = 0
    ) -> MeasureResult:
        """`result` with another block alone as its timing, of a verified candidate that takes about
        so many `seconds`, with the arguments in that `place` in memory.

        What fails gets one more attempt in a new process, unless it took too long. The result has
        another status only if that fails as well, other than for want of memory. An `ok` result
        without a timing says that nothing new is known: the blocks before stand. With a block or
        without one, `error` says what went wrong on the way.
        """
        note = ""
        for _attempt in range(2):
            fresh = self._is_fresh
            request = Sample(job.spec, artifact, seconds, self.plan, self.probes(), place)
            outcome, _ = self._call(job, request, self.options.timeout)
            wall = result.run_wall_seconds + outcome.wall_seconds
            result = replace(result, timing=None, run_wall_seconds=wall)
            if outcome.value is not None and outcome.value.timing is not None:
                self._learn(artifact, outcome.value.timing)
                return replace(result, timing=outcome.value.timing, error=note)
            self.child.kill()  # what a kernel does to its process, or to a GPU's context, stays
            if _is_lost(outcome):
                return replace(result, error=note)
            ended = _result(result, outcome)
            story = f"a later block ended in {ended.status}: {ended.error}"
            if outcome.kind == "timeout":
                return replace(result, error=story)
            if fresh:
                note = story
        if outcome.kind == "memory":
            return replace(result, error=note)
        error = f"timed before, and failed when it ran again:\n{ended.error}"
        return result.failed(ended.status, error)

    def close(self) -> None:
        """End the child and give up the lock."""
        self.child.kill()
        self._host.kill()
        for lock in self._locks.values():
            lock.close()
        self._locks.clear()

    @property
    def _is_fresh(self) -> bool:
        """Whether no candidate has run yet in the process that runs the next one."""
        return self.child.pid is None or self._used_start != self.child.starts

    def _call(self, job: Job, request: Request[R], timeout: float) -> tuple[Outcome[R], float]:
        """One call in the runner child, alone on the device; also the seconds waited for that."""
        seconds = timeout + job.handling_seconds
        probes = self.probes()
        # A child keeps the data of the job at hand, which large ones must not be replaced for.
        self.child.grow_bytes = GROW_BYTES + (DATA_COPIES + job.spec.places) * job.spec.size
        with self._waited(self._lock().timing()) as waited, self.clock.phase("running"):
            unready = self._get_ready(probes)
            if unready is not None:
                return unready, waited
            outcome = self.child.call(request, seconds, (job.fd,))
            self._used_start = self.child.starts
            if isinstance(outcome.value, MeasureResult):
                self.clock.move(outcome.value.verify_seconds, "verifying")
        return outcome, waited

    def _get_ready(self, probes: Probes) -> Outcome[Any] | None:
        """Have a new process open the GPU, which takes long, before a candidate's time begins. None
        if it is ready, else what the candidate's outcome is: the device is to blame."""
        if self.where is None or self.child.pid is not None:
            return None
        found = self.child.call(OpenGPU(probes, self.where), OPEN_TIMEOUT)
        if found.kind == "value":
            return None
        self.child.kill()
        return Outcome("lost", text=f"the GPU cannot be opened: {found.text}")

    def _learn(self, artifact: Code, found: Timing) -> None:
        """Correct a nominal time that was taken while other work had the cores."""
        probes, best = self.probes(), found.clock_seconds
        threads = probes.threads_of(artifact)
        if best * MAX_DRIFT < probes.nominal[threads]:
            self._probes = replace(probes, nominal={**probes.nominal, threads: best})

    def _lock(self, cpu: bool = False) -> SlotLock:
        """The device's, or, for what is built and computed there, the processor's. Kernels of PoCL
        keep the processor busy: there it is the same one."""
        name = self.options.slot
        if self.where is not None and self.gpu().is_cpu:
            name = name if name.startswith(CPU) else CPU
        elif self.where is not None and cpu:
            name = CPU
        elif self.where is not None and name == CPU:
            name = gpu_slot(self.where)
        if name not in self._locks:
            self._locks[name] = SlotLock(name, self.options.lock_folder)
        return self._locks[name]


def _result(result: MeasureResult, outcome: Outcome[MeasureResult]) -> MeasureResult:
    """`result` with what the runner child did."""
    reply = outcome.value
    if reply is None:
        return replace(result, status=FAILURES[outcome.kind], error=outcome.text)
    return replace(
        result,
        status=reply.status,
        error=reply.error,
        timing=reply.timing,
        verify_seconds=reply.verify_seconds,
    )


def _is_lost(outcome: Outcome[MeasureResult]) -> bool:
    """Whether the device went away, or the process did, for no fault of the candidate."""
    gone = outcome.value is not None and outcome.value.status is Status.DEVICE_LOST
    return gone or outcome.kind == "lost"


def gpu_slot(where: GPU) -> str:
    """What a GPU is called on this host, whatever CUDA_VISIBLE_DEVICES is: "cuda/1"."""
    index = where.index or 0
    return f"{where.kind}/{_visible(index) if where.kind == 'cuda' else index}"


def _visible(index: int) -> str:
    """What CUDA_VISIBLE_DEVICES calls device number `index`. Raises MeasureError."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return str(index)
    names = [name.strip() for name in given.split(",") if name.strip()]
    if index >= len(names):
        raise MeasureError(f"there is no GPU {index}: CUDA_VISIBLE_DEVICES is {given!r}")
    return names[index]


def _limits(options: LocalRunner, where: GPU | None) -> Limits:
    """A kernel may start threads, of the runtime's pool, and never a process.

    A GPU's runner runs no code of candidates itself. It sees one CUDA device, so that none other
    can be used by mistake.
    """
    if where is None:
        return Limits(
            options.memory_bytes or machine_memory() * 3 // 4, PRINTED_BYTES, 0, urgent=True
        )
    env: tuple[tuple[str, str], ...] = ()
    if where.kind == "cuda":
        # Kernels are loaded when they are given to the device, not within their first, timed call.
        visible = _visible(where.index or 0)
        env = (("CUDA_VISIBLE_DEVICES", visible), ("CUDA_MODULE_LOADING", "EAGER"))
    return Limits(options.memory_bytes or 0, urgent=True, env=env)
