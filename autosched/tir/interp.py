"""The interpreter: what a program means, in NumPy. The oracle that generated code is compared with.

`run` executes any program, scheduled or lowered, point by point in program order; loop kinds mean
nothing to it. Buffers hold poison (NaN, the largest integer) wherever nothing has been written, so
that a schedule which reads too early or too far shows it. `reference` evaluates a program that has
not been scheduled by whole arrays, for tests that need an answer fast.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from autosched.errors import ArgumentError, VerifyError
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Int
from autosched.tir.expr import OPS, Call, Const, Expr, Slot, Var
from autosched.tir.nodes import (
    Access,
    Block,
    For,
    Index,
    Node,
    PrimFunc,
    Site,
    buffers_of,
    sites,
)
from autosched.tir.printer import Names, format_access
from autosched.tir.shapes import solve
from autosched.tir.size import Size, SizeVar

Array = npt.NDArray[Any]
Thunk = Callable[[], Any]

CHUNK_BYTES = 64 << 20
"""Memory that one evaluation of `reference` may take, roughly."""


def run(func: PrimFunc, arrays: Sequence[Array]) -> None:
    """Execute `func` on `arrays`, one a parameter in order, of its shape and dtype; outputs are
    written in place.

    Raises ArgumentError if the arrays do not fit, and VerifyError, naming block, access and point,
    if an access is out of bounds or an axis leaves its extent.
    """
    func = at_sizes(func, arrays)
    machine = _Machine(func, _bind(func, arrays))
    with np.errstate(all="ignore"):
        for step in machine.body:
            step()


def poison(dtype: str) -> Any:
    """What unwritten memory holds: NaN, the largest integer, True."""
    if dtype == "bfloat16":
        return dtypes.from_float32(np.nan)
    return np.nan if dtypes.is_float(dtype) else dtypes.maximum(dtype)


def at_sizes(func: PrimFunc, arrays: Sequence[Array]) -> PrimFunc:
    """`func` with its symbolic sizes as the shapes of `arrays` tell them, one a parameter.

    Raises ArgumentError if they tell none; whether all shapes agree is left to be checked.
    """
    if not func.sizes:
        return func
    values: dict[SizeVar, Int] = {}
    for s in solve(func)[0]:
        shape = arrays[s.param].shape if s.param < len(arrays) else ()
        offset = s.offset.substitute(values) if isinstance(s.offset, Size) else s.offset
        if s.dim >= len(shape) or shape[s.dim] <= int(offset) or (shape[s.dim] - offset) % s.scale:
            b = func.params[s.param]
            raise ArgumentError(
                f"size {s.var.name} of {func.name} cannot be told from {b.name}: its shape is "
                f"{shape}; expected ({', '.join(map(str, b.shape))})"
            )
        values[s.var] = (shape[s.dim] - offset) // s.scale
    return func.specialize({v.name: int(n) for v, n in values.items()})


def _constant(value: Any, dtype: str) -> Any:
    """A constant as a NumPy scalar; of bfloat16, its bit pattern."""
    if dtype == "bfloat16":
        return dtypes.from_float32(value)[()]
    return np.dtype(dtype).type(value)


def _converted(values: Any, source: str, dtype: str) -> Any:
    """Values of `source` as `dtype`."""
    if dtype == "bfloat16":
        return dtypes.from_float32(values)[()]
    if source == "bfloat16":
        return dtypes.to_float32(values)[()]
    return np.asarray(values).astype(dtype)[()]


def _bind(func: PrimFunc, arrays: Sequence[Array]) -> dict[int, Array]:
    """Buffer (by id) -> memory: parameters as given, every other buffer poisoned."""
    if len(arrays) != len(func.params):
        raise ArgumentError(f"{func.name} takes {len(func.params)} arrays, found {len(arrays)}")
    memory: dict[int, Array] = {}
    for b, a in zip(func.params, arrays, strict=True):
        if a.shape != b.shape or a.dtype != dtypes.array_dtype(b.dtype):
            raise ArgumentError(
                f"argument {b.name} of {func.name} is {a.dtype.name}{list(a.shape)}; "
                f"expected {b.dtype}{list(b.shape)}"
            )
        memory[id(b)] = a
    for b in (*func.allocs, *buffers_of(func)):
        if id(b) not in memory:
            memory[id(b)] = np.full(
                tuple(_int(n) for n in b.shape), poison(b.dtype), dtypes.array_dtype(b.dtype)
            )
    return memory


def _int(value: Int) -> int:
    if isinstance(value, np.ndarray):
        raise VerifyError("a population cannot be executed; replay one candidate of it")
    return int(value)


class _Machine:
    """A program translated to closures over `env`, which maps variables (by id) to values."""

    def __init__(self, func: PrimFunc, memory: dict[int, Array]) -> None:
        self.memory = memory
        self.env: dict[int, Any] = {}
        self.body = [self.node(n, ()) for n in func.body]

    def node(self, node: Node, loops: tuple[For, ...]) -> Thunk:
        """Executes a loop or block."""
        if isinstance(node, Block):
            return self.block(node, loops)
        env, key, extent = self.env, id(node.var), _int(node.extent)
        for b in node.allocs:
            if id(b) not in self.memory:  # allocated and never used
                self.memory[id(b)] = np.empty(tuple(_int(n) for n in b.shape), b.dtype)
        fresh = [(self.memory[id(b)], poison(b.dtype)) for b in node.allocs]
        steps = [self.node(child, (*loops, node)) for child in node.body]

        def loop() -> None:
            for value in range(extent):
                env[key] = value
                for array, filler in fresh:
                    array.fill(filler)
                for step in steps:
                    step()

        return loop

    def block(self, block: Block, loops: tuple[For, ...]) -> Thunk:
        """Executes a block at the point that its loops stand at."""
        _check_types(block)
        env = self.env
        where = _Where(block, loops, env)
        predicates = [(self.affine(p.form), _int(p.bound)) for p in block.predicates]
        axes = [
            (i, id(i.var), _int(i.extent), self.affine(b))
            for i, b in zip(block.iters, block.bindings, strict=True)
        ]
        reads = self.reads(block, where)
        values = [self.expr(e, reads) for e in block.body]
        targets = [(self.memory[id(a.buffer)], self.element(a, reads, where)) for a in block.writes]
        reducer = block.reducer
        if reducer is not None:
            identity = [self.expr(e, []) for e in reducer.identity]
            combine = [self.expr(e, []) for e in reducer.combine]
            lhs, rhs = [id(v) for v in reducer.lhs], [id(v) for v in reducer.rhs]
        reduced = [id(i.var) for i in block.iters if i.kind == "reduce"]

        def execute() -> None:
            for form, bound in predicates:
                if form() >= bound:
                    return
            for it, key, extent, binding in axes:
                value = env[key] = binding()
                if not 0 <= value < extent:
                    where.fail(f"axis {it.var.name} is {value}, outside its extent {extent}", [])
            # All values are computed before the first is stored: a tuple changes at once.
            if reducer is None:
                results = [v() for v in values]
                for (array, element), result in zip(targets, results, strict=True):
                    array[element()] = result
                return
            elements = [element() for _, element in targets]
            if block.init and all(env[key] == 0 for key in reduced):
                for (array, _), element, neutral in zip(targets, elements, identity, strict=True):
                    array[element] = neutral()
            results = [v() for v in values]
            for n, (array, _) in enumerate(targets):
                env[lhs[n]], env[rhs[n]] = array[elements[n]], results[n]
            results = [c() for c in combine]
            for (array, _), element, result in zip(targets, elements, results, strict=True):
                array[element] = result

        return execute

    def reads(self, block: Block, where: _Where) -> list[Thunk]:
        """The values of the slots. An index may itself hold slots, hence the shared list."""
        slots: list[Thunk] = []
        for access in block.reads:
            slots.append(self.load(access, slots, where))
        return slots

    def load(self, access: Access, slots: list[Thunk], where: _Where) -> Thunk:
        """The value of an access, read when it is asked for."""
        array, element = self.memory[id(access.buffer)], self.element(access, slots, where)
        return lambda: array[element()]

    def element(self, access: Access, slots: list[Thunk], where: _Where) -> Thunk:
        """The indices of an access, checked."""
        indices = [self.index(i, slots) for i in access.indices]
        shape = tuple(_int(n) for n in access.buffer.shape)
        if len(indices) != len(shape):
            where.fail(
                f"{where.text(access)} has {len(indices)} indices for {len(shape)} dimensions"
            )

        def element() -> tuple[int, ...]:
            at = tuple(index() for index in indices)
            for n, (value, extent) in enumerate(zip(at, shape, strict=True)):
                if not 0 <= value < extent:
                    where.fail(
                        f"{where.text(access)} is out of bounds: "
                        f"index {n} is {value}, extent {extent}"
                    )
            return at

        return element

    def index(self, index: Index, slots: list[Thunk]) -> Thunk:
        """One index."""
        return self.affine(index) if isinstance(index, Affine) else self.expr(index, slots)

    def affine(self, form: Affine) -> Thunk:
        """An affine form as a Python int."""
        env, const = self.env, _int(form.const)
        plain = [(id(a), _int(c)) for a, c in form.terms if isinstance(a, Var)]
        digits = [
            (self.affine(a.base), _int(a.div), None if a.mod is None else _int(a.mod), _int(c))
            for a, c in form.terms
            if not isinstance(a, Var)
        ]

        def value() -> int:
            total = const
            for key, c in plain:
                total += c * env[key]
            for base, div, mod, c in digits:
                x = base() // div
                total += c * (x if mod is None else x % mod)
            return total

        return value

    def expr(self, e: Expr, slots: list[Thunk]) -> Thunk:
        """An expression as a NumPy scalar of its dtype."""
        kind = dtypes.array_dtype(e.dtype).type
        if isinstance(e, Var):
            env, key = self.env, id(e)
            return lambda: kind(env[key])
        if isinstance(e, Const):
            constant = _constant(e.value, e.dtype)
            return lambda: constant
        if isinstance(e, Slot):
            n = e.index
            return lambda: slots[n]()
        if not isinstance(e, Call):
            raise VerifyError(f"{e!r} is no expression of the loop IR")
        args = [self.expr(a, slots) for a in e.args]
        if e.op == "if_then_else":
            condition, yes, no = args
            return lambda: yes() if condition() else no()
        if e.op == "select":
            return lambda: _select(*(a() for a in args))
        if e.op == "cast":
            source, to = e.args[0].dtype, e.dtype
            if "bfloat16" in (source, to):
                return lambda: _converted(args[0](), source, to)
            return lambda: args[0]().astype(kind)
        operation = OPS[e.op].numpy
        return lambda: kind(operation(*[a() for a in args]))


def _select(condition: Any, yes: Any, no: Any) -> Any:
    return yes if condition else no


def _check_types(block: Block) -> None:
    reads = [a.buffer.dtype for a in block.reads]
    for access, value in zip(block.writes, block.body, strict=True):
        if value.dtype != access.buffer.dtype:
            raise VerifyError(
                f"block {block.name} stores {value.dtype} into {access.buffer.name}, "
                f"which holds {access.buffer.dtype}"
            )

    def check(e: Expr) -> None:
        if isinstance(e, Slot) and not (0 <= e.index < len(reads) and reads[e.index] == e.dtype):
            raise VerifyError(f"slot {e.index} of block {block.name} is no read of dtype {e.dtype}")
        for child in e.args if isinstance(e, Call) else ():
            check(child)

    for value in block.body:
        check(value)


class _Where:
    """Where execution stands, for messages."""

    def __init__(self, block: Block, loops: tuple[For, ...], env: dict[int, Any]) -> None:
        self.block = block
        self.axes = [i.var for i in block.iters]
        self.loops = [loop.var for loop in loops]
        self.env = env

    def text(self, access: Access) -> str:
        """The access as script."""
        return format_access(access, Names(), self.block.reads)

    def fail(self, problem: str, axes: Sequence[Var] | None = None) -> NoReturn:
        """Raise VerifyError for the current point; `axes` are those that have their values."""
        known = (*(self.axes if axes is None else axes), *self.loops)
        point = ", ".join(f"{v.name}={self.env.get(id(v))}" for v in known)
        raise VerifyError(f"block {self.block.name} at ({point}): {problem}")


def reference(func: PrimFunc, arrays: Sequence[Array]) -> None:
    """Evaluate an unscheduled `func`, as te.create_prim_func makes it, on `arrays` in place.

    Each block is evaluated over whole arrays, in pieces of about 64 MiB. Sums are NumPy's: pairwise
    and so at least as accurate as in program order.
    Raises ArgumentError if the arrays do not fit, VerifyError if an access is out of bounds or if
    `func` has been scheduled.
    """
    func = at_sizes(func, arrays)
    memory = _bind(func, arrays)
    with np.errstate(all="ignore"):
        for node in func.body:
            found = [_checked(site) for site in sites(node)]
            steps = _steps(found)
            for step in range(steps or 1):
                for block in found:
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
            f"block {block.name} has been scheduled; interp.reference evaluates plain loop nests, "
            "use interp.run"
        )
    written = {id(a.buffer) for a in block.writes}
    if any(id(a.buffer) in written for a in block.reads) and not any(stepwise):
        raise VerifyError(
            f"block {block.name} reads what it writes, so its points have an order; use interp.run"
        )
    return block


def _steps(blocks: Sequence[Block]) -> int:
    """Steps of the recurrence that the blocks of one nest make up; 0 if they are none."""
    first = [b.iters[0] for b in blocks if b.iters and b.iters[0].kind == "sequential"]
    return _int(first[0].extent) if first else 0


class _Whole:
    """One block of an unscheduled program: dimension n of every array is axis n of the block.

    `step`: the value of its sequential axis, which is the first.
    """

    def __init__(self, block: Block, memory: dict[int, Array], step: int | None) -> None:
        self.block = block
        self.memory = memory
        self.step = step
        self.extents = [_int(i.extent) for i in block.iters]
        self.reduced = tuple(n for n, i in enumerate(block.iters) if i.kind == "reduce")
        self.values: dict[Var, Array] = {}

    def run(self) -> None:
        """Evaluate it everywhere."""
        for ranges in self.pieces():
            rank = len(ranges)
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

    def piece(self, shape: list[int], first: bool) -> None:
        block = self.block
        kept = [1 if n in self.reduced else size for n, size in enumerate(shape)]
        results = [
            np.broadcast_to(np.asarray(self.expr(e, None), dtypes.array_dtype(e.dtype)), shape)
            for e in block.body
        ]
        targets = [(self.memory[id(a.buffer)], self.element(a, None)) for a in block.writes]
        places = [tuple(np.broadcast_to(i, kept) for i in at) for _, at in targets]
        if block.reducer is not None:
            if first and block.init:
                old = [
                    np.full(kept, e.value, e.dtype)  # type: ignore[attr-defined]
                    for e in block.reducer.identity
                ]
            else:
                old = [a[at] for (a, _), at in zip(targets, places, strict=True)]
            results = self.reduce(old, results)
        for (array, _), at, result in zip(targets, places, results, strict=True):
            array[at] = result if at else result.reshape(-1)[-1]

    def reduce(self, old: list[Array], values: list[Array]) -> list[Array]:
        """`old` combined with `values` over the reduction axes."""
        reducer = self.block.reducer
        assert reducer is not None
        ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}.get(
            reducer.name
        )
        if ufunc is not None:
            dtype = values[0].dtype
            new = ufunc.reduce(values[0], axis=self.reduced, dtype=dtype, keepdims=True)
            return [ufunc(old[0], new)]
        total = old
        for point in itertools.product(*(range(values[0].shape[n]) for n in self.reduced)):
            at: list[Any] = [slice(None)] * values[0].ndim
            for n, i in zip(self.reduced, point, strict=True):
                at[n] = slice(i, i + 1)
            self.values.update(zip(reducer.lhs, total, strict=True))
            self.values.update((v, x[tuple(at)]) for v, x in zip(reducer.rhs, values, strict=True))
            total = [np.asarray(self.expr(e, None), e.dtype) for e in reducer.combine]
        return total

    def element(self, access: Access, mask: Array | None) -> tuple[Array, ...]:
        """Index arrays of an access; where `mask` is False they are clipped, elsewhere checked."""
        out = []
        for n, index in enumerate(access.indices):
            extent = _int(access.buffer.shape[n])
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
            return _constant(e.value, e.dtype)
        if isinstance(e, Slot):
            access = self.block.reads[e.index]
            return self.memory[id(access.buffer)][self.element(access, mask)]
        if not isinstance(e, Call):
            raise VerifyError(f"{e!r} is no expression of the loop IR")
        if e.op == "if_then_else":
            taken = np.asarray(self.expr(e.args[0], mask))
            both = (taken, ~taken) if mask is None else (taken & mask, ~taken & mask)
            yes, no = (self.expr(x, m) for x, m in zip(e.args[1:], both, strict=True))
            return np.where(taken, yes, no)
        args = [self.expr(a, mask) for a in e.args]
        if e.op == "cast":
            return _converted(args[0], e.args[0].dtype, e.dtype)
        return OPS[e.op].numpy(*args)
