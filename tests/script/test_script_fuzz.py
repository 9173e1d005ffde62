"""Damaged scripts: no input crashes or hangs the parser, and none that gets through touches memory
outside its buffers."""

from __future__ import annotations

import random
import time
from math import prod

import numpy as np
import pytest
from bounded import Budget, at_most
from script_fuzz import corpus, damaged

from autosched.dag import ComputeDAG
from autosched.errors import ScriptError, VerifyError
from autosched.script import Limits, parse_module
from autosched.tir import dtypes, interp
from autosched.tir.canonical import workload_key
from autosched.tir.equal import first_difference
from autosched.tir.nodes import PrimFunc, buffers_of, sites

LIMITS = Limits(seconds=5.0)
POINTS = 3000
"""Of a program that is executed."""
SLOWEST = 20.0
"""Seconds that one text may take, on a machine that is busy with other things."""


def survive(text: str, seed: int) -> bool:
    """Parse `text`; whether it is a program. Whatever is wrong with it is said by an error of ours;
    a program comes back from its own text and stays inside its buffers."""
    with at_most(60, lambda: f"seed {seed}:\n{text}"):
        begin = time.monotonic()
        problem: ScriptError | None = None
        try:
            module = parse_module(text, limits=LIMITS)
        except ScriptError as e:
            problem = e
        except VerifyError:
            return False
        finally:
            took = time.monotonic() - begin
            assert took < SLOWEST, f"seed {seed}: {took} s"
        if problem is not None:
            assert problem.line > 0, f"{problem}\n{text}"
            assert f"line {problem.line}, column {problem.column}: " in str(problem)
            return False
        for name in module:
            func = module[name]
            again = parse_module(func.script(), check=False).main
            assert first_difference(func, again) is None, text
            assert workload_key(again) == workload_key(func), text
            assert float(ComputeDAG(func).flop_ct) >= 0
            execute(func, seed)
    return True


def execute(func: PrimFunc, seed: int) -> None:
    """Run in the interpreter, which raises VerifyError at an access that is out of bounds."""
    points = sum(prod(int(x.extent) for x in s.loops) for s in sites(func))
    elements = sum(prod(int(n) for n in b.shape) for b in (*func.params, *buffers_of(func)))
    if points > POINTS or elements > 100 * POINTS:
        return
    rng = np.random.default_rng(seed)
    arrays = []
    for b in func.params:
        shape = tuple(int(n) for n in b.shape)
        if b.dtype == "bool":
            arrays.append(rng.integers(0, 2, shape).astype(bool))
        elif dtypes.is_float(b.dtype):
            arrays.append(rng.standard_normal(shape).astype(b.dtype))
        else:  # extreme values show where an index was taken from data
            low, high = dtypes.minimum(b.dtype), dtypes.maximum(b.dtype)
            wide = rng.integers(int(low), int(high), shape, dtype=b.dtype, endpoint=True)
            arrays.append(np.where(rng.integers(0, 2, shape), wide, wide % 5).astype(b.dtype))
    interp.run(func, arrays)


def fuzz(first: int, count: int, budget: Budget | None = None) -> tuple[int, int]:
    """(texts tried, programs among them)."""
    texts = corpus()
    good = 0
    for n in range(count):
        if budget is not None and budget.over():
            return n, good
        seed = first + n
        good += survive(damaged(random.Random(seed), texts), seed)
    return count, good


def test_damaged_scripts() -> None:
    tried, good = fuzz(0, 1500)
    assert 0.02 * tried < good < 0.5 * tried  # the damage neither kills all nor spares most


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_damaged_scripts() -> None:
    tried, _ = fuzz(10**6, 120_000, Budget(900))
    assert tried >= 100_000, f"only {tried} in the time"
