"""te.gradient against differences, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autosched as at
from autosched import ops, te
from autosched.errors import TensorExprError
from autosched.tir import dtypes
from autosched.tir.interp import run

Floats = NDArray[np.float64]


def evaluated(
    outputs: Sequence[te.Tensor], inputs: Sequence[te.Tensor], given: Sequence[Floats]
) -> list[Floats]:
    func = at.build(te.create_prim_func([*inputs, *outputs]), target="llvm")
    found = [np.empty([int(n) for n in t.shape], t.dtype) for t in outputs]
    func(*given, *found)
    return found


def interpreted(
    outputs: Sequence[te.Tensor], inputs: Sequence[te.Tensor], given: Sequence[NDArray[Any]]
) -> list[Floats]:
    found = [np.empty([int(n) for n in t.shape], t.dtype) for t in outputs]
    run(te.create_prim_func([*inputs, *outputs]), [*given, *found])
    return found


def test_a_loss_by_weights_is_as_differences_have_it() -> None:
    x, w, b, u = (te.placeholder(s, "float64", n) for n, s in
                  (("x", (5, 4)), ("w", (4, 3)), ("b", (3,)), ("u", (2,))))  # fmt: skip
    i, j = te.reduce_axis((0, 5), "i"), te.reduce_axis((0, 3), "j")
    y = te.tanh(ops.matmul(x, w) + b)
    loss = te.compute((), lambda: te.sum(y[i, j] * y[i, j], axis=[i, j]), name="loss")
    rng = np.random.default_rng(0)
    given = [rng.standard_normal([int(n) for n in t.shape]) for t in (x, w, b, u)]
    grads = te.gradient(loss, [w, b, u])
    assert [g.shape for g in grads] == [(4, 3), (3,), (2,)]
    found = evaluated(grads, [x, w, b, u], given)
    assert not found[2].any()
    for n, grad in ((1, found[0]), (2, found[1])):
        for place in np.ndindex(grad.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [a.copy() for a in given]
                moved[n][place] += step
                ends.append(interpreted([loss], [x, w, b, u], moved)[0])
            np.testing.assert_allclose(
                grad[place], (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-8
            )


def test_a_head_goes_before() -> None:
    x, h = te.placeholder((4, 6), "float64", "x"), te.placeholder((4,), "float64", "h")
    k = te.reduce_axis((0, 6), "k")
    y = te.compute((4,), lambda i: te.sum(te.exp(x[i, k]), axis=k), name="y")
    (grad,) = te.gradient(y, [x], h)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((4, 6)), rng.standard_normal(4)]
    (found,) = evaluated([grad], [x, h], given)
    np.testing.assert_allclose(found, np.exp(given[0]) * given[1][:, None], rtol=1e-12)


def test_what_has_no_gradient_is_refused() -> None:
    x, n = te.placeholder((4,), name="x"), te.placeholder((4,), "int32", "n")
    y, k = te.exp(x), te.reduce_axis((0, 4), "k")
    own = te.comm_reducer(lambda a, b: a + b + a * b, lambda t: te.const(0, t), "own")
    reduced = te.compute((), lambda: own(x[k], axis=k), name="reduced")
    for call, message in (
        (lambda: te.gradient(reduced, [x]), "own of reduced has no adjoint: te.sum.* have one"),
        (lambda: te.gradient(y, [x]), "has the shape .4,.; give a head"),
        (
            lambda: te.gradient(y, [x], te.placeholder((3,))),
            r"head is float32\[3\]; expected float32\[4\]",
        ),
        (lambda: te.gradient(y, [n], y), "n holds int32; a derivative is one of floats"),
        (lambda: te.gradient(y, x), "inputs"),
        (lambda: te.gradient(3, [x]), "expected a tensor"),
    ):
        with pytest.raises(TensorExprError, match=message):
            call()


POSITIVE = np.array([0.3, 0.8, 0.5, 0.05])
ANY = np.array([-1.3, 0.45, 2.7, -0.2])
FUNCTIONS = (
    [
        (n, POSITIVE)
        for n in [
            "acos",
            "asin",
            "atanh",
            "exp10",
            "log",
            "log10",
            "log1p",
            "log2",
            "rsqrt",
            "sqrt",
        ]
    ]
    + [
        (n, ANY)
        for n in [
            "abs",
            "asinh",
            "atan",
            "ceil",
            "cos",
            "cosh",
            "erf",
            "exp",
            "exp2",
            "expm1",
            "floor",
        ]
    ]
    + [(n, ANY) for n in ["round", "sigmoid", "sin", "sinh", "tan", "tanh", "trunc"]]
    + [("acosh", POSITIVE + 1)]
)


@pytest.mark.parametrize(("name", "at_points"), FUNCTIONS)
def test_functions_as_differences(name: str, at_points: Floats) -> None:
    x = te.placeholder((4,), "float64", "x")
    y = te.compute((4,), lambda i: getattr(te, name)(x[i]), name="y")
    (grad,) = te.gradient(y, [x], te.compute((4,), lambda i: te.const(1.0, "float64"), name="h"))
    (found,) = interpreted([grad], [x], [at_points])
    (low,), (high,) = (interpreted([y], [x], [at_points + s]) for s in (-1e-6, 1e-6))
    np.testing.assert_allclose(found, (high - low) / 2e-6, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize(
    "name", ["atan2", "copysign", "div", "floormod", "fmod", "hypot", "max", "min", "power"]
)
def test_functions_of_two_as_differences(name: str) -> None:
    x, z = (te.placeholder((4,), "float64", n) for n in "xz")
    y = te.compute((4,), lambda i: getattr(te, name)(x[i], z[i]), name="y")
    head = te.compute((4,), lambda i: te.const(1.0, "float64"), name="h")
    given = [POSITIVE, ANY]
    found = interpreted(te.gradient(y, [x, z], head), [x, z], given)
    for n, of in enumerate(found):
        ends = []
        for step in (-1e-6, 1e-6):
            moved = [a + step * (n == m) for m, a in enumerate(given)]
            ends.append(interpreted([y], [x, z], moved)[0])
        np.testing.assert_allclose(of, (ends[1] - ends[0]) / 2e-6, rtol=1e-7, atol=1e-8)


def test_powers_of_zero_are_as_limits_have_it() -> None:
    """As PyTorch: 0, where a factor of the rule is infinite and the other 0."""
    x, z = (te.placeholder((4,), "float64", n) for n in "xz")
    head = te.compute((4,), lambda i: te.const(1.0, "float64"), name="h")
    y = te.compute((4,), lambda i: te.power(x[i], z[i]), name="y")
    given = [np.zeros(4), np.array([0.0, 1.0, 2.0, 0.5])]
    found = interpreted(te.gradient(y, [x, z], head), [x, z], given)
    np.testing.assert_array_equal(found, [[0, 1, 0, np.inf], [0, 0, 0, 0]])
    y = te.compute((4,), lambda i: te.hypot(x[i], z[i] * 0.0), name="y")
    found = interpreted(te.gradient(y, [x, z], head), [x, z], given)
    np.testing.assert_array_equal(found, np.zeros((2, 4)))
    y = te.compute((4,), lambda i: te.atan2(x[i], z[i] * 0.0), name="y")
    found = interpreted(te.gradient(y, [x, z], head), [x, z], given)
    np.testing.assert_array_equal(found, np.zeros((2, 4)))


def test_ties_of_float16_are_counted_whole() -> None:
    """float16 counts to 2048 only."""
    x, k = te.placeholder((5000,), "float16", "x"), te.reduce_axis((0, 5000), "k")
    (grad,) = te.gradient(te.compute((), lambda: te.max(x[k], axis=k), name="y"), [x])
    (found,) = interpreted([grad], [x], [np.ones(5000, np.float16)])
    np.testing.assert_allclose(found, 1 / 5000, rtol=1e-3)


def test_gradients_of_bfloat16_are_summed_in_float32() -> None:
    x, w = te.placeholder((300,), "bfloat16", "x"), te.placeholder((1,), "bfloat16", "w")
    y = te.compute((300,), lambda i: x[i].astype("float32") * w[0].astype("float32"), name="y")
    head = te.compute((300,), lambda i: te.const(1.0, "float32"), name="h")
    (grad,) = te.gradient(y, [w], head)
    assert grad.dtype == "bfloat16"
    wide = te.compute((1,), lambda i: grad[i].astype("float32"), name="wide")
    ones = dtypes.from_float32(np.ones(300))
    (found,) = interpreted([wide], [x, w], [ones, ones[:1].copy()])
    np.testing.assert_allclose(found, 300, rtol=1 / 128)


def test_a_scan_that_others_read_too() -> None:
    """Its gradient reads it, and so does what follows it."""
    x, state = (te.placeholder((4, 2), "float64", n) for n in ("x", "state"))
    begin = te.compute((1, 2), lambda _, i: x[0, i] * 2.0, name="begin")
    step = te.compute((4, 2), lambda t, i: te.tanh(state[t - 1, i]) * x[t, i], name="step")
    made = te.scan(begin, step, state)
    i, j = te.reduce_axis((0, 4), "i"), te.reduce_axis((0, 2), "j")
    y = te.compute((), lambda: te.sum(made[i, j] * made[i, j], axis=[i, j]), name="y")
    given = np.random.default_rng(0).standard_normal((4, 2))
    (found,) = interpreted(te.gradient(y, [x]), [x], [given])
    for place in np.ndindex(4, 2):
        ends = []
        for s in (-1e-6, 1e-6):
            moved = given.copy()
            moved[place] += s
            ends.append(interpreted([y], [x], [moved])[0])
        np.testing.assert_allclose(found[place], (ends[1] - ends[0]) / 2e-6, rtol=1e-6, atol=1e-8)


def test_gradients_of_gradients() -> None:
    """Axes that a gradient names are reduced in the next one."""
    x, k = te.placeholder((4,), "float64", "x"), te.reduce_axis((0, 4), "k")
    y = te.compute((), lambda: te.sum(x[k] * x[k] * x[k], axis=k), name="y")
    (first,) = te.gradient(y, [x])
    (second,) = te.gradient(first, [x], te.placeholder((4,), "float64", "h"))
    head = np.array([1.0, 2.0, 3.0, 4.0])
    h = next(t for t in second.op.input_tensors if t.name == "h")
    (found,) = interpreted([second], [x, h], [ANY, head])
    np.testing.assert_allclose(found, 6 * ANY * head, rtol=1e-12)


def test_indices_are_read_only_where_the_program_reads_them() -> None:
    """What decides an index is an array of its own bounds, and may be guarded."""
    x, q = te.placeholder((5, 6), "float64", "x"), te.placeholder((3,), "int64", "q")

    def element(i: Any) -> Any:
        inside = x[te.clamp_index(q[i], 5), i]
        before = te.if_then_else(i > 0, x[te.clamp_index(q[i - 1], 5), 2], 0.0)
        return inside * before + te.if_then_else(i > 1, before, inside)

    y = te.compute((3,), element, name="y")
    h = te.placeholder((3,), "float64", "h")
    (grad,) = te.gradient(y, [x], h)
    rng = np.random.default_rng(0)
    given = [rng.standard_normal((5, 6)), np.array([4, 0, 2]), rng.standard_normal(3)]
    for of in (evaluated, interpreted):
        (found,) = of([grad], [x, q, h], given)
        for place in np.ndindex(5, 6):
            ends = []
            for step in (-1e-6, 1e-6):
                moved = given[0].copy()
                moved[place] += step
                ends.append(interpreted([y], [x, q], [moved, given[1]])[0] @ given[2])
            np.testing.assert_allclose(found[place], (ends[1] - ends[0]) / 2e-6, atol=1e-8)


def test_a_head_that_is_the_gradient_is_a_tensor_of_its_own() -> None:
    x, h = te.placeholder((3,), "float64", "x"), te.placeholder((3,), "float64", "h")
    for y in (x, te.exp(x)):
        (grad,) = te.gradient(y, [y], h)
        (found,) = evaluated([grad], [x, h], [np.ones(3), np.arange(3.0)])
        np.testing.assert_array_equal(found, np.arange(3.0))


MAPS = {
    "flattened": ((6, 4), (24,), lambda x, i: x[i // 4, i % 4]),
    "of three digits": ((2, 3, 4), (24,), lambda x, i: x[i // 12, i // 4 % 3, i % 4]),
    "split": ((24,), (6, 4), lambda x, i, j: x[i * 4 + j]),
    "with gaps": ((24,), (4, 3), lambda x, i, j: x[i * 6 + j * 2 + 1]),
    "by no multiples": ((20,), (2, 2), lambda x, i, j: x[i * 2 + j * 7]),
    "in several forms": (
        (2, 4, 4),
        (2, 2, 2),
        lambda x, i, j, k: x[i, (i * 4 + j * 2 + k * 7) // 8 % 4, (i * 4 + j * 2 + k * 7) % 4],
    ),
    "reshaped": ((4, 6), (8, 3), lambda x, i, j: x[(i * 3 + j) // 6, (i * 3 + j) % 6]),
    "repeated": ((6,), (12,), lambda x, i: x[i // 2]),
    "tiled": ((6,), (14,), lambda x, i: x[i % 6]),
    "beyond a digit": ((5,), (14,), lambda x, i: x[i % 3]),
    "a digit left out": ((3, 2), (24,), lambda x, i: x[i // 8, i % 2]),
    "depth to space": ((4, 3, 3), (6, 6), lambda x, i, j: x[i % 2 * 2 + j % 2, i // 2, j // 2]),
    "beside the axis": ((3, 6), (6,), lambda x, i: x[i // 2, i]),
    "downwards": ((24,), (6, 4), lambda x, i, j: x[23 - i * 4 - j]),
}
"""Shapes of the input and of the output, and what an element reads."""


@pytest.mark.parametrize("name", MAPS)
def test_index_maps_are_solved(name: str) -> None:
    """Elements go back to where NumPy reads them from."""
    shape, out, read = MAPS[name]
    x, h = te.placeholder(shape, "float64", "x"), te.placeholder(out, "float64", "h")
    y = te.compute(out, lambda *at: read(x, *at), name="y")
    (grad,) = te.gradient(y, [x], h)
    head = np.random.default_rng(0).standard_normal(out)
    places = read(np.arange(np.prod(shape)).reshape(shape), *np.indices(out))
    expected = np.bincount(places.ravel(), head.ravel(), int(np.prod(shape))).reshape(shape)
    for of in (evaluated, interpreted):
        (found,) = of([grad], [x, h], [np.zeros(shape), head])
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "terms"),
    [("flattened", 1), ("of three digits", 1), ("split", 1), ("reshaped", 1), ("repeated", 2),
     ("tiled", 3), ("depth to space", 4)],
)  # fmt: skip
def test_solved_index_maps_sum_what_reads_an_element(name: str, terms: int) -> None:
    """Not over all of the output."""
    shape, out, read = MAPS[name]
    x = te.placeholder(shape, "float64", "x")
    y = te.compute(out, lambda *at: read(x, *at), name="y")
    (grad,) = te.gradient(y, [x], te.placeholder(out, "float64", "h"))
    assert np.prod([int(a.extent) for a in grad.op.reduce_axis]) == terms


def test_split_axes_of_symbolic_sizes() -> None:
    n, m = te.var("n"), te.var("m")
    x, h = te.placeholder((n * m,), "float64", "x"), te.placeholder((n, m), "float64", "h")
    y = te.compute((n, m), lambda i, j: te.exp(x[i * m + j]), name="y")
    (grad,) = te.gradient(y, [x], h)
    func = at.build(te.create_prim_func([x, h, grad]), target="llvm")
    rng = np.random.default_rng(0)
    data, head, found = rng.standard_normal(12), rng.standard_normal((3, 4)), np.empty(12)
    func(data, head, found)
    np.testing.assert_allclose(found, np.exp(data) * head.ravel(), rtol=1e-12)


@pytest.mark.parametrize("of", ["max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_largest_is_found_although_another_kernel_rounds_otherwise(of: str, dtype: str) -> None:
    """What the gradient computes again may have another last bit than the result."""
    x, h = te.placeholder((50, 3), dtype, "x"), te.placeholder((50,), dtype, "h")
    k = te.reduce_axis((0, 3), "k")

    def element(i: Any) -> Any:
        ratio = te.exp(x[i, k]) / (te.tanh(x[i, k]) * te.tanh(x[i, k]) + 0.5)
        return getattr(te, of)(ratio, axis=k)

    y = te.compute((50,), element, name="y")
    (grad,) = te.gradient(y, [x], h)
    given = np.random.default_rng(0).standard_normal((50, 3)).astype(dtype)
    (found,) = evaluated([grad], [x, h], [given, np.ones(50, dtype)])
    ratios = np.exp(given) / (np.tanh(given) ** 2 + 0.5)
    places = getattr(np, f"arg{of}")(ratios, axis=1)
    np.testing.assert_array_equal(found != 0, np.arange(3) == places[:, None])


def test_of_equal_computed_elements_the_first_is_the_largest() -> None:
    x, h = te.placeholder((4, 3), "float64", "x"), te.placeholder((4,), "float64", "h")
    k, m = te.reduce_axis((1, 3), "k"), te.reduce_axis((0, 2), "m")
    y = te.compute((4,), lambda i: te.max(te.exp(x[i, k] * 2.0), axis=[m, k]), name="y")
    (grad,) = te.gradient(y, [x], h)
    for of in (evaluated, interpreted):
        (found,) = of([grad], [x, h], [np.zeros((4, 3)), np.ones(4)])
        np.testing.assert_array_equal(found, [[0, 2, 0]] * 4)
