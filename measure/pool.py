"""What every pool of devices offers: the one way to measure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from autosched.schedule import Trace
from autosched.tir.nodes import PrimFunc
from measure.devices import Device
from measure.status import MeasureResult

OnResults = Callable[[Sequence[tuple[int, MeasureResult]]], None]
"""Takes places in the list of candidates and their results, at least one."""


@runtime_checkable
class JobHandle(Protocol):
    """A workload that is being measured: inputs made, reference computed, baseline timed."""

    @property
    def baseline(self) -> MeasureResult:
        """Time of the untransformed program, its loops in the order of memory. Not a trial.

        `run_timeout` where that takes too long.
        """
        ...

    @property
    def baseline_trace(self) -> Trace:
        """The schedule of the baseline."""
        ...

    def close(self) -> None:
        """Give up the job's memory. Harmless when repeated."""
        ...


def measures_elsewhere(pool: Pool) -> bool:
    """Whether this process may work while the pool measures, without disturbing what is timed: the
    pool says so by an attribute `elsewhere`; without one it may not."""
    return bool(getattr(pool, "elsewhere", False))


def prepare(pool: Pool) -> None:
    """Have a pool begin with what its first job needs, such as starting processes, if it has a
    method of that name. Nothing is waited for."""
    begin = getattr(pool, "prepare", None)
    if callable(begin):
        begin()


def is_pool(value: object) -> bool:
    """Whether something is an open pool, by its methods: `isinstance` would ask it for its device,
    for which a pool may have to wait, or start processes."""
    names = ("open_job", "measure", "remeasure", "close")
    return not isinstance(value, type) and all(callable(getattr(value, n, None)) for n in names)


@runtime_checkable
class Pool(Protocol):
    """Devices of one kind.

    A failing candidate is a result with a status; MeasureError means that measuring itself failed.
    Every candidate of a call gets exactly one result, at its place in the list. A pool is used by
    one thread; `cancel` may be set by any.
    """

    @property
    def device(self) -> Device:
        """What is measured on; results of different fingerprints never share a ranking."""
        ...

    def open_job(self, func: PrimFunc, seed: int | None = None) -> Any:
        """Make inputs from the workload and `seed`, the reference outputs, and the baseline.

        The reference is computed by a schedule that keeps every element's order of operations
        (`autosched.sketch.reference`), and the baseline is compared with it. Raises MeasureError
        if either does not build or run, or if they disagree.
        """
        ...

    def measure(
        self,
        job: Any,
        traces: Sequence[Trace],
        best_seconds: float | None = None,
        on_results: OnResults | None = None,
        cancel: threading.Event | None = None,
    ) -> list[MeasureResult]:
        """Build, verify and time each candidate.

        `on_results([(place, result), …])` is called in this thread as soon as a result is there,
        with all that have come since the last time, in their order. Candidates that are
        clearly slower than `best_seconds`, or than the best of this call, are timed less often.
        Once `cancel` is set the rest is `cancelled`.
        """
        ...

    def remeasure(
        self,
        job: Any,
        traces: Sequence[Trace],
        rounds: int = 10,
        cancel: threading.Event | None = None,
    ) -> list[MeasureResult]:
        """Time finalists in interleaved blocks, each built at full optimisation, as `build` hands
        it out. One that is clearly behind gets no more blocks."""
        ...

    def close(self) -> None:
        """End all processes and give up all memory. Harmless when repeated."""
        ...
