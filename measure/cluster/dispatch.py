"""Who measures what: the dispatcher of a pool of many devices, as a pure state machine.

It does no input or output and reads no clock. A transport tells it what happened, with the time;
`commands` says what to send; `take` gives what is decided. The rules:

- A device has one batch in work, and gets the next shortly before it is through, so that it need
  not wait. What had not begun when its device was lost is put back, blames nobody and is no repeat:
  a worker that dies repeats one batch at most. What waits behind a batch that takes longer than was
  thought is taken back for a device that has nothing to do.
- Each item of a call is decided exactly once: by the first answer to it, or as lost after RETRIES
  more attempts, or as cancelled. Whatever comes later is dropped.
- A batch whose worker went silent is given up and its open items go to others; its answers still
  count if they come first. After a malformed answer nothing of that batch counts any more.
- Items that were lost once go out in smaller batches, and alone the last time: a candidate is
  blamed only for what happened while no other was there. Who was lost time and again before a batch
  was told to have begun is under suspicion as well: else there would be no end to it.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from measure.cluster.flights import Call, Counters, Flight, Limits
from measure.cluster.orders import Answer, Cancelled, Check, Command, Lost, Outcome, Send, Stop
from measure.cluster.registry import Hello, Registry, Sighting, State

RETRIES = 2
SPARED = 3
"""Times that an item may be lost before its batch began, and is not blamed."""
LEAST_ITEMS = 8
USUAL_SECONDS = 0.25
"""What a candidate takes on a device of which nothing is known yet."""
MANY = 100
FIRST_ITEMS = 4
"""What a device gets first where more than `MANY` stand still at once: writing full batches for all
of them takes long, and the next one follows."""
LOOK_SECONDS = 0.5  # between two looks for batches that are overdue


class Dispatcher:
    """See the module. One call (a list of items) at a time."""

    def __init__(self, registry: Registry, limits: Limits | None = None) -> None:
        self.registry = registry
        self.limits = limits or Limits()
        self.counters = Counters()
        self._flights: dict[int, Flight] = {}
        self._given_up: dict[int, Flight] = {}
        self._on: dict[str, list[Flight]] = {}  # what a device has, the one in work first
        self._due: list[tuple[float, int]] = []  # when batches in work want one to follow them
        self._call = Call(0, set(), deque())
        self._decided: list[tuple[int, Outcome]] = []
        self._stops: list[Stop] = []
        self._batches = 0
        self._look_again = -math.inf

    def begin(self, count: int, alike: bool = True) -> None:
        """Start a call of `count` items; what is left of the one before is nobody's any more.

        `alike`: whether they are candidates, by whose times a device's pace is known."""
        self.cancel()
        self._decided = []
        self._given_up.clear()
        self._call = Call(self._call.number + 1, set(range(count)), deque(range(count)), alike)

    @property
    def done(self) -> bool:
        """Whether every item of the call is decided."""
        return not self._call.open

    def cancel(self) -> None:
        """Decide all open items of the call as cancelled."""
        for item in sorted(self._call.open):
            self._decided.append((item, Cancelled()))
        self._call.open.clear()
        for flight in self._flights.values():
            if flight.call == self._call.number and not flight.check and not flight.void:
                self._stops.append(Stop(flight.batch, flight.name, forget=False))
                flight.void = True

    def drain(self, names: Collection[str]) -> None:
        """Have these devices, and no others, take no more work. Each finishes the candidate that it
        is at, and the rest of its batch goes to others; a job's opening and the timing of finalists
        are finished whole."""
        self.registry.drain(names)
        for name in self.registry.drained & self._on.keys():
            for flight in reversed(self._on[name].copy()):
                if flight.check or flight.leaving:
                    continue
                if not flight.started:
                    self._take_back(flight, "its device is drained")
                elif self._call.alike and not flight.void:
                    flight.leaving = True
                    self._stops.append(Stop(flight.batch, name, forget=False))
            if name not in self._on:
                self.registry.working(name, busy=False)

    def take(self) -> list[tuple[int, Outcome]]:
        """What was decided since the last time, in order."""
        out, self._decided = self._decided, []
        return out

    def roster(self, seen: Mapping[str, Sighting], now: float) -> None:
        """The scheduler's listing of workers."""
        for name, why in self.registry.sight(seen, now).items():
            flights = self._on.get(name)
            if not flights:
                continue
            self._unwanted(flights[0])
            if flights[0].check:
                self._forget(flights[0])  # it left before it was asked to do anything
            else:
                self._lose(flights[0], why, now)

    def disconnected(self, why: str, now: float) -> None:
        """Nobody can be reached. No candidate and no device is to blame."""
        for flight in list(self._flights.values()):
            self._give_up(flight, why)
        for device in self.registry.listing():
            if device.state is not State.GONE:
                self.registry.gone(device.name, why)

    def beat(self, batch: int, now: float) -> None:
        """The worker lives and has this batch in work."""
        flight = self._flights.get(batch)
        if flight is not None:
            self.registry[flight.name].last_seen = now
            flight.heard_at = now
            if not flight.started:
                flight.started, flight.moved_at = True, now
                self._want_next(flight)

    def wants(self, batch: int) -> bool:
        """Whether answers of this batch count."""
        return self._wanted(batch) is not None

    def answers(self, batch: int, found: Sequence[tuple[int, Any]], now: float) -> None:
        """Items and their results, checked already."""
        flight = self._wanted(batch)
        if flight is None:
            self.counters.dropped += len(found)
            return
        self.beat(batch, now)
        flight.moved_at = now
        call, mine, name = self._call, flight.items, flight.name
        counted = 0
        for item, value in found:
            first = item in mine and item in call.open
            mine.discard(item)
            if first:
                counted += 1
                self._decide(item, Answer(value, name, call.attempts[item]))
        self.counters.answers += counted
        self.registry[name].trials += counted if call.alike else 0
        self.counters.dropped += len(found) - counted
        self.counters.late += counted if batch in self._given_up else 0

    def unfit(self, batch: int, item: int, why: str, now: float) -> None:
        """The worker says that its device, not the candidate, was at fault."""
        flight = self._wanted(batch)
        if flight is None or item not in flight.items:
            self.counters.dropped += 1
            return
        if batch in self._given_up:
            return  # it was put back already
        self.beat(batch, now)
        flight.items.discard(item)
        self.registry.fault(flight.name, why, now)
        self._again(item, f"{flight.name}: {why}", blame=True)
        for other in [f for f in self._on[flight.name] if not f.started]:
            self._take_back(other, why)  # first the device has to show that it is well

    def garbage(self, batch: int, why: str, now: float) -> None:
        """A message that is not as agreed: nothing of this batch is believed from here on."""
        flight = self._flights.get(batch)
        if flight is not None:
            self._unwanted(flight)
            self._lose(flight, f"its answer is malformed: {why}", now)
        self._given_up.pop(batch, None)

    def passed(self, batch: int, hello: Hello, now: float) -> None:
        """A canary is well."""
        flight = self._flights.get(batch)
        if flight is not None and flight.check:
            self.registry.passed(flight.name, hello, now)

    def foreign(self, batch: int, why: str, now: float) -> None:
        """A canary was answered by a worker that this pool cannot use."""
        flight = self._flights.get(batch)
        if flight is not None and flight.check:
            self.registry.foreign(flight.name, why, now)

    def ended(self, batch: int, error: str | None, now: float) -> None:
        """The transport says that a batch is over, with an error if it went wrong."""
        self._given_up.pop(batch, None)
        flight = self._flights.get(batch)
        if flight is None:
            return
        if error is None and flight.items and not flight.void and not flight.leaving:
            error = f"its worker ended a batch without answers to {len(flight.items)} candidates"
        if error is None and flight.check and self.registry[flight.name].state is State.CHECKING:
            error = "its worker said nothing about the canary"
        if error is not None:
            self._lose(flight, error, now)
            self._given_up.pop(batch, None)
            return
        well = self.registry[flight.name].state is State.BUSY
        self._forget(flight)
        if flight.leaving:
            self._put_back(flight, "its device is drained", blame=False)
        if flight.size:
            self.registry[flight.name].busy_seconds += max(0.0, now - flight.since)
        if flight.size and not flight.void and well:
            size = flight.size - len(flight.items) if self._call.alike else 0
            self.registry.did(flight.name, size, max(0.0, now - flight.since))
        if following := self._on.get(flight.name):
            following[0].since = now
            if following[0].started:  # that it has begun may be told before this
                self._want_next(following[0])
        else:
            self.registry.working(flight.name, busy=False)

    def commands(self, now: float) -> list[Command]:
        """Everything that is to be sent now."""
        if now >= self._look_again:
            self._look_again = now + LOOK_SECONDS
            self._give_up_overdue(now)
            self._free_waiting(now)
        out: list[Command] = [*self._stops]
        self._stops.clear()
        for name in self.registry.unchecked(now, self.limits.silence):
            if name not in self._on:
                self.registry.checking(name)
                out.append(Check(self._launch(name, (), now, check=True), name))
        if self._call.open:
            idle = self._idle()
            most = FIRST_ITEMS if len(idle) > MANY else self.limits.batch_items
            for name in [*idle, *self._soon_through(now)]:
                items = self._pick(name, most)
                if not items:
                    break
                self.registry.working(name, busy=True)
                out.append(Send(self._launch(name, items, now), name, items))
        return out

    def _idle(self) -> list[str]:
        """Devices that have nothing to do and could."""
        return [n for n in self.registry.named(State.READY) if n not in self._on]

    def _soon_through(self, now: float) -> list[str]:
        """Devices that will soon be through with all that they have."""
        out: dict[str, None] = {}
        while self._due and self._due[0][0] <= now:
            flight = self._flights.get(heapq.heappop(self._due)[1])
            if flight is None or self.registry[flight.name].state is not State.BUSY:
                continue
            if self._on[flight.name] != [flight] or flight.void or flight.leaving:
                continue
            if self._wants_next_at(flight) > now:  # thought so before the one ahead of it ended
                continue
            out[flight.name] = None
        return list(out)

    def _want_next(self, flight: Flight) -> None:
        if flight.size:
            heapq.heappush(self._due, (self._wants_next_at(flight), flight.batch))

    def _wants_next_at(self, flight: Flight) -> float:
        return self._expected_end(flight) - self.limits.lead

    def _expected_end(self, flight: Flight) -> float:
        """When a batch will be through, if its candidates take as long as those before."""
        pace = self.registry[flight.name].seconds_each or USUAL_SECONDS
        return flight.since + flight.size * pace

    def _give_up_overdue(self, now: float) -> None:
        for flight in list(self._flights.values()):
            # What is lost takes along what stands behind it.
            why = self._overdue(flight, now) if flight.batch in self._flights else ""
            if why:
                self._unwanted(flight)
                self._lose(flight, why, now)

    def _free_waiting(self, now: float) -> None:
        """Take back what waits behind a batch that takes too long, if others have nothing to do."""
        call = self._call
        if self._drop_decided(call.again) or self._drop_decided(call.fresh):
            return
        idle = len(self._idle())
        for flights in list(self._on.values()) if idle else ():
            late = now - self._expected_end(flights[0]) > self.limits.lead
            if late and len(flights) > 1 and idle:
                idle -= 1
                self._take_back(flights[1], "it waited too long")

    def _pick(self, name: str, most: int) -> tuple[int, ...]:
        """The items of the next batch for a device, `most` at most."""
        call = self._call
        queue = call.again if self._drop_decided(call.again) else call.fresh
        if not self._drop_decided(queue):
            return ()
        tries = call.attempts[queue[0]]
        size = min(most, self._size(name, len(call.again) + len(call.fresh)))
        if tries:
            size = 1 if tries >= RETRIES else max(1, size // 4)
        items: list[int] = []
        while self._drop_decided(queue) and len(items) < size and call.attempts[queue[0]] == tries:
            items.append(queue.popleft())
        return tuple(items)

    def _drop_decided(self, queue: deque[int]) -> bool:
        """Take what was decided meanwhile off the front; whether anything is left."""
        while queue and queue[0] not in self._call.open:
            queue.popleft()
        return bool(queue)

    def _size(self, name: str, waiting: int) -> int:
        """Batches get smaller towards the end of a call, so that all devices end together."""
        pace = self.registry[name].seconds_each or USUAL_SECONDS
        by_time = self.limits.batch_seconds / max(pace, 1e-6)
        if pace < 1.0:
            # A dispatcher that cannot follow makes devices seem slow; smaller batches would make
            # it worse.
            by_time = max(by_time, LEAST_ITEMS)
        by_share = math.ceil(waiting / (2 * max(1, self.registry.workforce)))
        return max(1, int(min(by_time, by_share, self.limits.batch_items)))

    def _launch(self, name: str, items: tuple[int, ...], now: float, check: bool = False) -> int:
        self._batches += 1
        self.counters.batches += not check
        call = self._call
        self.counters.repeats += sum(1 for i in items if call.attempts[i])
        flight = self._flights[self._batches] = Flight(
            self._batches, name, call.number, set(items), now, now, check, size=len(items)
        )
        self._on.setdefault(name, []).append(flight)
        return self._batches

    def _overdue(self, flight: Flight, now: float) -> str:
        """Why a batch is to be given up, empty if it is not."""
        limits = self.limits
        # Before it starts a batch may stand behind one of another pool; then the scheduler's word
        # that the worker lives has to do.
        heard = flight.heard_at
        if not flight.started:
            heard = max(heard, self.registry[flight.name].last_seen)
        if now - heard > limits.silence:
            return f"silent for {now - heard:.0f} s"
        budget = limits.check if flight.check else limits.stall
        if flight.started and now - flight.moved_at > budget:
            return f"no answer for {now - flight.moved_at:.0f} s, though its worker lives"
        return ""

    def _wanted(self, batch: int) -> Flight | None:
        """The batch, None if its answers do not count."""
        flight = self._flights.get(batch) or self._given_up.get(batch)
        if flight is None or flight.void or flight.call != self._call.number:
            return None
        return flight

    def _lose(self, lost: Flight, why: str, now: float) -> None:
        """A batch's device failed it, and with it what else the device has."""
        name = lost.name
        flights = [*self._on[name]]
        self.registry.fault(name, why, now)
        if flights[0].size:
            self.registry[name].busy_seconds += max(0.0, now - flights[0].since)
        for flight in flights:
            if flight is not lost:
                self._unwanted(flight)
            blame = flight.started or (flight is flights[0] and self._suspect(flight))
            self._give_up(flight, f"{name}: {why}", blame)

    def _suspect(self, flight: Flight) -> bool:
        """Whether a batch of the current call that stood first and did not begin has items to whom
        that happened too often."""
        spared = self._call.spared
        if flight.call == self._call.number:
            spared.update(flight.items)
        return any(spared[item] > SPARED for item in flight.items)

    def _unwanted(self, flight: Flight) -> None:
        """Tell its device that nobody waits for it any more."""
        self._stops.append(Stop(flight.batch, flight.name, forget=True))

    def _take_back(self, flight: Flight, why: str) -> None:
        """Have others do what has not begun. Should it have begun just now, its answers count."""
        self._unwanted(flight)
        self._give_up(flight, why)

    def _give_up(self, flight: Flight, why: str, blame: bool = False) -> None:
        """Wait for it no longer, and have others do it; its answers may still come."""
        self._forget(flight)
        if flight.items:
            self._given_up[flight.batch] = flight
        self._put_back(flight, why, blame)

    def _forget(self, flight: Flight) -> None:
        del self._flights[flight.batch]
        self._on[flight.name].remove(flight)
        if not self._on[flight.name]:
            del self._on[flight.name]

    def _put_back(self, flight: Flight, why: str, blame: bool) -> None:
        if flight.call == self._call.number:
            for item in sorted(flight.items):
                self._again(item, why, blame)

    def _again(self, item: int, why: str, blame: bool) -> None:
        """An item needs another attempt, if it has one left."""
        call = self._call
        if item not in call.open:
            return
        if not blame:
            call.again.append(item)
            return
        call.attempts[item] += 1
        if call.attempts[item] > RETRIES:
            self._decide(item, Lost(why, call.attempts[item]))
        else:
            call.again.append(item)

    def _decide(self, item: int, outcome: Outcome) -> None:
        self._call.open.discard(item)
        self._decided.append((item, outcome))
