"""Whether forms are the digits of one number: what fusing loops and splitting the result leaves.

The digits of `f = 128 * f0 + f1` come in many guises: `f1` is `f % 128`, `f0 // 56` is
`f // 7168`, and `f0 * 2 + f1 // 64` is `f // 64`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from autosched.tir.affine import Affine, Atom, Digit, Extents, Int
from autosched.tir.expr import Var


def digits_apart(forms: Sequence[Affine], over: Collection[Var], extents: Extents) -> bool:
    """Whether different values of the variables `over` give different values of the forms, since
    some of these are all digits of numbers that these variables make up. Of constants only."""
    moving = set(over)
    still = {v for f in forms for v in f.variables()} - moving
    if not all(isinstance(extents[v], int) for v in moving | still):
        return False
    both = [*forms, *(f.split(over)[1] for f in forms)]
    found = [d for d in (as_digit(f) for f in both) if d is not None]
    bases = [d.base for d in found] + [Affine.of(v) for v in over]
    # What stands still is known, and so are its digits.
    found += [Digit(Affine.of(v), 1, None) for v in still]
    left = {v for v in moving if extents[v] != 1}
    for base in sorted(bases, key=lambda b: -len(b.terms)):
        used = set(base.variables()) - still
        if used & left and _is_radix(base, extents) and _covers(found, base, extents):
            left -= used
    return not left


def as_digit(form: Affine) -> Digit | None:
    """A form as one digit: a sum of variables, `x // d` with multiples of d taken out, or a
    digit."""
    digits = [(a, c) for a, c in form.terms if isinstance(a, Digit)]
    plain = Affine(0, tuple((a, c) for a, c in form.terms if isinstance(a, Var)))
    if not is_constant(form):
        return None
    if not digits:
        return Digit(plain, 1, None) if plain.terms else None
    if len(digits) > 1 or digits[0][1] != 1:
        return None
    ((digit, _),) = digits
    if not plain.terms:
        return _flat(digit)
    if digit.mod is not None:
        return None
    return Digit(digit.base + plain * digit.div, digit.div, None)


def _flat(digit: Digit) -> Digit:
    """A digit of a digit as one digit: `x // 3 // 4` is `x // 12`, and `(4 * y + x // 3) // 4` is
    `(12 * y + x) // 12`."""
    base = digit.base
    if base.const != 0 or all(isinstance(a, Var) for a, _ in base.terms):
        return digit
    inner = as_digit(base)
    if inner is None:
        return digit
    div, mod = int(digit.div), digit.mod
    if inner.mod is not None:
        left, over = divmod(int(inner.mod), div)
        if over or (mod is not None and left % int(mod)):
            return digit
        mod = left if mod is None else mod
    return Digit(inner.base, int(inner.div) * div, mod)


def is_constant(form: Affine) -> bool:
    """Whether no symbolic size and no array of candidates stands in it."""
    return isinstance(form.const, int) and all(
        isinstance(c, int)
        and (
            isinstance(a, Var)
            or (
                isinstance(a.div, int)
                and (a.mod is None or isinstance(a.mod, int))
                and is_constant(a.base)
            )
        )
        for a, c in form.terms
    )


def _is_radix(base: Affine, extents: Extents) -> bool:
    """Whether the number determines its variables: each weighs more than those below can add."""
    weights: list[tuple[int, int]] = []
    for atom, c in base.terms:
        if not isinstance(atom, Var):
            return False
        weights.append((abs(int(c)), int(extents[atom])))
    reach = 0
    for weight, extent in sorted(weights):
        if weight <= reach:
            return False
        reach += weight * (extent - 1)
    return True


def _covers(digits: Sequence[Digit], base: Affine, extents: Extents) -> bool:
    """Whether digits of `base` are among `digits` from the lowest to the highest."""
    low, high = base.span(extents)
    known = [x for x in (within(d, base, extents) for d in digits) if x is not None]
    reach = 1
    while True:
        if low >= 0 and high < reach:
            return True
        # A digit that begins lower overlaps what is known, and adds what is above.
        tops = [None if m is None else d * m for d, m in known if d <= reach and reach % d == 0]
        if None in tops:
            return True
        best = max((t for t in tops if t is not None), default=0)
        if best <= reach:
            return False
        reach = best


Tail = tuple[Affine, int]
"""A form that conditions keep below a number, and above -1."""


def within(
    digit: Digit, base: Affine, extents: Extents, tails: Sequence[Tail] = ()
) -> tuple[int, int | None] | None:
    """(d, m) with `digit == base // d % m`, if it is a digit of `base`, where `tails` hold."""
    own = digit.base
    atom, c = own.terms[0]
    whole = _coefficient(base, atom)
    if not isinstance(whole, int) or not isinstance(c, int) or whole % c or whole // c < 1:
        return None
    scale = whole // c
    rest = base - own * scale
    div, mod = int(digit.div) * scale, digit.mod
    if mod is None:
        span = _span(own, extents)
        # All of a number is its lowest digit; what the base has above may be left out of it.
        mod = None if not rest.terms or span is None else span // int(digit.div) + 1
    else:
        mod = int(mod)
    above = None if mod is None else div * mod
    small = Affine(
        rest.const,
        tuple((a, x) for a, x in rest.terms if above is None or x % above),
    )
    low, high = _tight_span(small, extents, tails)
    return (div, mod) if low >= 0 and high < scale else None


def _tight_span(form: Affine, extents: Extents, tails: Sequence[Tail]) -> tuple[Int, Int]:
    """Lowest and highest value, as far as ranges and the last of the tails in it tell."""
    for tail, reach in reversed(tails):
        atom, c = tail.terms[0]
        k, over = divmod(_coefficient(form, atom), int(c))
        rest = form - tail * k
        if k > 0 and not over and not rest.uses(tuple(tail.variables())):
            low, high = rest.span(extents)
            return low, high + k * (reach - 1)
    return form.span(extents)


def _coefficient(form: Affine, atom: Atom) -> int:
    found = form.coefficient(atom) if isinstance(atom, Var) else 0
    return found if isinstance(found, int) else 0


def _span(form: Affine, extents: Extents) -> int | None:
    """The highest value, if none is below 0."""
    low, high = form.span(extents)
    return int(high) if low >= 0 else None
