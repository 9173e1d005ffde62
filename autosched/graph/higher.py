"""Operators that call function values, on arrays: Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.errors import Unsupported

Array = npt.NDArray[Any]


Parts = Sequence[tuple[Sequence[int] | None, str]]
"""Shape and dtype of what is scanned in each turn."""


def loop(
    count: Array | None,
    condition: Array | None,
    body: Callable[..., Any],
    *states: Any,
    parts: Parts = (),
    turns: int | None = None,
) -> list[Array]:
    """ONNX's Loop: `body(number, condition, states…)` gives (condition, states…, scanned…).

    `parts` is what the scanned results of no turn are made of; `turns` says how often the body runs
    where that is known when the model is compiled. Raises Unsupported where there is no turn and
    one's shape is not known."""
    limit = None if count is None else int(np.asarray(count).reshape(-1)[0])
    go = True if condition is None else bool(np.any(condition))
    if go and hasattr(body, "loop"):
        made = body.loop(limit, states)
        if made is not None:
            return list(made)
    scanned: list[list[Array]] = []
    now, n = list(states), 0
    while go and (limit is None or n < limit):
        made = body(np.asarray(n, np.int64), np.asarray(go), *now)
        go, now = bool(np.any(made[0])), list(made[1 : 1 + len(states)])
        rest = made[1 + len(states) :]
        scanned = scanned or [[] for _ in rest]
        for into, part in zip(scanned, rest, strict=True):
            into.append(np.array(part))
        n += 1
    if n == 0:
        return [*map(np.asarray, now), *(_nothing("Loop", p) for p in parts)]
    return [*map(np.asarray, now), *map(np.stack, scanned)]


def _nothing(name: str, part: tuple[Sequence[int] | None, str], axis: int = 0) -> Array:
    shape, dtype = part
    if shape is None:
        raise Unsupported(f"{name} has no turn, and the shape of what it would scan is not known")
    out = list(shape)
    out.insert(axis if axis >= 0 else axis + len(out) + 1, 0)
    return np.empty(out, dtype)


def lengths(found: Iterable[int]) -> set[int]:
    """How many steps the inputs of a Scan have. Raises Unsupported where they differ."""
    steps = set(found)
    if len(steps) > 1:
        have = " and ".join(map(str, sorted(steps)))
        raise Unsupported(f"the inputs that Scan runs over have {have} steps; expected as many")
    return steps


def scan(
    *args: Any,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
    parts: Parts = (),
) -> list[Array]:
    """ONNX's Scan: the body takes the states and a slice of each scanned input. `parts` as of
    `loop`. Raises Unsupported where the scanned inputs have different numbers of steps."""
    body, *values = args
    states, inputs = (
        values[: len(values) - num_scan_inputs],
        values[len(values) - num_scan_inputs :],
    )
    axes = list(scan_input_axes) or [0] * num_scan_inputs
    back = list(scan_input_directions) or [0] * num_scan_inputs
    inputs = [np.flip(x, a) if d else x for x, a, d in zip(inputs, axes, back, strict=True)]
    (steps,) = lengths([x.shape[a] for x, a in zip(inputs, axes, strict=True)])
    scanned: list[list[Array]] = []
    now = list(states)
    if steps == 0:
        ends = list(scan_output_axes) or [0] * len(parts)
        return [*now, *(_nothing("Scan", p, a) for p, a in zip(parts, ends, strict=True))]
    for n in range(steps):
        pieces = [np.array(x.take(n, axis=a)) for x, a in zip(inputs, axes, strict=True)]
        made = body(*now, *pieces)
        now, rest = list(made[: len(states)]), made[len(states) :]
        scanned = scanned or [[] for _ in rest]
        for into, part in zip(scanned, rest, strict=True):
            into.append(np.array(part))
    out_axes = list(scan_output_axes) or [0] * len(scanned)
    out_back = list(scan_output_directions) or [0] * len(scanned)
    whole = [
        np.stack(x[::-1] if d else x, axis=a)
        for x, a, d in zip(scanned, out_axes, out_back, strict=True)
    ]
    return [*now, *whole]


HIGHER: dict[str, Callable[..., Sequence[Array]]] = {"Loop": loop, "Scan": scan}
"""Operators that call function values."""
