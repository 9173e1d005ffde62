"""A pool of devices on many machines: the dispatcher, driven by a transport."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from autosched.checks import instance, path_text, text
from autosched.closing import Closing
from autosched.codegen.build import toolchain
from autosched.errors import MeasureError
from autosched.extras import require
from autosched.integers import integer
from autosched.schedule import Trace
from autosched.target import Target
from autosched.tir.canonical import workload_key
from autosched.tir.nodes import PrimFunc
from measure.cluster.dispatch import Dispatcher
from measure.cluster.driver import LOOK_SECONDS, Decided, Driver, NoEligibleDevice
from measure.cluster.flights import Limits
from measure.cluster.orders import Answer, Lost, Outcome, Send
from measure.cluster.registry import DeviceStatus, Registry
from measure.cluster.transport import Transport
from measure.cluster.wire import (
    JsonDict,
    WireError,
    decode_result,
    decode_trace,
    is_list,
    shortened,
)
from measure.devices import Device
from measure.pool import OnResults
from measure.status import MeasureResult, Status
from measure.verify.given import given_inputs

SETTLE_SECONDS = 1.5
"""For how long after the first device others are waited for, before one kind is chosen."""
FLUSH_SECONDS = 0.5, 2.0
"""How often a device sends its answers at most and at least, according to how many there are."""
MOST_MESSAGES = 500
"""Messages a second that all devices together should send: each costs some of this process."""


@dataclass(frozen=True)
class ClusterJob:
    """What `ClusterPool.open_job` gives; see `measure.pool.JobHandle`. Workers open it on their
    own when they first get a batch of it, and keep the last few."""

    func: PrimFunc
    spec: JsonDict
    baseline: MeasureResult
    baseline_trace: Trace

    def close(self) -> None:
        """Nothing is held here."""


class ClusterPool(Closing):
    """Slots of one kind, measured on at the same time; see `measure.pool.Pool`. A context manager.

    `address` is the scheduler's, "tls://host:port" with `tls_dir` the folder of certificates, or
    "tcp://127.0.0.1:port" on this machine. `label` chooses among differently labelled workers and
    `fingerprint` among kinds of devices; both may be left out where there is but one. `target`:
    what jobs are built for (None: the device's own, see `target`). `wait_seconds`: how long to wait
    for a device that is ready, at the start and whenever all are gone. Raises MeasureError if the
    scheduler cannot be reached.
    """

    def __init__(
        self,
        address: str,
        label: str | None = None,
        tls_dir: Path | str | None = None,
        fingerprint: str | None = None,
        target: Target | str | None = None,
        seed: int = 0,
        wait_seconds: float = 60.0,
        limits: Limits | None = None,
        transport: Transport | None = None,
    ) -> None:
        address = text("address", address, MeasureError)
        for name, value in (("label", label), ("fingerprint", fingerprint)):
            instance(name, value, (str, type(None)), "a text or None", MeasureError)
        instance("limits", limits, (Limits, type(None)), "a flights.Limits", MeasureError)
        folder = None if tls_dir is None else Path(path_text("tls_dir", tls_dir, MeasureError))
        self.address = address
        self.elsewhere = False
        self.several = True  # devices: TuningOptions gives such a pool larger rounds
        self.seed = integer("seed", seed, 0, MeasureError)
        self._target = None if target is None else Target(target)
        self._wait_seconds = wait_seconds
        self._registry = Registry(label, toolchain())
        self._registry.fingerprint = fingerprint
        self._dispatcher = Dispatcher(self._registry, limits)
        self._device: Device | None = None
        self._deserted = ""  # why the finalists were given up that were asked for last
        if transport is None:
            require("a pool of other machines", "distributed")
            from measure.cluster.settings import is_loopback

            # On this machine workers may run, which nothing may disturb.
            self.elsewhere = not is_loopback(urlsplit(address).hostname or "localhost")
            from measure.cluster.dask_transport import DaskTransport

            transport = DaskTransport(address, folder)
        self._driver = Driver(self._dispatcher, transport, wait_seconds)

    @property
    def device(self) -> Device:
        """The kind of device that is measured on; waits for the first one.

        Raises MeasureError if none is ready in time (at once if those that are there cannot be
        used), or if several kinds are.
        """
        if self._device is None:
            end = time.monotonic() + self._wait_seconds
            while not self._registry.workforce and time.monotonic() < end:
                self._driver.step(LOOK_SECONDS)
                if self._registry.hopeless:
                    break
            settled = time.monotonic() + SETTLE_SECONDS
            while self._registry.settling and time.monotonic() < settled:
                self._driver.step(LOOK_SECONDS)
            self._device = self._registry.choose()
        return self._device

    @property
    def target(self) -> Target:
        """What jobs are built for: as given, or the device's own. Raises MeasureError."""
        if self._target is None:
            fingerprint = self.device.fingerprint
            known = [d for d in self._registry.listing() if d.fingerprint == fingerprint]
            self._target = Target(min(d.target for d in known if d.target))
        return self._target

    def devices(self) -> tuple[DeviceStatus, ...]:
        """Every device that was seen, with its state and faults, as of now."""
        return self._driver.listing()

    def snapshot(self) -> tuple[DeviceStatus, ...]:
        """Every device that was seen, as it was last known, without looking; from any thread."""
        return self._driver.snapshot()

    def drain(self, names: Collection[str]) -> None:
        """Have the devices of these names, and no others, take no more work, from now on or from
        when they join. Each finishes the candidate that it is at. From any thread."""
        self._driver.drain(names)

    @property
    def limits(self) -> Limits:
        """Sizes of batches, and wait budgets."""
        return self._dispatcher.limits

    @property
    def settling(self) -> bool:
        """Whether devices have joined that are not checked yet."""
        return self._registry.settling

    @property
    def counters(self) -> dict[str, int]:
        """Batches, answers, repeats, late and dropped answers since the pool was opened."""
        return dict(vars(self._dispatcher.counters))

    def open_job(self, func: PrimFunc, seed: int | None = None) -> ClusterJob:
        """See `Pool.open_job`: one of the devices does it, to see that it can be done."""
        if given_inputs(workload_key(func)):
            raise MeasureError(
                f"{func.name} was given task_inputs, which stay in this process; a cluster's "
                "workers make their own: measure in a local pool, or give none"
            )
        spec = {
            "key": uuid.uuid4().hex,
            "script": func.script(),
            "workload_key": workload_key(func),
            "seed": self.seed if seed is None else integer("seed", seed, 0, MeasureError),
            "target": str(self.target),
        }
        request: JsonDict = {"kind": "open", "job": spec}
        self.device  # noqa: B018 - chooses a kind
        self._deserted = ""
        (outcome,) = self._driver.run(1, lambda _: request, _decode_open)
        if not isinstance(outcome, Answer):
            raise MeasureError(f"no device could open the job of {func.name}: {_why(outcome)}")
        if isinstance(outcome.value, str):
            raise MeasureError(outcome.value)
        baseline, trace = outcome.value
        return ClusterJob(func, spec, baseline, trace)

    def measure(
        self,
        job: ClusterJob,
        traces: Sequence[Trace],
        best_seconds: float | None = None,
        on_results: OnResults | None = None,
        cancel: threading.Event | None = None,
    ) -> list[MeasureResult]:
        """See `Pool.measure`; results come in any order, many at a time. What `on_results` does
        keeps no device waiting."""
        results: dict[int, MeasureResult] = {}
        best = best_seconds
        self.device  # noqa: B018 - chooses a kind

        def request(send: Send) -> JsonDict:
            items = [(item, traces[item].to_json()) for item in send.items]
            return {
                "kind": "measure",
                "job": job.spec,
                "items": items,
                "best_seconds": best,
                "flush_seconds": self._flush_seconds(),
            }

        def on_decided(decided: Decided) -> None:
            nonlocal best
            found = [(item, _result(outcome)) for item, outcome in decided]
            results.update(found)
            times = [r.seconds for _, r in found if r.seconds is not None]
            best = min((best, *times)) if best else min(times, default=None)
            if on_results is not None:
                on_results(found)

        self._driver.run(
            len(traces), request, lambda _, raw: decode_result(raw), on_decided, cancel
        )
        return [results[n] for n in range(len(traces))]

    def _flush_seconds(self) -> float:
        often, seldom = FLUSH_SECONDS
        return min(seldom, max(often, self._registry.workforce / MOST_MESSAGES))

    def remeasure(
        self,
        job: ClusterJob,
        traces: Sequence[Trace],
        rounds: int = 10,
        cancel: threading.Event | None = None,
    ) -> list[MeasureResult]:
        """See `Pool.remeasure`: all of it on one device, since its blocks are compared. Where for
        long there is none all finalists are lost: what they took as trials is known, after all. Who
        then asks again does not wait again for the first one."""
        if not traces:
            return []
        request: JsonDict = {
            "kind": "remeasure",
            "job": job.spec,
            "traces": [t.to_json() for t in traces],
            "rounds": rounds,
        }

        def decode(_: int, raw: Any) -> list[MeasureResult]:
            timings: Any = raw.get("timings") if isinstance(raw, dict) else None
            if not is_list(timings) or len(timings) != len(traces):
                raise WireError(f"expected timings of {len(traces)} finalists")
            return [decode_result(t) for t in timings]

        self.device  # noqa: B018 - chooses a kind
        if self._deserted:
            self._driver.step(LOOK_SECONDS)
            if not self._registry.workforce:
                return [MeasureResult(Status.DEVICE_LOST, self._deserted) for _ in traces]
        self._deserted = ""
        try:
            (outcome,) = self._driver.run(1, lambda _: request, decode, cancel=cancel)
        except NoEligibleDevice as e:
            self._deserted = str(e)
            return [MeasureResult(Status.DEVICE_LOST, str(e)) for _ in traces]
        if isinstance(outcome, Answer):
            found: list[MeasureResult] = outcome.value
            return found
        status = Status.DEVICE_LOST if isinstance(outcome, Lost) else Status.CANCELLED
        return [MeasureResult(status, _why(outcome)) for _ in traces]

    def close(self) -> None:
        """See `Pool.close`; the workers stay, for others."""
        self._driver.close()


def _decode_open(_: int, raw: Any) -> str | tuple[MeasureResult, Trace]:
    """What came of opening a job: what is wrong with it, or its baseline."""
    if isinstance(raw, dict) and raw.keys() == {"error"} and isinstance(raw["error"], str):
        return shortened(raw["error"])
    if not isinstance(raw, dict) or raw.keys() != {"result", "trace"}:
        raise WireError("expected a baseline and its trace")
    return decode_result(raw["result"]), decode_trace(raw["trace"])


def _why(outcome: Outcome) -> str:
    if isinstance(outcome, Lost):
        return f"its device was lost {outcome.attempts} times; the last time {outcome.why}"
    return "cancelled"


def _result(outcome: Outcome) -> MeasureResult:
    if isinstance(outcome, Answer):
        found: MeasureResult = outcome.value
        if outcome.retries:
            found = replace(found, retries=found.retries + outcome.retries)
        return found
    if isinstance(outcome, Lost):
        return MeasureResult(Status.DEVICE_LOST, _why(outcome), retries=outcome.attempts - 1)
    return MeasureResult(Status.CANCELLED, "cancelled before it was measured")
