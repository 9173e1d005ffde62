"""Passes on random programs and schedules: the same results, and still well-formed programs."""

from __future__ import annotations

from dataclasses import replace

import bounded
import numpy as np
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from schedule_fuzz import Choices, random_program, random_schedule
from schedule_outcome import outputs

from autosched import passes
from autosched.errors import VerifyError
from autosched.lowering.lower import lower
from autosched.tir.affine import Affine, digit
from autosched.tir.expr import Expr, Slot, call, cast, const
from autosched.tir.module import IRModule
from autosched.tir.nodes import Block, PrimFunc, loops_of, map_func, sites
from autosched.tir.verify import verify

NUMBERS = st.integers(0, 999)
PROGRAMS = st.lists(NUMBERS, min_size=20, max_size=40)
TRACES = st.lists(NUMBERS, max_size=90)
EVERY = (passes.inline, passes.simplify, passes.dead_code)
ORDERS = ((0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2))
QUICK = settings(
    max_examples=24,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)


def noise(block: Block, c: Choices) -> Block:
    """The block with things in its values that simplification can take away, or must not."""
    axes = [it.var for it in block.iters]

    def condition() -> Expr:
        if not axes:
            return call("lt", const(c.next(3)), const(1))
        it = block.iters[c.next(len(axes))]
        form = digit(Affine.of(it.var, 1 + c.next(3)), 1 + c.next(3), c.of((None, 5)), {})
        left = form.to_expr()
        return call(c.of(("lt", "ge", "eq", "ne", "gt", "le")), left, const(c.next(int(it.extent))))

    def grow(e: Expr) -> Expr:
        one, zero = const(1, e.dtype), const(0, e.dtype)
        match c.next(8):
            case 0:
                return call("if_then_else", condition(), e, call("neg", e))
            case 1:
                both = call(c.of(("and", "or")), condition(), condition())
                return call("select", both, call("add", e, one), grow(e))
            case 2:
                return call("mul", call("add", zero, e), call("floordiv", one, one))
            case 3:
                return call("if_then_else", call("not", condition()), grow(e), e)
            case 4:
                return call("max", e, call("sub", cast(const(c.next(9), "int32"), e.dtype), one))
            case 5 if axes:
                return call("add", e, cast(axes[c.next(len(axes))], e.dtype))
            case _:
                return e

    return replace(block, body=tuple(grow(e) for e in block.body))


def changed(func: PrimFunc, order: tuple[int, ...]) -> PrimFunc:
    run = passes.Sequential([EVERY[n] for n in order]).run(IRModule.of(func))
    note(f"{run}\n{run.after.script()}")
    return run.after.main


def verifies(func: PrimFunc) -> bool:
    try:
        verify(func)
    except VerifyError:
        return False
    return True


def check(program: list[int], trace: list[int]) -> None:
    c = Choices(trace[::-1])
    func = map_func(random_program(program), lambda b: noise(b, c))
    scheduled = random_schedule(func, trace).func
    note(scheduled.script())
    expected = outputs(func, func, len(trace))
    # Proofs are incomplete: what is refused before any pass may be refused after it.
    provable = verifies(scheduled) and verifies(lower(scheduled))
    if c.next(3) == 0:
        after = changed(lower(scheduled), (1, 2))
    else:
        after = changed(scheduled, c.of(ORDERS))
    for x, y in zip(outputs(after, func, len(trace)), expected, strict=True):
        assert np.array_equal(x, y), "the results differ"
    if provable:
        verify(after)
    again = passes.Sequential(EVERY[1:]).run(IRModule.of(after)).after.main
    for x, y in zip(outputs(again, func, len(trace)), expected, strict=True):
        assert np.array_equal(x, y), "the results differ the second time"
    assert not any(x.extent == 1 and x.kind != "thread" and not x.allocs for x in loops_of(again))
    slots = [len(s.block.reads) for s in sites(again)]
    used = [{e.index for e in _slots(s.block)} for s in sites(again)]
    assert all(len(u) == n for u, n in zip(used, slots, strict=True)), "reads that nothing uses"


def _slots(block: Block) -> list[Slot]:
    from autosched.tir.expr import walk

    indices = [i for a in (*block.reads, *block.writes) for i in a.indices if isinstance(i, Expr)]
    return [e for root in (*block.body, *indices) for e in walk(root) if isinstance(e, Slot)]


@QUICK
@given(PROGRAMS, TRACES)
def test_results_stay(program: list[int], trace: list[int]) -> None:
    check(program, trace)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_results_stay_long() -> None:
    budget = bounded.Budget(40)

    @settings(QUICK, max_examples=5_000)
    @given(PROGRAMS, TRACES)
    def fuzz(program: list[int], trace: list[int]) -> None:
        budget.run(check, program, trace)

    fuzz()
