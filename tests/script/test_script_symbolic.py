"""Symbolic sizes in script text."""

from __future__ import annotations

import pytest

from autosched.errors import ScriptError, VerifyError
from autosched.lowering.lower import lower
from autosched.schedule import Schedule
from autosched.script import parse, prim_func
from autosched.script import tir as T
from autosched.tir.equal import first_difference
from autosched.tir.nodes import PrimFunc

TEXT = """\
@T.prim_func
def scale(a: T.handle, b: T.handle):
    {sizes}
    A = T.match_buffer(a, {shape}, "float32")
    B = T.match_buffer(b, {out}, "float32")
    for i, j in T.grid({extent}, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, {index}] * T.cast(n, "float32")
"""
GOOD = {
    "sizes": "n = T.int64()",
    "shape": "(n, 16)",
    "out": "(n, 16)",
    "extent": "n",
    "index": "vj",
}


def text(**changes: str) -> str:
    return TEXT.format(**{**GOOD, **changes})


def checked(source: str) -> PrimFunc:
    func = parse(source)
    assert isinstance(func, PrimFunc)
    again = parse(func.script())
    assert isinstance(again, PrimFunc)
    assert first_difference(func, again) is None
    assert again.script() == func.script()
    return func


@prim_func
def decorated(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n,), "float32")
    for i in T.serial(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = A[n - 1 - vi]


def test_decorator() -> None:
    assert [v.name for v in decorated.sizes] == ["n"]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sizes": 'n = T.var("int64")'},
        {"sizes": "n, k = T.int64(), T.var()", "shape": "(n, k + 15)"},
        {"shape": "(n + 3, 2 * n + 14)", "index": "vj + n - 1"},
        {"shape": "(n, (n + 7) // 8 + 15)"},
        {"out": "(8 * n, 16)", "shape": "(8 * n, 16)", "extent": "n * 8"},
    ],
)
def test_round_trip(changes: dict[str, str]) -> None:
    checked(text(**changes))


def test_scheduled_and_lowered() -> None:
    sch = Schedule(checked(text()))
    i, j = sch.get_loops(sch.get_block("B"))
    outer, inner = sch.split(i, [4, None])
    sch.vectorize(j)
    cache = sch.cache_read(sch.get_block("B"), "A")
    sch.compute_at(cache, outer)
    sch.vectorize(sch.fuse(*sch.get_loops(cache)[1:]))
    sch.parallel(outer)
    checked(sch.func.script())
    checked(lower(sch.func).script())
    assert "i_0 * ((n + 3) // 4) + i_1 < n" in sch.func.script()
    assert inner is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": "n = T.int32()"}, "a symbolic size is T.int64.., found int32"),
        ({"shape": "(n - 2, 16)"}, "an extent of a shape is a constant integer from 1 up, or an"),
        ({"shape": "(n - n * n, 2)"}, "an extent of a shape is a constant integer from 1 up, or"),
        ({"extent": "T.min(n, 4)"}, "a loop's extent is a constant integer from 1 up, or an"),
        ({"sizes": "n = T.int64(4)"}, "T.int64 takes no more arguments"),
        ({"sizes": "n, n = T.int64(), T.int64()"}, "'n' is defined already"),
        ({"sizes": "n[0] = T.int64()"}, "expected a name for the size"),
        ({"sizes": "pass"}, "'n' is not defined"),
    ],
)
def test_errors(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ScriptError, match=message):
        parse(text(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shape": "(n - 1, 16)"}, "A has shape .n - 1, 16.; expected integers from 1 up"),
        ({"index": "vj + 1"}, r"not provably in \[0, 16\)"),
        ({"shape": "(n, n)"}, r"reads A\[vi, vj\].*not provably in \[0, n\)"),
        ({"extent": "n + 1"}, r"not provably in \[0, n\)"),
        ({"sizes": "n, k = T.int64(), T.int64()", "shape": "(n, k * k + 15)"}, "size k does not"),
        ({"extent": "(n + 1) // 2"}, "output B is written at 0..504 of dimension 0"),
    ],
)
def test_verified(changes: dict[str, str], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        parse(text(**changes))


def test_index_arithmetic_that_may_overflow() -> None:
    """A product of sizes that no array bounds may be beyond 64 bits."""
    source = """\
@T.prim_func
def f(a: T.handle, b: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n,), "bool")
    B = T.match_buffer(b, (m,), "bool")
    for i in T.serial(m):
        with T.block("B"):
            vi = T.axis.spatial(m, i)
            B[vi] = T.if_then_else(vi + n * m < 7, A[(vi + n * m) % 7 % n], B[vi])
"""
    with pytest.raises((VerifyError, ScriptError)):
        parse(source)


def test_race_over_all_sizes() -> None:
    """Iterations of a parallel loop that meet for some size are found."""
    source = text()
    loops = "for i in T.parallel(n):\n      for j in T.serial(16):"
    racing = source.replace("for i, j in T.grid(n, 16):", loops)
    axes = "vi = T.axis.spatial(n, i // 2)\n            vj = T.axis.spatial(16, j)"
    racing = racing.replace('vi, vj = T.axis.remap("SS", [i, j])', axes)
    with pytest.raises(VerifyError, match="may write the same element of B"):
        parse(racing)
