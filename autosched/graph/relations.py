"""Type relations: what holds between types and is found out once enough of them is known.

A relation that `fire` returns False for waits; those that wait for type parameters of a function
belong to its type, and hold again wherever it is called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any, Protocol, get_args

from autosched.errors import AutoschedError
from autosched.graph.higher import HIGHER
from autosched.graph.infer import infer
from autosched.graph.ir import Atom, Binding, Call, Const, Var
from autosched.graph.notes import Notes
from autosched.graph.ops.registry import python_name
from autosched.graph.types import (
    Hole,
    OpenTensor,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    joined,
    leaves,
    substituted,
)
from autosched.graph.unify import LITERALS, Mismatch, Unifier, literal_fits
from autosched.tir.size_atoms import SizeVar

SHOWN = 4
"""Arguments of an operator that errors describe."""


class Context(Protocol):
    """What relations need of whoever checks."""

    u: Unifier
    notes: Notes

    def described(self, a: Atom | None) -> str:
        """An atom for an error message."""
        ...


@dataclass
class Relation(ABC):
    """One relation, of the types among its fields; `binding` is where it is from."""

    binding: Binding

    @abstractmethod
    def fire(self, c: Context) -> bool:
        """Whether it was found to hold; raises AutoschedError where it cannot."""

    def force(self, c: Context, last: bool) -> bool:
        """Guess, where nothing else is left to be found out; whether anything was guessed. With
        `last`, where no other relation could guess."""
        return False

    def types(self) -> Iterator[Type]:
        """All types that it stands between."""
        for f in fields(self):
            found = getattr(self, f.name)
            yield from (t for t in (found if isinstance(found, tuple) else (found,)) if _is_type(t))

    def copied(
        self, binding: Binding, types: Mapping[Type, Type], sizes: Mapping[SizeVar, Any]
    ) -> Relation:
        """The relation between other types and sizes, from another place."""

        def new(x: Any) -> Any:
            if isinstance(x, tuple):
                return tuple(map(new, x))
            return substituted(x, types, sizes) if _is_type(x) else x

        made = {f.name: new(getattr(self, f.name)) for f in fields(self)}
        return replace(self, **{**made, "binding": binding})


_TYPES = get_args(Type)


def _is_type(x: object) -> bool:
    return isinstance(x, _TYPES)


def _is_open(t: Type | None) -> bool:
    """Whether a type hangs on what is to be found, or on a type parameter."""
    return isinstance(t, (TypeVar, OpenTensor)) or (isinstance(t, Hole) and not t.literal)


@dataclass
class Applies(Relation):
    """The results of an operator have the types that its definition gives."""

    call: Call
    args: tuple[Type | None, ...]
    results: tuple[Type, ...]

    def fire(self, c: Context) -> bool:
        known = [None if a is None else c.u.resolve(a) for a in self.args]
        higher = self.call.callee in HIGHER
        for n, t in enumerate(known):
            if _is_open(t):
                return False
            if higher and t is not None:
                known[n] = t = c.u.full(t)
                if any(isinstance(x, Hole) for x in leaves(t)):
                    return False
            elif t is not None and not isinstance(t, (TensorType, Hole)):
                what = c.described(self.call.args[n])
                raise c.notes.error(
                    self.binding,
                    f"{self.name}: argument {n + 1}, {what}, has the type {c.u.full(t)}; operators "
                    "take tensors",
                )
        numbers = [t for t in known if isinstance(t, Hole)]
        plain = [t.literal for t in numbers if t.literal != "bool"]
        widest = max(plain, key=list(LITERALS).index, default="bool")
        for n, t in enumerate(known):
            if isinstance(t, Hole):
                fit = (x for x in known if isinstance(x, TensorType) and literal_fits(t.literal, x))
                alone = len(numbers) < len(known) or t.literal == "bool"
                kind = t.literal if alone else widest
                dtype = next((x.dtype for x in fit), LITERALS[kind])
                known[n] = TensorType((), dtype)
                c.u.unify(t, TensorType((), dtype))
        for t, found in zip(self.results, self._infer(c, known), strict=True):
            self._result(c, c.u.resolve(t), found)
        return True

    @property
    def name(self) -> str:
        return f"op.{python_name(str(self.call.callee))}"

    def _infer(self, c: Context, known: Sequence[Type | None]) -> tuple[Type, ...]:
        args: list[Atom | None] = []
        for a, t in zip(self.call.args, known, strict=True):
            same = isinstance(a, Const) and a.type == t
            args.append(a if same or t is None else Var(getattr(a, "name", "number"), t))
        try:
            return infer(Call(self.call.callee, tuple(args), self.call.attrs), len(self.results))
        except AutoschedError as e:
            raise c.notes.error(self.binding, f"{e}{self._origins(c)}") from e

    def _origins(self, c: Context) -> str:
        """Where the arguments are from."""
        found = [
            f"{c.described(a)} of type {c.u.full(t)}"
            for a, t in zip(self.call.args, self.args, strict=True)
            if a is not None and t is not None
        ]
        return f"; with {', '.join(found[:SHOWN])}" if found else ""

    def _result(self, c: Context, t: Type, found: Type) -> None:
        stored = isinstance(t, TensorType) and isinstance(found, TensorType) and t.layout
        same = stored and (t.shape, t.dtype) == (found.shape, found.dtype)  # type: ignore[union-attr]
        if same:
            return
        try:
            c.u.unify(found, t)
        except Mismatch as e:
            raise c.notes.error(
                self.binding,
                f"{self.name} gives the type {found}; the result has to be of type {c.u.full(t)}"
                f"{self._origins(c)}",
            ) from e


@dataclass
class Joins(Relation):
    """A result is of the type that all branches give it. Tensors that differ in their shapes alone
    are one of that dtype whose shape depends on data."""

    number: int
    branches: tuple[Type, ...]
    result: Type
    atoms: tuple[Atom, ...] = ()

    def fire(self, c: Context) -> bool:
        known = [c.u.resolve(t) for t in self.branches]
        first = next((t for t in known if not isinstance(t, Hole)), known[0])
        if any(isinstance(t, Hole) and not t.literal for t in known):
            if not all(t is first for t in known):
                return False
            self._unify(c, first, self.result)
            return True
        tensors = [t for t in known if isinstance(t, TensorType)]
        if len(tensors) == len(known):
            dtypes = {t.dtype for t in tensors} - {""}
            if len(dtypes) == 1 and any(t != first for t in tensors):
                self._unify(c, reduce(joined, known), self.result)
                return True
        for t in known:
            self._unify(c, t, first, between=True)
        self._unify(c, first, self.result)
        return True

    def _unify(self, c: Context, t: Type, other: Type, between: bool = False) -> None:
        try:
            c.u.unify(t, other)
        except Mismatch as e:
            texts = [
                f"{c.u.full(b)} ({c.described(a)})"
                for b, a in zip(self.branches, self.atoms, strict=False)
            ]
            raise c.notes.error(
                self.binding,
                f"the branches give {' and '.join(dict.fromkeys(texts))}; expected one type"
                if between
                else f"the branches give {c.u.full(t)}, which is used as {c.u.full(other)}",
            ) from e

    def force(self, c: Context, last: bool) -> bool:
        """The branches that are known decide: the others call the function that is inferred."""
        if isinstance(c.u.resolve(self.result), Hole) or last:
            for t in self.branches:
                now = c.u.resolve(t)
                open_ = isinstance(now, Hole) and not now.literal
                if open_ == last and now is not c.u.resolve(self.result):
                    self._unify(c, now, self.result, between=True)
                    return True
        return False


_SLICED = "; parts of tensors are op.gather(x, n) and op.slice(…)"


@dataclass
class Part(Relation):
    """`result` is a part of a tuple."""

    atom: Atom
    whole: Type
    index: int
    result: Type

    def fire(self, c: Context) -> bool:
        t = c.u.resolve(self.whole)
        if _is_open(t) and not isinstance(t, OpenTensor):
            return False
        if not isinstance(t, TupleType) or self.index >= len(t.fields):
            raise c.notes.error(
                self.binding,
                f"{c.described(self.atom)} has the type {c.u.full(t)}, which has no part "
                f"{self.index}{_SLICED if isinstance(t, TensorType) else ''}",
            )
        try:
            c.u.unify(t.fields[self.index], self.result)
        except Mismatch as e:
            raise c.notes.error(
                self.binding,
                f"part {self.index} of {c.described(self.atom)} has the type "
                f"{c.u.full(t.fields[self.index])}; it is used as {c.u.full(self.result)}",
            ) from e
        return True


@dataclass
class Decides(Relation):
    """The condition of an `if` is one truth value."""

    atom: Atom
    type: Type

    def fire(self, c: Context) -> bool:
        t = c.u.resolve(self.type)
        if _is_open(t):
            return False
        one: Any = t if isinstance(t, TensorType) else None
        if isinstance(t, Hole) and t.literal == "bool":
            return True
        wrong = one is None or one.dtype not in ("bool", "")
        if wrong or (one.is_static and one.elements != 1):
            raise c.notes.error(
                self.binding,
                f"{c.described(self.atom)} decides a branch; expected a value of type "
                f'G.Tensor((), "bool"), found {c.u.full(t)}',
            )
        return True

    def force(self, c: Context, last: bool) -> bool:
        t = c.u.resolve(self.type)
        if isinstance(t, Hole) and last:
            c.u.unify(t, TensorType((), "bool"))
            return True
        return False
