"""A function of TVMScript by its blocks, with opaque blocks for the nests that cannot be stated so.

A nest is rewritten once as the statements of a routine (`direct.py`), and takes the place of what
its blocks would have been; the other nests are scheduled as ever.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from autosched.errors import AutoschedError, ScriptError
from autosched.script.migrate.calls import Sibling
from autosched.script.migrate.direct import Direct
from autosched.script.migrate.function import Function
from autosched.script.migrate.spelling import called
from autosched.script.migrate.things import Context, Thing, call, name, names_in
from autosched.script.source import Source

PLACE = re.compile(r"^line (\d+), column \d+: ", re.MULTILINE)
"""Where a fault stands in the new text."""

_NESTS = (ast.For, ast.While, ast.If, ast.With, ast.AugAssign)


@dataclass(frozen=True)
class Part:
    """The statements of a nest, and the buffers that were called there as in the old text."""

    body: list[ast.stmt]
    buffers: frozenset[str]


class Parts(Direct):
    """Keeps what each statement became."""

    def __init__(
        self,
        source: Source,
        node: ast.FunctionDef,
        names: Mapping[str, Thing],
        siblings: Mapping[str, Sibling],
    ) -> None:
        super().__init__(source, node, names, siblings)
        self.parts: dict[int, Part] = {}
        self.units = {id(s) for s in units(node.body)}

    def kept(self, s: ast.stmt, made: list[ast.stmt]) -> list[ast.stmt]:
        if id(s) in self.units:
            self.parts[id(s)] = Part(made, _own(self.state.names))
        return made


class Mixed(Function):
    """Rewrites one function; the nests `opaque`, by their ids, are `parts` of it."""

    def __init__(
        self,
        source: Source,
        node: ast.FunctionDef,
        names: Mapping[str, Thing],
        parts: Mapping[int, Part],
        opaque: Mapping[int, str],
    ) -> None:
        super().__init__(source, node, names)
        self.parts, self.opaque = parts, opaque
        self.units = {id(s) for s in units(node.body)}
        self.at: ast.stmt | None = None
        """The nest that is being rewritten."""
        self.made: dict[int, ast.stmt] = {}
        """By statement of the new text (its id), the nest that it comes from."""
        self.used = {a.arg for a in node.args.args}
        """Names of parameters, and of buffers that were used before."""

    def read(self, title: str) -> ast.FunctionDef:
        self.new = super().read(title)
        return self.new

    def statement(self, s: ast.stmt, after: Sequence[ast.stmt], c: Context) -> list[ast.stmt]:
        if id(s) not in self.units or self.at is not None:
            return super().statement(s, after, c)
        self.at = s
        reason = self.opaque.get(id(s))
        made = super().statement(s, after, c) if reason is None else self._opaque(s, reason)
        self.at = None
        for x in made:
            self.made[id(x)] = s
            self.used |= names_in(x)
        return made

    def _opaque(self, s: ast.stmt, reason: str) -> list[ast.stmt]:
        part = self.parts[id(s)]
        nodes = [x for n in part.body for x in ast.walk(n)]
        names = [x for x in nodes if isinstance(x, ast.Name)]
        inside = {x.id for x in names}
        own = {x.id for x in names if isinstance(x.ctx, ast.Store)} | {"T"}
        written = {ast.unparse(x.value) for x in nodes if _is_store(x)}
        buffers = inside - own
        if not buffers <= part.buffers & _own(self.state.names) or not written - own:
            raise self.state.error(s, "the nest uses more than buffers of the function")
        self.state.note(s, f"an opaque block, which nothing schedules: {reason}")
        # What it stores to and no one wrote before is 0 at first; all else it keeps.
        matched = {ast.unparse(x.targets[0]) for x in self.head if isinstance(x, ast.Assign)}
        known = self.used | matched
        reads = sorted(b for b in buffers if b in known or b not in written)
        head = [
            ast.Expr(call(what, *map(name, listed)))
            for what, listed in (("reads", reads), ("writes", sorted(written - own)))
        ]
        title = self.state.block(_title(s))
        with_ = ast.With(
            [ast.withitem(call("opaque", ast.Constant(title)))], [*head, *part.body], lineno=0
        )
        return [with_]

    def nest_of(self, error: AutoschedError) -> ast.stmt | None:
        """The nest in which an error stands, of the rewriting or of the new text."""
        if self.at is not None:
            return self.at
        found = PLACE.search(str(error))
        line = error.line if isinstance(error, ScriptError) else int(found[1]) if found else 0
        (again,) = ast.parse(ast.unparse(ast.fix_missing_locations(self.new))).body
        for old, new in zip(self.new.body, getattr(again, "body", ()), strict=False):
            if new.lineno <= line <= (new.end_lineno or 0):
                return self.made.get(id(old))
        return None


def units(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The nests of a function: what stands in it, or in its root block, outside of loops."""
    out: list[ast.stmt] = []
    for s in body:
        if isinstance(s, ast.With) and not _has_axes(s):
            out += units(s.body)
        elif isinstance(s, _NESTS) or _is_element(s) or _is_effect(s):
            out.append(s)
    return out


def _is_element(s: ast.stmt) -> bool:
    return isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Subscript)


def _is_effect(s: ast.stmt) -> bool:
    if not isinstance(s, ast.Expr) or not isinstance(s.value, ast.Call):
        return False
    return called(s.value.func) not in ("func_attr", "attr", "reads", "writes", "block_attr")


def _has_axes(s: ast.With) -> bool:
    values = (x.value for x in s.body if isinstance(x, ast.Assign))
    names = [called(v.func) or "" for v in values if isinstance(v, ast.Call)]
    return any(n.startswith("axis.") for n in names)


def _own(names: Mapping[str, Thing]) -> frozenset[str]:
    """The buffers that are called as in the old text."""
    return frozenset(x for x, thing in names.items() if getattr(thing, "name", None) == x)


def _is_store(x: ast.AST) -> TypeGuard[ast.Subscript]:
    return isinstance(x, ast.Subscript) and isinstance(x.ctx, ast.Store)


def _title(s: ast.stmt) -> str:
    """The name of the first block in a nest."""
    for x in ast.walk(s):
        is_block = isinstance(x, ast.Call) and called(x.func) in ("block", "sblock")
        given = x.args[:1] if is_block and isinstance(x, ast.Call) else []
        if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str):
            return given[0].value
    return "opaque"
