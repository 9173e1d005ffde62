"""Random buffers, indices, values and conditions of a script program."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from program_exprs import FLOATS, INTS, Buf, E, axis, call, cast, clamp, const, limits, load
from script_programs import Axis, Loop, Stage


@dataclass
class Maker:
    """Makes one random program; see `program_maker`."""

    rng: random.Random
    dtype: str = "int32"
    bufs: list[Buf] = field(default_factory=list)
    readable: list[Buf] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    count: int = 0

    def name(self, base: str) -> str:
        self.count += 1
        return f"{base}{self.count}"

    def pick(self, *items: Any) -> Any:
        return self.rng.choice(items)

    def chance(self, one_in: int) -> bool:
        return self.rng.randrange(one_in) == 0

    def extent(self) -> int:
        return self.pick(4, 3, 6, 8, 2, 5, 1, 7, 12, 16)

    def shape(self) -> tuple[int, ...]:
        rank = self.pick(1, 2, 2, 2, 3)
        while True:
            shape = tuple(self.extent() for _ in range(rank))
            if np.prod(shape) <= 48:
                return shape

    def made(self, buf: Buf, low: int, high: int) -> Buf:
        """A buffer that is written now, as it stands in expressions that read it."""
        least, most = limits(buf.dtype)
        low, high = min(low, high), max(low, high)
        if low < least or high > most:
            low, high = least, most
        done = replace(buf, low=low, high=high)
        self.bufs.append(done)
        self.readable.append(done)
        return done

    # -- blocks

    def nest(
        self, spans: Sequence[tuple[int, str]], plain: bool = False
    ) -> tuple[tuple[Loop, ...], tuple[Axis, ...], E | None]:
        """Loops, axes of the given (extent, kind), and the condition of a tail."""
        loops: list[Loop] = []
        axes: list[Axis] = []
        where: E | None = None
        order = list(range(len(spans)))
        if self.chance(4):
            self.rng.shuffle(order)
        bindings: dict[int, E] = {}
        while order:
            n = order.pop(0)
            extent, kind = spans[n]
            mode = self.rng.randrange(16) if not plain else 15
            if mode == 0 and order and spans[order[0]][1] == kind == "S":
                m = order.pop(0)
                loops.append(Loop(self.name("f"), extent * spans[m][0]))
                f = axis(loops[-1].name, loops[-1].extent)
                bindings[n] = call("floordiv", f, const(spans[m][0]))
                bindings[m] = call("floormod", f, const(spans[m][0]))
            elif mode == 1 and where is None:
                factor = self.pick(2, 3, 4)
                outer, inner = (
                    Loop(self.name("o"), -(-extent // factor)),
                    Loop(self.name("n"), factor),
                )
                loops += [outer, inner]
                bindings[n] = call(
                    "add",
                    call("mul", axis(outer.name, outer.extent), const(factor)),
                    axis(inner.name, factor),
                )
                if extent % factor:
                    where = call("lt", bindings[n], const(extent))
            elif mode == 2 and kind == "S":
                loops.append(Loop(self.name("m"), extent))
                bindings[n] = call("sub", const(extent - 1), axis(loops[-1].name, extent))
            else:
                loops.append(Loop(self.name("i"), extent))
                bindings[n] = axis(loops[-1].name, extent)
        for n, (extent, kind) in enumerate(spans):
            axes.append(Axis(self.name("v"), extent, kind, bindings[n]))
        return tuple(loops), tuple(axes), where

    def var(self, a: Axis) -> E:
        return axis(a.name, a.extent)

    def add(self, label: str, **fields: Any) -> Stage:
        stage = Stage(self.name(label), **fields)
        self.stages.append(stage)
        return stage

    # -- expressions

    def index(self, n: int, axes: Sequence[Axis]) -> E:
        """An index of a dimension of `n` elements that stays inside."""
        r = self.rng
        choice = r.randrange(12)
        if not axes or choice == 0:
            return const(r.randrange(n))
        a = r.choice(axes)
        v = self.var(a)
        slack = n - a.extent
        if choice == 1:
            e = self.data(axes)
            if e is not None:
                return self.bounded(e, n)
        if choice == 2 and len(axes) > 1:
            b = r.choice(axes)
            both = call("add", v, self.var(b))
            return both if both.high < n else call("floormod", both, const(n))
        if choice == 3:
            return call(
                "floormod",
                call("add", call("mul", v, const(self.pick(1, 2, 3))), const(r.randrange(4))),
                const(n),
            )
        if choice == 4:
            by = self.pick(2, 3, 4)
            low = call("floordiv", v, const(by))
            exact = E("floordiv", low.args, "int64", 0, (a.extent - 1) // by)
            return exact if exact.high < n else call("floormod", v, const(n))
        if slack < 0:
            return self.pick(call("floormod", v, const(n)), call("min", v, const(n - 1)))
        if choice == 5:
            return call("sub", const(a.extent - 1 + r.randrange(slack + 1)), v)
        if choice == 6 and a.extent > 1:
            step = (n - 1) // (a.extent - 1)
            step = r.randint(1, step)
            rest = n - 1 - step * (a.extent - 1)
            return call("add", call("mul", v, const(step)), const(r.randint(0, rest)))
        if choice == 7:
            return call("add", v, const(r.randint(0, slack)))
        return v

    def data(self, axes: Sequence[Axis], depth: int = 0) -> E | None:
        """A value read from an integer buffer, as int64."""
        found = [b for b in self.readable if b.dtype in INTS]
        if not found or depth > 1:
            return None
        b = self.rng.choice(found)
        at = []
        for n in b.shape:
            inside = [a for a in axes if a.extent <= n]
            at.append(self.var(self.rng.choice(inside)) if inside else const(self.rng.randrange(n)))
        return cast(load(b, *at), "int64")

    def bounded(self, e: E, n: int) -> E:
        """A number that data decide, kept in [0, n)."""
        if n > 1 and self.chance(2):  # the parser drops `x % 1`, and what is read for it
            return call("floormod", e, const(n))
        return clamp(e, 0, n - 1)

    def term(self, axes: Sequence[Axis], dtype: str) -> E:
        """A load, an axis, or a constant."""
        r = self.rng
        choice = r.randrange(8)
        least = 0 if dtype == "uint8" else -4
        if choice == 0:
            return const(r.randint(least, 4), dtype)
        if choice == 1 and axes:
            return cast(self.var(r.choice(axes)), dtype)
        b = r.choice([b for b in self.readable if b.role != "index"] or self.readable)
        if choice == 2 and axes:
            found = self.guarded(b, axes, dtype)
            if found is not None:
                return found
        return cast(load(b, *(self.index(n, axes) for n in b.shape)), dtype)

    def guarded(self, b: Buf, axes: Sequence[Axis], dtype: str) -> E | None:
        """A load whose condition keeps it inside: padding, or an index that data decide."""
        if not b.shape:
            return None
        r = self.rng
        at = [self.index(n, axes) for n in b.shape]
        k = r.randrange(len(at))
        n = b.shape[k]
        e = self.data(axes) if self.chance(3) else None
        if e is not None:  # whatever its values are: the proof knows its dtype alone
            e = replace(e, low=-(1 << 62), high=1 << 62)
        else:
            v = self.var(r.choice(axes))
            e = self.pick(
                call("sub", v, const(r.randint(1, 2))),
                call("add", v, const(r.randint(1, 2))),
                call("sub", call("mul", v, const(2)), const(1)),
            )
        at[k] = e
        tests = []
        if e.low < 0:
            tests.append(call("ge", e, const(0)))
        if e.high >= n:
            tests.append(call("lt", e, const(n)))
        value, other = cast(load(b, *at), dtype), const(self.pick(0, 1, 3), dtype)
        if not tests:
            return value
        inside = tests[0] if len(tests) == 1 else call("and", *tests)
        if self.chance(3):
            return call("if_then_else", call("not", inside), other, value)
        return call("if_then_else", inside, value, other)

    def condition(self, axes: Sequence[Axis]) -> E:
        op = self.pick("lt", "le", "eq", "ne", "gt", "ge")
        if axes and self.chance(2):
            a = self.var(self.rng.choice(axes))
            return call(op, a, const(self.rng.randint(0, a.high + 1)))
        e = self.term(axes, self.dtype)
        return call(op, e, const(self.pick(0, 1, 2), e.dtype))

    def value(self, axes: Sequence[Axis], dtype: str, depth: int = 0) -> E:
        r = self.rng
        choice = r.randrange(10)
        if depth >= 2 or choice < 4 + depth:
            return self.term(axes, dtype)
        left, right = self.value(axes, dtype, depth + 1), self.value(axes, dtype, depth + 1)
        if choice == 4:
            return call(self.pick("if_then_else", "select"), self.condition(axes), left, right)
        if choice == 5 and dtype in INTS:
            return call(
                self.pick("floordiv", "floormod"), left, const(self.pick(2, 3, 5, 4), dtype)
            )
        if choice == 6 and dtype != "uint8":
            return call(self.pick("neg", "abs"), left)
        return call(self.pick("add", "add", "sub", "mul", "max", "min"), left, right)

    def own_dtype(self) -> str:
        return self.dtype if self.rng.random() < 0.85 else self.pick(*INTS, *FLOATS)

    def const_of(self, dtype: str) -> E:
        return const(self.pick(0, 1, 2, 3), dtype)
