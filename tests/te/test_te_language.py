"""Tensor expressions as people write them: whole tensors, mixed types, slices, initial values."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

import autosched as at
from autosched import te
from autosched.script.parser import parse_func
from autosched.tir import dtypes
from autosched.tir.interp import run
from autosched.tir.promote import promoted

Array = npt.NDArray[Any]
RNG = np.random.default_rng(0)


def compiled(func: at.PrimFunc, given: list[Array], shape: tuple[int, ...], dtype: str) -> Array:
    """The output, made by compiled code and equal to the interpreter's."""
    outs = [np.zeros(shape, dtypes.array_dtype(dtype)) for _ in range(2)]
    at.build(func)(*given, outs[0])
    run(func, [*given, outs[1]])
    np.testing.assert_allclose(outs[0], outs[1], rtol=1e-5, atol=1e-6)
    return outs[0]


def result(output: te.Tensor, inputs: dict[te.Tensor, Array]) -> Array:
    func = te.create_prim_func([*inputs, output])
    return compiled(func, list(inputs.values()), output.shape, output.dtype)


def test_whole_tensors_are_broadcast_as_in_numpy() -> None:
    A, B, C = (
        te.placeholder(s, name=n) for n, s in zip("ABC", [(3, 4), (4,), (3, 1)], strict=True)
    )
    a, b, c = (RNG.uniform(0.5, 2, t.shape).astype("float32") for t in (A, B, C))
    given = {A: a, B: b, C: c}
    cases = [
        (A + 1, a + 1),
        (2 - A * B, 2 - a * b),
        (te.exp(A) / C, np.exp(a) / c),
        (-te.sqrt(B + C), -np.sqrt(b + c)),
        (te.max(A, B, 1.0), np.maximum(np.maximum(a, b), 1)),
        (te.if_then_else(A > B, A, 0.0), np.where(a > b, a, 0)),
        (A**2 + 2.0**B, a**2 + 2.0**b),
        ((A < 1).astype("int32") << 2, (a < 1).astype("int32") << 2),
        (abs(C - A), abs(c - a)),
        (te.all(A > 1, C > 1).astype("int8"), ((a > 1) & (c > 1)).astype("int8")),
    ]
    for output, wanted in cases:
        needed = {t: v for t, v in given.items() if _reads(output, t)}
        found = result(output, needed)
        assert found.shape == wanted.shape, output
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def _reads(output: te.Tensor, t: te.Tensor) -> bool:
    return any(x is t or _reads(x, t) for x in output.op.input_tensors)


def test_slices_lead_to_elements() -> None:
    A = te.placeholder((3, 4, 5), name="A")
    a = RNG.standard_normal((3, 4, 5), np.float32)
    B = te.compute((3, 4, 5), lambda i, j, k: A[i][j][k] + A[i, 0][k] + A[i][j, 1], name="B")
    np.testing.assert_allclose(result(B, {A: a}), a + a[:, :1] + a[:, :, 1:2], rtol=1e-6)


def test_names_are_made_unique() -> None:
    A, B = te.placeholder((4,), name="A"), te.placeholder((4,), name="A")
    C = te.compute((4,), lambda i: A[i] + B[i], name="A")
    pair = te.compute((4,), lambda i: (C[i], C[i] * 2), name="p")
    func = te.create_prim_func([A, B, C, te.placeholder((2,), name="p_v0"), *pair])
    assert [b.name for b in func.params] == ["A", "A_1", "A_2", "p_v0", "p_v0_1", "p_v1"]
    at.build(func)


def test_a_schedule_of_tensors_is_one_of_their_operations() -> None:
    A = te.placeholder((8,), name="A")
    B, C = A * 2.0, A + 1.0
    s = te.create_schedule([B, C.op])
    s[B].vectorize(B.op.axis[0])
    b, c = np.zeros(8, "float32"), np.zeros(8, "float32")
    at.build(s, [A, B, C])(np.arange(8, dtype="float32"), b, c)
    assert (b == np.arange(8) * 2).all()
    assert (c == np.arange(8) + 1).all()


def test_dtypes_meet_as_stated() -> None:
    for a, b in itertools.product(dtypes.DTYPES, repeat=2):
        found = promoted(a, b)
        assert found == promoted(b, a)
        plain = "bfloat16" not in (a, b) and dtypes.is_float(a) == dtypes.is_float(b)
        if plain and {a, b} & {"uint64"} and {a, b} & set(dtypes.SIGNED):
            assert found is None, (a, b)  # NumPy has float64
        elif plain:
            assert found == np.result_type(a, b).name, (a, b)
        elif dtypes.is_float(a) != dtypes.is_float(b):
            assert found == (a if dtypes.is_float(a) else b), (a, b)
        elif a != b:
            assert found == ("float64" if "float64" in (a, b) else "float32"), (a, b)


def test_mixed_types_compute_what_the_promoted_do() -> None:
    A, B, C = (
        te.placeholder((9,), t, n) for t, n in (("int8", "A"), ("float32", "B"), ("uint8", "C"))
    )
    a = RNG.integers(-128, 128, 9).astype("int8")
    b = RNG.standard_normal(9, np.float32)
    c = RNG.integers(0, 256, 9).astype("uint8")
    assert (result(A + C, {A: a, C: c}) == a.astype("int16") + c).all()
    mixed = te.compute((9,), lambda i: (A[i] + 0.5) * B[i] + i, name="mixed")
    wanted = (a.astype("float32") + np.float32(0.5)) * b + np.arange(9, dtype="float32")
    np.testing.assert_allclose(result(mixed, {A: a, B: b}), wanted, rtol=1e-6)
    assert (B * np.float64(2)).dtype == "float32"
    n = te.var("n", "int32")
    D = te.placeholder((n,), name="D")
    at.build(te.create_prim_func([D, D + 1]))(b, out := np.zeros(9, "float32"))
    np.testing.assert_array_equal(out, b + 1)


def test_integer_powers_are_products() -> None:
    A = te.placeholder((5,), "int32", "A")
    a = np.array([-3, -1, 0, 2, 7], "int32")
    for n in (0, 1, 2, 5, 8):
        assert (result((A + 0) ** n, {A: a}) == a**n).all()


def test_bfloat16_is_computed_in_float32_and_rounded() -> None:
    A, B = te.placeholder((64,), "bfloat16", "A"), te.placeholder((64,), "bfloat16", "B")
    a, b = (dtypes.from_float32(RNG.standard_normal(64, np.float32)) for _ in "ab")

    def rounded(x: Array) -> Array:
        return dtypes.to_float32(dtypes.from_float32(x))

    x, y = dtypes.to_float32(a), dtypes.to_float32(b)
    wanted = dtypes.from_float32(rounded(rounded(x * y) + rounded(np.exp(x))))
    out = te.compute((64,), lambda i: A[i] * B[i] + te.exp(A[i]), name="out")
    func = te.create_prim_func([A, B, out])
    found = np.zeros(64, "uint16")
    at.build(func)(a, b, found)
    assert (abs(found.astype(int) - wanted) <= 1).all()  # exp may round to the other side
    smaller = te.create_prim_func([A, B, te.min(A, B)])
    at.build(smaller)(a, b, found)
    assert (found == np.where(x < y, a, b)).all()
    assert parse_func(func.script()).script() == func.script()


def test_unsigned_integers_of_every_width() -> None:
    for dtype in dtypes.UNSIGNED:
        most = np.iinfo(dtype).max
        a = RNG.integers(0, most, 33, dtype=dtype, endpoint=True)
        b = RNG.integers(1, most, 33, dtype=dtype, endpoint=True)
        a[:4], b[:4] = [0, most, most - 1, most], [most, most, most, 1]
        A, B = te.placeholder((33,), dtype, "A"), te.placeholder((33,), dtype, "B")
        out = te.compute(
            (33,),
            lambda i, A=A, B=B: te.select(
                A[i] > B[i],
                A[i] // B[i] + A[i] % B[i] * 3,
                ~(A[i] - B[i]) ^ (A[i] >> 3) | B[i] << 1,
            ),
            name="out",
        )
        wanted = np.where(a > b, a // b + a % b * 3, ~(a - b) ^ (a >> 3) | b << 1)
        np.testing.assert_array_equal(result(out, {A: a, B: b}), wanted)
        text = te.create_prim_func([A, B, out]).script()
        assert parse_func(text).script() == text
        np.testing.assert_array_equal(result(A.astype("float64"), {A: a}), a.astype("float64"))


def test_reductions_take_an_initial_value() -> None:
    A, B = te.placeholder((4, 8), name="A"), te.placeholder((4,), name="B")
    a, b = RNG.standard_normal((4, 8), np.float32), RNG.standard_normal(4, np.float32)
    k = te.reduce_axis((0, 8), name="k")
    total = te.compute((4,), lambda i: te.sum(A[i, k], axis=k, init=B[i]), name="total")
    np.testing.assert_allclose(result(total, {A: a, B: b}), b + a.sum(1), rtol=1e-4, atol=1e-5)
    least = te.compute((4,), lambda i: te.min(A[i, k], axis=k, init=-0.5), name="least")
    np.testing.assert_array_equal(result(least, {A: a}), np.minimum(a.min(1), np.float32(-0.5)))
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], te.max(x[1], y[1])),
        lambda s, t: (te.const(0, s), te.min_value(t)),
    )
    pair = te.compute((4,), lambda i: both((A[i, k], A[i, k]), axis=k, init=(1, B[i])), name="pair")
    sums, largest = np.zeros(4, "float32"), np.zeros(4, "float32")
    at.build(te.create_prim_func([A, B, *pair]))(a, b, sums, largest)
    np.testing.assert_allclose(sums, 1 + a.sum(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(largest, np.maximum(a.max(1), b))


def test_a_scan_reads_the_step_before_of_what_it_is_given() -> None:
    X = te.placeholder((6, 5), name="X")
    state = te.placeholder((6, 5), name="state")
    init = te.compute((1, 5), lambda _, i: X[0, i], name="init")
    cell = te.compute((6, 5), lambda t, i: state[t - 1][i] + X[t - 1][i], name="cell")
    update = te.compute((6, 5), lambda t, i: cell[t, i] * 0.5 + X[t, i], name="update")
    x = RNG.standard_normal((6, 5), np.float32)
    wanted = x.copy()
    for t in range(1, 6):
        wanted[t] = (wanted[t - 1] + x[t - 1]) * 0.5 + x[t]
    scanned = te.scan(init, update, state, inputs=[X])
    np.testing.assert_allclose(result(scanned, {X: x}), wanted, rtol=1e-5, atol=1e-6)
