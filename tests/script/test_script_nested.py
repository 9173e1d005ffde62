"""Nests that run as they are written: opaque blocks in loops, blocks in blocks."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

import autosched as at
from autosched.errors import ArgumentError, ScheduleError, ScriptError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc
from autosched.tir.opaque import opaque_blocks, opaque_of

ROWS = """
@T.prim_func
def rows(first: T.Buffer((4,), "int64"), x: T.Buffer((9,)), y: T.Buffer((3,)), z: T.Buffer((3,))):
    d = T.alloc_buffer((9,))
    for i in T.serial(9):
        with T.block("d"):
            vi = T.axis.spatial(9, i)
            d[vi] = x[vi] * 2.0
    for i in T.serial(3):
        with T.block("zero"):
            vi = T.axis.spatial(3, i)
            y[vi] = 0.0
        with T.opaque("sums"):
            T.reads(first, d)
            T.writes(y)
            for j in T.serial(first[i], first[i + 1]):
                y[i] += d[j]
    for i in T.serial(3):
        with T.block("z"):
            vi = T.axis.spatial(3, i)
            z[vi] = y[vi] + 1.0
"""
TILES = """
@T.prim_func
def tiles(A: T.Buffer((8, 8)), B: T.Buffer((8, 8)), C: T.Buffer((8, 8))):
    for i0, j0, k0 in T.grid(2, 2, 2):
        with T.block("outer"):
            vi0, vj0, vk0 = T.axis.remap("SSR", [i0, j0, k0])
            T.reads(A[vi0 * 4 : vi0 * 4 + 4, vk0 * 4], B[0:8, 0:8])
            T.writes(C[vi0 * 4, vj0 * 4])
            T.block_attr({"tile": 4})
            with T.init():
                for i, j in T.grid(4, 4):
                    with T.block("init"):
                        vi = T.axis.spatial(4, i)
                        vj = T.axis.spatial(4, j)
                        C[vi0 * 4 + vi, vj0 * 4 + vj] = 0.0
            for i, j, k in T.grid(4, 4, 4):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.where(vi0 * 4 + vi < 7)
                    b = B[vk0 * 4 + vk, vj0 * 4 + vj]
                    C[vi0 * 4 + vi, vj0 * 4 + vj] += A[vi0 * 4 + vi, vk0 * 4 + vk] * b
"""


def check(func: PrimFunc, inputs: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    """What the interpreter and compiled code compute, and that the text comes back."""
    assert parse_func(func.script()).same(func)
    assert parse_func(func.script()).script() == func.script()
    for compiled in (False, True):
        found = [np.full(w.shape, 77, w.dtype) for w in wanted]
        if compiled:
            at.build(func)(*inputs, *found)
        else:
            interp.run(func, [*inputs, *found])
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_an_opaque_block_in_a_loop_runs() -> None:
    func = parse_func(ROWS)
    (block,) = opaque_blocks(func)
    assert block.name == "sums"
    first, x = np.array([0, 2, 5, 9]), np.arange(9, dtype="float32")
    y = np.array([x[a:b].sum() * 2 for a, b in pairwise(first)], "float32")
    check(func, [first, x], [y, y + 1])


def test_blocks_in_blocks_run() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 8, 8), "float32")
    wanted = a @ b
    wanted[7] = 0
    func = parse_func(TILES)
    assert [s.name for s in opaque_blocks(func)] == ["outer"]
    check(func, [a, b], [wanted])


def test_its_indices_are_tested() -> None:
    first, x, y = np.array([0, 2, 5, 10]), np.zeros(9, "float32"), np.zeros(3, "float32")
    with pytest.raises(ArgumentError, match="d"):
        at.build(parse_func(ROWS))(first, x, y, y.copy())


def test_nests_beside_it_are_scheduled_and_nothing_across() -> None:
    sch = Schedule(parse_func(ROWS))
    sch.vectorize(sch.get_loops("d")[0])
    with pytest.raises(ScheduleError, match="block 'sums' is opaque"):
        sch.compute_inline("sums")
    with pytest.raises(ScheduleError, match="opaque block 'sums' runs as it is written"):
        sch.compute_inline("d")
    first, x = np.array([0, 2, 5, 9]), np.arange(9, dtype="float32")
    y, z = np.zeros(3, "float32"), np.zeros(3, "float32")
    at.build(sch)(first, x, y, z)
    np.testing.assert_array_equal(z, [3, 19, 53])


def test_what_was_written_before_stays() -> None:
    """The nest stores to every second element; an intermediate that nothing wrote is 0 at first."""
    func = parse_func("""
@T.prim_func
def odd(x: T.Buffer((8,)), y: T.Buffer((8,)), z: T.Buffer((8,))):
    t = T.alloc_buffer((8,))
    for i in T.serial(8):
        with T.block("y"):
            vi = T.axis.spatial(8, i)
            y[vi] = x[vi]
    for i in T.serial(4):
        with T.block("outer"):
            for j in T.serial(1):
                y[i * 2 + j] = 5.0
                t[i * 2] = t[i * 2] + y[i * 2 + 1]
    for i in T.serial(8):
        with T.block("z"):
            vi = T.axis.spatial(8, i)
            z[vi] = t[vi]
""")
    x = np.arange(8, dtype="float32")
    y, z = x.copy(), np.zeros(8, "float32")
    y[::2], z[::2] = 5, x[1::2]
    check(func, [x], [y, z])
    (block,) = opaque_blocks(func)
    assert [a.buffer.name for a in block.reads] == ["y"]


def test_elements_of_a_parameter_that_no_statement_stores_to_stay() -> None:
    func = parse_func("""
@T.prim_func
def first(y: T.Buffer((4, 3))):
    for i in T.serial(4):
        with T.block("outer"):
            with T.block("inner"):
                vi = T.axis.spatial(4, i)
                y[vi, 0] = 5.0
""")
    wanted = np.full((4, 3), 77, "float32")
    wanted[:, 0] = 5
    check(func, [], [wanted])


def test_conditions_and_while_in_blocks() -> None:
    func = parse_func("""
@T.prim_func
def halves(n: T.Buffer((4,), "int64"), y: T.Buffer((4,), "int64")):
    if 1 < 2:
        for i in T.parallel(4):
            with T.block("y"):
                vi = T.axis.spatial(4, i)
                y[vi] = 0
                left = T.alloc_buffer((1,), "int64")
                left[0] = n[vi]
                while left[0] > 0:
                    left[0] = left[0] // 2
                    y[vi] += 1
""")
    found = opaque_of(opaque_blocks(func)[0])
    assert found is not None
    check(func, [np.array([0, 1, 5, 9])], [np.array([0, 1, 3, 4])])


def nested(body: str) -> str:
    """A function with `body` in a block in a block."""
    lines = "\n".join("                " + line for line in body.splitlines())
    return f"""
@T.prim_func
def main(A: T.Buffer((4,)), B: T.Buffer((4,)), C: T.Buffer((4,))):
    for i in T.serial(4):
        with T.block("outer"):
            with T.block("inner"):
{lines}
"""


REFUSED = (
    ("T.reads(A[i])\nB[i] = A[i] + C[i]", "block 'inner' uses C, which T.reads lacks"),
    ("T.writes(C[i])\nB[i] = A[i]", "block 'inner' uses B, which T.writes lacks"),
    ("T.reads(i)\nB[i] = A[i]", "expected a buffer, or a region of one"),
    ("B[i] = A[i]\nC[i] = B[i]", "reads B after it stored there"),
    ("B[i] = 1.0\nvi = T.axis.spatial(4, i)", "axes come before the statements"),
    ("vi = T.axis.other(4, i)\nB[vi] = 1.0", "expected v = T.axis.spatial, reduce"),
    ('vi = T.axis.remap("SS", [i])\nB[vi] = 1.0', "1 axes, 2 kinds, 1 loops"),
    ("vi = T.axis.spatial(4, A[i])\nB[vi] = 1.0", "expected int64, found float32"),
    ("with T.other():\n    B[i] = 1.0", "expected T.block(name) or T.opaque(name)"),
    ("pass", "the nest stores to no buffer of the function"),
    ("for j in T.thread_binding(4):\n    B[j] = 1.0", "expected T.serial(first, last)"),
)


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_refused(body: str, message: str) -> None:
    with pytest.raises(ScriptError, match=re.escape(message)):
        parse_func(nested(body))
