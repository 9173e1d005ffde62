"""JSON that means one thing to every reader, and whose reading is bounded before it begins.

The time to read a body grows with its length and no faster: what is looked for is found in one
pass, and the bounds on names and items hold before any of them is made.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from server.http.problems import refused

JSON_DEPTH = 64
JSON_ITEMS = 20_000
"""Values in a body, those in arrays and objects counted singly."""
JSON_NAMES = 1_000
"""Names in one object."""
JSON_DIGITS = 1_000
"""Characters of one number."""

# The closing quote may be missing, so that each byte is looked at once whatever stands there.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


def strict_json(body: bytes) -> None:
    """Raises ProblemError (400) for a body that is no JSON, or that is ambiguous or not storable:
    not UTF-8, names twice in an object, NaN, numbers beyond 64 bits or a double's range, NUL and
    lone surrogates in strings, nesting beyond JSON_DEPTH; 413 beyond JSON_ITEMS or JSON_NAMES."""
    _check_items(body)
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_int=_integer,
            parse_float=_float,
        )
    except RecursionError as e:
        raise _malformed(f"it nests more than {JSON_DEPTH} deep") from e
    except UnicodeDecodeError as e:
        raise _malformed(f"byte {e.start} is not UTF-8") from e
    except json.JSONDecodeError as e:
        raise _malformed(f"line {e.lineno}, column {e.colno}: {e.msg}") from e
    _check_values(value)


def _malformed(why: str) -> Exception:
    return refused("malformed-request", f"the body is not JSON as it is read here: {why}")


def _check_items(body: bytes) -> None:
    """Raises ProblemError (413) for more values than are taken; no fewer are counted than there
    are, and of what is no JSON any number."""
    plain = _STRING.sub(b"", body)
    items = plain.count(b",") + plain.count(b"[") + plain.count(b"{")
    if items > JSON_ITEMS:
        raise refused("too-large", f"expected at most {JSON_ITEMS} values in a body, found {items}")


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > JSON_NAMES:
        what = f"expected at most {JSON_NAMES} names in an object, found {len(pairs)}"
        raise refused("too-large", what)
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _malformed(f"the name {name[:80]!r} stands twice in an object")
        _check_text(name)
        found[name] = value
    return found


def _constant(text: str) -> NoReturn:
    raise _malformed(f"{text} is no number")


def _integer(text: str) -> int:
    if len(text) > 20 or not -(1 << 63) <= int(text) < 1 << 64:
        raise _malformed(f"the number {text[:30]} does not fit 64 bits")
    return int(text)


def _float(text: str) -> float:
    if len(text) > JSON_DIGITS:
        raise _malformed(f"the number {text[:30]}… has more than {JSON_DIGITS} characters")
    value = float(text)
    if not math.isfinite(value):
        raise _malformed(f"the number {text[:30]} is beyond the range of a double")
    return value


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _malformed("a string has the character NUL")
    if not text.isascii() and _SURROGATE.search(text):
        raise _malformed("a string has a lone surrogate")


def _check_values(value: Any) -> None:
    level = [value]
    for depth in range(JSON_DEPTH + 1):
        inner: list[Any] = []
        nests = False
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, dict | list):
                nests = True
                inner.extend(item.values() if isinstance(item, dict) else item)
        if not nests:
            return
        if depth == JSON_DEPTH:
            raise _malformed(f"it nests more than {JSON_DEPTH} deep")
        level = inner
