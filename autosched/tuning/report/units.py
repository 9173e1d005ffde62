"""Figures as people read them."""

from __future__ import annotations


def format_seconds(seconds: float) -> str:
    """`5.03 ms`, `12.1 µs`: three significant digits."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
