"""Types while the predecessor's text is read: what some of its operators mean hangs on them."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import AutoschedError
from autosched.graph.data import DataType
from autosched.graph.infer import infer
from autosched.graph.ir import Atom, Binding, Call, Const, Item, TupleExpr, Var, atoms
from autosched.graph.relay_tokens import Tokens
from autosched.graph.types import DataRef, FuncType, Hole, TensorType, TupleType, Type, TypeVar
from autosched.script.source import Source


class Following:
    """Types of values as far as they follow from operators and parameters before them."""

    def __init__(self) -> None:
        self.makers: dict[int, Binding] = {}
        self.types: dict[int, tuple[Atom, Type | None]] = {}
        """By id, with what keeps the id."""

    def bind(self, b: Binding) -> None:
        """Note a binding."""
        self.makers.update({id(v): b for v in b.vars})

    def state(self, a: Atom, t: Type) -> None:
        """Note a type that is written."""
        self.types[id(a)] = (a, t)

    def type_of(self, a: Atom) -> Type | None:
        """The type of a value; None where it does not follow."""
        work = [a]
        while work:
            one = work[-1]
            b = self.makers.get(id(one))
            waits = [] if b is None else [x for x in atoms(b.value) if id(x) not in self.types]
            if waits and id(one) not in self.types:
                work += waits
                continue
            if id(one) not in self.types:
                results = [one] if b is None else list(b.vars)
                found = [one.type] if b is None else self._results(b)
                for v, t in zip(results, found, strict=True):
                    self.types.setdefault(id(v), (v, None if isinstance(t, Hole) else t))
            work.pop()
        return self.types[id(a)][1]

    def _results(self, b: Binding) -> Sequence[Type | None]:
        """Types of the results of a binding whose arguments have theirs."""
        nothing = [None] * len(b.vars)
        known = {id(x): t for x in atoms(b.value) for t in [self.types[id(x)][1]] if t is not None}
        if any(id(x) not in known for x in atoms(b.value)):
            return nothing
        if isinstance(b.value, TupleExpr):
            return [TupleType(tuple(known[id(x)] for x in b.value.items))]
        if isinstance(b.value, Item):
            whole = known[id(b.value.value)]
            parts = whole.fields if isinstance(whole, TupleType) else ()
            return [parts[b.value.index]] if b.value.index < len(parts) else nothing
        if not isinstance(b.value, Call) or not isinstance(b.value.callee, str):
            return nothing
        args = tuple(
            a if a is None or isinstance(a, Const) else Var("x", known[id(a)]) for a in b.value.args
        )
        try:
            return infer(Call(b.value.callee, args, b.value.attrs), len(b.vars))
        except AutoschedError:
            return nothing  # inference of the whole text says what is wrong, and where


class TypeReader(Tokens):
    """Reads types."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.data: dict[str, DataType] = {}
        """Data types, by their names in the text."""
        self.type_vars: tuple[str, ...] = ()

    def type(self) -> Type:
        word = self.take()
        if word == "(":
            return TupleType(tuple(self.several(")", self.type)))
        if word == "fn":
            self.expect("(")
            params = tuple(self.several(")", self.type))
            self.expect("->")
            return FuncType(params, (self.type(),))
        if word == "Tensor":
            self.expect("[")
            self.expect("(")
            shape = tuple(self.several(")", self.extent))
            self.expect(",")
            made = TensorType(shape, self.dtype(self.take()))
            self.expect("]")
            return made
        if word in self.type_vars:
            return TypeVar(word)
        if word in self.data:
            name = self.data[word].name
            return DataRef(name, tuple(self.several("]", self.type)) if self.accept("[") else ())
        return TensorType((), self.dtype(word))

    def extent(self) -> int:
        word = self.take()
        if not word.isdigit():
            raise self.error(f"the size {word} is no number; sizes that are not known are not read")
        return int(word)
