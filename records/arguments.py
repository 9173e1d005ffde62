"""What is said to questions that no store or log can be asked."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from operator import index
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

from records.errors import RecordError
from records.types import Filters

_NUMBERS = ("limit", "after_id")
_SQLITE_URL = re.compile(r"sqlite(?:\+pysqlite)?:///([^?]+)")
"""With the path, in which `%20` stands for a space, as in every URL."""


def text_of(name: str, value: object) -> str:
    """`value` as a plain text. Raises RecordError for what is none."""
    if not isinstance(value, str):
        hint = f"; pass str({name})" if name == "target" else ""
        raise RecordError(f"{name} is {_shown(value)}; expected a text{hint}")
    try:
        value.encode()
    except UnicodeEncodeError as e:
        raise RecordError(f"{name} is {_shown(value)}; expected text that UTF-8 can hold") from e
    return str.__str__(value)


def number_of(name: str, value: object) -> int:
    """`value` as an int of 64 bits. Raises RecordError for what is none."""
    try:
        found = None if isinstance(value, bool) else index(cast(Any, value))
    except TypeError:
        found = None
    if found is None or not -(1 << 63) <= found < 1 << 63:
        raise RecordError(f"{name} is {_shown(value)}; expected a whole number of 64 bits")
    return found


def numbers_of(name: str, values: object) -> tuple[int, ...]:
    """A collection of them."""
    if not isinstance(values, Collection) or isinstance(values, (str, bytes)):
        raise RecordError(f"{name} is {_shown(values)}; expected a collection of ids")
    return tuple(number_of(name, value) for value in cast(Iterable[object], values))


def filters_of(filters: Filters) -> Filters:
    """Filters with plain values. Raises RecordError for what nothing can be selected by."""
    known = Filters.__annotations__
    for name in filters:
        if name not in known:
            raise RecordError(f"no filter {name!r}; expected some of {', '.join(known)}")
    found = {
        name: value
        if value is None
        else number_of(name, value)
        if name in _NUMBERS
        else text_of(name, value)
        for name, value in filters.items()
    }
    return cast(Filters, found)


def scope_of(target: object, device: object) -> tuple[str | None, str | None]:
    """A target and a device; None for the only one."""
    return (
        None if target is None else text_of("target", target),
        None if device is None else text_of("device", device),
    )


def path_of(name: str, value: object) -> str:
    """The text of a path or URL. Raises RecordError for what names no file on any system."""
    found = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    if not isinstance(found, str) or not found or "\0" in found:
        raise RecordError(f"{name} is {_shown(value)}; expected a path, as text or a Path")
    return text_of(name, found)


def file_of(path_or_url: str | os.PathLike[str]) -> Path | None:
    """The file that is meant, None for a database server."""
    text = path_of("the store or log", path_or_url)
    if "://" not in text:
        return Path(text)
    found = _SQLITE_URL.match(text)
    return Path(path_of("the file of the URL", unquote(found[1]))) if found else None


def _shown(value: object) -> str:
    found = repr(value)
    return found if len(found) <= 120 else f"{found[:120]}…"
