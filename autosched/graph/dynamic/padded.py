"""A model for all lengths of an axis up to a capacity: what lies beyond the length is masked.

The model is read at three lengths: the capacity, one less, and the least that it shall serve; at
more where several lengths vary, or windows are counted (`lengths.Grid`). What is the same in all of
them does not depend on the length; a size that grows with it is an axis with padding. Every
operator is taken over at the capacity, with what it must not see of the padding masked by the
length, an input of the model (`rules`).

    reading N   x: (1, 64, 768)     q @ k: (64, 64)      softmax(q @ k)
    reading M   x: (1, 63, 768)     q @ k: (63, 63)      softmax(q @ k)
    made        x: (1, 64, 768)     q @ k: (64, 64)      softmax(where(j < length, q @ k, -inf))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autosched.graph import ops
from autosched.graph.builder import Value, function, var
from autosched.graph.dynamic.counts import Counts, Forms
from autosched.graph.dynamic.lengths import Axis, End, Flat, Grid, Lengths
from autosched.graph.dynamic.rules import rule_of
from autosched.graph.dynamic.sizes import Given, check_given, check_sizes, watched
from autosched.graph.dynamic.told import Told
from autosched.graph.dynamic.values import Ends, Masks, Padded, Step, op
from autosched.graph.errors import Unsupported
from autosched.graph.ir import Array, Atom, Call, Const, Function, Var, type_of
from autosched.graph.onnx_import.scope import Origins
from autosched.graph.types import TensorType


@dataclass(frozen=True)
class Reading:
    """The function of a model at some lengths, and how each of its values is computed."""

    main: Function
    makers: Mapping[int, tuple[Call, int]]
    sizes: tuple[tuple[Call, Const], ...]
    """What was computed from sizes, and by functions that readings do not tell."""
    given: Given

    @staticmethod
    def of(main: Function, origins: Origins) -> Reading:
        """`origins` as the import notes them. Raises Unsupported for a function with control
        flow."""
        makers = {n: (c, i) for n, (c, i, _) in origins.made.items()}
        for b in main.body.bindings:
            if not isinstance(b.value, Call) or not isinstance(b.value.callee, str):
                raise Unsupported(f"{type(b.value).__name__} is not padded")
            makers.update((id(v), (b.value, n)) for n, v in enumerate(b.vars))
        return Reading(main, makers, watched(origins), origins.given)


@dataclass(frozen=True)
class Cut:
    """How many elements of each axis of a result count; and whether zeros lie beyond."""

    ends: Ends
    zero: bool

    def __call__(self, whole: Array, lengths: Lengths) -> Array:
        """A result without its padding."""
        if not any(isinstance(e, Flat) for e in self.ends):
            return whole[_first(self.ends, lengths)]
        parts = [
            part
            for size, end in zip(whole.shape, self.ends, strict=True)
            for part in (end.parts if isinstance(end, Flat) else ((size, end),))
        ]
        found = whole.reshape([n for n, _ in parts])[_first([e for _, e in parts], lengths)]
        return found.reshape(
            [n if e is None else e.at(lengths) for n, e in zip(whole.shape, self.ends, strict=True)]
        )


def _first(ends: Sequence[Axis], lengths: Lengths) -> tuple[slice, ...]:
    return tuple(slice(None if e is None else e.at(lengths)) for e in ends)


Atoms = tuple[Atom, ...]
"""A value in each reading."""


@dataclass
class Padding:
    """Makes the function at the capacity out of the readings at the points of a grid."""

    grid: Grid
    readings: Sequence[Reading]
    made: dict[int, Padded] = field(default_factory=dict)
    bound: dict[int, tuple[Var, ...]] = field(default_factory=dict)
    """The results of the calls of all readings, by id."""

    def __post_init__(self) -> None:
        self.masks = Masks.over(self.grid)
        self.told = Told([r.makers for r in self.readings])
        self.counts = Counts(self.grid, self.told.degree)
        for r in self.readings:
            self.bound.update((id(b.value), b.vars) for b in r.main.body.bindings)

    def _sizes(self, atoms: Sequence[Atom | None]) -> Forms:
        """The counts of the sizes of a value: those that the readings do not tell as it is
        padded."""
        shapes = [() if a is None else _shape(a) for a in atoms]
        if len(set(map(len, shapes))) != 1:
            raise Unsupported("a number of axes depends on the length")
        forms = np.empty(len(shapes[0]), object)
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            found = self.counts.affine([np.asarray(n) for n in sizes])
            if found is not None:
                forms[axis] = found[()]
                continue
            end = self.atom(tuple(a for a in atoms if a is not None)).ends[axis]
            forms[axis] = None if isinstance(end, Flat) else sizes[0] if end is None else end
        return forms

    def function(self) -> tuple[Function, tuple[Cut, ...]]:
        """The function, whose last inputs are the lengths, and where its results end. Raises
        Unsupported, naming the operator, for what cannot be padded."""
        mains = [r.main for r in self.readings]
        outs = list(zip(*(m.body.results for m in mains), strict=True))
        params = []
        for atoms in zip(*(m.params for m in mains), strict=True):
            value, padded = self._param(atoms, outs)
            self.made[id(atoms[0])] = padded
            params.append(value)
        check_sizes(self.counts, self.told.known, [r.sizes for r in self.readings], self._sizes)
        check_given(self.counts, [r.given for r in self.readings], [r.sizes for r in self.readings])
        results = [self.atom(a) for a in outs]
        made = function([*params, *self.masks.lengths], [r.value for r in results])
        attrs = dict(mains[0].attrs)
        attrs["inputs"] = (*attrs["inputs"], *(p.name for p in made.params[len(params) :]))
        done = Function("main", made.params, made.body, tuple(sorted(attrs.items())))
        return done, tuple(Cut(r.ends, r.zero >= set(r.axes)) for r in results)

    @property
    def period(self) -> int:
        """After how many elements numbers of windows repeat, each of them so many more: the least
        common multiple of their strides."""
        ends = [end for padded in self.made.values() for end in padded.ends]
        parts = [e for end in ends if isinstance(end, Flat) for _, e in end.parts]
        return math.lcm(*(e.by for e in (*ends, *parts) if isinstance(e, End)))

    def _param(self, atoms: Sequence[Var], outs: Sequence[Atoms]) -> tuple[Value, Padded]:
        """An input, and what the model sees of it. One that a result continues, as the next
        call's cache does, is as long as that: the result is taken as it lies."""
        ends, shape = self.ends(atoms), list(_shape(atoms[0]))
        zero = frozenset(n for n, end in enumerate(ends) if end is not None)
        more, axis = max((self._continued(atoms, ends, o) for o in outs), default=(0, 0))
        if not more:
            value = Value(atoms[0])
            return value, Padded(value, ends, zero)
        size = shape[axis]
        shape[axis] += more
        wider = var(atoms[0].name, shape, _tensor(atoms[0]).dtype)
        value = op("Slice", wider, starts=(0,), ends=(size,), axes=(axis,), steps=(1,))
        return wider, Padded(value, ends, zero, wider)

    def _continued(self, param: Sequence[Var], ends: Ends, out: Atoms) -> tuple[int, int]:
        """By how many elements a result has more than an input along the one axis in which they
        differ, at all lengths, and that axis; 0 where they differ otherwise."""
        if _tensor(param[0]).dtype != _tensor(out[0]).dtype:
            return 0, 0
        pairs = [(_shape(a), _shape(b)) for a, b in zip(param, out, strict=True)]
        if any(len(a) != len(b) for a, b in pairs):
            return 0, 0
        more = {tuple(m - n for n, m in zip(*pair, strict=True)) for pair in pairs}
        differ = [(m, axis) for axis, m in enumerate(more.pop()) if m]
        if more or len(differ) != 1 or ends[differ[0][1]] is None:
            return 0, 0
        return max(differ[0], (0, 0))

    def atom(self, atoms: Atoms) -> Padded:
        """A value; what it is computed from first."""
        stack = [(atoms, False)]
        while stack:
            at, ready = stack.pop()
            if id(at[0]) in self.made:
                continue
            found = None if ready else self._constant(at)
            if found is not None:
                self.made[id(at[0])] = found
                continue
            calls = self._calls(at)
            args = list(zip(*(c.args for c in calls), strict=True))
            if ready:
                self._take(at, calls, args)
                continue
            stack.append((at, True))
            for arg in args:
                if all(a is None for a in arg):
                    continue
                if any(a is None for a in arg):
                    raise Unsupported(f"{calls[0].callee}: an input depends on the length")
                stack.append((arg, False))
        return self.made[id(atoms[0])]

    def _calls(self, atoms: Atoms) -> tuple[Call, ...]:
        """The calls that compute a value. Raises Unsupported where they differ in more than
        attributes."""
        found = [r.makers.get(id(a)) for r, a in zip(self.readings, atoms, strict=True)]
        if any(f is None for f in found):
            name = getattr(atoms[0], "name", "a constant")
            raise Unsupported(f"{name} depends on the length in a way that is not padded")
        calls = tuple(f[0] for f in found if f is not None)
        if len({(f[0].callee, f[1]) for f in found if f is not None}) != 1:
            raise Unsupported(f"{calls[0].callee}: other operators at other lengths")
        if len({len(c.args) for c in calls}) != 1:
            raise Unsupported(f"{calls[0].callee}: other inputs at other lengths")
        return calls

    def _take(self, atoms: Atoms, calls: tuple[Call, ...], args: list[Any]) -> None:
        """Apply the rule of a call."""
        own = self.readings[0].makers[id(atoms[0])][1]
        outs = [self._results(r, c, a) for r, c, a in zip(self.readings, calls, atoms, strict=True)]
        numbers = sorted(outs[0])
        if any(sorted(o) != numbers for o in outs):
            raise Unsupported(f"{calls[0].callee}: other results at other lengths")
        given = tuple(None if a[0] is None else self.made[id(a[0])] for a in args)
        shapes = tuple(
            tuple(() if a[k] is None else _shape(a[k]) for a in args) for k in range(len(calls))
        )
        made = tuple(tuple(_shape(o[n]) for o in outs) for n in numbers)
        if any(len(set(map(len, m))) != 1 for m in made):
            raise Unsupported("a number of axes depends on the length")
        step = Step(self.grid, calls, given, shapes, made, self._forms(calls))
        results = rule_of(step)(self.masks, step)
        for n, p in zip(numbers, results, strict=True):
            self.made[id(outs[0][n])] = p
        assert own in numbers

    def _forms(self, calls: tuple[Call, ...]) -> dict[str, Forms]:
        """The counts of attributes that were arguments, where they are known."""
        given = [r.given.get(id(c)) for r, c in zip(self.readings, calls, strict=True)]
        if any(g is None for g in given):
            return {}
        args = zip(*(g[1] for g in given if g is not None), strict=True)
        names = ops.find(str(calls[0].callee)).static
        found = {names[n]: self.counts.of(atoms) for n, atoms in enumerate(args) if n in names}
        return {name: forms for name, forms in found.items() if forms is not None}

    def _results(self, reading: Reading, made: Call, atom: Atom) -> dict[int, Atom]:
        """The results of a call by their numbers, those that were computed early one by one."""
        if isinstance(atom, Const):
            return {reading.makers[id(atom)][1]: atom}
        return dict(enumerate(self.bound[id(made)]))

    def ends(self, atoms: Sequence[Atom]) -> Ends:
        """Which axes of a value grow with the lengths, and how. Raises Unsupported for an axis
        that grows otherwise than by one element for each of a length."""
        shapes = [_shape(a) for a in atoms]
        if len({len(s) for s in shapes}) != 1:
            raise Unsupported("a number of axes depends on the length")
        return tuple(self.grid.end(sizes) for sizes in zip(*shapes, strict=True))

    def _tried(self, atoms: Atoms) -> Ends | None:
        """Which axes of a constant grow; None where they do otherwise, which its maker says."""
        try:
            return self.ends(atoms)
        except Unsupported:
            if all(id(a) in r.makers for a, r in zip(atoms, self.readings, strict=True)):
                return None
            raise

    def _constant(self, atoms: Atoms) -> Padded | None:
        """A constant: the same at all lengths, the beginning of one, or integers that grow with
        the length; None for others."""
        arrays = [a.value for a in atoms if isinstance(a, Const)]
        if len(arrays) < len(atoms):
            return None
        if all(a is atoms[0] for a in atoms):
            return Padded(Value(atoms[0]), (None,) * arrays[0].ndim)
        if len({a.ndim for a in arrays}) != 1 or self.told.degree(atoms) is None:
            return None
        a, *others = arrays
        if all(_is_beginning(a, b) for b in others):
            ends = self._tried(atoms)
            return None if ends is None else Padded(Value(atoms[0]), ends)
        if a.dtype.kind not in "iu" or any(b.shape != a.shape for b in others):
            return None
        grown = self.grid.affine(arrays)
        if grown is None:
            return None
        return Padded(self.masks.affine(grown, a.dtype.name), (None,) * a.ndim)


def _tensor(a: Atom) -> TensorType:
    t = type_of(a)
    if not isinstance(t, TensorType) or not t.is_static:
        raise Unsupported(f"{getattr(a, 'name', 'a value')} has no shape that is known")
    return t


def _shape(a: Atom) -> tuple[int, ...]:
    return tuple(int(n) for n in _tensor(a).known)


def _is_beginning(a: Array, b: Array) -> bool:
    """Whether b is what stands at the lower indices of a."""
    if b is a:
        return True
    if a.dtype != b.dtype or any(m > n for n, m in zip(a.shape, b.shape, strict=True)):
        return False
    return np.array_equal(a[tuple(slice(m) for m in b.shape)], b, equal_nan=a.dtype.kind == "f")
