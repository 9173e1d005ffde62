"""Macros of TVMScript, `@T.macro` and `@T.inline`, written out where they are called.

A call stands for the statements of the macro, with its arguments in the place of the parameters.
Names that the macro makes get names of their own in the function, so that two calls do not share
them; so do parameters that it gives another value. Names that it only reads are those of the place
of its definition, or of the place of the call with `hygienic=False`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field

from autosched.script.migrate.found import Names, scopes
from autosched.script.migrate.several import written
from autosched.script.migrate.spelling import called
from autosched.script.migrate.things import Several, Thing, Value

_DEPTH = 8
"""Macros that call macros."""
_MOST = 20_000
"""Nodes of the syntax tree that calls in one file become."""


class _Refused(Exception):
    """Why a call cannot be written out."""


@dataclass
class Written:
    """The file without calls of macros. By the line of a function: where in it something must be
    noted, and which call could not be written out, with the reason."""

    tree: ast.Module
    notes: dict[int, list[tuple[ast.expr, str]]] = field(default_factory=dict)
    refused: dict[int, tuple[ast.expr, str]] = field(default_factory=dict)


def expanded(tree: ast.Module, constants: Mapping[str, Thing]) -> Written:
    """The file without calls of macros; its namespace is T already. A call whose arguments do not
    fit its macro stays, and is refused where it is read."""
    written = Written(tree)
    known: dict[ast.FunctionDef, Names] = {s: {**x, **constants} for s, _, x in scopes(tree)}
    if any(_is_macro(s) for s in known):
        _Calls(written, known).visit(tree)
        ast.fix_missing_locations(tree)
    return written


def _is_macro(s: ast.FunctionDef, kinds: tuple[str, ...] = ("macro", "inline")) -> bool:
    makers = (d.func if isinstance(d, ast.Call) else d for d in s.decorator_list)
    return any(called(d) in kinds for d in makers)


def _is_hygienic(macro: ast.FunctionDef) -> bool:
    return not any(
        k.arg == "hygienic" and isinstance(k.value, ast.Constant) and not k.value.value
        for d in macro.decorator_list
        if isinstance(d, ast.Call)
        for k in d.keywords
    )


class _Calls(ast.NodeTransformer):
    def __init__(self, written: Written, known: dict[ast.FunctionDef, Names]) -> None:
        self.written, self.known = written, known
        self.left = _MOST
        counts = Counter(s.name for s in known if _is_macro(s))
        self.alone = {s.name: s for s in known if _is_macro(s) and counts[s.name] == 1}
        self.read = {x for s in known if _is_macro(s) for x in _read(s)}
        self.names: Names = {}
        """What is defined around the statement that is visited."""
        self.function: ast.FunctionDef | None = None
        self.local: set[str] = set()
        """Names that the function gives a value."""
        self.taken: set[str] = set()
        self.around: tuple[ast.FunctionDef, ...] = ()
        """The macros that are being written out."""
        self.renamed: dict[str, ast.expr] = {}
        """What their parameters and names have become."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        if _is_macro(node) or self.around:
            return node
        before = self.function, self.names, self.local, self.taken
        self.function, self.names = node, self.known.get(node, self.names)
        self.local = _stored(node.body) | {a.arg for a in node.args.args}
        named = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}
        self.taken = self.local | named | self.read
        self.generic_visit(node)
        self.function, self.names, self.local, self.taken = before
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt | list[ast.stmt]:
        call = node.value
        macro = self._macro(call.func) if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or macro is None or self.function not in self.known:
            return node
        assert self.function is not None
        given = _arguments(macro, call, self.known[macro])
        if given is None:
            return node
        try:
            return self._written_out(macro, given, call)
        except _Refused as e:
            message = f"the macro {macro.name!r}, line {macro.lineno}, {e}"
            self.written.refused.setdefault(self.function.lineno, (call, message))
            return node

    def _macro(self, func: ast.expr) -> ast.FunctionDef | None:
        """The macro of this name that is seen here; else the only one of the file."""
        name = ast.unparse(func).removeprefix("self.")
        found = self.names.get(name, self.alone.get(name))
        return found if isinstance(found, ast.FunctionDef) and _is_macro(found) else None

    def _written_out(
        self, macro: ast.FunctionDef, given: Mapping[str, ast.expr], call: ast.Call
    ) -> list[ast.stmt]:
        if macro in self.around:
            raise _Refused("calls itself; expected statements that end")
        if len(self.around) == _DEPTH:
            raise _Refused(f"stands in {_DEPTH} others; write some of them out by hand")
        stored = _stored(macro.body)
        fresh = {x: self._fresh(x) for x in sorted(stored)}
        new: dict[str, ast.expr] = {**given, **{x: ast.Name(fresh[x]) for x in fresh}}
        new |= self._free(macro, call)
        self._count(macro, new)
        changed = [
            ast.Assign([ast.Name(fresh[x], ast.Store())], deepcopy(value))
            for x, value in given.items()
            if x in stored and not _is_replaced(macro.body, x)
        ]
        body: list[ast.stmt] = [*changed, *(_Names(new).visit(deepcopy(s)) for s in macro.body)]
        for s in body:
            for node in ast.walk(s):
                ast.copy_location(node, call)  # errors name the call
        before = self.names, self.renamed
        self.names, self.renamed = self.known[macro], {**self.renamed, **new}
        self.around += (macro,)
        self.generic_visit(module := ast.Module(body, []))
        self.names, self.renamed = before
        self.around = self.around[:-1]
        return module.body

    def _fresh(self, name: str) -> str:
        found, n = name, 0
        while found in self.taken:
            n += 1
            found = f"{name}_{n}"
        self.taken.add(found)
        return found

    def _free(self, macro: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
        """What the names stand for that a macro only reads, where they do not stay."""
        assert self.function is not None
        free = _read(macro)
        if not _is_hygienic(macro):
            return {x: self.renamed[x] for x in free if x in self.renamed}
        known = self.known[macro]
        found: dict[str, ast.expr] = {}
        for name in free:
            value = _constant(known.get(name))
            if value is not None:
                # Unlike macros, inline functions read what stands there when they are called.
                now = _constant(self.known[self.function].get(name))
                if _is_macro(macro, ("inline",)) and (
                    now is None or ast.unparse(now) != ast.unparse(value)
                ):
                    raise _Refused(f"reads {name!r}, which changes; give it as an argument")
                found[name] = value
            elif name in self.local and name in known:
                raise _Refused(
                    f"reads {name!r}, which is defined around it as no number, and is another"
                    " thing in the function; give it as an argument"
                )
            elif name in self.local:
                notes = self.written.notes.setdefault(self.function.lineno, [])
                message = (
                    f"the macro {macro.name!r} reads {name!r} of the function that calls it, as"
                    " with hygienic=False"
                )
                if all(message != said for _, said in notes):
                    notes.append((call, message))
        return found

    def _count(self, macro: ast.FunctionDef, new: Mapping[str, ast.expr]) -> None:
        """Take what the call becomes from what is left, before anything is copied."""
        sizes = {name: sum(1 for _ in ast.walk(x)) for name, x in new.items()}
        nodes = [x for s in macro.body for x in ast.walk(s)]
        size = sum(sizes.get(x.id, 1) if isinstance(x, ast.Name) else 1 for x in nodes)
        if size > self.left:
            raise _Refused(
                f"makes the text too long: calls of macros in one file become at most {_MOST} nodes"
                " of the syntax tree; give long arguments a name first"
            )
        self.left -= size


class _Names(ast.NodeTransformer):
    def __init__(self, new: Mapping[str, ast.expr]) -> None:
        self.new = new

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.new.get(node.id)
        if found is None:
            return node
        new = deepcopy(found)
        if isinstance(new, ast.Name):
            new.ctx = node.ctx
        return new


def _stored(body: list[ast.stmt]) -> set[str]:
    """Names that statements give a value."""
    names = (x for s in body for x in ast.walk(s) if isinstance(x, ast.Name))
    return {x.id for x in names if isinstance(x.ctx, ast.Store)}


def _read(macro: ast.FunctionDef) -> list[str]:
    """Names that a macro only reads, and that are no parameters."""
    names = {x.id for s in macro.body for x in ast.walk(s) if isinstance(x, ast.Name)}
    return sorted(names - _stored(macro.body) - {a.arg for a in macro.args.args})


def _is_replaced(body: list[ast.stmt], name: str) -> bool:
    """Whether the first statement with this name gives it a value, whatever it was."""
    for s in body:
        found = [x for x in ast.walk(s) if isinstance(x, ast.Name) and x.id == name]
        if found:
            stored = all(isinstance(x.ctx, ast.Store) for x in found)
            return stored and isinstance(s, (ast.Assign, ast.AnnAssign)) and s.value is not None
    return False


def _constant(thing: Thing | ast.FunctionDef | None) -> ast.expr | None:
    """A number, a dtype or several as an expression."""
    if isinstance(thing, Several):
        return ast.Tuple([written(x) for x in thing.things], ast.Load())
    if isinstance(thing, Value):
        return thing.node
    return ast.Constant(thing) if isinstance(thing, str) else None


def _arguments(macro: ast.FunctionDef, call: ast.Call, known: Names) -> dict[str, ast.expr] | None:
    """By parameter, what the call gives; None where that does not fit. A default is read where the
    macro is defined."""
    parameters = [a.arg for a in macro.args.args if a.arg != "self"]
    rest = macro.args.vararg or macro.args.kwarg or macro.args.kwonlyargs
    starred = any(isinstance(x, ast.Starred) for x in call.args)
    if rest or starred or len(call.args) > len(parameters):
        return None
    constants = {name: value for name, x in known.items() if (value := _constant(x)) is not None}
    defaults = [_Names(constants).visit(deepcopy(x)) for x in macro.args.defaults]
    found = dict(zip(parameters[len(parameters) - len(defaults) :], defaults, strict=True))
    found.update(zip(parameters, call.args, strict=False))
    for k in call.keywords:
        if k.arg not in parameters:
            return None
        found[k.arg] = k.value
    return found if len(found) == len(parameters) else None
