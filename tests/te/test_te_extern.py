"""te.extern: tensors that routines and C functions compute, between those of te.compute."""

from __future__ import annotations

import copy
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import AutoschedError, ScheduleError, TensorExprError
from autosched.script import parse, routine
from autosched.script import tir as T
from autosched.te.adjoint import adjoint
from autosched.tir.extern import register
from autosched.tir.interp import run
from autosched.tir.nodes import PrimFunc

N, M = 16, 12
SOURCE = """
#include <stdint.h>
void cumulate(const float *x, float *y, int64_t n, int64_t m) {
  for (int64_t i = 0; i < n; i++)
    for (int64_t j = 0; j < m; j++) y[i * m + j] = x[i * m + j] + (j ? y[i * m + j - 1] : 0);
}
float added(float *y, float x) { return *y += x; }
"""


@pytest.fixture(scope="module", autouse=True)
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shared library with the functions of SOURCE, both of them registered."""
    folder = tmp_path_factory.mktemp("extern")
    (folder / "f.c").write_text(SOURCE)
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(folder / "f.so"), str(folder / "f.c")]
    subprocess.run(command, check=True)
    register("cumulate", "", ("float32*", "float32*", "int64", "int64"), folder / "f.so")
    register("added", "float32", ("float32*", "float32"), folder / "f.so")
    return folder / "f.so"


@routine
def ragged(  # type: ignore[no-untyped-def]
    x: T.Buffer((16, 12)),  # type: ignore[valid-type]
    first: T.Buffer((17,), "int64"),  # type: ignore[valid-type]
    total: T.Buffer((16,)),  # type: ignore[valid-type]
    count: T.Buffer((16,), "int64"),  # type: ignore[valid-type]
):
    for i in range(16):
        for j in T.serial(first[i], first[i + 1]):
            total[i] += x[i, j]
            count[i] += 1


def program() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    a = te.placeholder((N, M), name="A")
    b = te.compute((N, M), lambda i, j: a[i, j] * 2, name="B")
    c = te.extern(
        (N, M), [b], lambda ins, outs: te.call_extern("cumulate", ins[0], outs[0], N, M), name="C"
    )
    k = te.reduce_axis((0, M), name="k")
    return a, c, te.compute((N,), lambda i: te.sum(c[i, k] + b[i, k], axis=k), name="D")


def both(func: PrimFunc, *arrays: np.ndarray) -> list[np.ndarray]:
    """What the interpreter and the code leave in the arrays, which agree; the text reads back."""
    assert parse(func.script()).same(func)  # type: ignore[arg-type]
    first, second = ([a.copy() for a in arrays] for _ in range(2))
    run(func, first)
    at.build(func, target="llvm")(*second)
    for x, y in zip(first, second, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)
    return second


def test_a_c_function_between_computations() -> None:
    a, c, d = program()
    x = np.random.default_rng(0).random((N, M), np.float32)
    out = np.full(N, np.nan, np.float32)
    *_, found = both(te.create_prim_func([a, d]), x, out)
    wanted = (np.cumsum(2 * x, axis=1) + 2 * x).sum(axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    kept = np.empty((N, M), np.float32)
    _, kept, _ = both(te.create_prim_func([a, c, d]), x, kept, out)
    np.testing.assert_allclose(kept, np.cumsum(2 * x, axis=1), rtol=1e-5)


def test_stages_beside_it_are_scheduled() -> None:
    a, c, d = program()
    s = te.create_schedule([d.op])
    (b,) = c.op.input_tensors
    s[b].vectorize(s[b].op.axis[1])
    outer, _ = s[d].split(s[d].op.axis[0], factor=4)
    s[d].parallel(outer)
    copy = s.cache_read(c, "local", [d])
    s[copy].compute_at(s[d], outer)
    x, out = np.ones((N, M), np.float32), np.zeros(N, np.float32)
    at.build(s, [a, d], "llvm")(x, out)
    assert out == pytest.approx(np.full(N, 2 * (M * (M + 1) / 2) + 2 * M))
    text = at.lower(s, [a, d]).script()
    assert text.index("T.vectorized") < text.index("T.opaque") < text.index("T.parallel")


@pytest.mark.parametrize(
    "call",
    [
        lambda s, b, c, d: s[c].compute_inline(),
        lambda s, b, c, d: s[c].compute_at(s[d], s[d].op.axis[0]),
        lambda s, b, c, d: s[c].set_scope("local"),
        lambda s, b, c, d: s[b].set_scope("local"),
        lambda s, b, c, d: s[b].compute_inline(),
        lambda s, b, c, d: s[b].compute_at(s[d], s[d].op.axis[0]),
        lambda s, b, c, d: s.cache_read(b, "local", [c]),
        lambda s, b, c, d: s.cache_write(c, "local"),
        lambda s, b, c, d: s.rfactor(c, d.op.reduce_axis[0]),
    ],
)
def test_it_is_not_scheduled_and_nothing_moves_across_it(call: Any) -> None:
    a, c, d = program()
    s = te.create_schedule(d)

    def replayed() -> None:
        call(s, c.op.input_tensors[0], c, d)
        s.replay([a, d])

    with pytest.raises(ScheduleError, match=r"C|extern"):
        replayed()


def test_a_routine_of_several_tensors() -> None:
    a = te.placeholder((N, M), name="A")
    first = te.placeholder((N + 1,), name="first", dtype="int64")
    total, count = te.extern([(N,), (N,)], [a, first], ragged, "rows", ["float32", "int64"])
    mean = te.compute((N,), lambda i: total[i] / count[i].astype("float32"), name="mean")
    func = te.create_prim_func([a, first, mean])
    x = np.random.default_rng(1).random((N, M), np.float32)
    bounds = np.array([0, 4, 7, 8, 12, 2, 5, 6, 9, 1, 2, 11, 0, 3, 4, 6, 12])
    *_, found = both(func, x, bounds, np.empty(N, np.float32))
    spans = zip(range(N), bounds[:-1], bounds[1:], strict=True)
    with np.errstate(all="ignore"):
        wanted = [x[i, p:q].sum() / np.float32(max(q - p, 0)) for i, p, q in spans]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    built = at.build(func, target="llvm")
    with pytest.raises(AutoschedError, match=r"x\[i, j\] is out of bounds: index 1 is 12"):
        built(x, bounds + 1, np.empty(N, np.float32))


def test_a_tensor_that_nobody_reads_is_computed_all_the_same() -> None:
    a = te.placeholder((N, M), name="A")
    first = te.placeholder((N + 1,), name="first", dtype="int64")
    total, _ = te.extern([(N,), (N,)], [a, first], ragged, dtype=["float32", "int64"])
    *_, found = both(
        te.create_prim_func([a, first, total]),
        np.ones((N, M), np.float32),
        np.arange(N + 1) % 5,
        np.empty(N, np.float32),
    )
    assert set(found) == {0, 1}


def test_several_calls_run_in_order_on_what_starts_as_zero() -> None:
    a = te.placeholder((1,), name="A")
    b = te.extern(
        (1,),
        [a],
        lambda ins, outs: [
            te.call_extern("cumulate", ins[0], outs[0], 1, 1),
            te.call_extern("float32", "added", outs[0], 2.5),
        ],
    )
    c = te.extern((1,), [b], lambda ins, outs: te.call_extern("cumulate", ins[0], outs[0], 0, 0))
    *_, found, zero = both(te.create_prim_func([a, b, c]), *np.ones((3, 1), np.float32))
    assert (found, zero) == (3.5, 0)


def wrong(**given: Any) -> None:
    a = te.placeholder((N, M), name="A")
    defaults: dict[str, Any] = {
        "shape": (N, M),
        "inputs": [a],
        "fcompute": lambda ins, outs: te.call_extern("cumulate", ins[0], outs[0], N, M),
    }
    te.create_prim_func([a, te.extern(**{**defaults, **given})])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"inputs": []}, "say which dtype it has"),
        ({"inputs": [1]}, "expected tensors"),
        ({"dtype": "float31"}, "expected one"),
        ({"dtype": ["float32"] * 2}, "or one for each of its 1 tensors"),
        ({"shape": (te.var("n"), M)}, "fixed sizes"),
        ({"shape": (0, M)}, "positive"),
        ({"fcompute": 3}, "expects a function of lists of buffers"),
        ({"fcompute": lambda ins, outs: None}, "returned None; expected te.call_extern"),
        ({"fcompute": lambda ins, outs: []}, "expected te.call_extern"),
        ({"fcompute": lambda ins, outs: te.call_extern("none")}, "no C function 'none'"),
        ({"fcompute": lambda ins, outs: te.call_extern("added", 1.0)}, "found 1"),
        ({"fcompute": lambda ins, outs: te.call_extern("int32", "none")}, "no C function 'none'"),
        (
            {"fcompute": lambda ins, outs: te.call_extern("int64", "added", outs[0], 1.0)},
            "added returns float32, found 'int64'",
        ),
        (
            {"fcompute": lambda ins, outs: te.call_extern("added", outs[0], outs[0])},
            r"argument 1 of added is float32, found float32\*",
        ),
        ({"fcompute": ragged}, "has other parameters; expected the inputs, then the outputs"),
        (
            {"fcompute": lambda ins, outs: te.call_extern("added", outs[0], 1.0)},
            "does not use A, which it lists",
        ),
    ],
)
def test_what_means_nothing_says_why(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TensorExprError, match=message):
        wrong(**given)


def test_copies_and_pickles_compute_the_same() -> None:
    a, _, d = program()
    func = te.create_prim_func([a, d])
    other_a, other_d = pickle.loads(pickle.dumps((a, d)))
    assert te.create_prim_func([other_a, other_d]).same(func)
    assert copy.copy(te.create_schedule(d)).replay([a, d]).func.same(func)


def test_no_gradient_passes_through_it() -> None:
    a, _, d = program()
    with pytest.raises(TensorExprError, match="passes through the extern C"):
        adjoint([d], [lambda i: te.const(1.0, "float32")], a)


def test_no_step_of_a_scan_holds_one() -> None:
    init, state = te.placeholder((1, 1), name="init"), te.placeholder((4, 1), name="state")
    step = te.extern(
        (4, 1), [state], lambda ins, outs: te.call_extern("cumulate", ins[0], outs[0], 4, 1)
    )
    update = te.compute((4, 1), lambda t, i: step[t - 1, i], name="update")
    with pytest.raises(TensorExprError, match="holds the extern"):
        te.scan(init, update, state)
