"""A function of TVMScript as a routine: its statements in their order.

Loops keep their ranges, blocks become the values of their axes and conditions, `T.init` a condition
on the reduction axes, as TVM lowers them. Loops over threads run one after the other, where that
computes the same (`threads.py`); annotations go.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from autosched.script.migrate.calls import Calls, Sibling
from autosched.script.migrate.facts import kept_attributes, returned
from autosched.script.migrate.parts import is_init
from autosched.script.migrate.placed import Placed, stored
from autosched.script.migrate.spelling import AXES, assigned, called
from autosched.script.migrate.things import (
    FLOAT,
    INDEX,
    INT,
    Context,
    Note,
    State,
    Thing,
    Value,
    call,
    name,
    number,
    number_of,
)
from autosched.script.migrate.threads import check_threads
from autosched.script.source import Source
from autosched.tir import dtypes

_IDLE = ("reads", "writes", "block_attr", "sblock_attr", "assume", "tir.assume")
"""Calls that only describe."""


class Direct(Placed):
    """Rewrites one function as a routine. `names` are what texts around it define, `siblings` the
    functions that it may call."""

    def __init__(
        self,
        source: Source,
        node: ast.FunctionDef,
        names: Mapping[str, Thing],
        siblings: Mapping[str, Sibling],
    ) -> None:
        super().__init__(State(source, dict(names)))
        self.node = node
        self.title = node.name
        self.calls = Calls(self, self._body, siblings)
        self.values.is_routine = True
        self.begins: dict[str, ast.expr] = {}
        """Where loops of the new text begin, by name."""

    @property
    def notes(self) -> list[Note]:
        """What a reader of the new text must know."""
        return self.state.notes

    def read(self, title: str) -> ast.FunctionDef:
        """The routine, called `title`. Raises ScriptError for what has no counterpart."""
        self.declare_params(self.node)
        body = self._body(self.node.body)
        self.drop_sizes()
        check_threads(self.state, self.node, body, self.scopes, self.is_launched)
        new = ast.FunctionDef(
            title,
            ast.arguments([], self.params, None, [], [], None, []),
            [*self.head, *body] or [ast.Pass()],
            [ast.Attribute(name("T"), "routine", ast.Load())],
            None,
        )
        new.lineno, new.col_offset = self.node.lineno, self.node.col_offset
        if hasattr(new, "type_params"):
            new.type_params = []
        return new

    # -- statements

    def _scope(self, nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements in a scope of their own; `pass` where there are none."""
        with self.state.scope():
            return self._body(nodes) or [ast.Pass()]

    def _body(self, nodes: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for n, s in enumerate(nodes):
            self.state.spend_statement()
            scoped = self.opens(s)
            if scoped is not None:  # what follows stands inside
                loop = self.launch(s, scoped, nodes[n + 1 :])
                return [*out, *self._for(loop)]
            found = self._statement(s)
            out += self.kept(s, [*self.made, *found])
            self.made = []
        return out

    def kept(self, s: ast.stmt, made: list[ast.stmt]) -> list[ast.stmt]:
        """What became of one statement."""
        return made

    def _statement(self, s: ast.stmt) -> list[ast.stmt]:
        if isinstance(s, ast.For):
            return self._for(s)
        if isinstance(s, ast.While):
            return [self._while(s)]
        if isinstance(s, ast.If):
            return self._if(s)
        if isinstance(s, ast.With):
            return self._with(s)
        if isinstance(s, (ast.Assert, ast.Pass)) or (
            isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)
        ):
            return []
        if self.declaration(s, Context()) or self.constants(s):
            return []
        if isinstance(s, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            return self._assign(s)
        if isinstance(s, ast.Expr):
            return self._effect(s)
        raise self.state.error(s, f"{type(s).__name__} has no counterpart here")

    def _while(self, s: ast.While) -> ast.stmt:
        tested = {x.id for x in ast.walk(s.test) if isinstance(x, ast.Name)}
        for x in sorted(tested & assigned(s)):
            raise self.state.error(
                s,
                f"{x} is a name for one value, which the loop does not change; declare a variable, "
                f"{x}: T.int32 = 0",
            )
        return ast.While(self.values.condition(s.test), self._scope(s.body), [])

    def _if(self, s: ast.If) -> list[ast.stmt]:
        test = self.values.condition(s.test)
        yes = self._scope(s.body)
        no = self._scope(s.orelse) if s.orelse else []
        # Scripts have no `elif`.
        return [ast.If(test, yes, [ast.Pass(), *no] if no else [])]

    def _assign(self, s: ast.Assign | ast.AugAssign | ast.AnnAssign) -> list[ast.stmt]:
        target = s.targets[0] if isinstance(s, ast.Assign) else s.target
        if s.value is None:
            raise self.state.error(s, "expected a value")
        if isinstance(target, ast.Name) and not isinstance(s, ast.AugAssign):
            given = s.annotation if isinstance(s, ast.AnnAssign) else None
            return self._let(target.id, s.value, given)
        if not isinstance(target, ast.Subscript):
            raise self.state.error(s, "expected a store, A[i] = value")
        e, value = self.values.assigned(target, s)
        self.state.spend(target, value)
        return [stored(e.node, value)]

    def _let(self, target: str, node: ast.expr, given: ast.expr | None = None) -> list[ast.stmt]:
        """A name for a value: computed here, whatever is stored later."""
        e = self.values.value(node)
        kind = called(given) if given is not None else None
        if kind in dtypes.DTYPES and kind is not None and e.dtype != INDEX:
            e = Value(self.values.converted(node, e, kind), kind)
        if number_of(e.node) is not None or isinstance(e.node, ast.Constant):
            self.state.names[target] = e
            return []
        title = self.state.fresh(target)
        dtype = {INT: INDEX, FLOAT: "float32"}.get(e.dtype, e.dtype)
        self.state.names[target] = Value(name(title), dtype)
        return [ast.Assign([ast.Name(title, ast.Store())], e.node, lineno=0)]

    def _effect(self, s: ast.Expr) -> list[ast.stmt]:
        node = s.value
        function = called(node.func) if isinstance(node, ast.Call) else None
        made = self.calls.inlined(node)
        if made is not None:
            return made
        if not isinstance(node, ast.Call) or function is None:
            self.values.value(node)  # an unused value
            return []
        if function in ("evaluate", "ret"):
            inner = returned(self.state, node)
            made = self.calls.inlined(inner)
            if made is not None:
                return made
            if isinstance(inner, ast.Call) and called(inner.func) in _IDLE:
                return []
            if any(isinstance(x, (ast.Call, ast.Subscript)) for x in ast.walk(inner)):
                e = self.values.value(inner)  # refuses what is opaque
                if called(getattr(e.node, "func", e.node)) == "call_extern":
                    return [ast.Expr(call("evaluate", e.node))]
            return []
        if function in _IDLE:
            return []
        if function == "preflattened_buffer":
            self.state.note(node, f"{ast.unparse(node.args[0])} is passed as it is declared, flat")
            return []
        if function == "func_attr" and self.calls.around:
            return []
        if function == "func_attr":
            kept = kept_attributes(self.state, node.args[0], self.params)
            if kept.keys:
                self.head.append(ast.Expr(call("func_attr", kept)))
            return []
        if function == "store" and len(node.args) >= 3:
            return self.flat_store(node)
        if function == "attr":
            return []
        e = self.values.value(node)  # refuses what is opaque
        if called(getattr(e.node, "func", e.node)) == "call_extern":
            return [ast.Expr(call("evaluate", e.node))]
        return []

    # -- loops

    def _for(self, s: ast.For) -> list[ast.stmt]:
        with self.state.scope():
            return self._loops(s, *self.loop_of(s))

    def _loops(self, s: ast.For, node: ast.Call, function: str) -> list[ast.stmt]:
        thread = ""
        if function == "grid":
            targets = s.target.elts if isinstance(s.target, ast.Tuple) else [s.target]
            if len(targets) != len(node.args):
                raise self.state.error(node, f"{len(node.args)} extents for {len(targets)} loops")
            ranges = [self._pair(x) for x in node.args]
        else:
            targets = [s.target]
            args, thread = self._arguments(node)
            ranges = [args]
        made: list[ast.For] = []
        for target, args in zip(targets, ranges, strict=True):
            if not isinstance(target, ast.Name):
                raise self.state.error(s, "expected one name for each loop")
            title = self.state.fresh(target.id)
            self.state.names[target.id] = Value(name(title), INDEX)
            self._note_extent(title, args)
            self.begins[title] = args[0] if len(args) > 1 else number(0)
            loop = ast.For(ast.Name(title, ast.Store()), call("serial", *args), [], [], lineno=0)
            loop.thread = thread  # type: ignore[attr-defined]
            made.append(loop)
        body = self._body(s.body) or [ast.Pass()]
        for loop in reversed(made):
            loop.body = body
            body = [loop]
        return body

    def _note_extent(self, title: str, args: Sequence[ast.expr]) -> None:
        """Loops from 0 to a number have a range that divisions may be told by."""
        self.state.extents.pop(title, None)
        first = number_of(args[0]) if len(args) > 1 else 0
        last = number_of(args[min(1, len(args) - 1)])
        if first == 0 and last is not None and last > 0:
            self.state.extents[title] = last

    def _pair(self, node: ast.expr) -> list[ast.expr]:
        pair = node.elts if isinstance(node, ast.Tuple) else [node]
        return [self.values.index(x) for x in pair]

    def _arguments(self, node: ast.Call) -> tuple[list[ast.expr], str]:
        """The range of a loop, and the thread that it is bound to, or ""."""
        args, given = list(node.args), {str(k.arg): k.value for k in node.keywords}
        thread = given.get("thread")
        if args and isinstance(args[-1], ast.Constant) and isinstance(args[-1].value, str):
            thread = args.pop()
        args += [given[k] for k in ("start", "begin", "stop", "end", "extent") if k in given]
        step = given.get("step", args[2] if len(args) > 2 else None)
        if not args:
            raise self.state.error(node, "a loop needs an extent")
        out = [self.values.index(x) for x in args[:2]]
        by = 1 if step is None else number_of(self.values.index(step))
        if by is None or by < 1:
            raise self.state.error(node, "the step of a loop is a number from 1 up")
        if by != 1:
            out = [*([number(0)] if len(out) == 1 else []), *out, number(by)]
        text = thread.value if isinstance(thread, ast.Constant) else ""
        return out, str(text)

    # -- blocks and what else opens a scope

    def _with(self, s: ast.With) -> list[ast.stmt]:
        if len(s.items) != 1 or not isinstance(s.items[0].context_expr, ast.Call):
            raise self.state.error(s, "expected `with T.block(...)`")
        node, bound = s.items[0].context_expr, s.items[0].optional_vars
        function = called(node.func)
        if function in ("block", "sblock"):
            return self._block(s)
        if function in ("allocate", "decl_buffer", "allocate_const") and isinstance(
            bound, ast.Name
        ):
            return self._body([ast.copy_location(ast.Assign([bound], node), s), *s.body])
        if function in ("let", "LetStmt"):
            given = {k.arg: k.value for k in node.keywords}
            value = node.args[-1] if node.args else given.get("value")
            if value is None or not (bound or node.args or "var" in given):
                raise self.state.error(s, "expected a name and a value")
            target = bound or given.get("var") or node.args[0]
            if not isinstance(target, ast.Name):
                raise self.state.error(s, "expected a name for the value")
            return [*self._let(target.id, value), *self._body(s.body)]
        if function == "launch_thread":
            return self._for(self.launched(s, node, bound, s.body))
        if function in ("attr", "Assert", "assert_", "realize"):
            return self._body(s.body)
        raise self.state.error(s, f"{ast.unparse(node)[:60]} has no counterpart here")

    def _block(self, s: ast.With) -> list[ast.stmt]:
        """Axes are values, `T.where` a condition, `T.init` one on the reduction axes."""
        # What the block allocates stays in the text's scope, so its names stay taken.
        names = dict(self.state.names)
        lets: list[ast.stmt] = []
        first: list[ast.expr] = []
        where: list[ast.expr] = []
        init: list[ast.stmt] = []
        rest: list[ast.stmt] = []
        for n in s.body:
            value = n.value if isinstance(n, (ast.Assign, ast.AnnAssign, ast.Expr)) else None
            function = called(value.func) if isinstance(value, ast.Call) else None
            if isinstance(value, ast.Call) and function is not None:
                if function.startswith("axis.") and isinstance(n, (ast.Assign, ast.AnnAssign)):
                    target = n.targets[0] if isinstance(n, ast.Assign) else n.target
                    lets += self._axes(target, value, function.removeprefix("axis."), first)
                    continue
                if function == "where":
                    where.append(self.values.condition(value.args[0]))
                    continue
            if isinstance(n, ast.With) and is_init(n):
                init += n.body
            else:
                rest.append(n)
        out: list[ast.stmt] = []
        if init:
            # Buffers of the block are declared before its T.init is read.
            heads = [n for n in rest if self._declares(n)]
            rest = [n for n in rest if n not in heads]
            out += self._body(heads)
            tests = [x for x in first if not isinstance(x, ast.Constant)]
            body = self._scope(init) if tests else self._body(init)
            out += [ast.If(_all(tests), body, [])] if tests else body
        out += self._body(rest)
        if where:
            out = [ast.If(_all(where), out or [ast.Pass()], [])]
        self.state.names.clear()
        self.state.names.update(names)
        return [*lets, *out]

    def _declares(self, n: ast.stmt) -> bool:
        value = n.value if isinstance(n, ast.Assign) else None
        function = called(value.func) if isinstance(value, ast.Call) else None
        return function in ("match_buffer", "alloc_buffer", "sblock_alloc_buffer")

    def _axes(
        self, target: ast.expr, node: ast.Call, kind: str, first: list[ast.expr]
    ) -> list[ast.stmt]:
        """Name the axes of a block; `first` collects the conditions of its first point."""
        if kind == "remap":
            kinds, loops = node.args
            letters = kinds.value if isinstance(kinds, ast.Constant) else ""
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            items = loops.elts if isinstance(loops, (ast.List, ast.Tuple)) else []
            if not isinstance(letters, str) or not len(letters) == len(targets) == len(items):
                raise self.state.error(node, "T.axis.remap names as many axes as kinds and loops")
            out: list[ast.stmt] = []
            for t, letter, item in zip(targets, letters, items, strict=True):
                begin = self._begin(item)
                out += self._axis(node, t, letter, item, begin, first)
            return out
        if kind not in AXES or len(node.args) < 2:
            raise self.state.error(node, f"T.axis.{kind} has no counterpart here")
        extent = node.args[0]
        pair = extent.elts if isinstance(extent, (ast.Tuple, ast.List)) else None
        begin = number(0) if pair is None else self.values.index(pair[0])
        return self._axis(node, target, kind, node.args[1], begin, first)

    def _begin(self, item: ast.expr) -> ast.expr:
        """Where the loop begins that an axis is mapped to by T.axis.remap."""
        node = self.values.value(item).node
        begin = self.begins.get(node.id) if isinstance(node, ast.Name) else None
        if begin is None or any(isinstance(x, ast.Subscript) for x in ast.walk(begin)):
            raise self.state.error(item, "expected a loop variable")
        return begin

    def _axis(
        self,
        place: ast.Call,
        target: ast.expr,
        kind: str,
        node: ast.expr,
        begin: ast.expr,
        first: list[ast.expr],
    ) -> list[ast.stmt]:
        if not isinstance(target, ast.Name) or kind not in AXES:
            raise self.state.error(place, "expected a name for the axis, and its kind")
        binding = self.values.index(node)
        out: list[ast.stmt] = []
        if any(isinstance(x, ast.Subscript) for x in ast.walk(binding)):
            title = self.state.fresh(target.id)
            out.append(ast.Assign([ast.Name(title, ast.Store())], binding, lineno=0))
            binding = name(title)
        self.state.names[target.id] = Value(binding, INDEX)
        if AXES[kind] == "reduce":
            a, b = number_of(binding), number_of(begin)
            if a is None or a != b:
                first.append(ast.Compare(binding, [ast.Eq()], [begin]))
        return out


def _all(tests: Sequence[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), list(tests))
