"""The prover is sound: what it proves holds at every point (brute force)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Buffer, Predicate
from autosched.tir.operations import OPS
from autosched.tir.prove import Facts

X, J, K = Var("i"), Var("j"), Var("k")
SMALL = st.integers(-3, 3)


def linear(const: int, **c: int) -> Affine:
    out = Affine(const)
    for name, v in (("i", X), ("j", J), ("k", K)):
        out = out + Affine.of(v) * c.get(name, 0)
    return out


FORMS = st.builds(lambda n, a, b, c: linear(n, i=a, j=b, k=c), SMALL, SMALL, SMALL, SMALL)
DIGITS = st.builds(
    lambda base, d, m, c, rest: Affine.of(Digit(base, d, m)) * c + rest,
    FORMS,
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 4)),
    SMALL,
    FORMS,
)
NESTED = st.builds(
    lambda base, d, m, c: Affine.of(Digit(base, d, m)) + c,
    DIGITS,
    st.integers(1, 4),
    st.one_of(st.none(), st.integers(1, 4)),
    SMALL,
)
ANY = st.one_of(FORMS, DIGITS, NESTED)
EXTENTS = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(1, 5))


@settings(max_examples=300, deadline=None)
@given(
    EXTENTS,
    st.lists(st.tuples(ANY, st.integers(-4, 8)), max_size=3),
    ANY,
    st.integers(-8, 8),
    st.integers(0, 12),
)
def test_what_is_proved_holds(extents, predicates, form, low, width):
    sizes = dict(zip((X, J, K), extents, strict=True))
    facts = Facts(sizes).where(Predicate(f, n) for f, n in predicates)
    points = [dict(zip((X, J, K), p, strict=True)) for p in product(*(range(n) for n in extents))]
    points = [p for p in points if all(f.evaluate(p) < n for f, n in predicates)]
    values = [form.evaluate(p) for p in points]
    proved = facts.linear(form)
    if facts.within(proved, low, low + width):
        assert all(low <= v <= low + width for v in values)
    if facts.impossible:
        assert not points
    if values:
        span = facts.span(proved)
        assert span[0] <= min(values)
        assert max(values) <= span[1]


@settings(max_examples=200, deadline=None)
@given(EXTENTS, FORMS, FORMS, st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), FORMS, SMALL)
def test_guards_are_used_soundly(extents, left, right, op, form, high):
    condition = ex.call(op, left.to_expr(), right.to_expr())
    compare = OPS[op].numpy
    for truth in (True, False):
        facts = Facts(dict(zip((X, J, K), extents, strict=True))).given(condition, truth)
        if facts.at_most(facts.linear(form), high):
            for p in product(*(range(n) for n in extents)):
                point = dict(zip((X, J, K), p, strict=True))
                if bool(compare(left.evaluate(point), right.evaluate(point))) is truth:
                    assert form.evaluate(point) <= high


def test_split_with_a_tail():
    facts = Facts({X: 8, J: 16}).where([Predicate(linear(0, i=16, j=1), 120)])
    assert facts.within(facts.linear(linear(0, i=16, j=1)), 0, 119)
    assert not facts.within(facts.linear(linear(0, i=16, j=1)), 0, 118)


def test_two_predicates_combine():
    facts = Facts({X: 100, J: 100}).where(
        [Predicate(linear(0, i=1, j=2), 20), Predicate(linear(0, i=1, j=-2), 10)]
    )
    assert facts.at_most(facts.linear(linear(0, i=1)), 14)
    assert not facts.at_most(facts.linear(linear(0, i=1)), 12)


def test_a_predicate_on_the_base_bounds_the_digit():
    facts = Facts({X: 20, J: 5}).where([Predicate(linear(0, i=5, j=1), 96)])
    row = Affine.of(Digit(linear(0, i=5, j=1), 12, None))
    assert facts.within(facts.linear(row), 0, 7)


def test_digits_of_one_base_join():
    facts = Facts({X: 96})
    base = Affine.of(X)
    row, column = Affine.of(Digit(base, 12, None)), Affine.of(Digit(base, 1, 12))
    assert facts.linear(row * 12 + column) == facts.linear(base)
    three = (Affine.of(Digit(base, 24, None)) * 24 + Affine.of(Digit(base, 4, 6)) * 4) + Affine.of(
        Digit(base, 1, 4)
    )
    assert facts.linear(three) == facts.linear(base)


def test_a_digit_of_a_digit_is_one_digit():
    facts = Facts({X: 16})
    half = Digit(Affine.of(X), 2, None)
    for nested, flat in (
        (Digit(Affine.of(half), 1, 3), Digit(Affine.of(X), 2, 3)),
        (Digit(Affine.of(half) + 1, 3, None), Digit(Affine.of(X) + 2, 6, None)),
        (Digit(Affine.of(Digit(Affine.of(X), 1, 6)), 2, None), Digit(Affine.of(X), 2, 3)),
        (Digit(Affine.of(Digit(Affine.of(X), 1, 6)), 1, 3), Digit(Affine.of(X), 1, 3)),
    ):
        assert facts.linear(Affine.of(nested)) == facts.linear(Affine.of(flat))
    # What is known of the inner digit is still used.
    small = facts.where([Predicate(Affine.of(half), 3)])
    assert small.within(small.linear(Affine.of(Digit(Affine.of(half), 1, 4))), 0, 2)


def test_values_read_from_memory_are_bounded_by_guards_and_clamps():
    table = Buffer("table", (8,), "int64")
    reads = (Access(table, (Affine.of(X),)), Access(table, (Affine.of(X),)))
    value, again = ex.Slot(0, "int64"), ex.Slot(1, "int64")
    facts = Facts({X: 8}, reads=reads)
    assert not facts.within(facts.of_expr(value), 0, 9)
    clamped = ex.call("max", ex.call("min", value, ex.const(9)), ex.const(0))
    assert facts.within(facts.of_expr(clamped), 0, 9)
    inside = facts.given(ex.call("and", value >= 0, again < 10))
    assert inside.within(inside.of_expr(again), 0, 9)
    narrow = Facts({X: 8}, reads=(Access(Buffer("n", (8,), "uint8"), (Affine.of(X),)),))
    assert narrow.within(narrow.of_expr(ex.cast(ex.Slot(0, "uint8"), "int64")), 0, 255)


@pytest.mark.parametrize(
    ("condition", "truth", "bound"),
    [
        (ex.call("not", Affine.of(X).to_expr() < 3), False, 2),
        (ex.call("or", X >= 4, J >= 2), False, 3),
        (ex.call("eq", X, ex.const(5)), True, 5),
        (ex.call("ne", X, ex.const(5)), False, 5),
        (ex.call("gt", ex.const(7), X), True, 6),
    ],
)
def test_negations_and_equalities(condition, truth, bound):
    facts = Facts({X: 10, J: 10}).given(condition, truth)
    assert facts.at_most(facts.linear(Affine.of(X)), bound)
    assert not facts.at_most(facts.linear(Affine.of(X)), bound - 1)


def test_under_a_false_condition_everything_holds():
    facts = Facts({X: 4}).given(X > 7)
    assert facts.within(facts.linear(Affine.of(X)), 50, 60)
