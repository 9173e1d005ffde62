"""Every second, third or fourth element: which vectors cover those that lanes read."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.codegen.llvm.index import Lanes, Linear

MAX_STRIDE = 4
"""Elements from one lane to the next up to which neighbours are read as well, not gathered."""


def near_lanes(lanes: Lanes, offset: Linear, mask: str | None) -> list[int]:
    """The lanes to read where they are at most MAX_STRIDE apart; none where they are not, or the
    mask is only known at run time."""
    if offset.vector is not None or not 1 < offset.step <= MAX_STRIDE:
        return []
    if isinstance(lanes.active, str) or not (mask or "<").startswith("<"):
        return []
    real = list(range(lanes.active))
    if mask is not None:
        flags = mask.strip("<>").split(", ")
        real = [n for n in real if flags[n] == "i1 true"]
    return real


def covering(real: Sequence[int], step: int, width: int) -> dict[int, dict[int, int]]:
    """Where vectors start that cover the stretch from the first to the last lane, and nothing
    beyond unless it is shorter than one, and by lane where in each it stands."""
    first = step * real[0]
    last = max(step * real[-1] - (width - 1), first)
    found: dict[int, dict[int, int]] = {}
    for lane in real:
        at = step * lane
        start = min(at - (at - first) % width, last)
        found.setdefault(start, {})[lane] = at - start
    return found
