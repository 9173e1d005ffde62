"""Script text to graph functions: the inverse of `printer`, by Python's own parser, under the
limits of `autosched.script`. Nothing is executed.

Expressions may nest; what is read is the A-normal form, with holes for types that are not written,
which `inference` fills.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from autosched.errors import WorkloadError
from autosched.graph.annotations import dotted
from autosched.graph.data import DataType
from autosched.graph.expressions import Block, ExpressionReader
from autosched.graph.inference import completed
from autosched.graph.ir import (
    Array,
    Atom,
    Body,
    Function,
    If,
    Item,
    Match,
    Pattern,
    Var,
)
from autosched.graph.types import Hole, TensorType, Type
from autosched.script.limits import Budget
from autosched.script.source import Place, Source
from autosched.tir.module import GraphFunction

CONSTANTS: Mapping[str, Array] = {}
DEEPEST = 40
"""Early returns in a row: the text of the A-normal form nests as deep."""


class ModuleReader(ExpressionReader):
    """Reads the definitions of one module. `constants`: arrays by digest; what is not among them
    stays a digest."""

    def __init__(
        self, source: Source, budget: Budget, constants: Mapping[str, Array] = CONSTANTS
    ) -> None:
        super().__init__(source, budget, constants)
        self.given: dict[str, GraphFunction] = {}
        """What is taken from the prelude."""
        self.data: dict[str, DataType] = {}
        self.nodes: dict[str, ast.FunctionDef | ast.ClassDef] = {}
        self.depth = 0

    # Definitions

    def take(self, s: ast.ImportFrom) -> None:
        """`from prelude import map, foldl`."""
        from autosched.graph.prelude import taken

        try:
            found = taken([a.name for a in s.names])
        except WorkloadError as e:
            raise self.error(s, str(e)) from e
        self.given.update(found)
        for name, f in found.items():
            if isinstance(f, DataType):
                self.params[name] = len(f.params)
                self.constructors.update({n: len(fields) for n, fields in f.constructors})
        self.globals.update({n: 1 for n, f in found.items() if isinstance(f, Function)})
        self.globals.update(dict.fromkeys(self.constructors, 1))

    def declare(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        """Note a definition, so that others may use it wherever they stand."""
        if node.name in self.nodes or node.name in self.given:
            raise self.error(node, f"two definitions are named {node.name}")
        self.nodes[node.name] = node
        if isinstance(node, ast.ClassDef):
            self.params[node.name] = len(self.type_params(node))
        else:
            returns = node.returns
            self.globals[node.name] = len(returns.elts) if isinstance(returns, ast.Tuple) else 1

    def finish(self) -> dict[str, GraphFunction]:
        """All definitions, with their types."""
        for node in self.nodes.values():
            if isinstance(node, ast.ClassDef):
                self.data[node.name] = self.read_data(node)
        graphs: dict[str, GraphFunction] = {**self.given, **self.data}
        self.globals.update(dict.fromkeys(self.constructors, 1))
        for node in self.nodes.values():
            if isinstance(node, ast.FunctionDef):
                self.type_vars = self.type_params(node)
                graphs[node.name] = self.function(node, Block({}))
        ordered = {n: graphs[n] for n in (*self.given, *self.nodes)}
        return completed(ordered, self.notes, frozenset(self.given))

    def read_data(self, node: ast.ClassDef) -> DataType:
        """`@G.data("A") class List: …`, a line a constructor."""
        params = self.type_vars = self.type_params(node)
        rows: list[tuple[str, tuple[Type, ...]]] = []
        for s in node.body:
            if isinstance(s, ast.Pass) or _is_docstring(s):
                continue
            if not isinstance(s, ast.AnnAssign) or not isinstance(s.target, ast.Name) or s.value:
                raise self.error(s, "expected a constructor with the types of its fields: Nil: ()")
            name = s.target.id
            if name in self.constructors or name in self.nodes or name in self.given:
                raise self.error(s, f"two definitions are named {name}; rename the constructor")
            rows.append((s.target.id, self.results(s.annotation)))
            self.constructors[s.target.id] = len(rows[-1][1])
        return DataType(node.name, params, tuple(rows))

    def type_params(self, node: ast.FunctionDef | ast.ClassDef) -> tuple[str, ...]:
        """Type parameters, from the decorator: `@G.function("A, B")`."""
        for d in node.decorator_list:
            if isinstance(d, ast.Call) and d.args:
                text = self.literal(d.args[0])
                names = tuple(x.strip() for x in str(text).split(","))
                good = isinstance(text, str) and all(n.isidentifier() for n in names)
                if len(d.args) > 1 or not good or len(set(names)) < len(names):
                    raise self.error(d, 'expected names of type parameters, such as "A, B"')
                return names
        return ()

    def attrs(self, node: ast.FunctionDef) -> tuple[tuple[str, Any], ...]:
        """Attributes of a function, from its decorator."""
        if len(node.decorator_list) > 1:
            raise self.error(node.decorator_list[1], "expected one decorator, @G.function")
        found: list[tuple[str, Any]] = []
        for d in node.decorator_list:
            if dotted(d.func if isinstance(d, ast.Call) else d) != "G.function":
                raise self.error(d, "expected the decorator @G.function")
            if isinstance(d, ast.Call):
                found += [(k.arg or "", self.literal(k.value)) for k in d.keywords]
        params = self.type_params(node)
        return tuple([*found, ("types", params)] if params else found)

    def function(self, node: ast.FunctionDef, outer: Block) -> Function:
        """A function; one inside another sees the names around it."""
        block = outer.inner()
        params = self.parameters(node.args, block)
        count = 1
        declared: tuple[Type, ...] | None = None
        if node.returns is not None:
            declared = self.results(node.returns)
            count = len(declared)
        results = self.returning(node.body, block, count, node)
        made = Function(node.name, params, block.body(*results), self.attrs(node))
        self.notes.put(made, node)
        if declared is not None:
            self.notes.results[id(made)] = (made, declared)
        return made

    # Statements that end a function

    def returning(
        self, body: Sequence[ast.stmt], block: Block, count: int, place: Place
    ) -> tuple[Atom, ...]:
        """Read statements that end with `return`; what is returned."""
        for n, s in enumerate(body):
            if isinstance(s, ast.Return):
                if n + 1 < len(body):
                    raise self.error(body[n + 1], "nothing after `return` is reached")
                return self.returned(s, block, count)
            if isinstance(s, (ast.If, ast.Match)) and _has_return(s):
                return self.tail(s, body[n + 1 :], block, count)
            self.statement(s, block)
        raise self.error(body[-1] if body else place, "expected `return` as the last statement")

    def returned(self, s: ast.Return, block: Block, count: int) -> tuple[Atom, ...]:
        self.budget.spend(s)
        e = s.value
        if e is None or (isinstance(e, ast.Constant) and e.value is None):
            if count:
                raise self.error(s, "expected a value after `return`")
            return ()
        if count == 1:
            return (self.expr(e, block),)
        if isinstance(e, ast.Tuple) and len(e.elts) == count:
            return tuple(self.expr(x, block) for x in e.elts)
        if isinstance(e, ast.Call):
            return self.call(e, block, [f"result{n}" for n in range(count)])
        raise self.error(s, f"expected {count} values after `return`, as many as are declared")

    def tail(
        self, s: ast.If | ast.Match, rest: Sequence[ast.stmt], block: Block, count: int
    ) -> tuple[Atom, ...]:
        """`if` or `match` with returns: what follows it is the end of the branch that goes on."""
        branches = [s.body, s.orelse] if isinstance(s, ast.If) else [c.body for c in s.cases]
        going_on = [b for b in branches if not _ends(b)]
        if rest and not going_on:
            raise self.error(rest[0], "nothing after this statement is reached")
        if len(going_on) > 1:
            raise self.error(s, "more than one branch goes on; return in all of them but one")
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(s, f"more than {DEEPEST} early returns nest; use a data type, or `or`")
        whole = [b if _ends(b) else [*b, *rest] for b in branches]
        names = [f"result{n}" for n in range(count)] if count > 1 else ["result"][:count]
        if isinstance(s, ast.If):
            self.budget.spend(s)
            condition = self.expr(s.test, block)
            then, other = (self.returning_body(b, block.inner(), count, s) for b in whole)
            made = self.emit(block, If(condition, then, other), s, names)
        else:
            value = self.expr(s.subject, block)
            clauses = []
            for case, body in zip(s.cases, whole, strict=True):
                inner = block.inner()
                pattern = self.clause(case, inner)
                clauses.append((pattern, self.returning_body(body, inner, count, s)))
            made = self.emit(block, Match(value, tuple(clauses)), s, names)
        self.depth -= 1
        return made

    def returning_body(
        self, body: Sequence[ast.stmt], block: Block, count: int, place: Place
    ) -> Body:
        results = self.returning(body, block, count, place)
        return block.body(*results)

    # Other statements

    def statement(self, s: ast.stmt, block: Block) -> None:
        """Read one statement into the block."""
        self.budget.spend(s)
        if isinstance(s, ast.FunctionDef):
            self.closure(s, block)
        elif isinstance(s, ast.If):
            condition = self.expr(s.test, block)
            branches = [self.branch(b, block.inner(), s) for b in (s.body, s.orelse)]
            value = If(condition, branches[0][0], branches[1][0])
            self.several_named(s, value, [names for _, names in branches], block)
        elif isinstance(s, ast.Match):
            self.match(s, block)
        elif isinstance(s, ast.AnnAssign) and s.value is not None:
            self.stated(s, s.value, block)
        elif isinstance(s, ast.Assign) and len(s.targets) == 1:
            self.assign(s.targets[0], s.value, block)
        elif not _is_docstring(s):
            raise self.error(s, "expected an assignment, if, match, a function, or return")

    def closure(self, s: ast.FunctionDef, block: Block) -> None:
        """A function inside another; it may call itself."""
        if self.type_params(s):
            raise self.error(s, "only functions of the module have type parameters")
        v = Var(s.name, Hole())
        self.notes.put(v, s)
        if isinstance(s.returns, ast.Tuple):
            self.counts[id(v)] = (v, len(s.returns.elts))
        block.names[s.name] = v
        self.bind_function(self.function(s, block), v, s, block)

    def assign(self, target: ast.expr, value: ast.expr, block: Block) -> None:
        """`name = value`, or `a, b = value` of as many results or parts."""
        if isinstance(target, ast.Name):
            block.names[target.id] = self.expr(value, block, target.id)
            return
        names = self.names(target)
        if isinstance(value, ast.Tuple):
            if len(value.elts) != len(names):
                raise self.error(value, f"{len(value.elts)} values for {len(names)} names")
            atoms: Sequence[Atom] = [
                self.expr(e, block, n) for e, n in zip(value.elts, names, strict=True)
            ]
        elif isinstance(value, ast.Call) and self.several(value.func, block) in (None, len(names)):
            atoms = self.call(value, block, names)
        else:
            whole = self.expr(value, block)
            atoms = [self.emit(block, Item(whole, k), target, [n])[0] for k, n in enumerate(names)]
        block.names.update(zip(names, atoms, strict=True))

    def stated(self, s: ast.AnnAssign, value: ast.expr, block: Block) -> None:
        """`name: type = value`: the type that the value has, or how it is stored."""
        t = self.type(s.annotation)
        (name,) = self.names(s.target)
        if isinstance(value, ast.Call) and isinstance(t, TensorType) and t.layout:
            atom: Atom = self.call(value, block, [name])[0]
            binding = block.out.pop()
            (atom,) = self.emit(block, binding.value, s, [name], [t])
        else:
            atom = self.expr(value, block, name)
            self.notes.ascribed.append((atom, t, s))
        block.names[name] = atom

    def branch(
        self, body: Sequence[ast.stmt], block: Block, place: ast.stmt
    ) -> tuple[Body, list[str]]:
        """Statements that end by giving values to names outside."""
        last = body[-1] if body else None
        if isinstance(last, ast.Pass) and len(body) == 1:
            return block.body(), []
        if not isinstance(last, ast.Assign) or len(last.targets) != 1:
            raise self.error(place, "expected branches that all end with `names = values`")
        for s in body:
            self.statement(s, block)
        names = self.names(last.targets[0])
        return block.body(*(block.names[n] for n in names)), names

    def match(self, s: ast.Match, block: Block) -> None:
        value = self.expr(s.subject, block)
        clauses: list[tuple[Pattern | Var | None, Body]] = []
        found: list[list[str]] = []
        for case in s.cases:
            inner = block.inner()
            pattern = self.clause(case, inner)
            body, names = self.branch(case.body, inner, s)
            found.append(names)
            clauses.append((pattern, body))
        self.several_named(s, Match(value, tuple(clauses)), found, block)

    def several_named(
        self, s: ast.stmt, value: If | Match, found: list[list[str]], block: Block
    ) -> None:
        """Bind what branches give, under the names that they all give it."""
        if any(names != found[0] for names in found):
            raise self.error(
                s, f"all branches must end by giving values to {', '.join(found[0]) or 'nothing'}"
            )
        block.names.update(zip(found[0], self.emit(block, value, s, found[0]), strict=True))

    def names(self, target: ast.expr) -> list[str]:
        """Names that are assigned to."""
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        for p in parts:
            if not isinstance(p, ast.Name):
                raise self.error(p, "expected a name")
        return [p.id for p in parts if isinstance(p, ast.Name)]

    # Patterns

    def clause(self, case: ast.match_case, block: Block) -> Pattern | Var | None:
        """The pattern of a case; its variables are names of the block."""
        if case.guard is not None:
            raise self.error(case.guard, "a case has no condition here")
        return self.pattern(case.pattern, block, set())

    def pattern(self, p: ast.pattern, block: Block, seen: set[str]) -> Pattern | Var | None:
        place: Any = p  # patterns have places as expressions do
        self.budget.spend(place)
        if isinstance(p, ast.MatchAs) and p.pattern is None:
            return None if p.name is None else self.captured(p.name, place, block, seen)
        if isinstance(p, ast.MatchClass) and isinstance(p.cls, ast.Name) and not p.kwd_attrs:
            name = p.cls.id
            if name not in self.constructors:
                have = ", ".join(self.constructors) or "none"
                raise self.error(place, f"no constructor is named {name}; there are {have}")
            if len(p.patterns) != self.constructors[name]:
                fields = self.constructors[name]
                raise self.error(
                    place, f"{name} has {fields} fields, found {len(p.patterns)} patterns"
                )
            made = Pattern(name, tuple(self.pattern(x, block, seen) for x in p.patterns))
        elif isinstance(p, ast.MatchSequence):
            made = Pattern("", tuple(self.pattern(x, block, seen) for x in p.patterns))
        else:
            raise self.error(place, "expected patterns such as Cons(x, _), (a, b), x or _")
        self.notes.put(made, place)
        return made

    def captured(self, name: str, place: Place, block: Block, seen: set[str]) -> Var:
        if name in self.constructors:
            raise self.error(place, f"{name} is a constructor; write {name}() in a pattern")
        if name in seen:
            raise self.error(place, f"a pattern has the variable {name} twice")
        seen.add(name)
        v = Var(name, Hole())
        self.notes.put(v, place)
        block.names[name] = v
        return v


def _has_return(s: ast.stmt) -> bool:
    if isinstance(s, ast.Return):
        return True
    if isinstance(s, ast.If):
        return any(map(_has_return, (*s.body, *s.orelse)))
    return isinstance(s, ast.Match) and any(_has_return(x) for c in s.cases for x in c.body)


def _ends(body: Sequence[ast.stmt]) -> bool:
    """Whether statements end the function on every path."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    if isinstance(last, ast.Match):
        return all(_ends(c.body) for c in last.cases)
    return isinstance(last, ast.Return)


def _is_docstring(s: ast.stmt) -> bool:
    return (
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Constant)
        and isinstance(s.value.value, str)
    )
