"""The devices of a pool: what each is, whether it is well, and when it is left alone.

No input or output here: time comes in as an argument (seconds of a monotonic clock), and everything
that happens to a device is a call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass
from enum import StrEnum

from autosched.errors import MeasureError
from measure.devices import Device

STRIKES = 3
"""Faults in a row after which a device is left alone."""
REST_SECONDS = 60.0
"""How long it is left alone the first time; twice as long each time after."""
LONGEST_REST_SECONDS = 3600.0


class State(StrEnum):
    """What a device is doing, as its pool knows it."""

    JOINING = "joining"
    """It is there, or had a fault; its canary kernel has to run before it gets work."""
    CHECKING = "checking"
    """The canary is under way."""
    READY = "ready"
    BUSY = "busy"
    QUARANTINED = "quarantined"
    """Too many faults in a row; it is checked again after a rest."""
    FOREIGN = "foreign"
    """Of another label, fingerprint or toolchain: its times would not compare."""
    DRAINED = "drained"
    """It is well, and is to take no more work."""
    GONE = "gone"


@dataclass(frozen=True)
class Sighting:
    """A worker as the scheduler lists it. `age`: seconds since it was last heard of."""

    label: str
    address: str
    age: float


@dataclass(frozen=True)
class Hello:
    """What a worker says of itself once its canary has passed.

    `canary_seconds` is the time of the canary kernel, `target` the machine's own target in full.
    """

    device: Device
    target: str
    toolchain: str
    canary_seconds: float


@dataclass
class DeviceStatus:
    """A device as its pool knows it; listings hold copies. `faults`: all of them; `strikes`: those
    in a row.

    `why` is the last thing that was wrong. `last_seen` is in seconds of the monotonic clock;
    `seconds_each` is what a candidate takes there, None before the first; `trials` and
    `busy_seconds` are what it has answered in this pool, and how long it was at work.
    """

    name: str
    label: str
    address: str
    state: State
    last_seen: float
    fingerprint: str = ""
    device: Device | None = None
    target: str = ""
    canary_seconds: float | None = None
    seconds_each: float | None = None
    faults: int = 0
    trials: int = 0
    busy_seconds: float = 0.0
    strikes: int = 0
    rests: int = 0
    rest_until: float = 0.0
    why: str = ""


class Registry:
    """All devices that were ever seen, by name. Chooses one label and one fingerprint.

    `label`: work goes to these devices only; None takes the only label there is. `toolchain`: what
    must have built a candidate. A device's name outlives its worker process, and so do its strikes.
    """

    def __init__(
        self,
        label: str | None,
        toolchain: str,
        strikes: int = STRIKES,
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        self.label = label
        self.toolchain = toolchain
        self.fingerprint: str | None = None
        self.drained: frozenset[str] = frozenset()
        self._strikes, self._rest = strikes, rest_seconds
        self._all: dict[str, DeviceStatus] = {}
        self._by_state: dict[State, dict[str, None]] = {state: {} for state in State}

    def __getitem__(self, name: str) -> DeviceStatus:
        return self._all[name]

    def listing(self) -> tuple[DeviceStatus, ...]:
        """Every device as it is now, by name."""
        return tuple(copy(self._all[n]) for n in sorted(self._all))

    def named(self, state: State) -> list[str]:
        """Names of the devices in a state."""
        return list(self._by_state[state])

    @property
    def workforce(self) -> int:
        """Devices that work or could."""
        return len(self._by_state[State.READY]) + len(self._by_state[State.BUSY])

    @property
    def settling(self) -> bool:
        """Whether devices have joined that are not checked yet."""
        return bool(self._by_state[State.JOINING] or self._by_state[State.CHECKING])

    def _move(self, device: DeviceStatus, state: State, why: str | None = None) -> None:
        device.why = device.why if why is None else why
        if device.state is not state:
            del self._by_state[device.state][device.name]
            self._by_state[state][device.name] = None
            device.state = state

    def sight(self, seen: Mapping[str, Sighting], now: float) -> dict[str, str]:
        """Take in the scheduler's listing; devices whose worker is gone or is another, and why."""
        lost: dict[str, str] = {}
        for name, found in seen.items():
            known = self._all.get(name)
            heard = now - found.age
            if known is None or known.state is State.GONE:
                self._join(name, found, heard)
            elif known.address != found.address:
                lost[name] = "its worker was started again"
                self._join(name, found, heard)
            else:
                known.last_seen = max(known.last_seen, heard)
        for name, known in self._all.items():
            if name not in seen and known.state is not State.GONE:
                lost[name] = "its worker left"
                self.gone(name, lost[name])
        return lost

    def _join(self, name: str, found: Sighting, heard: float) -> None:
        device = self._all.get(name)
        if device is None:
            device = DeviceStatus(name, found.label, found.address, State.JOINING, heard)
            self._all[name] = device
            self._by_state[State.JOINING][name] = None
        device.label, device.address, device.last_seen = found.label, found.address, heard
        if self.label is not None and found.label != self.label:
            why = f"labelled {found.label!r}; this pool is for {self.label!r}"
            self._move(device, State.FOREIGN, why)
        elif device.rest_until > heard:
            self._move(device, State.QUARANTINED)
        else:
            self._move(device, State.JOINING)

    def gone(self, name: str, why: str) -> None:
        """The worker is not there any more."""
        self._move(self._all[name], State.GONE, why)

    def drain(self, names: Collection[str]) -> None:
        """Have these devices, and no others, take no more work; what is busy goes on until it is
        told to be done."""
        self.drained = frozenset(names)
        for name in self._by_state[State.READY].keys() & self.drained:
            self._move(self._all[name], State.DRAINED)
        for name in self._by_state[State.DRAINED].keys() - self.drained:
            self._move(self._all[name], State.READY)

    def _able(self, name: str) -> State:
        """The state of a device that is well and has nothing to do."""
        return State.DRAINED if name in self.drained else State.READY

    def checking(self, name: str) -> None:
        """The canary was sent."""
        self._move(self._all[name], State.CHECKING)

    def passed(self, name: str, hello: Hello, now: float) -> None:
        """The canary is well: the device may work, if its times compare."""
        device = self._all[name]
        fingerprint = hello.device.fingerprint
        state, why = self._able(name), ""
        if hello.toolchain != self.toolchain:
            state = State.FOREIGN
            why = f"builds with {hello.toolchain}; this pool's candidates with {self.toolchain}"
        elif self.fingerprint is not None and fingerprint != self.fingerprint:
            state = State.FOREIGN
            why = f"fingerprint {fingerprint}; this pool measures on {self.fingerprint}"
        self._move(device, state, why)
        device.last_seen = now
        device.fingerprint, device.device = fingerprint, hello.device
        device.target, device.canary_seconds = hello.target, hello.canary_seconds

    def working(self, name: str, busy: bool) -> None:
        """It was given work, or is done."""
        device = self._all[name]
        if device.state in (State.READY, State.BUSY):
            self._move(device, State.BUSY if busy else self._able(name))

    def did(self, name: str, count: int, seconds: float) -> None:
        """A batch went well: `count` candidates in `seconds`. Earlier faults are forgiven."""
        device = self._all[name]
        if count:
            known = device.seconds_each
            pace = seconds / count
            device.seconds_each = pace if known is None else 0.5 * (pace + known)
        device.strikes = device.rests = 0
        device.rest_until = 0.0

    def foreign(self, name: str, why: str, now: float) -> None:
        """The device's worker cannot be used by this pool."""
        device = self._all[name]
        device.last_seen = now
        self._move(device, State.FOREIGN, why)

    @property
    def hopeless(self) -> bool:
        """Whether all devices of the kind that is wanted are of workers that cannot be used until
        they are started anew."""
        own = [
            d
            for d in self._all.values()
            if d.state is not State.GONE
            and self.label in (None, d.label)
            and (not d.fingerprint or self.fingerprint in (None, d.fingerprint))
        ]
        return bool(own) and all(d.state is State.FOREIGN for d in own)

    def fault(self, name: str, why: str, now: float) -> None:
        """Something went wrong that was not a candidate's doing."""
        device = self._all[name]
        device.faults += 1
        device.strikes += 1
        device.why = why
        state = State.JOINING
        if device.strikes >= self._strikes:
            rest = min(self._rest * 2**device.rests, LONGEST_REST_SECONDS)
            device.rests += 1
            device.rest_until = now + rest
            state = State.QUARANTINED
        if device.state not in (State.GONE, State.FOREIGN):
            self._move(device, state)

    def unchecked(self, now: float, silence: float) -> list[str]:
        """Names of the devices whose canary is due; what is silent is not asked."""
        due = [*self._by_state[State.JOINING]]
        due += [n for n in self._by_state[State.QUARANTINED] if self._all[n].rest_until <= now]
        return [n for n in due if now - self._all[n].last_seen <= silence]

    def choose(self) -> Device:
        """The device that is measured on, from now on the only kind that gets work.

        Raises MeasureError if several kinds are there: whose times count is the user's choice.
        """
        able = [d for d in self._all.values() if d.state in (State.READY, State.BUSY)]
        if self.fingerprint is not None:
            able = [d for d in able if d.fingerprint == self.fingerprint]
        kinds = Counter((d.label, d.fingerprint) for d in able)
        if not kinds:
            raise MeasureError(f"no device is ready\n{self.describe()}")
        if len(kinds) > 1:
            found = "\n".join(
                f"  label {label}, fingerprint {fingerprint}: {n} slots"
                for (label, fingerprint), n in sorted(kinds.items())
            )
            raise MeasureError(
                "the pool has devices of different kinds, whose times do not compare; choose one "
                f"by its label or fingerprint:\n{found}"
            )
        chosen = able[0]
        assert chosen.device is not None
        self.label, self.fingerprint = chosen.label, chosen.fingerprint
        return chosen.device

    def describe(self) -> str:
        """The listing as text, one device a line."""
        lines = [
            f"  {d.name} (label {d.label}): {d.state}" + (f", {d.why}" if d.why else "")
            for d in self.listing()
        ]
        return "\n".join(lines) or "  no worker is connected to the scheduler"
