"""What the indices of a read say of single axes.

`x[i * 8 + j]` with j < 8 tells both axes, `x[i // 8, i % 8]` tells i, and `x[i // 2]` one of two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autosched.te.tensor import Extent, IterVar
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Digit, Int, always, divides, is_zero, same_int
from autosched.tir.expr import Expr, Var


@dataclass
class Equations:
    """Forms of axes and the values that they have, at points where the `conditions` hold. The axes
    `over` are digits of axes that no index tells."""

    each: list[tuple[Affine, Expr]] = field(default_factory=list)
    over: list[IterVar] = field(default_factory=list)
    conditions: list[Expr] = field(default_factory=list)

    def add(self, form: Affine, value: Expr, extents: Mapping[Var, Int]) -> None:
        """form == value; as an equation for each axis where their ranges do not overlap."""
        sign = 1 if all(always(c >= 0) for _, c in form.terms) else -1
        terms = _ascending([(a, c * sign) for a, c in form.terms], extents)
        if terms is None:
            self.each.append((form, value))
            return
        whole = (value - _expr(form.const)) * sign
        if not same_int(terms[0][1], 1):
            self.conditions.append(whole % _expr(terms[0][1]) == 0)
        for n, (axis, c) in enumerate(terms):
            part = whole
            if n + 1 < len(terms):
                part = part % _expr(terms[n + 1][1])
            self.each.append((Affine.of(axis), part if same_int(c, 1) else part // _expr(c)))


def equations(
    forms: Mapping[int, Affine],
    element: Sequence[Var],
    shape: Sequence[Extent],
    extents: Mapping[Var, Int],
) -> Equations:
    """The equations of indices that have `forms`, of an `element` of an array of `shape`;
    `extents` are those of the axes that begin at 0."""
    found = Equations()
    digits: list[tuple[Affine, dict[int, Digit]]] = []
    told: set[Var] = set()
    for d, form in forms.items():
        digit = _only_digit(form)
        if digit is None:
            told.update(a for a, _ in form.terms if isinstance(a, Var))
            found.add(form, element[d], extents)
            continue
        group = next((g for base, g in digits if base.same(digit.base)), None)
        if group is None:
            digits.append((digit.base, {d: digit}))
        else:
            group[d] = digit
    for base, group in digits:
        used = set(base.variables())
        if used <= told or not used <= extents.keys() or not _join(
            found, base, group, element, shape, extents
        ):  # fmt: skip
            found.each += [(forms[d], element[d]) for d in group]
    return found


def _only_digit(form: Affine) -> Digit | None:
    if len(form.terms) != 1 or not is_zero(form.const):
        return None
    atom, c = form.terms[0]
    return atom if isinstance(atom, Digit) and same_int(c, 1) else None


def _ascending(
    terms: Sequence[tuple[object, Int]], extents: Mapping[Var, Int]
) -> list[tuple[Var, Int]] | None:
    """Several axes with their factors, each a multiple of the one before it and beyond what that
    reaches; None for others."""
    left = [(a, c) for a, c in terms if isinstance(a, Var) and a in extents and always(c >= 1)]
    if len(left) != len(terms):
        return None
    left = [(a, c) for a, c in left if not same_int(extents[a], 1)]  # it is 0
    if len(left) < 2:
        return None
    found: list[tuple[Var, Int]] = []
    reach: Int = 1
    while left:
        least = next((n for n, t in enumerate(left) if _is_least(t[1], left)), None)
        if least is None or not always(left[least][1] >= reach):
            return None
        axis, c = left.pop(least)
        if found and not divides(found[-1][1], c):
            return None
        found.append((axis, c))
        reach = c * extents[axis]
    return found


def _is_least(number: Int, others: Sequence[tuple[Var, Int]]) -> bool:
    return all(always(c >= number) for _, c in others)


def _join(
    found: Equations,
    base: Affine,
    digits: Mapping[int, Digit],
    element: Sequence[Var],
    shape: Sequence[Extent],
    extents: Mapping[Var, Int],
) -> bool:
    """Add the equation of a form whose digits are indices, if they are those of one number."""
    low, high = base.span(extents)
    if not always(low >= 0):
        return False
    parts: list[tuple[Expr, Int]] = []
    over: list[IterVar] = []
    conditions: list[Expr] = []
    position: Int | None = 1
    left = dict(digits)

    def missing(below: Int, count: Int) -> None:
        over.append(IterVar("r", dtypes.INDEX, 0, int(count), "reduce", "", True))
        parts.append((over[-1], below))

    while left:
        d = next(
            (d for d in left if all(always(o.div >= left[d].div) for o in left.values())), None
        )
        if d is None or position is None:
            return False
        digit = left.pop(d)
        if not same_int(digit.div, position):
            if not isinstance(digit.div, int) or not isinstance(position, int):
                return False
            if digit.div < position or digit.div % position:
                return False
            missing(position, digit.div // position)
        parts.append((element[d], digit.div))
        position = None if digit.mod is None else digit.div * digit.mod
        if digit.mod is not None and not always(shape[d] <= digit.mod):
            conditions.append(element[d] < _expr(digit.mod))
    if position is not None and not always(high < position):
        if not isinstance(high, int) or not isinstance(position, int):
            return False
        missing(position, high // position + 1)
    value = _expr(0)
    for part, factor in parts:
        value = value + part * _expr(factor)
    found.add(base, value, extents)
    found.over += over
    found.conditions += conditions
    return True


def _expr(number: Int) -> Expr:
    return Affine(number).to_expr()
