"""Lengths at which a model is read tell what follows from them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched.graph.dynamic.families import family_of
from autosched.graph.dynamic.lengths import End, Grid


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(2, 40)), min_size=1, max_size=3),
    st.lists(st.integers(-3, 3), min_size=11, max_size=11),
    st.integers(1, 4),
)
def test_readings_tell_polynomials(
    ranges: list[tuple[int, int]], factors: list[int], by: int
) -> None:
    """Sums of products of different lengths, and of their squares: which are affine, and which add
    multiples of a number to their constant."""
    grid = Grid(tuple(a + b for a, b in ranges), tuple(a for a, _ in ranges))
    count = len(ranges)
    products = [s for k in range(count + 1) for s in itertools.combinations(range(count), k)]
    terms = [*products, *((n, n) for n in range(count))]
    factors = factors[: len(terms)]

    def value(point: tuple[int, ...]) -> int:
        return sum(
            f * int(np.prod([point[n] for n in t])) for f, t in zip(factors, terms, strict=True)
        )

    values = [value(p) for p in grid.points]
    found = grid.affine(values)
    higher = any(f for f, t in zip(factors, terms, strict=True) if len(t) > 1)
    assert (found is None) == higher
    if found is not None:
        assert found.start == factors[0]
        assert [int(s) for s in found.steps] == factors[1 : count + 1]
    divides = all(f % by == 0 for f in factors[1:])
    assert grid.multiple([np.asarray(v) for v in values], by) == divides


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 5)), max_size=3),
    st.integers(2, 60),
)
def test_windows_of_windows(layers: list[tuple[int, int, int]], length: int) -> None:
    """How many windows there are, counted one by one."""
    end, size = End((0,), 0), length
    for reach, stride, pads in layers:
        size = len(range(0, size + pads - reach + 1, stride))
        end = end.longer(pads).windows(reach, stride)
        if size == 0:
            return
        assert end.at((length,)) == size


@given(
    st.tuples(st.integers(1, 6), st.integers(-3, 6), st.integers(1, 3)),
    st.lists(st.tuples(st.integers(2, 40), st.integers(2, 40)), min_size=1, max_size=2),
)
def test_readings_tell_windows(window: tuple[int, int, int], ranges: list[tuple[int, int]]) -> None:
    """A multiple of a number of windows that is affine at the points is so at all lengths."""
    by, more, factor = window
    grid = Grid(tuple(a + b for a, b in ranges), tuple(a for a, _ in ranges))
    end = End(tuple(range(len(ranges))), more, by)
    found = grid.affine([factor * end.at(p) for p in grid.points])
    if found is not None:
        for p in itertools.product(*(range(a, a + b + 1) for a, b in ranges)):
            steps = sum(int(s) * n for s, n in zip(found.steps, p, strict=True))
            assert factor * end.at(p) == int(found.start) + steps


@pytest.mark.parametrize(
    ("shapes", "sizes"),
    [
        ([((2, 5),), ((2, 6),), ((2, 9),)], [(0, 1, End((0,), 0))]),
        ([((5, 9),), ((6, 7),), ((9, 2),)], [(0, 0, End((0,), 0)), (0, 1, End((1,), 0))]),
        ([((5,), (7,), (13,)), ((6,), (9,), (16,)), ((9,), (2,), (12,))],
         [(0, 0, End((0,), 0)), (1, 0, End((1,), 0)), (2, 0, End((0, 1), 1))]),
        ([((5, 9),), ((6, 9),), ((9, 2),)], None),
        ([((5, 9),), ((5, 9),), ((9, 2),)], None),
        ([((5, 9),), ((5, 9, 1),), ((9, 2),)], None),
        ([((1, 2, 3, 4),), ((2, 4, 6, 9),), ((3, 7, 5, 1),)], None),
    ],
    ids=["one", "two", "a sum", "two values only", "the same twice", "ranks", "four"],
)  # fmt: skip
def test_families(shapes: list, sizes: list | None) -> None:
    family = family_of(*shapes)
    assert (None if family is None else list(family.sizes)) == sizes
    if family is not None:
        for s in shapes:
            lengths = family.lengths(s)
            assert lengths is not None
            assert family.shapes(lengths) == s
