"""Damaged scripts: no input crashes or hangs the parser, and none that gets through touches memory
outside its buffers."""

from __future__ import annotations

import random
import time
from math import prod

import numpy as np
import pytest
from bounded import at_most
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
"""Seconds of processor time that one text may take."""
PARTS = 5
"""That a hundred thousand texts are divided into, for the processes that run tests."""


def survive(text: str, seed: int) -> bool:
    """Parse `text`; whether it is a program. Whatever is wrong with it is said by an error of ours;
    a program comes back from its own text and stays inside its buffers."""
    with at_most(240, lambda: f"seed {seed}:\n{text}"):
        begin = time.thread_time()
        problem: ScriptError | None = None
        try:
            module = parse_module(text, limits=LIMITS)
        except ScriptError as e:
            problem = e
        except VerifyError:
            return False
        finally:
            took = time.thread_time() - begin
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


def fuzz(first: int, count: int) -> int:
    """How many of so many texts are programs."""
    texts = corpus()
    return sum(
        survive(damaged(random.Random(seed), texts), seed) for seed in range(first, first + count)
    )


def test_damaged_scripts() -> None:
    assert 15 < fuzz(0, 700) < 350  # the damage neither kills all nor spares most


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_damaged_scripts(part: int) -> None:
    count = 20_000 // PARTS
    assert fuzz(10**6 + part * count, count) > 0.02 * count
