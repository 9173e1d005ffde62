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
    return isinstance(last, (ast.Return, ast.Raise))


def cases(s: ast.Match) -> tuple[list[ast.match_case], bool]:
    """The cases of a match that have values, and whether they are to take every value: `raise` in
    a last case for any other says that they are not."""
    last = s.cases[-1]
    takes_all = isinstance(last.pattern, ast.MatchAs) and last.pattern.name is None
    raises = [x.exc is None if isinstance(x, ast.Raise) else False for x in last.body] == [True]
    if takes_all and raises and last.guard is None and len(s.cases) > 1:
        return s.cases[:-1], False
    return s.cases, True


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
    work: list[ast.AST] = [*node.body]
    while work:
        n = work.pop()
        if isinstance(n, ast.Name):
            if isinstance(n.ctx, ast.Load):
                found[n.id] = max(found.get(n.id, (0, 0)), (n.lineno, n.col_offset))
            continue
        if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name):
            at = (n.lineno, n.col_offset)
            found[n.target.id] = max(found.get(n.target.id, (0, 0)), at)
        for value in n.__dict__.values():
            if isinstance(value, list):
                work += [x for x in value if isinstance(x, ast.AST)]
            elif isinstance(value, ast.AST):
                work.append(value)
    return found


def is_live(name: str, rests: Sequence[tuple[Sequence[ast.stmt], int]]) -> bool:
    """Whether a name may be read before it is given another value. `rests`: the statements around,
    outermost first, each with the number of the first that follows."""
    for body, n in reversed(rests):
        found = _outcome(name, body[n:])
        if found:
            return found == "read"
    return False


def _outcome(name: str, body: Sequence[ast.stmt]) -> str:
    """What statements do with a name first: "read", or "set" on every path that goes on."""
    for s in body:
        if isinstance(s, (ast.If, ast.Match)):
            if _reads(name, s.test if isinstance(s, ast.If) else s.subject):
                return "read"
            branches = [s.body, s.orelse] if isinstance(s, ast.If) else [c.body for c in s.cases]
            found = [_outcome(name, b) for b in branches]
            if "read" in found or all(found):
                return "read" if "read" in found else "set"
        elif isinstance(s, ast.FunctionDef) and s.name == name:
            return "set"
        elif _reads(name, s) or (isinstance(s, ast.AugAssign) and name in given_names([s])):
            return "read"
        elif isinstance(s, (ast.Return, ast.Raise)) or name in given_names([s]):
            return "set"
    return ""


def _reads(name: str, node: ast.AST) -> bool:
    return any(
        isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
        for n in ast.walk(node)
    )


def is_docstring(s: ast.stmt) -> bool:
    """Whether a statement is a string by itself."""
    return (
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Constant)
        and isinstance(s.value.value, str)
    )
