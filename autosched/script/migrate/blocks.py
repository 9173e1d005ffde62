"""Blocks of TVMScript, and stores outside of blocks, as blocks that compute one element each."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from autosched.script.migrate.combine import combination
from autosched.script.migrate.facts import kept_annotations
from autosched.script.migrate.initial import taken_over
from autosched.script.migrate.parts import Axis, PartReader, Parts
from autosched.script.migrate.ranges import is_zero
from autosched.script.migrate.stores import (
    Store,
    accumulated,
    guarded,
    same_text,
    told_by,
)
from autosched.script.migrate.things import (
    INDEX,
    INT,
    Context,
    State,
    Value,
    call,
    name,
    names_in,
    number_of,
    replaced,
)
from autosched.script.migrate.values import Values

if TYPE_CHECKING:
    from autosched.script.migrate.function import Function


class Blocks(PartReader):
    """Rewrites the blocks of one function."""

    def __init__(self, state: State, values: Values, function: Function) -> None:
        super().__init__(state, values, function)
        self.titles: list[str] = []
        self.initial: dict[int, ast.expr] = {}
        """Blocks (by id) of the old text that initialise for one around them, and with what."""

    # -- blocks

    def block(self, s: ast.With, node: ast.Call, c: Context) -> list[ast.stmt]:
        """The new text of `with T.block(...)`."""
        title = self._title(node)
        with self.state.scope():
            is_leaf = self.is_leaf(s)
            parts = self.parts(s, c, is_leaf)
            if not parts.rest and not parts.init:
                return []
            if is_leaf and parts.axes:
                return self._leaf(s, title, parts, c)
            return self._dissolved(s, title, parts, c)

    def _title(self, node: ast.Call) -> str:
        given = [*node.args, *(k.value for k in node.keywords if k.arg in ("name", "name_hint"))]
        found = given[0].value if given and isinstance(given[0], ast.Constant) else ""
        return found if isinstance(found, str) else ""

    # -- blocks that stay blocks

    def _leaf(self, s: ast.With, title: str, parts: Parts, c: Context) -> list[ast.stmt]:
        bound = {x.title: x.binding for x in parts.axes}
        contexts = [c]
        for node, test in parts.where:
            whole = replaced(test, bound)
            place = ast.copy_location(ast.If(node.args[0], [], []), node)
            contexts = [
                y for x in contexts for y in self.function.under(place, whole, True, parts.rest, x)
            ]
        rest = parts.rest
        while not parts.init and id(s) not in self.initial and len(rest) == 1:
            # Points at which a condition on axes does not hold are skipped.
            (only,) = rest
            if not isinstance(only, ast.If) or only.orelse or len(contexts) > 1:
                break
            whole = replaced(self.values.condition(only.test), bound)
            inner = self.function.under(only, whole, True, only.body, contexts[0])
            if any(x.guards for x in inner):
                break
            contexts, rest = inner, only.body
        init = self.statements(parts.init)
        has_init = bool(init) or id(s) in self.initial
        if has_init and (len(contexts) > 1 or any(x.guards for x in contexts)):
            raise self.state.error(
                s,
                "a reduction with T.init skips points where one comparison of loop variables "
                "does not hold; found a condition of another kind",
            )
        made = self.statements(rest)
        value = self.initial.get(id(s))
        if value is not None:
            (store,) = made
            init = [replace(store, value=self.values.of(value, self._typed(store).dtype))]
        if init:
            made = combination(self.state, made, init)
        return [
            x
            for inner in contexts
            for x in self._emit(s, title, list(parts.axes), made, init, parts.attrs, inner)
        ]

    def statements(self, nodes: Sequence[ast.stmt], guard: ast.expr | None = None) -> list[Store]:
        """Names and stores of a block that stays one, those under conditions made choices."""
        out: list[Store] = []
        for s in nodes:
            if isinstance(s, ast.If):
                out += self._chosen(s, guard)
                continue
            if isinstance(s, ast.Pass) or not isinstance(
                s, (ast.Assign, ast.AugAssign, ast.AnnAssign)
            ):
                if isinstance(s, ast.Expr):
                    self.function.effect(s.value)
                    continue
                raise self.state.error(s, "expected a store")
            target = s.targets[0] if isinstance(s, ast.Assign) else s.target
            if isinstance(target, ast.Name) and not isinstance(s, ast.AugAssign):
                assert s.value is not None
                e = self.values.value(s.value)
                if _is_index(e):
                    self.state.names[target.id] = e  # a place of stores, too
                    continue
                title = self.state.fresh(target.id)
                self.state.names[target.id] = Value(name(title), e.dtype)
                out.append(Store(name(title), e.node, s, is_name=True))
            else:
                out.append(self.store(s, guard))
        return out

    def store(self, s: ast.Assign | ast.AugAssign | ast.AnnAssign, guard: ast.expr | None) -> Store:
        """One store; under a condition the element keeps its value where that does not hold."""
        target = s.targets[0] if isinstance(s, ast.Assign) else s.target
        if not isinstance(target, ast.Subscript) or s.value is None:
            raise self.state.error(s, "expected a store, A[i] = value")
        e, value = self.values.assigned(target, s)
        if guard is not None:
            value = guarded(guard, e, value)
        self.state.spend(target, value)
        return Store(e.node, value, s)

    def _chosen(self, s: ast.If, outer: ast.expr | None) -> list[Store]:
        test = self.values.condition(s.test)
        self.function.check_steady(s, test, [*s.body, *s.orelse])
        if outer is None and len(s.body) == len(s.orelse) == 1:
            yes, no = self.statements(s.body), self.statements(s.orelse)
            if len(yes) == len(no) == 1 and same_text(yes[0].target, no[0].target):
                chosen = call("if_then_else", test, yes[0].value, no[0].value)
                return [replace(yes[0], value=chosen, place=s)]
        opposite: ast.expr = ast.UnaryOp(ast.Not(), test)
        out: list[Store] = []
        for nodes, guard in ((s.body, test), (s.orelse, opposite)):
            both = guard if outer is None else ast.BoolOp(ast.And(), [outer, guard])
            out += self.statements(nodes, both)
        return out

    # -- blocks that are taken apart

    def _dissolved(self, s: ast.With, title: str, parts: Parts, c: Context) -> list[ast.stmt]:
        """What stands in a block, with its axes replaced by what they stand at."""
        if parts.attrs:
            self.state.note(s, f"annotations of block {title or 'without a name'!s} are left out")
        contexts = [c]
        for node, test in parts.where:
            whole = replaced(test, {x.title: x.binding for x in parts.axes})
            place = ast.copy_location(ast.If(node.args[0], [], []), node)
            contexts = [
                y for x in contexts for y in self.function.under(place, whole, True, parts.rest, x)
            ]
        out: list[ast.stmt] = []
        nested = any(isinstance(x, ast.With) for n in parts.rest for x in ast.walk(n))
        home = self._first_value(parts)
        for inner in contexts:
            if parts.init and home is None:
                zero = tuple(is_zero(x.binding) for x in parts.axes if x.kind == "reduce")
                first = replace(inner, conditions=(*inner.conditions, *zero))
                self.titles.append(f"{title}_init" if title and title != "root" else "")
                out += self.function.body(parts.init, first)
                self.titles.pop()
            self.titles.append("" if nested or title == "root" else title)
            out += self.function.body(parts.rest, inner)
            self.titles.pop()
        return out

    def _first_value(self, parts: Parts) -> ast.With | None:
        """The block inside that takes over what a block initialises, if one does; it is noted."""
        found = taken_over(parts.init, parts.rest) if parts.init else None
        if found is None:
            return None
        home, value = found
        self.initial[id(home)] = value
        return home

    def plain(self, s: ast.Assign | ast.AugAssign | ast.AnnAssign, c: Context) -> list[ast.stmt]:
        """A store outside of blocks, as a block of its own."""
        made = self.store(s, None)
        title = self.titles[-1] if self.titles and self.titles[-1] else ""
        return self._emit(s, title, [], [made], [], [], c, plain=True)

    def either(self, s: ast.If, c: Context) -> list[ast.stmt] | None:
        """A choice outside of blocks between two values of one element, as a block; None if it is
        no such choice."""
        plain = (ast.Assign, ast.AugAssign, ast.AnnAssign)
        if not isinstance(s.body[0], plain) or not isinstance(s.orelse[0], plain):
            return None
        targets = [x for x in ast.walk(s) if isinstance(getattr(x, "ctx", None), ast.Store)]
        if len(targets) != 2 or ast.unparse(targets[0]) != ast.unparse(targets[1]):
            return None
        if not isinstance(targets[0], ast.Subscript):
            return None
        (made,) = self._chosen(s, None)
        title = self.titles[-1] if self.titles and self.titles[-1] else ""
        return self._emit(s, title, [], [made], [], [], c, plain=True)

    # -- the new text

    def _emit(
        self,
        place: ast.stmt,
        title: str,
        axes: list[Axis],
        made: Sequence[Store],
        init: Sequence[Store],
        attrs: Sequence[ast.expr],
        c: Context,
        plain: bool = False,
    ) -> list[ast.stmt]:
        """A block over `axes`, and over the loops that stand in its statements by name."""
        stores = list(made)
        for guard in c.guards:
            stores = [
                x if x.is_name else replace(x, value=guarded(guard, self._typed(x), x.value))
                for x in stores
            ]
        used = set().union(*(names_in(x.target) | names_in(x.value) for x in (*stores, *init)))
        kinds = self._kinds(stores, axes, c, used, plain)
        values: dict[str, ast.expr] = {}
        for loop in c.loops:
            have = [x for x in axes if isinstance(x.binding, ast.Name) and x.binding.id == loop.name
                    and same_text(x.extent, loop.extent)]  # fmt: skip
            if loop.name in kinds:
                if not have:
                    made_axis = Axis(
                        self.state.fresh(f"v{loop.name}"), kinds[loop.name], loop.extent,
                        name(loop.name),
                    )  # fmt: skip
                    axes.append(made_axis)
                    have = [made_axis]
                values[loop.name] = name(have[0].title)
        first = next((x for x in stores if not x.is_name), None)
        if first is None:
            return []
        default = ast.unparse(first.target.value) if isinstance(first.target, ast.Subscript) else ""
        body: list[ast.stmt] = [x.statement() for x in axes]
        if c.conditions:
            tests = list(dict.fromkeys(map(ast.unparse, c.conditions)))
            whole = ast.parse(" and ".join(tests), mode="eval").body
            body.append(ast.Expr(call("where", whole)))
        for given in attrs:
            kept = kept_annotations(self.state, given, "block")
            if kept.keys:
                body.append(ast.Expr(call("block_attr", kept)))
        if init:
            inside: list[ast.stmt] = [x.renamed(values) for x in init]
            body.append(ast.With([ast.withitem(call("init"))], inside, lineno=0))
        body += [x.renamed(values) for x in stores]
        label = self.state.block(title or default or "block")
        item = ast.withitem(call("block", ast.Constant(label)))
        return [ast.With([item], body, lineno=0)]

    def _typed(self, x: Store) -> Value:
        """The element of a store, with the dtype of its buffer."""
        assert isinstance(x.target, ast.Subscript)
        title = ast.unparse(x.target.value)
        for thing in self.state.names.values():
            base = getattr(thing, "base", thing)
            if getattr(base, "name", None) == title:
                return Value(x.target, base.dtype)  # type: ignore[union-attr]
        raise self.state.error(x.place, "a store to what is no buffer")

    def _kinds(
        self,
        stores: Sequence[Store],
        axes: Sequence[Axis],
        c: Context,
        used: set[str],
        plain: bool,
    ) -> dict[str, str]:
        """The loops that need an axis of their own, and its kind: spatial where each iteration
        writes elements of its own and none meets another, reduce where it accumulates, and else
        sequential, which keeps the order."""
        sizes = c.sizes()
        extents = {x.title: number_of(x.extent) for x in axes}
        sizes |= {k: n for k, n in extents.items() if n is not None}
        told = [told_by(x.target, sizes) for x in stores if not x.is_name]
        out: dict[str, str] = {}
        for loop in c.loops:
            conflicts: set[str] = set()
            if plain:
                (store,) = stores
                variables = {
                    old
                    for old, x in self.state.names.items()
                    if isinstance(x, Value)
                    and isinstance(x.node, ast.Name)
                    and x.node.id == loop.name
                }
                origin = self.function.origin[loop.name]
                conflicts = self.accesses.conflicts(origin, variables, store.place)
            if loop.name not in used and not conflicts:
                continue
            if not conflicts and all(loop.name in t for t in told):
                out[loop.name] = "spatial"
            elif len(told) == 1 and self._accumulates(stores, conflicts, loop.name, axes):
                out[loop.name] = "reduce"
            else:
                out[loop.name] = "sequential"
        if plain and "sequential" in out.values():
            # One block either accumulates or goes in order.
            out = {k: "sequential" if v == "reduce" else v for k, v in out.items()}
        return out

    def _accumulates(
        self, stores: Sequence[Store], conflicts: set[str], loop: str, axes: Sequence[Axis]
    ) -> bool:
        """Whether a loop does nothing but combine values into an element that stands still."""
        if len(stores) != 1 or loop in names_in(stores[0].target):
            return False
        if any(x.kind == "sequential" for x in axes):
            return False
        (store,) = stores
        assert isinstance(store.target, ast.Subscript)
        own = self.accesses.root(self._old_name(store))
        if not accumulated(store) or conflicts - {own}:
            return False
        touches = self.accesses.below(self.function.origin[loop])
        return not conflicts or all(
            t.statement == id(store.place) for t in touches if t.buffer == own
        )

    def _old_name(self, store: Store) -> str:
        """The name in the old text of the buffer that is stored to."""
        s = store.place.body[0] if isinstance(store.place, ast.If) else store.place
        target = s.targets[0] if isinstance(s, ast.Assign) else getattr(s, "target", None)
        return ast.unparse(target.value) if isinstance(target, ast.Subscript) else ""


def _is_index(e: Value) -> bool:
    """Whether a value is an integer that is computed from axes and loops alone."""
    plain = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    nodes = [x for x in ast.walk(e.node) if not isinstance(x, ast.expr_context)]
    return e.dtype in (INDEX, INT) and all(isinstance(x, plain) for x in nodes)
