"""A dispatcher with devices that do as they are told, held against the rules at each step."""

from __future__ import annotations

from typing import Any

from measure.cluster.dispatch import Dispatcher
from measure.cluster.flights import Limits
from measure.cluster.orders import Answer, Check, Command, Outcome, Send, Stop
from measure.cluster.registry import Hello, Registry, Sighting
from measure.devices import Device

DEVICE = Device("made up", "x86_64", 1, (), "none")
HELLO = Hello(DEVICE, "llvm", "tools", 1e-3)
LIMITS = Limits(batch_seconds=4.0, batch_items=8, silence=20.0, stall=100.0, check=50.0)
NAMES = ("a", "b", "c", "d")


class Simulation:
    """A dispatcher, devices that do as they are told by the test, and a record of what was said."""

    def __init__(self, strikes: int = 3) -> None:
        self.registry = Registry("l", "tools", strikes=strikes, rest_seconds=60.0)
        self.dispatcher = Dispatcher(self.registry, LIMITS)
        self.now = 0.0
        self.here: dict[str, int] = {}
        self.reachable = True
        self.sent: dict[int, Command] = {}
        self.at_work: dict[str, list[int]] = {}
        self.answered: dict[int, set[int]] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.first: dict[int, Any] = {}
        self.starts = 0
        self.call = 0
        self.calls: dict[int, int] = {}
        self.void: set[int] = set()

    def begin(self, count: int) -> None:
        self.dispatcher.begin(count)
        self.call += 1
        self.count = count
        self.outcomes, self.first = {}, {}

    def join(self, name: str) -> None:
        self.starts += 1
        self.here[name] = self.starts
        self.at_work[name] = []

    def leave(self, name: str) -> None:
        self.here.pop(name, None)
        self.at_work.pop(name, None)

    def look(self) -> None:
        if self.reachable:
            seen = {n: Sighting("l", f"{n}:{k}", 0.0) for n, k in self.here.items()}
            self.dispatcher.roster(seen, self.now)

    def go(self) -> list[Command]:
        """Carry commands out, holding them against the rules."""
        commands = self.dispatcher.commands(self.now)
        for command in commands:
            if isinstance(command, Stop):
                if command.forget:
                    self.void.add(command.batch)
                continue
            assert command.batch not in self.sent
            self.sent[command.batch] = command
            self.calls[command.batch] = self.call
            self.answered[command.batch] = set()
            if isinstance(command, Send):
                assert 1 <= len(command.items) <= LIMITS.batch_items
                assert len(set(command.items)) == len(command.items)
                assert not set(command.items) & set(self.outcomes), "decided already"
            assert len(self.dispatcher._on[command.name]) <= 2
            if command.name in self.at_work:
                self.at_work[command.name].append(command.batch)
        self.take()
        return commands

    def take(self) -> None:
        for item, outcome in self.dispatcher.take():
            assert item not in self.outcomes, "decided twice"
            self.outcomes[item] = outcome
            if isinstance(outcome, Answer):
                assert outcome.value == (self.call, item, self.first.get(item)), "not the first"

    def answer(self, batch: int, item: int) -> None:
        """One answer; the value says of which call, of what, and by which batch."""
        if self.calls[batch] == self.call and self.dispatcher.wants(batch):
            self.first.setdefault(item, batch)
        self.answered[batch].add(item)
        self.dispatcher.answers(batch, [(item, (self.calls[batch], item, batch))], self.now)
        self.take()

    def serve(self, name: str) -> None:
        """A device does all that it has, as it should."""
        for batch in self.at_work.get(name, []):
            command = self.sent[batch]
            self.dispatcher.beat(batch, self.now)
            if isinstance(command, Check):
                self.dispatcher.passed(batch, HELLO, self.now)
            else:
                assert isinstance(command, Send)
                for item in command.items:
                    if item not in self.answered[batch]:
                        self.answer(batch, item)
            self.dispatcher.ended(batch, None, self.now)
        self.at_work[name] = []
        self.take()

    def heal(self) -> None:
        """All devices are well, and none is drained, from now on; everything has to be decided."""
        self.dispatcher.drain([])
        self.reachable = True
        for name in NAMES:
            self.join(name)
        for _ in range(500):
            self.now += 30.0
            self.look()
            self.go()
            for name in NAMES:
                self.serve(name)
            if self.dispatcher.done:
                break
        self.take()
        assert self.dispatcher.done
        assert sorted(self.outcomes) == list(range(self.count))
