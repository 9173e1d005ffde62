"""A program that has not been scheduled, evaluated by whole arrays: an answer fast."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from autosched.errors import VerifyError
from autosched.tir import dtypes
from autosched.tir.affine import Affine, always
from autosched.tir.apart import injective
from autosched.tir.contract import contract, view_of
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.interp import Array, as_int, at_sizes, bind, constant
from autosched.tir.nodes import Access, Block, PrimFunc, Site, foreign, sites
from autosched.tir.operations import CONVERSIONS, OPS
from autosched.tir.printer import Names, format_access
from autosched.tir.scatter import scatters

CHUNK_BYTES = 64 << 20
"""Memory that one evaluation may take, roughly."""
UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
"""What NumPy has for a known reducer."""


def reference(func: PrimFunc, arrays: Sequence[Array], blas: bool = False) -> None:
    """Evaluate an unscheduled `func`, as te.create_prim_func makes it, on `arrays` in place.

    Each block is evaluated over whole arrays, in pieces of about 64 MiB. Sums are NumPy's: pairwise
    and so at least as accurate as in program order. With `blas`, which may start threads, sums of
    products are products of matrices: fast, and in the order of the library.
    Raises ArgumentError if the arrays do not fit, VerifyError if an access is out of bounds or if
    `func` has been scheduled.
    """
    func = at_sizes(func, arrays)
    memory = bind(func, arrays)
    with np.errstate(all="ignore"):
        for node in func.body:
            value = foreign(node)
            if value is not None and isinstance(node, Block):
                value.run(node, memory)
                continue
            found = [_checked(site) for site in sites(node)]
            steps = _steps(found)
            for step in range(steps or 1):
                for block in found:
                    if blas and not steps and contract(block, memory):
                        continue
                    _Whole(block, memory, step if steps else None).run()


def _checked(site: Site) -> Block:
    """The block of a plain nest: one loop an axis, in order, and nothing beside it but other
    stages of the same recurrence."""
    block, loops = site.block, site.loops
    bound = [b.single_var() for b in block.bindings]
    stepwise = [i.kind == "sequential" for i in block.iters]
    plain = (
        not block.predicates
        and len(bound) == len(loops)
        and all(b is loop.var for b, loop in zip(bound, loops, strict=True))
        and all(i.extent == x.extent for i, x in zip(block.iters, loops, strict=True))
        and not any(stepwise[1:])
        and all(len(x.body) == 1 or step for x, step in zip(loops, stepwise, strict=True))
    )
    if not plain:
        raise VerifyError(
            f"block {block.name} has been scheduled; whole.reference evaluates plain loop nests, "
            "use interp.run"
        )
    if block.init and scatters(block):
        raise VerifyError(
            f"block {block.name} sets one of the elements that it combines into at its first "
            "point; use interp.run"
        )
    written = {id(a.buffer) for a in block.writes}
    if any(id(a.buffer) in written for a in block.reads) and not any(stepwise):
        raise VerifyError(
            f"block {block.name} reads what it writes, so its points have an order; use interp.run"
        )
    return block


def _meets(block: Block) -> bool:
    """Whether spatial points may combine in one element, so that none may stand for the others."""
    if block.reducer is None or block.init:
        return False
    extents = {it.var: it.extent for it in block.iters}
    spatial = [it.var for it in block.iters if it.kind == "spatial"]
    forms = [[i for i in a.indices if isinstance(i, Affine)] for a in block.writes]
    return not all(always(injective(f, spatial, extents)) for f in forms)


def _steps(blocks: Sequence[Block]) -> int:
    """Steps of the recurrence that the blocks of one nest make up; 0 if they are none."""
    first = [b.iters[0] for b in blocks if b.iters and b.iters[0].kind == "sequential"]
    return as_int(first[0].extent) if first else 0


class Values:
    """Expressions of a block at many points at once: `values` holds an array for each axis."""

    def __init__(self, block: Block, memory: dict[int, Array]) -> None:
        self.block = block
        self.memory = memory
        self.values: dict[Var, Array] = {}

    def load(self, access: Access, mask: Array | None) -> Any:
        """The elements that an access names."""
        return self.memory[id(access.buffer)][self.element(access, mask)]

    def combine(self, old: list[Array], new: list[Array]) -> list[Array]:
        """The reducer on two tuples of arrays."""
        reducer = self.block.reducer
        assert reducer is not None
        self.values.update(zip(reducer.lhs, old, strict=True))
        self.values.update(zip(reducer.rhs, new, strict=True))
        return [np.asarray(self.expr(e, None), e.dtype) for e in reducer.combine]

    def folded(self, number: Array, values: list[Array]) -> tuple[Array, list[Array]]:
        """What the points of each group come to, by the reducer: (a point of the group, in the
        order of the groups; the combined values). `number` is each point's group."""
        at = np.argsort(number, kind="stable")
        left, number = [v[at] for v in values], number[at]
        while (same := number[1:] == number[:-1]).any():
            count = np.arange(len(number))
            start = np.maximum.accumulate(np.where(np.r_[True, ~same], count, 0))
            keep = (count - start) % 2 == 0
            both = np.flatnonzero(keep & np.r_[same, False])
            pairs = self.combine([v[both] for v in left], [v[both + 1] for v in left])
            for v, new in zip(left, pairs, strict=True):
                v[both] = new
            left, number, at = [v[keep] for v in left], number[keep], at[keep]
        return at, left

    def element(self, access: Access, mask: Array | None) -> tuple[Array, ...]:
        """Index arrays of an access; where `mask` is False they are clipped, elsewhere checked."""
        out = []
        for n, index in enumerate(access.indices):
            extent = as_int(access.buffer.shape[n])
            at = np.asarray(
                index.evaluate(self.values) if isinstance(index, Affine) else self.expr(index, mask)
            )
            bad = (at < 0) | (at >= extent)
            if bad.any():
                if mask is None or (bad & mask).any():
                    text = format_access(access, Names(), self.block.reads)
                    raise VerifyError(
                        f"block {self.block.name}: {text} is out of bounds: index {n} takes "
                        f"values from {at.min()} to {at.max()}, extent {extent}"
                    )
                at = np.clip(at, 0, extent - 1)
            out.append(at)
        return tuple(out)

    def expr(self, e: Expr, mask: Array | None) -> Any:
        """Value of an expression everywhere; only where `mask` holds must it mean something."""
        if isinstance(e, Var):
            return self.values[e]
        if isinstance(e, Const):
            return constant(e.value, e.dtype)
        if isinstance(e, Slot):
            return self.load(self.block.reads[e.index], mask)
        if not isinstance(e, Call):
            raise VerifyError(f"{e!r} is no expression of the loop IR")
        if e.op == "if_then_else":
            taken = np.asarray(self.expr(e.args[0], mask))
            both = (taken, ~taken) if mask is None else (taken & mask, ~taken & mask)
            yes, no = (self.expr(x, m) for x, m in zip(e.args[1:], both, strict=True))
            return np.where(taken, yes, no)
        args = [self.expr(a, mask) for a in e.args]
        if e.op in CONVERSIONS:
            return dtypes.converted(args[0], e.args[0].dtype, e.dtype, e.op)
        return OPS[e.op].numpy(*args)


class _Whole(Values):
    """One block of an unscheduled program: dimension n of every array is axis n of the block.

    `step`: the value of its sequential axis, which is the first.
    """

    def __init__(self, block: Block, memory: dict[int, Array], step: int | None) -> None:
        super().__init__(block, memory)
        self.step = step
        self.extents = [as_int(i.extent) for i in block.iters]
        self.ranges: tuple[range, ...] = ()
        self.views: dict[int, Array | None] = {}
        self.reduced = tuple(n for n, i in enumerate(block.iters) if i.kind == "reduce")

    def run(self) -> None:
        """Evaluate it everywhere."""
        for ranges in self.pieces():
            rank, self.ranges = len(ranges), ranges
            for n, (it, r) in enumerate(zip(self.block.iters, ranges, strict=True)):
                shape = [1] * rank
                shape[n] = len(r)
                self.values[it.var] = np.arange(r.start, r.stop, dtype=np.int64).reshape(shape)
            self.piece([len(r) for r in ranges], all(ranges[n].start == 0 for n in self.reduced))

    def pieces(self) -> Iterator[tuple[range, ...]]:
        """Boxes that cover the axes, reduction axes innermost."""
        sizes = list(self.extents)
        if self.step is not None:
            sizes[0] = 1
        for n in range(len(sizes)):
            while sizes[n] > 1 and np.prod(sizes, dtype=float) * 32 > CHUNK_BYTES:
                sizes[n] = -(-sizes[n] // 2)
        yield from itertools.product(
            *(
                [range(self.step, self.step + 1)]
                if self.step is not None and n == 0
                else [range(at, min(at + size, extent)) for at in range(0, extent, size)]
                for n, (size, extent) in enumerate(zip(sizes, self.extents, strict=True))
            )
        )

    def load(self, access: Access, mask: Array | None) -> Any:
        """The elements that an access names: a view where it is in bounds at all points."""
        if id(access) not in self.views:
            self.views[id(access)] = self._view(access)
        view = self.views[id(access)]
        return super().load(access, mask) if view is None else view[self._piece_of(view)]

    def _view(self, access: Access) -> Array | None:
        """What an access names at all points, with a dimension for each axis of the block."""
        variables = [i.var for i in self.block.iters]
        found = view_of(
            access, self.memory[id(access.buffer)], dict(zip(variables, self.extents, strict=True))
        )
        if found is None:
            return None
        axes, view = found
        number = {v: n for n, v in enumerate(axes)}
        at = tuple(slice(None) if v in number else None for v in variables)
        return view.transpose([number[v] for v in variables if v in number])[at]

    def _piece_of(self, view: Array) -> tuple[slice, ...]:
        """The part of a view that the piece has."""
        return tuple(
            slice(r.start, r.stop) if n == whole and n > 1 else slice(None)
            for n, whole, r in zip(view.shape, self.extents, self.ranges, strict=True)
        )

    def piece(self, shape: list[int], first: bool) -> None:
        """Evaluate one box of points."""
        block = self.block
        if scatters(block) or _meets(block):
            self.scatter(shape)
            return
        kept = [1 if n in self.reduced else size for n, size in enumerate(shape)]
        results = [
            np.broadcast_to(np.asarray(self.expr(e, None), dtypes.array_dtype(e.dtype)), shape)
            for e in block.body
        ]
        targets = [self._target(a, kept) for a in block.writes]
        if block.reducer is not None:
            if first and block.init:
                old = [
                    np.full(kept, e.value, e.dtype)  # type: ignore[attr-defined]
                    for e in block.reducer.identity
                ]
            else:
                old = [a[at] for a, at in targets]
            results = self.reduce(old, results)
        for (array, at), result in zip(targets, results, strict=True):
            array[at] = result if at else result.reshape(-1)[-1]

    def _target(self, access: Access, kept: list[int]) -> tuple[Array, Any]:
        """Where the results of a piece go: an array, and an index of it by which it has a
        dimension for each axis of the block, of size 1 for reduced ones."""
        array = self.memory[id(access.buffer)]
        place = {i.var: n for n, i in enumerate(self.block.iters)}
        axes = [i.single_var() if isinstance(i, Affine) else None for i in access.indices]
        numbers = [place[v] for v in axes if v is not None]
        parts = tuple(slice(self.ranges[n].start, self.ranges[n].stop) for n in numbers)
        plain = (
            0 < len(numbers) == len(axes) == len(set(numbers))
            and all(n == 1 or k in numbers for k, n in enumerate(kept))
            and all(p.stop <= n for p, n in zip(parts, array.shape, strict=True))
        )
        if not plain:
            at = self.element(access, None)
            return array, tuple(np.broadcast_to(i, kept) for i in at)
        there = array[parts].transpose(sorted(range(len(numbers)), key=numbers.__getitem__))
        return there, tuple(slice(None) if k in numbers else None for k in range(len(kept)))

    def scatter(self, shape: list[int]) -> None:
        """Combine every point's values into the elements that the point names."""
        block = self.block
        assert block.reducer is not None
        values = [
            np.broadcast_to(np.asarray(self.expr(e, None), dtypes.array_dtype(e.dtype)), shape)
            for e in block.body
        ]
        arrays = [self.memory[id(a.buffer)] for a in block.writes]
        places = [
            tuple(np.broadcast_to(i, shape).reshape(-1) for i in self.element(a, None))
            for a in block.writes
        ]
        ufunc = UFUNCS.get(block.reducer.name)
        if ufunc is not None:
            ufunc.at(arrays[0], places[0], values[0].reshape(-1))
            return
        # The writes of one point name elements of buffers alike, and so do the groups of points.
        number = np.zeros(values[0].size, np.int64)
        for array, at in zip(arrays, places, strict=True):
            for n, index in zip(array.shape, at, strict=True):
                number = np.unique(number * n + index, return_inverse=True)[1].reshape(-1)
        one, left = self.folded(number, [v.reshape(-1) for v in values])
        places = [tuple(i[one] for i in at) for at in places]
        old = [array[at] for array, at in zip(arrays, places, strict=True)]
        for array, at, new in zip(arrays, places, self.combine(old, left), strict=True):
            array[at] = new

    def reduce(self, old: list[Array], values: list[Array]) -> list[Array]:
        """`old` combined with `values` over the reduction axes."""
        reducer = self.block.reducer
        assert reducer is not None
        ufunc = UFUNCS.get(reducer.name)
        if ufunc is not None:
            dtype = values[0].dtype
            new = ufunc.reduce(values[0], axis=self.reduced, dtype=dtype, keepdims=True)
            return [ufunc(old[0], new)]
        total = old
        for point in itertools.product(*(range(values[0].shape[n]) for n in self.reduced)):
            at: list[Any] = [slice(None)] * values[0].ndim
            for n, i in zip(self.reduced, point, strict=True):
                at[n] = slice(i, i + 1)
            total = self.combine(total, [x[tuple(at)] for x in values])
        return total
