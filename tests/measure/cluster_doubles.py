"""Engines of slots that do what devices must not: named for it, and importable by workers."""

from __future__ import annotations

import math
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autosched import te
from autosched.schedule import Schedule, Trace
from autosched.target import Target
from autosched.tir.canonical import program_hash
from autosched.tir.nodes import PrimFunc
from measure.cluster.supervisor import CLAIMED
from measure.cluster.worker import canary
from measure.devices import Device
from measure.local.build import LocalBuilder
from measure.local.pool import LocalPool
from measure.local.slot import LocalRunner
from measure.pool import OnResults, Pool
from measure.replay import ReplayJob, ReplayPool, modelled
from measure.status import MeasureResult, Status

DEVICE = Device("made up", "x86_64", 1, ("L1d 32K",), "none")
OTHER = replace(DEVICE, model="made up otherwise")
SIZE = 1000
CANARY = program_hash(canary())


def vector_add() -> PrimFunc:
    """out[i] = a[i] + b[i], 1,000 elements."""
    a = te.placeholder((SIZE,), name="a")
    b = te.placeholder((SIZE,), name="b")
    return te.create_prim_func([a, b, te.compute((SIZE,), lambda i: a[i] + b[i], name="out")])


def candidates(func: PrimFunc, count: int) -> list[Trace]:
    """Schedules of `vector_add` that give different programs."""
    traces = []
    for factor in range(2, count + 2):
        sch = Schedule(func)
        (loop,) = sch.get_loops(sch.get_block("out"))
        sch.split(loop, [None, factor])
        traces.append(sch.trace)
    return traces


def misfit() -> Trace:
    """A trace that fits no program."""
    sch = Schedule(canary())
    sch.get_block("c")
    return sch.trace


def seconds_of(func: PrimFunc) -> float:
    """Made up from the program's hash."""
    return 1e-6 * (1 + int(program_hash(func)[-4:], 16))


def retimed(result: MeasureResult, **times: Any) -> MeasureResult:
    """The result with other parts of its timing."""
    assert result.timing is not None
    return replace(result, timing=replace(result.timing, **times))


class PacedPool(ReplayPool):
    """Answers from a model, and takes its time over each candidate."""

    def __init__(self, each: float, device: Device = DEVICE) -> None:
        super().__init__(device, modelled(seconds_of))
        self.each = each

    def measure(
        self,
        job: ReplayJob,
        traces: Sequence[Trace],
        best_seconds: float | None = None,
        on_results: OnResults | None = None,
        cancel: threading.Event | None = None,
    ) -> list[MeasureResult]:
        results = []
        for place, trace in enumerate(traces):
            if program_hash(job.func) != CANARY:
                time.sleep(self.each)
            (result,) = super().measure(job, [trace], best_seconds, None, cancel)
            results.append(result := self.spoil(job, result))
            if on_results is not None:
                on_results([(place, result)])
        return results

    def spoil(self, job: ReplayJob, result: MeasureResult) -> MeasureResult:
        """What becomes of a result."""
        return result


def quick_engine(target: Target, slot: str) -> Pool:
    return PacedPool(0.0)


def paced_engine(target: Target, slot: str) -> Pool:
    """20 ms a candidate."""
    return PacedPool(0.02)


def slow_engine(target: Target, slot: str) -> Pool:
    """200 ms a candidate."""
    return PacedPool(0.2)


def other_engine(target: Target, slot: str) -> Pool:
    """Another kind of device."""
    return PacedPool(0.0, OTHER)


class Lying(PacedPool):
    def spoil(self, job: ReplayJob, result: MeasureResult) -> MeasureResult:
        """Not a number; the canary is as it should be."""
        return result if program_hash(job.func) == CANARY else retimed(result, seconds=math.nan)


def lying_engine(target: Target, slot: str) -> Pool:
    return Lying(0.01)


class Talkative(PacedPool):
    def spoil(self, job: ReplayJob, result: MeasureResult) -> MeasureResult:
        """Measures that ever so many times."""
        if program_hash(job.func) == CANARY:
            return result
        return retimed(result, samples=(1.0,) * 200_000)


def talkative_engine(target: Target, slot: str) -> Pool:
    return Talkative(0.01)


class Unwell(PacedPool):
    """Everything crashes, and after the first crash the canary too."""

    crashed = False

    def spoil(self, job: ReplayJob, result: MeasureResult) -> MeasureResult:
        if program_hash(job.func) == CANARY and not self.crashed:
            return result
        self.crashed = True
        return MeasureResult(Status.RUNTIME_ERROR, "killed by SIGSEGV")


def unwell_engine(target: Target, slot: str) -> Pool:
    return Unwell(0.01)


class Crashing(PacedPool):
    """Every third candidate crashes; the device is well."""

    count = 0

    def spoil(self, job: ReplayJob, result: MeasureResult) -> MeasureResult:
        self.count += 1
        if program_hash(job.func) == CANARY or self.count % 3:
            return result
        return MeasureResult(Status.RUNTIME_ERROR, "killed by SIGSEGV")


def crashing_engine(target: Target, slot: str) -> Pool:
    return Crashing(0.0)


class Deadly(PacedPool):
    """One candidate kills the whole worker, wherever it runs."""

    def spoil(self, job: ReplayJob, result: MeasureResult) -> MeasureResult:
        if result.program_hash == DEADLY:
            os.kill(os.getpid(), signal.SIGKILL)
        return result


DEADLY = program_hash(candidates(vector_add(), 3)[2].apply(vector_add()).func)


def deadly_engine(target: Target, slot: str) -> Pool:
    return Deadly(0.0)


class Picky(PacedPool):
    def open_job(self, func: PrimFunc, seed: int | None = None) -> ReplayJob:
        """Raises what nobody else knows, but for the canary."""
        if program_hash(func) != CANARY:
            raise _StrangeError("this device opens no job")
        return super().open_job(func, seed)


class _StrangeError(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("this exception cannot be sent")


class Leaving(PacedPool):
    def spoil(self, job: ReplayJob, result: MeasureResult) -> MeasureResult:
        """Ends its process, it thinks, as one whose slot is another's."""
        return result if program_hash(job.func) == CANARY else sys.exit(CLAIMED)


def leaving_engine(target: Target, slot: str) -> Pool:
    return Leaving(0.0)


def picky_engine(target: Target, slot: str) -> Pool:
    return Picky(0.0)


class QuickLocal(LocalPool):
    """This machine's processor, with little time for each candidate and locks of its own."""

    def __init__(self, target: Target, slot: str) -> None:
        self._locks = tempfile.TemporaryDirectory(prefix="autosched-locks-")
        folder = Path(self._locks.name)
        runner = LocalRunner(
            budget_ms=2, timeout=60, memory_bytes=4 << 30, slot=slot, lock_folder=folder
        )
        super().__init__(target, LocalBuilder(n_parallel=1), runner)

    def close(self) -> None:
        super().close()
        self._locks.cleanup()


def local_engine(target: Target, slot: str) -> Pool:
    print(f"slot {slot} for {target}", file=sys.stderr)
    return QuickLocal(target, slot)
