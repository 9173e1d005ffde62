"""Traces as records keep them: JSON data that does not depend on the names in a function."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autosched.errors import ScheduleError
from autosched.schedule.trace import Trace
from autosched.tir.canonical import block_order
from autosched.tir.nodes import PrimFunc


def encode_trace(func: PrimFunc, trace: Trace) -> list[Any]:
    """The trace as JSON data that does not depend on the names in `func`: its blocks are `#0`,
    `#1`, … in canonical order."""
    index = {name: f"#{n}" for n, name in enumerate(block_order(func))}
    steps: list[Any] = json.loads(trace.to_json())["steps"]
    return [_rename(step, index) for step in steps]


def decode_trace(func: PrimFunc, steps: Any, decisions: Mapping[str, int], dialect: int) -> Trace:
    """The trace that `encode_trace` wrote, on `func`'s own names and with its decisions filled in.

    Raises ScheduleError if the steps are malformed or of another dialect.
    """
    names = {f"#{n}": name for n, name in enumerate(block_order(func))}
    try:
        renamed = [_rename(step, names) for step in steps]
    except (TypeError, ValueError, KeyError) as e:  # imported records may say anything
        raise ScheduleError(f"not the steps of a trace: {e}; found {str(steps)[:80]}") from e
    return Trace.from_json(json.dumps({"dialect": dialect, "steps": renamed})).bind(dict(decisions))


def _rename(step: Any, names: Mapping[str, str]) -> Any:
    op, args, *rest = step
    if op == "get_block" and args and args[0] in names:
        return [op, [names[args[0]], *args[1:]], *rest]
    return step


def trace_text(steps: Any) -> str:
    """A text by which to compare encoded traces: stores do not keep the order of a step's
    keywords."""
    return json.dumps(steps, sort_keys=True)
