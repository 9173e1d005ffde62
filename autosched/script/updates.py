"""The statements that compute: stores, names given to values, and the reductions they spell."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Union

from autosched.errors import ScriptError, TensorExprError
from autosched.script.exprs import Expressions
from autosched.script.loads import Load, key_of
from autosched.script.reads import loads_in, text_of
from autosched.script.scope import Bound
from autosched.script.source import Place
from autosched.tir import expr as ex
from autosched.tir.expr import Call, Const, Expr, Var, walk
from autosched.tir.height import height
from autosched.tir.nodes import Reducer
from autosched.tir.reducers import KNOWN, check_identity, known_name, known_reducer

MAX_TUPLE = 16
"""Elements of one block at most."""
_NAMES = {op: name for name, op in KNOWN.items()}
_FORMS = (
    "a reduction combines the element once with new values: C[i] + v, C[i] + a - b, C[i] * v, "
    "T.max(C[i], v) or T.min(C[i], v); any other names both first (x = C[i], y = v) and stores "
    "what they make"
)


@dataclass(frozen=True)
class Let:
    """`name = value`."""

    name: ast.Name
    value: ast.expr


@dataclass(frozen=True)
class Store:
    """`A[i] = value`; with `op`, `A[i] = op(A[i], value)`. Under conditions, a choice."""

    target: Load
    value: ast.expr
    op: str | None = None
    otherwise: Choice | None = None


@dataclass(frozen=True)
class Choice:
    """`if test:` around a store, and the store to the same element in its `else:`."""

    test: ast.expr
    store: Store


Statement = Union[Let, Store]


OTHER_STARTS = (
    "T.init stores the neutral element of the reduction; to begin with another value, store that "
    "in a block before and leave T.init out"
)


@dataclass(frozen=True)
class Identity:
    """What `with T.init():` or `with T.identity():` stores, by the key of the element."""

    is_init: bool
    place: Place
    values: dict[Hashable, Const]


@dataclass(frozen=True)
class Update:
    """What a block computes: `targets[n] = values[n]`, or combined by `reducer`."""

    targets: list[Load]
    values: list[Expr]
    reducer: Reducer | None = None


class Updates:
    """Reads the computing statements of one block."""

    def __init__(self, exprs: Expressions, statements: Sequence[Statement], place: Place) -> None:
        self.exprs, self.scope = exprs, exprs.scope
        self.statements, self.place = statements, place
        self.stores = [s for s in statements if isinstance(s, Store)]
        self.targets = [s.target for s in self.stores]
        self.keys = [key_of(t) for t in self.targets]

    def error(self, place: Place, message: str) -> ScriptError:
        return self.exprs.error(place, message)

    def read(
        self, identity: Identity | None, may_accumulate: bool, listed: set[Hashable]
    ) -> Update:
        """The update. `may_accumulate`: whether C[i] = C[i] + v without an identity is a reduction;
        `listed`: keys of the elements in T.reads."""
        self._check_targets()
        if identity is not None:
            return self._reduction(identity)
        update = self._plain()
        if len(self.stores) == 1 and may_accumulate and self.keys[0] not in listed:
            found = self._operation(0, update.values[0])
            if found is not None:
                name, value = found
                return Update(self.targets, [value], known_reducer(name, value.dtype))
        return update

    def _check_targets(self) -> None:
        if not self.stores:
            raise self.error(self.place, "the block stores nothing; expected A[i, j] = value")
        if len(self.stores) > MAX_TUPLE:
            raise self.error(self.place, f"the block stores more than {MAX_TUPLE} elements")
        for n, (target, key) in enumerate(zip(self.targets, self.keys, strict=True)):
            if key in self.keys[:n]:
                raise self.error(
                    target.place, f"{text_of(target.place)} is stored twice in one block"
                )

    # -- blocks that are no reductions, and those with an operator

    def _plain(self) -> Update:
        """All statements in order; names stand for what they were given."""
        values: list[Expr] = []
        written: set[int] = set()
        named: set[Expr] = set()
        for s in self.statements:
            if isinstance(s, Let):
                value, size = self._value_of_let(s)
                self._check_order(value, written, named)
                named.update(loads_in(value))
                self.scope.define(s.name.id, Bound(value, value, size), s.name)
                continue
            value = self._stored(s)
            self._check_order(value, written, named)
            written.add(id(s.target.buffer))
            values.append(value)
        return Update(self.targets, values)

    def _check_order(self, value: Expr, written: set[int], named: set[Expr]) -> None:
        """Nothing is read from the buffers `written`, but for what was read and `named` before."""
        if written:
            for load in loads_in(value):
                if id(load.buffer) in written and load not in named:
                    raise self.error(
                        load.place,
                        f"{load.buffer.name} is read after the block has stored to it; the stores "
                        "of a block happen at once, so give the value a name before the first one",
                    )

    def _value_of_let(self, s: Let) -> tuple[Expr, int]:
        budget = self.exprs.budget
        before = budget.spent
        value = self.exprs.expr(s.value)
        size = budget.spent - before
        self._check_height(s.value, value)
        return value, size

    def _check_height(self, place: Place, value: Expr) -> None:
        limit = self.exprs.budget.limits.height
        if height(value) > limit:
            raise self.error(place, f"expressions nest more than {limit} deep by their names")

    def _stored(self, s: Store) -> Expr:
        """The value of a store, with the dtype of its buffer."""
        value = self.exprs.expr(s.value, s.target.dtype)
        if s.op is not None:
            value = self._combined_with(s, s.op, s.target, value)
        elif not isinstance(value, Call):
            value = self._unfolded(s, value)
        if s.otherwise is not None:
            test = self.exprs.condition(s.otherwise.test)
            other = self._stored(s.otherwise.store)
            value = self.exprs.call_op(s.value, "if_then_else", test, value, other)
        self._check_height(s.value, value)
        if value.dtype != s.target.dtype:
            raise self.error(
                s.value,
                f"{s.target.buffer.name} holds {s.target.dtype}, found {value.dtype}; convert it "
                f'with T.cast(x, "{s.target.dtype}")',
            )
        return value

    def _combined_with(self, s: Store, op: str, left: Expr, right: Expr) -> Expr:
        """An operation that stays one where int64 arithmetic is folded: `C[i] + 0` is a sum."""
        value = self.exprs.call_op(s.value, op, left, right)
        return value if isinstance(value, Call) else Call(op, (left, right), left.dtype)

    def _unfolded(self, s: Store, value: Expr) -> Expr:
        """`value`, or the sum or product of the element and a constant that was folded to it."""
        if not isinstance(s.value, ast.BinOp) or not isinstance(s.value.op, (ast.Add, ast.Mult)):
            return value
        op = "add" if isinstance(s.value.op, ast.Add) else "mul"
        left, right = (self.exprs.expr(x, s.target.dtype) for x in (s.value.left, s.value.right))
        key = key_of(s.target)
        if any(isinstance(x, Load) and key_of(x) == key for x in (left, right)):
            return Call(op, (left, right), s.target.dtype)
        return value

    def _operation(self, n: int, value: Expr) -> tuple[str, Expr] | None:
        """(known reducer, new value) if `value` combines target n with something. The new value of
        `C + a - b` is `a - b`: terms are added up before they reach the element."""
        if not isinstance(value, Call) or value.op not in (*_NAMES, "sub"):
            return None
        op = "add" if value.op == "sub" else value.op
        new = self._without(op, value, n)
        return None if new is None else (_NAMES[op], new)

    def _without(self, op: str, e: Expr, n: int) -> Expr | None:
        """A sum, product, maximum or minimum without target n; None where that is no part."""
        if not isinstance(e, Call) or e.op not in ((op, "sub") if op == "add" else (op,)):
            return None
        left, right = e.args
        place, key = self.stores[n].value, self.keys[n]
        if isinstance(left, Load) and key_of(left) == key:
            return right if e.op == op else self.exprs.call_op(place, "neg", right)
        new = self._without(op, left, n)
        if new is not None:
            return self.exprs.call_op(place, e.op, new, right)
        if e.op == "sub":
            return None
        if isinstance(right, Load) and key_of(right) == key:
            return left
        new = self._without(op, right, n)
        return None if new is None else self.exprs.call_op(place, op, left, new)

    # -- reductions

    def _reduction(self, identity: Identity) -> Update:
        neutral = []
        for target, key in zip(self.targets, self.keys, strict=True):
            if key not in identity.values:
                raise self.error(
                    identity.place,
                    f"the identity of {text_of(target.place)} is missing; expected "
                    f"{text_of(target.place)} = ... inside",
                )
            neutral.append(identity.values[key])
        if len(identity.values) > len(neutral):
            raise self.error(
                identity.place, "an identity is given for what the block does not store"
            )
        names = self._names()
        if names is not None:
            update = self._combination(names, neutral)
        else:
            update = self._operators(neutral)
        assert update.reducer is not None
        known = known_name(update.reducer, commuted=True)
        if known is not None:
            return replace(update, reducer=known_reducer(known, update.values[0].dtype))
        try:
            check_identity(update.reducer)
        except (TensorExprError, OverflowError) as e:
            raise self.error(identity.place, f"{e}; {OTHER_STARTS}") from e
        return update

    def _operators(self, neutral: list[Const]) -> Update:
        """Each store combines its own element by an operator."""
        update = self._plain()
        values, lhs, rhs, combine = [], [], [], []
        for n, value in enumerate(update.values):
            found = self._operation(n, value)
            if found is None:
                raise self.error(self.stores[n].value, _FORMS)
            name, new = found
            x, y = Var(f"x{n}", new.dtype), Var(f"y{n}", new.dtype)
            values.append(new)
            lhs.append(x)
            rhs.append(y)
            combine.append(ex.call(KNOWN[name], x, y))
        reducer = Reducer("reduce", tuple(lhs), tuple(rhs), tuple(combine), tuple(neutral))
        return Update(self.targets, values, reducer)

    def _names(self) -> dict[str, int] | None:
        """Names given to stored elements -> which one; None if there are none."""
        names: dict[str, int] = {}
        for s in self.statements:
            if isinstance(s, Let) and isinstance(s.value, ast.Subscript):
                load = self._target_of(s.value)
                if load is not None and load not in names.values():
                    names[s.name.id] = load
        return names or None

    def _target_of(self, node: ast.Subscript) -> int | None:
        """Which stored element `node` names, if it is one; nothing is read from other buffers."""
        buffers = {self.scope.names.get(node.value.id)} if isinstance(node.value, ast.Name) else {}
        if not any(t.buffer in buffers for t in self.targets):
            return None
        key = key_of(self.exprs.load(node))
        return self.keys.index(key) if key in self.keys else None

    def _combination(self, names: dict[str, int], neutral: list[Const]) -> Update:
        """x = C[i]; y = value; C[i] = combination of x and y."""
        lhs = [Var(f"x{n}", t.dtype) for n, t in enumerate(self.targets)]
        old: set[Expr] = set()
        new: list[tuple[Let, Var, Expr]] = []
        results: list[Expr] = []
        for s in self.statements:
            if isinstance(s, Store):
                results.append(self._combined(s, {*old, *(v for _, v, _ in new)}))
                continue
            n = names.get(s.name.id)
            if n is not None and isinstance(s.value, ast.Subscript):
                lhs[n] = Var(s.name.id, lhs[n].dtype)
                old.add(lhs[n])
                self.scope.define(s.name.id, Bound(lhs[n], lhs[n], 1), s.name)
                continue
            value, size = self._value_of_let(s)
            if any(x in old for x in walk(value)):
                # A part of the combination itself.
                self.exprs.combining = True
                value, size = self._value_of_let(s)
                self.exprs.combining = False
                self.scope.define(s.name.id, Bound(value, value, size), s.name)
            else:
                var = Var(s.name.id, value.dtype)
                new.append((s, var, value))
                self.scope.define(s.name.id, Bound(value, var, size), s.name)
        used = {x for e in results for x in walk(e)}
        if len(new) > len(results):
            new = [x for x in new if x[1] in used]
        if len(new) != len(results):
            raise self.error(
                self.place,
                f"the block combines {len(results)} elements with {len(new)} new values; expected "
                "one for each, named in the same order",
            )
        for (s, _, value), target in zip(new, self.targets, strict=True):
            if value.dtype != target.dtype:
                raise self.error(
                    s.value, f"{target.buffer.name} holds {target.dtype}, found {value.dtype}"
                )
        rhs = tuple(var for _, var, _ in new)
        reducer = Reducer("reduce", tuple(lhs), rhs, tuple(results), tuple(neutral))
        return Update(self.targets, [value for _, _, value in new], reducer)

    def _combined(self, s: Store, operands: set[Expr]) -> Expr:
        self.exprs.combining = True
        value = self._stored(s)
        self.exprs.combining = False
        for x in walk(value):
            if not isinstance(x, (Const, Call)) and x not in operands:
                raise self.error(
                    s.value,
                    "a combination is made of the names given to the elements and to the new "
                    f"values, and of constants; {_FORMS}",
                )
        return value
