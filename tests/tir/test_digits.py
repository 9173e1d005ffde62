"""Forms that are digits of one number: what is said to be apart is, by going through all points."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from autosched.tir.affine import Affine, Digit, digit
from autosched.tir.apart import injective
from autosched.tir.digits import digits_apart
from autosched.tir.expr import Var

A, B, C = Var("a"), Var("b"), Var("c")


def number(*terms: tuple[Var, int], const: int = 0) -> Affine:
    return Affine(const, tuple(terms))


CASES = {
    "digits of a split": (
        (number((A, 2)) + Affine.of(Digit(number((B, 1)), 15, None)),)
        + (Affine.of(Digit(number((A, 30), (B, 1)), 5, 3)), Affine.of(Digit(number((B, 1)), 1, 5))),
        {A: 4, B: 30},
        True,
    ),
    "divided and not": (
        (Affine.of(Digit(number((A, 1)), 56, None)),)
        + (
            Affine.of(Digit(number((A, 128), (B, 1)), 64, 112)),
            Affine.of(Digit(number((B, 1)), 1, 64)),
        ),
        {A: 200, B: 128},
        True,
    ),
    "a digit is missing": (
        (Affine.of(Digit(number((A, 1)), 56, None)), Affine.of(Digit(number((B, 1)), 1, 64))),
        {A: 200, B: 128},
        False,
    ),
    "no number of its variables": (
        (Affine.of(Digit(number((A, 2), (B, 1)), 4, None)),)
        + (Affine.of(Digit(number((A, 2), (B, 1)), 1, 4)),),
        {A: 8, B: 4},
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_known_cases(case: str) -> None:
    forms, extents, expected = CASES[case]
    assert digits_apart(forms, list(extents), extents) is expected
    assert bool(injective(forms, list(extents), extents)) is expected


def test_numbers_of_a_population_have_no_digits_here() -> None:
    """Not even those of variables that stand in no form."""
    forms, extents = [number((A, 1))], {A: 3, B: np.array([1, 2])}
    assert not digits_apart(forms, [A, B], extents)
    assert np.array_equal(injective(forms, [B], extents), [True, False])
    several = [Affine.of(Digit(number((A, 1)), 1, np.array([2, 3])))]
    assert not digits_apart(several, [A], {A: 3})


def random_forms(rng: random.Random) -> tuple[list[Affine], dict[Var, int]]:
    """Digits of a number made of loops, some of them wrong."""
    extents = {v: rng.randint(1, 6) for v in (A, B, C)}
    fused = Affine(0)
    for v in (A, B, C):
        fused = fused * rng.choice([extents[v], extents[v], extents[v] + 1, 2]) + Affine.of(v)
    forms, div = [], 1
    for _ in range(rng.randint(1, 3)):
        mod = rng.choice([2, 3, 4, 5, 6])
        simplify = extents if rng.random() < 0.7 else {}
        forms.append(digit(fused, div, mod, simplify))
        div *= mod if rng.random() < 0.9 else 2
    forms.append(digit(fused, div, None, extents))
    rng.shuffle(forms)
    return forms, extents


def test_what_is_apart_is() -> None:
    rng, found = random.Random(0), 0
    for _ in range(3000):
        forms, extents = random_forms(rng)
        over = rng.sample([A, B, C], rng.randint(1, 3))
        if not digits_apart(forms, over, extents):
            continue
        found += 1
        still = [v for v in (A, B, C) if v not in over]
        for fixed in itertools.product(*(range(extents[v]) for v in still)):
            seen = set()
            for moving in itertools.product(*(range(extents[v]) for v in over)):
                values = dict(zip((*still, *over), (*fixed, *moving), strict=True))
                seen.add(tuple(int(f.evaluate(values)) for f in forms))
            assert len(seen) == len(list(itertools.product(*(range(extents[v]) for v in over))))
    assert found > 300
