"""Offsets of accesses in a buffer."""

from __future__ import annotations

import pytest

from autosched.codegen.llvm.builder import Builder
from autosched.codegen.llvm.index import Indexer, Lanes, Linear, flat_form
from autosched.codegen.llvm.memory import Memory
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Var
from autosched.tir.nodes import Access, Buffer, strides


@pytest.mark.parametrize("align", [(), ((0, 16, 5),)])
def test_the_offset_of_an_access_is_one_form(align: tuple[tuple[int, int, int], ...]) -> None:
    """Equal to the indices by the strides, a lane at a time; rows may be padded."""
    i, j = Var("i"), Var("j")
    fused = Affine.of(i, 4) + Affine.of(j)
    quotient, rest = Affine.of(Digit(fused, 4, None)), Affine.of(Digit(fused, 1, 4))
    buffer = Buffer("A", (9, 7, 4), "float32", align=align)
    access = Access(buffer, (quotient * 2 + 1, Affine.of(j) + 2, rest))
    form = flat_form(access)
    assert form is not None
    index = Indexer(Builder({}))
    memory = Memory(index.b, index)
    steps = strides(buffer.shape, align)
    for at in range(3):
        index.env = {i: at, j: 0}
        index.lanes = Lanes(j, 4, 4)
        found, apart = index.linear(form), memory.flat(access, None, None)
        for lane in range(4):
            where = (2 * ((4 * at + lane) // 4) + 1, lane + 2, (4 * at + lane) % 4)
            want = sum(n * step for n, step in zip(where, steps, strict=True))
            assert found.lane(lane) == apart.lane(lane) == want


@pytest.mark.parametrize(
    ("const", "coefficients", "inside"),
    [(0, (), True), (5, (4, 1), True), (5, (-4,), False), (7, (2, -1), False), (-3, (1,), False)],
)
def test_addresses_that_may_leave_the_buffer_on_the_way_promise_nothing(
    const: int, coefficients: tuple[int, ...], inside: bool
) -> None:
    """LLVM may take `x - i` of `x[n - i]` for undefined where it is said to lie inside of x."""
    index = Indexer(Builder({}))
    memory = Memory(index.b, index)
    buffer = Buffer("A", (64,), "float32")
    memory.pointers[id(buffer)] = index.b.op("alloca [256 x i8]")
    terms = {index.b.op(f"add i64 {n}, 0"): c for n, c in enumerate(coefficients)}
    memory.address(buffer, Linear(const, terms))
    steps = [text for text in index.b.made_by.values() if text.startswith("getelementptr")]
    assert len(steps) == (const != 0) + bool(coefficients)
    assert all((" inbounds " in text) is inside for text in steps)


@pytest.mark.parametrize(("const", "inside"), [(0, True), (-2, False)])
def test_a_quotient_of_what_may_be_negative_promises_nothing(const: int, inside: bool) -> None:
    """`(x - 2) // 4 * 5 + 2 + k` is in the buffer under a condition; all but the 2 may not be."""
    index = Indexer(Builder({}))
    memory = Memory(index.b, index)
    buffer, x, k = Buffer("A", (64,), "float32"), Var("x"), Var("k")
    memory.pointers[id(buffer)] = index.b.op("alloca [256 x i8]")
    index.env = {x: index.b.op("add i64 1, 0"), k: index.b.op("add i64 3, 0")}
    quotient = Affine.of(Digit(Affine.of(x) + const, 4, None), 5)
    memory.address(buffer, index.linear(quotient + Affine.of(k) + 2))
    steps = [text for text in index.b.made_by.values() if text.startswith("getelementptr")]
    assert len(steps) == 2
    assert all((" inbounds " in text) is inside for text in steps)
