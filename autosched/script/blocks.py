"""`with T.block("name"):` and what stands in it."""

from __future__ import annotations

import ast
from collections.abc import Hashable
from typing import Any

from autosched.errors import ScriptError
from autosched.script.exprs import Expressions, called
from autosched.script.literals import Arguments, dictionary, string
from autosched.script.loads import Load, key_of
from autosched.script.reads import Reads, loads_in, text_of
from autosched.script.scope import Bound, Local
from autosched.script.source import Place
from autosched.script.updates import (
    OTHER_STARTS,
    Choice,
    Identity,
    Let,
    Statement,
    Store,
    Update,
    Updates,
)
from autosched.tir import dtypes
from autosched.tir.affine import Affine, Int
from autosched.tir.expr import Const, Var
from autosched.tir.nodes import Block, Iter, IterKind, Predicate

KINDS: dict[str, IterKind] = {
    "spatial": "spatial",
    "S": "spatial",
    "reduce": "reduce",
    "R": "reduce",
    "sequential": "sequential",
    "Q": "sequential",
}
"""Names of axes, and their letters in T.axis.remap."""
_STATEMENTS = (
    "axes (v = T.axis.spatial(extent, loop)), T.where, T.reads, T.writes, T.block_attr, "
    "with T.init(), names (x = value) or stores (A[i] = value)"
)
_AUGMENTED: dict[type[ast.operator], str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}


class BlockReader:
    """Reads one block inside loops of these `extents`, with the predicates of the `if`s there."""

    def __init__(
        self,
        exprs: Expressions,
        node: ast.With,
        extents: dict[Var, Int],
        conditions: tuple[Predicate, ...],
    ) -> None:
        self.exprs, self.scope, self.node = exprs, exprs.scope, node
        self.extents = extents
        self.iters: list[Iter] = []
        self.bindings: list[Affine] = []
        self.predicates = list(conditions)
        self.lists: dict[str, list[Load]] = {}
        self.annotations: dict[str, Any] = {}
        self.identity: ast.With | None = None
        self.statements: list[Statement] = []
        self.places = _names_of_places(node)
        self.indices: list[Load] = []

    def error(self, place: Place, message: str) -> ScriptError:
        return self.exprs.error(place, message)

    def read(self) -> Block:
        """The block."""
        name = self._header()
        mark = self.scope.mark()
        for statement in self.node.body:
            self._statement(statement)
        reads_given = self.lists.get("reads")
        listed = {key_of(x) for x in reads_given or ()}
        kinds = {i.kind for i in self.iters}
        accumulates = reads_given is not None or ("reduce" in kinds and "sequential" not in kinds)
        updates = Updates(self.exprs, self.statements, self.node)
        identity = self._identity() if self.identity is not None else None
        update = updates.read(identity, accumulates, listed)
        if update.reducer is not None and reads_given is not None:
            # Some list the element that a reduction accumulates in, too.
            reads_given = [x for x in reads_given if key_of(x) not in updates.keys]
        block = self._block(name, update, reads_given, identity)
        self.scope.leave(mark)
        return block

    def _block(
        self, name: str, update: Update, listed: list[Load] | None, identity: Identity | None
    ) -> Block:
        reads = Reads(self.exprs.source, listed)
        self._check_places(update)
        body = tuple(reads.expr(e) for e in update.values)
        writes = tuple(reads.access(t) for t in update.targets)
        self._check_writes({key_of(t) for t in update.targets})
        return Block(
            name=name,
            iters=tuple(self.iters),
            bindings=tuple(self.bindings),
            predicates=tuple(self.predicates),
            reads=tuple(reads.accesses),
            writes=writes,
            body=body,
            reducer=update.reducer,
            init=update.reducer is None or (identity is not None and identity.is_init),
            annotations=tuple(sorted(self.annotations.items())),
        )

    def _check_places(self, update: Update) -> None:
        """What names in the indices of stores read, the block does not store to."""
        for load in self.indices:
            if any(t.buffer is load.buffer for t in update.targets):
                raise self.error(
                    load.place,
                    f"{load.buffer.name} is stored to, and names in the indices of stores read it",
                )

    def _check_writes(self, stored: set[Hashable]) -> None:
        given = self.lists.get("writes")
        if given is None:
            return
        for load in given:
            if key_of(load) not in stored:
                raise self.error(
                    load.place, f"T.writes lists {text_of(load.place)}, which is not stored"
                )
        if len(given) != len(stored):
            raise self.error(self.node, "T.writes does not list all that the block stores")

    def _header(self) -> str:
        call = with_call(self.node)
        self._check_let(call)
        if call is None or called(call.func) != "block":
            raise self.error(self.node.items[0].context_expr, 'expected T.block("name")')
        args = Arguments(self.exprs.source, call, "T.block")
        name = string(self.exprs.source, args.need("name"), "a block's name")
        args.done()
        if not name:
            raise self.error(call, "a block needs a name")
        if name == "root" and any(isinstance(s, ast.For) or _is_block(s) for s in self.node.body):
            raise self.error(
                call,
                "the root block is not written here; put the buffers and loops in it straight "
                "into the function",
            )
        return name

    # -- statements

    def _statement(self, s: ast.stmt) -> None:
        self.exprs.budget.spend(s)
        if isinstance(s, ast.Assign) and len(s.targets) == 1:
            self._assign(s, s.targets[0], s.value)
        elif isinstance(s, ast.AnnAssign) and s.value is not None:
            self._assign(s, s.target, s.value)
        elif isinstance(s, (ast.AugAssign, ast.If)):
            self.statements.append(self._store(s))
        elif isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            self._directive(s.value)
        elif isinstance(s, ast.With):
            self._with(s)
        elif not isinstance(s, ast.Pass):
            raise self.error(s, f"expected {_STATEMENTS}")

    def _assign(self, s: ast.stmt, target: ast.expr, value: ast.expr) -> None:
        name = called(value.func) if isinstance(value, ast.Call) else None
        if name is not None and name.startswith("axis."):
            assert isinstance(value, ast.Call)
            if name == "axis.remap":
                self._remap(target, value)
            else:
                self._axis(target, value, name.removeprefix("axis."))
        elif isinstance(target, ast.Name) and target.id in self.places:
            self._place(target, value)
        elif isinstance(target, ast.Name):
            self.statements.append(Let(target, value))
        else:
            self.statements.append(self._store(s))

    def _place(self, target: ast.Name, value: ast.expr) -> None:
        """A name in the indices of stores, which are read before the values are."""
        before = self.exprs.budget.spent
        e = self.exprs.expr(value, dtypes.INDEX)
        self.scope.define(target.id, Bound(e, e, self.exprs.budget.spent - before), target)
        self.indices += loads_in(e)

    def _axis(self, target: ast.expr, call: ast.Call, kind: str) -> None:
        if kind not in KINDS:
            raise self.error(
                call.func, f"unknown axis {kind!r}; expected spatial, reduce, sequential or remap"
            )
        what = f"T.axis.{kind}"
        args = Arguments(self.exprs.source, call, what)
        extent = self.exprs.extent(args.need("extent"), "an axis' extent", True)
        binding = self.exprs.form(args.need("binding"), f"the binding in {what}")
        args.done()
        self._define(target, KINDS[kind], extent, binding)

    def _remap(self, target: ast.expr, call: ast.Call) -> None:
        args = Arguments(self.exprs.source, call, "T.axis.remap")
        kinds, loops = args.need("kinds"), args.need("loops")
        args.done()
        letters = string(self.exprs.source, kinds, "the kinds of axes")
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        if not isinstance(loops, (ast.List, ast.Tuple)):
            raise self.error(loops, "expected a list of loop variables")
        if not len(letters) == len(loops.elts) == len(targets):
            raise self.error(
                call,
                f"T.axis.remap names {len(targets)} axes with {len(letters)} kinds and "
                f"{len(loops.elts)} loops; expected as many of each",
            )
        for t, letter, loop in zip(targets, letters, loops.elts, strict=True):
            if letter not in KINDS:
                raise self.error(kinds, f"unknown kind {letter!r}; expected S, R or Q")
            form = self.exprs.form(loop, "the binding in T.axis.remap")
            var = form.single_var()
            extent = None if var is None else self.extents.get(var)
            if extent is None:
                raise self.error(loop, "expected a loop variable")
            self._define(t, KINDS[letter], extent, form)

    def _define(self, target: ast.expr, kind: IterKind, extent: Int, binding: Affine) -> None:
        if not isinstance(target, ast.Name):
            raise self.error(target, "expected a name for the axis")
        if self.statements:
            raise self.error(target, "axes come before the statements that compute")
        var = Var(target.id)
        self.scope.define(target.id, Local("axis", var), target)
        self.iters.append(Iter(var, extent, kind))
        self.bindings.append(binding)

    def _directive(self, call: ast.Call) -> None:
        name, source = called(call.func), self.exprs.source
        if name in ("reads", "writes"):
            if name in self.lists:
                raise self.error(call, f"T.{name} stands twice in one block")
            args = Arguments(source, call, f"T.{name}")
            self.lists[name] = [self.exprs.load(x) for x in args.positional]
            args.positional = []
            args.done()
        elif name == "where":
            args = Arguments(source, call, "T.where")
            self.predicates += predicates(self.exprs, args.need("condition"), "T.where")
            args.done()
        elif name == "block_attr":
            args = Arguments(source, call, "T.block_attr")
            given = dictionary(source, self.exprs.budget, args.need("attrs"), "annotations")
            self.annotations.update(given)
            args.done()
        else:
            raise self.error(call, f"expected {_STATEMENTS}")

    def _with(self, s: ast.With) -> None:
        call = with_call(s)
        name = None if call is None else called(call.func)
        self._check_let(call)
        if call is None or name not in ("init", "identity"):
            raise self.error(
                s.items[0].context_expr,
                "expected T.init() or T.identity()",
            )
        if call.args or call.keywords:
            raise self.error(call, f"T.{name} takes no arguments")
        if self.identity is not None:
            raise self.error(call, "the identity is given twice")
        self.identity = s

    def _check_let(self, call: ast.Call | None) -> None:
        if call is not None and called(call.func) == "let":
            raise self.error(
                call, "T.let is not written here; name the value inside the block, x = value"
            )

    def _identity(self) -> Identity:
        """The stores inside `with T.init():`, which are of constants."""
        assert self.identity is not None
        call = with_call(self.identity)
        assert call is not None
        values: dict[Hashable, Const] = {}
        for s in self.identity.body:
            self.exprs.budget.spend(s)
            store = self._store(s)
            if store.op is not None or store.otherwise is not None:
                raise self.error(s, f"an identity is a constant; {OTHER_STARTS}")
            value = self.exprs.expr(store.value, store.target.dtype)
            if not isinstance(value, Const) or value.dtype != store.target.dtype:
                raise self.error(
                    store.value,
                    f"an identity is a constant; expected one of {store.target.dtype}; "
                    f"{OTHER_STARTS}",
                )
            if key_of(store.target) in values:
                raise self.error(s, "the identity of one element is given twice")
            values[key_of(store.target)] = value
        return Identity(called(call.func) == "init", self.identity.items[0].context_expr, values)

    def _store(self, s: ast.stmt) -> Store:
        """`A[i] = value`, `A[i] += value`, or a choice of two stores to one element."""
        if isinstance(s, ast.Assign) and len(s.targets) == 1:
            return Store(self.exprs.load(s.targets[0], "a name, or an element"), s.value)
        if isinstance(s, ast.AugAssign):
            op = _AUGMENTED.get(type(s.op))
            if op is None:
                raise self.error(s, "expected A[i] = value, or A[i] +=, -= or *= value")
            return Store(self.exprs.load(s.target), s.value, op)
        if isinstance(s, ast.If):
            return self._choice(s)
        raise self.error(s, "expected a store, A[i] = value")

    def _choice(self, s: ast.If) -> Store:
        if len(s.body) != 1 or len(s.orelse) != 1:
            raise self.error(
                s.test,
                "an `if` in a block chooses between two stores to one element, one in each branch; "
                "to skip points of the loops use T.where",
            )
        self.exprs.depth += 1
        if self.exprs.depth > self.exprs.budget.limits.depth:
            raise self.error(s.test, "conditions nest too deeply")
        yes, no = self._store(s.body[0]), self._store(s.orelse[0])
        self.exprs.depth -= 1
        if key_of(yes.target) != key_of(no.target):
            raise self.error(no.target.place, "both branches must store to the same element")
        if yes.otherwise is not None:
            raise self.error(s.test, "write the inner choice into the `else:` branch")
        return Store(yes.target, yes.value, yes.op, Choice(s.test, no))


def _names_of_places(node: ast.With) -> set[str]:
    """The names in the indices of the stores of a block."""
    stores = [
        x.slice
        for s in node.body
        for x in ast.walk(s)
        if isinstance(x, ast.Subscript) and isinstance(x.ctx, ast.Store)
    ]
    return {x.id for place in stores for x in ast.walk(place) if isinstance(x, ast.Name)}


def _is_block(s: ast.stmt) -> bool:
    call = with_call(s) if isinstance(s, ast.With) else None
    return call is not None and called(call.func) == "block"


def with_call(s: ast.With) -> ast.Call | None:
    """The call of `with call:`, if it is that and no more."""
    item = s.items[0]
    if len(s.items) != 1 or item.optional_vars is not None:
        return None
    return item.context_expr if isinstance(item.context_expr, ast.Call) else None


def predicates(exprs: Expressions, node: ast.expr, what: str) -> list[Predicate]:
    """A conjunction of comparisons of affine forms."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        exprs.budget.spend(node)
        return [p for value in node.values for p in predicates(exprs, value, what)]
    if not isinstance(node, ast.Compare):
        raise exprs.error(
            node, f"{what} is a comparison of loop variables, or several joined by `and`"
        )
    out: list[Predicate] = []
    left = node.left
    for compare, right in zip(node.ops, node.comparators, strict=True):
        a, b = exprs.form(left, what), exprs.form(right, what)
        out += _comparison(exprs, node, compare, a, b)
        left = right
    return out


def _comparison(
    exprs: Expressions, node: ast.Compare, op: ast.cmpop, a: Affine, b: Affine
) -> list[Predicate]:
    """`form < bound`, as every predicate is; a bound on the right stays as it is written."""

    def below(x: Affine, y: Affine, extra: int) -> Predicate:
        if y.is_const():
            return Predicate(x, y.const + extra)
        difference = x - y
        return Predicate(difference - difference.const, extra - difference.const)

    if isinstance(op, ast.Lt):
        return [below(a, b, 0)]
    if isinstance(op, ast.LtE):
        return [below(a, b, 1)]
    if isinstance(op, ast.Gt):
        return [below(-a, -b, 0)]
    if isinstance(op, ast.GtE):
        return [below(-a, -b, 1)]
    if isinstance(op, ast.Eq):
        return [below(a, b, 1), below(-a, -b, 1)]
    raise exprs.error(node, f"{type(op).__name__} cannot be a predicate; use <, <=, >, >= or ==")
