"""Random well-typed programs: text is read back, passes keep what they compute, and Python itself
computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import ARGUMENTS, Program, Seeded, in_python, module_text, plain

from autosched import graph
from autosched.graph.passes import (
    branches,
    common_subexpressions,
    dead_code,
    fold,
    fuse,
    integers,
    lambda_lift,
    layout,
    partial_eval,
    simplify,
)
from autosched.script import parse

PASSES = (fold, integers, simplify, branches, common_subexpressions, dead_code)
AFTERWARDS = (lambda_lift, fuse, layout)
"""Of what partial evaluation has left."""
PROGRAMS, PARTS = 20_000, 10
"""Of the long test; 27 ms each."""
BATCH = 40
"""Programs in one module, so that the prelude is read once for all of them."""
READ_BACK, SPECIALISED = 2, 4
"""Of how many batches of the long test one is printed and read back, and one partially evaluated:
reading takes three times as long as all other passes, which take every program."""


class Drawn:
    """Choices by hypothesis, which makes failing programs smaller."""

    def __init__(self, draw):
        self.draw = draw

    def number(self, low, high):
        return self.draw(st.integers(low, high))


@st.composite
def programs(draw):
    return Program(Drawn(draw)).text("g")


def check(functions, read_back=True, specialised=True):
    """Functions with their results, in Python, evaluated before and after each pass."""
    expected = (*map(in_python, functions), 0)
    p, q, s = ARGUMENTS
    args = p, q, graph.to_list(s)
    mod = parse(module_text(functions))
    if read_back:
        printed = mod.script()
        again = parse(printed)
        assert again.same(mod), printed
        assert again.script() == printed
    np.testing.assert_equal(plain(graph.evaluate(mod, "main", *args)), expected)
    after = mod
    for one in (*PASSES, *((partial_eval, *AFTERWARDS) if specialised else ())):
        after = one(after if one in AFTERWARDS else mod)
        np.testing.assert_equal(plain(graph.evaluate(after, "main", *args)), expected, one.name)
        if one is partial_eval:
            assert parse(after.script()).same(after), after.script()


@settings(
    max_examples=5,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
)
@given(programs())
def test_random_programs(lines):
    check([lines])


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(PARTS))
def test_many_random_programs(part):
    """All of them whenever it runs, not as many as some time allows."""
    count = PROGRAMS // PARTS
    for first in range(part * count, (part + 1) * count, BATCH):
        made = [Program(Seeded(n)).text(f"g{n}") for n in range(first, first + BATCH)]
        batch = first // BATCH
        try:
            check(made, batch % READ_BACK == 0, batch % SPECIALISED == 1)
        except Exception:
            for lines in made:  # which one it is
                try:
                    check([lines])
                except Exception as e:
                    raise AssertionError("\n".join([str(e), *lines])) from e
            raise
