"""What runs in runner children: candidates, and nothing that is compiled there."""

from __future__ import annotations

import mmap
import pickle
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from math import inf

import numpy as np

from autosched.codegen.artifact import Artifact, KernelInfo, Param
from autosched.errors import BuildError, DeviceError
from autosched.tir import dtypes
from measure.local.build import code_key
from measure.machine.kernel import Kernel, Processor
from measure.machine.protocol import GPU, Code, Machine, Runnable
from measure.machine.threads import Threads
from measure.process.process_state import MODES, changes, state
from measure.process.protocol import Last, Request
from measure.status import MeasureResult, Status
from measure.timing.block import MAX_DRIFT, Samples, take_block
from measure.timing.plan import TimingPlan
from measure.timing.timing import Timing
from measure.verify.independent import Examined, check
from measure.verify.inputs import InputSpec, Recipe, fill, quality
from measure.verify.tolerance import Tolerance
from measure.verify.verification import Array, Buffers, Guarded, param_bytes, same_bytes

PAGE = 4096
NUMPY_SHIFT = 16
"""Bytes past a cache line at which large arrays of NumPy start, by glibc's malloc. Vectors of 64
bytes of them cross two lines each: a product that reads its weights as they lie takes 1.1 times as
long."""
PLACES = 8
PLACES_BYTES = 32 << 20
"""All places together: large arrays have so many pages that their places hardly matter."""
KERNELS_KEPT = 32
PROBES = 200
PROBE_SECONDS = 0.5
SETTLE_SECONDS = 0.1


@dataclass(frozen=True)
class JobSpec:
    """One job's program, as far as a runner has to know it.

    `key` is unique in the life of a pool. The job's memory file holds every argument at its offset:
    inputs, and the reference's outputs. `threads`: of kernels of this machine's processor. `where`:
    what candidates run on, None for that processor. `aligned`: arguments start at cache lines while
    candidates run, as in a model; else where those of NumPy's large arrays do.
    """

    key: str
    workload: str
    seed: int
    params: tuple[Param, ...]
    inputs: tuple[InputSpec, ...]
    tolerance: Tolerance
    threads: int
    where: GPU | None = None
    aligned: bool = False

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each argument starts in the memory file, in bytes; pages of their own."""
        return tuple(accumulate(self._paged[:-1], initial=0))

    @property
    def size(self) -> int:
        """Bytes of the memory file."""
        return max(PAGE, sum(self._paged))

    @property
    def _paged(self) -> list[int]:
        return [-(-param_bytes(p) // PAGE) * PAGE for p in self.params]

    @property
    def places(self) -> int:
        """How many places in this machine's memory the arguments have while candidates are timed.

        Which pages of the machine an array gets makes kernels up to 10 % faster or slower, each in
        its own way, the same as long as it stays there; and users' arrays may lie anywhere.
        """
        return 1 if self.where is not None else min(PLACES, max(1, PLACES_BYTES // self.size))


@dataclass(frozen=True)
class Probes:
    """The clock probe, and what it gave when the pool was opened.

    `nominal`: seconds of the clock probe by its number of threads: one, and all `threads`. Each
    kernel is compared with the probe on as many threads as it uses itself: work on other cores is
    nothing to a kernel of one thread, and clocks depend on how many cores are busy.
    """

    artifact: Code
    threads: int
    nominal: Mapping[int, float] = field(default_factory=dict)

    def threads_of(self, kernel: Code) -> int:
        """Number of threads on which the clock probe runs along with a kernel."""
        return self.threads if kernel.info.parallel else 1

    def near(self, threads: int) -> float:
        """About what the probe takes on `threads` threads: nominal, or as on one; 0 if that is not
        known."""
        return self.nominal.get(threads, self.nominal.get(1, 0.0))


class _Runner:
    """The state of a runner child: the machine, the job at hand, loaded kernels, clock probes."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._key = ""
        self._arguments: Buffers | None = None
        self._kernels: OrderedDict[tuple[str, KernelInfo, int], Runnable] = OrderedDict()
        self._clocks: dict[int, Runnable] = {}
        self.threads = machine.threads

    def arguments(self, job: JobSpec, fd: int) -> Buffers:
        """The job's arguments; those of the job before are given up."""
        if self._arguments is None or self._key != job.key:
            self._kernels.clear()
            self._arguments = None
            values = views(job, fd, writable=False)
            shift = 0 if job.aligned else NUMPY_SHIFT
            self._arguments = self.machine.buffers(job.params, values, job.tolerance, shift)
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

    def clock(self, probes: Probes, threads: int) -> Callable[[], float]:
        """A function that times the clock probe once."""
        if threads not in self._clocks:
            out = probes.artifact.info.params[0]
            memory = [self.machine.scratch(out.name, param_bytes(out))]
            self._clocks[threads] = self.machine.kernel(probes.artifact, memory, threads)
            _settle(self._clocks[threads], probes.near(threads), self.threads)
        kernel = self._clocks[threads]

        def tick() -> float:
            # Threads that fell asleep during a serial kernel are woken before the clock starts.
            kernel.call()
            return kernel.call()

        return tick

    def block(
        self,
        kernel: Runnable,
        artifact: Code,
        seconds: float,
        plan: TimingPlan,
        probes: Probes,
        best_seconds: float | None,
        first_clean: bool = False,
    ) -> Timing:
        """A block of a kernel that took about so many `seconds`; see `take_block`."""
        threads = probes.threads_of(artifact)
        clock = self.clock(probes, threads)
        self.threads.follow()
        return take_block(
            lambda n: kernel.call(n, plan.flush_cache),
            clock,
            seconds,
            plan,
            probes.near(threads),
            best_seconds,
            self.threads.waited,
            first_clean,
        )


def _settle(clock: Runnable, nominal: float, threads: Threads) -> None:
    """Run new threads until the system has given each a core of its own, if it does so soon."""
    end = time.monotonic() + SETTLE_SECONDS
    clock.call(2)
    threads.follow()
    while nominal and clock.call() > MAX_DRIFT * nominal and time.monotonic() < end:
        clock.call(2)


@cache
def _runner(where: GPU | None) -> _Runner:
    if where is None:
        return _Runner(Processor())
    from measure.machine.gpu import GPUMachine, open_gpu

    return _Runner(GPUMachine(open_gpu(where)))


@dataclass(frozen=True)
class MakeReference(Request[tuple[float, float] | str]):
    """Fill the job's memory: inputs by `recipe`, outputs by the untransformed program. The answer
    is how good the inputs were (`quality`), or what went wrong."""

    job: JobSpec
    artifact: Artifact
    recipe: Recipe

    def answer(self, fds: Sequence[int]) -> tuple[float, float] | str:
        job = self.job
        values = views(job, fds[0], writable=True)
        places = [n for n, p in enumerate(job.params) if not p.written]
        for place, spec in zip(places, job.inputs, strict=True):
            if not spec.given:
                fill(values[place], spec, self.recipe, job.workload, job.seed, place)
        memory = [Guarded(p.name, param_bytes(p)) for p in job.params]
        for guarded, value, param in zip(memory, values, job.params, strict=True):
            guarded.poison()
            if not param.written:
                guarded.array(param.shape, param.dtype)[...] = value
        kernel = Kernel(self.artifact, memory, job.threads)
        kernel.workspace.poison()
        kernel.call()
        broken = [text for m in (*memory, kernel.workspace) if (text := m.broken())]
        if broken:
            return "\n".join(broken)
        outputs = []
        for guarded, value, param in zip(memory, values, job.params, strict=True):
            array = guarded.array(param.shape, param.dtype)
            if param.written:
                value[...] = array
                outputs.append(array)
            elif not same_bytes(array, value):
                return f"input {param.name} was changed"
        return quality(outputs)


@dataclass(frozen=True)
class Examine(Request[Examined]):
    """Have the interpreter recompute the job's reference; see `verify.independent`."""

    job: JobSpec
    func_pickle: bytes

    def answer(self, fds: Sequence[int]) -> Examined:
        arrays = views(self.job, fds[0], writable=True)
        return check(pickle.loads(self.func_pickle), arrays, self.job.tolerance)


@dataclass(frozen=True)
class Run(Request[MeasureResult]):
    """Load a candidate, verify its first call, take a block, verify the last call. The process's
    last answer, if the candidate left it changed."""

    job: JobSpec
    artifact: Code
    plan: TimingPlan
    probes: Probes
    best_seconds: float | None

    def answer(self, fds: Sequence[int]) -> MeasureResult | Last[MeasureResult]:
        try:
            return self._answer(fds[0])
        except DeviceError as e:
            return _failed(e)

    def _answer(self, fd: int) -> MeasureResult | Last[MeasureResult]:
        job, artifact, probes = self.job, self.artifact, self.probes
        runner = _runner(job.where)
        arguments = runner.arguments(job, fd)
        try:
            kernel = runner.kernel(artifact, job, fd)
        except BuildError as e:
            return MeasureResult(Status.RUNTIME_ERROR, f"the code cannot be linked: {e}")
        threads = probes.threads_of(artifact)
        runner.clock(probes, threads)
        before = _state(job, threads)
        began = time.perf_counter()
        first, status, text = _verified_call(kernel, arguments, runner, probes.artifact)
        verified = time.perf_counter() - began - first.spent
        if status is not Status.OK:
            return MeasureResult(status, text, verify_seconds=verified)
        took, best = first.spent, self.best_seconds
        found = runner.block(kernel, artifact, took, self.plan, probes, best, bool(first.clean))
        if found.samples != (took,):  # it was called again
            began = time.perf_counter()
            status, text = arguments.check(kernel.workspace)
            verified += time.perf_counter() - began
        if status is not Status.OK:
            text = f"the first call was right, a later one was not:\n{text}"
            return MeasureResult(status, text, verify_seconds=verified)
        now = _state(job, threads)
        if before.get(MODES) != now.get(MODES):
            text = f"who calls it goes on with another {changes(before, now)}"
            return MeasureResult(Status.RUNTIME_ERROR, text, verify_seconds=verified)
        reply = MeasureResult(Status.OK, timing=found, verify_seconds=verified)
        return reply if before == now else Last(reply)


def _state(job: JobSpec, threads: int) -> dict[str, str]:
    """What a candidate may change for those after it; of a GPU's runner none runs in it."""
    return {} if job.where is not None else state(threads)


@dataclass(frozen=True)
class Sample(Request[MeasureResult]):
    """Another block of a verified candidate that takes about so many `seconds`, with the arguments
    in that `place` in memory; or what the device says went wrong."""

    job: JobSpec
    artifact: Code
    seconds: float
    plan: TimingPlan
    probes: Probes
    place: int = 0

    def answer(self, fds: Sequence[int]) -> MeasureResult | Last[MeasureResult]:
        job, artifact = self.job, self.artifact
        threads = self.probes.threads_of(artifact)
        try:
            runner = _runner(job.where)
            kernel = runner.kernel(artifact, job, fds[0], self.place)
            runner.arguments(job, fds[0]).fill()
            before = _state(job, threads)
            found = runner.block(kernel, artifact, self.seconds, self.plan, self.probes, None)
        except DeviceError as e:
            return _failed(e)
        reply = MeasureResult(Status.OK, timing=found)
        return reply if before == _state(job, threads) else Last(reply)


def _failed(error: DeviceError) -> MeasureResult:
    return MeasureResult(Status.DEVICE_LOST if error.lost else Status.RUNTIME_ERROR, str(error))


@dataclass(frozen=True)
class OpenGPU(Request[float]):
    """Open a GPU and run the clock probe, so that a candidate finds both done; its seconds."""

    probes: Probes
    where: GPU

    def answer(self, fds: Sequence[int]) -> float:
        return _runner(self.where).clock(self.probes, 1)()


@dataclass(frozen=True)
class TimeClock(Request[float]):
    """The nominal time of the clock probe on so many threads: the least of many."""

    probes: Probes
    threads: int
    where: GPU | None = None

    def answer(self, fds: Sequence[int]) -> float:
        clock = _runner(self.where).clock(self.probes, self.threads)
        limit = MAX_DRIFT * (self.probes.near(self.threads) or inf)
        end = time.monotonic() + PROBE_SECONDS
        best, count, since = inf, 0, 0
        # On a machine with other work it takes long until all threads have their cores at once.
        while count < PROBES or ((since < PROBES or best > limit) and time.monotonic() < end):
            seconds = clock()
            count, since = count + 1, since + 1 if seconds > 0.99 * best else 0
            best = min(best, seconds)
        return best


def _verified_call(
    kernel: Runnable, arguments: Buffers, runner: _Runner, probe: Code
) -> tuple[Samples, Status, str]:
    """(sample, status, error) of a first call, on poisoned outputs, workspace and stack."""
    arguments.reset()
    kernel.workspace.poison()
    runner.machine.poison(probe)
    runner.threads.follow()
    first = Samples(kernel.call, runner.threads.waited)
    first.take()
    return (first, *arguments.check(kernel.workspace))


def views(job: JobSpec, fd: int, writable: bool) -> Sequence[Array]:
    """The arguments in the job's memory file."""
    flags = mmap.MAP_SHARED if writable else mmap.MAP_PRIVATE
    prot = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
    memory = mmap.mmap(fd, job.size, flags=flags, prot=prot)
    return [
        np.ndarray(p.shape, dtypes.array_dtype(p.dtype), memory, offset)
        for p, offset in zip(job.params, job.offsets, strict=True)
    ]
