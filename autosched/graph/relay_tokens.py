"""Tokens of the predecessor's text format."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np

from autosched.errors import ScriptError
from autosched.graph.builder import const
from autosched.graph.ir import Const
from autosched.graph.notes import Notes
from autosched.script.source import Source
from autosched.tir import dtypes

TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|\#\[[^\]]*\]
    |(?P<token>[%@][A-Za-z0-9_.]+|[A-Za-z_][A-Za-z0-9_.]*\??
    |\d+\.?\d*(?:e[-+]?\d+)?(?:[fiu]\d*|h)?|->|=>|[<>=!]=|"[^"]*"|[-+*/<>=(){}\[\],;:.?])""",
    re.VERBOSE | re.DOTALL,
)


class Tokens:
    """The tokens of a text, read one after another; errors show where."""

    def __init__(self, source: Source) -> None:
        self.source, self.notes = source, Notes(source)
        self.tokens: list[tuple[str, int]] = []
        self.starts = [0, *(m.end() for m in re.finditer("\n", source.text))]
        at = 0
        while at < len(source.text):
            found = TOKEN.match(source.text, at)
            if found is None:
                quoted = self.source.text[at] == '"'
                raise self.error_at(
                    at, "a string that does not end" if quoted else "no such character in a program"
                )
            if found["token"]:
                self.tokens.append((found["token"], at))
            at = found.end()
        self.tokens.append(("", max(at - 1, 0)))
        self.at = self.depth = 0

    def error_at(self, at: int, message: str) -> ScriptError:
        line = bisect_right(self.starts, at)
        return self.source.error_at(line, at - self.starts[line - 1], message)

    def error(self, message: str) -> ScriptError:
        return self.error_at(self.tokens[self.at][1], message)

    def place(self) -> ast.expr:
        """Where the reader stands, as notes have places."""
        at = self.tokens[self.at][1]
        line = bisect_right(self.starts, at)
        before = self.source.text[self.starts[line - 1] : at]
        return ast.Name("here", lineno=line, col_offset=len(before.encode(errors="replace")))

    @property
    def next(self) -> str:
        return self.tokens[self.at][0]

    def take(self) -> str:
        found = self.next
        if not found:
            raise self.error("the text ends here; expected more")
        self.at += 1
        return found

    def accept(self, token: str) -> bool:
        if self.next == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise self.error(f"expected {token}, found {self.next or 'the end'}")

    def several(self, end: str, read: Callable[[], Any]) -> list[Any]:
        """Things with commas between them, up to `end`."""
        found = []
        while not self.accept(end):
            found.append(read())
            if not self.accept(","):
                self.expect(end)
                break
        return found

    def type_parameters(self) -> tuple[str, ...]:
        """Names in square brackets, as they are printed, or in angle brackets, as the language
        reference has them; none where neither stands."""
        if self.accept("["):
            return tuple(self.several("]", self.take))
        return tuple(self.several(">", self.take)) if self.accept("<") else ()

    def dtype(self, word: str) -> str:
        if word not in dtypes.DTYPES:
            raise self.error(f"no type is named {word}; expected Tensor[(1, 64), float32]")
        return word

    def number(self, word: str) -> Const:
        found = re.fullmatch(r"(-?\d+\.?\d*(?:e[-+]?\d+)?)([fiu]\d*|h)?", word)
        if found is None:
            raise self.error(f"{word} is no number")
        kind = found[2] or ("f" if "." in word or "e" in word else "i")
        kind = {"f": "float32", "i": "int32", "h": "float16"}.get(kind) or (
            {"f": "float", "i": "int", "u": "uint"}[kind[0]] + kind[1:]
        )
        array: Any = np.asarray(float(found[1]) if "float" in kind else int(found[1]))
        dtype = self.dtype(kind)
        if "int" in dtype and not np.iinfo(dtype).min <= array <= np.iinfo(dtype).max:
            raise self.error(f"{word} is no value of {dtype}")
        return const(array, dtype)

    def literal(self) -> Any:
        word = self.take()
        if word in ("[", "("):
            return tuple(self.several("]" if word == "[" else ")", self.literal))
        if word in ("True", "False"):
            return int(word == "True")
        if word == "None":
            return None
        if word.startswith('"'):
            return word[1:-1]
        return self.number(word if word != "-" else "-" + self.take()).value.item()
