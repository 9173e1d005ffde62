"""An abstract machine for functions of the graph level: code over slots, and a stack of its own.

A function is translated once: variables are numbers of slots, bodies of branches use the slots of
their function. A call in tail position leaves nothing on the stack, so that loops may be written as
recursion; any other call takes memory, not Python's stack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Union

import numpy as np

from autosched.errors import ArgumentError, WorkloadError
from autosched.graph.conversion import held
from autosched.graph.data import Constructor, constructors
from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    Global,
    If,
    Item,
    Match,
    Pattern,
    TupleExpr,
    Var,
)
from autosched.graph.prepared import Evaluate, Site
from autosched.graph.values import Closure, Maker, Tagged
from autosched.tir.module import IRModule

DEEPEST = 200_000
"""Calls that wait for the result of another."""

NOTHING: Mapping[str, Evaluate] = MappingProxyType({})
Test = Union[int, None, "Fits"]


@dataclass(slots=True)
class Fits:
    """A pattern: a constructor, or "" for a tuple; parts are slots, wildcards, patterns."""

    constructor: str
    parts: tuple[Test, ...]


@dataclass(slots=True)
class Step:
    """One binding. `tail`: its results are those of the block, and it is the last of it."""

    results: tuple[int, ...]
    tail: bool = field(default=False, init=False)


@dataclass(slots=True)
class OperatorStep(Step):
    """`site`: an operator, or a function that is compiled."""

    site: Evaluate
    args: tuple[int, ...]


@dataclass(slots=True)
class CallStep(Step):
    """`code` is a function of the module, else `callee` the slot of a function value."""

    code: Code | None
    callee: int
    args: tuple[int, ...]


@dataclass(slots=True)
class MakeStep(Step):
    """A tuple, or with `constructor` a tagged one."""

    constructor: str | None
    args: tuple[int, ...]


@dataclass(slots=True)
class ItemStep(Step):
    value: int
    index: int


@dataclass(slots=True)
class ClosureStep(Step):
    """`own`: the number of the captured value that is the closure itself, or -1."""

    code: Code
    captured: tuple[int, ...]
    own: int


@dataclass(slots=True)
class IfStep(Step):
    condition: int
    then: Block
    other: Block


@dataclass(slots=True)
class MatchStep(Step):
    value: int
    clauses: tuple[tuple[Test, Block], ...]


@dataclass(slots=True)
class Block:
    """Steps, and the slots of what they are for."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Code:
    """A function. A call sets the slots `params` and `captured` in a copy of `template`."""

    name: str
    params: list[int] = field(default_factory=list)
    captured: list[int] = field(default_factory=list)
    template: list[Any] = field(default_factory=list)
    block: Block = field(default_factory=lambda: Block((), ()))


class Machine:
    """Runs the functions of one module; those of `compiled` by what stands there."""

    def __init__(self, module: IRModule, compiled: Mapping[str, Evaluate] = NOTHING) -> None:
        self.module, self.compiled = module, compiled
        self.constructors: dict[str, Constructor] = constructors(module.graphs)
        self.codes: dict[str, Code] = {}
        self.waiting: list[tuple[Code, Function]] = []
        self.translating = False

    def code(self, name: str) -> Code:
        """The code of a function of the module. Raises WorkloadError where there is none."""
        if name not in self.codes:
            f = self.module.graphs.get(name)
            if not isinstance(f, Function):
                raise WorkloadError(f"no graph function is named {name!r} in the module")
            # It is translated after the function that calls it: calls form long chains.
            self.codes[name] = Code(name)
            self.waiting.append((self.codes[name], f))
            if not self.translating:
                self.translating = True
                try:
                    while self.waiting:
                        code, f = self.waiting.pop()
                        _Translation(self, code).function(f)
                finally:
                    self.translating = False
        return self.codes[name]

    def value(self, name: str) -> Any:
        """A function or constructor of the module as a value."""
        if name in self.constructors:
            return Maker(name, len(self.constructors[name].fields))
        return Closure(self.code(name), [], self.run)

    def run(self, f: Closure, args: Sequence[Any]) -> list[Any]:
        """The results of a function value. Raises WorkloadError where recursion is too deep."""
        block, pc, slots = f.code.block, 0, started(f.code, f.captured, args)
        stack: list[tuple[Block, int, list[Any], tuple[int, ...]]] = []
        while True:
            if pc == len(block.steps):
                values = [slots[r] for r in block.results]
                if not stack:
                    return values
                block, pc, slots, targets = stack.pop()
                for target, value in zip(targets, values, strict=True):
                    slots[target] = value
                continue
            step = block.steps[pc]
            pc += 1
            if isinstance(step, OperatorStep):
                made = step.site([slots[a] for a in step.args])
                for target, value in zip(step.results, made, strict=True):
                    slots[target] = value
                continue
            if isinstance(step, (IfStep, MatchStep)):
                if not step.tail:
                    stack.append((block, pc, slots, step.results))
                block, pc = taken(step, slots), 0
                continue
            if not isinstance(step, CallStep):
                slots[step.results[0]] = self.made(step, slots)
                continue
            given = [slots[a] for a in step.args]
            callee = None if step.code is not None else slots[step.callee]
            if callee is not None and not isinstance(callee, Closure):
                for target, value in zip(step.results, called(callee, given), strict=True):
                    slots[target] = value
                continue
            if not step.tail:
                stack.append((block, pc, slots, step.results))
                if len(stack) > DEEPEST:
                    name = (step.code or slots[step.callee].code).name
                    raise WorkloadError(
                        f"{name} is called while more than {DEEPEST} calls wait for their results; "
                        "make the recursive call the last thing that the function does, with what "
                        "is computed so far as an argument"
                    )
            code = step.code if callee is None else callee.code
            assert code is not None
            slots = started(code, () if callee is None else callee.captured, given)
            block, pc = code.block, 0

    def made(self, step: Step, slots: list[Any]) -> Any:
        """What a step that calls nothing makes."""
        if isinstance(step, MakeStep):
            values = tuple([slots[a] for a in step.args])
            return values if step.constructor is None else Tagged(step.constructor, values)
        if isinstance(step, ItemStep):
            return slots[step.value][step.index]
        assert isinstance(step, ClosureStep)
        captured = [slots[n] for n in step.captured]
        closure = Closure(step.code, captured, self.run)
        if step.own >= 0:
            captured[step.own] = closure
        return closure


def started(code: Code, captured: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The slots of a call."""
    slots = code.template.copy()
    for n, value in zip(code.captured, captured, strict=True):
        slots[n] = value
    if len(args) != len(code.params):
        raise ArgumentError(f"{code.name} takes {len(code.params)} arguments, found {len(args)}")
    for n, value in zip(code.params, args, strict=True):
        slots[n] = value
    return slots


def called(f: Any, args: Sequence[Any]) -> list[Any]:
    """The results of a constructor, or of a function of Python that was given as an argument."""
    if not callable(f):
        raise ArgumentError(f"a value of type {type(f).__name__} is called; expected a function")
    made = f(*args)
    return made if isinstance(made, list) else [made]


def taken(step: IfStep | MatchStep, slots: list[Any]) -> Block:
    """The branch that is taken."""
    if isinstance(step, IfStep):
        return step.then if np.any(slots[step.condition]) else step.other
    value = slots[step.value]
    for test, block in step.clauses:
        if fits(test, value, slots):
            return block
    raise WorkloadError(f"no case of a match fits {value!r}; add one that does")


def fits(test: Test, value: Any, slots: list[Any]) -> bool:
    """Whether a pattern fits; then its variables have their values."""
    if test is None:
        return True
    if isinstance(test, int):
        slots[test] = value
        return True
    if test.constructor:
        if not isinstance(value, Tagged) or value.constructor != test.constructor:
            return False
        value = value.fields
    if not isinstance(value, tuple) or len(value) != len(test.parts):
        return False
    return all(fits(t, v, slots) for t, v in zip(test.parts, value, strict=True))


class _Translation:
    """Translates one function into its code."""

    def __init__(self, machine: Machine, code: Code, outer: _Translation | None = None) -> None:
        self.machine, self.to, self.outer = machine, code, outer
        self.slots: dict[int, int] = {}
        self.free: list[Var] = []
        self.keep: list[Atom] = []

    def function(self, f: Function) -> None:
        self.to.params = [self.new(p) for p in f.params]
        self.to.block = self.block(f.body)

    def new(self, a: Atom, value: Any = None) -> int:
        """A slot for an atom."""
        self.to.template.append(value)
        self.keep.append(a)
        self.slots[id(a)] = len(self.to.template) - 1
        return self.slots[id(a)]

    def read(self, a: Atom) -> int:
        """The slot of an atom that is read; constants and functions of the module are in theirs."""
        found = self.slots.get(id(a))
        if found is not None:
            return found
        if isinstance(a, Const) or a is _NONE:
            return self.new(a, held(a.value, a.type.dtype) if isinstance(a, Const) else None)
        if isinstance(a, Global):
            return self.new(a, self.machine.value(a.name))
        if self.outer is None:
            raise WorkloadError(f"{self.to.name} uses {a.name}, which is not bound in it")
        self.free.append(a)
        self.to.captured.append(self.new(a))
        return self.slots[id(a)]

    def several(self, found: Sequence[Atom]) -> tuple[int, ...]:
        return tuple(map(self.read, found))

    def block(self, body: Body) -> Block:
        steps = [self.step(b) for b in body.bindings]
        results = self.several(body.results)
        if steps and steps[-1].results == results:
            steps[-1].tail = True
        return Block(tuple(steps), results)

    def step(self, b: Binding) -> Step:
        v = b.value
        if isinstance(v, Function):
            return self.closure(b, v)
        if isinstance(v, Call):
            return self.call(b, v)
        if isinstance(v, TupleExpr):
            args = self.several(v.items)
            return MakeStep(self.bound(b), None, args)
        if isinstance(v, Item):
            value = self.read(v.value)
            return ItemStep(self.bound(b), value, v.index)
        if isinstance(v, If):
            condition = self.read(v.condition)
            then, other = self.block(v.then), self.block(v.other)
            return IfStep(self.bound(b), condition, then, other)
        assert isinstance(v, Match)
        value = self.read(v.value)
        clauses = tuple((self.pattern(p), self.block(body)) for p, body in v.clauses)
        return MatchStep(self.bound(b), value, clauses)

    def bound(self, b: Binding) -> tuple[int, ...]:
        return tuple(map(self.new, b.vars))

    def call(self, b: Binding, v: Call) -> Step:
        args = tuple(self.read(_NONE if a is None else a) for a in v.args)
        if isinstance(v.callee, str):
            attrs = dict(v.attrs)
            return OperatorStep(self.bound(b), Site(v.callee, attrs, len(b.vars)), args)
        if isinstance(v.callee, Global):
            made = self.machine.constructors.get(v.callee.name)
            if made is not None:
                return MakeStep(self.bound(b), made.name, args)
            compiled = self.machine.compiled.get(v.callee.name)
            if compiled is not None:
                return OperatorStep(self.bound(b), compiled, args)
            return CallStep(self.bound(b), self.machine.code(v.callee.name), -1, args)
        callee = self.read(v.callee)
        return CallStep(self.bound(b), None, callee, args)

    def closure(self, b: Binding, f: Function) -> Step:
        (result,) = self.bound(b)
        code = Code(b.vars[0].name)
        inner = _Translation(self.machine, code, self)
        inner.function(f)
        own = next((n for n, v in enumerate(inner.free) if v is b.vars[0]), -1)
        return ClosureStep((result,), code, self.several(inner.free), own)

    def pattern(self, p: Pattern | Var | None) -> Test:
        if isinstance(p, Var):
            return self.new(p)
        return None if p is None else Fits(p.constructor, tuple(map(self.pattern, p.parts)))


_NONE: Any = Var("None", None)  # type: ignore[arg-type]
