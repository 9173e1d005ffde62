"""A reader of the predecessor's text format, `#[version = "0.0.5"] def @main(%x: …) { … }`."""

from __future__ import annotations

from itertools import pairwise

from autosched.checks import text as checked_text
from autosched.errors import ScriptError
from autosched.graph.data import DataType
from autosched.graph.expressions import Block
from autosched.graph.inference import completed
from autosched.graph.ir import Function
from autosched.graph.relay_bodies import SPECIAL, BodyReader
from autosched.graph.relay_operators import PLAIN, RENAMED
from autosched.graph.types import Type
from autosched.script.source import Source
from autosched.te.prim_func import free_name
from autosched.tir.module import IRModule
from autosched.tir.printer import function_name

MOST = 1 << 20
"""Characters of a text."""
OTHERWISE = {"None": "Nothing"}
"""Names that are no names here, with those that stand for them, as in the prelude."""


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


class _Reader(BodyReader):
    """Reads the definitions of a text."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        for (before, _), (word, _) in pairwise(self.tokens):
            if before == "def" and word.startswith("@"):
                self.name(word)

    def name(self, word: str) -> str:
        """The name here of a function, a data type or a constructor: its own where that is one, or
        else the nearest that is free."""
        if word not in self.names:
            own = word.lstrip("@")
            wanted = OTHERWISE.get(own, function_name(own))
            self.names[word] = own if wanted == own else free_name(wanted, self.taken)
        return self.names[word]

    def module(self) -> IRModule:
        functions = self.functions
        while self.next:
            word = self.take()
            if word == "type":
                made = self.data_type()
                functions[made.name] = made
            elif word == "def":
                name = self.name(self.take())
                if name in functions:
                    raise self.error(f"{name} is defined twice")
                functions[name] = self.function(name, Block({}))
            elif word == "fn" and not self.has_functions():
                functions["main"] = self.function("main", Block({}))
            elif self.starts_expression(word) and not self.has_functions():
                self.at -= 1
                functions["main"] = self.expression_of_variables()
            else:
                self.at -= 1
                raise self.error("expected `def @name(…) { … }` or `type Name { … }`")
        if not self.has_functions():
            raise self.error("the text has no function; expected def @main(…) { … }")
        return IRModule({}, completed(functions, self.notes, frozenset()))

    def has_functions(self) -> bool:
        """Whether a function stands before."""
        return any(isinstance(f, Function) for f in self.functions.values())

    def starts_expression(self, word: str) -> bool:
        """Whether a text that is an expression alone may start with a word."""
        operators = word in PLAIN or word in RENAMED or word in SPECIAL
        names = ("free_var", "let", "if", "match", "True", "False")
        return word in names or word in self.fields or operators or not word[0].isalpha()

    def expression_of_variables(self) -> Function:
        """`free_var %x: T; …; expression`, as an expression alone is printed."""
        block, params = Block({}), []
        while self.accept("free_var"):
            if self.next in block.names:
                raise self.error(f"two variables are named {self.next}")
            params.append(self.parameter(block))
            self.expect(";")
        return Function("main", tuple(params), block.body(self.sequence(block)))

    def data_type(self) -> DataType:
        word = self.take()
        if word in self.data:
            raise self.error(f"{word} is defined twice")
        name = self.name(word)
        params = self.type_parameters()
        self.type_vars = params
        self.data[word] = DataType(name, params, ())  # its own constructors mention it
        self.expect("{")
        rows = self.several("}", self.constructor)
        self.type_vars = ()
        self.data[word] = DataType(name, params, tuple(rows))
        return self.data[word]

    def constructor(self) -> tuple[str, tuple[Type, ...]]:
        word = self.take()
        if word in self.fields:
            raise self.error(f"the constructor {word} is defined twice")
        fields = tuple(self.several(")", self.type)) if self.accept("(") else ()
        self.fields[word] = len(fields)
        return self.name(word), fields
