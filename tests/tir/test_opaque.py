"""Opaque blocks: printed, read, verified, interpreted, compiled; what stops and refuses them."""

from __future__ import annotations

import copy
import itertools
import pickle
from pathlib import Path

import numpy as np
import pytest

import autosched as at
from autosched import passes
from autosched.codegen.c import source_of
from autosched.errors import ArgumentError, CodegenError, ScriptError, VerifyError
from autosched.schedule import Schedule
from autosched.script import parse, parse_func, prim_func
from autosched.script import tir as T
from autosched.tir.canonical import workload_key
from autosched.tir.interp import run
from autosched.tir.nodes import PrimFunc
from autosched.tir.opaque import opaque_blocks, pieces
from autosched.tir.verify import verify
from autosched.tir.whole import reference

ROWS = """
@T.prim_func
def main(
    x: T.Buffer((8, 6)), first: T.Buffer((9,), "int64"), y: T.Buffer((8,)), z: T.Buffer((8,))
):
    s = T.alloc_buffer((8, 6))
    t = T.alloc_buffer((8,))
    for i, k in T.grid(8, 6):
        with T.block("s"):
            vi, vk = T.axis.remap("SS", [i, k])
            s[vi, vk] = x[vi, vk] * 2.0
    with T.opaque("rows"):
        T.reads(s, first)
        T.writes(t)
        T.block_attr({"note": "ragged"})
        for i in range(8):
            for j in T.serial(first[i], first[i + 1]):
                t[i] += s[i, j]
    for i in T.parallel(8):
        with T.block("y"):
            vi = T.axis.spatial(8, i)
            y[vi] = t[vi] + 1.0
    for i in range(8):
        with T.block("z"):
            vi = T.axis.spatial(8, i)
            z[vi] = y[vi] * t[vi]
"""
FIRST = np.array([0, 2, 3, 3, 5, 6, 6, 1, 3])


def arrays(seed: int = 0) -> list[np.ndarray]:
    x = np.random.default_rng(seed).random((8, 6), np.float32)
    return [x, FIRST.copy(), np.full(8, np.nan, np.float32), np.full(8, np.nan, np.float32)]


def expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    bounds = itertools.pairwise(FIRST)
    t = np.array([2 * x[i, a:b].sum() for i, (a, b) in enumerate(bounds)], np.float32)
    return t + 1, (t + 1) * t


def test_text_reads_back() -> None:
    func = parse_func(ROWS)
    assert parse_func(func.script()).same(func)
    assert not parse_func(ROWS.replace("t[i] +=", "t[i] =")).same(func)
    assert not parse_func(ROWS.replace("ragged", "other")).same(func)
    lowered = at.lower(func)
    assert parse_func(lowered.script()).same(lowered)
    assert at.lower(lowered).same(lowered)
    assert copy.deepcopy(func).same(func)
    assert pickle.loads(pickle.dumps(func)).same(func)


def test_keys_tell_what_is_computed_and_no_names() -> None:
    func = parse_func(ROWS)
    renamed = parse_func(ROWS.replace("first", "starts").replace('"rows"', '"sums"'))
    assert workload_key(renamed) == workload_key(func)
    assert workload_key(parse_func(ROWS.replace("+= s", "+= 2.0 * s"))) != workload_key(func)
    assert workload_key(parse_func(ROWS.replace("T.reads(s, first)", "T.reads(first, s)"))) != (
        workload_key(func)
    )


@pytest.mark.parametrize("how", ["interpreter", "whole", "code", "lowered"])
def test_it_runs_between_the_nests(how: str) -> None:
    func, given = parse_func(ROWS), arrays()
    if how == "interpreter":
        run(func, given)
    elif how == "whole":
        reference(func, given)
    else:
        at.build(at.lower(func) if how == "lowered" else func, target="llvm")(*given)
    for found, wanted in zip(given[2:], expected(given[0]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_its_region_is_bounded_when_it_runs(tmp_path: Path) -> None:
    func, given = parse_func(ROWS), arrays()
    given[1][1] = 10
    message = r"s\[i, j\] is out of bounds: index 1 is 6, extent 6"
    with pytest.raises(VerifyError, match=message):
        run(func, given)
    built = at.build(func, target="llvm")
    with pytest.raises(ArgumentError, match=f"main stopped: {message}"):
        built(*given)
    given[1][1] = 2
    built(*given)  # what stopped one call does not stop the next
    np.testing.assert_allclose(given[2], expected(given[0])[0], rtol=1e-5)
    assert "EDOM" in built.export(tmp_path / "f").header.read_text()


TWICE = """
@T.prim_func
def main(p: T.Buffer((4,), "int64"), q: T.Buffer((4,), "int64"), y: T.Buffer((4,), "int64")):
    t = T.alloc_buffer((4,), "int64")
    with T.opaque("first"):
        T.reads(p)
        T.writes(t)
        for i in range(4):
            t[p[i]] = t[p[i]] + i + 1
    with T.opaque("second"):
        T.reads(q, t, y)
        T.writes(y, t)
        for i in range(4):
            y[q[i]] += t[i]
            t[i] = y[i]
    for i in range(4):
        with T.block("end"):
            vi = T.axis.spatial(4, i)
            T.reads(t[vi])
            T.writes(p[vi])
            p[vi] = t[vi] % 4
"""


def test_what_is_only_written_starts_as_zero_and_the_rest_is_changed_in_place() -> None:
    func = parse_func(TWICE)
    for call in (lambda *a: run(func, list(a)), at.build(func, target="llvm")):
        p, q, y = np.array([1, 1, 0, 3]), np.array([0, 0, 2, 1]), np.array([10, 20, 30, 40])
        for _ in range(2):
            call(p, q, y)
        p2, y2 = np.array([1, 1, 0, 3]), np.array([10, 20, 30, 40])
        for _ in range(2):
            t = np.zeros(4, int)
            for i in range(4):
                t[p2[i]] += i + 1
            for i in range(4):
                y2[q[i]] += t[i]
                t[i] = y2[i]
            p2 = t % 4
        assert (y == y2).all()
        assert (p == p2).all()


CLAIMS = """
@T.prim_func
def main(x: T.Buffer((8,)), y: T.Buffer((8,))):
    with T.opaque("first"):
        T.reads(x)
        T.writes(y)
        T.block_attr({"sets_all": True})
        y[0] = x[0]
"""


def test_no_annotation_spares_what_it_writes_the_zeros() -> None:
    func = parse_func(CLAIMS)
    assert parse_func(func.script()).same(func)
    schedule = Schedule(parse_func(CLAIMS.replace('T.block_attr({"sets_all": True})', "pass")))
    schedule.annotate("first", "sets_all", True)
    for f in (func, schedule.func):
        for call in (lambda *a, f=f: run(f, list(a)), at.build(f, target="llvm")):
            y = np.full(8, np.nan, np.float32)
            call(np.ones(8, np.float32), y)
            np.testing.assert_array_equal(y, [1, *[0] * 7])


def test_each_routine_has_messages_of_its_own() -> None:
    built = at.build(parse_func(TWICE), target="llvm")
    good, y = np.arange(4), np.zeros(4, np.int64)
    with pytest.raises(ArgumentError, match=r"t\[p\[i\]\] is out of bounds: index 0 is -1"):
        built(good - 1, good, y)
    with pytest.raises(ArgumentError, match=r"y\[q\[i\]\] is out of bounds: index 0 is 4"):
        built(good.copy(), good + 1, y)


@prim_func
def in_source(x: T.Buffer((4,)), y: T.Buffer((4,))):  # type: ignore[no-untyped-def,valid-type]
    with T.opaque("reversed"):
        T.reads(x)
        T.writes(y)
        for i in range(4):
            y[3 - i] = x[i]


def test_functions_of_a_source_file_have_opaque_blocks() -> None:
    x, y = np.arange(4, dtype=np.float32), np.empty(4, np.float32)
    at.build(in_source, target="llvm")(x, y)
    assert (y == x[::-1]).all()


BAD = [
    ("T.reads(s, first)", "T.reads(s)", VerifyError, "first is used outside"),
    ("T.writes(t)", "T.writes()", ScriptError, "lists the buffers that it writes"),
    ("T.writes(t)", "T.reads(t)", ScriptError, "T.reads stands twice"),
    ("T.reads(s, first)", "T.reads(s[0, 0], first)", ScriptError, "expected the name of a buffer"),
    ('T.opaque("rows")', "T.opaque()", ScriptError, "name"),
    ('T.opaque("rows")', 'T.opaque("y")', VerifyError, "2 blocks are named 'y'"),
    ("t[i] += s[i, j]", "s[i, j] += t[i]", VerifyError, "stores to s, which T.writes does not"),
    ("+= s[i, j]", "+= s[i]", ScriptError, "2 dimensions"),
    ("+= s[i, j]", "+= 1.0", VerifyError, "does not use s, which it lists"),
]


@pytest.mark.parametrize(("old", "new", "kind", "message"), BAD)
def test_what_is_no_opaque_block_says_why(
    old: str, new: str, kind: type[Exception], message: str
) -> None:
    assert old in ROWS
    with pytest.raises(kind, match=message):
        parse(ROWS.replace(old, new, 1))


def test_what_crosses_it_is_written_before() -> None:
    for old, new in (("s[vi, vk] = x", "y2[vi, vk] = x"),):
        text = ROWS.replace(old, new).replace(
            "    t = T.alloc", "    y2 = T.alloc_buffer((8, 6))\n    t = T.alloc"
        )
        with pytest.raises(VerifyError, match="'rows' reads s, which nothing before it writes"):
            parse(text)
    swapped = ROWS.replace("y[vi] = t[vi] + 1.0", "y[vi] = u[vi] + 1.0").replace(
        "    t = T.alloc", "    u = T.alloc_buffer((8,))\n    t = T.alloc"
    )
    with pytest.raises(VerifyError, match="reads u, which nothing"):
        parse(swapped)


def test_what_it_reads_is_written_in_full() -> None:
    part = ROWS.replace(
        "            s[vi, vk] = x", "            T.where(i < 7)\n            s[vi, vk] = x"
    )
    with pytest.raises(VerifyError, match="outputs"):
        parse(part)


def test_pieces_are_functions_of_what_they_access() -> None:
    func = parse_func(ROWS)
    first, block, last = pieces(func)
    assert isinstance(first, PrimFunc)
    assert isinstance(last, PrimFunc)
    assert [b.name for b in first.params] == ["x", "s"]
    assert [b.name for b in last.params] == ["y", "z", "t"]
    assert opaque_blocks(func) == [block]
    verify(func)


def test_passes_leave_it_where_it_stands() -> None:
    mod = at.IRModule.of(parse_func(ROWS))
    for one in (passes.simplify, passes.inline, passes.dead_code, passes.lower):
        changed = one(mod).main
        given = arrays(4)
        run(changed, given)
        np.testing.assert_allclose(given[3], expected(given[0])[1], rtol=1e-5)
        assert len(opaque_blocks(changed)) == 1
    dead = ROWS.replace("T.writes(t)", "T.writes(t)").replace("y[vi] = t[vi]", "y[vi] = x[vi, 0]")
    dead = dead.replace("z[vi] = y[vi] * t[vi]", "z[vi] = y[vi]")
    assert not opaque_blocks(passes.dead_code(at.IRModule.of(parse_func(dead))).main)


def test_what_has_no_form_of_it_says_so() -> None:
    func = parse_func(ROWS)
    with pytest.raises(CodegenError, match="C source has no form of it"):
        source_of(func)
    with pytest.raises(CodegenError, match=r"opaque block rows.*opencl code has no form of it"):
        at.build(func, target="opencl", compile_only=True)
