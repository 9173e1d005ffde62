"""A pool of devices on many machines: the dispatcher, driven by a transport."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from autosched.codegen.build import toolchain
from autosched.errors import MeasureError
from autosched.schedule import Trace
from autosched.target import Target
from autosched.tir.canonical import workload_key
from autosched.tir.nodes import PrimFunc
from measure.devices import Device
from measure.dispatch import Answer, Check, Dispatcher, Limits, Lost, Outcome, Send, Stop
from measure.pool import OnResult
from measure.registry import DeviceStatus, Registry
from measure.status import Distribution, MeasureResult, Status
from measure.transport import Disconnected, Ended, Event, Listing, Transport
from measure.wire import (
    JsonDict,
    WireError,
    decode_distribution,
    decode_hello,
    decode_result,
    decode_trace,
    is_count,
    is_list,
    shortened,
)

LOOK_SECONDS = 0.1
"""How soon a cancellation is noticed."""
SETTLE_SECONDS = 1.5
"""For how long after the first device others are waited for, before one kind is chosen."""

Decode = Callable[[int, Any], Any]
"""Checks the answer to an item; raises WireError."""


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


class ClusterPool:
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
        self.address = address
        self.elsewhere = False
        self.seed = seed
        self._target = None if target is None else Target(target)
        self._wait_seconds = wait_seconds
        self._registry = Registry(label, toolchain())
        self._registry.fingerprint = fingerprint
        self._dispatcher = Dispatcher(self._registry, limits)
        self._device: Device | None = None
        self._request: Callable[[Send], JsonDict] | None = None
        self._decode: Decode | None = None
        if transport is None:
            from measure.cluster_settings import is_loopback, require_dask

            require_dask()
            # On this machine workers may run, which nothing may disturb.
            self.elsewhere = not is_loopback(urlsplit(address).hostname or "localhost")
            from measure.dask_transport import DaskTransport

            folder = None if tls_dir is None else Path(tls_dir)
            transport = DaskTransport(address, folder)
        self._transport = transport

    def __enter__(self) -> ClusterPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def device(self) -> Device:
        """The kind of device that is measured on; waits for the first one.

        Raises MeasureError if none is ready in time, or if several kinds are.
        """
        if self._device is None:
            end = time.monotonic() + self._wait_seconds
            while not self._registry.workforce and time.monotonic() < end:
                self._step(LOOK_SECONDS)
            settled = time.monotonic() + SETTLE_SECONDS
            while self._registry.settling and time.monotonic() < settled:
                self._step(LOOK_SECONDS)
            self._device = self._registry.choose()
        return self._device

    @property
    def target(self) -> Target:
        """What jobs are built for: as given, or the device's own. Raises MeasureError."""
        if self._target is None:
            fingerprint = self.device.fingerprint
            found = {d.target for d in self._registry.listing() if d.fingerprint == fingerprint} - {
                ""
            }
            self._target = Target(sorted(found)[0])
        return self._target

    def devices(self) -> tuple[DeviceStatus, ...]:
        """Every device that was seen, with its state and faults, as of now."""
        self._step(0.0)
        return self._registry.listing()

    @property
    def limits(self) -> Limits:
        """Sizes of batches, and patience."""
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
        spec = {
            "key": uuid.uuid4().hex,
            "script": func.script(),
            "workload_key": workload_key(func),
            "seed": self.seed if seed is None else seed,
            "target": str(self.target),
        }
        request: JsonDict = {"kind": "open", "job": spec}
        (outcome,) = self._call(1, lambda _: request, _decode_open)
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
        on_result: OnResult | None = None,
        cancel: threading.Event | None = None,
    ) -> list[MeasureResult]:
        """See `Pool.measure`; results come in any order, many at a time."""
        results: dict[int, MeasureResult] = {}
        best = best_seconds

        def request(send: Send) -> JsonDict:
            items = [(item, traces[item].to_json()) for item in send.items]
            return {"kind": "measure", "job": job.spec, "items": items, "best_seconds": best}

        def on_outcome(item: int, outcome: Outcome) -> None:
            nonlocal best
            result = results[item] = _result(outcome)
            if result.seconds is not None:
                best = min(result.seconds, best or result.seconds)
            if on_result is not None:
                on_result(item, result)

        self._call(len(traces), request, lambda _, raw: decode_result(raw), on_outcome, cancel)
        return [results[n] for n in range(len(traces))]

    def remeasure(
        self,
        job: ClusterJob,
        traces: Sequence[Trace],
        rounds: int = 10,
        cancel: threading.Event | None = None,
    ) -> list[Distribution]:
        """See `Pool.remeasure`: all of it on one device, since its turns are compared."""
        if not traces:
            return []
        request: JsonDict = {
            "kind": "remeasure",
            "job": job.spec,
            "traces": [t.to_json() for t in traces],
            "rounds": rounds,
        }

        def decode(_: int, raw: Any) -> list[Distribution]:
            timings: Any = raw.get("timings") if isinstance(raw, dict) else None
            if not is_list(timings) or len(timings) != len(traces):
                raise WireError(f"expected timings of {len(traces)} finalists")
            return [decode_distribution(t) for t in timings]

        (outcome,) = self._call(1, lambda _: request, decode, cancel=cancel)
        if isinstance(outcome, Answer):
            found: list[Distribution] = outcome.value
            return found
        status = Status.DEVICE_LOST if isinstance(outcome, Lost) else Status.CANCELLED
        return [Distribution(status, _why(outcome)) for _ in traces]

    def close(self) -> None:
        """See `Pool.close`; the workers stay, for others."""
        self._dispatcher.cancel()
        self._carry_out()
        self._transport.close()

    # Driving the dispatcher -------------------------------------------------------------------

    def _call(
        self,
        count: int,
        request: Callable[[Send], JsonDict],
        decode: Decode,
        on_outcome: Callable[[int, Outcome], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> list[Outcome]:
        """Have `count` items decided; the outcomes in order. Raises MeasureError if for
        `wait_seconds` no device is able to work."""
        self.device  # noqa: B018 - chooses a kind
        outcomes: dict[int, Outcome] = {}
        dispatcher = self._dispatcher
        self._step(0.0)
        dispatcher.begin(count)
        self._request, self._decode = request, decode
        able = time.monotonic()
        try:
            while len(outcomes) < count:
                if cancel is not None and cancel.is_set():
                    dispatcher.cancel()
                self._step(0.0 if dispatcher.done else LOOK_SECONDS)
                for item, outcome in dispatcher.take():
                    outcomes[item] = outcome
                    if on_outcome is not None:
                        on_outcome(item, outcome)
                now = time.monotonic()
                if self._registry.workforce:
                    able = now
                elif now - able > self._wait_seconds and len(outcomes) < count:
                    raise MeasureError(
                        f"no device of the pool could work for {now - able:.0f} s; "
                        f"{count - len(outcomes)} of {count} are left\n{self._registry.describe()}"
                    )
        finally:
            # After an interrupt, or an error of the caller's, nobody waits for the rest.
            dispatcher.cancel()
            self._carry_out()
            self._request = self._decode = None
        return [outcomes[n] for n in range(count)]

    def _step(self, seconds: float) -> None:
        """Send what is to be sent, and take in what has happened."""
        self._carry_out()
        for event in self._transport.receive(seconds):
            self._handle(event, time.monotonic())
        self._carry_out()

    def _carry_out(self) -> None:
        for command in self._dispatcher.commands(time.monotonic()):
            device = self._registry[command.name]
            if isinstance(command, Stop):
                self._transport.stop(command.batch, device.address, command.forget)
            elif isinstance(command, Check):
                request: JsonDict = {"kind": "check"}
                self._transport.send(command.batch, device.address, device.label, request)
            else:
                assert self._request is not None
                request = self._request(command)
                self._transport.send(command.batch, device.address, device.label, request)

    def _handle(self, event: Event, now: float) -> None:
        dispatcher = self._dispatcher
        if isinstance(event, Listing):
            dispatcher.roster(event.seen, now)
        elif isinstance(event, Disconnected):
            dispatcher.disconnected(event.why, now)
        elif isinstance(event, Ended):
            dispatcher.ended(event.batch, event.error, now)
        else:
            self._read(event.body, now)

    def _read(self, body: Any, now: float) -> None:
        """A worker's message. What is malformed counts against the batch that it claims."""
        batch = body.get("batch") if isinstance(body, dict) else None
        if not isinstance(batch, int):
            return  # nobody's: the batch that it was of will be missed
        dispatcher = self._dispatcher
        dispatcher.beat(batch, now)
        try:
            answers, unfit, hello = (body.get(k) for k in ("answers", "unfit", "hello"))
            wanted = self._decode is not None and dispatcher.wants(batch)
            for item, raw in _pairs(answers):
                value = self._decode(item, raw) if self._decode and wanted else None
                dispatcher.answer(batch, item, value, now)
            for item, why in _pairs(unfit):
                dispatcher.unfit(batch, item, shortened(str(why)), now)
            if hello is not None:
                dispatcher.passed(batch, decode_hello(hello), now)
        except WireError as e:
            dispatcher.garbage(batch, str(e), now)


def _pairs(raw: Any) -> list[tuple[int, Any]]:
    """A list of (item, value). Raises WireError."""
    if not is_list(raw):
        raise WireError(f"expected a list of answers, found {type(raw).__name__}")
    for pair in raw:
        if not is_list(pair) or len(pair) != 2 or not is_count(pair[0]):
            raise WireError(f"expected an item and its answer, found {repr(pair)[:80]}")
    return [(item, value) for item, value in raw]


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
        return replace(found, retries=found.retries + outcome.retries)
    if isinstance(outcome, Lost):
        return MeasureResult(Status.DEVICE_LOST, _why(outcome), retries=outcome.attempts - 1)
    return MeasureResult(Status.CANCELLED, "cancelled before it was measured")
