"""Expressions of random programs: as they stand in a script, and as Python computes them.

Every value has bounds, so that integers wrap around where theirs do, and floats stay exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

INTS = ("int32", "int64", "int8", "uint8", "int16")
FLOATS = ("float32", "float64")
EXACT = {"float32": 2**22, "float64": 2**50}
"""Magnitudes that values of floats may have."""


@dataclass(frozen=True, eq=False)
class Buf:
    """A buffer. `low` and `high` bound its values, once it is written."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    low: int = -4
    high: int = 4


@dataclass(frozen=True, eq=False)
class E:
    """An expression. `args` are expressions, but for `const` (a number), `axis` (a name), and the
    first of `load`, a buffer. `low` and `high` bound its value."""

    op: str
    args: tuple[Any, ...]
    dtype: str
    low: int
    high: int

    def script(self) -> str:
        """As it stands in a script."""
        a = [x.script() if isinstance(x, E) else x for x in self.args]
        if self.op == "const":
            if self.dtype == "int64":
                return str(a[0]) if a[0] >= 0 else f"({a[0]})"
            return f"T.{self.dtype}({a[0]})"
        if self.op == "axis":
            return str(a[0])
        if self.op == "load":
            return f"{a[0].name}[{', '.join(a[1:]) or '()'}]"
        if self.op == "cast":
            return f'T.cast({a[0]}, "{self.dtype}")'
        if self.op in ("min", "max", "abs", "if_then_else", "select"):
            return f"T.{self.op}({', '.join(a)})"
        if self.op in ("neg", "not"):
            return f"({SYMBOL[self.op]}{a[0]})"
        return f"({a[0]} {SYMBOL[self.op]} {a[1]})"

    def python(self) -> str:
        """As Python computes it."""
        a = [x.python() if isinstance(x, E) else x for x in self.args]
        if self.op == "const":
            return f"({a[0]})"
        if self.op == "axis":
            return str(a[0])
        if self.op == "load":
            return f"{a[0].name}[{', '.join(a[1:])}{',' if len(a) > 1 else '()'}]"
        if self.op == "cast" and self.dtype in INTS and self.args[0].dtype in FLOATS:
            least, most = limits(self.dtype)
            return f"whole({a[0]}, {least}, {most})"
        if self.op == "cast":
            return self._wrapped(str(a[0]), self.args[0])
        if self.op in ("min", "max", "abs"):
            return self._wrapped(f"{self.op}({', '.join(a)})")
        if self.op in ("if_then_else", "select"):
            return f"({a[1]} if {a[0]} else {a[2]})"
        if self.op in ("neg", "not"):
            return self._wrapped(f"({SYMBOL[self.op]}{a[0]})")
        return self._wrapped(f"({a[0]} {SYMBOL[self.op]} {a[1]})")

    def _wrapped(self, text: str, cast_from: E | None = None) -> str:
        if self.dtype not in INTS or self.op not in _WRAPS:
            return text
        bits, signed = width(self.dtype)
        least = -(1 << bits - 1) if signed else 0
        if cast_from is not None:
            low, high = cast_from.low, cast_from.high
        else:
            low, high = _reach(self.op, [(x.low, x.high) for x in self.args])
        if least <= low and high < least + (1 << bits):
            return text
        return f"((({text}) - ({least})) % {1 << bits} + ({least}))"


SYMBOL = {
    "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%", "neg": "-",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=",
    "and": "and", "or": "or", "not": "not ",
}  # fmt: skip
_WRAPS = ("add", "sub", "mul", "neg", "abs", "cast")
_TESTS = ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not")


def width(dtype: str) -> tuple[int, bool]:
    """Bits of an integer, and whether it is signed."""
    return int(dtype.lstrip("uint")), not dtype.startswith("u")


def limits(dtype: str) -> tuple[int, int]:
    """Least and greatest value that a program may compute in a dtype."""
    if dtype in EXACT:
        return -EXACT[dtype], EXACT[dtype]
    if dtype == "bool":
        return 0, 1
    bits, signed = width(dtype)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _reach(op: str, spans: list[tuple[int, int]]) -> tuple[int, int]:
    """Bounds of an operation without overflow."""
    (a, b), (c, d) = spans[0], spans[-1]
    if op == "add":
        return a + c, b + d
    if op == "sub":
        return a - d, b - c
    if op == "mul":
        ends = [x * y for x in (a, b) for y in (c, d)]
        return min(ends), max(ends)
    if op == "max":
        return max(a, c), max(b, d)
    if op == "min":
        return min(a, c), min(b, d)
    if op == "neg":
        return -b, -a
    if op == "abs":
        return 0, max(abs(a), abs(b))
    if op == "floordiv":
        return min(a // c, a), max(b // c, b)
    if op == "floormod":
        return 0, d - 1
    if op in ("if_then_else", "select"):
        return min(spans[1][0], c), max(spans[1][1], d)
    assert op in (*_TESTS, "cast"), op
    return (0, 1) if op != "cast" else (a, b)


def const(value: int, dtype: str = "int64") -> E:
    return E("const", (value,), dtype, value, value)


def axis(name: str, extent: int) -> E:
    return E("axis", (name,), "int64", 0, extent - 1)


def load(buf: Buf, *at: E) -> E:
    return E("load", (buf, *at), buf.dtype, buf.low, buf.high)


def call(op: str, *args: E) -> E:
    """An operation; what leaves the exact numbers of a float is kept inside by a clamp."""
    dtype = "bool" if op in _TESTS else args[-1].dtype
    low, high = _reach(op, [(a.low, a.high) for a in args])
    least, most = limits(dtype)
    if low >= least and high <= most:
        return E(op, args, dtype, low, high)
    if dtype in INTS:
        return E(op, args, dtype, least, most)
    return call(op, *(clamp(a, -9, 9) if a.dtype == dtype else a for a in args))


def clamp(e: E, low: int, high: int) -> E:
    return call("max", call("min", e, const(high, e.dtype)), const(low, e.dtype))


def cast(e: E, dtype: str) -> E:
    if e.dtype == dtype:
        return e
    least, most = limits(dtype)
    inside = least <= e.low and e.high <= most
    if not inside and dtype in FLOATS:
        e, inside = clamp(e, -9, 9), True
    if e.dtype in FLOATS:  # what does not fit becomes the least or the greatest
        low, high = (min(max(x, least), most) for x in (e.low, e.high))
        return E("cast", (e,), dtype, low, high)
    return E("cast", (e,), dtype, e.low if inside else least, e.high if inside else most)


def whole(value: float, least: int, most: int) -> int:
    """A float as an integer: without its fraction, between the least and the greatest; NaN is 0."""
    if value != value:
        return 0
    return int(min(max(value, least), most))


def unbounded(e: E) -> E:
    """`e` as of elements that may hold anything, so that every integer wraps around."""
    if e.op in ("const", "axis"):
        return e
    args = tuple(unbounded(a) if isinstance(a, E) else a for a in e.args)
    low, high = limits(e.dtype)
    return E(e.op, args, e.dtype, low, high)


def walk(e: E) -> Iterator[E]:
    yield e
    for a in e.args:
        if isinstance(a, E):
            yield from walk(a)
