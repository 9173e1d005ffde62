"""What stands in a block of TVMScript: its axes, conditions, annotations and statements."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosched.script.migrate.access import Accesses
from autosched.script.migrate.spelling import AXES, called
from autosched.script.migrate.stores import reads_written
from autosched.script.migrate.things import (
    INDEX,
    Context,
    Loop,
    State,
    Value,
    call,
    minus,
    name,
    names_in,
    number_of,
    plus,
    replaced,
)
from autosched.script.migrate.values import Values

if TYPE_CHECKING:
    from autosched.script.migrate.function import Function


@dataclass
class Axis:
    """An axis of a block of the new text. `old` is its name in the old text, `value` what that name
    stands for inside the block, `whole` what it stands for in terms of loops."""

    title: str
    kind: str
    extent: ast.expr
    binding: ast.expr
    old: str = ""
    value: ast.expr | None = None
    whole: ast.expr | None = None

    def statement(self) -> ast.stmt:
        """The axis as it stands in a block."""
        made = call(f"axis.{self.kind}", self.extent, self.binding)
        return ast.Assign([ast.Name(self.title, ast.Store())], made, lineno=0)


@dataclass
class Parts:
    """What stands in a block."""

    axes: list[Axis] = field(default_factory=list)
    where: list[tuple[ast.Call, ast.expr]] = field(default_factory=list)
    attrs: list[ast.expr] = field(default_factory=list)
    init: list[ast.stmt] = field(default_factory=list)
    rest: list[ast.stmt] = field(default_factory=list)


class PartReader:
    """Reads the parts of blocks of one function."""

    def __init__(self, state: State, values: Values, function: Function) -> None:
        self.state, self.values, self.function = state, values, function
        self.accesses = Accesses(function.node)

    def parts(self, s: ast.With, c: Context, is_leaf: bool) -> Parts:
        """What stands in a block; in one that is taken apart, its axes stand for their bindings."""
        parts = Parts()
        for n in s.body:
            self.state.spend_statement()
            value = n.value if isinstance(n, (ast.Assign, ast.AnnAssign, ast.Expr)) else None
            function = called(value.func) if isinstance(value, ast.Call) else None
            if isinstance(value, ast.Call) and function is not None:
                if function.startswith("axis.") and not isinstance(n, ast.Expr):
                    assert isinstance(n, (ast.Assign, ast.AnnAssign))
                    target = n.targets[0] if isinstance(n, ast.Assign) else n.target
                    self._axes(parts, target, value, function.removeprefix("axis."), c)
                    if not is_leaf:
                        for x in parts.axes:
                            assert x.whole is not None
                            self.state.names[x.old] = Value(x.whole, INDEX)
                    continue
                if function in ("reads", "writes"):
                    continue
                if function == "where":
                    parts.where.append((value, self.values.condition(value.args[0])))
                    continue
                if function in ("block_attr", "sblock_attr"):
                    parts.attrs.append(value.args[0])
                    continue
                if self.function.declaration(n, c):
                    continue
            if isinstance(n, ast.With) and is_init(n):
                parts.init += n.body
            elif isinstance(n, ast.Pass) or self._is_idle(n):
                continue
            else:
                parts.rest.append(n)
        return parts

    def _is_idle(self, n: ast.stmt) -> bool:
        """A text, or `T.evaluate` of a number."""
        if not isinstance(n, ast.Expr):
            return False
        if isinstance(n.value, ast.Constant):
            return True
        is_evaluate = isinstance(n.value, ast.Call) and called(n.value.func) == "evaluate"
        if is_evaluate:
            self.function.effect(n.value)
        return is_evaluate

    def _axes(self, parts: Parts, target: ast.expr, node: ast.Call, kind: str, c: Context) -> None:
        if kind != "remap":
            if kind not in AXES or len(node.args) < 2:
                raise self.state.error(node, f"T.axis.{kind} has no counterpart here")
            whole = self.values.index(node.args[1])
            extent = node.args[0]
            pair = extent.elts if isinstance(extent, (ast.Tuple, ast.List)) else None
            first = None if pair is None else self.values.index(pair[0])
            last = self.values.index(extent if pair is None else pair[1])
            self._axis(parts, node, target, AXES[kind], first, last, whole)
            return
        kinds, loops = node.args
        letters = kinds.value if isinstance(kinds, ast.Constant) else ""
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        items = loops.elts if isinstance(loops, (ast.List, ast.Tuple)) else []
        if not isinstance(letters, str) or not len(letters) == len(targets) == len(items):
            raise self.state.error(node, "T.axis.remap names as many axes as kinds and loops")
        for t, letter, item in zip(targets, letters, items, strict=True):
            whole = self.values.index(item)
            found = [x for x in c.loops if x.name in names_in(whole)]
            if letter not in AXES or len(found) != 1:
                raise self.state.error(item, "expected a loop variable")
            self._axis(parts, node, t, AXES[letter], None, found[0].extent, whole, found[0])

    def _axis(
        self,
        parts: Parts,
        place: ast.Call,
        target: ast.expr,
        kind: str,
        first: ast.expr | None,
        last: ast.expr,
        whole: ast.expr,
        loop: Loop | None = None,
    ) -> None:
        """An axis from `first` to `last` that stands at `whole`; with `loop` that loop, of which
        `whole` is made."""
        if not isinstance(target, ast.Name):
            raise self.state.error(place, "expected a name for the axis")
        if any(isinstance(x, ast.Subscript) for x in ast.walk(whole)):
            raise self.state.error(place, "an axis stands at a sum of loop variables, not at data")
        title = self.state.fresh(target.id)
        if loop is not None:
            binding: ast.expr = name(loop.name)
            value = replaced(whole, {loop.name: name(title)})
            extent = loop.extent
        else:
            binding = whole if first is None else minus(whole, first)
            value = name(title) if first is None else plus(name(title), first)
            extent = last if first is None else minus(last, first)
        self.state.extents.pop(title, None)
        size = number_of(extent)
        if size is not None:
            self.state.extents[title] = size
        self.state.names[target.id] = Value(value, INDEX)
        parts.axes.append(Axis(title, kind, extent, binding, target.id, value, whole))

    def is_leaf(self, s: ast.With) -> bool:
        """Whether a block computes single elements: only stores and names stand in it, and none
        reads what one before it has stored."""
        rest: list[ast.stmt] = []
        for n in s.body:
            if isinstance(n, ast.With) and is_init(n):
                inner: list[ast.stmt] = n.body
            elif isinstance(n, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If)):
                inner = [n]
                value = getattr(n, "value", None)
                function = called(value.func) if isinstance(value, ast.Call) else None
                if function in ("alloc_buffer", "allocate", "decl_buffer"):
                    return False
                rest.append(n)
            elif isinstance(n, (ast.For, ast.With, ast.While)):
                return False
            else:
                continue
            for x in (y for m in inner for y in ast.walk(m)):
                if isinstance(x, (ast.For, ast.With, ast.While)):
                    return False
        return not reads_written(rest, self.accesses.root)


def is_init(n: ast.With) -> bool:
    """Whether a statement is `with T.init():`."""
    node = n.items[0].context_expr
    return isinstance(node, ast.Call) and called(node.func) == "init"
