"""Nests that run as they are written: blocks in blocks, blocks with loops, opaque blocks in loops.

Nothing analyses what such a nest does in which order, so that all of it is one opaque block
(`tir/opaque.py`) over the buffers that it uses. Its loops and blocks become statements of a
routine: an axis is a name for its binding, `T.where` a condition, `T.init` runs where all reduction
axes of its block are 0.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autosched.script.blocks import KINDS, with_call
from autosched.script.exprs import called
from autosched.script.literals import Arguments, string
from autosched.script.routines import RoutineReader
from autosched.script.scope import Local
from autosched.tir import dtypes
from autosched.tir.expr import Call, Const, Expr, Var, walk
from autosched.tir.nodes import Buffer, Element, Pointer
from autosched.tir.routine import Alloc, If, Let, Statement, Store, statements_of, values_of


def with_name(s: ast.stmt) -> str | None:
    """`block` of `with T.block(…):`, and so on."""
    call = with_call(s) if isinstance(s, ast.With) else None
    return None if call is None else called(call.func)


def runs_in_order(s: ast.stmt) -> bool:
    """Whether a statement of a function holds an opaque block, or a block that holds loops or
    blocks."""
    stack: list[tuple[ast.stmt, bool]] = [(s, False)]
    while stack:
        node, in_block = stack.pop()
        name = with_name(node)
        if name == "opaque" and node is not s:
            return True
        if in_block and (name in ("block", "opaque") or isinstance(node, (ast.For, ast.While))):
            return True
        if name == "block" and not _is_root(node):
            in_block = True
        inside = [*getattr(node, "body", ()), *getattr(node, "orelse", ())]
        stack += [(x, in_block) for x in inside]
    return False


def _is_root(s: ast.stmt) -> bool:
    """Whether a block is the root block, which has an error of its own."""
    call = with_call(s) if isinstance(s, ast.With) else None
    names = [x.value for x in call.args if isinstance(x, ast.Constant)] if call else []
    return names == ["root"]


def blocks_of(s: ast.stmt) -> Iterator[ast.With]:
    """The blocks of a nest, in their order."""
    if with_name(s) in ("block", "opaque"):
        assert isinstance(s, ast.With)
        yield s
    for x in (*getattr(s, "body", ()), *getattr(s, "orelse", ())):
        yield from blocks_of(x)


class NestedReader(RoutineReader):
    """Reads statements that stand in blocks and hold blocks."""

    def _with(self, s: ast.With, depth: int) -> list[Statement]:
        kind = with_name(s)
        if kind not in ("block", "opaque"):
            raise self.error(s.items[0].context_expr, "expected T.block(name) or T.opaque(name)")
        self._count(s)
        self.block_name(s)
        head: list[Statement] = []
        first: list[Expr] = []
        conditions: list[Expr] = []
        lists: dict[str, list[Buffer]] = {}
        init: ast.With | None = None
        rest: list[ast.stmt] = []
        for x in s.body:
            axes = _axis_call(x)
            if axes is not None:
                if rest:
                    raise self.error(x, "axes come before the statements that compute")
                head += self._axes(x, axes, first)
            elif with_name(x) == "init" and init is None:
                assert isinstance(x, ast.With)
                init = x
            elif with_name(x) != "identity" and not self._directive_of(x, conditions, lists):
                rest.append(x)
        body = self._statements(rest, depth + 1)
        self._check_at_once(s, rest, body)
        self._check_lists(s, lists, body)
        if init is not None:
            body = (*self._initial(init, first, depth), *body)
        for c in reversed(conditions):
            body = (If(c, body),)
        return [*head, *body]

    def block_name(self, s: ast.With) -> str:
        """The name in `T.block("name")`."""
        call = with_call(s)
        assert call is not None
        args = Arguments(self.source, call, f"T.{called(call.func)}")
        name = string(self.source, args.need("name"), "a block's name")
        args.done()
        if not name:
            raise self.error(call, "a block needs a name")
        return name

    def _axes(self, s: ast.stmt, call: ast.Call, first: list[Expr]) -> list[Statement]:
        """The names that `v = T.axis.spatial(n, i)` or `T.axis.remap` defines; `first` gets what
        holds at the first point of reduction axes."""
        assert isinstance(s, ast.Assign)
        target, name = s.targets[0], called(call.func)
        args = Arguments(self.source, call, f"T.{name}")
        if name == "axis.remap":
            letters = string(self.source, args.need("kinds"), "the kinds of axes")
            loops, targets = args.need("loops"), getattr(target, "elts", [target])
            values = loops.elts if isinstance(loops, (ast.List, ast.Tuple)) else [loops]
        else:
            letters, targets = str(name).removeprefix("axis.")[:1].upper(), [target]
            self.exprs.extent(args.need("extent"), "an axis' extent", True)
            values = [args.need("binding")]
            letters = letters if str(name).removeprefix("axis.") in KINDS else "?"
        args.done()
        if not len(letters) == len(values) == len(targets):
            raise self.error(
                call, f"{len(targets)} axes, {len(letters)} kinds, {len(values)} loops"
            )
        out: list[Statement] = []
        for t, letter, value in zip(targets, letters, values, strict=True):
            if letter not in KINDS or not isinstance(t, ast.Name):
                raise self.error(call, "expected v = T.axis.spatial, reduce, sequential or remap")
            bound = self._number64(value)
            var = Var(t.id, dtypes.INDEX)
            self.scope.define(t.id, Local("loop", var), t)
            out.append(Let(var, bound))
            if KINDS[letter] == "reduce":
                first.append(Call("eq", (var, Const(0, dtypes.INDEX)), "bool"))
        return out

    def _directive_of(
        self, s: ast.stmt, conditions: list[Expr], lists: dict[str, list[Buffer]]
    ) -> bool:
        """Read T.where, T.reads and T.writes, and pass over annotations; False for a statement."""
        call = s.value if isinstance(s, ast.Expr) else None
        name = called(call.func) if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or name not in ("where", "reads", "writes", "block_attr"):
            return False
        args = Arguments(self.source, call, f"T.{name}")
        if name == "where":
            conditions.append(self._condition(args.need("condition")))
            args.done()
        elif name != "block_attr":
            lists[name] = lists.get(name, []) + [self._listed(x) for x in args.positional]
        return True

    def _listed(self, node: ast.expr) -> Buffer:
        """The buffer of `A`, or of a region `A[0:4, i]`, of which nothing else is read."""
        base = node.value if isinstance(node, ast.Subscript) else node
        thing = self.scope.names.get(base.id) if isinstance(base, ast.Name) else None
        if not isinstance(thing, Buffer):
            raise self.error(node, "expected a buffer, or a region of one: A[0:4, i]")
        return thing

    def _check_lists(
        self, s: ast.With, lists: dict[str, list[Buffer]], body: tuple[Statement, ...]
    ) -> None:
        """T.reads and T.writes may be left out; where they stand they have all buffers."""
        inside = {id(x.buffer) for x in statements_of(body) if isinstance(x, Alloc)}
        known = {k: {id(b) for b in v} | inside for k, v in lists.items()}
        reads, writes = used(body)
        either = known.get("reads", set()) | known.get("writes", set())
        for name, buffers, allowed in (("reads", reads, either), ("writes", writes, None)):
            for b in buffers if name in known else ():
                if id(b) not in (known[name] if allowed is None else allowed):
                    raise self.error(
                        s, f"block {self.block_name(s)!r} uses {b.name}, which T.{name} lacks"
                    )

    def _initial(self, s: ast.With, first: list[Expr], depth: int) -> tuple[Statement, ...]:
        """The statements of `T.init`, at the first point of the reduction axes."""
        body = self._statements(s.body, depth + 1)
        for c in reversed(first):
            body = (If(c, body),)
        return body

    def _check_at_once(
        self, s: ast.With, rest: list[ast.stmt], body: tuple[Statement, ...]
    ) -> None:
        """In a block without loops and blocks inside, several stores happen at once; here one after
        the other. Refuse where it matters."""
        if with_name(s) != "block" or runs_in_order(s):
            return
        stored: set[int] = set()
        for statement in statements_of(body):
            for e in _read(statement):
                if id(e.buffer) in stored:
                    raise self.error(
                        rest[-1],
                        f"block {self.block_name(s)!r} stands in a nest that runs in order, and "
                        f"reads {e.buffer.name} after it stored there, which in a block would give "
                        "the element of before; name the value before the store",
                    )
            if isinstance(statement, Store):
                stored.add(id(statement.target.buffer))


def _axis_call(s: ast.stmt) -> ast.Call | None:
    """The call of `v = T.axis.…(…)`."""
    call = s.value if isinstance(s, ast.Assign) and len(s.targets) == 1 else None
    name = called(call.func) if isinstance(call, ast.Call) else None
    return call if isinstance(call, ast.Call) and str(name).startswith("axis.") else None


def _read(s: Statement) -> Iterator[Element]:
    """The elements that a statement reads."""
    for value in values_of(s):
        inside = value.indices if isinstance(s, Store) and value is s.target else (value,)
        for e in (e for x in inside for e in walk(x)):
            if isinstance(e, Element):
                yield e


def used(body: tuple[Statement, ...]) -> tuple[list[Buffer], list[Buffer]]:
    """The buffers that statements read and store to, in their order; a C function does both."""
    reads: list[Buffer] = []
    writes: list[Buffer] = []
    for s in statements_of(body):
        reads += [e.buffer for e in _read(s)]
        writes += [s.target.buffer] if isinstance(s, Store) else []
        given = [e.buffer for v in values_of(s) for e in walk(v) if isinstance(e, Pointer)]
        reads, writes = reads + given, writes + given
    return list(dict.fromkeys(reads)), list(dict.fromkeys(writes))
