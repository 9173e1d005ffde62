"""Rows of a softmax and a layer norm: read once, as vectors, and kept in registers."""

from __future__ import annotations

import pytest
from gpu_run import check, cuda, opencl, source

from autosched import te
from autosched.schedule import Schedule
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.tir.expr import Expr
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of

NAMES = ["softmax", "layer_norm"]


def rows(name: str, shape: tuple[int, int], target: Target, **ends: int) -> PrimFunc:
    """The rows of `name` in one kernel, with the decisions whose names end so."""
    space = generate_space(prim_func_of(name, shape), target)
    variant, chosen = space.default()
    decided = {
        n: next((v for end, v in ends.items() if n.endswith(f".{end}")), value)
        for n, value in chosen.items()
    }
    assert space.variants[variant].name.endswith(".cross")
    return space.schedule(variant, decided).func


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("lanes", [2, 4])
def test_a_thread_loads_vectors_of_its_row(name: str, lanes: int) -> None:
    func = rows(name, (6, 512), opencl(), threads=64, lanes=lanes)
    text = check(func, prim_func_of(name, (6, 512)))
    read = "data"
    loads = [x for x in text.splitlines() if "_vec" in x and f"&{read}[" in x]
    assert loads
    assert all(f"float{lanes} *)" in x for x in loads)
    assert f" {read}[" not in text, "no element of the row is read alone"


def test_rows_that_no_vector_divides() -> None:
    for shape in ((3, 301), (5, 130)):
        func = rows("softmax", shape, opencl(), threads=32, lanes=4)
        check(func, prim_func_of("softmax", shape))


def test_what_a_block_shares_is_loaded_once() -> None:
    func = rows("softmax", (8, 1024), cuda(), threads=32, lanes=4, rows=8)
    text = source(func, cuda())
    assert text.count("= maxelem[ty];") == text.count("= expsum[ty];") == 1
    assert text.count("maxelem_here") == 1 + 4 + 4


def test_what_does_not_exist_is_not_kept() -> None:
    """A thread loads what is shared before it asks anything only where that is there for every
    thread: neither before the row's first element, nor for threads behind its end."""
    a = te.placeholder((4, 20), name="a")
    twice = te.compute((4, 20), lambda i, j: a[i, j] * 2.0, name="twice")

    def beside(i: Expr, j: Expr) -> Expr:
        return te.if_then_else(j >= 1, twice[i, j - 1], te.const(1, "float32")) + twice[i, j]

    out = te.compute((4, 20), beside, name="out")
    func = te.create_prim_func([a, out])
    for threads in (20, 32):
        sch = Schedule(func)
        first, second = sch.get_block("twice"), sch.get_block("out")
        row, j = sch.get_loops(second)
        sch.bind(row, "blockIdx.x")
        sch.bind(sch.split(j, [None, threads])[1], "threadIdx.x")
        sch.set_scope(first, 0, "shared")
        sch.compute_at(first, row)
        sch.bind(sch.split(sch.get_loops(first)[-1], [None, threads])[1], "threadIdx.x")
        text = check(sch.func, func)
        assert "twice[tx - 1];" not in text
        assert ("= twice[tx];" in text) == (threads == 20)
