"""Annotations, wherever they come from: primitives, or the text of a script.

Some keys mean something (`KEYS`). Any other key is free: it is kept, printed and parsed, and means
nothing here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from autosched.tir.affine import Int, always
from autosched.tir.nodes import Block

HINTS = "auto_scheduler_"
"""Keys that begin so are free, whatever they resemble: hints for rules of users' own."""
RESERVED = ("ahead", "tensorize")
"""Keys that the compiler writes itself; users write neither."""
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


def is_literal(value: Any, depth: int = 0) -> bool:
    """Whether a value can be printed and parsed: a text, number, bool or None, or a list, tuple or
    dict of such, nested at most a few levels."""
    if isinstance(value, dict):
        inside = [*value.keys(), *value.values()]
        return depth < _DEEPEST and all(is_literal(v, depth + 1) for v in inside)
    if isinstance(value, (list, tuple)):
        return depth < _DEEPEST and all(is_literal(v, depth + 1) for v in value)
    if isinstance(value, int):
        return abs(value) <= 1 << 63
    return value is None or isinstance(value, (str, float, np.integer))


_DEEPEST = 16


def _is_steps(value: Any) -> bool:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and 0 <= value <= MOST_STEPS


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def is_copies(value: Any) -> bool:
    """Whether a value is a number of buffers to alternate between, or an array of such."""
    return is_count(value) and always(value >= 2) and always(value <= MOST_COPIES)


def copies_of(block: Block) -> Int:
    """How many buffers what a block writes alternates between; 1 if it does not."""
    value = block.annotation(DOUBLE_BUFFER, False)
    return 1 + value if isinstance(value, bool) else value


def is_flop(value: Any) -> bool:
    """Whether a value is a number of operations, from 0 up."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and 0 <= value < inf


DOUBLE_BUFFER = "double_buffer"
"""On a block: what it writes alternates between buffers, two where it is True, or so many (see
`schedule.double_buffer`)."""
MOST_COPIES = 8
DOUBLE_BUFFER_SCOPE = "double_buffer_scope"
"""TVM's key for the same, with the number of a write; `Schedule.annotate` makes it DOUBLE_BUFFER
where that write is to shared memory. Elsewhere it means nothing."""
SINGLE_PASS = "single_pass"
"""On a block: a recurrence that combines, whose tiles of steps are computed in parallel and hand on
what they come to (see `schedule.single_pass_scan`)."""
UNROLL = "pragma_auto_unroll_max_step"
"""On a loop: lowering unrolls it, and serial loops below it, as far as that makes at most so many
executions of blocks in a row."""
MOST_STEPS = 4096
BLOCKIZE = "blockize"
"""On a loop: the name of its nest as one unit (see `schedule.blockize`)."""
KEYS: dict[str, Key] = {
    BLOCKIZE: Key("loop", "the name of a nest", _is_name),
    "FLOP": Key("block", "the number of operations, from 0 up", is_flop),
    "cooperative": Key(
        "block", "the elements that a thread copies at once, as one vector", is_count
    ),
    "chunk": Key("loop", "iterations of a parallel loop handed out at a time", is_count),
    DOUBLE_BUFFER: Key(
        "block",
        f"whether it fills two buffers in turn, or how many, 2 to {MOST_COPIES}",
        lambda value: _is_bool(value) or is_copies(value),
    ),
    SINGLE_PASS: Key("block", "whether tiles of steps run on blocks of threads", _is_bool),
    UNROLL: Key("loop", f"executions of blocks, from 0 to {MOST_STEPS}", _is_steps),
    "streaming": Key("block", "whether stores go past the caches", _is_bool),
}
"""Keys that mean something. Whoever reads a new key adds it here."""
UNTENSORIZED = frozenset(KEYS) - {BLOCKIZE}
"""Keys of loops that an intrinsic does not do."""
_ALIKE = 0.8
"""How much a free key may resemble one of these, since it would rather be a misspelt one."""


def annotation_fault(key: str, value: Any, place: str) -> str | None:
    """What is wrong with an annotation of a "block" or a "loop"; None if nothing is."""
    if key.startswith(HINTS):
        return None
    known = KEYS.get(key)
    if known is not None and known.place == place:
        return None if known.holds(value) else f"{key} is {known.values}; found {value!r}"
    if known is not None or key in RESERVED:
        have = ", ".join(sorted(k for k, v in KEYS.items() if v.place == place))
        where = f"it is one of a {known.place}" if known else "the compiler writes it itself"
        return f"a {place} has no key {key!r} ({where}); those that mean something are {have}"
    if key == DOUBLE_BUFFER_SCOPE:
        return None
    alike = difflib.get_close_matches(key, KEYS, 1, _ALIKE)
    if alike:
        return f"a {place} has no key {key!r}; did you mean {alike[0]!r}? {FREE}"
    return None if is_literal(value) else f"{key} is {value!r}; expected a literal"


FREE = f"Free keys resemble none that means something, or begin with {HINTS}"
