"""The local pool: builds on all cores, then times one candidate at a time, in turns.

Candidates go through in small groups. A group is built by all builder children at once, under the
shared side of the slot's lock; then its members are timed one after the other by the runner child,
under the exclusive side, and after them those of the groups before that need another visit. So no
core idles, nothing is ever built while something is timed, and no other process on this host times
or builds meanwhile.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import Any

from autosched.codegen.artifact import Artifact
from autosched.codegen.gpu.generate import GPUArtifact
from autosched.codegen.llvm.assemble import Level
from autosched.errors import MeasureError
from autosched.integers import integer
from autosched.schedule import Trace
from autosched.sketch.default import default_schedule
from autosched.sketch.reference import reference_schedule
from autosched.target import Target, available_cores
from autosched.tir.nodes import PrimFunc
from measure.baseline import memory_order
from measure.build import DEFAULT_BUILD_FUNC, BuildReply, LocalBuilder
from measure.builders import Builders, BuildWork
from measure.closing import Closing
from measure.devices import Device, gpu_device, this_device
from measure.finalists import contenders, distribution
from measure.job import Job, prepare
from measure.machine import GPU, Code
from measure.pool import OnResults
from measure.slot import PACE_TIMEOUT, LocalRunner, Slot
from measure.status import Distribution, MeasureResult, Status
from measure.visits import Noise, Visited
from measure.warm import Template
from measure.yardstick import Yardstick

__all__ = ["LocalPool", "LocalRunner"]

PRELOAD = ("numpy", "llvmlite.binding", "measure.build", "measure.runner", "measure.pacer")
PAUSE_SECONDS = 0.1
GPU_PRELOAD = ("measure.gpu_machine", "measure.gpu_pacer")
DRIVERS = {
    "cuda": ("cuda.bindings.driver", "cuda.bindings.nvrtc", "autosched.runtime.cuda"),
    "opencl": ("pyopencl", "autosched.runtime.opencl"),
}
"""What a GPU's children import; importing touches no device."""
GROUP = 4  # candidates a builder and turn: results flow, and builders seldom wait for the last


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
        self.builder = builder or LocalBuilder()
        self.runner = runner or LocalRunner()
        self.seed = integer("seed", seed, 0, MeasureError)
        where = GPU(self.target.kind, self.runner.device) if self.target.is_gpu else None
        if where is None and self.runner.device is not None:
            raise MeasureError(
                f"device {self.runner.device} is a GPU's number, and the target is {self.target}"
            )
        self._host = Target("llvm") if self.target.is_gpu else self.target
        preload = PRELOAD + ((*GPU_PRELOAD, *DRIVERS[self.target.kind]) if where else ())
        template = Template(preload, "measure.build:warm", self.builder.pass_env)
        cores = self.builder.n_parallel or available_cores()
        self._template = template
        self._builders = Builders(template, self.target, self.builder, cores, where)
        threads = self.runner.threads or self._host.num_cores
        self._slot = Slot(template, self.runner, threads, self._make_pacer, where)
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

    def open_job(self, func: PrimFunc, seed: int | None = None) -> Job:
        """See `Pool.open_job`; `seed` is the pool's where left out."""
        self._check_target()
        self._opened += 1
        func_pickle = pickle.dumps(func, protocol=pickle.HIGHEST_PROTOCOL)
        with self._consistent():
            self._slot.pace()
            baseline = self._baseline(func)
            works = (
                (reference_schedule(func, self._host).trace, self._host),
                (baseline, self.target),
            )
            replies = self._build(
                [BuildWork(func_pickle, t, "full", DEFAULT_BUILD_FUNC, where) for t, where in works]
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
        results: dict[int, MeasureResult] = {}
        size = GROUP * len(self._builders.children)
        best = inf if best_seconds is None else best_seconds
        waiting: list[Visited] = []
        plan, began = self._slot.plan, time.monotonic()

        def settle(all_of_them: bool = False) -> None:
            """Report those that need no more visits."""
            stopped = all_of_them or (cancel is not None and cancel.is_set())
            found = []
            for visited in list(waiting):
                if stopped or not visited.unsettled(best, plan):
                    waiting.remove(visited)
                    results[visited.place] = self._settled(job, visited)
                    found.append((visited.place, results[visited.place]))
            if found and on_results is not None:
                on_results(found)

        with self._consistent():
            for start in range(0, len(traces), size):
                places = range(start, min(start + size, len(traces)))
                for visited in self._first_visits(job, traces, places, best, cancel):
                    best = min(best, visited.result.seconds or inf)
                    waiting.append(visited)
                    settle()
                earlier = [v for v in waiting if v.place < start and not v.restless(plan)]
                self._visit(job, earlier, cancel)
                settle()
            rest = min(job.patience.seconds, time.monotonic() - began)
            end = time.monotonic() + rest
            while waiting:
                # Who met no quiet moment waits for one: the first of them tells when it has come.
                lively = [v for v in waiting if not v.restless(plan)]
                visits = lively or waiting[:1]
                before = sum(len(v.quiet) for v in visits)
                self._visit(job, visits, cancel)
                quiet = sum(len(v.quiet) for v in visits) > before
                if quiet and not lively:
                    self._visit(job, waiting[1:], cancel)
                elif not quiet:
                    time.sleep(PAUSE_SECONDS)  # what disturbed all of them may pass
                over = not lively and not quiet and time.monotonic() > end
                if over:
                    job.patience.note(rest, 0.0)
                settle(all_of_them=over)
        return [results[n] for n in range(len(traces))]

    def _first_visits(
        self,
        job: Job,
        traces: Sequence[Trace],
        places: Sequence[int],
        best: float,
        cancel: threading.Event | None,
    ) -> Iterator[Visited]:
        """Build a group, then verify and time its members, one after the other."""
        started, began = time.time(), time.monotonic()
        built = self.build(job, [traces[n] for n in places], cancel=cancel)
        replies = dict(zip(places, built, strict=True))
        # Those that failed to build are known already.
        for place in sorted(places, key=lambda n: replies[n].artifact is not None):
            result = self._run(job, replies[place], None if best == inf else best, cancel)
            best = min(best, result.seconds or inf)
            finished = started + time.monotonic() - began
            result = replace(result, started_at=started, finished_at=finished)
            yield Visited(place, replies[place].artifact, result)
        job.patience.note(0.0, time.monotonic() - began)

    def _visit(self, job: Job, waiting: Sequence[Visited], cancel: threading.Event | None) -> None:
        """One more visit to each, until cancelled, with the arguments in another place in memory.
        The fastest of the first is the yardstick."""
        if job.yardstick is None and waiting:
            fastest = min(waiting, key=lambda v: v.seconds or inf)
            if fastest.artifact is not None and fastest.seconds is not None:
                job.yardstick = Yardstick(fastest.artifact, fastest.seconds)
        place = job.rounds % job.spec.places
        job.rounds += 1
        for visited in waiting:
            if cancel is not None and cancel.is_set():
                return
            if visited.artifact is not None and visited.seconds is not None:
                visited.add(self._slot.turn(job, visited.artifact, visited.seconds, place))

    def _settled(self, job: Job, visited: Visited) -> MeasureResult:
        """The final result; the yardstick learns from it, and may give way to the candidate."""
        result, yardstick = self._noise.note(visited), job.yardstick
        if visited.artifact is None or result.seconds is None or yardstick is None:
            return result
        visits = [(v.kernel, v.own) for v in visited.quiet if v.yardstick.yardstick is yardstick]
        if visits:
            yardstick.learn(visits)
            other = yardstick.replaced_by(visited.artifact, result.seconds)
            job.yardstick = other or yardstick
        return result

    def remeasure(
        self,
        job: Job,
        traces: Sequence[Trace],
        rounds: int = 10,
        cancel: threading.Event | None = None,
    ) -> list[Distribution]:
        """See `Pool.remeasure`."""
        level: Level = "full" if self.builder.is_default else "search"
        finalists: list[Visited] = []
        with self._consistent():
            built = self.build(job, traces, level, cancel)
            for place, reply in enumerate(built):
                result = self._run(job, reply, None, cancel)
                finalists.append(Visited(place, reply.artifact, result))
            for _ in range(rounds):
                if cancel is not None and cancel.is_set():
                    for finalist in contenders(finalists):
                        finalist.cancel("cancelled while finalists were timed")
                self._visit(job, contenders(finalists), cancel)
        return [distribution(finalist, level) for finalist in finalists]

    def build(
        self,
        job: Job,
        traces: Sequence[Trace],
        level: Level = "search",
        cancel: threading.Event | None = None,
    ) -> list[BuildReply]:
        """Candidates of a job built, on all builders at once, and not run."""
        name = self.builder.build_func
        work = [BuildWork(job.func_pickle, trace, level, name) for trace in traces]
        return self._build(work, cancel)

    def noise(self) -> float:
        """The machine's unrest now, a fraction: see `Slot.noise`."""
        with self._consistent():
            return self._slot.noise()

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
        return memory_order(func)

    def _build(
        self, work: Sequence[BuildWork], cancel: threading.Event | None = None
    ) -> list[BuildReply]:
        with self._slot.building():
            return self._builders.build(work, cancel)

    def _run(
        self,
        job: Job,
        reply: BuildReply,
        best_seconds: float | None,
        cancel: threading.Event | None,
    ) -> MeasureResult:
        if reply.artifact is not None and cancel is not None and cancel.is_set():
            reply = replace(
                reply,
                status=Status.CANCELLED,
                artifact=None,
                error="cancelled before it was timed",
            )
        return self._slot.run(job, reply, best_seconds)

    def _make_pacer(self) -> Code:
        builder, where = self._builders.children[0], self._slot.where
        name, rest = "measure.pacer:build_pacer", tuple[Any, ...]((self._slot.threads,))
        if where is not None:
            name, rest = "measure.gpu_pacer:build_pacer", (where, self._slot.gpu())
        built = builder.ask(name, self.target, *rest, timeout=PACE_TIMEOUT)
        if not isinstance(built.value, Artifact | GPUArtifact):
            raise MeasureError(f"the pacer cannot be built: {built.text}")
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


def runs(built_for: str, device: str) -> bool:
    """Whether machine code for one compute capability runs on another: the same generation, no
    newer; code for "sm_90a" on nothing else."""
    made, has = (arch.removeprefix("sm_") for arch in (built_for, device))
    if not made.isdigit():
        return made.rstrip("af") == has
    return made[:-1] == has[:-1] and int(made) <= int(has)
