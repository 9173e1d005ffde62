"""Devices that exist in this process only, for the dispatcher's tests and benchmarks.

They take as long for a candidate as they are told to, and answer as a slot's worker does: that they
have begun, then answers together twice a second, then the end.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from measure.registry import Hello, Sighting
from measure.status import MeasureResult
from measure.transport import Ended, Event, Listing, Message
from measure.wire import JsonDict, encode_hello, encode_result

ROSTER_SECONDS = 1.0

Measure = Callable[[JsonDict, str], MeasureResult]
"""The result of a candidate: from its job and its trace in JSON."""
Baseline = Callable[[JsonDict], tuple[MeasureResult, str]]
"""The baseline of a job and its trace in JSON."""


class SimulatedTransport:
    """See `measure.transport.Transport`.

    `devices` maps names to what each says of itself. A candidate takes `seconds_each`; a message is
    under way for `latency`. `busy_seconds` is what all devices together were at work.
    """

    def __init__(
        self,
        devices: Mapping[str, Hello],
        measure: Measure,
        baseline: Baseline,
        seconds_each: float,
        latency: float = 0.001,
        label: str = "simulated",
    ) -> None:
        self.busy_seconds = 0.0
        self._devices = dict(devices)
        self._measure, self._baseline = measure, baseline
        self._each, self._latency = seconds_each, latency
        self._label = label
        self._due: list[tuple[float, int, Event]] = []
        self._order = itertools.count()
        self._stopped: set[int] = set()
        self._listed = 0.0

    def send(self, batch: int, address: str, label: str, request: JsonDict) -> None:
        """See `Transport.send`."""
        now = time.monotonic() + self._latency
        self._post(now, batch, {})
        if request["kind"] == "check":
            self._post(now, batch, {"hello": encode_hello(self._devices[address])})
            end = now
        elif request["kind"] == "open":
            result, trace = self._baseline(request["job"])
            value = {"result": encode_result(result), "trace": trace}
            self._post(now, batch, {"answers": [(0, value)]})
            end = now
        else:
            end = self._work(batch, request, now)
        self._at(end + self._latency, Ended(batch, None))

    def _work(self, batch: int, request: JsonDict, now: float) -> float:
        """Plan the answers to a batch; when the last is given."""
        job, items, every = request["job"], request["items"], request["flush_seconds"]
        together: list[tuple[int, JsonDict]] = []
        said = now
        for n, (item, trace) in enumerate(items, 1):
            together.append((item, encode_result(self._measure(job, trace))))
            then = now + n * self._each
            if then - said >= every or n == len(items):
                self._post(then, batch, {"answers": together})
                together, said = [], then
        self.busy_seconds += len(items) * self._each
        return now + len(items) * self._each

    def stop(self, batch: int, address: str, forget: bool) -> None:
        """See `Transport.stop`: the batch is measured to its end, and not told of."""
        self._stopped.add(batch)

    def receive(self, seconds: float) -> list[Event]:
        """See `Transport.receive`."""
        now = time.monotonic()
        if self._due and seconds > 0 and now < self._listed + ROSTER_SECONDS:
            time.sleep(max(0.0, min(seconds, self._due[0][0] - now)))
            now = time.monotonic()
        out: list[Event] = []
        if now >= self._listed + ROSTER_SECONDS:
            self._listed = now
            seen = {name: Sighting(self._label, name, 0.0) for name in self._devices}
            out.append(Listing(seen))
        while self._due and self._due[0][0] <= now:
            out.append(heapq.heappop(self._due)[2])
        return out

    def close(self) -> None:
        """See `Transport.close`."""
        self._due.clear()

    def _post(self, then: float, batch: int, more: JsonDict) -> None:
        if batch not in self._stopped:
            body: Any = {"batch": batch, "answers": [], "unfit": [], "hello": None} | more
            self._at(then, Message(body))

    def _at(self, then: float, event: Event) -> None:
        heapq.heappush(self._due, (then, next(self._order), event))
