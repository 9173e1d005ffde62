"""Random well-typed programs: text is read back, passes keep what they compute, and Python itself
computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from bounded import Budget
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import ARGUMENTS, Program, Seeded, in_python, module_text, plain

from autosched import graph
from autosched.graph.passes import common_subexpressions, dead_code, fold, partial_eval
from autosched.script import parse

PASSES = (fold, common_subexpressions, dead_code, partial_eval)
PROGRAMS = 20_000
"""Of the long test, as far as its budget goes; 40 to 160 ms each."""
BATCH = 40
"""Programs in one module, so that the prelude is read once for all of them."""


class Drawn:
    """Choices by hypothesis, which makes failing programs smaller."""

    def __init__(self, draw):
        self.draw = draw

    def number(self, low, high):
        return self.draw(st.integers(low, high))


@st.composite
def programs(draw):
    return Program(Drawn(draw)).text("g")


def check(functions):
    """Functions with their results, in Python, evaluated before and after each pass."""
    expected = (*map(in_python, functions), 0)
    p, q, s = ARGUMENTS
    args = p, q, graph.to_list(s)
    mod = parse(module_text(functions))
    printed = mod.script()
    again = parse(printed)
    assert again.same(mod), printed
    assert again.script() == printed
    np.testing.assert_equal(plain(graph.evaluate(mod, "main", *args)), expected)
    for one in PASSES:
        after = one(mod)
        np.testing.assert_equal(plain(graph.evaluate(after, "main", *args)), expected, one.name)
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
@pytest.mark.timeout(3600)
def test_many_random_programs():
    budget = Budget(240)
    for first in range(0, PROGRAMS, BATCH):
        if budget.over():
            break
        made = [Program(Seeded(n)).text(f"g{n}") for n in range(first, first + BATCH)]
        try:
            check(made)
        except Exception:
            for lines in made:  # which one it is
                try:
                    check([lines])
                except Exception as e:
                    raise AssertionError("\n".join([str(e), *lines])) from e
            raise
