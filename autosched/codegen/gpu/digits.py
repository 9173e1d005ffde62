"""Quotients and remainders in indices, as simple as terms allow: divisions cost a GPU dear."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from autosched.tir.affine import Affine, Digit, Int
from autosched.tir.expr import Var

Extents = Mapping[Var, Int]


def simpler(form: Affine, extents: Extents) -> Affine:
    """The same number, of constants: `tx * 4 // 8` is `tx // 2`, and where tx is below 128
    `(bx * 128 + tx) % 1024` is `bx % 8 * 128 + tx` and `(step * 128 + tx) // 32 % 4` is
    `tx // 32`, which no loop over steps has to compute again."""
    out = Affine(form.const)
    for atom, c in form.terms:
        out = out + (_digit(atom, extents) if isinstance(atom, Digit) else Affine.of(atom)) * c
    return out


def _digit(d: Digit, extents: Extents) -> Affine:
    base, div = simpler(d.base, extents), int(d.div)
    if d.mod is not None:
        _, base = _wholes(base, div * int(d.mod))
        if _is_below(base, div * int(d.mod), extents):
            return _digit(Digit(base, div, None), extents)
    else:
        wholes, base = _wholes(base, div)
        if _is_below(base, div, extents):
            return wholes
        if wholes.terms or wholes.const != 0:
            return wholes + _digit(Digit(base, div, None), extents)
    if div > 1:
        high, _ = _parts(base, div, extents)
        base, div = _reduced(high, div)
    if d.mod is None:
        return base if div == 1 else Affine.of(Digit(base, div, None))
    mod = int(d.mod)
    if div > 1:
        return Affine.of(Digit(base, div, mod))
    high, low = _parts(base, mod, extents)
    base, rest = _reduced(high, mod)
    if rest == 1:
        return low
    return Affine.of(Digit(base, 1, rest)) * (mod // rest) + low


def _is_below(form: Affine, n: int, extents: Extents) -> bool:
    """Whether a form is from 0 to below n."""
    first, last = form.span(extents)
    return bool(first >= 0 and last < n)


def _wholes(form: Affine, n: int) -> tuple[Affine, Affine]:
    """(how often n is in `form` for certain, the rest of it)."""
    const = int(form.const)
    whole = tuple((a, int(c) // n) for a, c in form.terms if int(c) % n == 0)
    rest = tuple((a, c) for a, c in form.terms if int(c) % n)
    return Affine(const // n, whole), Affine(const % n, rest)


def _reduced(form: Affine, n: int) -> tuple[Affine, int]:
    """(form, n) without the factor that both have."""
    g = gcd(n, int(form.const), *(int(c) for _, c in form.terms))
    terms = tuple((a, int(c) // g) for a, c in form.terms)
    return Affine(int(form.const) // g, terms), n // g


def _parts(form: Affine, n: int, extents: Extents) -> tuple[Affine, Affine]:
    """(high, low), whose sum is `form`: high is a multiple of a divisor of n, and low is from 0 to
    below that, so that it changes no quotient by n."""
    const = int(form.const)
    for step in sorted({abs(int(c)) for _, c in form.terms}):
        if step == 1 or n % step:
            continue
        high = tuple((a, c) for a, c in form.terms if int(c) % step == 0)
        low = Affine(const % step, tuple((a, c) for a, c in form.terms if int(c) % step))
        if _is_below(low, step, extents):
            return Affine(const - const % step, high), low
    return form, Affine(0)
