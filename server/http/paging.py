"""Cursors of pages: opaque text, so that what is inside may change."""

from __future__ import annotations

import base64
import binascii
import re

from server.http.problems import ProblemError

_INSIDE = re.compile(r"2:(?P<of>[a-z]+):(?P<position>[ -~]{1,128})")


def encode_cursor(of: str, position: str | int | None) -> str | None:
    """The cursor of a position in the listing `of`; None: there are no more pages."""
    if position is None:
        return None
    return base64.urlsafe_b64encode(f"2:{of}:{position}".encode()).decode().rstrip("=")


def decode_cursor(of: str, cursor: str | None) -> str | None:
    """The position in the listing `of` that a cursor stands for.

    Raises ProblemError (400) for what is no cursor, or one of another listing: taken for one of
    this it would skip items, and nobody would know.
    """
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        inside = base64.b64decode(padded, b"-_", True).decode("ascii")
    except (binascii.Error, ValueError) as e:
        raise _refused(of, cursor) from e
    found = _INSIDE.fullmatch(inside)
    if found is None or found["of"] != of:
        raise _refused(of, cursor)
    return found["position"]


def decode_id(of: str, cursor: str | None) -> int | None:
    """The row number that a cursor stands for. Raises ProblemError (400) as `decode_cursor`."""
    position = decode_cursor(of, cursor)
    if position is None:
        return None
    if not (position.isdigit() and len(position) < 19):
        raise _refused(of, cursor or "")
    return int(position)


def _refused(of: str, cursor: str) -> ProblemError:
    return ProblemError(
        400,
        f"{cursor[:80]!r} is no cursor of {of}; give the next_cursor of the page before, as it was",
    )
