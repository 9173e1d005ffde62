"""Gradients of modules against difference quotients, through tuples and values of data types."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import graph

STEP = 1e-5


def flat(value):
    """The floats in a value: in tuples and lists, too."""
    if isinstance(value, graph.Tagged):
        return [x for f in value.fields for x in flat(f)]
    if isinstance(value, tuple):
        return [x for f in value for x in flat(f)]
    array = np.asarray(value)
    return list(array.reshape(-1)) if array.dtype.kind == "f" else []


def moved(value, ways):
    """A value whose floats are moved by those of an iterator."""
    if isinstance(value, graph.Tagged):
        return graph.Tagged(value.constructor, tuple(moved(f, ways) for f in value.fields))
    if isinstance(value, tuple):
        return tuple(moved(f, ways) for f in value)
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return value
    return (array + np.array([next(ways) for _ in range(array.size)]).reshape(array.shape)).astype(
        array.dtype
    )


def compare(mod, args, rng, made=None):
    """The gradient of `main`, along a random direction, is the difference quotient."""
    made = graph.gradient(mod) if made is None else made
    out = graph.evaluate(made, "main", *args)
    np.testing.assert_allclose(out[0], graph.evaluate(mod, "main", *args), rtol=1e-12)
    ends = [0.0, 0.0]
    ways = [rng.standard_normal(len(flat(a))) for a in args]  # none for integers
    found = float(np.dot(flat(tuple(out[1:])), np.concatenate(ways)))
    for n, sign in enumerate((STEP, -STEP)):
        there = [moved(a, iter(sign * w)) for a, w in zip(args, ways, strict=True)]
        ends[n] = float(graph.evaluate(mod, "main", *there))
    assert found == pytest.approx((ends[0] - ends[1]) / (2 * STEP), rel=1e-6, abs=1e-8)
    return made
