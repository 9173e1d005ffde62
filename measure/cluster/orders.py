"""What the dispatcher of a pool says: what is to be sent to devices, and how items ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Send:
    """Command: give `items` of the current call to a device, as batch `batch`."""

    batch: int
    name: str
    items: tuple[int, ...]


@dataclass(frozen=True)
class Check:
    """Command: have a device run its canary."""

    batch: int
    name: str


@dataclass(frozen=True)
class Stop:
    """Command: tell a device that nobody waits for a batch any more. With `forget` the batch is not
    to be begun either, and its end need not be told."""

    batch: int
    name: str
    forget: bool


Command = Send | Check | Stop


@dataclass(frozen=True)
class Lost:
    """An item's end: its device was lost each time. `attempts` counts them."""

    why: str
    attempts: int


@dataclass(frozen=True)
class Cancelled:
    """An item's end: nobody wants it any more."""


class Answer(NamedTuple):
    """An item's end: measured by `name`, after `retries` lost attempts."""

    value: Any
    name: str
    retries: int


Outcome = Answer | Lost | Cancelled
