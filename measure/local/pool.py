"""The local pool: builds on all cores, then times one candidate at a time.

Candidates go through in small groups. A group is built by all builder children at once, under the
shared side of the slot's lock; then its members get sample blocks, one after the other, from the
runner child, under the exclusive side, in the order that the sampler says (see
`measure.timing.sampler`). So no core idles, nothing is ever built while something is timed, and no
other process on this host times or builds meanwhile.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import inf

from autosched.checks import instance
from autosched.closing import Closing
from autosched.codegen.llvm.assemble import Level
from autosched.errors import MeasureError
from autosched.integers import integer
from autosched.schedule import Trace
from autosched.sketch.default import default_schedule
from autosched.sketch.reference import reference_schedule
from autosched.target import Target, available_cores
from autosched.tir.admit import admitted
from autosched.tir.nodes import PrimFunc
from measure.devices import Device, gpu_device, this_device
from measure.local.build import Build, BuildProbe, BuildReply, LocalBuilder
from measure.local.builders import Builders
from measure.local.job import Job, prepare
from measure.local.slot import PROBE_TIMEOUT, LocalRunner, Slot
from measure.machine.protocol import GPU, Code
from measure.phases import PhaseClock
from measure.pool import OnResults
from measure.process.template_client import NotStarted, Template
from measure.status import MeasureResult, Status
from measure.timing import plan
from measure.timing.sampler import EQUAL, UNSURE, Noise, Sampler
from measure.timing.timing import Timing
from measure.verify.baseline import memory_order

__all__ = ["LocalPool", "LocalRunner"]

PRELOAD = (
    "numpy",
    "llvmlite.binding",
    "measure.local.build",
    "measure.local.runner",
    "measure.verify.independent",
    "measure.timing.clock_probe",
)
GPU_PRELOAD = ("measure.machine.gpu", "measure.timing.gpu_clock_probe")
DRIVERS = {
    "cuda": ("cuda.bindings.driver", "cuda.bindings.nvrtc", "autosched.runtime.cuda"),
    "opencl": ("pyopencl", "autosched.runtime.opencl"),
}
"""What a GPU's children import; importing touches no device."""
GROUP = 4  # candidates a builder and group: results flow, and builders seldom wait for the last


@dataclass(eq=False)
class _Candidate:
    """A candidate at its place in the list. `artifact`: None where it did not build. `result`: what
    is known but for its times."""

    place: int
    artifact: Code | None
    result: MeasureResult


class LocalPool(Closing):
    """This machine's CPU, or a GPU of it, as a pool of one device; see `measure.pool.Pool`. A
    context manager.

    Processes are started by the first job. Raises MeasureError, when a job is opened, if this
    machine cannot run the target's code. For one thread at a time.
    """

    def __init__(
        self,
        target: Target | str = "llvm",
        builder: LocalBuilder | None = None,
        runner: LocalRunner | None = None,
        seed: int = 0,
    ) -> None:
        self.target = Target(target)
        none = type(None)
        instance("builder", builder, (LocalBuilder, none), "a LocalBuilder", MeasureError)
        instance("runner", runner, (LocalRunner, none), "a LocalRunner", MeasureError)
        self.builder = LocalBuilder() if builder is None else builder
        self.runner = LocalRunner() if runner is None else runner
        self.seed = integer("seed", seed, 0, MeasureError)
        where = GPU(self.target.kind, self.runner.device) if self.target.is_gpu else None
        if where is None and self.runner.device is not None:
            raise MeasureError(
                f"device {self.runner.device} is a GPU's number, and the target is {self.target}"
            )
        self._host = Target("llvm") if self.target.is_gpu else self.target
        preload = PRELOAD + ((*GPU_PRELOAD, *DRIVERS[self.target.kind]) if where else ())
        template = Template(preload, "measure.local.build:warm", self.builder.pass_env)
        cores = self.builder.n_parallel or available_cores()
        self._template = template
        self._builders = Builders(template, self.target, self.builder, cores)
        threads = self.runner.threads or self._host.num_cores
        self.clock = PhaseClock()
        """Where this pool's wall time goes: `building`, `running`, `verifying`, `waiting`."""
        self._slot = Slot(template, self.runner, threads, self._make_probe, where, self.clock)
        self._noise = Noise()
        self._opened = 0
        self._jobs: list[Job] = []

    @property
    def device(self) -> Device:
        """This machine's processor, or the GPU. Raises MeasureError if there is none."""
        return gpu_device(self._slot.gpu()) if self.target.is_gpu else this_device()

    @property
    def processes(self) -> tuple[int, ...]:
        """Ids of the children that are alive."""
        children = (*self._builders.children, *self._slot.children)
        return tuple(c.pid for c in children if c.pid is not None)

    def prepare(self) -> None:
        """See `measure.pool.prepare`."""
        with suppress(NotStarted):  # said by what is asked of it first, which tries again
            self._template.begin()

    def open_job(self, func: PrimFunc, seed: int | None = None) -> Job:
        """See `Pool.open_job`; `seed` is the pool's where left out."""
        self._check_target()
        self._opened += 1
        func_pickle = pickle.dumps(admitted(func), protocol=pickle.HIGHEST_PROTOCOL)
        with self._consistent():
            self._slot.probes()
            baseline = self._baseline(func)
            works = (
                (reference_schedule(func, self._host).trace, self._host),
                (baseline, self.target),
            )
            where = self._slot.where
            replies = self._build(
                [Build(func_pickle, trace, on, "full", where=where) for trace, on in works]
            )
            job = Job(
                func=func,
                func_pickle=func_pickle,
                key=f"job-{self._opened}",
                seed=self.seed if seed is None else integer("seed", seed, 0, MeasureError),
                baseline_trace=baseline,
            )
            prepare(job, self._slot, *replies)
        self._jobs.append(job)
        return job

    def measure(
        self,
        job: Job,
        traces: Sequence[Trace],
        best_seconds: float | None = None,
        on_results: OnResults | None = None,
        cancel: threading.Event | None = None,
    ) -> list[MeasureResult]:
        """See `Pool.measure`."""
        cancel = cancel or threading.Event()
        results: dict[int, MeasureResult] = {}
        size = GROUP * len(self._builders.children)
        best = inf if best_seconds is None else best_seconds
        with self._consistent():
            for start in range(0, len(traces), size):
                group = range(start, min(start + size, len(traces)))
                sampler = Sampler(plan.SEARCH, best)
                for place, result in self._measure_group(job, traces, group, sampler, cancel):
                    results[place] = result
                    if on_results is not None:
                        on_results([(place, result)])
                best = sampler.best_seconds
        return [results[n] for n in range(len(traces))]

    def _measure_group(
        self,
        job: Job,
        traces: Sequence[Trace],
        group: range,
        sampler: Sampler,
        cancel: threading.Event,
    ) -> Iterator[tuple[int, MeasureResult]]:
        """Build a group and verify its members, a block each, and sample on until the sampler is
        through, or the job is cancelled. Each result comes as soon as it is settled."""
        built = self.build(job, [traces[n] for n in group], cancel=cancel)
        replies = dict(zip(group, built, strict=True))
        open_ones: dict[int, _Candidate] = {}
        # Those that failed to build are known already.
        for place in sorted(group, key=lambda n: replies[n].artifact is not None):
            open_ones[place] = self._first_block(job, place, replies[place], sampler, cancel)
            yield from self._settled(open_ones, sampler)
        while not cancel.is_set() and (wanted := sampler.next()) is not None:
            self._next_block(job, open_ones[wanted], sampler)
            yield from self._settled(open_ones, sampler)
        for place in list(open_ones):
            sampler.end(place)
        yield from self._settled(open_ones, sampler)

    def _first_block(
        self,
        job: Job,
        place: int,
        reply: BuildReply,
        sampler: Sampler,
        cancel: threading.Event,
    ) -> _Candidate:
        """Verify and time a candidate that was built."""
        best = sampler.best_seconds
        if reply.artifact is not None and cancel.is_set():
            error = "cancelled before it was timed"
            reply = replace(reply, status=Status.CANCELLED, artifact=None, error=error)
        result = self._slot.run(job, reply, None if best == inf else best)
        if result.timing is not None:
            sampler.add(place, result.timing)
        return _Candidate(place, reply.artifact, result)

    def _next_block(
        self, job: Job, candidate: _Candidate, sampler: Sampler, buffers: int = 0
    ) -> None:
        """Another block, with the arguments in place number `buffers` in memory."""
        place = candidate.place
        assert candidate.artifact is not None
        seconds = sampler.timing(place).seconds
        result = self._slot.sample(job, candidate.artifact, candidate.result, seconds, buffers)
        candidate.result = result
        if not result.ok:
            sampler.drop(place)
            return
        if result.timing is not None:
            sampler.add(place, result.timing)
        if result.timing is None or result.error:  # what was verified and timed before stands
            sampler.end(place)

    def _settled(
        self, open_ones: dict[int, _Candidate], sampler: Sampler
    ) -> Iterator[tuple[int, MeasureResult]]:
        """Take those out that get no further block, with their final results."""
        for place in [n for n in open_ones if sampler.is_settled(n)]:
            sampler.end(place)
            yield place, _rated(open_ones.pop(place), sampler, self._noise_with)

    def _noise_with(self, timing: Timing) -> float:
        """The noise figure, with the error of this candidate."""
        self._noise.note(timing)
        return self._noise.figure()

    def remeasure(
        self,
        job: Job,
        traces: Sequence[Trace],
        rounds: int = 10,
        cancel: threading.Event | None = None,
    ) -> list[MeasureResult]:
        """See `Pool.remeasure`."""
        cancel = cancel or threading.Event()
        level: Level = "full" if self.builder.is_default else "search"
        sampler, blocks = Sampler(plan.final(rounds)), 0
        with self._consistent():
            candidates = [
                self._first_block(job, place, reply, sampler, cancel)
                for place, reply in enumerate(self.build(job, traces, level, cancel))
            ]
            while not cancel.is_set() and (place := sampler.next()) is not None:
                # Where in memory the arguments lie makes each program faster or slower by itself.
                buffers = blocks // len(candidates) % job.spec.places
                self._next_block(job, candidates[place], sampler, buffers)
                blocks += 1
        return [_finalist(c, sampler, cancel.is_set()) for c in candidates]

    def build(
        self,
        job: Job,
        traces: Sequence[Trace],
        level: Level = "search",
        cancel: threading.Event | None = None,
    ) -> list[BuildReply]:
        """Candidates of a job built, on all builders at once, and not run."""
        name, where = str(self.builder.build_func), self._slot.where
        work = [Build(job.func_pickle, t, self.target, level, name, where) for t in traces]
        return self._build(work, cancel)

    def close(self) -> None:
        """See `Pool.close`."""
        for job in self._jobs:
            job.close()
        self._jobs.clear()
        self._builders.kill()
        self._slot.close()
        self._template.close()

    def _check_target(self) -> None:
        """Raise MeasureError if the device cannot run the target's code."""
        if not self.target.is_gpu:
            missing = self.target.missing_here()
            if missing:
                lacks = ", ".join(missing)
                raise MeasureError(f"this machine cannot run {self.target}: it lacks {lacks}")
            return
        gpu = self._slot.gpu()
        if self.target.kind == "cuda" and not runs(self.target.mcpu, gpu.version):
            raise MeasureError(
                f"{gpu.model} is {gpu.version} and cannot run {self.target}; "
                f"tune for cuda -arch={gpu.version}"
            )

    def _baseline(self, func: PrimFunc) -> Trace:
        """The untransformed program, or what comes nearest to it on a GPU: it needs threads."""
        if self.target.is_gpu:
            return default_schedule(func, self.target).trace
        return memory_order(func, self.target)

    def _build(
        self, work: Sequence[Build], cancel: threading.Event | None = None
    ) -> list[BuildReply]:
        with self._slot.building(), self.clock.phase("building"):
            return self._builders.build(work, cancel)

    def _make_probe(self) -> Code:
        where = self._slot.where
        info = None if where is None else self._slot.gpu()
        request = BuildProbe(self.target, self._slot.threads, where, info)
        built = self._builders.children[0].ask(request, PROBE_TIMEOUT)
        if built.value is None:
            raise MeasureError(f"the clock probe cannot be built: {built.text}")
        return built.value

    @contextmanager
    def _consistent(self) -> Iterator[None]:
        """Leave no child at work behind when the caller is interrupted."""
        try:
            yield
        except BaseException:
            for child in (*self._builders.children, *self._slot.children):
                if child.busy:
                    child.kill()
            raise


def _finalist(candidate: _Candidate, sampler: Sampler, cancelled: bool) -> MeasureResult:
    """The result of the final re-measurement."""
    if cancelled and candidate.result.ok and not sampler.is_settled(candidate.place):
        return candidate.result.failed(Status.CANCELLED, "cancelled while finalists were timed")
    return _rated(candidate, sampler, lambda timing: EQUAL * (timing.error or 0.0))


def _rated(
    candidate: _Candidate, sampler: Sampler, noise_of: Callable[[Timing], float]
) -> MeasureResult:
    """The result with what all blocks say, whether or not the last one has a timing of its own: an
    `ok` candidate has at least its first (`Slot.sample`). Its noise is no less than `noise_of`
    gives, or than that of one that failed later."""
    result = candidate.result
    if not result.ok:
        return result
    timing = sampler.timing(candidate.place)
    noise = max(timing.noise, noise_of(timing), UNSURE if result.error else 0.0)
    return replace(result, timing=replace(timing, noise=noise))


def runs(built_for: str, device: str) -> bool:
    """Whether machine code for one compute capability runs on another: the same generation, no
    newer; code for "sm_90a" on nothing else."""
    made, has = (arch.removeprefix("sm_") for arch in (built_for, device))
    if not made.isdigit():
        return made.rstrip("af") == has
    return made[:-1] == has[:-1] and int(made) <= int(has)
