"""Names around a function of TVMScript: numbers, dtypes and tuples, and functions of T."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched.script.migrate import migrate
from autosched.tir import interp

MAIN = "@T.prim_func\ndef main(A: T.Buffer({0}, {1}), B: T.Buffer({0}, {1})):\n"
COPY = """    for i, j in T.grid({0}):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
"""
KNOWN = {
    "a tuple": ("s = (4, 6)\nd = 'float16'\n", "s", "d", "*s"),
    "elements of a tuple": ("s = [4, 6]\nd = 'float16'\n", "(s[0], s[-1])", "d", "s[0], s[1]"),
    "several of them": ("s, d = (4, 6), 'float16'\n", "s", "d", "s[0], 2 * len(s) + s[1] - 4"),
    "a tuple that is taken apart": ("s = (4, 6)\nn, m = s\nd = 'float16'\n", "s", "d", "n, m"),
    "tuples in one another": ("n = (4,)\ns = (n[0], 6)\nd = 'float16'\n", "(*n, 6)", "d", "*s"),
    "numbers that change": ("n = m = 2\nn += 2\nm *= 3\nd = 'float16'\n", "(n, m)", "d", "n, m"),
    "exchanged": ("n, m = 6, 4\nn, m = m, n\nd = 'float16'\n", "(n, m)", "d", "n, m"),
    "with a type": ("n: int = 4\nd: str = 'float16'\n", "(n, 6)", "d", "n, 6"),
    "in a with": ("with open(x) as f:\n    n = 4\nd = 'float16'\n", "(n, 6)", "d", "n, 6"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_names_around_a_function_are_known(name: str) -> None:
    before, shape, dtype, extents = KNOWN[name]
    found = migrate(before + MAIN.format(shape, dtype) + COPY.format(extents))
    assert not found.refused, found.report()
    func = found.program()
    assert [(b.shape, b.dtype) for b in func.params] == [((4, 6), "float16")] * 2  # type: ignore[union-attr]
    given = np.arange(24, dtype=np.float16).reshape(4, 6)
    result = np.zeros_like(given)
    interp.run(func, [given, result])  # type: ignore[arg-type]
    np.testing.assert_array_equal(result, given)


@pytest.mark.parametrize(
    "before",
    [
        "n = 4\nif wide:\n    n = 8\n",
        "n = 4\nif wide:\n    pass\nelse:\n    n += 4\n",
        "n = 4\nfor k in range(2):\n    n += 1\n",
        "n = 4\nfor n in (8, 16):\n    pass\n",
        "n = 4\nwhile n < 8:\n    n *= 2\n",
        "n = 4\ntry:\n    n = 8\nexcept ValueError:\n    pass\n",
        "n = 4\ntry:\n    pass\nexcept ValueError as n:\n    pass\n",
        "n = 4\nwith make() as n:\n    pass\n",
        "n = 4\ndel n\n",
        "n = 4\nprint(n := 8)\n",
        "n = 4\nn: int = size()\n",
        "n = 4\nn, m = sizes()\n",
        "n = 4\n[*n, m] = 8, 9\n",
        "n = 4\nn += size()\n",
        "n = 4\nclass n:\n    pass\n",
        "n = (4, 5)\nn += (6,)\n",
    ],
)
def test_names_that_may_have_changed_are_not_known(before: str) -> None:
    (found,) = migrate(before + MAIN.format("(n, 4)", "'float32'") + COPY.format("n, 4")).functions
    assert "'n' is not defined here; give it to migrate(constants=…)" in str(found.error)


def test_a_loop_around_a_function_changes_names() -> None:
    inner = "".join(f"    {s}\n" for s in (MAIN + COPY).format("(n, 4)", "'int8'").splitlines())
    inner = inner.replace("T.grid((n, 4))", "T.grid(n, 4)")
    for before, known in (
        ("n = 4\nfor n in (8, 16):\n", False),
        ("n = 4\nfor k in (8, 16):\n", True),
        ("n = 4\nif wide:\n    n = 8\n", True),
        ("n = 4\nwhile True:\n", False),
    ):
        text = before + inner + ("    n = 5\n" if "while" in before else "")
        (found,) = migrate(text).functions
        assert (found.error is None) == known, f"{text}\n{found.error}"


def test_tuples_are_given_from_outside() -> None:
    text = MAIN.format("s", "d") + COPY.format("*s")
    found = migrate(text, constants={"s": (4, 6), "d": "int32"})
    assert "T.Buffer((4, 6), 'int32')" in found.text


def test_a_name_of_the_function_is_no_tuple_around_it() -> None:
    text = "i = (1, 2)\n" + MAIN.format("(4, 6)", "'int32'") + COPY.format("4, 6")
    assert not migrate(text).refused


@pytest.mark.parametrize("call", ["T.assume({})", "T.evaluate(T.assume({}))"])
def test_assumptions_are_left_out(call: str) -> None:
    said = call.format("A[vi] >= T.float32(0)")
    text = f"""
@T.prim_func
def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
    for i in T.serial(16):
        {call.format("i < 14")}
    for i in T.serial(16):
        with T.block("B"):
            vi = T.axis.S(16, i)
            {said}
            B[vi] = A[vi] + T.float32(1)
"""
    (found,) = migrate(text).functions
    assert found.error is None
    assert not found.is_routine
    assert [n.line for n in found.notes] == [5, 9]
    given, result = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    interp.run(migrate(text).program(), [given, result])  # type: ignore[arg-type]
    np.testing.assert_array_equal(result, given + 1)


def test_functions_of_values() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((16,), "{0}"), B: T.Buffer((16,), "{0}")):
    for i in T.serial(16):
        with T.block("B"):
            vi = T.axis.S(16, i)
            if vi < 16:
                B[vi] = T.{1}
"""
    floats = np.linspace(-3, 3, 16, dtype=np.float32)
    ints = (np.arange(16) * 9 - 40).astype(np.int32)
    bits = ints.view(np.uint32)
    for call, given, expected in (
        ("copysign(A[vi], -A[vi])", floats, np.copysign(floats, -floats)),
        ("nextafter(A[vi], A[vi] * T.float32(2))", floats, np.nextafter(floats, floats * 2)),
        ("ldexp(A[vi], i - 8)", floats, np.ldexp(floats, np.arange(16) - 8)),
        ("if_then_else(i < 8, A[vi], T.nan('float32'))", floats,
         np.where(np.arange(16) < 8, floats, np.nan)),
        ("popcount(A[vi])", ints, [bin(n).count("1") for n in bits]),
        ("clz(A[vi])", ints, [32 - int(n).bit_length() for n in bits]),
    ):  # fmt: skip
        found = migrate(text.format(given.dtype, call))
        assert found.report() == "main (line 3): rewritten\n", found.report()
        func, ours, built = found.program(), np.zeros_like(given), np.zeros_like(given)
        interp.run(func, [given, ours])  # type: ignore[arg-type]
        at.build(func, target="llvm")(given, built)
        for result in (ours, built):
            np.testing.assert_array_equal(result, np.asarray(expected, given.dtype), err_msg=call)
