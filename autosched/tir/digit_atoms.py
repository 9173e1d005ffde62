"""Digits `(x // d) % m` as atoms of linear forms, each value in one form however it was nested.

Neighbouring digits of one base are put together again; what the range of the base allows is taken
out of a digit.
"""

from __future__ import annotations

from math import gcd

from autosched.tir.inequalities import Inequalities
from autosched.tir.linear import DigitKey, Key, Linear, plus


class Digits(Inequalities):
    """Inequalities, and digits of forms whose ranges they tell."""

    def digit(self, base: Linear, div: int, mod: int | None) -> Linear:
        """`(base // div) % mod` in its simplest form."""
        return self.join(self._digit(base, div, mod))

    def _digit(self, base: Linear, div: int, mod: int | None) -> Linear:
        """`(base // div) % mod`, with all that its range allows taken out."""
        if mod == 1:
            return Linear(0, {})
        if mod is not None:  # multiples of div * mod do not show
            whole = div * mod
            base = Linear(base.const % whole, {k: c for k, c in base.terms.items() if c % whole})
        low, high = self.span(base)
        if mod is not None and low // (div * mod) == high // (div * mod):  # within one period
            base, mod = plus(base, Linear(-(low // (div * mod)) * div * mod, {})), None
        if mod is None:
            quotient = Linear(base.const // div, {})
            rest = Linear(base.const % div, {})
            for key, c in base.terms.items():
                target = rest if c % div else quotient
                target.terms[key] = c if c % div else c // div
            low, high = self.span(rest)
            if low // div == high // div:
                return plus(quotient, Linear(low // div, {}))
            high_part, step = self._upper(rest, div)
            if step > 1:
                return plus(quotient, self._digit(high_part, div // step, None))
            return plus(quotient, self._flat(rest, div, None))
        high_part, step = self._upper(base, div)
        if step > 1:
            return self._digit(high_part, div // step, mod)
        return self._flat(base, div, mod)

    def _upper(self, base: Linear, div: int) -> tuple[Linear, int]:
        """(upper, step) with `base // div == upper // (div // step)`: what is below `step`, a
        divisor of `div`, does not show. Of several steps the largest."""
        step = div
        upper: dict[Key, int] = {}
        lower = Linear(base.const, dict(base.terms))
        for key, c in sorted(base.terms.items(), key=lambda t: -abs(t[1])):
            step = gcd(step, c)
            upper[key] = c
            del lower.terms[key]
            if step == 1:
                break
            rest = Linear(lower.const % step, lower.terms)
            low, high = self.span(rest)
            if low >= 0 and high < step:
                const = lower.const // step
                return Linear(const, {k: c // step for k, c in upper.items()}), step
        return base, 1

    def _flat(self, base: Linear, div: int, mod: int | None) -> Linear:
        """The digit as an atom; a digit of a digit as one digit, so that one value has one key
        however it was nested."""
        if len(base.terms) == 1:
            ((key, c),) = base.terms.items()
            if isinstance(key, DigitKey) and c == 1:
                found = _digit_of_digit(key, base.const, div, mod)
                if found is not None:
                    return self._digit(*found)
        return Linear(0, {DigitKey(base.const, frozenset(base.terms.items()), div, mod): 1})

    def join(self, form: Linear) -> Linear:
        """Put digits of one base together: `c*m*(b // (d*m)) + c*((b // d) % m) == c*(b // d)`."""
        digits = [k for k in form.terms if isinstance(k, DigitKey)]
        if not digits:
            return form
        for low in digits:
            c = form.terms[low]
            if low.mod is None:
                if low.div == 1:
                    rest = Linear(form.const, {k: v for k, v in form.terms.items() if k != low})
                    return self.join(plus(rest, low.base, c))
                continue
            for high in digits:
                if (
                    high.terms == low.terms
                    and high.const == low.const
                    and high.div == low.div * low.mod
                    and form.terms[high] == c * low.mod
                ):
                    rest = Linear(
                        form.const, {k: v for k, v in form.terms.items() if k not in (low, high)}
                    )
                    mod = None if high.mod is None else high.mod * low.mod
                    if mod is None and low.div == 1:
                        return self.join(plus(rest, low.base, c))
                    key = DigitKey(low.const, low.terms, low.div, mod)
                    return self.join(plus(rest, Linear(0, {key: c})))
        return form


def _digit_of_digit(
    inner: DigitKey, const: int, div: int, mod: int | None
) -> tuple[Linear, int, int | None] | None:
    """`((inner + const) // div) % mod` as (base, div, mod) of one digit, or None."""
    if inner.mod is None:
        base = plus(inner.base, Linear(const * inner.div, {}))
        return base, inner.div * div, mod
    if const or inner.mod % div:
        return None
    left = inner.mod // div  # (x % m) // d == (x // d) % (m / d)
    if mod is not None and left % mod:
        return None
    return inner.base, inner.div * div, left if mod is None else mod
