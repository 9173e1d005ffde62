"""What partial evaluation knows of values while a program is written anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from autosched.graph.ir import Atom, Const, Function, Pattern, Var


class Env:
    """What variables stand for in one activation of a function; the rest is in `outer`."""

    __slots__ = ("known", "outer")

    def __init__(self, outer: Env | None = None) -> None:
        self.known: dict[int, Static] = {}
        self.outer = outer

    def find(self, v: Var) -> Static:
        """What a variable stands for; itself where nothing is known."""
        env: Env | None = self
        while env is not None:
            found = env.known.get(id(v))
            if found is not None:
                return found
            env = env.outer
        return v


@dataclass(frozen=True, eq=False)
class Fn:
    """A function value with what is around it; `own` is the variable that it may call itself by."""

    function: Function
    env: Env
    own: Var


@dataclass(frozen=True, eq=False)
class Made:
    """A value of the constructor, or a tuple, whose constructor is ""."""

    constructor: str
    parts: tuple[Static, ...]


Static = Union[Atom, Fn, Made]


def is_data(s: Static) -> bool:
    """Whether anything is known that a branch or a match may ask."""
    work = [s]
    while work:
        one = work.pop()
        if isinstance(one, Const) or (isinstance(one, Made) and one.constructor):
            return True
        work += one.parts if isinstance(one, Made) else []
    return False


def matched(p: Pattern | Var | None, s: Static, out: list[tuple[Var, Static]]) -> bool | None:
    """Whether a pattern takes a value: True with what its variables stand for in `out`, False, or
    None where it is not known."""
    if p is None:
        return True
    if isinstance(p, Var):
        out.append((p, s))
        return True
    if not isinstance(s, Made):
        return None
    if s.constructor != p.constructor:
        return False
    fits: bool | None = True
    for x, y in zip(p.parts, s.parts, strict=True):
        found = matched(x, y, out)
        if found is False:
            return False
        fits = fits if found else None
    return fits
