"""Linear forms over atoms: what the prover and the rule on races reason about."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import NamedTuple

Key = Hashable
"""An atom: a variable's id, a `DigitKey`, a `SymbolicDigit`, a `Product`, or opaque."""


class Linear(NamedTuple):
    """`const + sum(coefficient * atom)`; an atom is a variable's id, a `DigitKey` or opaque."""

    const: int
    terms: dict[Key, int]


class DigitKey(NamedTuple):
    """The atom `(base // div) % mod`."""

    const: int
    terms: frozenset[tuple[Key, int]]
    div: int
    mod: int | None

    @property
    def base(self) -> Linear:
        """The form that is divided."""
        return Linear(self.const, dict(self.terms))


FormKey = tuple[int, frozenset[tuple[Key, int]]]


def as_key(form: Linear) -> FormKey:
    """A form as part of an atom."""
    return form.const, frozenset(form.terms.items())


class SymbolicDigit(NamedTuple):
    """The atom `(base // div) % mod`, `div` or `mod` being forms of symbolic sizes."""

    base: FormKey
    div: FormKey
    mod: FormKey | None

    @property
    def terms(self) -> frozenset[tuple[Key, int]]:
        """Terms of the base."""
        return self.base[1]


class Product(NamedTuple):
    """The atom that is a product of atoms."""

    factors: tuple[Key, ...]


def plus(a: Linear, b: Linear, factor: int = 1) -> Linear:
    """`a + factor * b`."""
    terms = dict(a.terms)
    for key, c in b.terms.items():
        total = terms.get(key, 0) + c * factor
        if total:
            terms[key] = total
        else:
            terms.pop(key, None)
    return Linear(a.const + b.const * factor, terms)


def without(form: Linear, keys: Collection[Key]) -> Linear:
    """`form` less the terms of these atoms."""
    return Linear(form.const, {k: c for k, c in form.terms.items() if k not in keys})
