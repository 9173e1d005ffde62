"""Words of TVMScript that stand for other text: macros, names for places, memory and assertions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import autosched as at
from autosched.errors import AutoschedError, ScriptError
from autosched.script import parse, parse_func
from autosched.script.migrate import migrate
from autosched.tir import interp

HEAD = """
from tvm.script import tir as T

@T.macro
def add_to(dst, src, i, by=1.0):
    x = src[i] * 2.0
    dst[i] = x + by

@T.inline
def rows(dst, src, n):
    for j in T.serial(n):
        with T.block("rows"):
            vj = T.axis.spatial(n, j)
            add_to(dst, src, vj, by=3.0)

@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
"""
A = np.arange(16, dtype=np.float32) - 5
CASES = {
    "a macro in a block": (
        """
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            add_to(B, A, vi)
""",
        A * 2 + 1,
    ),
    "a macro of a macro": ("    rows(B, A, 16)\n", A * 2 + 3),
    "two calls": (
        """
    C = T.alloc_buffer((16,))
    rows(C, A, 16)
    rows(dst=B, src=C, n=16)
""",
        (A * 2 + 3) * 2 + 3,
    ),
    "two names in one block": (
        """
    C = T.alloc_buffer((16,))
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            x = A[vi]
            add_to(C, A, vi)
            add_to(B, A, vi, x)
""",
        A * 3,
    ),
    "meta_var": (
        """
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            y = T.meta_var(15 - vi)
            z = y
            B[z] = A[y]
""",
        A,
    ),
    "ceildiv": (
        """
    for i in range(T.ceildiv(31, 2)):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            B[vi] = A[T.ceildiv(vi, 2)]
""",
        A[(np.arange(16) + 1) // 2],
    ),
    "isinf and isfinite": (
        """
    C = T.alloc_buffer((16,))
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = A[vi] / T.if_then_else(vi % 4 == 0, T.float32(0), T.float32(1))
    for i in range(16):
        with T.block("B"):
            vi = T.axis.spatial(16, i)
            finite: T.bool = T.isfinite(C[vi])
            B[vi] = T.Select(T.isinf(C[vi]), T.float32(9), T.Select(finite, C[vi], T.float32(8)))
""",
        np.where(np.arange(16) % 4, A, 9).astype(np.float32),
    ),
    "a name for memory": (
        """
    p: T.handle("float32") = B.data
    q: T.Ptr[T.float32] = A.data
    A_1 = T.Buffer((4, 4), "float32", data=q)
    B_1 = T.decl_buffer((4, 4), data=p)
    for i, j in T.grid(4, 4):
        B_1[i, j] = A_1[i, j] + 1.0
""",
        A + 1,
    ),
    "with T.Assert": (
        """
    with T.Assert(16 <= 16, "too long"):
        for i in T.parallel(16):
            B[i] = A[i]
""",
        A,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_words_are_written_out(name: str) -> None:
    body, expected = CASES[name]
    found = migrate(HEAD + body)
    assert not found.refused, found.report()
    (function,) = found.functions
    assert not function.is_routine, found.report()
    program = found.program()
    assert parse(program.script()).same(program)  # type: ignore[arg-type]
    ours, built = np.zeros(16, np.float32), np.zeros(16, np.float32)
    interp.run(program, [A, ours])  # type: ignore[arg-type]
    at.build(program, target="llvm")(A, built)
    np.testing.assert_array_equal(ours, expected)
    np.testing.assert_array_equal(built, expected)


@pytest.mark.parametrize(
    "body",
    [
        "    add_to(B)\n",
        "    add_to(B, A, 0, 1.0, 2.0)\n",
        "    add_to(B, A, 0, to=3)\n",
        "    add_to(*[B, A, 0])\n",
        "    B[0] = add_to(B, A, 0)\n",
    ],
)
def test_calls_that_do_not_fit_their_macro_are_refused(body: str) -> None:
    with pytest.raises(AutoschedError, match="add_to"):
        raise migrate(HEAD + body).refused[0].error  # type: ignore[misc]


def test_a_macro_that_calls_itself_ends() -> None:
    found = migrate(
        HEAD.replace("    x = src", "    add_to(dst, src, i)\n    x = src") + "    add_to(B, A, 0)"
    )
    assert "add_to" in str(found.refused[0].error)


BLOCK = """
@T.prim_func
def main(A: T.Buffer((16,)), R: T.Buffer((16,), "int64"), B: T.Buffer((16,))):
    for i in T.serial(16):
        with T.block("B"):
            vi = T.axis.{kind}(16, i)
            {first}
            {second}
"""


@pytest.mark.parametrize(
    ("kind", "first", "places"),
    [
        ("spatial", "y = 15 - vi", 15 - np.arange(16)),
        ("sequential", "y = T.clamp_index(R[vi], 16)", np.arange(16) // 2),
    ],
)
def test_a_name_may_stand_in_the_index_of_a_store(
    kind: str, first: str, places: NDArray[np.int64]
) -> None:
    func = parse_func(BLOCK.format(kind=kind, first=first, second="B[y] = A[vi]"))
    assert parse_func(func.script()).same(func)
    expected, out = np.zeros(16, np.float32), np.zeros(16, np.float32)
    for n, place in enumerate(places):
        expected[place] = A[n]
    at.build(func, target="llvm")(A, np.arange(16) // 2, out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ('y = T.clamp_index(T.cast(B[vi], "int64"), 16)', "B[y] = A[vi]", "B is stored to"),
        ("y = A[vi]", "B[y] = A[vi]", "an index is int64, found float32"),
        ("B[y] = A[vi]", "y = vi", "'y' is not defined"),
    ],
)
def test_names_in_the_indices_of_stores_read_nothing_stored(
    first: str, second: str, words: str
) -> None:
    with pytest.raises(ScriptError, match=words):
        parse(BLOCK.format(kind="sequential", first=first, second=second))
