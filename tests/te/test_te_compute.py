"""Tensor expressions against NumPy: every dtype, function and reducer, by both evaluators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.tir import dtypes, interp, whole

FLOATS = dtypes.FLOATS
INTS = (*dtypes.SIGNED, *dtypes.UNSIGNED)
TOLERANCE = {"float16": 4e-3, "float32": 2e-6, "float64": 1e-14}


def evaluate(tensors: Sequence[te.Tensor], arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Outputs by the interpreter, checked against those of the whole-array evaluation."""
    func = te.create_prim_func(tensors)
    outputs = func.params[len(arrays) :]
    results = []
    for execute in (interp.run, whole.reference):
        out = [np.full(b.shape, interp.poison(b.dtype), b.dtype) for b in outputs]
        execute(func, [*arrays, *out])
        results.append(out)
    for a, b in zip(*results, strict=True):
        check(a, b, scale=a.size + 64)
    return results[0]


def check(found: np.ndarray, expected: np.ndarray, scale: int = 1) -> None:
    """Equal: exactly for integers, within `scale` roundings for floats."""
    assert found.dtype == expected.dtype
    tolerance = TOLERANCE.get(found.dtype.name, 0) * scale
    if tolerance:
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(found, expected)


def random(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtypes.is_float(dtype):
        return rng.uniform(0.2, 2, shape).astype(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_reducers(name: str, dtype: str) -> None:
    a = random((3, 7), dtype)
    A = te.placeholder(a.shape, name="A", dtype=dtype)
    k = te.reduce_axis((0, 7), name="k")
    B = te.compute((3,), lambda i: getattr(te, name)(A[i, k], axis=k), name="B")
    (found,) = evaluate([A, B], [a])
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[name]
    with np.errstate(all="ignore"):
        check(found, ufunc.reduce(a, axis=1, dtype=dtype), scale=8)


@pytest.mark.parametrize("name", ["max", "min"])
def test_bool_reducers(name: str) -> None:
    a = random((4, 3), "bool")
    A = te.placeholder(a.shape, name="A", dtype="bool")
    k = te.reduce_axis((0, 3), name="k")
    B = te.compute((4,), lambda i: getattr(te, name)(A[i, k], axis=k), name="B")
    (found,) = evaluate([A, B], [a])
    check(found, (a.any if name == "max" else a.all)(axis=1))


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "radd": lambda a, b: 2 + a + 0 * b,
    "sub": lambda a, b: a - b,
    "rsub": lambda a, b: 2 - a + 0 * b,
    "mul": lambda a, b: a * b,
    "rmul": lambda a, b: 3 * a + 0 * b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS])
@pytest.mark.parametrize("name", list(OPERATORS))
def test_operators(name: str, dtype: str) -> None:
    f = OPERATORS[name]
    a, b = random((9,), dtype, 1), random((9,), dtype, 2)
    b[b == 0] = 1
    a[3] = b[3]
    A = te.placeholder((9,), name="A", dtype=dtype)
    B = te.placeholder((9,), name="B", dtype=dtype)
    (found,) = evaluate([A, B, te.compute((9,), lambda i: f(A[i], B[i]), name="C")], [a, b])
    with np.errstate(all="ignore"):
        check(found, f(a, b))


UNARY: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sin": np.sin,
    "cos": np.cos,
    "abs": np.abs,
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*UNARY, "erf"])
def test_functions(name: str, dtype: str) -> None:
    from math import erf

    a = random((8,), dtype) * np.dtype(dtype).type(1.5)
    if name == "abs":
        a = -a
    A = te.placeholder((8,), name="A", dtype=dtype)
    (found,) = evaluate([A, te.compute((8,), lambda i: getattr(te, name)(A[i]), name="B")], [a])
    expected = UNARY[name](a) if name in UNARY else np.array([erf(x) for x in a.tolist()])
    check(found, expected.astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_division_and_power(dtype: str) -> None:
    a, b = random((6,), dtype, 1), random((6,), dtype, 2)
    A = te.placeholder((6,), name="A", dtype=dtype)
    B = te.placeholder((6,), name="B", dtype=dtype)
    C = te.compute((6,), lambda i: te.power(A[i], B[i]), name="C")
    D = te.compute((6,), lambda i: 1 / A[i] - te.pow(A[i] / B[i], 2.0), name="D")
    c, d = evaluate([A, B, C, D], [a, b])
    check(c, a**b, scale=2)
    check(d, (1 / a - (a / b) ** 2).astype(dtype), scale=8)


@pytest.mark.parametrize("source", [*FLOATS, *INTS, "bool"])
@pytest.mark.parametrize("target", [*FLOATS, *INTS, "bool"])
def test_casts(source: str, target: str) -> None:
    a = random((6,), source)
    A = te.placeholder((6,), name="A", dtype=source)
    (found,) = evaluate([A, te.compute((6,), lambda i: te.cast(A[i], target), name="B")], [a])
    with np.errstate(all="ignore"):
        check(found, a.astype(target))


@pytest.mark.parametrize("choose", [te.select, te.if_then_else])
def test_choice_and_logic(choose: Callable[..., Any]) -> None:
    a = np.arange(12, dtype="int32")
    A = te.placeholder((12,), name="A", dtype="int32")
    B = te.compute(
        (12,),
        lambda i: choose(
            te.any(te.all(i >= 2, i < 5, A[i] != 3), te.logical_not(A[i] < 10)), A[i], -1
        ),
        name="B",
    )
    (found,) = evaluate([A, B], [a])
    keep = ((a >= 2) & (a < 5) & (a != 3)) | ~(a < 10)
    check(found, np.where(keep, a, np.int32(-1)))


def test_if_then_else_guards_an_access() -> None:
    a = random((5,), "float32")
    A = te.placeholder((5,), name="A")
    B = te.compute(
        (9,),
        lambda i: te.if_then_else(
            te.all(i >= 2, i < 7), A[i - 2], te.if_then_else(i < 2, -1.0, -2.0)
        ),
        name="B",
    )
    (found,) = evaluate([A, B], [a])
    check(found, np.concatenate([[-1, -1], a, [-2, -2]]).astype("float32"))


def test_where_leaves_points_out() -> None:
    a = random((3, 6), "float32")
    A = te.placeholder((3, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    B = te.compute((3,), lambda i: te.sum(A[i, k], axis=k, where=k <= i), name="B")
    C = te.compute((3,), lambda i: te.max(A[i, k], axis=[k], where=A[i, k] < 1), name="C")
    b, c = evaluate([A, B, C], [a])
    check(b, np.array([a[i, : i + 1].sum() for i in range(3)], "float32"))
    check(c, np.where(a < 1, a, -np.inf).max(axis=1).astype("float32"))


def test_axes_that_do_not_begin_at_0() -> None:
    a = random((3, 9), "float64")
    A = te.placeholder((3, 9), name="A", dtype="float64")
    k = te.reduce_axis((2, 7), name="k")
    assert (k.dom.min, k.dom.extent, k.extent) == (2, 5, 5)
    B = te.compute((3,), lambda i: te.sum(A[i, k] * te.cast(k, "float64"), axis=k), name="B")
    (found,) = evaluate([A, B], [a])
    check(found, (a[:, 2:7] * np.arange(2, 7)).sum(axis=1), scale=10)


def test_several_reduction_axes_and_none_left() -> None:
    a = random((3, 4, 5), "float32")
    A = te.placeholder(a.shape, name="A")
    axes = [te.reduce_axis((0, n), name=f"r{n}") for n in a.shape]
    B = te.compute((), lambda: te.sum(A(*axes), axis=axes), name="B")
    C = te.compute((4,), lambda j: te.sum(A[axes[0], j, axes[2]], axis=axes[::2]), name="C")
    D = te.compute((2,), lambda i: B * 2 + (1 - B()) / B[()] - B, name="D")
    b, c, d = evaluate([A, B, C, D], [a])
    check(b, a.sum(dtype="float32"), scale=20)
    check(c, a.sum(axis=(0, 2)), scale=20)
    check(d, np.full(2, b * 2 + (1 - b) / b - b, "float32"), scale=20)


def test_any_number_of_axes_by_varargs() -> None:
    a = random((2, 3, 2, 2, 3), "int64")
    A = te.placeholder(a.shape, name="A", dtype="int64")
    B = te.compute(a.shape[::-1], lambda *i: A(*i[::-1]), name="B")
    assert [x.name for x in B.op.axis] == ["i0", "i1", "i2", "i3", "i4"]
    (found,) = evaluate([A, B], [a])
    check(found, a.T)
    C = te.compute((2, 3), lambda i, *rest: A(i, *rest, 0, 0, 0), varargs_names=["j"])
    assert [x.name for x in C.op.axis] == ["i", "j"]


def test_indices_read_from_a_tensor() -> None:
    a, idx = random((7, 3), "float32"), np.array([6, 0, 3, 3], "int32")
    A = te.placeholder((7, 3), name="A")
    I = te.placeholder((4,), name="I", dtype="int32")  # noqa: E741
    B = te.compute(
        (4, 3),
        lambda i, j: A[te.wrap_index(I[i], 7), j] + A[te.clamp_index(I[3 - i], 7), j],
        name="B",
    )
    (found,) = evaluate([A, I, B], [a, idx])
    check(found, a[idx] + a[idx[::-1]])


def test_own_reducers() -> None:
    a = random((4, 6), "float64")
    A = te.placeholder((4, 6), name="A", dtype="float64")
    k = te.reduce_axis((0, 6), name="k")
    larger = te.comm_reducer(
        lambda x, y: te.select(te.abs(x) > te.abs(y), x, y), lambda t: te.const(0, t), "absmax"
    )
    logsum = te.comm_reducer(
        lambda x, y: te.max(x, y) + te.log(1.0 + te.exp(-te.abs(x - y))),
        lambda t: te.const(-1e300, t),
        name="logsumexp",
    )
    B = te.compute((4,), lambda i: larger(A[i, k] - 1, axis=k), name="B")
    C = te.compute((4,), lambda i: logsum(A[i, k], axis=k), name="C")
    b, c = evaluate([A, B, C], [a])
    rows = np.abs(a - 1).argmax(axis=1)
    check(b, (a - 1)[np.arange(4), rows])
    check(c, np.log(np.exp(a).sum(axis=1)), scale=20)


def test_tuple_reducers() -> None:
    a = random((4, 6), "float32")
    A = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")

    def smaller(x: Any, y: Any) -> Any:
        keep = te.any(x[1] < y[1], te.all(x[1] == y[1], x[0] < y[0]))
        return te.select(keep, x[0], y[0]), te.select(keep, x[1], y[1])

    argmin = te.comm_reducer(
        smaller, lambda t0, t1: (te.max_value(t0), te.max_value(t1)), name="argmin"
    )
    index, value = te.compute((4,), lambda i: argmin((k, A[i, k]), axis=k), name="argmin")
    assert (index.name, value.name) == ("argmin_v0", "argmin_v1")
    assert (index.dtype, value.dtype) == ("int64", "float32")
    i, v = evaluate([A, index, value], [a])
    check(i, a.argmin(axis=1))
    check(v, a.min(axis=1))
    # Only one part is an output, and read by another computation.
    index, value = te.compute((4,), lambda i: argmin((k, A[i, k]), axis=k), name="argmin")
    D = te.compute((4,), lambda i: A[i, te.clamp_index(index[i], 6)] * 2, name="D")
    (d,) = evaluate([A, D], [a])
    check(d, a.min(axis=1) * 2)


def test_tuples_without_a_reduction() -> None:
    a = random((5,), "float32")
    A = te.placeholder((5,), name="A")
    low, high = te.compute((5,), lambda i: (te.floor(A[i]), te.cast(te.ceil(A[i]), "int32")))
    found = evaluate([A, low, high], [a])
    check(found[0], np.floor(a))
    check(found[1], np.ceil(a).astype("int32"))


def test_known_reducers_are_recognised() -> None:
    A = te.placeholder((4,), name="A")
    k = te.reduce_axis((0, 4), name="k")
    mine = te.comm_reducer(lambda x, y: y + x, lambda t: te.const(0, t), name="mine")
    B = te.compute((), lambda: mine(A[k], axis=k), name="B")
    assert B.op.reducer.name == "sum"


def test_extremes_and_constants() -> None:
    assert te.min_value("float32").value == -np.inf
    assert te.max_value("int8").value == 127
    assert te.min_value("uint8").value == 0
    assert te.const(1).dtype == "int64"
    assert te.const(1.0).dtype == "float32"
    assert te.max(te.const(1.0), 2.0, 3.0).dtype == "float32"


def test_tensor_attributes() -> None:
    A = te.placeholder((4, 5), name="A")
    k = te.reduce_axis((0, 5), name="k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B", attrs={"FLOP": 7})
    assert (B.name, B.shape, B.dtype, B.ndim) == ("B", (4,), "float32", 1)
    assert B.op.axis[0].name == "i"
    assert B.op.axis[0].extent == 4
    assert B.op.reduce_axis == (k,)
    assert B.op.attrs["FLOP"] == 7
    assert B.op.input_tensors == [A]
    assert A in [B, A]
    assert len({A, B, A}) == 2
    assert te.placeholder((), name="s").op.axis == ()
