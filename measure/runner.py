"""What runs in runner children: candidates, and nothing that is compiled there."""

from __future__ import annotations

import mmap
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.codegen.artifact import Artifact, KernelInfo, Param
from autosched.errors import BuildError, DeviceError
from autosched.tir import dtypes
from measure.build import code_key
from measure.inputs import InputSpec, Recipe, fill, quality
from measure.kernel import Kernel, param_bytes
from measure.machine import GPU, Arguments, Code, Machine, Runnable, Waiting, machine
from measure.patience import Moment
from measure.protocol import Last
from measure.remains import MODES, changes, state
from measure.status import Status
from measure.timing import MAX_DRIFT, Estimate, TimingPlan, quantile, time_kernel
from measure.turns import Known, time_turn
from measure.verification import Guarded, Tolerance, same_bytes
from measure.witness import APART, APART_NOISE, FEW, barrier_seconds, crowding, cycles, least

Array = npt.NDArray[Any]
PAGE = 4096
PLACES = 8
PLACES_BYTES = 32 << 20
"""All places together: large arrays have so many pages that their places hardly matter."""
KERNELS_KEPT = 32
PACES = 200
PACE_SECONDS = 0.5
SETTLE_SECONDS = 0.1


@dataclass(frozen=True)
class JobSpec:
    """One job's program, as far as a runner has to know it.

    `key` is unique in the life of a pool. The job's memory file holds every argument at its offset:
    inputs, and the reference's outputs. `threads`: of kernels of this machine's processor. `where`:
    what candidates run on, None for that processor.
    """

    key: str
    workload: str
    seed: int
    params: tuple[Param, ...]
    inputs: tuple[InputSpec, ...]
    tolerance: Tolerance
    threads: int
    where: GPU | None = None

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each argument starts in the memory file, in bytes; pages of their own."""
        starts, place = [], 0
        for param in self.params:
            starts.append(place)
            place += -(-param_bytes(param) // PAGE) * PAGE
        return tuple(starts)

    @property
    def size(self) -> int:
        """Bytes of the memory file."""
        return max(PAGE, sum(-(-param_bytes(p) // PAGE) * PAGE for p in self.params))

    @property
    def places(self) -> int:
        """How many places in this machine's memory the arguments have while candidates are timed.

        Which pages of the machine an array gets makes kernels up to 10 % faster or slower, each in
        its own way, the same as long as it stays there; and users' arrays may lie anywhere.
        """
        return 1 if self.where is not None else min(PLACES, max(1, PLACES_BYTES // self.size))


@dataclass(frozen=True)
class Pace:
    """The pacer and its times when the pool was opened, in seconds, on one thread and on all.

    Each kernel is compared with the pacer on as many threads as it uses itself: work on other cores
    is nothing to a kernel of one thread, and clocks depend on how many cores are busy.
    """

    artifact: Code
    threads: int
    serial: float = 0.0
    parallel: float = 0.0
    alone: tuple[float, float] = (0.0, 0.0)
    """The witness's cycles on cores that nobody shares, on one thread and on all; 0 where that is
    not looked for."""
    barrier: float = 0.0
    """The best time of a barrier between all threads on this machine; 0 where there is one."""

    def threads_of(self, kernel: Code) -> int:
        """Number of threads on which the pacer runs along with a kernel."""
        return self.threads if kernel.info.parallel else 1

    def nominal(self, threads: int) -> float:
        """The time on `threads` threads."""
        return self.serial if threads == 1 else self.parallel

    def alone_on(self, threads: int) -> float:
        """`alone` on `threads` threads."""
        return self.alone[threads > 1]


@dataclass(frozen=True)
class RunReply:
    """What became of one candidate in the runner; `verify_seconds` went into comparing."""

    status: Status
    error: str = ""
    estimate: Estimate | None = None
    verify_seconds: float = 0.0


@dataclass(frozen=True)
class ReferenceReply:
    """How good a recipe's inputs were, and the seconds of the run; or an error."""

    quality: tuple[float, float] = (0.0, 0.0)
    seconds: float = 0.0
    error: str = ""


class _Runner:
    """The state of a runner child: the machine, the job at hand, loaded kernels, the pacer."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._key = ""
        self._arguments: Arguments | None = None
        self._kernels: OrderedDict[tuple[str, KernelInfo, int], Runnable] = OrderedDict()
        self._place = 0
        self._pacers: dict[int, Runnable] = {}
        self.threads = machine.threads
        self.barrier = inf
        self.looks: list[float] = []

    def arguments(self, job: JobSpec, fd: int) -> Arguments:
        """The job's arguments; those of the job before are given up."""
        if self._arguments is None or self._key != job.key:
            self._kernels.clear()
            self._arguments = None
            values = _views(job, fd, writable=False)
            self._arguments = self.machine.buffers(job.params, values, job.tolerance)
            self._key = job.key
        return self._arguments

    def kernel(self, artifact: Code, job: JobSpec, fd: int, place: int = 0) -> Runnable:
        """The loaded code on the arguments in that place, from the last few used or new."""
        memory = self.arguments(job, fd).at(place)
        key = code_key(artifact), artifact.info, place
        found = self._kernels.pop(key, None)
        if found is None:
            found = self.machine.kernel(artifact, memory, job.threads)
        self._kernels[key] = found
        while len(self._kernels) > KERNELS_KEPT:
            self._kernels.popitem(last=False)
        return found

    def moved(self, place: int) -> bool:
        """Whether the arguments were in another place the last time."""
        before, self._place = self._place, place
        return before != place

    def pacer(self, artifact: Code, threads: int, nominal: float) -> Callable[[], float]:
        """A function that times the pacer once; `nominal` is its time if known, else 0."""
        if threads not in self._pacers:
            out = artifact.info.params[0]
            memory = [self.machine.scratch(out.name, param_bytes(out))]
            self._pacers[threads] = self.machine.kernel(artifact, memory, threads)
            _settle(self._pacers[threads], nominal, self.threads)
        kernel = self._pacers[threads]

        def pace() -> float:
            # Threads that fell asleep during a serial kernel are woken before the clock starts.
            kernel.call()
            return kernel.call()

        return pace

    def crowding(self, pace: Pace, threads: int) -> Callable[[], float]:
        """By what share cores are slower for being shared, as a function. It times a barrier as
        well."""
        alone = pace.alone_on(threads)
        self.barrier, self.looks = inf, []

        def now() -> float:
            if threads == pace.threads and pace.barrier:
                self.barrier = min(self.barrier, barrier_seconds(threads, 1))
            if not alone:
                return 0.0
            self.looks.append(least(lambda: cycles(threads), alone))
            return crowding(self.looks[-1], alone)

        return now

    def disturbed(self, pace: Pace, threads: int) -> Callable[[], bool]:
        """Whether cores are shared, or lie apart, as a function."""
        crowding = self.crowding(pace, threads)

        def now() -> bool:
            if threads > 1:
                # Who has waited slept, and its threads with it: to wake takes as long as a crowd.
                barrier_seconds(threads, 1)
            self.barrier = inf
            return crowding() > 0.0 or are_apart(self.barrier, pace)

        return now


def are_apart(barrier: float, pace: Pace) -> bool:
    """Whether cores lie apart that had a barrier in so many seconds; infinity says nothing."""
    return APART * pace.barrier < barrier < inf


def placed(found: Estimate, barrier: float, looks: Sequence[float], pace: Pace) -> Estimate:
    """An estimate with what was seen of the cores meanwhile: the best barrier took `barrier`
    seconds, infinity where none was timed, and the witness so many cycles each time, of which few
    say nothing."""
    noise = max(found.noise, APART_NOISE) if are_apart(barrier, pace) else found.noise
    # One that is much less than it should be is a chain that was disturbed.
    seen = quantile(looks, 0.25) if len(looks) >= FEW else inf
    return replace(found, noise=noise, barrier_seconds=barrier, witness_cycles=seen)


def _settle(pacer: Runnable, nominal: float, threads: Waiting) -> None:
    """Run new threads until the system has given each a core of its own, if it does so soon."""
    end = time.monotonic() + SETTLE_SECONDS
    pacer.call(2)
    threads.follow()
    while nominal and pacer.call() > MAX_DRIFT * nominal and time.monotonic() < end:
        pacer.call(2)


@cache
def _runner(where: GPU | None) -> _Runner:
    return _Runner(machine(where))


def make_reference(
    job: JobSpec, artifact: Artifact, recipe: Recipe, fds: list[int]
) -> ReferenceReply:
    """Fill the job's memory: inputs by `recipe`, outputs by the untransformed program."""
    values = _views(job, fds[0], writable=True)
    places = [n for n, p in enumerate(job.params) if not p.written]
    for place, spec in zip(places, job.inputs, strict=True):
        fill(values[place], spec, recipe, job.workload, job.seed, place)
    memory = [Guarded(p.name, param_bytes(p)) for p in job.params]
    for guarded, value, param in zip(memory, values, job.params, strict=True):
        guarded.poison()
        if not param.written:
            guarded.array(param.shape, param.dtype)[...] = value
    kernel = Kernel(artifact, memory, job.threads)
    kernel.workspace.poison()
    seconds = kernel.call()
    broken = [text for m in (*memory, kernel.workspace) if (text := m.broken())]
    if broken:
        return ReferenceReply(error="\n".join(broken))
    outputs = []
    for guarded, value, param in zip(memory, values, job.params, strict=True):
        array = guarded.array(param.shape, param.dtype)
        if param.written:
            value[...] = array
            outputs.append(array)
        elif not same_bytes(array, value):
            return ReferenceReply(error=f"input {param.name} was changed")
    return ReferenceReply(quality(outputs), seconds)


def get_ready(pace: Pace, where: GPU) -> None:
    """Open a GPU and run the pacer, so that a candidate finds both done."""
    _runner(where).pacer(pace.artifact, 1, pace.nominal(1))()


def run(
    job: JobSpec,
    artifact: Code,
    plan: TimingPlan,
    pace: Pace,
    best_seconds: float | None,
    fds: list[int],
) -> RunReply | Last:
    """Load a candidate, verify its first call, time it, verify the last call. The process's last
    answer, if the candidate left it changed."""
    try:
        return _run(job, artifact, plan, pace, best_seconds, fds[0])
    except DeviceError as e:
        return _failed(e)


def _run(
    job: JobSpec,
    artifact: Code,
    plan: TimingPlan,
    pace: Pace,
    best_seconds: float | None,
    fd: int,
) -> RunReply | Last:
    runner = _runner(job.where)
    arguments = runner.arguments(job, fd)
    try:
        kernel = runner.kernel(artifact, job, fd)
    except BuildError as e:
        return RunReply(Status.RUNTIME_ERROR, f"the code cannot be linked: {e}")
    threads = pace.threads_of(artifact)
    pacer = runner.pacer(pace.artifact, threads, pace.nominal(threads))
    before = _state(job, threads)
    runner.moved(0)
    began = time.perf_counter()
    first, status, text = _verified_call(kernel, arguments, runner.machine, pace.artifact)
    verified = time.perf_counter() - began - first
    if status is not Status.OK:
        return RunReply(status, text, verify_seconds=verified)
    runner.threads.follow()
    found = time_kernel(
        lambda n: kernel.call(n, plan.flush_cache),
        pacer,
        first,
        plan,
        pace.nominal(threads),
        best_seconds,
        runner.threads.waited,
        runner.crowding(pace, threads),
    )
    began = time.perf_counter()
    status, text = arguments.check(kernel.workspace)
    verified += time.perf_counter() - began
    if status is not Status.OK:
        text = f"the first call was right, a later one was not:\n{text}"
        return RunReply(status, text, verify_seconds=verified)
    now = _state(job, threads)
    if before.get(MODES) != now.get(MODES):
        text = f"who calls it goes on with another {changes(before, now)}"
        return RunReply(Status.RUNTIME_ERROR, text, verify_seconds=verified)
    found = placed(found, runner.barrier, runner.looks, pace)
    reply = RunReply(Status.OK, estimate=found, verify_seconds=verified)
    return reply if before == now else Last(reply)


def _state(job: JobSpec, threads: int) -> dict[str, str]:
    """What a candidate may change for those after it; of a GPU's runner none runs in it."""
    return {} if job.where is not None else state(threads)


def sample(
    job: JobSpec,
    artifact: Code,
    seconds: float,
    yardstick: tuple[Code, float, float] | None,
    plan: TimingPlan,
    pace: Pace,
    patience: float,
    place: int,
    fds: list[int],
) -> Estimate | RunReply | Last:
    """A turn of a verified candidate that takes about so many `seconds`, beside the yardstick with
    its own, and those that it takes at most where nobody disturbs it (0: not known); or what the
    device says went wrong. It begins when nobody does, after `patience` seconds in any case. The
    arguments lie in that `place`. See `time_turn`."""
    try:
        return _sample(job, artifact, seconds, yardstick, plan, pace, patience, place, fds[0])
    except DeviceError as e:
        return _failed(e)


def _failed(error: DeviceError) -> RunReply:
    return RunReply(Status.DEVICE_LOST if error.lost else Status.RUNTIME_ERROR, str(error))


def _sample(
    job: JobSpec,
    artifact: Code,
    seconds: float,
    yardstick: tuple[Code, float, float] | None,
    plan: TimingPlan,
    pace: Pace,
    patience: float,
    place: int,
    fd: int,
) -> Estimate | Last:
    runner = _runner(job.where)

    def known(code: Code, seconds: float) -> Known:
        kernel = runner.kernel(code, job, fd, place)
        return Known(lambda n: kernel.call(n, plan.flush_cache), seconds)

    timed = known(artifact, seconds)
    beside = None if yardstick is None else known(*yardstick[:2])
    runner.arguments(job, fd).fill()
    threads = pace.threads_of(artifact)
    pacer = runner.pacer(pace.artifact, threads, pace.nominal(threads))
    runner.threads.follow()
    before = _state(job, threads)
    moment = Moment(
        runner.disturbed(pace, threads), patience, 0.0 if yardstick is None else yardstick[2]
    )
    found = time_turn(
        timed,
        beside,
        pacer,
        plan,
        pace.nominal(threads),
        runner.threads.waited,
        runner.crowding(pace, threads),
        moment,
        runner.moved(place),
    )
    found = placed(found, runner.barrier, runner.looks, pace)
    found = replace(found, waited_seconds=moment.waited)
    return found if before == _state(job, threads) else Last(found)


def pace_nominal(
    artifact: Code, threads: int, serial: float, where: GPU | None = None
) -> tuple[float, ...]:
    """Times of the pacer, in seconds: the minimum is nominal, the rest is the machine's noise.

    `serial`: the time on one thread, near which that on several must come; 0 for one thread.
    """
    pacer = _runner(where).pacer(artifact, threads, serial)
    times: list[float] = []
    end = time.monotonic() + PACE_SECONDS
    best, since = inf, 0
    # On a machine with other work it takes long until all threads have their cores at once.
    while len(times) < PACES or (
        (since < PACES or best > MAX_DRIFT * (serial or inf)) and time.monotonic() < end
    ):
        times.append(pacer())
        since = since + 1 if times[-1] > 0.99 * best else 0
        best = min(best, times[-1])
    return tuple(times)


def _verified_call(
    kernel: Runnable, arguments: Arguments, machine: Machine, pacer: Code
) -> tuple[float, Status, str]:
    """(seconds, status, error) of a first call, on poisoned outputs, workspace and stack."""
    arguments.reset()
    kernel.workspace.poison()
    machine.poison(pacer)
    seconds = kernel.call()
    return (seconds, *arguments.check(kernel.workspace))


def _views(job: JobSpec, fd: int, writable: bool) -> Sequence[Array]:
    """The arguments in the job's memory file."""
    flags = mmap.MAP_SHARED if writable else mmap.MAP_PRIVATE
    prot = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
    memory = mmap.mmap(fd, job.size, flags=flags, prot=prot)
    views = []
    for param, offset in zip(job.params, job.offsets, strict=True):
        count = prod(param.shape)
        views.append(
            np.frombuffer(memory, dtypes.array_dtype(param.dtype), count, offset).reshape(
                param.shape
            )
        )
    return views
