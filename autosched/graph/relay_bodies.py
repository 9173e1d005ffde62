"""Functions and expressions of the predecessor's text format."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from autosched.errors import WorkloadError
from autosched.graph.builder import const, make_call
from autosched.graph.expressions import Block
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
from autosched.graph.relay_arrays import ARRAYS
from autosched.graph.relay_calls import CALLS
from autosched.graph.relay_operators import IDLE, LEVELS, PLAIN, RENAMED
from autosched.graph.relay_reductions import REDUCED, REDUCTIONS, included
from autosched.graph.relay_types import Following, TypeReader
from autosched.graph.types import Hole, TensorType
from autosched.script.source import Source
from autosched.te.prim_func import free_name
from autosched.tir.module import GraphFunction

DEEPEST = 60
"""Brackets inside brackets."""
SPECIAL = {**CALLS, **REDUCTIONS, **ARRAYS}
"""Operators that are translated by functions, with the attributes that are read."""


class BodyReader(TypeReader):
    """Reads functions with their bodies."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.fields: dict[str, int] = {}
        """Numbers of fields of constructors, by their names in the text."""
        self.names: dict[str, str] = {}
        """Names here of functions, with @, data types and constructors."""
        self.taken = {word.lstrip("@%") for word, _ in self.tokens}
        self.functions: dict[str, GraphFunction] = {}
        self.general = 0
        self.following = Following()

    def function(self, name: str, outer: Block) -> Function:
        place = self.place()
        before = self.type_vars
        own = self.type_parameters()
        self.type_vars = own or before
        self.expect("(")
        block = outer.inner()
        seen: set[str] = set()
        found = self.several(")", lambda: self.parameter_or_attribute(block, seen))
        params = tuple(v for v in found if v is not None)
        declared = (self.type(),) if self.accept("->") else None
        body = self.braces(block)
        self.type_vars = before
        made = Function(name, params, body, (("types", own),) if own else ())
        self.notes.put(made, place)
        if declared is not None:
            self.notes.results[id(made)] = (made, declared)
        return made

    def parameter_or_attribute(self, block: Block, seen: set[str]) -> Var | None:
        """`%x: type`, or what passes write beside them, `Primitive=1`, which is left out."""
        if self.tokens[self.at + 1][0] != "=":
            if self.next in seen:
                raise self.error(f"two parameters are named {self.next}")
            seen.add(self.next)
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
            elif isinstance(found, Global) and self.accept("["):
                if found.name in {self.names[word] for word in self.fields}:
                    raise self.error("a constructor takes no types; its result has them: state it")
                types = tuple(self.several("]", self.type))
                self.expect("(")
                args = tuple(self.several(")", lambda: self.expression(block)))
                found = self.emit(block, Call(found, args, (("types", types),)), place, "call")
            elif self.accept("."):
                found = self.part(found, self.take(), block, place)
            else:
                return found

    def part(self, whole: Atom, numbers: str, block: Block, place: ast.expr) -> Atom:
        """`.1.0`: a part of a part of a tuple."""
        for n in numbers.split("."):
            if not n.isdigit():
                raise self.error_at(
                    self.tokens[self.at - 1][1], f"{n} is no part of a tuple; expected a number"
                )
            whole = self.emit(block, Item(whole, int(n)), place, "item")
        return whole

    def variable(self, word: str, block: Block, place: ast.expr) -> Atom:
        """`%t`; `%t.0` is a part of a tuple, where no variable has that name."""
        name = word
        while name not in block.names and "." in name:
            name = name.rpartition(".")[0]
        found = block.names.get(name)
        if found is None:
            why = " in this function over types, which takes nothing from around it"
            raise self.error_at(
                self.tokens[self.at - 1][1],
                f"{word} is not defined before{why if self.general else ''}",
            )
        return found if name == word else self.part(found, word[len(name) + 1 :], block, place)

    def primary(self, block: Block, name: str) -> Atom:
        place, word = self.place(), self.take()
        if word.startswith("%"):
            return self.variable(word, block, place)
        if word.startswith("@"):
            return Global(self.names.get(word, word[1:]))
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
            return self.match(block, place, word == "match")
        if word in self.fields:
            constructor = Global(self.names[word])
            if self.fields[word] and self.next != "(":
                return constructor
            args = self.several(")", lambda: self.expression(block)) if self.accept("(") else []
            return self.emit(block, Call(constructor, tuple(args)), place, word.lower())
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
        if self.next in ("[", "<"):
            return self.function_over_types(name)
        v = Var(_plain(name) if name else "fn", Hole())
        self.notes.put(v, place)
        outer = block.inner()
        if name:
            outer.names[name] = v  # it may call itself
        binding = Binding((v,), self.function(v.name, outer))
        self.notes.put(binding, place)
        block.out.append(binding)
        return v

    def function_over_types(self, name: str) -> Global:
        """A closure over types becomes a function of the module: variables have single types."""
        made = Global(free_name(_plain(name) if name else "fn", self.taken))
        self.general += 1
        function = self.function(made.name, Block({name: made} if name else {}))
        self.general -= 1
        self.functions[made.name] = function
        return made

    def branch(self, block: Block, place: ast.expr) -> Atom:
        self.expect("(")
        condition = self.expression(block)
        self.expect(")")
        then = self.braces(block.inner())
        self.expect("else")
        return self.emit(block, If(condition, then, self.braces(block.inner())), place, "choice")

    def match(self, block: Block, place: ast.expr, complete: bool) -> Atom:
        self.expect("(")
        value = self.expression(block)
        self.expect(")")
        self.expect("{")
        clauses = self.several("}", lambda: self.clause(block.inner()))
        return self.emit(block, Match(value, tuple(clauses), complete), place, "found")

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
        made = Pattern("" if word == "(" else self.names[word], parts)
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
                key = self.next
                if key in attrs:
                    raise self.error(f"the attribute {key} is given twice")
                self.take()
                self.expect("=")
                attrs[key] = self.literal()
            else:
                args.append(self.expression(block))
            if not self.accept(","):
                self.expect(")")
                break
        emitter = _Emitter(self, block, place)
        if word in REDUCED:
            with self.translating(word, start):
                attrs = included(emitter, args, attrs)
        if word in SPECIAL:
            known, translate = SPECIAL[word]
            self.check_attributes(word, attrs, known.split(), start)
            with self.translating(word, start):
                return translate(emitter, args, attrs)
        op, names, given = RENAMED.get(word, (PLAIN.get(word, ""), {}, {}))
        attrs = {k: v for k, v in attrs.items() if k in names or v != IDLE.get(k, ...)}
        self.check_attributes(word, attrs, names, start)
        value = make_call(op, args, {**given, **_renamed(attrs, names)})[0]
        return self.emit(block, value, place, op.lower())

    def check_attributes(
        self, word: str, attrs: Mapping[str, Any], known: Collection[str], start: int
    ) -> None:
        """Raises ScriptError for an attribute that is not read."""
        wrong = [k for k in attrs if k not in known]
        if wrong:
            raise self.error_at(start, f"the attribute {wrong[0]} of {word} is not read")

    @contextmanager
    def translating(self, word: str, start: int) -> Iterator[None]:
        """Errors of a translation show where the operator stands."""
        try:
            yield
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

    def __init__(self, reader: BodyReader, block: Block, place: ast.expr) -> None:
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
