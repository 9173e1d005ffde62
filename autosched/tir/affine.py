"""Affine forms over loop variables: the arithmetic of bindings, accesses, predicates and regions.

An `Int` is a Python int, an int64 array of shape (N,), one number a candidate, or a symbolic
`Size`. Every function here takes all three, so that one schedule, a population of N schedules, and
a schedule for all sizes run through the same code (idea 2 of the design). Where a decision hangs on
a value ("is it divisible?") it must hold for *all* candidates, or all sizes, to be used.

Structure: `const + sum(coefficient * atom)`. An atom is a variable, or a `Digit`
`(base // div) % mod` of another affine form, which is what fusing loops and packed layouts leave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from autosched.errors import NotBatchable
from autosched.tir import expr as ex
from autosched.tir.expr import Expr, Var
from autosched.tir.size import Size, below_zero, exact_quotient
from autosched.tir.size_atoms import Undecided, Unknown

IntArray = npt.NDArray[np.int64]
Int = Union[int, IntArray, Size]
Extents = Mapping[Var, Int]


def ceildiv(a: Int, b: Int) -> Int:
    """Smallest integer >= a / b."""
    if isinstance(a, Size) or isinstance(b, Size):
        return (a + b - 1) // b
    return -(-a // b)


def imin(a: Int, b: Int) -> Int:
    """Elementwise minimum; stays a Python int when both are. Raises Undecided where the lesser of
    two symbolic sizes is not the same for all sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    if isinstance(a, Size) or isinstance(b, Size):
        return a if _is_least(a, b) else b
    return np.minimum(a, b)


def imax(a: Int, b: Int) -> Int:
    """Elementwise maximum, like `imin`."""
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    if isinstance(a, Size) or isinstance(b, Size):
        return b if _is_least(a, b) else a
    return np.maximum(a, b)


def _is_least(a: Int, b: Int) -> bool:
    least = a <= b
    if isinstance(least, Unknown):
        if (b <= a) is not True:
            raise Undecided(f"the lesser of {a} and {b} is not the same for all sizes")
        return False
    return bool(least)


def always(condition: Any) -> bool:
    """Whether a comparison of Ints holds for every candidate and all sizes."""
    if isinstance(condition, (bool, int)):
        return bool(condition)
    return not isinstance(condition, Unknown) and bool(np.all(condition))


def sometimes(condition: Any) -> bool:
    """Whether a comparison of Ints holds for some candidate, or may hold for some sizes."""
    if isinstance(condition, (bool, int)):
        return bool(condition)
    return isinstance(condition, Unknown) or bool(np.any(condition))


def is_zero(a: Int) -> bool:
    """Whether `a` is 0 for every candidate and all sizes."""
    if isinstance(a, int):
        return a == 0
    return not isinstance(a, Size) and not a.any()


def same_int(a: Int, b: Int) -> bool:
    """Whether two Ints are equal for every candidate and all sizes."""
    return a is b or always(a == b)


def whole(a: Int, div: Int) -> Int:
    """What `div` goes into all of `a`: the multiples of `div` that are taken out of a quotient."""
    if isinstance(a, Size) or isinstance(div, Size):
        if isinstance(a, Size) and isinstance(div, int):
            return a // div if exact_quotient(a, div) is not None else 0
        found = exact_quotient(a, div)  # type: ignore[arg-type]
        return 0 if found is None else found
    return a // div


def divides(div: Int, a: Int) -> bool:
    """Whether `div` goes into `a` for every candidate and all sizes."""
    if isinstance(a, Size) or isinstance(div, Size):
        return exact_quotient(a, div) is not None  # type: ignore[arg-type]
    return always(a % div == 0)


@dataclass(frozen=True, eq=False, slots=True)
class Digit:
    """The atom `(base // div) % mod`; `mod` None means no modulus. `div` and `mod` are positive."""

    base: Affine
    div: Int
    mod: Int | None

    def variables(self) -> Iterator[Var]:
        """Variables in the base."""
        return self.base.variables()


Atom = Union[Var, Digit]


def same_atom(a: Atom, b: Atom) -> bool:
    """Identity for variables, structure for digits."""
    if a is b:
        return True
    if isinstance(a, Var) or isinstance(b, Var):
        return False
    if (a.mod is None) != (b.mod is None):
        return False
    if not same_int(a.div, b.div) or not (a.mod is None or b.mod is None or same_int(a.mod, b.mod)):
        return False
    return a.base.same(b.base)


@dataclass(frozen=True, eq=False, slots=True)
class Affine:
    """`const + sum(coefficient * atom for atom, coefficient in terms)`; atoms are distinct."""

    const: Int = 0
    terms: tuple[tuple[Atom, Int], ...] = ()

    @staticmethod
    def of(atom: Atom, coefficient: Int = 1) -> Affine:
        """The form `coefficient * atom`."""
        return Affine(0, ((atom, coefficient),))

    def __add__(self, other: Affine | Int) -> Affine:
        if not isinstance(other, Affine):
            return Affine(self.const + other, self.terms)
        terms = list(self.terms)
        for atom, coefficient in other.terms:
            for n, (mine, old) in enumerate(terms):
                if same_atom(mine, atom):
                    total = old + coefficient
                    if is_zero(total):
                        del terms[n]
                    else:
                        terms[n] = (mine, total)
                    break
            else:
                terms.append((atom, coefficient))
        return Affine(self.const + other.const, tuple(terms))

    def __mul__(self, factor: Int) -> Affine:
        if is_zero(factor):
            return Affine(0)
        return Affine(self.const * factor, tuple((a, c * factor) for a, c in self.terms))

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | Int) -> Affine:
        return self + (-other)

    def same(self, other: Affine) -> bool:
        """Equal as forms, whatever the order of terms."""
        difference = self - other
        return not difference.terms and is_zero(difference.const)

    def variables(self) -> Iterator[Var]:
        """Every variable, inside digits too; may repeat."""
        for atom, _ in self.terms:
            if isinstance(atom, Var):
                yield atom
            else:
                yield from atom.variables()

    def uses(self, variables: Collection[Var]) -> bool:
        """Whether any of `variables` occurs."""
        wanted = {id(v) for v in variables}
        return any(id(v) in wanted for v in self.variables())

    def coefficient(self, variable: Var) -> Int:
        """Coefficient of a variable as an atom of its own (0 where it stands inside digits
        only)."""
        for atom, c in self.terms:
            if atom is variable:
                return c
        return 0

    def single_var(self) -> Var | None:
        """The variable `v` if the form is exactly `v`."""
        if len(self.terms) == 1 and is_zero(self.const):
            atom, c = self.terms[0]
            if isinstance(atom, Var) and same_int(c, 1):
                return atom
        return None

    def is_const(self) -> bool:
        """Whether there are no terms."""
        return not self.terms

    def span(self, extents: Extents) -> tuple[Int, Int]:
        """Lowest and highest value, inclusive, with every variable in [0, extent).

        Where these depend on symbolic sizes in no simple way: bounds of them.
        """
        low: Int = self.const
        high: Int = self.const
        for atom, c in self.terms:
            a_low, a_high = _atom_span(atom, extents)
            x, y = c * a_low, c * a_high
            try:
                x, y = imin(x, y), imax(x, y)
            except Undecided:
                gap: Any = y - x
                x, y = x + below_zero(gap), x - below_zero(-gap)
            low = low + x
            high = high + y
        return low, high

    def split(self, inner: Collection[Var]) -> tuple[Affine, Affine]:
        """(outer, inner): the terms without and with `inner` variables; the constant goes outer."""
        wanted = {id(v) for v in inner}

        def is_inner(atom: Atom) -> bool:
            if isinstance(atom, Var):
                return id(atom) in wanted
            return any(id(v) in wanted for v in atom.variables())

        outside = tuple(t for t in self.terms if not is_inner(t[0]))
        inside = tuple(t for t in self.terms if is_inner(t[0]))
        return Affine(self.const, outside), Affine(0, inside)

    def substitute(self, values: Mapping[Var, Affine], extents: Extents | None = None) -> Affine:
        """Replace variables by forms; with `extents` (of the new variables) digits are
        simplified."""
        out = Affine(self.const)
        for atom, c in self.terms:
            if isinstance(atom, Var):
                value = values.get(atom)
                out = out + (Affine.of(atom, c) if value is None else value * c)
            else:
                base = atom.base.substitute(values, extents)
                out = out + digit(base, atom.div, atom.mod, extents or {}) * c
        return out

    def to_expr(self) -> Expr:
        """As an int64 expression, in the order of the terms. Raises NotBatchable where a number
        differs by candidate."""
        total: Expr | None = None
        for atom, c in self.terms:
            e: Expr = atom if isinstance(atom, Var) else _digit_expr(atom)
            if total is None:
                total = e * _number(c)
            else:
                total = total + e * _number(c) if always(c >= 0) else total - e * _number(-c)
        if total is None:
            return _number(self.const)
        up = always(self.const >= 0)
        return total + _number(self.const) if up else total - _number(-self.const)

    def evaluate(self, values: Mapping[Var, Int]) -> Int:
        """Value with every variable given."""
        total: Int = self.const
        for atom, c in self.terms:
            if isinstance(atom, Var):
                total = total + c * values[atom]
            else:
                x = atom.base.evaluate(values) // atom.div
                total = total + c * (x if atom.mod is None else x % atom.mod)
        return total


def _atom_span(atom: Atom, extents: Extents) -> tuple[Int, Int]:
    if isinstance(atom, Var):
        return 0, extents[atom] - 1
    low, high = atom.base.span(extents)
    try:
        low, high = low // atom.div, high // atom.div
    except Undecided:  # a symbolic divisor; it is at least 1
        low, high = imin(low, 0), imax(high, 0)
    if atom.mod is None:
        return low, high
    if always(low >= 0):  # the modulus can only lower the top; the bottom is 0 once it wraps
        wraps = high >= atom.mod
        if not sometimes(wraps):
            return low, high
        if isinstance(wraps, np.ndarray):
            low = np.where(wraps, 0, low)  # type: ignore[arg-type]
            return low, imin(high, atom.mod - 1)
    return 0 * low, atom.mod - 1 + 0 * high


def _number(value: Int) -> Expr:
    """A number as an expression."""
    if isinstance(value, Size):
        return value.to_expr()
    if isinstance(value, np.ndarray):
        raise NotBatchable("a number that differs by candidate has no place in an expression")
    return ex.const(int(value))


def _digit_expr(d: Digit) -> Expr:
    e = d.base.to_expr() // _number(d.div)
    return e if d.mod is None else e % _number(d.mod)


def digit(base: Affine, div: Int, mod: Int | None, extents: Extents) -> Affine:
    """`(base // div) % mod` as a form: terms that divide out or cannot reach `div` or `mod` are
    taken out of the digit where that is provable from `extents` for all candidates."""
    if not same_int(div, 1):
        out = Affine(whole(base.const, div))
        rest = Affine(base.const - whole(base.const, div) * div)
        for atom, c in base.terms:
            if divides(div, c):
                out = out + Affine.of(atom, whole(c, div))
            else:
                rest = rest + Affine.of(atom, c)
        known = _known(rest, extents)
        if known is not None and always(known[0] >= 0) and always(known[1] < div):
            return digit(out, 1, mod, extents)
        if mod is None:
            return out + Affine.of(Digit(rest, div, None))
        return Affine.of(Digit(base, div, mod))
    if mod is None:
        return base
    rest = Affine(base.const - whole(base.const, mod) * mod)
    for atom, c in base.terms:
        if not divides(mod, c):
            rest = rest + Affine.of(atom, c)
    known = _known(rest, extents)
    if known is not None and always(known[0] >= 0) and always(known[1] < mod):
        return rest
    return Affine.of(Digit(rest, 1, mod))


def recombine(form: Affine) -> Affine:
    """`form` with neighbouring digits of one base put together again:
    `x // 4 * 4 + x % 4` is `x`."""
    terms = list(form.terms)
    for high, c in terms:
        for low, d in terms:
            if not isinstance(high, Digit) or not isinstance(low, Digit) or low.mod is None:
                continue
            follows = same_int(high.div, low.div * low.mod) and same_int(c, d * low.mod)
            if high is not low and follows and high.base.same(low.base):
                mod = None if high.mod is None else low.mod * high.mod
                rest = tuple(t for t in terms if t[0] is not high and t[0] is not low)
                whole = digit(low.base, low.div, mod, {}) * d
                return recombine(Affine(form.const, rest) + whole)
    return form


def _known(form: Affine, extents: Extents) -> tuple[Int, Int] | None:
    """Span, or None where a variable's extent is not given."""
    if any(v not in extents for v in form.variables()):
        return None
    return form.span(extents)
