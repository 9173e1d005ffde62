"""Intermediates in the memory of a result: which may stand there, and that values stay right."""

from __future__ import annotations

import numpy as np
import pytest

from autosched import te
from autosched.codegen.build import build_artifact
from autosched.codegen.llvm.inplace import hosts
from autosched.lowering.lower import lower
from autosched.runtime.function import Function
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

TARGET = Target("llvm -num-cores=2")
ROWS, COLUMNS = 6, 2051


def softmax() -> PrimFunc:
    """The exponentials of a row take more than what may live on the stack."""
    a = te.placeholder((ROWS, COLUMNS), name="A")
    k = te.reduce_axis((0, COLUMNS), name="k")
    e = te.compute((ROWS, COLUMNS), lambda i, j: te.exp(a[i, j]), name="e")
    total = te.compute((ROWS,), lambda i: te.sum(e[i, k], axis=k), name="total")
    out = te.compute((ROWS, COLUMNS), lambda i, j: e[i, j] / total[i], name="out")
    return te.create_prim_func([a, out])


def by_rows(rows: int, kind: str = "serial", streaming: str = "") -> PrimFunc:
    """`rows` rows at a time."""
    s = Schedule(softmax())
    out = s.get_block("out")
    i, _ = s.get_loops(out)
    i, _ = s.split(i, [None, rows])
    for name in ("total", "e"):
        s.compute_at(s.get_block(name), i)
    if kind == "parallel":
        s.parallel(i)
    for name in ("e", "total", "out"):
        s.vectorize(s.split(s.get_loops(s.get_block(name))[-1], [None, 32])[1])
    if streaming:
        s.annotate(s.get_block(streaming), "streaming", True)
    return s.func


def hosted(func: PrimFunc) -> set[str]:
    """Names of the results that hold an intermediate."""
    return {access.buffer.name for access in hosts(lower(func)).values()}


@pytest.mark.parametrize("kind", ["serial", "parallel"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_exponentials_stand_in_the_softmax(rows: int, kind: str) -> None:
    func = by_rows(rows, kind)
    # Four and four rows are more than six: the last ones would lie behind the result.
    assert hosted(func) == (set() if rows == 4 else {"out"})
    artifact = build_artifact(func, TARGET)
    room = artifact.info.workspace_bytes + artifact.info.thread_bytes
    assert (room < 4 * COLUMNS) == (rows != 4)
    a = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    found = np.full_like(a, np.nan)
    Function(artifact)(a, found)
    e = np.exp(a.astype(np.float64))
    np.testing.assert_allclose(found, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_what_may_not_stand_in_a_result() -> None:
    # Stores past the caches would have the row read again from memory, and they need whole vectors,
    # at which the intermediate's rows lie, but not the result's.
    assert not hosted(by_rows(1, streaming="out"))
    assert not hosted(by_rows(1, streaming="e"))
    # All rows at once, on threads: their functions take the two to lie apart.
    s = Schedule(softmax())
    s.parallel(s.get_loops(s.get_block("out"))[0])
    assert not hosted(s.func)
    assert hosted(softmax()) == {"out"}


@pytest.mark.parametrize(("columns", "stands"), [(6, False), (8, True), (24, False), (48, True)])
def test_rows_of_masked_vectors_stay_apart(columns: int, stands: bool) -> None:
    a = te.placeholder((200, columns), name="A")
    e = te.compute((200, columns), lambda i, j: te.exp(a[i, j]), name="e")
    out = te.compute((200, columns), lambda i, j: e[i, j] + 1.0, name="out")
    s = Schedule(te.create_prim_func([a, out]))
    for name in ("e", "out"):
        s.vectorize(s.get_loops(s.get_block(name))[-1])
    assert hosted(s.func) == ({"out"} if stands else set())
    x = np.linspace(-1, 1, 200 * columns, dtype=np.float32).reshape(200, columns)
    y = np.zeros_like(x)
    Function(build_artifact(s.func, TARGET))(x, y)
    np.testing.assert_allclose(y, np.exp(x) + 1, rtol=1e-5)


def test_a_window_or_another_order_stays_apart() -> None:
    """The result's last reader must be the only one there, at the same element."""
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1, name="B")
    programs = {
        "transposed": te.compute((8, 8), lambda i, j: b[j, i] * 2, name="C"),
        "two elements": te.compute((8, 8), lambda i, j: b[i, j] * b[7 - i, j], name="C"),
        "rows longer": te.compute((8, 7), lambda i, j: b[i, j] * 2, name="C"),
        "shifted": te.compute((7, 8), lambda i, j: b[i + 1, j] * 2, name="C"),
        "another dtype": te.compute((8, 8), lambda i, j: te.cast(b[i, j], "float64"), name="C"),
    }
    for name, c in programs.items():
        assert not hosted(te.create_prim_func([a, c])), name
    c = te.compute((8, 8), lambda i, j: b[i, j] * 2, name="C")
    assert hosted(te.create_prim_func([a, c])) == {"C"}
    d = te.compute((8, 8), lambda i, j: c[i, j] + 1, name="D")
    assert hosted(te.create_prim_func([a, c, d])) == set()  # C is read once more


def test_a_result_that_is_written_twice_stays_apart() -> None:
    """The second time it would be made of itself."""
    func = parse_func("""
@T.prim_func
def twice(A: T.Buffer((2048,), "float32"), C: T.Buffer((2048,), "float32")):
    B = T.alloc_buffer((2048,), "float32")
    for i in T.serial(2048):
        with T.block("B"):
            vi = T.axis.spatial(2048, i)
            B[vi] = A[vi] + T.float32(1)
    for i0, i1 in T.grid(3, 1024):
        with T.block("C"):
            vi = T.axis.spatial(2048, i0 * 512 + i1)
            C[vi] = B[vi] * T.float32(2)
""")
    a = np.arange(2048, dtype=np.float32)
    found = np.full_like(a, np.nan)
    Function(build_artifact(func, TARGET))(a, found)
    np.testing.assert_array_equal(found, (a + 1) * 2)
