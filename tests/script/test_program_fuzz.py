"""Random scripts, held to an evaluation of their own: see `program_fuzz`."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace

import numpy as np
import program_checks
import pytest
from program_changes import smaller
from program_checks import Shares, Tally, stays_inside, truth
from program_exprs import Buf, E, axis, call, const, load, unbounded
from program_fuzz import examine, fuzz
from program_maker import random_program
from script_programs import Axis as BlockAxis
from script_programs import DuplicateError, OutOfRangeError, Program, Stage, Store
from script_programs import Loop as Nest

from autosched.script import parse, parse_func

PARTS = 4
"""That the programs are divided into, for the processes that run tests."""


def check(tally: Tally) -> None:
    """Nothing was found, and what was tried is what it should be."""
    assert not tally.findings, "\n\n".join(text for _, text in tally.findings[:3])
    counts = tally.counts
    assert counts["right"] > 0.9 * counts["programs"]
    assert counts["right, accepted"] > 0.97 * counts["right"]
    assert counts["primitives applied"] > 0.3 * counts["primitives refused"]


def test_random_programs() -> None:
    check(fuzz(0, 200, Shares(scheduled=4)))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_thousand_programs(part: int) -> None:
    """12,000 programs. More by hand:
    `python tests/script/program_fuzz.py --programs 1000000 --jobs 2 --seed N`."""
    count = 12_000 // PARTS
    first = time.time_ns() // 10**6 if "FUZZ_FRESH" in os.environ else 10**6
    check(fuzz(first + part * count, count, Shares()))


# The fuzz finds what it is for


def copies(index: int, extent: int = 4, dtype: str = "int32") -> Program:
    """`B[v + index] = A[v]` over four elements."""
    a, b = Buf("A", (4,), dtype, "in"), Buf("B", (4,), dtype, "out")
    v = axis("v", extent)
    at = call("add", v, const(index))
    stage = Stage(
        "copy",
        (Nest("i", extent),),
        (BlockAxis("v", extent, "S", axis("i", extent)),),
        (Store(b, (at,), load(a, v)),),
    )
    return Program((a, b), (), (stage,))


def test_the_evaluation_tells_what_is_wrong() -> None:
    program = copies(0)
    arrays = program.arrays(0)
    assert np.array_equal(program.evaluate(arrays)[1], arrays[0])
    with pytest.raises(OutOfRangeError):
        copies(1).evaluate(arrays)
    (stage,) = program.stages
    (store,) = stage.stores
    one = Store(store.buf, (const(0),), axis("v", 4))
    twice = Program(program.params, (), (Stage("w", stage.loops, stage.axes, (one,)),))
    with pytest.raises(DuplicateError):
        twice.evaluate(arrays)


def test_what_the_parser_folds_away_is_out_of_no_range() -> None:
    program = copies(0, dtype="int64")
    (stage,) = program.stages
    (store,) = stage.stores
    beyond = load(store.value.args[0], call("add", axis("v", 4), const(3)))
    for factor, gone in ((0, True), (1, False)):
        value = call("mul", beyond, const(factor))
        changed = replace(stage, stores=(replace(store, value=value),))
        spoiled = replace(program, stages=(changed,), kinds=("spoiled index",))
        arrays = spoiled.arrays(0)
        assert truth(spoiled, arrays)[0] == "out of range"
        text = spoiled.script()
        func = parse(text) if gone else parse_func(text, check=False)
        assert stays_inside(func, arrays) is gone
        tally = Tally()
        examine(spoiled, 0, Shares(), tally)
        assert tally.counts["out of range, but folded away"] == gone


def test_floats_that_no_integer_holds_saturate() -> None:
    a, b = Buf("A", (2,), "float64", "in"), Buf("B", (2,), "uint8", "out")
    v = axis("v", 2)
    value = E("cast", (load(a, v),), "uint8", 0, 9)  # as for elements from 0 to 9
    axes = (BlockAxis("v", 2, "S", axis("i", 2)),)
    stage = Stage("cast", (Nest("i", 2),), axes, (Store(b, (v,), value),))
    program = Program((a, b), (), (stage,))
    outputs = [np.full(2, 255, "uint8")]
    what, results = truth(program, [np.array([-0.5, 255.5]), *outputs])
    assert (what, results[1].tolist()) == ("right", [0, 255])
    for given, wanted in ((-100.0, 0), (256.0, 255), (np.nan, 0), (np.inf, 255), (-np.inf, 0)):
        what, results = truth(program, [np.array([0, given]), *outputs])
        assert (what, results[1].tolist()) == ("right", [0, wanted])


def test_spoiled_programs_wrap_around_at_every_step() -> None:
    """Their elements may hold more than their expressions were made for."""
    high = E("load", (Buf("A", (1,), "uint8", "in"), const(0)), "uint8", 0, 9)
    total = call("add", high, high)
    assert "%" not in total.python()
    assert eval(unbounded(total).python(), {"A": {(0,): 200}}) == 400 - 256


def test_findings_are_told_as_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that is wrong is found, and the program is made small."""

    def nothing(func: object, arrays: object) -> None:
        pass

    monkeypatch.setattr(program_checks.interp, "run", nothing)
    monkeypatch.setattr(program_checks.whole, "reference", nothing)
    found = fuzz(0, 3, Shares())
    assert len(found.findings) == 3
    for kind, text in found.findings:
        assert "differs" in kind
        assert "@T.prim_func" in text


def test_smaller_programs_are_programs() -> None:
    program = random_program(random.Random(5))
    found = list(smaller(program))
    assert found
    assert all(len(p.stages) <= len(program.stages) for p in found)
    assert all(p.script().startswith("@T.prim_func") for p in found)
