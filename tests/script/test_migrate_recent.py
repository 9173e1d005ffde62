"""Spellings of recent TVMScript are those of before: each is rewritten and computes the same."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched.errors import ScriptError
from autosched.script import parse
from autosched.script.migrate import migrate
from autosched.tir import interp
from autosched.tir.routine import Routine
from autosched.tir.run_routine import run_routine

HEAD = "from tvm.script import s_tir as S\nfrom tvm.script import tirx as T\n\n"


def computed(text: str, *arrays: np.ndarray, is_routine: bool = False) -> np.ndarray:
    """The last array after the one function of a text, interpreted and compiled alike."""
    found = migrate(text)
    assert not found.refused, found.report()
    (function,) = found.functions
    assert (function.is_routine or "T.opaque" in function.text) == is_routine, found.report()
    program = found.program()
    assert parse(program.script()).same(program)
    ours, built = ([a.copy() for a in arrays] for _ in range(2))
    if isinstance(program, Routine):
        run_routine(program, ours)
    else:
        interp.run(program, ours)
    at.build(program, target="llvm")(*built)
    np.testing.assert_array_equal(ours[-1], built[-1])
    return built[-1]


A = np.arange(24, dtype=np.float32).reshape(4, 6)


def test_namespaces_and_names_of_types() -> None:
    text = (
        HEAD
        + """
@S.function
def main(A: T.Tensor((4, 6), "float32"), B: T.Tensor((4, 6), "float32")):
    with S.sblock("root"):
        C = S.sblock_alloc_buffer((4, 6))
        for i, j in T.grid(4, 6):
            with S.sblock("C"):
                vi, vj = S.axis.remap("SS", [i, j])
                S.reads(A[vi, vj])
                S.writes(C[vi, vj])
                S.sblock_attr({"note": 1})
                C[vi, vj] = A[vi, vj] * 2.0
        for i, j in T.grid(4, 6):
            with S.sblock("B"):
                vi, vj = S.axis.remap("SS", [i, j])
                B[vi, vj] = C[vi, vj] + tvm.tirx.float32(1)
"""
    )
    np.testing.assert_array_equal(computed(text, A, np.zeros_like(A)), A * 2 + 1)


def test_views_by_their_shape_and_memory_of_a_scope() -> None:
    text = (
        HEAD
        + """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((4, 6), "float32"), B: T.Buffer((24,), "float32")):
    A_1 = A.view(24)
    A_2 = A_1.view(6, 4)
    T.attr(0, "pragma_note", 16)
    for i, j in T.grid(6, 4):
        kept = T.alloc_local((1,), elem_offset=T.int64(0))
        kept[0] = A_2[i, j]
        B[i * 4 + j] = kept[0] + A_1[i * 4 + j]
"""
    )
    np.testing.assert_array_equal(computed(text, A, np.zeros(24, "float32")), 2 * A.ravel())


def test_a_name_without_a_value_may_change() -> None:
    text = (
        HEAD
        + """
@T.prim_func
def main(A: T.Buffer((8,), "int64"), B: T.Buffer((5,), "int64"), C: T.Buffer((5,), "int64")):
    for i in T.serial(5):
        low: T.int64
        high: T.int64
        low = T.int64(0)
        high = T.int64(8)
        while low < high:
            middle = T.bind((low + high) // T.int64(2))
            if A[middle] < B[i]:
                low = middle + T.int64(1)
            else:
                high = middle
        C[i] = low
"""
    )
    a, b = np.array([1, 3, 3, 4, 6, 8, 9, 9]), np.array([0, 3, 5, 9, 10])
    result = computed(text, a, b, np.zeros(5, "int64"), is_routine=True)
    np.testing.assert_array_equal(result, np.searchsorted(a, b))


COUNTED = """
@T.prim_func
def main(A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64")):
    {first}
    while i < 8:
        kept: T.int64 = A[i]
        B[i] = kept + i
        {step}
"""


@pytest.mark.parametrize("first", ["i: T.int64\n    i = T.int64(0)", "i: T.int64 = T.int64(0)"])
@pytest.mark.parametrize("step", ["i = i + T.int64(1)", "i += T.int64(1)"])
def test_a_name_that_is_assigned_again_is_one_variable(first: str, step: str) -> None:
    """Declared with a value or without; one that is assigned once stays a name for its value."""
    a = np.arange(8) ** 2
    text = HEAD + COUNTED.format(first=first, step=step)
    result = computed(text, a, np.zeros(8, "int64"), is_routine=True)
    np.testing.assert_array_equal(result, a + np.arange(8))
    assert "kept[()]" not in migrate(text).functions[0].text


@pytest.mark.parametrize("first", ["i = 0", "i: T.int64 = 0"])
def test_a_name_for_one_value_counts_no_iterations(first: str) -> None:
    (found,) = migrate(HEAD + COUNTED.format(first=first, step="i: T.int64 = i + 1")).functions
    assert "i is a name for one value, which the loop does not change" in str(found.error)


def test_sizes_that_stand_before_the_function() -> None:
    text = (
        HEAD
        + """
n = T.dynamic("n", "int32")

@S.prim_func
def main(A: T.Buffer((n, 6), "float32"), B: T.Buffer((n, 6), "float32")):
    for i, j in T.grid(n, 6):
        with S.sblock("B"):
            vi, vj = S.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + 1.0
"""
    )
    np.testing.assert_array_equal(computed(text, A, np.zeros_like(A)), A + 1)


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        ("A.view(25)", "a view of 25 elements from 0, of 24"),
        ('A.view("int32")', "expected"),
        ("A.view(24, layout=L)", "a view of a dense buffer"),
        ("A.view()", "a view of a dense buffer"),
        ("N.view(24)", "a view of a dense buffer"),
    ],
)
def test_views_that_are_refused(view: str, reason: str) -> None:
    text = f"""{HEAD}N = 3

@T.prim_func
def main(A: T.Buffer((4, 6), "float32"), B: T.Buffer((24,), "float32")):
    seen = {view}
    for i in T.serial(24):
        B[i] = seen[i]
"""
    (function,) = migrate(text).functions
    assert isinstance(function.error, ScriptError)
    assert reason in str(function.error)
