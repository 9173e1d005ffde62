"""Programs and schedules that come back from their text."""

from __future__ import annotations

from typing import Any

from autosched.errors import VerifyError
from autosched.lowering.lower import lower
from autosched.schedule import Schedule
from autosched.script import parse, parse_func
from autosched.tir.canonical import program_hash
from autosched.tir.equal import first_difference
from autosched.tir.nodes import PrimFunc
from autosched.tir.verify import verify


def check(func: PrimFunc, hashed: bool = True) -> PrimFunc:
    """`func` comes back from its text, and passes the verifier there if it does here. `hashed`:
    whether its hash does not hang on things that only a test writes down."""
    text = func.script()
    found = parse_func(text, check=False)
    assert first_difference(func, found) is None
    assert found.script() == text
    if hashed:
        assert program_hash(found) == program_hash(func)
    try:
        verify(func)
    except VerifyError:
        return found  # its proofs are incomplete, and forms written in another way may pass
    parse(text)
    return found


def check_all(func: PrimFunc) -> None:
    """The program and its lowered form."""
    check(func)
    check(lower(func))


def executed(text: str, func: PrimFunc) -> Schedule:
    """`func` under the schedule that the text of a trace describes."""
    names: dict[str, Any] = {}
    exec(text, names)
    schedule = Schedule(func)
    names["apply"](schedule)
    return schedule
