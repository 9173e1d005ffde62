"""Source text, and errors that show where in it something is wrong."""

from __future__ import annotations

import ast
from typing import Union

from autosched.errors import ScriptError
from autosched.tir.nodes import Node

Place = Union[ast.expr, ast.stmt, ast.arg, ast.keyword]
MIGRATE = "autosched.script.migrate rewrites TVMScript"
"""For messages on forms that only TVMScript has."""
WIDTH = 100
"""Columns of a source line that an error shows."""


class Source:
    """A text and where it comes from.

    `name` is a file's name or "", `first_line` the number in that file of the text's first line,
    `indent` how far the text has been moved to the left.
    """

    def __init__(self, text: str, name: str = "", first_line: int = 1, indent: int = 0) -> None:
        # Python reads every kind of line end as one; lines are counted as Python counts them.
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.lines = self.text.split("\n")
        self.name, self.first_line, self.indent = name, first_line, indent
        self.places: dict[Node | tuple[str, str], str] = {}
        """Where loops, blocks and (function, attribute) stand, as a message begins; for what the
        verifier finds."""

    def longest_line(self) -> int:
        """Number of the longest line, from 1."""
        return 1 + max(range(len(self.lines)), key=lambda n: len(self.lines[n]))

    def error(self, place: Place, message: str) -> ScriptError:
        """An error at an AST node: position, message, the source line with the node underlined."""
        line = self.lines[place.lineno - 1] if place.lineno <= len(self.lines) else ""
        raw = line.encode(errors="replace")
        begin = self._column(place)
        end = len(line)
        if place.end_lineno == place.lineno and place.end_col_offset is not None:
            end = len(raw[: place.end_col_offset].decode(errors="replace"))
        return self.error_at(place.lineno, begin, message, end)

    def remember(self, node: Node, s: ast.stmt) -> None:
        """Note that `node` was read from the statement `s`."""
        # Before a statement stand blanks alone, of one byte each.
        self.places[node] = self._start(s.lineno, s.col_offset)

    def remember_attribute(self, function: str, key: str, value: ast.expr) -> None:
        """Note that an attribute of a function has the value at `value`."""
        self.places[function, key] = self._start(value.lineno, self._column(value))

    def _column(self, place: Place) -> int:
        """Characters before a node; the AST counts bytes."""
        line = self.lines[place.lineno - 1] if place.lineno <= len(self.lines) else ""
        return len(line.encode(errors="replace")[: place.col_offset].decode(errors="replace"))

    def error_at(self, line: int, begin: int, message: str, end: int = 0) -> ScriptError:
        """An error at columns `begin` to `end` (from 0) of a line (from 1)."""
        number, column = line + self.first_line - 1, begin + self.indent + 1
        parts = [f"{self._start(line, begin)}{message}"]
        if 1 <= line <= len(self.lines) and self.lines[line - 1].strip():
            text = "".join(c if c.isprintable() else " " for c in self.lines[line - 1])
            # A long line is cut so that the fault stays in view.
            first = max(0, begin - WIDTH // 2) if len(text) > WIDTH else 0
            shown = text[first : first + WIDTH]
            carets = max(1, min(end, first + len(shown)) - begin)
            margin = " " * len(str(number))
            parts.append(f"  {number} | {shown}")
            parts.append(f"  {margin} | {' ' * (begin - first)}{'^' * carets}")
        return ScriptError("\n".join(parts), number, column)

    def _start(self, line: int, begin: int) -> str:
        file = f"{self.name}, " if self.name else ""
        number, column = line + self.first_line - 1, begin + self.indent + 1
        return f"{file}line {number}, column {column}: "
