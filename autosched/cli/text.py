"""Text for a terminal."""

from __future__ import annotations


def plain(text: str) -> str:
    """Text of others (a compiler's message, a name in an imported log) as a terminal may get it:
    what would steer it stands as an escape."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
