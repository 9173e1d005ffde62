"""Routines: functions whose statements run in the order in which they are written.

A `PrimFunc` states what is computed, so that schedules may change the order. What cannot be stated
so is a `Routine`: loops whose ranges are read from memory, `while`, elements that are changed in
place, conditions around statements. Nothing of it is analysed, so nothing of it is scheduled: it is
printed, read, interpreted and compiled as it is. Every access is in bounds, or stops the call: see
`tir/verify_routine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

from autosched.checks import instance
from autosched.errors import ScheduleError
from autosched.tir.affine import Int
from autosched.tir.expr import Const, Expr, Var, walk
from autosched.tir.extern import Extern
from autosched.tir.nodes import Annotations, Buffer, Element, ExternCall, Pointer
from autosched.tir.printer import Names, _Script, format_expr, format_literal, function_name
from autosched.tir.shown import Shown
from autosched.tir.size import Size
from autosched.tir.size_atoms import SizeVar

MOST_ITERATIONS = 1 << 31
"""Iterations that one `while` may run in a row; one that runs longer stops the call."""


@dataclass(frozen=True, eq=False, slots=True)
class Store:
    """`target = value`."""

    target: Element
    value: Expr


@dataclass(frozen=True, eq=False, slots=True)
class Let:
    """A name for a value, computed once, until the statements around it end."""

    var: Var
    value: Expr


@dataclass(frozen=True, eq=False, slots=True)
class Alloc:
    """A buffer until the statements around it end. All of it is 0 at first."""

    buffer: Buffer


@dataclass(frozen=True, eq=False, slots=True)
class Loop:
    """`var` from `begin` up to, and without, `end`, by `step`. Both are computed once, before.

    The iterations of a "parallel" one are divided over threads where they are proved to be apart
    (`tir/parallel_loops.py`), and run in order elsewhere. Those of a "vectorized" one are lanes
    where LLVM finds that they may be; it adds floats in another order then.
    """

    var: Var
    begin: Expr
    end: Expr
    step: int
    body: tuple[Statement, ...]
    kind: str = "serial"


@dataclass(frozen=True, eq=False, slots=True)
class While:
    """The body as long as the condition holds, at most MOST_ITERATIONS times."""

    condition: Expr
    body: tuple[Statement, ...]


@dataclass(frozen=True, eq=False, slots=True)
class If:
    """One of two lists of statements."""

    condition: Expr
    yes: tuple[Statement, ...]
    no: tuple[Statement, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Assert:
    """The call stops with the message where the condition does not hold."""

    condition: Expr
    message: str


@dataclass(frozen=True, eq=False, slots=True)
class Evaluate:
    """A call of a C function for what it does; its value is dropped."""

    value: Expr


Statement = Union[Store, Let, Alloc, Loop, While, If, Assert, Evaluate]


@dataclass(frozen=True, eq=False, slots=True)
class Routine(Shown):
    """A function over buffers, run as it is written. `params` are its arguments in call order."""

    name: str
    params: tuple[Buffer, ...]
    body: tuple[Statement, ...]
    attrs: Annotations = ()

    def script(self) -> str:
        """The routine as script text."""
        return _Text().routine(self)

    def same(self, other: Routine) -> bool:
        """Whether both are structurally equal: the names of variables do not count."""
        instance("same: the other", other, Routine, "a Routine", ScheduleError)
        return numbered_text(self) == numbered_text(other)

    def attr(self, key: str, default: Any = None) -> Any:
        """Value of an attribute."""
        return dict(self.attrs).get(key, default)

    @property
    def sizes(self) -> tuple[SizeVar, ...]:
        """The symbolic sizes, in the order in which they appear in the parameters' shapes."""
        extents = (n for b in self.params for n in b.shape if isinstance(n, Size))
        return tuple(dict.fromkeys(v for n in extents for v in n.variables()))

    def __deepcopy__(self, memo: dict[int, Any]) -> Routine:
        """Nothing of it changes, so a copy is the thing itself."""
        return self

    def __str__(self) -> str:
        return self.script()


def statements_of(body: Sequence[Statement]) -> Iterator[Statement]:
    """Every statement, those around others first."""
    for s in body:
        yield s
        for inside in bodies(s):
            yield from statements_of(inside)


def bodies(s: Statement) -> tuple[tuple[Statement, ...], ...]:
    """The lists of statements in a statement."""
    if isinstance(s, (Loop, While)):
        return (s.body,)
    return (s.yes, s.no) if isinstance(s, If) else ()


def values_of(s: Statement) -> tuple[Expr, ...]:
    """The expressions that a statement itself computes; of a store the element first."""
    if isinstance(s, Store):
        return s.target, s.value
    if isinstance(s, (Let, Evaluate)):
        return (s.value,)
    if isinstance(s, Loop):
        return s.begin, s.end
    return () if isinstance(s, Alloc) else (s.condition,)


def written(body: Sequence[Statement]) -> set[int]:
    """Buffers (by id) that are stored to, or given to C functions."""
    out = {id(s.target.buffer) for s in statements_of(body) if isinstance(s, Store)}
    values = (e for s in statements_of(body) for v in values_of(s) for e in walk(v))
    return out | {id(e.buffer) for e in values if isinstance(e, Pointer)}


def externs(func: Routine) -> tuple[Extern, ...]:
    """The C functions that a routine calls."""
    values = (e for s in statements_of(func.body) for v in values_of(s) for e in walk(v))
    return tuple(dict.fromkeys(e.function for e in values if isinstance(e, ExternCall)))


def in_every_size(shape: Sequence[Int], sizes: Mapping[SizeVar, Int]) -> tuple[int, ...]:
    """A shape with its symbolic sizes given."""
    out = (n.substitute(sizes) if isinstance(n, Size) else n for n in shape)
    return tuple(int(n) for n in out)


def numbered_text(func: Routine) -> str:
    """The text that all routines share which are `func` but for names."""
    return _Text(_Numbered()).routine(replace(func, name="r"))


def print_statements(func: Routine, names: Names, depth: int) -> list[str]:
    """Lines of the statements of a routine, whose parameters have names already."""
    text = _Text(names)
    text.body(func.body, depth)
    return text.lines


class _Numbered(Names):
    """Names by the order in which they are first printed."""

    def of(self, thing: Var | Buffer) -> str:
        return self.by_id.setdefault(id(thing), f"x{len(self.by_id)}")


class _Text(_Script):
    """Prints a routine."""

    def __init__(self, names: Names | None = None) -> None:
        super().__init__()
        self.names = names or self.names
        self.kept: list[Buffer] = []  # since names go by identity

    def routine(self, func: Routine) -> str:
        """The text, which ends in a newline."""
        sizes = [self.names.of(v) for v in func.sizes]
        head = f"def {function_name(func.name)}"
        buffers = [self.names.of(b) for b in func.params]
        if sizes:
            self.bound += (handles := [Var(f"{name}_handle") for name in buffers])
            params = ", ".join(f"{self.names.of(h)}: T.handle" for h in handles)
        else:
            params = ", ".join(
                f"{name}: {self.buffer_type(b)}"
                for name, b in zip(buffers, func.params, strict=True)
            )
        self.lines += ["@T.routine", f"{head}({params}):"]
        for size in sizes:
            self.emit(1, f"{size} = T.int64()")
        if sizes:
            for handle, name, b in zip(handles, buffers, func.params, strict=True):
                args = f"{self.names.of(handle)}, {self.buffer_args(b)}"
                self.emit(1, f"{name} = T.match_buffer({args})")
        if func.attrs:
            self.emit(1, f"T.func_attr({format_literal(dict(func.attrs))})")
        self.body(func.body, 1)
        return "\n".join(self.lines) + "\n"

    def buffer_args(self, b: Buffer) -> str:
        """What declares a buffer; a numbered text does not tell its name."""
        if isinstance(self.names, _Numbered):
            b = replace(b, name=self.names.of(b))
            self.names.by_id[id(b)] = b.name
            self.kept.append(b)
        return super().buffer_args(b)

    def body(self, body: Sequence[Statement], depth: int) -> None:
        """Statements, or `pass`."""
        for s in body:
            self.statement(s, depth)
        if not body:
            self.emit(depth, "pass")

    def value(self, e: Expr) -> str:
        """Text of an expression."""
        return format_expr(e, self.names)

    def statement(self, s: Statement, depth: int) -> None:
        """One statement, and those in it."""
        if isinstance(s, Store):
            self.emit(depth, f"{self.value(s.target)} = {self.value(s.value)}")
        elif isinstance(s, Let):
            value = self.value(s.value)
            self.emit(depth, f"{self.names.of(s.var)} = {value}")
        elif isinstance(s, Alloc):
            self.alloc(s.buffer, depth)
        elif isinstance(s, Evaluate):
            self.emit(depth, f"T.evaluate({self.value(s.value)})")
        elif isinstance(s, Loop):
            ends = self.value(s.end)
            if not (isinstance(s.begin, Const) and s.begin.value == 0 and s.step == 1):
                ends = f"{self.value(s.begin)}, {ends}"
            step = f", step={s.step}" if s.step != 1 else ""
            self.emit(depth, f"for {self.names.of(s.var)} in T.{s.kind}({ends}{step}):")
            self.body(s.body, depth + 1)
        elif isinstance(s, Assert):
            self.emit(depth, f"assert {self.value(s.condition)}, {s.message!r}")
        elif isinstance(s, While):
            self.emit(depth, f"while {self.value(s.condition)}:")
            self.body(s.body, depth + 1)
        else:
            self.choice(s, depth)

    def choice(self, s: If, depth: int) -> None:
        """`if` and `else`; scripts have no `elif`."""
        self.emit(depth, f"if {self.value(s.condition)}:")
        self.body(s.yes, depth + 1)
        if s.no:
            self.emit(depth, "else:")
            self.body(s.no, depth + 1)
