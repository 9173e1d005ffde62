"""Some elements of a program's results, computed by the interpreter's rules from the inputs alone.

    Sample(func, arrays, allowance).values(buffer, indices)

An element is traced back to the points that write it, these to the elements that they read, and so
on to the inputs: only that part of each block is evaluated, by whole arrays. The points that write
an element are found from its indices where these tell the loops, one after the other; loops that
they do not tell are gone through. What a block reads is taken to be what is there in the end, which
is what it means in a program that the verifier takes: nothing is written again after it was read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Expr, Var, walk
from autosched.tir.interp import Array, as_int, at_sizes, poison
from autosched.tir.nodes import Access, Buffer, PrimFunc, Site, sites
from autosched.tir.region import common_loops
from autosched.tir.whole import UFUNCS, Values

MAX_DEPTH = 40
"""Blocks that an element is traced back through: each is a dozen calls deep."""
REMEMBERED = 1 << 24
"""Elements of an intermediate that are kept once they are known."""
POINT, BLOCK = 12, 30_000
"""Work of finding one point, and of looking at a block at all, in operations of an expression."""


class Beyond(Exception):
    """The elements take more work than is allowed."""


@dataclass
class _Known:
    """What is known of an intermediate or a result already."""

    value: Array
    state: Array
    """Of each element: 0 not known, 1 known, 2 known to be written by nothing."""


@dataclass
class Sample:
    """Computes elements; `left` is the work that is still allowed, in operations on one point."""

    func: PrimFunc
    arrays: Sequence[Array]
    left: int
    unwritten: bool = False
    """Whether something was asked for that nothing writes."""
    _depth: int = 0
    _writers: dict[int, list[Site]] = field(default_factory=dict)
    _inputs: dict[int, Array] = field(default_factory=dict)
    _known: dict[int, _Known] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.func = at_sizes(self.func, self.arrays)
        for site in sites(self.func):
            for b in dict.fromkeys(a.buffer for a in site.block.writes):
                self._writers.setdefault(id(b), []).append(site)
        for b, array in zip(self.func.params, self.arrays, strict=True):
            if id(b) not in self._writers:
                self._inputs[id(b)] = array

    def spend(self, work: int) -> None:
        """Raise Beyond if so much work is not left."""
        self.left -= work
        if self.left < 0:
            raise Beyond

    def values(self, buffer: Buffer, at: tuple[Array, ...]) -> Array:
        """The elements of a buffer at these indices, arrays of one length. Raises Beyond."""
        if id(buffer) in self._inputs:
            found: Array = self._inputs[id(buffer)][at]
            return found
        shape = tuple(as_int(n) for n in buffer.shape)
        flat = np.ravel_multi_index(at, shape) if shape else np.zeros(len(at[0]) if at else 1, int)
        wanted, back = np.unique(flat, return_inverse=True)
        values: Array = self._distinct(buffer, shape, wanted)[back.reshape(-1)]
        return values

    def _distinct(self, buffer: Buffer, shape: tuple[int, ...], wanted: Array) -> Array:
        size = int(np.prod(shape, dtype=np.int64))
        if size > REMEMBERED:
            return self._fresh(buffer, shape, wanted)[0]
        known = self._known.get(id(buffer))
        if known is None:
            known = _Known(
                np.zeros(size, dtypes.array_dtype(buffer.dtype)), np.zeros(size, np.int8)
            )
            self._known[id(buffer)] = known
        new = wanted[known.state[wanted] == 0]
        if len(new):
            values, written = self._fresh(buffer, shape, new)
            known.value[new], known.state[new] = values, np.where(written, 1, 2)
        self.unwritten |= bool((known.state[wanted] == 2).any())
        found: Array = known.value[wanted]
        return found

    def _fresh(self, buffer: Buffer, shape: tuple[int, ...], wanted: Array) -> tuple[Array, Array]:
        """(values, whether anything writes them) of elements, each asked for once."""
        writers = self._writers.get(id(buffer), [])
        if self._depth >= MAX_DEPTH or not _in_order(writers):
            raise Beyond
        self._depth += 1
        try:
            elements = tuple(np.unravel_index(wanted, shape)) if shape else ()
            values, written = self.after(writers, buffer, elements, len(wanted))
        finally:
            self._depth -= 1
        self.unwritten |= not written.all()
        return values, written

    def after(
        self, writers: Sequence[Site], buffer: Buffer, elements: tuple[Array, ...], count: int
    ) -> tuple[Array, Array]:
        """(values, whether they are written) of elements once these blocks have run."""
        values = np.full(count, poison(buffer.dtype), dtypes.array_dtype(buffer.dtype))
        written = np.zeros(count, bool)
        for site in writers:
            for n, access in enumerate(site.block.writes):
                if access.buffer is buffer:
                    _Writer(self, site, n).apply(elements, values, written)
        return values, written

    def before(self, site: Site, buffer: Buffer, at: tuple[Array, ...]) -> Array:
        """Elements of a buffer as a block finds them that writes them as well."""
        writers = self._writers[id(buffer)]
        place = next(n for n, s in enumerate(writers) if s.block is site.block)
        return self.after(writers[:place], buffer, at, len(at[0]) if at else 1)[0]


def _in_order(writers: Sequence[Site]) -> bool:
    """Whether all points of one block come before those of the next that name the same element: the
    blocks share no loops, or all but the first add to what is there."""
    return all(
        (s.block.reducer is not None and not s.block.init) or not common_loops([s, before])
        for n, s in enumerate(writers)
        for before in writers[:n]
    )


class _Writer(Values):
    """Write number `number` of a block, at the points that name the elements asked for."""

    def __init__(self, sample: Sample, site: Site, number: int) -> None:
        super().__init__(site.block, {})
        self.sample, self.site, self.number = sample, site, number
        self.extents = {x.var: as_int(x.extent) for x in site.loops}
        self.loops: dict[Var, Array] = {}
        self.size = 0

    def apply(self, elements: Sequence[Array], values: Array, written: Array) -> None:
        """Bring `values` of the elements up to date with what the block does to them."""
        block, reducer = self.block, self.block.reducer
        self.sample.spend(BLOCK)
        row = self.points(elements, len(values))
        if not len(row):
            return
        self.sample.spend(len(row) * sum(1 for e in block.body for _ in walk(e)))
        new = [
            np.broadcast_to(np.asarray(self.expr(e, None)), row.shape).astype(
                dtypes.array_dtype(e.dtype)
            )
            for e in (block.body if reducer is not None else [block.body[self.number]])
        ]
        if reducer is None:
            last = self.last(row)
            values[row[last]] = new[0][last]
            written[row] = True
            return
        ufunc = UFUNCS.get(reducer.name)
        if ufunc is not None:
            starts = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
            rows, exact = row[starts], new[0]
            if exact.dtype.kind == "f":
                exact = exact.astype(np.float64)
            total = ufunc.reduceat(exact, starts)
            if not block.init:
                total = ufunc(values[rows].astype(exact.dtype), total)
            values[rows] = total.astype(values.dtype)
        else:
            one, combined = self.folded(row, new)
            rows, old = row[one], []
            places = [self.element(a, None) for a in block.writes]
            for access, e, at in zip(block.writes, reducer.identity, places, strict=True):
                if block.init:
                    old.append(np.full(len(rows), e.value, e.dtype))  # type: ignore[attr-defined]
                else:
                    theirs = tuple(np.broadcast_to(i, row.shape)[one] for i in at)
                    old.append(self.sample.before(self.site, access.buffer, theirs))
            values[rows] = self.combine(old, combined)[self.number]
        written[rows] = True

    def points(self, elements: Sequence[Array], count: int) -> Array:
        """Find the points that write the elements: `values` of the axes become theirs. Returns the
        number of the element of each, ascending."""
        block, access = self.block, self.block.writes[self.number]
        axes = block.values()
        row = np.arange(count)
        known: dict[Var, Array] = {}
        equations: list[tuple[Affine, Array]] = []
        for index, wanted in zip(access.indices, elements, strict=True):
            if isinstance(index, Affine):
                equations.append((index.substitute(axes, self.extents), wanted))
        predicates = list(block.predicates)
        while True:
            keep = np.ones(len(row), bool)
            for form, wanted in list(equations):
                solved = self.solve(form, wanted[row], known, keep)
                if solved is not None:
                    known.update(solved)
                    equations = [e for e in equations if e[0] is not form]
            for p in list(predicates):
                if set(p.form.variables()) <= set(known):
                    keep &= np.broadcast_to(p.form.evaluate(known) < as_int(p.bound), keep.shape)
                    predicates = [q for q in predicates if q is not p]
            if not keep.all():
                row, known = row[keep], {v: x[keep] for v, x in known.items()}
            open_ = [v for v in self.extents if v not in known]
            if not open_ or not len(row):
                break
            row, known = self.through(self.choice(open_, equations), row, known)
        if not len(row):
            return row
        self.size = len(row)
        self.values = {
            it.var: np.broadcast_to(np.asarray(binding.evaluate(known)), row.shape)
            for it, binding in zip(block.iters, block.bindings, strict=True)
        }
        hits = np.ones(len(row), bool)
        for index, wanted in zip(access.indices, elements, strict=True):
            if isinstance(index, Expr):
                self.sample.spend(len(row) * sum(1 for _ in walk(index)))
                hits &= np.broadcast_to(self.expr(index, None), hits.shape) == wanted[row]
        self.values = {v: x[hits] for v, x in self.values.items()}
        self.loops = {v: x[hits] for v, x in known.items()}
        self.size = int(hits.sum())
        return row[hits]

    def choice(self, open_: Sequence[Var], equations: Sequence[tuple[Affine, Array]]) -> Var:
        """The loop to go through next: the shortest of those that stand in an equation, since it
        may tell others."""
        used = {v for form, _ in equations for v in form.variables()}
        return min(open_, key=lambda v: (v not in used, self.extents[v]))

    def through(
        self, v: Var, row: Array, known: dict[Var, Array]
    ) -> tuple[Array, dict[Var, Array]]:
        """Every point once for each value of a loop."""
        n = self.extents[v]
        self.sample.spend(len(row) * n * POINT)
        out = {w: np.repeat(x, n) for w, x in known.items()}
        out[v] = np.tile(np.arange(n), len(row))
        return np.repeat(row, n), out

    def solve(
        self, form: Affine, wanted: Array, known: dict[Var, Array], keep: Array
    ) -> dict[Var, Array] | None:
        """The loops that `form == wanted` tells, where what is known of the others leaves one
        value each; None where it does not. Points without any are left out of `keep`."""
        inside: list[tuple[Var, int]] = []
        rest = wanted - as_int(form.const)
        for atom, c in form.terms:
            one = Affine(0, ((atom, c),))
            if all(v in known for v in one.variables()):
                rest = rest - one.evaluate(known)
            elif isinstance(atom, Var) and not any(atom is a for a, _ in inside):
                inside.append((atom, as_int(c)))
            else:
                return None
        inside.sort(key=lambda t: abs(t[1]), reverse=True)
        # In mixed radix: what is below a coefficient cannot reach it. Mirrored digits are counted
        # from their other end.
        reach = [abs(c) * (self.extents[v] - 1) for v, c in inside]
        if any(abs(c) <= sum(reach[n + 1 :]) for n, (_, c) in enumerate(inside)):
            return None
        out: dict[Var, Array] = {}
        rest = rest - sum(c * (self.extents[v] - 1) for v, c in inside if c < 0)
        for v, c in inside:
            digit = rest // abs(c)
            rest = rest - digit * abs(c)
            keep &= (digit >= 0) & (digit < self.extents[v])
            out[v] = np.clip(
                digit if c > 0 else self.extents[v] - 1 - digit, 0, self.extents[v] - 1
            )
        keep &= rest == 0
        return out

    def last(self, row: Array) -> Array:
        """Of the points of each element the last in the order of the program."""
        order = np.zeros(len(row), np.int64)
        for v, n in self.extents.items():
            order = order * n + self.loops[v]
        by = np.lexsort((order, row))
        ends = np.r_[row[by][1:] != row[by][:-1], True]
        found: Array = by[ends]
        return found

    def load(self, access: Access, mask: Array | None) -> Any:
        """The elements that an access names, traced back."""
        size = self.size
        at = tuple(np.broadcast_to(i, (size,)) for i in self.element(access, mask))
        if mask is None:
            return self.sample.values(access.buffer, at)
        taken = np.broadcast_to(mask, (size,))
        out = np.zeros(size, dtypes.array_dtype(access.buffer.dtype))
        if taken.any():
            out[taken] = self.sample.values(access.buffer, tuple(i[taken] for i in at))
        return out
