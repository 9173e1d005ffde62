"""A reader of the predecessor's text format, `#[version = "0.0.5"] def @main(%x: …) { … }`."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autosched.checks import text as checked_text
from autosched.errors import ScriptError, WorkloadError
from autosched.graph.builder import const, make_call
from autosched.graph.data import DataType
from autosched.graph.expressions import Block
from autosched.graph.inference import completed
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
    Value,
    Var,
)
from autosched.graph.relay_calls import SPECIAL
from autosched.graph.relay_operators import IDLE, LEVELS, PLAIN, RENAMED
from autosched.graph.relay_tokens import Tokens
from autosched.graph.relay_types import Following
from autosched.graph.types import DataRef, FuncType, Hole, TensorType, TupleType, Type, TypeVar
from autosched.script.source import Source
from autosched.tir.module import GraphFunction, IRModule

MOST = 1 << 20
"""Characters of a text."""
DEEPEST = 60
"""Brackets inside brackets."""


def from_relay(text: str) -> IRModule:
    """The module of a text of the predecessor. Raises ScriptError, showing the line, for what is
    not read: among others operators that have no translation, and weights in `meta`."""
    source = Source(checked_text("the text", text, ScriptError))
    if len(text) > MOST:
        raise source.error_at(1, 0, f"the text has {len(text)} characters; at most {MOST} are read")
    try:
        return _Reader(source).module()
    except RecursionError as e:
        raise source.error_at(1, 0, "the text nests too deeply") from e


class _Reader(Tokens):
    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.data: dict[str, DataType] = {}
        self.fields: dict[str, int] = {}
        self.type_vars: tuple[str, ...] = ()
        self.following = Following()

    # Definitions

    def module(self) -> IRModule:
        functions: dict[str, GraphFunction] = {}
        while self.next:
            word = self.take()
            if word == "type":
                made = self.data_type()
                functions[made.name] = self.data[made.name] = made
            elif word == "def":
                name = self.take()[1:].replace(".", "_")
                if name in functions:
                    raise self.error(f"{name} is defined twice")
                functions[name] = self.function(name, Block({}))
            elif word == "fn" and not functions:
                functions["main"] = self.function("main", Block({}))
            elif word == "free_var" and not functions:
                functions["main"] = self.expression_of_variables()
            else:
                self.at -= 1
                raise self.error("expected `def @name(…) { … }` or `type Name { … }`")
        if not functions:
            raise self.error("the text has no function; expected def @main(…) { … }")
        return IRModule({}, completed(functions, self.notes, frozenset()))

    def expression_of_variables(self) -> Function:
        """`free_var %x: T; …; expression`, as an expression alone is printed."""
        self.at -= 1
        block, params = Block({}), []
        while self.accept("free_var"):
            params.append(self.parameter(block))
            self.expect(";")
        return Function("main", tuple(params), block.body(self.sequence(block)))

    def data_type(self) -> DataType:
        name = self.take()
        params = tuple(self.several("]", self.take)) if self.accept("[") else ()
        self.type_vars = params
        self.data[name] = DataType(name, params, ())  # its own constructors mention it
        self.expect("{")
        rows = self.several("}", self.constructor)
        return DataType(name, params, tuple(rows))

    def constructor(self) -> tuple[str, tuple[Type, ...]]:
        name = self.take()
        fields = tuple(self.several(")", self.type)) if self.accept("(") else ()
        self.fields[name] = len(fields)
        return name, fields

    def function(self, name: str, outer: Block) -> Function:
        place = self.place()
        before = self.type_vars
        if self.accept("["):
            self.type_vars = tuple(self.several("]", self.take))
        own = self.type_vars if self.type_vars != before else ()
        self.expect("(")
        block = outer.inner()
        found = self.several(")", lambda: self.parameter_or_attribute(block))
        params = tuple(v for v in found if v is not None)
        declared = (self.type(),) if self.accept("->") else None
        body = self.braces(block)
        self.type_vars = before
        made = Function(name, params, body, (("types", own),) if own else ())
        self.notes.put(made, place)
        if declared is not None:
            self.notes.results[id(made)] = (made, declared)
        return made

    def parameter_or_attribute(self, block: Block) -> Var | None:
        """`%x: type`, or what passes write beside them, `Primitive=1`, which is left out."""
        if self.tokens[self.at + 1][0] != "=":
            return self.parameter(block)
        self.take()
        self.expect("=")
        self.literal()
        return None

    def parameter(self, block: Block) -> Var:
        place, name = self.place(), self.take()
        v = Var(_plain(name), self.type() if self.accept(":") else Hole())
        self.notes.put(v, place)
        block.names[name] = v
        return v

    # Types

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
            return DataRef(word, tuple(self.several("]", self.type)) if self.accept("[") else ())
        return TensorType((), self.dtype(word))

    def extent(self) -> int:
        word = self.take()
        if not word.isdigit():
            raise self.error(f"the size {word} is no number; sizes that are not known are not read")
        return int(word)

    # Bodies

    def braces(self, block: Block) -> Body:
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(f"blocks nest more than {DEEPEST} deep")
        self.expect("{")
        result = self.sequence(block)
        self.expect("}")
        self.depth -= 1
        return block.body(result)

    def sequence(self, block: Block) -> Atom:
        """`let %x = a; %0 = b; result`."""
        while True:
            is_let = self.accept("let")
            following = self.tokens[self.at + 1][0] if self.next else ""
            if not is_let and not (self.next.startswith("%") and following == "="):
                return self.expression(block)
            place, name = self.place(), self.take()
            t = self.type() if self.accept(":") else None
            self.expect("=")
            block.names[name] = found = self.expression(block, name)
            if t is not None:
                self.notes.ascribed.append((found, t, place))
                self.following.state(found, t)
            self.expect(";")

    def emit(self, block: Block, value: Value, place: ast.expr, name: str) -> Var:
        return self.bind(block, value, place, (Var(name, Hole()),))[0]

    def bind(
        self, block: Block, value: Value, place: ast.expr, results: tuple[Var, ...]
    ) -> tuple[Var, ...]:
        """Variables for the results of a value."""
        binding = Binding(results, value)
        for thing in (*results, binding):
            self.notes.put(thing, place)
        self.following.bind(binding)
        block.out.append(binding)
        return results

    def expression(self, block: Block, name: str = "", level: int = 0) -> Atom:
        if level == len(LEVELS):
            return self.postfix(block, name)
        left = self.expression(block, name, level + 1)
        while self.next in LEVELS[level]:
            place, sign = self.place(), self.take()
            args = [left, self.expression(block, "", level + 1)]
            op = LEVELS[level][sign]
            left = self.emit(block, make_call(op, args, {})[0], place, op.lower())
            if sign == "!=":
                left = self.emit(block, Call("Not", (left,)), place, "differs")
        return left

    def postfix(self, block: Block, name: str) -> Atom:
        found = self.primary(block, name)
        while True:
            place = self.place()
            if self.accept("("):
                args = tuple(self.several(")", lambda: self.expression(block)))
                if isinstance(found, Const):
                    raise self.error("only functions can be called")
                found = self.emit(block, Call(found, args), place, "call")
            elif self.accept("."):
                found = self.emit(block, Item(found, int(self.take())), place, "item")
            else:
                return found

    def primary(self, block: Block, name: str) -> Atom:
        place, word = self.place(), self.take()
        if word.startswith("%"):
            # `%t.0` is a part of a tuple.
            base, _, index = word.partition(".")
            whole = word in block.names
            found = block.names.get(word if whole else base)
            if found is None:
                raise self.error_at(self.tokens[self.at - 1][1], f"{word} is not defined before")
            if whole or not index:
                return found
            return self.emit(block, Item(found, int(index)), place, "item")
        if word.startswith("@"):
            return Global(word[1:].replace(".", "_"))
        if word == "-" and not self.next[:1].isdigit():
            value = make_call("Neg", [self.primary(block, "")], {})[0]
            return self.emit(block, value, place, "neg")
        if word[0].isdigit() or word == "-":
            return self.number(word if word != "-" else "-" + self.take())
        if word in ("True", "False"):
            return const(word == "True")
        if word == "(":
            return self.parenthesis(block, place)
        if word == "fn":
            return self.closure(block, place, name)
        if word == "if":
            return self.branch(block, place)
        if word in ("match", "match?"):
            return self.match(block, place)
        if word in self.fields:
            if self.fields[word] and self.next != "(":
                return Global(word)
            args = self.several(")", lambda: self.expression(block)) if self.accept("(") else []
            return self.emit(block, Call(Global(word), tuple(args)), place, word.lower())
        if not (word[0].isalpha() or word[0] == "_"):
            raise self.error_at(self.tokens[self.at - 1][1], f"expected a value, found {word}")
        return self.operator(word, block, place)

    def parenthesis(self, block: Block, place: ast.expr) -> Atom:
        """A tuple, or an expression in brackets."""
        items = []
        comma = False
        while not self.accept(")"):
            items.append(self.expression(block))
            if not self.accept(","):
                self.expect(")")
                break
            comma = True
        if len(items) == 1 and not comma:
            return items[0]
        return self.emit(block, TupleExpr(tuple(items)), place, "tuple")

    def closure(self, block: Block, place: ast.expr, name: str) -> Atom:
        v = Var(_plain(name) if name else "fn", Hole())
        self.notes.put(v, place)
        outer = block.inner()
        if name:
            outer.names[name] = v  # it may call itself
        binding = Binding((v,), self.function(v.name, outer))
        self.notes.put(binding, place)
        block.out.append(binding)
        return v

    def branch(self, block: Block, place: ast.expr) -> Atom:
        self.expect("(")
        condition = self.expression(block)
        self.expect(")")
        then = self.braces(block.inner())
        self.expect("else")
        return self.emit(block, If(condition, then, self.braces(block.inner())), place, "choice")

    def match(self, block: Block, place: ast.expr) -> Atom:
        self.expect("(")
        value = self.expression(block)
        self.expect(")")
        self.expect("{")
        clauses = self.several("}", lambda: self.clause(block.inner()))
        return self.emit(block, Match(value, tuple(clauses)), place, "found")

    def clause(self, block: Block) -> tuple[Pattern | Var | None, Body]:
        pattern = self.pattern(block)
        self.expect("=>")
        if self.next == "{":
            return pattern, self.braces(block)
        return pattern, block.body(self.sequence(block))

    def pattern(self, block: Block) -> Pattern | Var | None:
        if self.accept("_"):
            return None
        if self.next.startswith("%"):
            return self.parameter(block)
        place, word = self.place(), self.take()
        if word != "(" and word not in self.fields:
            raise self.error(f"no constructor is named {word}")
        inside = word == "(" or self.accept("(")
        parts = tuple(self.several(")", lambda: self.pattern(block))) if inside else ()
        made = Pattern("" if word == "(" else word, parts)
        self.notes.put(made, place)
        return made

    # Operators

    def operator(self, word: str, block: Block, place: ast.expr) -> Atom:
        start = self.tokens[self.at - 1][1]
        if word not in PLAIN and word not in RENAMED and word not in SPECIAL:
            raise self.error_at(start, _no_operator(word))
        self.expect("(")
        args: list[Atom] = []
        attrs: dict[str, Any] = {}
        while not self.accept(")"):
            if self.tokens[self.at + 1][0] == "=":
                key = self.take()
                self.expect("=")
                attrs[key] = self.literal()
            else:
                args.append(self.expression(block))
            if not self.accept(","):
                self.expect(")")
                break
        if word in SPECIAL:
            return self.special(word, args, attrs, block, place, start)
        op, names, given = RENAMED.get(word, (PLAIN.get(word, ""), {}, {}))
        attrs = {k: v for k, v in attrs.items() if k in names or v != IDLE.get(k, ...)}
        wrong = [k for k in attrs if k not in names]
        if wrong:
            raise self.error_at(start, f"the attribute {wrong[0]} of {word} is not read")
        value = make_call(op, args, {**given, **_renamed(attrs, names)})[0]
        return self.emit(block, value, place, op.lower())

    def special(
        self,
        word: str,
        args: Sequence[Atom],
        attrs: Mapping[str, Any],
        block: Block,
        place: ast.expr,
        start: int,
    ) -> Atom:
        """An operator that is translated by a function."""
        known, translate = SPECIAL[word]
        wrong = [k for k in attrs if k not in known.split()]
        if wrong:
            raise self.error_at(start, f"the attribute {wrong[0]} of {word} is not read")
        try:
            return translate(_Emitter(self, block, place), args, attrs)
        except (WorkloadError, IndexError, KeyError, TypeError, ValueError) as e:
            what = e if isinstance(e, WorkloadError) else "too few arguments or attributes"
            raise self.error_at(start, f"{word}: {what}") from e


def _no_operator(word: str) -> str:
    """An error message for an operator that there is not."""
    if word == "meta":
        return "weights in meta are not in the text; make them parameters of the function"
    if word in ("ref", "ref_read", "ref_write"):
        return "references have no translation; pass the value on as an argument and a result"
    every = sorted({*PLAIN, *RENAMED, *SPECIAL})
    near = ", ".join(difflib.get_close_matches(word, every, 5, 0.5) or every)
    return f"the operator {word} has no translation; there are {near}"


class _Emitter:
    """Binds what a translation makes."""

    def __init__(self, reader: _Reader, block: Block, place: ast.expr) -> None:
        self.reader, self.block, self.place = reader, block, place

    def call(self, op: str, args: Sequence[Atom], results: int = 1, **attrs: Any) -> list[Atom]:
        """The results of an operator."""
        made = tuple(Var(op.lower(), Hole()) for _ in range(results))
        value = make_call(op, args, attrs)[0]
        return list(self.reader.bind(self.block, value, self.place, made))

    def type(self, a: Atom) -> TensorType | None:
        """The type of a tensor, where it follows from what stands before."""
        t = self.reader.following.type_of(a)
        return t if isinstance(t, TensorType) and t.shape is not None else None

    def together(self, parts: Sequence[Atom]) -> Atom:
        """A tuple."""
        return self.reader.emit(self.block, TupleExpr(tuple(parts)), self.place, "tuple")

    def parts(self, a: Atom) -> Sequence[Atom]:
        """The parts of a tuple that the text writes out."""
        for b in reversed(self.block.out):
            if b.vars == (a,) and isinstance(b.value, TupleExpr):
                return b.value.items
        raise WorkloadError("expected a tuple that is written out before it, in the same block")


def _renamed(attrs: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names[k]: v for k, v in attrs.items() if names[k]}


def _plain(name: str) -> str:
    """A name of Python: `%0` is `v0`."""
    found = re.sub(r"\W", "_", name[1:])
    return f"v{found}" if found[:1].isdigit() else found
