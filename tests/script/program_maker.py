"""Random programs of the loop IR: see `script_programs`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from program_exprs import FLOATS, INTS, Buf, E, axis, call, cast, clamp, const, limits, load, walk
from script_programs import Axis, Loop, Program, Stage, Store, identity


@dataclass
class Maker:
    """Makes one random program; see `random_program`."""

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

    # -- the whole

    def program(self) -> Program:
        r = self.rng
        self.dtype = self.pick(
            "int32", "float32", "int64", "float32", "int8", "int16", "uint8", "float64"
        )
        for _ in range(r.choice((1, 1, 2))):
            dtype = self.dtype if r.random() < 0.8 else self.pick(*INTS, *FLOATS)
            low = 0 if dtype == "uint8" else -4
            self.bufs.append(Buf(self.name("A"), self.shape(), dtype, "in", low))
        if r.random() < 0.5:
            dtype = self.pick("int64", "int64", "int32", "int8", "uint8")
            self.bufs.append(Buf(self.name("I"), self.shape(), dtype, "index", *limits(dtype)))
        self.readable = list(self.bufs)
        results = r.choice((1, 1, 1, 1, 2, 2, 3))
        for n in range(results):
            role = "out" if n == results - 1 or self.chance(3) else "tmp"
            plan = r.choice(PLANS)
            self.kinds.append(plan.__name__.strip("_"))
            plan(self, role)
        params = [b for b in self.bufs if b.role != "tmp"]
        inner = [b for b in self.bufs if b.role == "tmp"]
        return Program(tuple(params), tuple(inner), tuple(self.stages), tuple(self.kinds))

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


def _whole(m: Maker, role: str) -> None:
    """One block writes every element: indices permuted, mirrored, of digits."""
    shape = m.shape()
    buf = Buf(m.name("B"), shape, m.own_dtype(), role)
    stores = [_whole_stage(m, buf)]
    m.made(buf, stores[0].value.low, stores[0].value.high)


def _whole_stage(m: Maker, buf: Buf) -> Store:
    loops, axes, where = m.nest([(n, "S") for n in buf.shape])
    if len(buf.shape) == 2 and m.chance(5):  # one axis, whose digits are the indices
        rows, columns = buf.shape
        loops, axes, where = m.nest([(rows * columns, "S")])
        v = m.var(axes[0])
        at = [call("floordiv", v, const(columns)), call("floormod", v, const(columns))]
        if m.chance(3):
            at[1] = call("floormod", call("add", v, const(m.rng.randrange(4))), const(columns))
            at[0] = call("floordiv", v, const(columns))
    elif len(buf.shape) == 1 and buf.shape[0] % 2 == 0 and m.chance(4):  # two axes make the index
        half = buf.shape[0] // 2
        loops, axes, where = m.nest([(half, "S"), (2, "S")])
        a, b = map(m.var, axes)
        at = [
            m.pick(
                call("add", call("mul", a, const(2)), b),
                call("add", call("mul", b, const(half)), a),
            )
        ]
    else:
        at = [_moved(m, n, m.var(a)) for n, a in zip(buf.shape, axes, strict=True)]
    store = Store(buf, tuple(at), m.value(axes, buf.dtype))
    m.add("w", loops=loops, axes=axes, stores=(store,), where=where)
    return store


def _moved(m: Maker, n: int, v: E) -> E:
    """A bijection of [0, n)."""
    choice = m.rng.randrange(8)
    if choice == 0:
        return call("sub", const(n - 1), v)
    if choice == 1:
        return call("floormod", call("add", v, const(m.rng.randrange(1, 4))), const(n))
    return v


def _parts(m: Maker, role: str) -> None:
    """Several blocks write parts of a buffer: one behind the other, or every second element."""
    rest = m.shape()[1:]
    many = m.pick(2, 2, 3)
    sizes = [m.pick(1, 2, 3, 4) for _ in range(many)]
    strided = m.chance(2)
    if strided:
        sizes = [sizes[0]] * many
    buf = Buf(m.name("B"), (sum(sizes), *rest), m.own_dtype(), role)
    spread = [0, 0]
    reduces = m.chance(4)
    for n in m.rng.sample(range(many), many):
        r = [(m.pick(2, 3, 4), "R")] if reduces else []
        loops, axes, where = m.nest([(sizes[n], "S"), *((x, "S") for x in rest), *r])
        v = m.var(axes[0])
        if m.chance(4):
            v = call("sub", const(sizes[n] - 1), v)
        if strided:
            first = call("add", call("mul", v, const(many)), const(n))
        else:
            first = call("add", v, const(sum(sizes[:n])))
        inner = [_moved(m, x, m.var(a)) for x, a in zip(rest, axes[1:], strict=False)]
        value = m.value(axes, buf.dtype)
        reducers = (m.pick("sum", "max", "min"),) if reduces else ()
        if reducers == ("sum",):
            value = clamp(value, 0, 9)
        store = Store(buf, (first, *inner), value)
        m.add("p", loops=loops, axes=axes, stores=(store,), where=where, reducers=reducers)
        spread += [4 * value.low, 4 * value.high]
    m.made(buf, min(spread), max(spread))


def _fill(m: Maker, buf: Buf, value: E) -> None:
    loops, axes, where = m.nest([(n, "S") for n in buf.shape])
    at = tuple(map(m.var, axes))
    m.add("z", loops=loops, axes=axes, stores=(Store(buf, at, value),), where=where)


def _over(m: Maker, role: str) -> None:
    """A buffer that is filled, and of which then a part is written again."""
    buf = Buf(m.name("B"), m.shape(), m.own_dtype(), role)
    first = m.const_of(buf.dtype)
    _fill(m, buf, first)
    sizes = [m.rng.randint(1, n) for n in buf.shape]
    loops, axes, where = m.nest([(n, "S") for n in sizes])
    at = []
    for n, size, a in zip(buf.shape, sizes, axes, strict=True):
        v, slack = m.var(a), n - size
        choice = m.rng.randrange(4)
        if choice == 0:
            at.append(call("sub", const(size - 1 + m.rng.randint(0, slack)), v))
        elif choice == 1 and size > 1:
            step = m.rng.randint(1, (n - 1) // (size - 1))
            at.append(call("mul", v, const(step)))
        else:
            at.append(call("add", v, const(m.rng.randint(0, slack))))
    value = m.value(axes, buf.dtype)
    if where is None and m.chance(3):
        loop = m.rng.choice(loops)
        x = axis(loop.name, loop.extent)
        other = m.rng.choice(loops)
        both = call("add", x, axis(other.name, other.extent))
        where = call("lt", both, const(m.rng.randint(1, max(1, both.high))))
    m.add("o", loops=loops, axes=axes, stores=(Store(buf, tuple(at), value),), where=where)
    m.made(buf, min(first.low, value.low), max(first.high, value.high))


def _reduction(m: Maker, role: str) -> None:
    """An ordinary reduction: its element is named by spatial axes."""
    buf = Buf(m.name("B"), m.shape(), m.own_dtype(), role)
    spans = [(n, "S") for n in buf.shape]
    for _ in range(m.pick(1, 1, 2)):
        spans.insert(m.rng.randint(len(buf.shape), len(spans)), (m.pick(2, 3, 4, 1, 5), "R"))
    loops, axes, where = m.nest(spans)
    spatial = [a for a in axes if a.kind == "S"]
    at = tuple(_moved(m, n, m.var(a)) for n, a in zip(buf.shape, spatial, strict=True))
    reducer, value, reach = _reduced(m, axes, buf.dtype)
    init = not m.chance(5)
    if not init:
        _fill(m, buf, _neutral(reducer, buf.dtype))
    m.add(
        "r", loops=loops, axes=axes, stores=(Store(buf, at, value),), where=where,
        reducers=(reducer,), init=init,
    )  # fmt: skip
    m.made(buf, *reach)


def _reduced(m: Maker, axes: Sequence[Axis], dtype: str) -> tuple[str, E, tuple[int, int]]:
    """(reducer, value, what the result may be)."""
    points = int(np.prod([a.extent for a in axes]))
    reducer = m.pick("sum", "sum", "max", "min", "prod")
    value = m.value(axes, dtype)
    if reducer == "prod":
        if dtype in FLOATS:
            value = clamp(value, 0, 1)
            return reducer, value, (0, 1)
        return reducer, value, limits(dtype)
    if reducer == "sum":
        if dtype in FLOATS:
            value = clamp(value, -9, 9)
        return reducer, value, (min(0, points * value.low), max(0, points * value.high))
    low, high = value.low, value.high
    if dtype in INTS:  # a place that no point reaches holds the identity
        return reducer, value, (min(low, *limits(dtype)), max(high, *limits(dtype)))
    return reducer, value, (low, high)


def _neutral(reducer: str, dtype: str) -> E:
    if dtype in FLOATS and reducer in ("max", "min"):
        return const(-100 if reducer == "max" else 100, dtype)
    return const(identity(reducer, dtype), dtype)


def _scatter(m: Maker, role: str) -> None:
    """A reduction whose element depends on a reduction axis, or on data: a histogram, col2im."""
    buf = Buf(m.name("B"), m.shape(), m.own_dtype(), role)
    spans = [(m.pick(2, 3, 4, 6), "S") for _ in range(m.pick(0, 0, 1, 1, 2))]
    spans += [(m.pick(2, 3, 4, 8), "R") for _ in range(m.pick(1, 1, 2))]
    m.rng.shuffle(spans)
    loops, axes, where = m.nest(spans)
    at = tuple(_place(m, n, axes) for n in buf.shape)
    reducer, value, reach = _reduced(m, axes, buf.dtype)
    if m.chance(3):
        value = const(1, buf.dtype)
    init = m.chance(10)
    neutral = _neutral(reducer, buf.dtype)
    if not init:
        _fill(m, buf, neutral)
    m.add(
        "s", loops=loops, axes=axes, stores=(Store(buf, at, value),), where=where,
        reducers=(reducer,), init=init,
    )  # fmt: skip
    m.made(buf, min(reach[0], neutral.low, 0), max(reach[1], neutral.high, 1))


def _place(m: Maker, n: int, axes: Sequence[Axis]) -> E:
    if m.chance(3):
        e = m.data(axes)
        if e is not None:
            return m.bounded(e, n)
    return m.index(n, axes)


def _argmax(m: Maker, role: str) -> None:
    """Index and value of the largest of a row, both made by one block."""
    n, k = m.extent(), m.pick(2, 3, 5, 4)
    dtype = m.pick(m.dtype, "float32")
    at, top = Buf(m.name("P"), (n,), "int64", "out"), Buf(m.name("V"), (n,), dtype, role)
    loops, axes, where = m.nest([(n, "S"), (k, "R")])
    value = m.value(axes, dtype)
    index = _moved(m, n, m.var(axes[0]))
    stores = (Store(at, (index,), m.var(axes[1])), Store(top, (index,), value))
    m.add("a", loops=loops, axes=axes, stores=stores, where=where, reducers=("argmax",))
    m.made(at, 0, k - 1)
    m.made(top, value.low, value.high)


def _several(m: Maker, role: str) -> None:
    """One block that writes two buffers, maybe accumulating in both."""
    shape = m.shape()
    bufs = [Buf(m.name("B"), shape, m.own_dtype(), x) for x in (role, "out")]
    reduces = m.chance(2)
    loops, axes, where = m.nest([*((n, "S") for n in shape), *([(m.pick(2, 3, 4), "R")] * reduces)])
    stores, reducers, reach = [], [], []
    for b in bufs:
        at = tuple(_moved(m, n, m.var(a)) for n, a in zip(shape, axes, strict=False))
        if reduces:
            reducer, value, span = _reduced(m, axes, b.dtype)
            reducers.append(reducer)
        else:
            value = m.value(axes, b.dtype)
            span = (value.low, value.high)
        stores.append(Store(b, at, value))
        reach.append(span)
    m.add("t", loops=loops, axes=axes, stores=tuple(stores), where=where, reducers=tuple(reducers))
    for b, span in zip(bufs, reach, strict=True):
        m.made(b, *span)


def _twice(m: Maker, role: str) -> None:
    """Two blocks accumulate in a buffer that a third has filled."""
    buf = Buf(m.name("B"), m.shape(), m.own_dtype(), role)
    reducer = m.pick("sum", "max", "min")
    neutral = _neutral(reducer, buf.dtype)
    _fill(m, buf, neutral)
    reach = [neutral.low, neutral.high, 0]
    for _ in range(2):
        loops, axes, where = m.nest([*((n, "S") for n in buf.shape), (m.pick(2, 3), "R")])
        value = clamp(m.value(axes, buf.dtype), 0, 9)
        at = tuple(_moved(m, n, m.var(a)) for n, a in zip(buf.shape, axes, strict=False))
        m.add(
            "u", loops=loops, axes=axes, stores=(Store(buf, at, value),), where=where,
            reducers=(reducer,), init=False,
        )  # fmt: skip
        reach.append(27)
    m.made(buf, min(reach), max(*reach, 54))


def _recurrence(m: Maker, role: str) -> None:
    """A block over a sequential axis that reads what its steps before have written, maybe summing
    over it."""
    back, steps, n = m.pick(1, 1, 2), m.pick(2, 3, 4, 5), m.pick(1, 2, 3, 4, 6)
    low, high = 0 if m.dtype == "uint8" else -9, 9
    reduces = m.chance(3)
    buf = Buf(m.name("B"), (back + steps, n), m.dtype, role, low * 3 * reduces or low, 27)
    loops, axes, where = m.nest([(back, "S"), (n, "S")])
    first = clamp(m.value(axes, buf.dtype), low, high)
    store = Store(buf, tuple(map(m.var, axes)), first)
    m.add("b", loops=loops, axes=axes, stores=(store,), where=where)
    spans = [(steps, "Q"), (n, "S"), *([(m.pick(2, 3), "R")] * reduces)]
    loops, axes, where = m.nest(spans)
    t, v = m.var(axes[0]), m.var(axes[1])
    before = call("add", t, const(back - m.rng.randint(1, back)))
    # Elements of other columns are there once a step is done for all of them.
    first_is_step = loops[0].name in {x.args[0] for x in walk(axes[0].binding) if x.op == "axis"}
    column = m.index(n, axes[1:]) if first_is_step and m.chance(2) else v
    value: E = load(buf, before, column)
    if m.chance(3):
        other = call("add", t, const(back - 1))
        value = call(m.pick("add", "max", "min"), value, load(buf, other, v))
    value = call(m.pick("add", "sub", "mul", "max"), value, m.value(axes, buf.dtype))
    value = clamp(value, low, high)
    at = (call("add", t, const(back)), v)
    m.add(
        "q", loops=loops, axes=axes, stores=(Store(buf, at, value),), where=where,
        reducers=("sum",) if reduces else (),
    )  # fmt: skip
    m.made(buf, buf.low, buf.high)


PLANS: tuple[Callable[[Maker, str], None], ...] = (
    _whole, _whole, _parts, _parts, _over, _reduction, _reduction, _scatter, _scatter, _argmax,
    _several, _twice, _recurrence,
)  # fmt: skip


def random_program(rng: random.Random) -> Program:
    """A small program that is right, if this module is."""
    return Maker(rng).program()
