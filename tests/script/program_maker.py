"""Random programs of the loop IR: see `script_programs`."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from program_draws import Maker
from program_exprs import FLOATS, INTS, Buf, E, axis, call, clamp, const, limits, load, walk
from script_programs import Axis, Loop, Program, Store, identity


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


def _band(m: Maker, role: str) -> None:
    """A reduction over the points on one side of a line through spatial and reduction loops, into a
    buffer that has been filled: elements without a point keep what they held."""
    buf = Buf(m.name("B"), m.shape(), m.own_dtype(), role)
    reducer = m.pick("sum", "max", "min")
    init = m.chance(2)
    neutral = m.const_of(buf.dtype) if init else _neutral(reducer, buf.dtype)
    _fill(m, buf, neutral)
    loops, axes, where = m.nest([*((n, "S") for n in buf.shape), (m.pick(2, 3, 4), "R")])
    if where is None and m.chance(3):
        loops, axes, where = _beyond(m, loops, axes)
    if where is None:
        reduced = {e.args[0] for e in walk(axes[-1].binding) if e.op == "axis"}
        # The first point of a reduction stands at 0 of its loops.
        steps = [
            m.pick(1, 1, 2, 0) if init and x.name in reduced else m.pick(1, 1, 1, 2, 0, -1)
            for x in loops
        ]
        line = const(0)
        for x, c in zip(loops, steps, strict=True):
            line = call("add", line, call("mul", axis(x.name, x.extent), const(c)))
        where = call("lt", line, const(m.rng.randint(line.low, line.high) + 1))
    value = clamp(m.value(axes, buf.dtype), 0, 9)
    at = tuple(_moved(m, n, m.var(a)) for n, a in zip(buf.shape, axes, strict=False))
    m.add(
        "d", loops=loops, axes=axes, stores=(Store(buf, at, value),), where=where,
        reducers=(reducer,), init=init,
    )  # fmt: skip
    reach = [neutral.low, neutral.high, 0, 36]
    m.made(buf, *(limits(buf.dtype) if buf.dtype in INTS else (min(reach), max(reach))))


def _beyond(
    m: Maker, loops: tuple[Loop, ...], axes: tuple[Axis, ...]
) -> tuple[tuple[Loop, ...], tuple[Axis, ...], E | None]:
    """The loop of a spatial axis as one that goes on behind it, where a condition with the
    reduction axis ends it."""
    plain = [n for n, a in enumerate(axes) if a.kind == "S" and a.binding.op == "axis"]
    if not plain:
        return loops, axes, None
    n = m.rng.choice(plain)
    old, step = axes[n], axes[-1]
    name, extent = old.binding.args[0], old.extent + m.pick(1, 2, 6)
    there = axis(name, extent)
    loops = tuple(Loop(name, extent) if x.name == name else x for x in loops)
    axes = (*axes[:n], replace(old, binding=there), *axes[n + 1 :])
    if m.chance(3):
        end = const(old.extent - step.extent + 1)
        return loops, axes, call("lt", call("sub", there, step.binding), end)
    return loops, axes, call("lt", call("add", there, step.binding), const(old.extent))


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
    _several, _twice, _recurrence, _band,
)  # fmt: skip


def random_program(rng: random.Random) -> Program:
    """Some buffers, and stages by plans drawn from PLANS."""
    m = Maker(rng)
    m.dtype = m.pick("int32", "float32", "int64", "float32", "int8", "int16", "uint8", "float64")
    for _ in range(rng.choice((1, 1, 2))):
        dtype = m.dtype if rng.random() < 0.8 else m.pick(*INTS, *FLOATS)
        low = 0 if dtype == "uint8" else -4
        m.bufs.append(Buf(m.name("A"), m.shape(), dtype, "in", low))
    if rng.random() < 0.5:
        dtype = m.pick("int64", "int64", "int32", "int8", "uint8")
        m.bufs.append(Buf(m.name("I"), m.shape(), dtype, "index", *limits(dtype)))
    m.readable = list(m.bufs)
    results = rng.choice((1, 1, 1, 1, 2, 2, 3))
    for n in range(results):
        role = "out" if n == results - 1 or m.chance(3) else "tmp"
        plan = rng.choice(PLANS)
        m.kinds.append(plan.__name__.strip("_"))
        plan(m, role)
    params = [b for b in m.bufs if b.role != "tmp"]
    inner = [b for b in m.bufs if b.role == "tmp"]
    return Program(tuple(params), tuple(inner), tuple(m.stages), tuple(m.kinds))
