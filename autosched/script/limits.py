"""What a script may cost: text may come from anyone.

`scan` looks at the bare text before Python's parser does, so that no nesting reaches it that
exhausts its stack; `Budget` is drawn on while the tree is read.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from autosched.errors import ScriptError
from autosched.script.source import Place, Source
from autosched.tir.height import MAX_HEIGHT


@dataclass(frozen=True)
class Limits:
    """Bounds on one text; beyond any of them it is refused with a ScriptError.

    `characters` of text; `depth` of nested brackets and loops; `height` of expressions; `nodes` of
    the syntax tree, names given to values counted as often as they are used; `blocks` of one
    function; `bytes` of all buffers of one function; `seconds` of processor time for reading and
    verifying, checked now and then.
    """

    characters: int = 1 << 20
    depth: int = 100
    height: int = MAX_HEIGHT
    nodes: int = 300_000
    blocks: int = 1000
    bytes: int = 1 << 40
    seconds: float = 10.0


LIMITS = Limits()

# Each alternative starts with a character of its own, so one pass over the text finds them all.
_SCAN = re.compile(
    r"""
      (?P<comment>\#[^\n]*+)
    | (?P<string>[A-Za-z]{0,3}+
        (?: \"\"\"(?:[^"\\]|\\.|"(?!""))*+\"\"\" | '''(?:[^'\\]|\\.|'(?!''))*+'''
          | "(?:[^"\\\n]|\\.)*+" | '(?:[^'\\\n]|\\.)*+' ))
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<word>\b[A-Za-z_]\w*+)
    | (?P<number>\b[0-9][\w.]*+)
    | (?P<prefix>[-+~])
    | (?P<line>\n)
    | (?P<other>\\|\*\*)
    """,
    re.VERBOSE | re.DOTALL,
)
_REFUSED = {
    "lambda": "functions are called by name, as T.exp",
    "await": "scripts have no coroutines",
    "async": "scripts have no coroutines",
    "elif": "write `else:` and an `if` inside",
    "yield": "scripts have no generators",
}
_GRAPH = re.compile(r"^\s*@G\.module", re.MULTILINE)
_OF_GRAPHS = ("lambda", "elif")
"""Words that functions of the graph level may have."""
_CHAINED = 20
"""Prefix operators in a row."""


def scan(source: Source, limits: Limits) -> None:
    """Raise ScriptError where the text is too long, nests too deeply, or has tokens that no script
    has and that make Python's parser nest."""
    if len(source.text) > limits.characters:
        count = len(source.text)
        raise source.error_at(
            1, 0, f"the script has {count} characters; at most {limits.characters} are read"
        )
    depth = chain = choices = tests = 0
    allowed = _OF_GRAPHS if _GRAPH.search(source.text) else ()
    refused = {k: v for k, v in _REFUSED.items() if k not in allowed}
    for found in _SCAN.finditer(source.text):
        kind, text = found.lastgroup, found.group()
        if kind == "comment":
            continue
        if kind == "line":
            if depth:
                continue
            choices = 0
        elif kind == "open":
            depth += 1
            if depth > limits.depth:
                raise _at(source, found, f"brackets nest more than {limits.depth} deep")
        elif kind == "close":
            depth = max(depth - 1, 0)
        elif kind == "prefix" or text == "not":
            chain += 1
            if chain > _CHAINED:
                raise _at(source, found, f"more than {_CHAINED} prefix operators in a row")
            continue
        elif kind == "word":
            if text in refused:
                raise _at(source, found, f"{text!r} is no part of a script; {refused[text]}")
            if text in ("else", "lambda"):
                choices += 1
                if choices > limits.depth:
                    raise _at(source, found, f"more than {limits.depth} choices in a statement")
            tests = 0 if text == "def" else tests + (text == "elif")
            if tests > limits.depth:
                raise _at(source, found, f"more than {limits.depth} `elif` in a function")
        elif kind == "string":
            _check_string(source, found, text)
        elif kind == "number" and _RUN_ON.search(text):
            raise _at(source, found, "expected a space between a number and a keyword")
        elif kind == "other":
            raise _at(source, found, _OTHER[text])
        chain = 0


_OTHER = {
    "\\": "a backslash outside of a string; lines continue inside brackets",
    "**": "there is no operator **; expected T.pow(x, y), in graph functions op.pow(x, y)",
}
_RUN_ON = re.compile(r"and|else|for|if|in|is|or|not")
_ESCAPE = re.compile(
    r"\\(?P<known>[\\\"'abfnrtv\n]|[0-7]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000)?", re.DOTALL
)
"""A backslash with what it escapes, so that the next match begins after both."""


def _check_string(source: Source, found: re.Match[str], text: str) -> None:
    prefix = text[: min(n for n, c in enumerate(text) if c in "\"'")]
    if prefix.lower() not in ("", "r", "u"):
        raise _at(source, found, f"a string with the prefix {prefix!r}; expected a plain one")
    if prefix.lower() == "r":
        return
    for escape in _ESCAPE.finditer(text):
        if escape["known"] is None:
            raise _at(source, found, f"unknown escape in a string: {text[escape.start() :][:2]}")


def _at(source: Source, found: re.Match[str], message: str) -> ScriptError:
    line = source.text.count("\n", 0, found.start())
    begin = found.start() - (source.text.rfind("\n", 0, found.start()) + 1)
    return source.error_at(line + 1, begin, message, begin + len(found.group().split("\n")[0]))


class Budget:
    """Nodes and time that are left."""

    def __init__(self, source: Source, limits: Limits) -> None:
        self.source, self.limits = source, limits
        self.spent = 0
        self.deadline = time.thread_time() + limits.seconds
        self._check_at = 1000

    def spend(self, place: Place, nodes: int = 1) -> None:
        """Count nodes read at `place`. Raises ScriptError where the budget is used up."""
        self.spent += nodes
        if self.spent < self._check_at:
            return
        self._check_at = self.spent + 1000
        if self.spent > self.limits.nodes:
            raise self.source.error(
                place, f"the script has more than {self.limits.nodes} nodes up to here"
            )
        if time.thread_time() > self.deadline:
            raise self.source.error(
                place,
                f"reading the script took more than {self.limits.seconds:g} seconds of "
                "processor time",
            )

    @property
    def seconds_left(self) -> float:
        """Processor time left; negative once it is used up."""
        return self.deadline - time.thread_time()
