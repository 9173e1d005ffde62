"""Functions of which some nests are analysable and some run as they are written."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import autosched as at
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.script.migrate import migrate
from autosched.tir import interp

HEAD = """
from tvm.script import tir as T

@T.prim_func
def callee(X: T.Buffer((8,), "float32"), Y: T.Buffer((8,), "float32")):
    for i in range(8):
        Y[i] = X[i] + 1.0

@T.prim_func
def main(a: T.handle, p: T.handle, b: T.handle):
    A = T.match_buffer(a, (8, 8), "float32")
    P = T.match_buffer(p, (9,), "int32")
    B = T.match_buffer(b, (8,), "float32")
    {declared}
"""
FIRST = """
    for i, j in T.grid(8, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * 2.0
"""
LAST = """
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = S[vi] + C[vi, 0]
"""
CSR = """
    for i in range(8):
        with T.block("rows"):
            vi = T.axis.spatial(8, i)
            T.reads(C[0, 0:8], P[vi : vi + 2])
            T.writes(S[vi])
            S[vi] = 0.0
            for k in range(P[vi], P[vi + 1]):
                S[vi] = S[vi] + C[0, k]
"""
A = np.arange(64, dtype=np.float32).reshape(8, 8)
P = np.array([0, 2, 2, 3, 8, 8, 8, 8, 8], np.int32)
SUMS = np.array([(A[0, P[i] : P[i + 1]] * 2).sum() for i in range(8)], np.float32)
C_AND_S = "C = T.alloc_buffer((8, 8)); S = T.alloc_buffer((8,))"
CASES: dict[str, tuple[str, str, list[str], NDArray[np.float32]]] = {
    "one nest between two": (C_AND_S, FIRST + CSR + LAST, ["rows"], SUMS + A[:, 0] * 2),
    "the first nest": (
        C_AND_S,
        """
    for i in range(8):
        S[i] = 0.0
        for k in range(P[i], P[i + 1]):
            S[i] = S[i] + A[0, k] * 2.0
"""
        + FIRST
        + LAST,
        ["opaque"],
        SUMS + A[:, 0] * 2,
    ),
    "elements of a parameter that stay": (
        C_AND_S,
        FIRST
        + """
    for i in range(P[0], P[1]):
        B[i] = C[i, 1]
    for i in range(P[2] + 1, P[3]):
        B[i] = 5.0
    for i in range(8):
        with T.block("S"):
            vi = T.axis.spatial(8, i)
            S[vi] = C[vi, 0]
""",
        ["opaque", "opaque_1"],
        np.where(np.arange(8) < 2, A[:, 1] * 2, -1).astype(np.float32),
    ),
    "a call of another function": (
        "C = T.alloc_buffer((8, 8)); S = T.alloc_buffer((8,)); R = T.alloc_buffer((8,))",
        FIRST
        + """
    for i in range(8):
        R[i] = C[i, 2]
    T.evaluate(T.call_extern("int32", "callee", R.data, S.data))
"""
        + LAST,
        ["opaque"],
        A[:, 2] * 2 + 1 + A[:, 0] * 2,
    ),
    "in the root block": (
        "",
        "    with T.block('root'):\n"
        + "".join(
            f"    {line}\n"
            for line in (
                "    C = T.alloc_buffer((8, 8))\n    S = T.alloc_buffer((8,))" + FIRST + CSR + LAST
            ).splitlines()
        ),
        ["rows"],
        SUMS + A[:, 0] * 2,
    ),
    "a while of a scalar": (
        C_AND_S,
        FIRST
        + """
    for i in range(8):
        S[i] = A[0, i]
        while S[i] >= 2.0:
            S[i] = S[i] - 2.0
"""
        + LAST,
        ["opaque"],
        A[0] % 2 + A[:, 0] * 2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_only_the_nest_is_opaque(name: str) -> None:
    declared, body, opaque, expected = CASES[name]
    found = migrate(HEAD.format(declared=declared) + body)
    assert not found.refused, found.report()
    function = found.functions[1]
    assert not function.is_routine, found.report()
    func = parse_func(function.text)
    assert parse_func(func.script()).same(func)
    names = [line.split('"')[1] for line in func.script().splitlines() if "T.opaque" in line]
    assert names == opaque
    assert sum("an opaque block, which nothing schedules" in str(n) for n in function.notes) == len(
        opaque
    )
    sch = Schedule(func)  # what stands beside is scheduled
    sch.vectorize(sch.get_loops("C")[-1])
    for program in (func, sch.func):
        ours, built = np.full(8, -1, np.float32), np.full(8, -1, np.float32)
        interp.run(program, [A, P, ours])
        at.build(program, target="llvm")(A, P, built)
        np.testing.assert_allclose(ours, expected)
        np.testing.assert_allclose(built, expected)


@pytest.mark.parametrize(
    ("declared", "body"),
    [
        # All of it.
        ("", "    for i in range(P[0], P[1]):\n        B[i] = A[0, i]\n"),
        # A name that the nest uses is no buffer of the function.
        (
            C_AND_S,
            FIRST
            + "    x = P[1] - P[0]\n    for i in range(P[0], P[1]):\n        B[i] = C[0, x]\n"
            + LAST.replace("S[vi]", "0.0"),
        ),
    ],
)
def test_else_the_function_is_a_routine(declared: str, body: str) -> None:
    found = migrate(HEAD.format(declared=declared) + body)
    assert found.functions[1].error is None, found.report()
    assert found.functions[1].is_routine
