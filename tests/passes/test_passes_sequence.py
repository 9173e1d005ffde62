"""Modules from several functions, passes over them, and what a run keeps and prints."""

from __future__ import annotations

import re

import pytest

import autosched as at
from autosched import passes, te
from autosched.errors import ScheduleError
from autosched.ops.rows import argmax
from autosched.tir.nodes import PrimFunc, sites


def scale(name: str = "scale") -> PrimFunc:
    a = te.placeholder((4, 6), name="A")
    b = te.compute((4, 6), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((4, 6), lambda i, j: b[i, j] + 1, name="C")
    return te.create_prim_func([a, c], name=name)


def total(name: str = "total") -> PrimFunc:
    a = te.placeholder((4, 6), name="A")
    k = te.reduce_axis((0, 6), name="k")
    s = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="S")
    return te.create_prim_func([a, s], name=name)


def blocks(func: PrimFunc) -> list[str]:
    return [s.block.name for s in sites(func)]


def test_a_module_of_several_functions() -> None:
    mod = at.IRModule.of(scale(), total())
    assert list(mod) == ["scale", "total"]
    other = at.IRModule({"first": scale(), "second": total()})
    assert other["second"].name == "second"
    assert other.with_function("third", scale())["third"].name == "third"
    with pytest.raises(ScheduleError, match="two functions named 'scale'; name them"):
        at.IRModule.of(scale(), scale())


def test_passes_change_every_function() -> None:
    mod = at.IRModule.of(scale(), total())
    after = passes.inline(mod)
    assert blocks(after["scale"]) == ["C"]
    assert after["total"] is mod["total"]
    assert blocks(mod["scale"]) == ["B", "C"], "the module that was passed has changed"


def test_a_run_keeps_every_step() -> None:
    mod = at.IRModule.of(scale())
    run = passes.Sequential([passes.simplify, passes.inline, passes.dead_code]).run(mod)
    assert [s.name for s in run.steps] == ["simplify", "inline", "dead_code"]
    assert [s.changed for s in run.steps] == [False, True, False]
    assert run.steps[0].before is mod
    assert run.steps[1].after is run.steps[2].before
    assert run.after is run.steps[-1].after
    assert all(s.seconds >= 0 for s in run.steps)
    assert re.fullmatch(r"simplify +[\d.]+ ms  unchanged", str(run).splitlines()[0])
    assert passes.Sequential([]).run(mod).after is mod


def test_printing_around_passes(capsys: pytest.CaptureFixture[str]) -> None:
    mod = at.IRModule.of(scale())
    some = passes.Sequential(
        [passes.simplify, passes.inline], print_before=["inline"], print_after=["inline"]
    )
    after = some(mod)
    expected = f"# before inline\n{mod.script()}\n# after inline\n{after.script()}\n"
    assert capsys.readouterr().out == expected
    passes.Sequential([passes.simplify, passes.inline], print_after=True)(mod)
    assert capsys.readouterr().out.count("# after ") == 2
    with pytest.raises(ScheduleError, match="no pass 'outline' to print; there are inline"):
        passes.Sequential([passes.inline], print_before=["outline"])


def test_inline_comes_before_lower() -> None:
    with pytest.raises(ScheduleError, match=r"scale has been lowered: .* inline before lower"):
        passes.Sequential([passes.lower, passes.inline])(at.IRModule.of(scale()))


def test_a_pass_of_ones_own() -> None:
    @passes.func_pass("first_block")
    def first_block(func: PrimFunc) -> PrimFunc:
        return at.Schedule(func).func

    mod = at.IRModule.of(scale())
    assert passes.Sequential([first_block, passes.inline])(mod)["scale"] is not mod["scale"]
    with pytest.raises(ScheduleError, match="takes an IRModule, found PrimFunc"):
        first_block(scale())  # type: ignore[arg-type]


def test_dead_code_keeps_parameters_and_whole_tuples() -> None:
    func = te.create_prim_func(argmax(3, 5))
    assert passes.dead_code(at.IRModule.of(func)).main.script() == func.script()
