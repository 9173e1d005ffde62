"""Operators as functions from tensors to tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import autosched as at
from autosched import ops, te
from autosched.errors import AutoschedError, WorkloadError

Array = npt.NDArray[Any]
RNG = np.random.default_rng(3)


def results(outputs: Any, given: dict[te.Tensor, Array]) -> list[Array]:
    outs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    arrays = [np.zeros(t.shape, t.dtype) for t in outs]
    at.build(te.create_prim_func([*given, *outs]))(*given.values(), *arrays)
    return arrays


def test_operators_compose() -> None:
    X, W, b = (te.placeholder(s, name=n) for n, s in (("X", (6, 8)), ("W", (8, 5)), ("b", (5,))))
    x, w, bias = (RNG.standard_normal(t.shape, np.float32) for t in (X, W, b))
    y = ops.softmax(ops.relu(ops.matmul(X, W) + b), axis=-1)
    hidden = np.maximum(x @ w + bias, 0)
    e = np.exp(hidden - hidden.max(1, keepdims=True))
    (found,) = results(y, {X: x, W: w, b: bias})
    np.testing.assert_allclose(found, e / e.sum(1, keepdims=True), rtol=1e-4)
    (turned,) = results(ops.transpose(X, perm=(1, 0)), {X: x})
    np.testing.assert_array_equal(turned, x.T)
    total = ops.reduce_sum(ops.concat(X, ops.mul(X, 2.0), axis=0), axes=(1,), keepdims=0)
    (found,) = results(total, {X: x})
    np.testing.assert_allclose(found, np.concatenate([x, 2 * x]).sum(1), rtol=1e-4, atol=1e-5)


def test_a_workload_and_an_operator_share_a_name() -> None:
    assert [t.name for t in ops.matmul(4, 5, 6)] == ["A", "B", "C"]
    A, B = te.placeholder((4, 5)), te.placeholder((5, 6))
    assert ops.matmul(A, B).shape == (4, 6)
    assert ops.batch_matmul(te.placeholder((2, 4, 5)), te.placeholder((2, 5, 6))).shape == (2, 4, 6)
    assert {"relu", "sort", "layer_norm", "matmul_add"} <= set(dir(ops))
    for wrong, message in (
        (lambda: ops.matmul_add(A, B, A), "matmul_add of the library is a whole workload"),
        (lambda: ops.softmax(A, axes=1), "the operator softmax has no attribute axes"),
        (lambda: ops.concat(A, B), "the operator concat needs axis="),
        (lambda: ops.relu(A, B), "the operator relu does not take 2 tensors"),
        (lambda: ops.relu("A"), "the operator relu takes tensors, found"),
        (lambda: ops.topk(A, 9), "k of topk is 9; expected an int from 1 to 5"),
        (lambda: ops.sort(A, axis=2), "axis of sort is 2; expected an int from -2 to 1"),
        (lambda: ops.scatter(A, B, B), "scatter into"),
    ):
        with pytest.raises(AutoschedError, match=message):
            wrong()
    with pytest.raises(AttributeError, match=r"no operator is called ops\.reluu"):
        ops.reluu  # noqa: B018


def test_orders_are_those_of_numpy() -> None:
    x = RNG.integers(-4, 4, (5, 17)).astype("float32")  # with equal elements
    x[2, 3] = x[2, 9] = np.nan
    x[3, 4], x[3, 8] = np.inf, -np.inf
    X = te.placeholder(x.shape, name="X")
    for axis in (0, 1):
        order, values = results((ops.argsort(X, axis), ops.sort(X, axis)), {X: x})
        np.testing.assert_array_equal(order, np.argsort(x, axis, kind="stable"))
        np.testing.assert_array_equal(values, np.sort(x, axis))
    n = RNG.integers(-4, 4, (3, 11)).astype("int16")
    N = te.placeholder(n.shape, "int16", "N")
    best, places = results(ops.topk(N, 4), {N: n})
    wanted = np.argsort(-n, 1, kind="stable")[:, :4]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(best, np.take_along_axis(n, wanted, 1))


def test_unique() -> None:
    x = RNG.integers(0, 6, 20).astype("int32")
    X = te.placeholder((20,), "int32", "X")
    values, inverse, counts, number = results(ops.unique(X), {X: x})
    wanted = np.unique(x, return_inverse=True, return_counts=True)
    n = int(number)
    np.testing.assert_array_equal(values[:n], wanted[0])
    np.testing.assert_array_equal(inverse, wanted[1])
    np.testing.assert_array_equal(counts[:n], wanted[2])
    assert n == len(wanted[0])
    assert (counts[n:] == 0).all()
    assert (values[n:] == x.max()).all()


def test_scatter() -> None:
    x = RNG.standard_normal((6, 4), np.float32)
    indices = RNG.integers(-6, 6, (9, 4))
    updates = RNG.standard_normal((9, 4), np.float32)
    X, P, U = (
        te.placeholder(a.shape, a.dtype.name, n)
        for n, a in (("X", x), ("P", indices), ("U", updates))
    )
    combine = {"none": None, "add": np.add, "mul": np.multiply, "max": np.maximum}
    for reduction, function in combine.items():
        wanted = x.copy()
        for i, j in np.ndindex(9, 4):
            at_place = (indices[i, j], j)
            old = wanted[at_place]
            wanted[at_place] = updates[i, j] if function is None else function(old, updates[i, j])
        (found,) = results(
            ops.scatter(X, P, U, reduction=reduction), {X: x, P: indices, U: updates}
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=reduction)
    with pytest.raises(WorkloadError, match="reduction of scatter is 'sub'"):
        ops.scatter(X, P, U, reduction="sub")  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", ["float32", "bool"])
@pytest.mark.parametrize("name", ["gather", "gather_elements"])
def test_indices_that_are_no_integers_are_refused(name: str, dtype: str) -> None:
    x, indices = te.placeholder((4,), name="x"), te.placeholder((3,), dtype, "indices")
    with pytest.raises(AutoschedError, match=f"indices are {dtype}; expected an integer dtype"):
        getattr(ops, name)(x, indices)
