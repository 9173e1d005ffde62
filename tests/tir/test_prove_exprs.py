"""What is proved of expressions of any integer dtype, overflow included, holds at every point."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

from autosched.errors import TensorExprError
from autosched.tir import expr as ex
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.nodes import Access, Buffer
from autosched.tir.operations import OPS
from autosched.tir.prove import Facts

X, Y = Var("i"), Var("j")
P, Q = Slot(0, "int8"), Slot(1, "uint8")
READS = (Access(Buffer("P", (1,), "int8"), (Affine(0),)),
         Access(Buffer("Q", (1,), "uint8"), (Affine(0),)))  # fmt: skip
DTYPES = ("int8", "uint8", "int16", "int32", "int64")
SIGNED_ENDS = (-128, -127, -100, -64, -63, -9, -5, -3, -2, -1, 0, 1, 2, 3, 4, 8, 31, 64, 100, 127)
UNSIGNED_ENDS = (0, 1, 2, 3, 4, 7, 8, 31, 64, 100, 127, 128, 200, 254, 255)
GRID = np.meshgrid(SIGNED_ENDS, UNSIGNED_ENDS, np.arange(5), np.arange(3), indexing="ij")
POINTS = {id(e): x.ravel().astype(e.dtype) for e, x in zip((P, Q, X, Y), GRID, strict=True)}
COUNT = GRID[0].size


def evaluated(e: Expr) -> np.ndarray:
    """The value of `e` at every point, as NumPy has it."""
    if id(e) in POINTS:
        return POINTS[id(e)]
    if isinstance(e, Const):
        return np.full(COUNT, e.value, e.dtype)
    assert isinstance(e, Call)
    args = [evaluated(a) for a in e.args]
    found = args[0] if e.op == "cast" else OPS[e.op].numpy(*args)
    return np.asarray(found).astype(e.dtype)


class Maker:
    """Random expressions and conditions."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)

    def const(self, dtype: str) -> Expr:
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        n = self.r.choice((self.r.randint(-10, 10), -128, 127, 255, 63, low, high))
        return ex.const(max(low, min(high, n)), dtype)

    def expr(self, depth: int, dtype: str) -> Expr:
        r = self.r
        if not depth or r.random() < 0.15:
            return ex.cast(r.choice((P, Q, X, Y, self.const(dtype))), dtype)
        kind = r.choice(("two", "two", "cast", "one", "clamp", "choice", "shift", "divide"))
        if kind == "cast":
            return ex.cast(self.expr(depth - 1, r.choice(DTYPES)), dtype)
        a = self.expr(depth - 1, dtype)
        if kind == "one":
            return ex.call(r.choice(("neg", "abs")), a)
        if kind == "clamp":
            low = r.randint(0, 4)
            top = ex.call("min", a, ex.const(r.randint(low, 20), dtype))
            return ex.call("max", top, ex.const(low, dtype))
        if kind == "shift":
            op, most = r.choice((("shift_left", 6), ("shift_right", 6), ("bitwise_and", 31)))
            return ex.call(op, a, ex.const(r.randint(0, most), dtype))
        b = self.expr(depth - 1, dtype)
        if kind == "choice":
            op = r.choice(("select", "if_then_else"))
            return ex.call(op, self.condition(depth - 1), a, b)
        if kind == "divide":
            least = ex.const(r.randint(1, 7), dtype)
            by = least if r.random() < 0.7 else ex.call("max", b, least)
            return ex.call(r.choice(("floordiv", "floormod")), a, by)
        return ex.call(r.choice(("add", "sub", "mul", "min", "max")), a, b)

    def condition(self, depth: int) -> Expr:
        r = self.r
        if depth > 0 and r.random() < 0.4:
            op = r.choice(("and", "or"))
            return ex.call(op, self.condition(depth - 1), self.condition(depth - 1))
        dtype = r.choice(DTYPES)
        op = r.choice(("lt", "le", "gt", "ge", "eq", "ne"))
        test = ex.call(op, self.expr(max(depth, 0), dtype), self.const(dtype))
        return ex.call("not", test) if r.random() < 0.2 else test


def check(seed: int) -> bool:
    """Whether exactly the values that an expression takes are proved to be all."""
    make = Maker(seed)
    try:
        e = make.expr(make.r.randint(1, 4), make.r.choice(DTYPES))
        conditions = [make.condition(1) for _ in range(make.r.choice((0, 0, 1, 2)))]
    except TensorExprError:  # constants that overflow
        return False
    facts, live = [Facts({X: 5, Y: 3}, reads=READS)], np.ones(COUNT, bool)
    for c in conditions:
        truth = make.r.random() < 0.6
        facts = [x for f in facts for x in f.cases(c, truth)]
        live &= evaluated(c).astype(bool) == truth
    values = evaluated(e)[live].astype(object)
    if not values.size:
        return False
    low, high = int(values.min()), int(values.max())
    spans = [f.span(f.of_expr(e)) for f in facts if not f.impossible]
    assert spans, (e, conditions)
    assert min(s[0] for s in spans) <= low, (e, conditions, spans, low, high)
    assert max(s[1] for s in spans) >= high, (e, conditions, spans, low, high)
    for extent in (high, max(low, 1)):
        if extent > 0 and all(f.inside_expr(e, extent) for f in facts):
            assert 0 <= low <= high < extent, (e, conditions, low, high, extent)
    return high >= 0 and all(f.inside_expr(e, high + 1) for f in facts)


def test_random_expressions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of overflow
        assert sum(check(seed) for seed in range(250)) > 50


@pytest.mark.long
def test_many_random_expressions() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert sum(check(seed) for seed in range(1000, 11000)) > 2000
