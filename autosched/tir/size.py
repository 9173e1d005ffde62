"""Symbolic sizes: extents that are known only when a built function is called.

A `Size` is an integer expression of size variables: a polynomial, with quotients `base // d` by
constants. It stands wherever an extent, a coefficient or a bound may be an array in a population,
and is treated alike: a program with symbolic sizes is a population of one member for every size.
A comparison that comes out the same for all sizes is a bool, any other is `Unknown`, which
`affine.always` and `affine.sometimes` understand and which has no truth value.

Every size variable is at least 1 and at most `MAX_SIZE`, which no array in memory exceeds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from math import gcd
from typing import Any, NoReturn, Union

import numpy as np

from autosched.errors import ScheduleError
from autosched.tir import expr as ex
from autosched.tir.expr import Expr
from autosched.tir.size_atoms import UNKNOWN, SizeVar, Undecided, Unknown

MAX_SIZE = 1 << 48
"""Extent of no dimension is larger: the address space of today's processors."""


_MAYBE_EQUAL, _MAYBE_UNEQUAL = Unknown(False), Unknown(True)


class Quotient:
    """The atom `base // div`."""

    __slots__ = ("base", "div", "key")

    def __init__(self, base: Size, div: int) -> None:
        self.base, self.div = base, div
        self.key: Hashable = ("//", base.key, div)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Quotient, (self.base, self.div))


SizeAtom = Union[SizeVar, Quotient]
Monomial = tuple[SizeAtom, ...]


class Size:
    """`const + sum(coefficient * product of atoms)`, with at least one term.

    Use the operators: they give a Python int where the terms cancel. `//` and `%` take a positive
    int, or a Size where the quotient is a polynomial for all sizes. A population's arrays do not
    mix with sizes (ScheduleError).
    """

    __slots__ = ("const", "key", "terms")
    __array_ufunc__ = None  # NumPy leaves operators to this class

    def __init__(self, const: int, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.const, self.terms = const, terms
        self.key: Hashable = (const, frozenset((_key(m), c) for m, c in terms))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (self.const, self.terms))

    @staticmethod
    def of(var: SizeVar) -> Size:
        """The size that is the variable itself."""
        return Size(0, (((var,), 1),))

    def variables(self) -> Iterator[SizeVar]:
        """Every variable, inside quotients too; may repeat."""
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, Quotient):
                    yield from atom.base.variables()
                else:
                    yield atom

    # Arithmetic

    def __add__(self, other: Any) -> Any:
        number = _operand(other)
        if number is None:
            return NotImplemented
        if isinstance(number, int):
            return Size(self.const + number, self.terms)
        return _sum(self.const + number.const, (*self.terms, *number.terms))

    def __mul__(self, other: Any) -> Any:
        number = _operand(other)
        if number is None:
            return NotImplemented
        mine = (*self.terms, ((), self.const))
        theirs = ((), number) if isinstance(number, int) else None
        pairs = (theirs,) if theirs is not None else (*number.terms, ((), number.const))  # type: ignore[union-attr]
        return _sum(0, [((*a, *b), x * y) for a, x in mine for b, y in pairs])

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        number = _operand(other)
        return NotImplemented if number is None else self + -number

    def __rsub__(self, other: Any) -> Any:
        number = _operand(other)
        return NotImplemented if number is None else -self + number

    def __floordiv__(self, other: Any) -> Any:
        number = _operand(other)
        return NotImplemented if number is None else _floordiv(self, number)

    def __rfloordiv__(self, other: Any) -> Any:
        number = _operand(other)
        return NotImplemented if number is None else _floordiv(number, self)

    def __mod__(self, other: Any) -> Any:
        number = _operand(other)
        return NotImplemented if number is None else self - _floordiv(self, number) * number

    def __rmod__(self, other: Any) -> Any:
        number = _operand(other)
        return NotImplemented if number is None else number - _floordiv(number, self) * self

    # Comparison: a bool where it is one for all sizes, else UNKNOWN

    def __ge__(self, other: Any) -> Any:
        number = _operand(other)
        return NotImplemented if number is None else _not_negative(self - number)

    def __gt__(self, other: Any) -> Any:
        number = _operand(other)
        return NotImplemented if number is None else _not_negative(self - number - 1)

    def __le__(self, other: Any) -> Any:
        number = _operand(other)
        return NotImplemented if number is None else _not_negative(number - self)

    def __lt__(self, other: Any) -> Any:
        number = _operand(other)
        return NotImplemented if number is None else _not_negative(number - self - 1)

    def __eq__(self, other: object) -> Any:
        number = _operand(other)
        if number is None:
            return NotImplemented
        gap = self - number
        if isinstance(gap, int):
            return gap == 0
        apart = _not_negative(gap - 1) is True or _not_negative(-gap - 1) is True
        return False if apart else _MAYBE_EQUAL

    def __ne__(self, other: object) -> Any:
        equal = self == other
        if equal is NotImplemented:
            return equal
        return _MAYBE_UNEQUAL if equal is _MAYBE_EQUAL else not equal

    def __hash__(self) -> int:
        return hash(self.key)

    def __int__(self) -> int:
        raise Undecided(f"{self} is a symbolic size, where a constant is needed")

    # Conversion

    def to_expr(self) -> Expr:
        """As an int64 expression, in the order of the terms."""
        total: Expr | None = None
        for monomial, c in self.terms:
            e: Expr | None = None
            for atom in monomial:
                factor = atom.base.to_expr() // atom.div if isinstance(atom, Quotient) else atom
                e = factor if e is None else e * factor
            assert e is not None
            if total is None:
                total = e * c
            else:
                total = total + e * c if c >= 0 else total - e * -c
        assert total is not None
        return total + self.const if self.const >= 0 else total - -self.const

    __as_expr__ = to_expr

    def __repr__(self) -> str:
        return repr(self.to_expr())

    def substitute(self, values: Mapping[SizeVar, Any]) -> Int:
        """The size with variables replaced by numbers or sizes."""
        total: Int = self.const
        for monomial, c in self.terms:
            part: Int = c
            for atom in monomial:
                if isinstance(atom, Quotient):
                    part = part * (atom.base.substitute(values) // atom.div)
                else:
                    part = part * values.get(atom, Size.of(atom))
            total = total + part
        return total

    def name_key(self, name: Callable[[SizeVar], Hashable]) -> Hashable:
        """Equal for equal sizes whose variables `name` calls alike."""
        parts = []
        for monomial, c in self.terms:
            atoms = [
                ("//", a.base.name_key(name), a.div) if isinstance(a, Quotient) else name(a)
                for a in monomial
            ]
            parts.append((tuple(sorted(atoms, key=repr)), c))
        return (self.const, frozenset(parts))


Int = Union[int, Size]


def _key(monomial: Monomial) -> Hashable:
    """Equal for equal products, whatever the order of their factors."""
    counts: dict[Hashable, int] = {}
    for atom in monomial:
        key = atom.key if isinstance(atom, Quotient) else id(atom)
        counts[key] = counts.get(key, 0) + 1
    return frozenset(counts.items())


def _sum(const: int, terms: Iterable[tuple[Monomial, int]]) -> Int:
    """The sum of terms; those of one product are added, in the place of the first."""
    found: dict[Hashable, tuple[Monomial, int]] = {}
    for monomial, c in terms:
        if not monomial:
            const += c
            continue
        key = _key(monomial)
        known = found.get(key)
        found[key] = (monomial, c) if known is None else (known[0], known[1] + c)
    left = tuple((m, c) for m, c in found.values() if c)
    return Size(const, left) if left else const


def _operand(value: object) -> Int | None:
    """A number that mixes with sizes; None for what is none."""
    if isinstance(value, (int, Size)):
        return value
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.ndarray):
        _refuse_arrays()
    return None  # an expression, say, whose own operators take the size as one


def _refuse_arrays() -> NoReturn:
    raise ScheduleError(
        "a program with symbolic sizes has no population: schedule it with ints, or specialize it "
        "to representative sizes first (func.specialize(n=1024))"
    )


def _floordiv(a: Int, b: Int) -> Int:
    if isinstance(b, Size):
        return _divided(a, b)
    if b < 1:
        raise ScheduleError(f"{a} // {b}: a symbolic size is divided by positive integers only")
    if isinstance(a, int):
        return a // b
    # Whole multiples of b leave the quotient, so that equal quotients look alike.
    whole = _sum(a.const // b, [(m, c // b) for m, c in a.terms])
    rest = _sum(a.const % b, [(m, c % b) for m, c in a.terms])
    return rest // b + whole if isinstance(rest, int) else _reduced(rest, b) + whole


def _reduced(a: Size, b: int) -> Size:
    """`a // b`, the coefficients of `a` being below `b`, in its simplest form."""
    common = gcd(b, *(c for _, c in a.terms))
    a = Size(a.const // common, tuple((m, c // common) for m, c in a.terms))
    b //= common
    if len(a.terms) == 1 and b > 1:
        ((monomial, c),) = a.terms
        if c == 1 and len(monomial) == 1 and isinstance(monomial[0], Quotient):
            inner = monomial[0]
            return _reduced(inner.base + a.const * inner.div, inner.div * b)
    return a if b == 1 else Size(0, (((Quotient(a, b),), 1),))


def exact_quotient(a: Int, b: Int) -> Int | None:
    """`a / b` where the terms of `a` are multiples of `b`, which is an int or a single product."""
    if isinstance(b, int):
        if isinstance(a, int):
            return a // b if a % b == 0 else None
        if a.const % b or any(c % b for _, c in a.terms):
            return None
        return _sum(a.const // b, [(m, c // b) for m, c in a.terms])
    if isinstance(a, int):
        return 0 if a == 0 else None
    if a.key == b.key:
        return 1
    if b.const or len(b.terms) != 1 or a.const:
        return None
    ((factors, scale),) = b.terms
    out = []
    for monomial, c in a.terms:
        left = list(monomial)
        for atom in factors:
            found = next((n for n, x in enumerate(left) if _key((x,)) == _key((atom,))), None)
            if found is None:
                return None
            del left[found]
        if c % scale:
            return None
        out.append((tuple(left), c // scale))
    return _sum(0, out)


def below_zero(value: Int) -> Int:
    """A bound below both `value` and 0: its negative terms, since all atoms are 0 or more."""
    if isinstance(value, int):
        return min(value, 0)
    return _sum(min(value.const, 0), [(m, min(c, 0)) for m, c in value.terms])


def _divided(a: Int, b: Size) -> Int:
    """`a // b` where it is a polynomial for all sizes."""
    guess: Int = 0
    rest: Int = a if isinstance(a, int) else a.const
    for monomial, c in () if isinstance(a, int) else a.terms:
        term = Size(0, ((monomial, c),))
        quotient = exact_quotient(term, b)
        if quotient is None:
            rest = rest + term
        else:
            guess = guess + quotient
    for extra in (0, -1):
        left = rest - b * extra
        if _not_negative(left) is True and _not_negative(b - 1 - left) is True:
            return guess + extra
    raise Undecided(f"({a}) // ({b}) has no simple form for all sizes")


def _not_negative(value: Int) -> Any:
    """Whether `value >= 0`: True, False, or UNKNOWN."""
    if isinstance(value, int):
        return value >= 0
    if _proved(value, 3):
        return True
    opposite = -value - 1
    return False if isinstance(opposite, Size) and _proved(opposite, 3) else UNKNOWN


def _proved(value: Int, steps: int) -> bool:
    """Whether `value >= 0` follows from what is known: variables are at least 1, and
    `base - d + 1 <= d * (base // d) <= base`, used for up to `steps` quotients."""
    if isinstance(value, int):
        return value >= 0
    shifted = _shifted(value)
    if shifted >= 0:
        return True
    if steps == 0:
        return False
    quotients = {a.key: a for m, _ in value.terms for a in m if isinstance(a, Quotient)}
    return any(_proved(_without(value, q), steps - 1) for q in quotients.values())


def _shifted(value: Size) -> int:
    """A lower bound: the value at the smallest atoms, where from there it grows in every atom;
    else -1."""
    total: dict[Hashable, int] = {}
    const = value.const
    for monomial, c in value.terms:
        # The product of (low + atom') over the atoms, atom' >= 0, as a sum over their subsets.
        parts: list[tuple[Monomial, int]] = [((), c)]
        for atom in monomial:
            low = _lowest(atom)
            parts = [x for m, k in parts for x in (((*m, atom), k), (m, k * low))]
        for m, k in parts:
            if m:
                total[_key(m)] = total.get(_key(m), 0) + k
            else:
                const += k
    return const if all(k >= 0 for k in total.values()) else -1


def _lowest(atom: SizeAtom) -> int:
    if isinstance(atom, SizeVar):
        return 1
    low = _shifted(atom.base)  # bases have coefficients of 0 and more
    return max(low, 0) // atom.div


def _without(value: Size, quotient: Quotient) -> Int:
    """`value * d` or less, with `d * quotient` replaced by the bound that makes it least."""
    d, base = quotient.div, quotient.base
    total: Int = value.const * d
    for monomial, c in value.terms:
        rest = list(monomial)
        at = next((n for n, x in enumerate(rest) if getattr(x, "key", None) == quotient.key), None)
        if at is None:
            total = total + Size(0, ((monomial, c * d),))
            continue
        del rest[at]
        bound = base - (d - 1) if c > 0 else base
        total = total + bound * (Size(0, ((tuple(rest), c),)) if rest else c)
    return total


def size_of(e: Expr) -> Int | None:
    """An int64 expression of size variables as a size, or None if it is none."""
    if isinstance(e, SizeVar):
        return Size.of(e)
    if isinstance(e, ex.Const) and e.dtype == "int64":
        return int(e.value)
    if not isinstance(e, ex.Call) or e.dtype != "int64":
        return None
    args = [size_of(a) for a in e.args]
    if any(a is None for a in args):
        return None
    a = args[0]
    assert a is not None
    if e.op == "neg":
        return -a
    if e.op not in ("add", "sub", "mul", "floordiv", "floormod"):
        return None
    b = args[1]
    assert b is not None
    if e.op == "add":
        return a + b
    if e.op == "sub":
        return a - b
    if e.op == "mul":
        return a * b
    if isinstance(b, Size) or b < 1:
        return None
    return a // b if e.op == "floordiv" else a % b
