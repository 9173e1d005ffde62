"""The interpreter: what a program means, in NumPy. The oracle that generated code is compared with.

`run` executes any program, scheduled or lowered, point by point in program order; loop kinds mean
nothing to it. Buffers hold poison (NaN, the largest integer) wherever nothing has been written, so
that a schedule which reads too early or too far shows it. `whole.py` is faster, for programs that
have not been scheduled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from autosched.errors import ArgumentError, VerifyError
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Int
from autosched.tir.expr import Call, Const, Expr, Slot, Var
from autosched.tir.nodes import (
    Access,
    Block,
    For,
    Index,
    Node,
    PrimFunc,
    buffers_of,
    foreign,
)
from autosched.tir.operations import OPS
from autosched.tir.printer import Names, format_access
from autosched.tir.shapes import told

Array = npt.NDArray[Any]
Thunk = Callable[[], Any]


def run(func: PrimFunc, arrays: Sequence[Array]) -> None:
    """Execute `func` on `arrays`, one a parameter in order, of its shape and dtype; outputs are
    written in place.

    Raises ArgumentError if the arrays do not fit, and VerifyError, naming block, access and point,
    if an access is out of bounds or an axis leaves its extent.
    """
    func = at_sizes(func, arrays)
    machine = _Machine(func, bind(func, arrays))
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
    values = told(func, [a.shape for a in arrays])
    return func.specialize({v.name: int(n) for v, n in values.items()})


def constant(value: Any, dtype: str) -> Any:
    """A constant as a NumPy scalar; of bfloat16, its bit pattern."""
    if dtype == "bfloat16":
        return dtypes.from_float32(value)[()]
    return np.dtype(dtype).type(value)


def bind(func: PrimFunc, arrays: Sequence[Array]) -> dict[int, Array]:
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
                tuple(as_int(n) for n in b.shape), poison(b.dtype), dtypes.array_dtype(b.dtype)
            )
    return memory


def as_int(value: Int) -> int:
    """A number of a program that is no population."""
    if isinstance(value, np.ndarray):
        raise VerifyError("a population cannot be executed; replay one candidate of it")
    return int(value)


class Evaluator:
    """Expressions as closures over `env`, which maps variables (by id) to values."""

    def __init__(self) -> None:
        self.env: dict[int, Any] = {}

    def expr(self, e: Expr, slots: list[Thunk]) -> Thunk:
        """An expression as a NumPy scalar of its dtype."""
        kind = dtypes.array_dtype(e.dtype).type
        if isinstance(e, Var):
            env, key = self.env, id(e)
            return lambda: kind(env[key])
        if isinstance(e, Const):
            value = constant(e.value, e.dtype)
            return lambda: value
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
            if dtypes.is_float(source) or to == "bfloat16":
                return lambda: dtypes.converted(args[0](), source, to)
            return lambda: args[0]().astype(kind)
        if e.op == "reinterpret":
            return lambda: dtypes.converted(args[0](), e.args[0].dtype, e.dtype, "reinterpret")
        operation = OPS[e.op].numpy
        return lambda: kind(operation(*[a() for a in args]))


class _Machine(Evaluator):
    """A program translated to closures."""

    def __init__(self, func: PrimFunc, memory: dict[int, Array]) -> None:
        super().__init__()
        self.memory = memory
        self.body = [self.node(n, ()) for n in func.body]

    def node(self, node: Node, loops: tuple[For, ...]) -> Thunk:
        """Executes a loop or block."""
        if isinstance(node, Block):
            return self.block(node, loops)
        env, key, extent = self.env, id(node.var), as_int(node.extent)
        for b in node.allocs:
            if id(b) not in self.memory:  # allocated and never used
                self.memory[id(b)] = np.empty(tuple(as_int(n) for n in b.shape), b.dtype)
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
        value = foreign(block)
        if value is not None:
            return lambda: value.run(block, self.memory)
        _check_types(block)
        env = self.env
        where = _Where(block, loops, env)
        predicates = [(self.affine(p.form), as_int(p.bound)) for p in block.predicates]
        axes = [
            (i, id(i.var), as_int(i.extent), self.affine(b))
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
        shape = tuple(as_int(n) for n in access.buffer.shape)
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
        env, const = self.env, as_int(form.const)
        plain = [(id(a), as_int(c)) for a, c in form.terms if isinstance(a, Var)]
        digits = [
            (
                self.affine(a.base),
                as_int(a.div),
                None if a.mod is None else as_int(a.mod),
                as_int(c),
            )
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
