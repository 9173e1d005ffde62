"""What carries a pool's batches to devices, and the word from there back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from measure.cluster.registry import Sighting
from measure.cluster.wire import JsonDict


@dataclass(frozen=True)
class Listing:
    """Who is there, by name."""

    seen: Mapping[str, Sighting]


@dataclass(frozen=True)
class Message:
    """What a worker posted: nothing about it is certain."""

    body: Any


@dataclass(frozen=True)
class Ended:
    """A batch is over; `error` says what went wrong, None if nothing did."""

    batch: int
    error: str | None


@dataclass(frozen=True)
class Disconnected:
    """Nobody can be reached; the transport goes on trying."""

    why: str


Event = Listing | Message | Ended | Disconnected


class Transport(Protocol):
    """For one thread."""

    def send(self, batch: int, address: str, label: str, request: JsonDict) -> None:
        """Have the worker at `address` do `request`; an `Ended` will come, unless forgotten."""
        ...

    def stop(self, batch: int, address: str, forget: bool) -> None:
        """Tell the worker that nobody waits for a batch; with `forget` no `Ended` is wanted."""
        ...

    def receive(self, seconds: float) -> list[Event]:
        """What has happened, in order; waits up to `seconds` for something. Raises MeasureError if
        a lost connection could not be made again for a long time."""
        ...

    def close(self) -> None:
        """Give everything up. Harmless when repeated."""
        ...
