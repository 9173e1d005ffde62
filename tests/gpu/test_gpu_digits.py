"""Indices are made simpler, and stay the same numbers."""

from __future__ import annotations

import random

import numpy as np

from autosched.codegen.gpu.digits import simpler
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Var

X, Y = Var("x"), Var("y")
EXTENTS = {X: 6, Y: 5}


def test_what_divisions_come_to() -> None:
    x, wide = Affine.of(X), {X: 128, Y: 100}
    both = Affine.of(Y, 128) + x
    cases = [
        (Digit(x * 4, 8, None), Affine.of(Digit(x, 2, None))),
        (Digit(x * 4, 1, 8), Affine.of(Digit(x, 1, 2), 4)),
        (Digit(both, 1024, None), Affine.of(Digit(Affine.of(Y), 8, None))),
        (Digit(both, 1, 1024), Affine.of(Digit(Affine.of(Y), 1, 8), 128) + x),
        (Digit(both, 1, 128), x),
        (Digit(both, 128, None), Affine.of(Y)),
        (Digit(both - 4, 32, 4), Affine.of(Digit(x + 124, 32, 4))),
        (Digit(both, 32, 4), Affine.of(Digit(x, 32, None))),
        (Digit(both + 512, 32, None), Affine.of(Y, 4) + Affine.of(Digit(x, 32, None)) + 16),
        (Digit(x, 128, None), Affine(0)),
    ]
    for digit, expected in cases:
        assert simpler(Affine.of(digit), wide).same(expected)


def form(rng: random.Random, depth: int) -> Affine:
    out = Affine(rng.randint(-9, 9))
    for v in (X, Y):
        out = out + Affine.of(v, rng.choice([-8, -3, 0, 1, 2, 4, 6, 12, 24]))
    if depth:
        base = form(rng, depth - 1)
        div, mod = rng.choice([1, 2, 3, 4, 8, 12]), rng.choice([None, 2, 3, 4, 6, 8])
        if base.terms and (div > 1 or mod is not None):
            out = out + Affine.of(Digit(base, div, mod), rng.choice([1, 2, 5]))
    return out


def test_random_forms_are_the_same_numbers() -> None:
    rng = random.Random(0)
    x, y = (a.reshape(-1) for a in np.indices((6, 5), dtype=np.int64))
    changed = 0
    for _ in range(2000):
        f = form(rng, 2)
        g = simpler(f, EXTENTS)
        changed += not f.same(g)
        found, expected = (np.broadcast_to(h.evaluate({X: x, Y: y}), (30,)) for h in (g, f))
        np.testing.assert_array_equal(found, expected)
    assert changed > 200
