"""What the statements of the old text access, loop by loop: which loops must stay in order.

The text of an index is compared, not its meaning, so a loop may be taken for one whose order
matters when it does not; never the other way round.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosched.script.migrate.spelling import called


@dataclass(frozen=True)
class Touch:
    """One access of a buffer: by which statement, at which indices (as text)."""

    statement: int
    buffer: str
    at: tuple[str, ...]
    is_store: bool


class Accesses:
    """Accesses of the statements below loops, each looked at once. `function` is the old text."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.known: dict[int, list[Touch]] = {}
        self.aliases: dict[str, str] = {}
        for x in ast.walk(function):
            if isinstance(x, ast.Assign) and isinstance(x.targets[0], ast.Name):
                of = _viewed(x.value)
                if of is not None:
                    self.aliases[x.targets[0].id] = of

    def root(self, name: str) -> str:
        """The buffer that a name is a view of, or the name."""
        seen: set[str] = set()
        while name in self.aliases and name not in seen:
            seen.add(name)
            name = self.aliases[name]
        return name

    def below(self, loop: ast.For) -> list[Touch]:
        """Every access in a loop."""
        found = self.known.get(id(loop))
        if found is None:
            found = self.known[id(loop)] = [t for s in _simple(loop.body) for t in self.of(s)]
        return found

    def of(self, statement: ast.stmt | ast.expr) -> Iterator[Touch]:
        """The accesses of one statement (or of a condition)."""
        for x in ast.walk(statement):
            if isinstance(x, ast.Subscript) and isinstance(x.value, ast.Name):
                inside = x.slice.elts if isinstance(x.slice, ast.Tuple) else [x.slice]
                touch = Touch(
                    id(statement),
                    self.root(x.value.id),
                    tuple(ast.unparse(i) for i in inside),
                    isinstance(x.ctx, ast.Store),
                )
                yield touch
                if touch.is_store and isinstance(statement, ast.AugAssign):
                    yield Touch(touch.statement, touch.buffer, touch.at, False)

    def conflicts(self, loop: ast.For, variables: set[str], statement: ast.stmt) -> set[str]:
        """Buffers through which iterations of a loop (over one of `variables`) may meet at a
        statement: written in the loop, accessed by the statement and by something else (or read
        by the statement that writes them), unless one dimension always stands at the loop's own
        variable."""
        mine = list(self.of(statement))
        reads = {t.buffer for t in mine if not t.is_store}
        out: set[str] = set()
        everything = self.below(loop)
        for buffer in {t.buffer for t in mine}:
            all_of = [t for t in everything if t.buffer == buffer]
            others = [t for t in all_of if t.statement != id(statement)]
            is_stored = any(t.is_store for t in mine if t.buffer == buffer)
            meets = any(t.is_store for t in others) or (
                is_stored and (bool(others) or buffer in reads)
            )
            if meets and not _is_private(all_of, variables):
                out.add(buffer)
        return out


def _is_private(touches: Sequence[Touch], variables: set[str]) -> bool:
    """Whether one dimension stands at one of the variables in all accesses."""
    ranks = {len(t.at) for t in touches}
    if len(ranks) != 1:
        return False
    return any(
        len(found) == 1 and found <= variables
        for found in ({t.at[n] for t in touches} for n in range(ranks.pop()))
    )


def _simple(nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt | ast.expr]:
    """The statements without others inside, below `nodes`, and what loops and conditions read."""
    for s in nodes:
        if isinstance(s, ast.For):
            yield s.iter
            yield from _simple(s.body)
        elif isinstance(s, ast.If):
            yield s.test
            yield from _simple(s.body)
            yield from _simple(s.orelse)
        elif isinstance(s, ast.With):
            yield from _simple(s.body)
        elif not _is_silent(s):
            yield s


def _is_silent(s: ast.stmt) -> bool:
    """Whether a statement only describes: T.reads, T.writes, T.match_buffer and its like."""
    value = s.value if isinstance(s, (ast.Expr, ast.Assign)) else None
    function = called(value.func) if isinstance(value, ast.Call) else None
    return function in ("reads", "writes", "block_attr") or _viewed(value) is not None


def _viewed(node: ast.AST | None) -> str | None:
    """The buffer that a call makes a view of."""
    if not isinstance(node, ast.Call):
        return None
    function = called(node.func)
    if function == "match_buffer" and node.args and isinstance(node.args[0], ast.Subscript):
        return ast.unparse(node.args[0].value)
    if function in ("Buffer", "decl_buffer", "buffer_decl"):
        for k in node.keywords:
            if k.arg == "data":
                value = k.value.value if isinstance(k.value, ast.Attribute) else k.value
                return ast.unparse(value)
    return None
