"""Integers that a model computes from sizes, as exact functions of the lengths.

The length of what strided layers make is computed a second time from the sizes of the input, as
(n - 1) / 2 + 1 where a mask or a range of positions is made for it. Both are the same `End`, so
that they agree at all lengths, not only at those that are read.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autosched.graph.dynamic.lengths import Axis, End, Flat, Grid, Lengths
from autosched.graph.infer import evaluate_operator
from autosched.graph.ir import Array, Atom, Call, Const

Count = int | End | None
"""A number, or one that follows from the lengths; None where that is not known."""
Atoms = Sequence[Atom | None]
"""A value in each reading."""
Forms = Array
"""Counts, in the shape of the constant."""

MOVES = frozenset({
    "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose",
    "Unsqueeze",
})  # fmt: skip


@dataclass
class Counts:
    """The counts of constants, by the id of the constant at the capacity."""

    grid: Grid
    degree: Callable[[Atoms], int | None]
    """As `Told.degree`."""
    known: dict[int, Forms] = field(default_factory=dict)

    def note(self, calls: Sequence[tuple[Call, Const]], args: Sequence[Forms | None]) -> bool:
        """Keep what calls in all readings make of arguments; whether all of it is known."""
        made = [const.value for _, const in calls]
        if made[0].dtype.kind not in "iub" or any(m.shape != made[0].shape for m in made):
            return False
        if any(call.attrs != calls[0][0].attrs for call, _ in calls):
            return False
        forms = self._made(calls[0][0], args)
        return forms is not None and self.keep(calls[0][1], forms, made)

    def keep(self, const: Const, forms: Forms, values: Sequence[Array]) -> bool:
        """Keep the counts of a constant with these values in the readings; whether all are known.
        What disagrees with them, as where integers overflow, is not kept."""
        if forms.shape != values[0].shape:
            return False
        rows = [v.astype(np.int64).ravel().tolist() for v in values]
        kept = np.empty(forms.size, object)
        for n, form in enumerate(forms.ravel()):
            if [at(form, p) for p in self.grid.points] == [r[n] for r in rows]:
                kept[n] = form
        self.known[id(const)] = kept.reshape(forms.shape)
        return all(form is not None for form in kept)

    def of(self, atoms: Atoms) -> Forms | None:
        """The counts of a constant in each reading; None where it is none."""
        found = self.known.get(id(atoms[0]))
        if found is not None:
            return found
        values = [a.value for a in atoms if isinstance(a, Const)]
        if len(values) < len(atoms) or values[0].dtype.kind not in "iub":
            return None
        if any(v.shape != values[0].shape for v in values) or self.degree(atoms) is None:
            return None
        return self.affine(values)

    def affine(self, values: Sequence[Array]) -> Forms | None:
        """The counts of integers that the readings tell."""
        found = self.grid.affine(values)
        if found is None:
            return None
        out = np.empty(found.start.size, object)
        for n, start in enumerate(found.start.ravel().tolist()):
            steps = [int(s.ravel()[n]) for s in found.steps]
            out[n] = sum_of(steps, start)
        return out.reshape(found.start.shape)

    def _made(self, call: Call, args: Sequence[Forms | None]) -> Forms | None:
        name = str(call.callee)
        if any(a is None for a in args):
            return None
        given = [a for a in args if a is not None]
        if name in MOVES:
            return _moved(call, given)
        if name == "Cast":
            return given[0] if call.attr("to") in ("int32", "int64") else None
        rule = _rules(self.grid).get(name)
        if rule is None or (name == "Mod" and call.attr("fmod")):
            return None
        found = np.frompyfunc(rule, len(given), 1)(*given)
        return found if isinstance(found, np.ndarray) else _scalar(found)


def at(form: Count, lengths: Lengths) -> int | None:
    """A count at these lengths."""
    return form.at(lengths) if isinstance(form, End) else form


def fixed(values: Array) -> Forms:
    """The counts of integers that are the same at all lengths."""
    return values.astype(np.int64).astype(object)


def sum_of(steps: Sequence[int], start: int) -> Count:
    """The sum of lengths, each times its step, and a number."""
    of = tuple(n for n, step in enumerate(steps) if step)
    if not of:
        return start
    times = {steps[n] for n in of}
    return End(of, start, times=times.pop()) if len(times) == 1 else None


def _scalar(form: Any) -> Forms:
    out = np.empty((), object)
    out[()] = form
    return out


def _moved(call: Call, args: Sequence[Forms]) -> Forms | None:
    """What an operator makes of the places of its arguments' elements."""
    every = np.concatenate([a.ravel() for a in args])
    ends = np.cumsum([a.size for a in args])
    places: list[Array] = [
        np.arange(end - a.size, end).reshape(a.shape) for a, end in zip(args, ends, strict=True)
    ]
    if call.callee == "Gather":
        index = args[1].ravel().tolist()
        if not all(isinstance(k, int) for k in index):
            return None
        places[1] = np.asarray(index, np.int64).reshape(args[1].shape)
    found = evaluate_operator(str(call.callee), places, dict(call.attrs), 1)[0]
    return every[found] if found.ndim else _scalar(every[int(found)])


def plus(x: Count, y: Count) -> Count:
    """x + y."""
    if x is None or y is None:
        return None
    if isinstance(y, int):
        return x + y if isinstance(x, int) else x.longer(y)
    if isinstance(x, int):
        return y.longer(x)
    if x.by != 1 or y.by != 1:
        return None
    steps = [0] * (1 + max(*x.of, *y.of))
    for end in (x, y):
        for n in end.of:
            steps[n] += end.times
    return sum_of(steps, x.more + y.more)


def minus(x: Count, y: Count) -> Count:
    """x - y."""
    if not isinstance(x, End) or not isinstance(y, End):
        return plus(x, times(y, -1))
    if x.by == y.by and x.of == y.of and x.times == y.times and (x.more - y.more) % x.by == 0:
        return (x.more - y.more) // x.by
    return plus(x, times(y, -1))


def times(x: Count, y: Count) -> Count:
    """x * y."""
    if isinstance(x, int):
        x, y = y, x
    if x is None or not isinstance(y, int):
        return None
    if isinstance(x, int):
        return x * y
    if y == 0:
        return 0
    return x if y == 1 else x.scaled(y) if x.by == 1 else None


def _rules(grid: Grid) -> Mapping[str, Callable[..., Count]]:
    """Of operators on each element, what they make of counts from the least to the capacity."""

    def sides(x: Count) -> tuple[int, int] | None:
        """The least and the largest: a count grows with all of its lengths, or falls."""
        low, high = at(x, grid.least), at(x, grid.capacity)
        return None if low is None or high is None else (min(low, high), max(low, high))

    def over(x: Count, y: Count) -> Count:
        found = sides(x)
        if found is None or not isinstance(y, int) or y == 0:
            return None
        if isinstance(x, int):
            return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert x is not None
        return x.windows(y, y) if found[0] >= 0 and y > 0 and x.times > 0 else None

    def rest(x: Count, y: Count) -> Count:
        if not isinstance(y, int) or y <= 0 or x is None:
            return None
        if isinstance(x, int):
            return x % y
        return x.more % y if x.by == 1 and x.times % y == 0 else None

    def compared(holds: Callable[[int, int], bool]) -> Callable[[Count, Count], Count]:
        def rule(x: Count, y: Count) -> Count:
            found = sides(minus(x, y))
            if found is None:
                return None
            low, high = found
            passes = holds is operator.eq and low < 0 < high
            return None if passes or holds(low, 0) != holds(high, 0) else int(holds(low, 0))

        return rule

    def larger(sign: int) -> Callable[..., Count]:
        def rule(x: Count, y: Count) -> Count:
            found = sides(minus(x, y))
            if found is None:
                return None
            low, high = (sign * n for n in found)
            return x if min(low, high) >= 0 else y if max(low, high) <= 0 else None

        return lambda *given: functools.reduce(rule, given)

    def chosen(c: Count, x: Count, y: Count) -> Count:
        return (x if c else y) if isinstance(c, int) else x if x == y else None

    def both(x: Count, y: Count) -> Count:
        return 0 if 0 in (x, y) else None if x is None or y is None else int(bool(x) and bool(y))

    def none(x: Count) -> Count:
        return int(not x) if isinstance(x, int) else None

    return {
        "Add": plus, "Sub": minus, "Mul": times, "Div": over, "Mod": rest, "Where": chosen,
        "Neg": lambda x: times(x, -1), "And": both, "Not": none,
        "Or": lambda x, y: none(both(none(x), none(y))),
        "Max": larger(1), "Min": larger(-1), "Equal": compared(operator.eq),
        "Greater": compared(operator.gt), "GreaterOrEqual": compared(operator.ge),
        "Less": compared(operator.lt), "LessOrEqual": compared(operator.le),
    }  # fmt: skip


def within(x: Axis | Count, y: Axis | Count, grid: Grid) -> bool:
    """Whether it is known that a count is never more than another."""
    if isinstance(x, Flat) or isinstance(y, Flat) or x is None or y is None:
        return False
    x, y = (End((), n) if isinstance(n, int) else n for n in (x, y))
    if x.of and y.of and x.of != y.of:
        return False
    # Numbers before they are rounded down are linear in the lengths, and rounding keeps an order.
    rest = x.by - 1 if y.by == 1 else 0
    return all(
        y.by * (x.times * sum(p[n] for n in x.of) + x.more - rest)
        <= x.by * (y.times * sum(p[n] for n in y.of) + y.more)
        for p in (grid.least, grid.capacity)
    )


def is_quotient(form: Count) -> bool:
    """Whether a count is divided: it does not grow by whole elements."""
    return isinstance(form, End) and form.by > 1


def step_of(forms: Forms) -> int:
    """The most that counts grow by for one element of a length."""
    return max(-(-abs(f.times) // f.by) for f in forms.ravel() if isinstance(f, End))
