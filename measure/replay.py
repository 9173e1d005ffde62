"""A pool that measures nothing: it answers from recorded measurements, or from a model.

Searches are compared, tested and debugged with it, on a machine that is busy or absent. The same
program always gets the same answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from autosched.errors import AutoschedError
from autosched.schedule import Trace
from autosched.tir.canonical import program_hash
from autosched.tir.nodes import PrimFunc
from measure.devices import Device
from measure.pool import OnResults
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing
from measure.verify.baseline import memory_order

Answer = Callable[[PrimFunc], MeasureResult]
"""What a scheduled program's measurement is."""


class RecordedResult(Protocol):
    """What is read of a record; `records.Record` is one."""

    @property
    def program_hash(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def error(self) -> str | None: ...


def recorded(records: Iterable[RecordedResult]) -> Answer:
    """Answers from records, by the hash of the program; of several for one program the first.

    A program that was not recorded is a `cancelled` measurement that says so.
    """
    known: dict[str, MeasureResult] = {}
    for r in records:
        result = _result(Status(r.status), r.seconds, r.error or "", r.program_hash)
        known.setdefault(r.program_hash, result)

    def answer(func: PrimFunc) -> MeasureResult:
        name = program_hash(func)
        missing = MeasureResult(Status.CANCELLED, "not among the recorded programs")
        return known.get(name, missing)

    return answer


def modelled(seconds: Callable[[PrimFunc], float]) -> Answer:
    """Answers from a function that gives every program its seconds."""

    def answer(func: PrimFunc) -> MeasureResult:
        return _result(Status.OK, seconds(func), "", program_hash(func))

    return answer


def _result(status: Status, seconds: float | None, error: str, name: str) -> MeasureResult:
    if status is not Status.OK:
        return MeasureResult(status, error, program_hash=name)
    timing = None if seconds is None else Timing(seconds, seconds)
    return MeasureResult(status, timing=timing, program_hash=name)


@dataclass(frozen=True)
class ReplayJob:
    """A workload whose programs are answered for."""

    func: PrimFunc
    baseline: MeasureResult
    baseline_trace: Trace

    def close(self) -> None:
        """Nothing is held."""


class ReplayPool:
    """See `measure.pool.Pool`. `device` is whose measurements the answers stand for; `seconds` how
    long each candidate of `measure` takes to be answered, for what needs a pool to take time."""

    elsewhere = True
    """Nothing is timed: see `pool.measures_elsewhere`."""

    def __init__(self, device: Device, answer: Answer, seconds: float = 0.0) -> None:
        self.device = device
        self.answer = answer
        self.seconds = seconds

    def open_job(self, func: PrimFunc, seed: int | None = None) -> ReplayJob:
        """See `Pool.open_job`; the baseline too is answered for."""
        trace = memory_order(func)
        return ReplayJob(func, self._measured(func, trace), trace)

    def measure(
        self,
        job: ReplayJob,
        traces: Sequence[Trace],
        best_seconds: float | None = None,
        on_results: OnResults | None = None,
        cancel: threading.Event | None = None,
    ) -> list[MeasureResult]:
        """See `Pool.measure`."""
        cancel = cancel or threading.Event()
        results: list[MeasureResult] = []
        due = time.perf_counter()
        for place, trace in enumerate(traces):
            if cancel.is_set():
                result = MeasureResult(Status.CANCELLED, "cancelled before it was answered")
            else:
                result = self._measured(job.func, trace)
                # What answering took is part of the time, so that the rate is what was asked for.
                due = max(due + self.seconds, time.perf_counter())
                cancel.wait(due - time.perf_counter())
            results.append(result)
            if on_results is not None:
                on_results([(place, result)])
        return results

    def remeasure(
        self,
        job: ReplayJob,
        traces: Sequence[Trace],
        rounds: int = 10,
        cancel: threading.Event | None = None,
    ) -> list[MeasureResult]:
        """See `Pool.remeasure`: the same answers again."""
        return ReplayPool(self.device, self.answer).measure(job, traces, cancel=cancel)

    def close(self) -> None:
        """Nothing is held."""

    def _measured(self, func: PrimFunc, trace: Trace) -> MeasureResult:
        try:
            scheduled = trace.apply(func).func
        except AutoschedError as e:
            return MeasureResult(Status.INSTANTIATION_ERROR, str(e))
        return self.answer(scheduled)
