"""Functions that only move elements, without axes of one element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched import graph
from autosched.graph import op
from autosched.graph.compile import primitives
from autosched.graph.lowering import lower
from autosched.graph.passes import optimise


@st.composite
def moves(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[str, Any]]]:
    """A shape, and transpositions, slices and reshapes of what has it."""
    shape = list(draw(st.lists(st.sampled_from((1, 1, 2, 3, 17)), min_size=1, max_size=5)))
    first, steps = tuple(shape), []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(("transpose", "transpose", "slice", "reshape")))
        if kind == "transpose":
            perm = tuple(draw(st.permutations(range(len(shape)))))
            shape = [shape[d] for d in perm]
            steps.append((kind, perm))
        elif kind == "slice":
            axes = draw(st.lists(st.sampled_from(range(len(shape))), unique=True, min_size=1))
            cuts = []
            for d in axes:
                low = draw(st.integers(0, shape[d] - 1))
                cuts.append((low, draw(st.integers(low + 1, shape[d])), draw(st.integers(1, 2))))
                shape[d] = len(range(*cuts[-1]))
            named = [d - len(shape) * draw(st.booleans()) for d in axes]
            steps.append((kind, (named, cuts)))
        else:
            ones = draw(st.integers(0, 2))
            shape = [1] * ones + [n for n in shape if n != 1] or [1]
            steps.append((kind, tuple(shape)))
    return first, steps


@settings(max_examples=60, deadline=None)
@given(moves())
def test_equal_to_numpy(given: tuple[tuple[int, ...], list[tuple[str, Any]]]) -> None:
    shape, steps = given
    x = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    value, want = graph.var("x", shape, "float32"), x
    first = value
    for kind, how in steps:
        if kind == "transpose":
            value, want = op.transpose(value, perm=how), want.transpose(how)
        elif kind == "slice":
            axes, cuts = how
            starts, ends, by = zip(*cuts, strict=True)
            value = op.slice(value, list(starts), list(ends), list(axes), list(by))
            at = [slice(None)] * want.ndim
            for d, cut in zip(axes, cuts, strict=True):
                at[d] = slice(*cut)
            want = want[tuple(at)]
        else:
            value, want = op.reshape(value, shape=list(how)), want.reshape(how)
    module = graph.module(main=graph.function([first], value))
    np.testing.assert_array_equal(graph.build(module)(x)[0], want)
    for f in primitives(optimise(module)):
        shapes = [tuple(map(int, p.shape)) for p in lower(f).params]
        assert all(1 not in s for s in shapes)


@pytest.mark.parametrize(
    ("shape", "perm", "loops"),
    [
        ((1569, 2, 6272, 1), (2, 1, 3, 0), [(1569, 2, 6272), (6272, 2, 1569)]),
        ((1, 64, 112, 112), (0, 2, 3, 1), [(64, 12544), (12544, 64)]),
        ((8, 1024, 16, 64), (0, 2, 3, 1), [(8, 1024, 1024), (8, 1024, 1024)]),
        ((2, 1, 3), (0, 1, 2), [(6,), (6,)]),
        ((1, 1), (1, 0), [(), ()]),
    ],
)
def test_axes_of_a_transposition(
    shape: tuple[int, ...], perm: tuple[int, ...], loops: list[tuple[int, ...]]
) -> None:
    x = graph.var("x", shape, "float32")
    module = graph.module(main=graph.function([x], op.transpose(x, perm=perm)))
    (f,) = primitives(graph.passes.fuse(module))
    assert [tuple(map(int, p.shape)) for p in lower(f).params] == loops


@pytest.mark.parametrize(
    ("shape", "width", "perm"),
    [
        ((5, 2, 1, 7), 1, (0, 1, 2, 3)),
        ((1, 5, 2, 7), 2, (0, 1, 2, 3)),
        ((5, 1, 4, 1), 1, (0, 2, 3, 1)),
        ((7, 1, 3), 3, (2, 1, 0)),
        ((1, 1), 1, (1, 0)),
    ],
)
def test_scattered_slices(shape: tuple[int, ...], width: int, perm: tuple[int, ...]) -> None:
    """Between transpositions, slices and reshapes of the same kernel."""
    rng = np.random.default_rng(3)
    turned = tuple(shape[d] for d in perm)
    places = np.stack([rng.integers(-n, n, 4) for n in turned[:width]], 1)
    x = rng.standard_normal(shape).astype("f4")
    y = rng.standard_normal((1, 4, *turned[width:])).astype("f4")
    inputs = [graph.var("x", shape, "float32"), graph.var("i", places.shape, "int64")]
    inputs.append(graph.var("y", y.shape, "float32"))
    updates = op.reshape(inputs[2], shape=list(y.shape[1:]))
    made = op.scatter_nd(op.transpose(inputs[0], perm=perm), inputs[1], updates)
    rank = len(turned)
    made = op.transpose(made, perm=tuple(range(rank))[::-1])
    want = x.transpose(perm).copy()
    for place, row in zip(places, y[0], strict=True):
        want[tuple(place)] = row
    found = graph.build(graph.module(main=graph.function(inputs, made)))(x, places, y)[0]
    np.testing.assert_array_equal(found, want.transpose())


@pytest.mark.parametrize(
    ("shape", "indices"), [((40, 8), (5, 1)), ((4, 9, 8), (5, 2)), ((6, 1, 8), (5, 1))]
)
def test_slices_are_scattered_without_copies(
    shape: tuple[int, ...], indices: tuple[int, ...], rng: np.random.Generator
) -> None:
    x = rng.standard_normal(shape).astype("f4")
    at = np.stack([rng.permutation(40)[:5] % n for n in shape[: indices[1]]], 1)
    new = rng.standard_normal((5, *shape[indices[1] :])).astype("f4")
    given = [graph.var(n, a.shape, a.dtype.name) for n, a in zip("xiu", (x, at, new), strict=True)]
    module = graph.module(main=graph.function(given, op.scatter_nd(*given)))
    (f,) = primitives(optimise(module))
    assert "T.alloc_buffer" not in str(lower(f))
    want = x.copy()
    for place, row in zip(at, new, strict=True):
        want[tuple(place)] = row
    np.testing.assert_array_equal(graph.build(module)(x, at, new)[0], want)
