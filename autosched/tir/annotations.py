"""Annotations that mean something, wherever they come from: primitives, or the text of a script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

HINTS = "auto_scheduler_"
"""Keys that begin so are free: hints that users pass to rules of their own."""
_MOST = 1 << 62


@dataclass(frozen=True, slots=True)
class Key:
    """An annotation that means something: on a "block" or a "loop", with which values."""

    place: str
    values: str
    holds: Callable[[Any], bool]


def is_count(value: Any) -> bool:
    """Whether a value is an int of at least 1, or an array of such."""
    if isinstance(value, np.ndarray):
        return bool((value >= 1).all())
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def is_flop(value: Any) -> bool:
    """Whether a value is a number of operations, from 0 up."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < inf


DOUBLE_BUFFER = "double_buffer"
"""On a block: what it writes alternates between two buffers (see `schedule.double_buffer`)."""
SINGLE_PASS = "single_pass"
"""On a block: a recurrence that combines, whose tiles of steps are computed in parallel and hand on
what they come to (see `schedule.single_pass_scan`)."""
KEYS: dict[str, Key] = {
    "FLOP": Key("block", "the number of operations, from 0 up", is_flop),
    "cooperative": Key(
        "block", "the elements that a thread copies at once, as one vector", is_count
    ),
    "chunk": Key("loop", "iterations of a parallel loop handed out at a time", is_count),
    DOUBLE_BUFFER: Key("block", "whether it fills two buffers in turn", _is_bool),
    SINGLE_PASS: Key("block", "whether tiles of steps run on blocks of threads", _is_bool),
    "streaming": Key("block", "whether stores go past the caches", _is_bool),
}
"""What users may annotate. Whoever reads a new key adds it here."""


def annotation_fault(key: str, value: Any, place: str) -> str | None:
    """What is wrong with an annotation of a "block" or a "loop"; None if nothing is."""
    if key.startswith(HINTS):
        return None
    known = KEYS.get(key)
    if known is None or known.place != place:
        have = ", ".join(sorted(k for k, v in KEYS.items() if v.place == place))
        where = "" if known is None else f" (it is one of a {known.place})"
        return f"a {place} has no key {key!r}{where}; expected one of {have}, or a hint {HINTS}…"
    return None if known.holds(value) else f"{key} is {known.values}; found {value!r}"
