"""What the forms of pages send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import parse_qsl

from fastapi import Depends, Request

from server.http.problems import ProblemError

MEDIA_TYPE = "application/x-www-form-urlencoded"
MOST_FIELDS = 100


async def read_form(request: Request) -> Mapping[str, str]:
    """The fields of the body; of one name the last. Raises ProblemError (415, 400).

    A route that depends on this takes a body, by which the gate knows it (`http/routing.py`)."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != MEDIA_TYPE:
        raise ProblemError(415, f"a form is sent as {MEDIA_TYPE}; found {kind or 'no type'!r}")
    try:
        text = (await request.body()).decode("utf-8")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError as e:  # UnicodeDecodeError is one
        raise ProblemError(400, f"the form cannot be read: {e}") from e
    return dict(pairs)


FormOf = Annotated[Mapping[str, str], Depends(read_form)]
"""A parameter of a route: the fields of the form that was sent."""


def whole_number(fields: Mapping[str, str], name: str, low: int, high: int) -> int:
    """The field as an int between `low` and `high`. Raises ProblemError (422)."""
    text = fields.get(name, "").strip()
    digits = text.lstrip("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 19 and low <= int(text) <= high:
        return int(text)
    raise ProblemError(422, f"{name} is {text[:80]!r}; expected an int from {low} to {high}")
