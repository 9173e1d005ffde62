"""No part of the compiler compares expressions by `==` or searches lists of them by `in`.

`==` of two expressions makes an expression, and of an expression and None an error: on lists that
is found only by the program that has None at that place. Sets and dicts go by identity.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scatter_programs import PROGRAMS

import autosched
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.tir.expr import Expr
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of

ROOT = Path(autosched.__file__).parent
WRITTEN = tuple(str(ROOT / name) for name in ("te", "ops", "script"))
"""Where expressions are written down, and `==` is one of the operators they are written with."""

MIRRORED = "B[7 - vv] = C[vv] + 1.0"
PLACES = {
    "mirrored": ("(8,)", MIRRORED),
    "a digit": ("(8,)", "B[vv // 8 + vv % 8] = C[vv] + 1.0"),
    "a constant": ("(8, 1)", "B[vv, 0] = C[vv] + 1.0"),
    "rows of half": ("(4, 2)", "B[vv // 2, vv % 2] = C[vv] + 1.0"),
    "modulo": ("(8,)", "B[vv % 8] = C[vv] + 1.0"),
}


def program(shape: str, statement: str) -> PrimFunc:
    """A result written at computed places, of an intermediate."""
    return parse_func(f"""
@T.prim_func
def main(A: T.Buffer((8,)), B: T.Buffer({shape})):
    C = T.alloc_buffer((8,))
    for v in T.serial(8):
        with T.block("C"):
            vv = T.axis.spatial(8, v)
            C[vv] = A[vv] * 2.0
    for v in T.serial(8):
        with T.block("B"):
            vv = T.axis.spatial(8, v)
            {statement}
""")


@pytest.mark.parametrize("name", PLACES)
def test_results_at_computed_places_after_an_intermediate(name: str) -> None:
    func = program(*PLACES[name])
    shape = tuple(int(n) for n in func.params[1].shape)
    a, b = np.arange(8, dtype="float32"), np.empty(shape, "float32")
    wanted = a * 2 + 1
    for scheduled in (func, default_schedule(func, Target("llvm")).func):
        b[...] = np.nan
        autosched.build(scheduled, target="llvm")(a, b)
        found = b.reshape(-1)[::-1] if name == "mirrored" else b.reshape(-1)
        np.testing.assert_array_equal(found, wanted)


@pytest.fixture
def guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`==` and `!=` of expressions fail where the compiler asks."""

    def watch(name: str) -> None:
        plain = getattr(Expr, name)

        def compare(self: Expr, other: object) -> Expr:
            caller = sys._getframe(1).f_code.co_filename
            if caller.startswith(str(ROOT)) and not caller.startswith(WRITTEN):
                raise AssertionError(f"{caller} compares expressions")
            return plain(self, other)

        monkeypatch.setattr(Expr, name, compare)

    watch("__eq__")
    watch("__ne__")


FUNCS = {
    **{name: lambda name=name: program(*PLACES[name]) for name in PLACES},
    **{name: PROGRAMS[name].func for name in ("histogram", "pairs", "col2im")},
    "matmul": lambda: prim_func_of("matmul", (16, 24, 20)),
    "softmax": lambda: prim_func_of("softmax", (6, 40)),
}


@pytest.mark.parametrize("target", ["llvm", "cuda -arch=sm_90"])
@pytest.mark.parametrize("name", FUNCS)
def test_the_compiler_goes_by_identity(name: str, target: str, guarded: None) -> None:
    func, there = FUNCS[name](), Target(target)
    space = generate_space(func, there)
    population = space.sample(np.random.default_rng(0), 3)
    programs = [default_schedule(func, there).func]
    programs += [
        space.schedule(*space.candidate(population, n)).func for n in range(len(population))
    ]
    for scheduled in programs:
        parse_func(scheduled.script(), check=not there.is_gpu)
        if there.is_gpu:
            from autosched.codegen.gpu.generate import source_in

            assert source_in(scheduled, there, "cuda")
        else:
            autosched.build(scheduled, target=there)


def test_the_primitives_go_by_identity(guarded: None) -> None:
    for name in FUNCS:
        schedule = Schedule(FUNCS[name]())
        for block in schedule.get_blocks():
            loops = schedule.get_loops(block)
            try:
                outer, inner = schedule.split(loops[-1], [None, 2])
                schedule.reorder(inner, outer)
                schedule.fuse(inner, outer)
                schedule.cache_read(block, 0, "local")
                schedule.compute_at(block, loops[0])
            except ScheduleError:
                continue
        assert schedule.func.script()
