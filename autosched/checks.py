"""What is said to arguments that are not what they must be. Numbers: `integers`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePath
from reprlib import Repr
from typing import Any

from autosched.errors import AutoschedError
from autosched.integers import plain

_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 120


def shown(value: object) -> str:
    """A value for a message: its repr, cut short where that is long or goes deep."""
    return _SHORT.repr(value)


def instance(
    name: str,
    value: object,
    kind: type | tuple[type, ...],
    expected: str,
    error: type[AutoschedError],
) -> None:
    """Raise `error` unless `value` is of a kind."""
    if not isinstance(value, kind):
        raise error(f"{name} is {shown(value)}; expected {expected}")


MASKED = "harden_mask"
"""A name that masked arrays of NumPy have, and others have not. `numpy.ma` is slow to import."""


def unmasked(name: str, value: object, error: type[AutoschedError]) -> None:
    """Raise `error` for a masked array, of which no program sees the mask."""
    if hasattr(type(value), MASKED):
        raise error(
            f"{name} is a masked array, whose mask would be lost; expected an array without: "
            "filled(value) gives what is masked a value, and data has what lies there"
        )


def listed(
    name: str,
    values: object,
    kind: type | tuple[type, ...],
    expected: str,
    error: type[AutoschedError],
) -> None:
    """Raise `error` unless `values` is a sequence of a kind; a text is none."""
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        raise error(f"{name} is {shown(values)}; expected a list of {expected}")
    for value in values:
        if not isinstance(value, kind):
            raise error(f"{name} holds {shown(value)}; expected a {expected}")


def text(name: str, value: object, error: type[AutoschedError]) -> str:
    """`value` as a plain str. Raises `error` unless it is a text that is not empty."""
    if not isinstance(value, str) or not value:
        raise error(f"{name} is {shown(value)}; expected a text")
    return str.__str__(value)


def choice(name: str, value: object, choices: Collection[str], error: type[AutoschedError]) -> str:
    """`value` as a plain str. Raises `error`, listing them, unless it is one of the `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise error(f"{name} is {shown(value)}; expected one of {', '.join(choices)}")
    return str.__str__(value)


def mapping(name: str, value: object, expected: str, error: type[AutoschedError]) -> dict[str, Any]:
    """`value` as a dict, {} for None. Raises `error` unless it is a mapping by names."""
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise error(f"{name} is {shown(value)}; expected {expected}")
    return dict(value)


def number(name: str, value: Any, error: type[AutoschedError]) -> float:
    """`value` as a float. Raises `error` unless it is a number; NaN and a bool are none."""
    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, (int, float)) or found != found:
        raise error(f"{name} is {shown(value)}; expected a number")
    try:
        return float(found)
    except OverflowError as e:
        raise error(f"{name} is {shown(value)}; expected a number below 1e308") from e


def path_text(name: str, value: object, error: type[AutoschedError]) -> str:
    """The text of a path. Raises `error` for what no text file can name."""
    found = os.fspath(value) if isinstance(value, (str, PurePath, os.PathLike)) else None
    if isinstance(found, str) and found and "\0" not in found and not _encodes(found):
        raise error(f"{name} is {shown(value)}; file names that are not UTF-8 are not supported")
    if not isinstance(found, str) or not found or not _encodes(found):
        raise error(f"{name} is {shown(value)}; expected the path of a file, as text or a Path")
    return found


def _encodes(path: str) -> bool:
    try:
        return "\0" not in path and bool(path.encode())
    except UnicodeEncodeError:
        return False
