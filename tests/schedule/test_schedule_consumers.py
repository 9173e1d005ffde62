"""Consumers that slice, pack or reshape, moved into the loops of their producer or inlined."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc, sites

Index = Callable[..., Any]
CONSUMERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], Index, str]] = {
    # shapes of the producer and of the consumer, the index read, tiles of the producer that a
    # consumer is computed at by runs of its axes: of 2 and 3 rows, and of all rows
    "slice": ((8, 16), (4, 7), lambda i, j: (i + 1, j + 3), "23-"),
    "transposed slice": ((8, 16), (7, 4), lambda i, j: (j + 2, i + 3), "23-"),
    "stride": ((8, 16), (4, 16), lambda i, j: (i * 2, j), "2"),
    "stride and offset": ((9, 16), (3, 16), lambda i, j: (i * 3 + 1, j), "3"),
    "pack": ((8, 16), (4, 8, 2, 2), lambda a, b, c, d: (a * 2 + c, b * 2 + d), "2-"),
    "unpack": ((4, 8, 2, 2), (8, 16), lambda i, j: (i // 2, j // 2, i % 2, j % 2), "23-"),
    "flat": ((8, 16), (128,), lambda i: (i // 16, i % 16), "23-"),
    "part of flat": ((8, 16), (100,), lambda i: (i // 16, i % 16), "23-"),
    "wide rows": ((6, 4), (3, 8), lambda a, b: ((a * 8 + b) // 4, (a * 8 + b) % 4), "2-"),
    "narrow rows": ((8, 16), (16, 8), lambda a, b: ((a * 8 + b) // 16, (a * 8 + b) % 16), "23-"),
    "three dimensions": ((24,), (2, 3, 4), lambda a, b, c: (a * 12 + b * 4 + c,), "2-"),
    "diagonal": ((8, 8), (8,), lambda i: (i, i), "23-"),
    "one row": ((8, 16), (16,), lambda i: (3, i), ""),
}


def program(name: str) -> PrimFunc:
    """D reads C = A * 2 at an index, and adds 1."""
    shape, out, index, _ = CONSUMERS[name]
    a = te.placeholder(shape, "int32", "A")
    c = te.compute(shape, lambda *x: a(*x) * 2, name="C")
    return te.create_prim_func([a, te.compute(out, lambda *x: c(*index(*x)) + 1, name="D")])


def check(name: str, func: PrimFunc) -> None:
    """The verifier takes what was made, and it computes what NumPy does."""
    shape, out, index, _ = CONSUMERS[name]
    assert parse_func(func.script()).same(func)
    a = np.arange(np.prod(shape), dtype="int32").reshape(shape)
    d = np.full(out, -7, "int32")
    interp.run(func, [a, d])
    np.testing.assert_array_equal(d, a[index(*np.indices(out))] * 2 + 1)


@pytest.mark.parametrize("tile", ["2", "3", "-"])
@pytest.mark.parametrize("name", CONSUMERS)
def test_computed_at_tiles_of_the_producer(name: str, tile: str) -> None:
    sch = Schedule(program(name))
    rows, *rest = sch.get_loops("C")
    if tile != "-":
        rows, inner = sch.split(rows, [None, int(tile)])
        sch.reorder(rows, *rest[:1], inner)
    sch.reverse_compute_at("D", rows)
    check(name, sch.func)
    # In other tiles each element is visited: the consumer has as many loops as the producer.
    loops = len(sch.get_loops("D")) - 1
    is_run = tile in CONSUMERS[name][3]
    assert loops == len(CONSUMERS[name][1] if is_run else CONSUMERS[name][0])


@pytest.mark.parametrize("tile", [None, 3])
@pytest.mark.parametrize("name", CONSUMERS)
def test_inlined_into_the_producer(name: str, tile: int | None) -> None:
    sch = Schedule(program(name))
    if tile is not None:
        sch.split(sch.get_loops("C")[0], [None, tile])
    sch.reverse_compute_inline("D")
    assert len(list(sites(sch.func))) == 1
    check(name, sch.func)


def test_a_reduction_goes_on_over_packed_columns() -> None:
    """Its axes are digits of a column: each is visited once, from the first one on."""
    a = te.placeholder((4, 12), "int32", "A")
    c = te.compute((4, 12), lambda i, j: a[i, j] * 2, name="C")
    k, m = te.reduce_axis((0, 4), "k"), te.reduce_axis((0, 3), "m")
    d = te.compute((4,), lambda i: te.sum(c[i, k * 3 + m], axis=(k, m)), name="D")
    sch = Schedule(te.create_prim_func([a, d]))
    _, column = sch.get_loops("C")
    column, _ = sch.split(column, [None, 6])
    sch.reverse_compute_at("D", column)
    assert parse_func(sch.func.script()).same(sch.func)
    x = np.arange(48, dtype="int32").reshape(4, 12)
    found = np.zeros(4, "int32")
    interp.run(sch.func, [x, found])
    np.testing.assert_array_equal(found, x.sum(1) * 2)


REFUSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], Index, str]] = {
    "a row longer than the digit": ((8, 20), (128,), lambda i: (i // 16, i % 16),
        "which is not provably another element at each point"),
    "an axis that no index tells": ((8, 16), (8, 5), lambda i, j: (i, 0), "does not tell axis"),
    "half of the digits": ((8, 16), (16,), lambda i: (i // 8, i), "which point reads it"),
    "windows": ((8, 16), (6, 3), lambda i, j: (i + j, 0), "does not tell axis"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_not_inlined(name: str) -> None:
    shape, out, index, message = REFUSED[name]
    a = te.placeholder(shape, "int32", "A")
    c = te.compute(shape, lambda *x: a(*x) * 2, name="C")
    d = te.compute(out, lambda *x: c(*index(*x)) + 1, name="D")
    sch = Schedule(te.create_prim_func([a, d]))
    with pytest.raises(ScheduleError, match=re.escape(message)):
        sch.reverse_compute_inline("D")


def test_the_outermost_loop_gets_no_advice_to_go_further_out() -> None:
    a, k = te.placeholder((8, 16), "int32", "A"), te.reduce_axis((0, 8), "k")
    c = te.compute((8, 16), lambda i, j: a[i, j] * 2, name="C")
    d = te.compute((4, 16), lambda i, j: te.sum(c[i * 2, j] * a[k, j], axis=k), name="D")
    sch = Schedule(te.create_prim_func([a, d]))
    with pytest.raises(ScheduleError, match="split loop i so that one iteration writes all that"):
        sch.reverse_compute_at("D", sch.get_loops("C")[0])
