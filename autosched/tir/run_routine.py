"""The interpreter of routines: what the statements mean, in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched.errors import ArgumentError, VerifyError
from autosched.tir import dtypes
from autosched.tir.expr import Expr
from autosched.tir.extern import call
from autosched.tir.interp import Array, Evaluator, Thunk
from autosched.tir.nodes import Buffer, Element, ExternCall, Pointer
from autosched.tir.printer import Names, format_expr
from autosched.tir.routine import (
    MOST_ITERATIONS,
    Alloc,
    Assert,
    Evaluate,
    If,
    Let,
    Loop,
    Routine,
    Statement,
    Store,
    While,
    in_every_size,
)
from autosched.tir.shapes import told
from autosched.tir.verify_routine import verify_routine


def run_routine(func: Routine, arrays: Sequence[Array]) -> None:
    """Execute `func` on `arrays`, one a parameter in order, of its shape and dtype; they are
    written in place.

    Raises ArgumentError if the arrays do not fit, and VerifyError where an index is out of bounds,
    an assertion does not hold or a `while` does not end; what has been stored before stays.
    """
    machine = _Machine(verify_routine(func), arrays)
    with np.errstate(all="ignore"):
        machine.run()


def outside(element: Element, dim: int, value: str) -> str:
    """What is wrong with an index."""
    text = format_expr(element, Names())
    return (
        f"{text if len(text) < 80 else element.buffer.name} is out of bounds: "
        f"index {dim} is {value}, extent {element.buffer.shape[dim]}"
    )


def endless() -> str:
    """What is wrong with a `while`."""
    return f"a while loop ran {MOST_ITERATIONS} iterations"


class _Machine(Evaluator):
    """A routine translated to closures over `env`, which maps variables (by id) to values."""

    def __init__(self, func: Routine, arrays: Sequence[Array]) -> None:
        super().__init__()
        self.func = func
        self.memory: dict[int, Array] = {}
        if len(arrays) != len(func.params):
            raise ArgumentError(f"{func.name} takes {len(func.params)} arrays, found {len(arrays)}")
        sizes = told(func, [a.shape for a in arrays])
        self.env |= {id(v): n for v, n in sizes.items()}
        for b, a in zip(func.params, arrays, strict=True):
            shape = in_every_size(b.shape, sizes)
            if a.shape != shape or a.dtype != dtypes.array_dtype(b.dtype):
                raise ArgumentError(
                    f"argument {b.name} of {func.name} is {a.dtype.name}{list(a.shape)}; "
                    f"expected {b.dtype}{list(shape)}"
                )
            self.memory[id(b)] = a
        self.steps = self.body(func.body)

    def run(self) -> None:
        """Execute all statements."""
        for step in self.steps:
            step()

    def body(self, body: Sequence[Statement]) -> list[Thunk]:
        """Statements as closures."""
        return [self.statement(s) for s in body]

    def statement(self, s: Statement) -> Thunk:
        """One statement as a closure."""
        if isinstance(s, Store):
            return self.store(s)
        if isinstance(s, Let):
            env, key, value = self.env, id(s.var), self.value(s.value)
            return lambda: env.__setitem__(key, value())
        if isinstance(s, Alloc):
            return self.alloc(s.buffer)
        if isinstance(s, Evaluate):
            return self.value(s.value)
        if isinstance(s, Assert):
            return self.asserted(s)
        if isinstance(s, Loop):
            return self.loop(s)
        if isinstance(s, While):
            return self.while_loop(s)
        return self.choice(s)

    def value(self, e: Expr) -> Thunk:
        """An expression as a closure."""
        return self.expr(e, [])

    def expr(self, e: Expr, slots: list[Thunk]) -> Thunk:
        """An expression as a NumPy scalar of its dtype."""
        memory = self.memory
        if isinstance(e, Element):
            key, at = id(e.buffer), self.place(e)
            return lambda: memory[key][at()]
        if isinstance(e, Pointer):
            key = id(e.buffer)
            return lambda: memory[key]
        if isinstance(e, ExternCall):
            args, function = [self.value(x) for x in e.indices], e.function
            return lambda: call(function, [a() for a in args])
        return super().expr(e, slots)

    def place(self, e: Element) -> Thunk:
        """The indices of an element, checked."""
        memory, key = self.memory, id(e.buffer)
        indices = [self.value(i) for i in e.indices]

        def place() -> tuple[int, ...]:
            at = tuple(int(i()) for i in indices)
            for n, (value, extent) in enumerate(zip(at, memory[key].shape, strict=True)):
                if not 0 <= value < extent:
                    raise VerifyError(f"routine {self.func.name}: {outside(e, n, str(value))}")
            return at

        return place

    def store(self, s: Store) -> Thunk:
        """The value is computed before the index is."""
        memory, key = self.memory, id(s.target.buffer)
        value, at = self.value(s.value), self.place(s.target)

        def store() -> None:
            found = value()
            memory[key][at()] = found

        return store

    def alloc(self, b: Buffer) -> Thunk:
        """A buffer of zeros."""
        memory, key, shape = self.memory, id(b), in_every_size(b.shape, {})
        kind = dtypes.array_dtype(b.dtype)

        def alloc() -> None:
            memory[key] = np.zeros(shape, kind)

        return alloc

    def loop(self, s: Loop) -> Thunk:
        """A loop over numbers."""
        begin, end, key, step = self.value(s.begin), self.value(s.end), id(s.var), s.step
        env, steps = self.env, self.body(s.body)

        def loop() -> None:
            for value in range(int(begin()), int(end()), step):
                env[key] = value
                for do in steps:
                    do()

        return loop

    def while_loop(self, s: While) -> Thunk:
        """A loop that a condition ends."""
        condition, steps = self.value(s.condition), self.body(s.body)

        def run() -> None:
            count = 0
            while condition():
                if count >= MOST_ITERATIONS:
                    raise VerifyError(f"routine {self.func.name}: {endless()}")
                count += 1
                for do in steps:
                    do()

        return run

    def asserted(self, s: Assert) -> Thunk:
        """A condition without which the call stops."""
        condition = self.value(s.condition)

        def check() -> None:
            if not condition():
                raise VerifyError(f"routine {self.func.name}: {s.message}")

        return check

    def choice(self, s: If) -> Thunk:
        """One of two lists of statements."""
        condition, yes, no = self.value(s.condition), self.body(s.yes), self.body(s.no)

        def choice() -> Any:
            for do in yes if condition() else no:
                do()

        return choice
