"""Cursors of pages: opaque text, so that what is inside may change."""

from __future__ import annotations

import base64
import binascii

from server.problems import ProblemError


def encode_cursor(position: str | int | None) -> str | None:
    """The cursor of a position; None: there are no more pages."""
    if position is None:
        return None
    return base64.urlsafe_b64encode(f"1:{position}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """The position that a cursor stands for. Raises ProblemError (400) for what is no cursor."""
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        version, colon, position = base64.b64decode(padded, b"-_", True).decode().partition(":")
    except (binascii.Error, ValueError) as e:
        raise _refused(cursor) from e
    if version != "1" or not colon:
        raise _refused(cursor)
    return position


def decode_id(cursor: str | None) -> int | None:
    """The row number that a cursor stands for. Raises ProblemError (400) for what is no cursor."""
    position = decode_cursor(cursor)
    if position is None:
        return None
    if not (position.isascii() and position.isdigit() and len(position) < 19):
        raise _refused(cursor or "")
    return int(position)


def _refused(cursor: str) -> ProblemError:
    return ProblemError(
        400, f"{cursor[:80]!r} is no cursor; give the next_cursor of the page before, as it was"
    )
