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
from autosched.graph.expressions import Block
from autosched.graph.inference import completed
from autosched.graph.ir import (
    Array,
    Atom,
    Body,
    Const,
    Function,
    If,
    Item,
    Match,
    Var,
)
from autosched.graph.pattern_reader import PatternReader
from autosched.graph.retype import cast
from autosched.graph.statements import (
    cases,
    ends,
    given_names,
    has_return,
    is_docstring,
    is_live,
    last_names,
    last_reads,
)
from autosched.graph.types import KINDS, Hole, TensorType, Type, TypeVar
from autosched.graph.unify import literal_fits
from autosched.script.limits import Budget
from autosched.script.source import Place, Source
from autosched.tir.module import GraphFunction

CONSTANTS: Mapping[str, Array] = {}
DEEPEST = 40
"""Early returns in a row: the text of the A-normal form nests as deep."""
COPIES = 32
"""Copies of what follows statements with early returns."""


class ModuleReader(PatternReader):
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
        self.rests: list[tuple[Sequence[ast.stmt], int]] = []
        """Statements around what is read, each with the number of those that are done."""
        self.node: ast.FunctionDef | None = None
        self.last_read: dict[str, tuple[int, int]] | None = None
        self.depth, self.copies = 0, 1

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
            elif isinstance(f, Function):
                self.globals[name] = 1
                self.type_params[name] = tuple(map(TypeVar.read, f.attr("types", ())))
        self.globals.update(dict.fromkeys(self.constructors, 1))

    def declare(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        """Note a definition, so that others may use it wherever they stand."""
        if node.name in self.nodes or node.name in self.given:
            raise self.error(node, f"two definitions are named {node.name}")
        self.nodes[node.name] = node
        params = self.declared(node)
        if isinstance(node, ast.ClassDef):
            self.params[node.name] = len(params)
        else:
            returns = node.returns
            self.type_params[node.name] = params
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
                self.type_vars = {v.name: v for v in self.type_params[node.name]}
                self.node, self.last_read = node, None
                graphs[node.name] = self.function(node, Block({}))
        ordered = {n: graphs[n] for n in (*self.given, *self.nodes)}
        return completed(ordered, self.notes, frozenset(self.given))

    def read_data(self, node: ast.ClassDef) -> DataType:
        """`@G.data("A") class List: …`, a line a constructor."""
        declared = self.declared(node)
        params = tuple(v.name for v in declared)
        self.type_vars = {v.name: v for v in declared}
        if any(v.kind != "Type" for v in declared):
            raise self.error(node, "type parameters of a data type are types (kind Type)")
        rows: list[tuple[str, tuple[Type, ...]]] = []
        for s in node.body:
            if isinstance(s, ast.Pass) or is_docstring(s):
                continue
            if not isinstance(s, ast.AnnAssign) or not isinstance(s.target, ast.Name) or s.value:
                raise self.error(s, "expected a constructor with the types of its fields: Nil: ()")
            name = s.target.id
            if name in self.constructors or name in self.nodes or name in self.given:
                raise self.error(s, f"two definitions are named {name}; rename the constructor")
            rows.append((s.target.id, self.results(s.annotation)))
            self.constructors[s.target.id] = len(rows[-1][1])
        return DataType(node.name, params, tuple(rows))

    def declared(self, node: ast.FunctionDef | ast.ClassDef) -> tuple[TypeVar, ...]:
        """Type parameters, from the decorator: `@G.function("A, s: Shape")`."""
        for d in node.decorator_list:
            if isinstance(d, ast.Call) and d.args:
                text = self.literal(d.args[0])
                found = tuple(map(TypeVar.read, str(text).split(",")))
                names = [v.name for v in found]
                good = isinstance(text, str) and all(n.isidentifier() for n in names)
                if len(d.args) > 1 or not good or len(set(names)) < len(names):
                    raise self.error(
                        d, 'expected names of type parameters, such as "A, B" or "A, s: Shape"'
                    )
                for v in found:
                    if v.kind not in KINDS:
                        have = ", ".join(KINDS)
                        raise self.error(d, f"no kind is named {v.kind}; expected one of {have}")
                return found
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
        params = tuple(v.declared for v in self.declared(node))
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
        self.rests.append((body, 0))
        for n, s in enumerate(body):
            self.rests[-1] = (body, n + 1)
            if isinstance(s, ast.Return):
                self.rests.pop()
                if n + 1 < len(body):
                    raise self.error(body[n + 1], "nothing after `return` is reached")
                return self.returned(s, block, count)
            if isinstance(s, (ast.If, ast.Match)) and has_return(s):
                found = self.tail(s, body[n + 1 :], block, count)
                self.rests.pop()
                return found
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
        going_on = [b for b in branches if not ends(b)]
        if rest and not going_on:
            raise self.error(rest[0], "nothing after this statement is reached")
        # What follows is read once for each branch that goes on.
        before, self.copies = self.copies, self.copies * max(len(going_on), 1)
        if self.copies > COPIES:
            raise self.error(
                s, "more than one branch goes on, here and in what is around; return in all of "
                "them but one, or make what follows a function"
            )  # fmt: skip
        self.depth += 1
        if self.depth > DEEPEST:
            raise self.error(s, f"more than {DEEPEST} early returns nest; use a data type, or `or`")
        whole = [b if ends(b) else [*b, *rest] for b in branches]
        names = [f"result{n}" for n in range(count)] if count > 1 else ["result"][:count]
        if isinstance(s, ast.If):
            self.budget.spend(s)
            condition = self.expr(s.test, block)
            then, other = (self.returning_body(b, block.inner(), count, s) for b in whole)
            made = self.emit(block, If(condition, then, other), s, names)
        else:
            value = self.expr(s.subject, block)
            clauses = []
            have, complete = cases(s)
            for case, body in zip(have, whole, strict=False):
                inner = block.inner()
                pattern = self.clause(case, inner)
                clauses.append((pattern, self.returning_body(body, inner, count, s)))
            made = self.emit(block, Match(value, tuple(clauses), complete), s, names)
        self.depth -= 1
        self.copies = before
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
            then, other = block.inner(), block.inner()
            bodies, names = self.branches(s, [(s.body, then), (s.orelse, other)], block)
            self.bind_results(s, If(condition, *bodies), names, block)
        elif isinstance(s, ast.Match):
            self.match(s, block)
        elif isinstance(s, ast.AnnAssign) and s.value is not None:
            self.stated(s, s.value, block)
        elif isinstance(s, ast.Assign) and len(s.targets) == 1:
            self.assign(s.targets[0], s.value, block)
        elif isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            read = ast.copy_location(ast.Name(s.target.id, ast.Load()), s.target)
            value = ast.copy_location(ast.BinOp(read, s.op, s.value), s)
            block.names[s.target.id] = self.expr(value, block, s.target.id)
        elif isinstance(s, ast.Raise):
            raise self.error(
                s, "`raise` stands alone in a last case, `case _: raise`, of a match that has no "
                "case for some values"
            )  # fmt: skip
        elif isinstance(s, (ast.For, ast.While)):
            raise self.error(
                s, "there are no loops; write a function that calls itself, or a fold or map of "
                "the prelude over a list"
            )  # fmt: skip
        elif isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            raise self.error(s, "nothing uses this value; give it a name, or leave it out")
        elif not (is_docstring(s) or isinstance(s, ast.Pass)):
            raise self.error(s, "expected an assignment, if, match, a function, or return")

    def closure(self, s: ast.FunctionDef, block: Block) -> None:
        """A function inside another; it may call itself."""
        if self.declared(s):
            raise self.error(s, "only functions of the module have type parameters")
        v = Var(s.name, Hole())
        self.notes.put(v, s)
        if isinstance(s.returns, ast.Tuple):
            self.counts[id(v)] = (v, len(s.returns.elts))
        block.names[s.name] = v
        outer, self.rests = self.rests, []
        self.bind_function(self.function(s, block), v, s, block)
        self.rests = outer

    def assign(self, target: ast.expr, value: ast.expr, block: Block) -> None:
        """`name = value`, or `a, b = value` of as many results or parts."""
        if isinstance(target, ast.Name):
            block.names[target.id] = self.expr(value, block, target.id)
            return
        if isinstance(target, ast.Tuple) and any(isinstance(t, ast.Tuple) for t in target.elts):
            self.nested(target, value, block)
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
            if isinstance(atom, Const):
                atom = self.stated_constant(atom, t, s)
            else:
                self.notes.ascribed.append((atom, t, s))
        block.names[name] = atom

    def stated_constant(self, c: Const, t: Type, s: ast.stmt) -> Const:
        """A constant of a stated type; a number takes its dtype."""
        literal = self.notes.literals.get(id(c))
        if literal is None and t == c.type:
            return c
        one = t if isinstance(t, TensorType) and t.shape == () else None
        if literal is None or one is None or not literal_fits(literal[1], one):
            found = f"the number {c.value.item()}" if literal else f"a constant of type {c.type}"
            raise self.error(s, f"the value is {found}; stated is {t}")
        try:
            return cast(c, one.dtype)
        except WorkloadError as e:
            raise self.error(s, str(e)) from e

    def nested(self, target: ast.Tuple, value: ast.expr, block: Block) -> None:
        """`(a, b), c = value`: all parts are read before any name is given one."""
        if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
            atoms = [self.expr(e, block) for e in value.elts]
        else:
            whole = self.expr(value, block)
            several = range(len(target.elts))
            atoms = [self.emit(block, Item(whole, k), target, ["item"])[0] for k in several]
        for t, atom in zip(target.elts, atoms, strict=True):
            if not isinstance(t, ast.Tuple):
                block.names[self.names(t)[0]] = atom
                continue
            held = ast.copy_location(ast.Name("(value)", ast.Load()), t)
            block.names[held.id] = atom
            self.assign(t, held, block)
            del block.names[held.id]

    def branches(
        self, s: ast.If | ast.Match, found: Sequence[tuple[Sequence[ast.stmt], Block]], block: Block
    ) -> tuple[list[Body], list[str]]:
        """Branches, and the names that they give values: those that all of them end with, and
        those that are read after the statement."""
        for body, inner in found:
            self.rests.append((body, 0))
            for k, x in enumerate(body):
                self.rests[-1] = (body, k + 1)
                self.statement(x, inner)
            self.rests.pop()
        last = [last_names(body) for body, _ in found]
        names = list(last[0]) if all(n == last[0] for n in last) else []
        given = dict.fromkeys(n for body, _ in found for n in given_names(body))
        after = (s.end_lineno or s.lineno, s.end_col_offset or 0)
        for n in given:
            if n not in names and self.read_after(n, after):
                if all(n in inner.names for _, inner in found):
                    names.append(n)
                else:
                    self.partial[n] = s.lineno + self.source.first_line - 1
        return [inner.body(*(inner.names[n] for n in names)) for _, inner in found], names

    def read_after(self, name: str, place: tuple[int, int]) -> bool:
        """Whether the value that a name has behind a place may be read."""
        if self.last_read is None:
            self.last_read = {} if self.node is None else last_reads(self.node)
        later = self.last_read.get(name, (0, 0)) > place  # most temporaries are not
        return later and is_live(name, self.rests)

    def match(self, s: ast.Match, block: Block) -> None:
        value = self.expr(s.subject, block)
        have, complete = cases(s)
        inner = [block.inner() for _ in have]
        patterns = [self.clause(c, b) for c, b in zip(have, inner, strict=True)]
        found = [(c.body, b) for c, b in zip(have, inner, strict=True)]
        bodies, names = self.branches(s, found, block)
        clauses = tuple(zip(patterns, bodies, strict=True))
        self.bind_results(s, Match(value, clauses, complete), names, block)

    def bind_results(self, s: ast.stmt, value: If | Match, names: list[str], block: Block) -> None:
        """Bind what branches give."""
        block.names.update(zip(names, self.emit(block, value, s, names), strict=True))

    def names(self, target: ast.expr) -> list[str]:
        """Names that are assigned to."""
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        for p in parts:
            if not isinstance(p, ast.Name):
                raise self.error(p, "expected a name")
        return [p.id for p in parts if isinstance(p, ast.Name)]
