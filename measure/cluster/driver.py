"""Drives a pool's dispatcher by a transport, in a thread of its own while a call is under way.

So nothing that is done with results (a commit may wait for a disk) keeps devices waiting, and what
comes meanwhile is handed over together.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from autosched.errors import MeasureError
from measure.cluster.dispatch import Dispatcher
from measure.cluster.orders import Check, Outcome, Send, Stop
from measure.cluster.registry import DeviceStatus, Registry
from measure.cluster.transport import Disconnected, Ended, Event, Listing, Transport
from measure.cluster.wire import (
    JsonDict,
    OtherProtocol,
    WireError,
    decode_hello,
    is_count,
    is_list,
    shortened,
)

LOOK_SECONDS = 0.1
"""How soon a cancellation is noticed."""
TOGETHER_SECONDS = 0.05
"""How long what is decided may wait for more to be handed over with it."""
MOST_TOGETHER = 1000
"""So what a crash loses before it was committed, and how long others wait, has a bound."""

Decode = Callable[[int, Any], Any]
"""Checks the answer to an item; raises WireError."""
Decided = Sequence[tuple[int, Outcome]]
OnDecided = Callable[[Decided], None]
"""Takes items and their outcomes, at least one."""


class NoEligibleDevice(MeasureError):
    """For a long time no device of a pool could work."""


@dataclass
class _Call:
    """What the thread works on, and what it hands over. `more` guards the latter."""

    count: int
    request: Callable[[Send], JsonDict]
    decode: Decode
    cancel: threading.Event
    over: threading.Event = field(default_factory=threading.Event)
    more: threading.Condition = field(default_factory=threading.Condition)
    decided: list[tuple[int, Outcome]] = field(default_factory=list)
    error: BaseException | None = None
    taken: int = 0

    def hand_over(self, found: Decided, error: BaseException | None = None) -> None:
        with self.more:
            self.decided += found
            self.error = error
            self.more.notify()

    def take(self) -> list[tuple[int, Outcome]]:
        """What was decided since the last time, at least one. Raises what went wrong."""
        with self.more:
            self.more.wait_for(lambda: self.decided or self.error)
            if self.taken:
                self.more.wait_for(self._complete, TOGETHER_SECONDS)
            found = self.decided[:MOST_TOGETHER]
            del self.decided[:MOST_TOGETHER]
            self.taken += len(found)
        if not found:
            assert self.error is not None
            raise self.error
        return found

    def _complete(self) -> bool:
        return self.error is not None or self.taken + len(self.decided) == self.count


class Driver:
    """One call at a time, made by one thread. `wait_seconds`: how long no device may be able to
    work before a call fails."""

    def __init__(self, dispatcher: Dispatcher, transport: Transport, wait_seconds: float) -> None:
        self._dispatcher, self._transport = dispatcher, transport
        self._registry: Registry = dispatcher.registry
        self._wait_seconds = wait_seconds
        self._call: _Call | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        """Held while the dispatcher and its registry change."""

    def listing(self) -> tuple[DeviceStatus, ...]:
        """Every device that was seen, as of now."""
        if self._call is None:
            self.step(0.0)
        return self.snapshot()

    def snapshot(self) -> tuple[DeviceStatus, ...]:
        """Every device as it was last known; from any thread."""
        with self._lock:
            return self._registry.listing()

    def drain(self, names: Collection[str]) -> None:
        """Have these devices, and no others, take no more work (`Dispatcher.drain`)."""
        with self._lock:
            self._dispatcher.drain(names)

    def run(
        self,
        count: int,
        request: Callable[[Send], JsonDict],
        decode: Decode,
        on_decided: OnDecided | None = None,
        cancel: threading.Event | None = None,
    ) -> list[Outcome]:
        """Have `count` items decided; the outcomes in order. `on_decided` is called in this thread.

        Raises NoEligibleDevice if for `wait_seconds` no device is able to work, MeasureError.
        """
        self._end()  # an interrupt may have left it behind
        self.step(0.0)
        # A single thing is opening a job, or a timing of all finalists.
        self._dispatcher.begin(count, alike=on_decided is not None)
        outcomes: dict[int, Outcome] = {}
        call = self._call = _Call(count, request, decode, cancel or threading.Event())
        self._thread = threading.Thread(
            target=self._drive, args=(call,), name="autosched-dispatch", daemon=True
        )
        self._thread.start()
        try:
            while len(outcomes) < count:
                found = call.take()
                outcomes.update(found)
                if on_decided is not None:
                    on_decided(found)
        finally:
            # After an interrupt, or an error of the caller's, nobody waits for the rest.
            self._end()
        return [outcomes[n] for n in range(count)]

    def step(self, seconds: float) -> None:
        """Send what is to be sent, and take in what has happened. Not while a call is under way."""
        with self._lock:
            self._carry_out()
        events = self._transport.receive(seconds)
        now = time.monotonic()
        with self._lock:
            for event in events:
                self._handle(event, now)
            self._carry_out()

    def close(self) -> None:
        """Give everything up. Harmless when repeated."""
        self._end()
        self._dispatcher.cancel()
        self._carry_out()
        self._transport.close()

    def _end(self) -> None:
        """End the thread, and the call with it."""
        if self._thread is not None:
            assert self._call is not None
            self._call.over.set()
            self._thread.join()
        self._thread = self._call = None

    def _drive(self, call: _Call) -> None:
        try:
            try:
                self._pursue(call)
            finally:
                with self._lock:
                    self._dispatcher.cancel()
                    self._carry_out()
        except BaseException as e:
            call.hand_over((), e)  # and raised by whoever waits
        else:
            # Who is given what was decided closed the pool: nothing more will come.
            call.hand_over((), MeasureError("the pool was closed while it measured"))

    def _pursue(self, call: _Call) -> None:
        dispatcher, left = self._dispatcher, call.count
        able = time.monotonic()
        while left and not call.over.is_set():
            if call.cancel.is_set():
                dispatcher.cancel()
            self.step(0.0 if dispatcher.done else LOOK_SECONDS)
            if found := dispatcher.take():
                left -= len(found)
                call.hand_over(found)
            now = time.monotonic()
            if self._registry.workforce:
                able = now
            elif now - able > self._wait_seconds and left:
                raise NoEligibleDevice(
                    f"no device of the pool could work for {now - able:.0f} s; "
                    f"{left} of {call.count} are left\n{self._registry.describe()}"
                )

    def _carry_out(self) -> None:
        for command in self._dispatcher.commands(time.monotonic()):
            device = self._registry[command.name]
            if isinstance(command, Stop):
                self._transport.stop(command.batch, device.address, command.forget)
                continue
            request: JsonDict = {"kind": "check"}
            if not isinstance(command, Check):
                assert self._call is not None
                request = self._call.request(command)
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
        """A worker's message. What is malformed counts against the batch that it claims, and of
        such a message nothing is believed."""
        batch = body.get("batch") if isinstance(body, dict) else None
        if not isinstance(batch, int):
            return  # nobody's: the batch that it was of will be missed
        dispatcher = self._dispatcher
        dispatcher.beat(batch, now)
        try:
            found, unfit, hello = (body.get(k) for k in ("answers", "unfit", "hello"))
            answers = _pairs(found)
            if self._call is not None and dispatcher.wants(batch):
                decode = self._call.decode
                answers = [(item, decode(item, raw)) for item, raw in answers]
            faults = [(item, shortened(str(why))) for item, why in _pairs(unfit)]
            met = None if hello is None else decode_hello(hello)
        except OtherProtocol as e:
            dispatcher.foreign(batch, str(e), now)
            return
        except WireError as e:
            dispatcher.garbage(batch, str(e), now)
            return
        if answers:
            dispatcher.answers(batch, answers, now)
        for item, why in faults:
            dispatcher.unfit(batch, item, why, now)
        if met is not None:
            dispatcher.passed(batch, met, now)


def _pairs(raw: Any) -> list[tuple[int, Any]]:
    """A list of (item, value). Raises WireError."""
    if not is_list(raw):
        raise WireError(f"expected a list of answers, found {type(raw).__name__}")
    for pair in raw:
        if not is_list(pair) or len(pair) != 2 or not is_count(pair[0]):
            raise WireError(f"expected an item and its answer, found {repr(pair)[:80]}")
    return [(item, value) for item, value in raw]
