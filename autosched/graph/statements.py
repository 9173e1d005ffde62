"""What statements of a graph function do with names, seen before they are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence


def has_return(s: ast.stmt) -> bool:
    """Whether a statement returns on some path."""
    if isinstance(s, ast.Return):
        return True
    if isinstance(s, ast.If):
        return any(map(has_return, (*s.body, *s.orelse)))
    return isinstance(s, ast.Match) and any(has_return(x) for c in s.cases for x in c.body)


def ends(body: Sequence[ast.stmt]) -> bool:
    """Whether statements end the function on every path."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return ends(last.body) and ends(last.orelse)
    if isinstance(last, ast.Match):
        return all(ends(c.body) for c in last.cases)
    return isinstance(last, ast.Return)


def last_names(body: Sequence[ast.stmt]) -> list[str]:
    """The names that the last statement gives values, if it does no more."""
    last = body[-1] if body else None
    if not isinstance(last, ast.Assign) or len(last.targets) != 1:
        return []
    target = last.targets[0]
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return [p.id for p in parts if isinstance(p, ast.Name)]


def given_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Names that statements give values, in their order."""
    for s in body:
        if isinstance(s, ast.FunctionDef):
            yield s.name
        elif isinstance(s, ast.If):
            yield from given_names([*s.body, *s.orelse])
        elif isinstance(s, ast.Match):
            yield from given_names([x for c in s.cases for x in c.body])
        else:
            for n in ast.walk(s):
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
                    yield n.id


def last_reads(node: ast.FunctionDef) -> dict[str, tuple[int, int]]:
    """Where each name is read last, by line and column."""
    found: dict[str, tuple[int, int]] = {}
    for n in ast.walk(node):
        at = (n.id, n.lineno, n.col_offset) if isinstance(n, ast.Name) else None
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            at = (n.target.id, n.lineno, n.col_offset)
        elif isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load):
            continue
        if at is not None:
            found[at[0]] = max(found.get(at[0], (0, 0)), at[1:])
    return found


def is_docstring(s: ast.stmt) -> bool:
    """Whether a statement is a string by itself."""
    return (
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Constant)
        and isinstance(s.value.value, str)
    )
