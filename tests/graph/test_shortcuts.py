"""NumPy's functions in place of definitions: the same results, or none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched.graph import Unsupported
from autosched.graph.infer import by_definition, evaluate_operator
from autosched.graph.ops import find
from autosched.graph.ops.shortcuts import BOOLS, ELEMENTWISE, FLOATS, OTHERS, shortcut

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 1, 4)).astype("float32")
M = RNG.standard_normal((3, 4)).astype("float32")
N = RNG.integers(-9, 9, (3, 4))
CASES: list[tuple[str, list[Any], dict[str, Any], int]] = [
    ("Cast", [X * 3], {"to": "int64"}, 1),
    ("Cast", [N], {"to": "bool"}, 1),
    ("Concat", [M, M[:2]], {"axis": 0}, 1),
    ("Expand", [X, np.array([2, 1, 5, 1])], {}, 1),
    ("Expand", [X], {"shape": (5, 4)}, 1),
    ("Flatten", [X], {"axis": -1}, 1),
    ("Flatten", [X], {"axis": 0}, 1),
    ("Gather", [X, np.array([[0, -1], [7, -9]])], {"axis": -1}, 1),
    ("Gather", [N, np.array(2, "int32")], {}, 1),
    ("GatherElements", [M, np.array([[0, -1, 7], [-9, 2, 1]])], {"axis": 1}, 1),
    ("GatherElements", [X, np.array([[[2, 0]], [[-1, 1]]], "int32")], {}, 1),
    ("GatherND", [X, np.array([[0, 0], [-1, 5], [-9, -1]])], {}, 1),
    ("GatherND", [N, np.array([[[1, 3]], [[2, -4]]], "int32")], {}, 1),
    ("Gemm", [M, M, M[0, :3]], {"transB": 1, "alpha": 0.5, "beta": 2.0}, 1),
    ("Gemm", [M, M], {"transA": 1}, 1),
    ("Gemm", [M, M, M[0]], {"transA": 1, "beta": 0.0}, 1),
    ("MatMul", [X, M.T], {}, 1),
    ("MatMul", [M[0], M.T], {}, 1),
    ("Max", [X, M, X], {}, 1),
    ("Min", [N, N[:1]], {}, 1),
    ("Relu", [X], {}, 1),
    ("Reshape", [X, np.array([2, -1])], {}, 1),
    ("Shape", [X], {"start": 1}, 1),
    ("Slice", [M, np.array([1, -9]), np.array([9, -1]), np.array([1, 0])], {}, 1),
    ("Slice", [M], {"starts": (-3,), "ends": (4,), "axes": (-1,), "steps": (2,)}, 1),
    ("Split", [M, np.array([1, 3])], {"axis": 1}, 2),
    ("Squeeze", [X], {}, 1),
    ("Squeeze", [X, np.array([-2])], {}, 1),
    ("Transpose", [X], {}, 1),
    ("Transpose", [X], {"perm": (1, 2, 0)}, 1),
    ("Unsqueeze", [X, np.array([0, -1])], {}, 1),
    ("Where", [M > 0, M, X], {}, 1),
]


def same(
    name: str, arrays: list[Any], attrs: dict[str, Any], outputs: int, needed: bool = True
) -> None:
    """Both ways agree, in shape and dtype too; `needed`: there is a shortcut."""
    made = shortcut(find(name), arrays, attrs, outputs)
    assert made is not None or not needed
    if made is None:
        return
    expected = by_definition(find(name), arrays, attrs, outputs)
    for a, b in zip(made, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
        assert a.flags.c_contiguous
        assert a.flags.writeable
        assert not any(np.shares_memory(a, given) for given in arrays)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_shortcuts_are_the_definitions(case: tuple[str, list[Any], dict[str, Any], int]) -> None:
    same(*case)


def test_every_shortcut_has_a_case() -> None:
    assert {c[0] for c in CASES} == set(OTHERS)


@given(st.data())
def test_element_by_element(data: st.DataObject) -> None:
    """Any shapes that go together, 0-dimensional and empty ones too, and any numbers."""
    name = data.draw(st.sampled_from(sorted(ELEMENTWISE)))
    _, operands, dtypes = ELEMENTWISE[name]
    dtype = data.draw(st.sampled_from(sorted(dtypes, key=str)))
    shape = data.draw(st.lists(st.integers(0, 4), max_size=3))
    arrays = []
    for _ in range(operands):
        size = [n if data.draw(st.booleans()) else 1 for n in shape]
        drawn = RNG.integers(-4, 5, size[data.draw(st.integers(0, len(size))) :])
        special = np.array([np.nan, np.inf, -np.inf, -0.0])[drawn % 4]
        value = np.where(drawn == 4, special, drawn / 2) if dtype in FLOATS else drawn
        arrays.append(np.asarray(value > 0 if dtype in BOOLS else value, dtype))
    same(name, arrays, {}, 1)


@given(st.data())
def test_moves_of_any_shape(data: st.DataObject) -> None:
    """What a shortcut does not leave to the definition is the definition's."""
    x = RNG.standard_normal(data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3)))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    start, end, step = (data.draw(st.integers(-4, 4)) for _ in range(3))
    same("Slice", [x], {"starts": (start,), "ends": (end,), "axes": (axis,), "steps": (step or 1,)},
         1, needed=False)  # fmt: skip
    same("Flatten", [x], {"axis": axis}, 1, needed=False)
    same("Concat", [x, x], {"axis": axis}, 1, needed=False)
    same("Reshape", [x, np.array([-1])], {}, 1, needed=False)
    if x.shape[axis]:
        same("Gather", [x, RNG.integers(-5, 5, (2, 2))], {"axis": axis}, 1, needed=False)
        at = RNG.integers(-5, 5, [data.draw(st.integers(0, n)) for n in x.shape])
        same("GatherElements", [x, at], {"axis": axis}, 1, needed=False)
    if x.size:
        width = data.draw(st.integers(1, x.ndim))
        rows = RNG.integers(-5, 5, (data.draw(st.integers(0, 3)), width))
        same("GatherND", [x, rows], {}, 1, needed=False)


@pytest.mark.parametrize(
    ("name", "arrays", "attrs", "text"),
    [
        ("Reshape", [M, np.array([5, -1])], {}, "the input has shape"),
        ("Transpose", [M], {"perm": (0, 0)}, "expected each axis"),
        ("Concat", [M, X], {"axis": 0}, "do not go together"),
        ("MatMul", [M, M], {}, "do not go together"),
        ("Add", [M], {}, "Add"),
    ],
)
def test_the_definition_refuses(
    name: str, arrays: list[Any], attrs: dict[str, Any], text: str
) -> None:
    with pytest.raises(Unsupported, match=text):
        evaluate_operator(name, arrays, attrs, 1)
