"""Padding inside a sum and padding in a stage of its own are one computation: one space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from test_sketch_spellings import CPU, GPU, kept, sketches

import autosched as at
from autosched import te
from autosched.schedule import Schedule
from autosched.sketch.generate import generate_space
from autosched.sketch.spelling import canonicalise
from autosched.tir.nodes import PrimFunc

Ranges = list[tuple[Any, int | None, int | None]]
"""Indices, and from where on and up to where each is inside; None where it always is."""


def conditions(ranges: Ranges) -> list[Any]:
    low = [least <= y for y, least, _ in ranges if least is not None]
    return [*low, *(y < most for y, _, most in ranges if most is not None)]


def both(ranges: Ranges, element: Any, zero: Any) -> Any:
    return te.if_then_else(te.all(*conditions(ranges)), element, zero)


def shifted(ranges: Ranges, element: Any, zero: Any) -> Any:
    inside = [y - least > -1 for y, least, _ in ranges if least is not None]
    inside += [y - most <= -1 for y, _, most in ranges if most is not None]
    return te.if_then_else(te.all(*inside), element, zero)


def nested(ranges: Ranges, element: Any, zero: Any) -> Any:
    for condition in conditions(ranges):
        element = te.if_then_else(condition, element, zero)
    return element


def outside(ranges: Ranges, element: Any, zero: Any) -> Any:
    out = [y < least for y, least, _ in ranges if least is not None]
    out += [most <= y for y, _, most in ranges if most is not None]
    return te.if_then_else(te.any(*out), zero, element)


def denied(ranges: Ranges, element: Any, zero: Any) -> Any:
    out = [te.logical_not(c) for c in conditions(ranges)]
    return te.if_then_else(te.logical_not(te.any(*out)), element, zero)


@dataclass(frozen=True)
class Window:
    """A reduction over windows of an input with padding, of one to three dimensions."""

    size: tuple[int, ...]
    taps: tuple[int, ...]
    before: int = 1
    after: int = 1
    stride: int = 1
    dilation: int = 1
    channels: tuple[int, int] = (8, 16)
    groups: int = 1
    first: bool = False
    reducer: Callable[..., Any] | None = None
    dtype: str = "float32"
    guard: Callable[..., Any] = both
    turned: bool = False
    epilogue: bool = False

    def func(self, inside: bool) -> PrimFunc:
        """With the padding inside the reduction, or in a stage before."""
        c, o = self.channels
        pooled, depthwise = self.reducer is not None, o == 0
        reach = [
            (n + self.before + self.after - self.dilation * (k - 1) - 1) // self.stride
            for n, k in zip(self.size, self.taps, strict=True)
        ]
        out = [n + 1 for n in reach]
        X = te.placeholder(self._shape((1,), self.size, (c,)), self.dtype, "X")
        of_weight = (c,) if depthwise else (c // self.groups, o)
        W = te.placeholder((*self.taps, *of_weight), self.dtype, "W")
        taps = [te.reduce_axis((0, k), name=f"r{n}") for n, k in enumerate(self.taps)]
        rc = te.reduce_axis((0, c // self.groups), name="rc")
        zero = te.const(-100 if self.reducer is te.max else 0, self.dtype)

        low, high = self.before or None, self.before if self.after else None

        def padded(at_: tuple[Any, ...], guard: Callable[..., Any]) -> Any:
            """The element at an index of the padded input."""
            _, places, _ = self._parts(at_)
            ranges = [
                (y, low, None if high is None else n + high)
                for y, n in zip(places, self.size, strict=True)
            ]
            return guard(ranges, X(*moved(at_, -self.before)), zero)

        def moved(at_: tuple[Any, ...], by: int) -> tuple[Any, ...]:
            n, places, ch = self._parts(at_)
            return self._shape((n,), tuple(p + by for p in places), (ch,))

        stage = X
        if not inside:
            grown = tuple(
                n * self.stride + self.dilation * (k - 1) + 1
                for n, k in zip(reach, self.taps, strict=True)
            )
            stage = te.compute(
                self._shape((1,), grown, (c,)),
                lambda *at_: padded(at_, both),
                name="pad",
            )

        def element(*at_: Any) -> Any:
            n, places, ch = self._parts(at_)
            source = rc if not (pooled or depthwise) else ch
            if self.groups > 1:
                source = ch // (o // self.groups) * (c // self.groups) + rc
            window = tuple(
                p * self.stride + r * self.dilation for p, r in zip(places, taps, strict=True)
            )
            index = self._shape((n,), window, (source,))
            x = padded(index, self.guard) if inside else stage(*index)
            if self.reducer is not None:
                return self.reducer(x, axis=taps[::-1] if self.turned and inside else taps)
            w = W(*taps, *((ch,) if depthwise else (rc, ch)))
            order = taps if depthwise else [*taps, rc]
            if self.turned and inside:
                return te.sum(w * x, axis=order[::-1])
            return te.sum(x * w, axis=order)

        C = te.compute(
            self._shape((1,), tuple(out), (c if pooled or depthwise else o,)), element, name="C"
        )
        D = te.compute(C.shape, lambda *i: te.max(C(*i), te.const(0, self.dtype)), name="D")
        return te.create_prim_func([X, *([] if pooled else [W]), D if self.epilogue else C])

    def _shape(self, n: tuple[Any, ...], places: tuple[Any, ...], c: tuple[Any, ...]) -> Any:
        return (*n, *c, *places) if self.first else (*n, *places, *c)

    def _parts(self, index: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], Any]:
        if self.first:
            return index[0], index[2:], index[1]
        return index[0], index[1:-1], index[-1]


CASES = {
    "conv1d": Window((32,), (3,)),
    "conv1d, factors and axes turned": Window((32,), (5,), 2, 2, turned=True),
    "conv1d, causal": Window((32,), (3,), 2, 0),
    "conv1d, dilated": Window((32,), (3,), 4, 4, dilation=4),
    "conv2d": Window((12, 12), (3, 3)),
    "conv2d, conditions shifted": Window((12, 12), (3, 3), guard=shifted),
    "conv2d, choices in each other": Window((12, 12), (3, 3), guard=nested),
    "conv2d, padding first": Window((12, 12), (3, 3), guard=outside),
    "conv2d, condition denied": Window((12, 12), (3, 3), guard=denied),
    "conv2d, factors and axes turned": Window((12, 12), (3, 3), turned=True),
    "conv2d, two steps": Window((13, 13), (3, 3), stride=2),
    "conv2d, one side": Window((12, 12), (2, 2), 1, 0),
    "conv2d of one tap": Window((12, 12), (1, 1)),
    "conv2d, channels first": Window((12, 12), (3, 3), first=True),
    "conv2d and an epilogue": Window((12, 12), (3, 3), epilogue=True),
    "conv2d of integers": Window((12, 12), (3, 3), dtype="int32"),
    "grouped conv2d": Window((12, 12), (3, 3), channels=(16, 32), groups=4),
    "depthwise conv2d": Window((12, 12), (3, 3), channels=(16, 0)),
    "depthwise conv2d, channels first": Window((12, 12), (3, 3), channels=(16, 0), first=True),
    "conv3d": Window((6, 8, 8), (3, 3, 3), channels=(4, 8)),
    "maxima": Window((13, 13), (3, 3), stride=2, reducer=te.max),
    "sums of windows": Window((12, 12), (3, 3), reducer=te.sum, guard=nested),
    "maxima, turned, channels first": Window((12, 12), (3, 3), reducer=te.max, first=True,
                                             turned=True),
}  # fmt: skip
QUICK = ("conv1d", "conv2d, padding first", "grouped conv2d", "maxima")


@pytest.mark.parametrize(
    "names", [QUICK, pytest.param(tuple(CASES), marks=pytest.mark.long)], ids=["quick", "all"]
)
def test_padding_inside_a_sum_has_the_space_of_padding_in_a_stage(names: tuple[str, ...]) -> None:
    for name in names:
        case = CASES[name]
        first, found = sketches(case.func(False), CPU)
        second, other = sketches(case.func(True), CPU)
        assert len(first.variants) == len(second.variants), name
        assert found == other, name


@pytest.mark.long
def test_they_have_one_space_on_gpus() -> None:
    """The same decisions with the same values; the stage that pads is called otherwise."""

    def named(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(n.replace("X_pad", "pad") for n in kept(names))

    for name, case in CASES.items():
        first, second = (generate_space(case.func(inside), GPU) for inside in (False, True))
        sets = [
            sorted(sorted((named(s.names), s.default) for s in v.decisions) for v in space.variants)
            for space in (first, second)
        ]
        assert sets[0] == sets[1], name


def test_what_is_no_padding_is_taken_as_it_is_written() -> None:
    """A mask of two axes; a condition around a product, whose other factor may be infinite."""
    A, W = te.placeholder((16, 16), name="A"), te.placeholder((16,), name="W")
    k = te.reduce_axis((0, 16), name="k")
    for element in (
        lambda i: te.if_then_else(k <= i, A[i, k], 0.0),
        lambda i: te.if_then_else(k < 9, A[i, k] * W[k], 0.0),
        lambda i: te.if_then_else(k < 9, A[i, k], W[k]),
    ):
        C = te.compute((16,), lambda i, e=element: te.sum(e(i), axis=k), name="C")
        schedule = Schedule(te.create_prim_func([A, W, C]))
        canonicalise(schedule)
        assert not schedule.trace.steps


def test_a_candidate_of_padding_inside_a_sum_computes_it() -> None:
    case = CASES["conv2d, padding first"]
    inside, apart = case.func(True), case.func(False)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(b.shape, np.float32) for b in inside.params[:2])
    wanted, found = np.zeros((1, 12, 12, 16), "float32"), np.zeros((1, 12, 12, 16), "float32")
    at.build(apart)(x, w, wanted)
    space = generate_space(inside, CPU)
    at.build(space.schedule(*space.default()))(x, w, found)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
