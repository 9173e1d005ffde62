"""What is known of the values of atoms: ranges and linear inequalities, and proofs from them.

A proof goes by intervals, then by eliminating atoms with one inequality after the other (a few
steps of Fourier-Motzkin). It is sound and incomplete: False means "not proved".
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import gcd
from typing import Self

from autosched.errors import VerifyError
from autosched.tir.linear import DigitKey, Key, Linear, plus

STEPS = 4
"""Inequalities combined at most in one proof; bindings and guards in use need one or two."""
BUDGET = 2000
"""Combinations tried at most for one inequality: programs may come from anyone."""


class _Clock:
    """A deadline in this thread's time. Reading that is a call of the system, so not every step
    does."""

    def __init__(self, seconds: float) -> None:
        self.end = time.thread_time() + seconds
        self.steps = 0

    def check(self) -> None:
        self.steps += 1
        if self.steps % STRIDE == 1 and time.thread_time() > self.end:
            self.steps = 0  # whoever asks again is told again
            raise VerifyError("verifying the program takes too long; make it smaller")


STRIDE = 16
"""Steps of a proof, some milliseconds at most each, from one look at the clock to the next."""
_CLOCK: ContextVar[_Clock | None] = ContextVar("deadline of proofs", default=None)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Within it, proofs raise VerifyError once they took `seconds` of this thread's time."""
    token = _CLOCK.set(_Clock(seconds))
    try:
        yield
    finally:
        _CLOCK.reset(token)


def check_time() -> None:
    """Raises VerifyError beyond the deadline."""
    clock = _CLOCK.get()
    if clock is not None:
        clock.check()


INFINITE = 1 << 80


@dataclass(frozen=True, slots=True)
class AtMost:
    """The inequality `sum(coefficient * atom) <= bound`."""

    terms: dict[Key, int]
    bound: int


class Inequalities:
    """Ranges of atoms and inequalities between them."""

    def __init__(self) -> None:
        check_time()
        self._ranges: dict[Key, tuple[int, int]] = {}
        self._tight: dict[Key, tuple[int, int]] = {}
        self._cache: dict[Key, tuple[int, int]] = {}
        self._known: list[AtMost] = []
        self._budget = 0
        self.impossible = False

    def copy(self) -> Self:
        """The same, to which more can be added."""
        new = type(self).__new__(type(self))
        new._ranges = dict(self._ranges)
        new._tight = dict(self._tight)
        new._cache = {}
        new._known = list(self._known)
        new._budget = 0
        new.impossible = self.impossible
        return new

    def _add(self, form: Linear, bound: int) -> None:
        """Add `form <= bound`."""
        bound -= form.const
        if not form.terms:
            self.impossible |= bound < 0
            return
        self._cache.clear()
        if len(form.terms) > 1:
            self._known.append(AtMost(form.terms, bound))
            return
        ((key, c),) = form.terms.items()
        low, high = self._tight.get(key, (-INFINITE, INFINITE))
        if c > 0:
            high = min(high, bound // c)
        else:
            low = max(low, -(bound // -c))
        self._tight[key] = (low, high)
        low, high = self.range(key)
        self.impossible |= low > high
        if isinstance(key, DigitKey) and key.mod is None:  # x // d <= b where x <= d * b + d - 1
            if c > 0:
                self._add(key.base, key.div * (bound // c) + key.div - 1)
            else:
                below = plus(Linear(0, {}), key.base, -1)
                self._add(below, key.div * (bound // -c))

    def range(self, key: Key) -> tuple[int, int]:
        """Lowest and highest value of an atom, inclusive."""
        found = self._cache.get(key)
        if found is None:
            if isinstance(key, DigitKey):
                found = self._digit_range(key)
            else:
                found = self._ranges[key]
            tight = self._tight.get(key)
            if tight is not None:
                found = (max(found[0], tight[0]), min(found[1], tight[1]))
            self._cache[key] = found
        return found

    def _digit_range(self, key: DigitKey) -> tuple[int, int]:
        low, high = self.span(key.base)
        low, high = low // key.div, high // key.div
        if key.mod is not None and not (low >= 0 and high < key.mod):
            low, high = 0, key.mod - 1
        for other, (least, most) in self._tight.items():
            if isinstance(other, DigitKey) and _same_top(key, other):
                if other.div % key.div == 0:  # `other` is the upper part of it
                    step = other.div // key.div
                    low, high = max(low, least * step), min(high, most * step + step - 1)
                elif key.div % other.div == 0:
                    step = key.div // other.div
                    low, high = max(low, least // step), min(high, most // step)
        return low, high

    def span(self, form: Linear) -> tuple[int, int]:
        """Lowest and highest value by ranges alone."""
        low = high = form.const
        for key, c in form.terms.items():
            a, b = self.range(key)
            low += c * a if c > 0 else c * b
            high += c * b if c > 0 else c * a
        return low, high

    def within(self, form: Linear, low: int, high: int) -> bool:
        """Whether `low <= form <= high` is proved."""
        if self.impossible:
            return True
        a, b = self.span(form)
        if low <= a and b <= high:
            return True
        negated = Linear(-form.const, {k: -c for k, c in form.terms.items()})
        return self.at_most(form, high) and self.at_most(negated, -low)

    def at_most(self, form: Linear, bound: int) -> bool:
        """Whether `form <= bound` is proved."""
        if self.impossible:
            return True
        check_time()
        bound -= form.const
        # Proof by contradiction: that the opposite holds is one more fact to combine.
        opposite = AtMost({k: -c for k, c in form.terms.items()}, -bound - 1)
        self._budget = BUDGET
        return self._prove(form.terms, bound, [*self._known, opposite], STEPS)

    def _prove(self, terms: dict[Key, int], bound: int, known: list[AtMost], steps: int) -> bool:
        if not terms:
            return bound >= 0
        common = gcd(*terms.values())
        if common > 1:  # rounding the bound down is what makes integers stronger than reals
            terms = {k: c // common for k, c in terms.items()}
            bound //= common
        if self.span(Linear(0, terms))[1] <= bound:
            return True
        self._budget -= 1
        if steps == 0 or self._budget < 0:
            return False
        for fact in (*known, *self._about(terms)):
            for key, c in fact.terms.items():
                mine = terms.get(key, 0)
                if mine * c <= 0:
                    continue
                # |c| * terms - |mine| * fact has no `key` left.
                p, q = abs(c), abs(mine)
                left = {k: p * v for k, v in terms.items()}
                for k, v in fact.terms.items():
                    total = left.get(k, 0) - q * v
                    if total:
                        left[k] = total
                    else:
                        left.pop(k, None)
                others = [f for f in known if f is not fact]
                # An integer form is at most `bound` if p times it is less than p * (bound + 1).
                if self._prove(left, p * bound + p - 1 - q * fact.bound, others, steps - 1):
                    return True
        return False

    def _about(self, terms: dict[Key, int]) -> list[AtMost]:
        """What ties the digits among `terms` to their bases."""
        out = []
        for key in terms:
            if isinstance(key, DigitKey):
                base = key.base
                if key.mod is None:  # d * x <= base <= d * x + d - 1
                    below = plus(Linear(0, {key: key.div}), base, -1)
                    out.append(AtMost(below.terms, -below.const))
                    above = plus(base, Linear(0, {key: key.div}), -1)
                    out.append(AtMost(above.terms, key.div - 1 - above.const))
                elif key.div == 1 and self.span(base)[0] >= 0:  # x % m <= x
                    below = plus(Linear(0, {key: 1}), base, -1)
                    out.append(AtMost(below.terms, -below.const))
        return out


def _same_top(a: DigitKey, b: DigitKey) -> bool:
    """Whether both are digits of one base that end at the same place of it."""
    if a.terms != b.terms or a.const != b.const or (a.mod is None) != (b.mod is None):
        return False
    return a.mod is None or b.mod is None or a.div * a.mod == b.div * b.mod
