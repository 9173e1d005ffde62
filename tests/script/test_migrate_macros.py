"""Macros of TVMScript: whose names their statements mean, and where writing them out ends."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import autosched as at
from autosched.errors import AutoschedError
from autosched.script.migrate import migrate

MAIN = """
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
"""
A = np.arange(16, dtype=np.float32) - 5
AT = np.arange(16)
LOOP = "    for i in range(16):\n        "
STORED = {
    "a parameter that is assigned": (
        "x = x + 1; B[x % 16] = A[x % 16]",
        LOOP + "m(i); B[i] = 2.0",
        np.where(AT == 0, A[0], 2),
    ),
    "an expression in its place": (
        "x = x * 2; B[x % 16] = A[x % 16]",
        LOOP + "m(i + 1)",
        np.where(AT % 2, 0, A),
    ),
    "a parameter with a type": (
        "y: T.int32 = x + 1; x = y; B[x % 16] = A[x % 16]",
        LOOP + "m(i)",
        A,
    ),
    "a parameter that is replaced": ("x: T.int32 = 3; B[x] = A[x]", LOOP + "m(i)", A * (AT == 3)),
    "a loop over the name of a parameter": (
        "\n    for x in range(4):\n        B[x] = A[x]",
        LOOP + "m(i); B[i] = A[i] + 1.0",
        np.where(AT < 4, A, A + 1),
    ),
    "a loop over it, where it is an expression": (
        "\n    for x in range(4):\n        B[x] = A[x]",
        "    m(16 - 1)",
        np.where(AT < 4, A, 0),
    ),
    "an axis of its name": (
        '\n    for j in range(4):\n        with T.block("m"):\n'
        "            x = T.axis.spatial(4, j)\n            B[x] = A[x]",
        LOOP + "m(i); B[i] = A[i]",
        A,
    ),
}
NAMES = {
    "a number of the module": ("N = 4\n", "B[x] = A[N]", "for N in range(16):\n        m(N)", A[4]),
    "a number that changes later": (
        "N = 4\n",
        "B[x] = A[N]\nN = 8",
        "for i in range(16):\n        m(i)",
        A[4],
    ),
    "a number by default": (
        "N = 3\n",
        "B[x] = A[N]",
        "for N in range(16):\n        m(N)",
        A[3],
    ),
    "a dtype": (
        'd = "int32"\n',
        'B[x] = T.Cast("float32", T.Cast(d, A[x] / 2.0))',
        "for d in range(16):\n        m(d)",
        np.trunc(A / 2),
    ),
    "two macros of one name": (
        "def other():\n    @T.macro\n    def m(x):\n        B[x] = 9.0\n",
        "B[x] = A[x]\ndef another():\n    @T.macro\n    def m(x):\n        B[x] = 8.0",
        "for i in range(16):\n        m(i)",
        A,
    ),
    "a default of the module": (
        "N = 4\n",
        "n(x)\n@T.macro\ndef n(x, by=N + 1):\n    B[x] = A[by]\n",
        "for N in range(16):\n        m(N)",
        A[5],
    ),
}


def _is(text: str, expected: NDArray[np.float32], **constants: int) -> None:
    found = migrate("from tvm.script import tir as T\n" + text, constants)
    assert not found.refused, found.report()
    built = np.zeros(16, np.float32)
    at.build(found.program(), target="llvm")(A, built)
    np.testing.assert_array_equal(built, expected)


def _error(text: str, **constants: int) -> AutoschedError:
    (function,) = migrate("from tvm.script import tir as T\n" + text, constants).functions
    assert function.error is not None, function.text
    return function.error


@pytest.mark.parametrize("name", STORED)
def test_a_parameter_that_changes_leaves_the_argument_alone(name: str) -> None:
    body, calls, expected = STORED[name]
    _is(f"@T.macro\ndef m(x):\n    {body}\n{MAIN}{calls}\n", expected)


@pytest.mark.parametrize("name", NAMES)
def test_names_are_those_of_the_definition(name: str) -> None:
    before, body, calls, expected = NAMES[name]
    text = f"{before}@T.macro\ndef m(x):\n    {body}\n{MAIN}    {calls}\n"
    _is(text, np.broadcast_to(expected, 16))


def test_names_are_those_of_the_call_if_the_macro_says_so() -> None:
    text = "@T.macro(hygienic=False)\ndef m(x):\n    B[x] = A[N]\n" + MAIN
    _is("N = 4\n" + text + "    for N in range(16):\n        m(N)\n", A)
    outer = "@T.macro\ndef outer():\n    for N in range(16):\n        m(N)\n"
    calls = "    for N in range(16):\n        B[N] = 2.0\n    outer()\n"
    _is("N = 4\n" + outer + text + calls, A)


@pytest.mark.parametrize("later", ["N = 8", "N = compute()"])
def test_an_inline_function_that_reads_a_number_that_changes_is_refused(later: str) -> None:
    text = "N = 4\n@T.inline\ndef m(x):\n    B[x] = A[N]\n"
    calls = MAIN + "    for N in range(16):\n        m(N)\n"
    _is(text + calls, np.full(16, A[4]))
    assert "'N', which changes" in str(_error(f"{text}{later}\n{calls}"))


def test_names_may_be_given_as_constants() -> None:
    text = (
        "@T.macro\ndef m(x):\n    B[x] = A[N]\n" + MAIN + "    for N in range(16):\n        m(N)\n"
    )
    _is(text, np.full(16, A[7]), N=7)


def test_a_name_of_the_caller_alone_is_noted() -> None:
    text = "@T.macro\ndef m(x):\n    B[x] = A[x]\n" + MAIN + LOOP + "m(i)\n"
    (function,) = migrate("from tvm.script import tir as T\n" + text).functions
    assert [str(x) for x in function.notes] == [
        f"line 9, column 9: the macro 'm' reads {x!r} of the function that calls it, as with"
        " hygienic=False"
        for x in "AB"
    ]


@pytest.mark.parametrize("made", ["N = compute()", "from sizes import N", "N = {4}"])
def test_a_name_that_is_two_things_is_refused(made: str) -> None:
    text = f"{made}\n@T.macro\ndef m(x):\n    B[x] = A[N]\n{MAIN}    for N in range(16):\n"
    error = _error(text + "        m(N)\n")
    assert "line 10, column 9: the macro 'm', line 4, reads 'N', which is defined" in str(error)


def test_names_that_one_macro_makes_are_not_those_that_another_reads() -> None:
    macros = "@T.macro\ndef n(x):\n    B[x] = t\n@T.macro\ndef m(x):\n    t = A[x]\n    n(x)\n"
    assert "'t' is not defined" in str(_error(macros + MAIN + LOOP + "m(i)\n"))


def test_names_around_a_function_are_the_last_that_are_known() -> None:
    body = "    for i in range(16):\n        B[i] = A[N]\n".replace("\n", "\n    ")
    inner = MAIN.replace("\n", "\n    ") + body
    for before in ("def make(N):", "def make():\n    from sizes import N"):
        assert "N" in str(_error(f"N = 4\n{before}{inner}\n"))
    _is(f"N = 4\ndef make(N=5):{inner}\n", np.full(16, A[5]))


@pytest.mark.parametrize(
    ("macros", "words"),
    [
        (["m(x+x+x+x); B[x % 16] = A[x % 16]"], "the macro 'm', line 3, calls itself"),
        (["m1(x); m1(x)", "m(x+x+x+x); m(x)"], "the macro 'm', line 3, calls itself"),
        ([f"m{n}({'+'.join(['x'] * 8)})" for n in range(1, 8)] + ["B[x] = A[x]"], "too long"),
        ([f"m{n}(x); m{n}(x)" for n in range(1, 9)] + ["B[x] = A[x]"], "stands in 8 others"),
        ([*(f"{f'm{n}(x);' * 30}" for n in range(1, 5)), "B[x] = A[x]"], "too long"),
    ],
)
def test_writing_out_ends(macros: list[str], words: str) -> None:
    texts = [f"@T.macro\ndef m{n or ''}(x):\n    {s}\n" for n, s in enumerate(macros)]
    assert words in str(_error("".join(texts) + MAIN + LOOP + "m(i)\n"))
