"""One function of TVMScript: its loops, and what stands in them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace

from autosched.script.migrate.blocks import Blocks
from autosched.script.migrate.buffers import Buffers
from autosched.script.migrate.facts import kept_annotations, kept_attributes, returned
from autosched.script.migrate.ranges import below, cases, difference, is_of_loops, span
from autosched.script.migrate.spelling import LOOPS, called
from autosched.script.migrate.things import (
    INDEX,
    Context,
    Loop,
    Note,
    State,
    Thing,
    Value,
    call,
    minus,
    name,
    names_in,
    number,
    number_of,
    plus,
    times,
)
from autosched.script.source import Source


class Function(Buffers):
    """Rewrites one function. `names` are what texts around it define."""

    def __init__(self, source: Source, node: ast.FunctionDef, names: Mapping[str, Thing]) -> None:
        super().__init__(State(source, dict(names)))
        self.node = node
        self.blocks = Blocks(self.state, self.values, self)
        self.fors: list[ast.For] = []
        """The loops of the old text around what is being rewritten."""
        self.origin: dict[str, ast.For] = {}
        """The loop of the old text that a loop of the new text stands for."""

    @property
    def notes(self) -> list[Note]:
        """What a reader of the new text must know."""
        return self.state.notes

    def read(self, title: str) -> ast.FunctionDef:
        """The function of the new text, called `title`. Raises ScriptError for what has no
        counterpart."""
        self.declare_params(self.node)
        body = self.body(self.node.body, Context())
        self.drop_sizes()
        decorator = ast.Attribute(name("T"), "prim_func", ast.Load())
        new = ast.FunctionDef(
            title,
            ast.arguments([], self.params, None, [], [], None, []),
            [*self.head, *self.allocs, *body] or [ast.Pass()],
            [decorator],
            None,
        )
        new.lineno, new.col_offset = self.node.lineno, self.node.col_offset
        if hasattr(new, "type_params"):
            new.type_params = []
        return new

    # -- statements

    def body(self, nodes: Sequence[ast.stmt], context: Context) -> list[ast.stmt]:
        """The new text of statements outside of blocks."""
        out: list[ast.stmt] = []
        for n, s in enumerate(nodes):
            self.state.spend_statement()
            scoped = self.opens(s)
            if scoped is not None:
                # `tx = T.launch_thread(...)`, T.attr(...): what follows stands inside.
                return [*out, *self._for(self.launch(s, scoped, nodes[n + 1 :]), context)]
            out += self.statement(s, nodes[n + 1 :], context)
        return out

    def statement(self, s: ast.stmt, after: Sequence[ast.stmt], c: Context) -> list[ast.stmt]:
        """The new text of one statement outside of blocks; `after` stands behind it."""
        if isinstance(s, ast.For):
            return self._for(s, c)
        if isinstance(s, ast.With):
            return self._with(s, c)
        if isinstance(s, ast.If):
            return self._if(s, c)
        if isinstance(s, (ast.Pass, ast.Assert)) or self._is_text(s):
            if isinstance(s, ast.Assert):
                self.state.note(s, "an assertion is left out")
            return []
        if self.declaration(s, c):
            return []
        if isinstance(s, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            return self._assign(s, after, c)
        if isinstance(s, ast.Expr):
            self.effect(s.value)
            return []
        raise self.state.error(s, f"{type(s).__name__} has no counterpart here")

    def _is_text(self, s: ast.stmt) -> bool:
        return isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)

    def effect(self, node: ast.expr) -> None:
        """`T.evaluate` of what has no effect is left out; all else is refused."""
        function = called(node.func) if isinstance(node, ast.Call) else None
        if function in ("evaluate", "ret") and isinstance(node, ast.Call):
            inner = returned(self.state, node)
            if isinstance(inner, ast.Call) and called(inner.func) == "assume":
                self.state.note(node, f"{ast.unparse(inner)[:60]} is left out")
                return
            if not any(isinstance(x, (ast.Call, ast.Subscript)) for x in ast.walk(inner)):
                return
            self.values.value(inner)  # refuses what is opaque
            return
        if function == "preflattened_buffer" and isinstance(node, ast.Call):
            self.state.note(node, f"{ast.unparse(node.args[0])} is passed as it is declared, flat")
            return
        if function in ("attr", "assume"):
            self.state.note(node, f"{ast.unparse(node)[:60]} is left out")
            return
        if function == "func_attr" and isinstance(node, ast.Call) and not self.fors:
            kept = kept_attributes(self.state, node.args[0], self.params)
            if kept.keys:
                self.head.append(ast.Expr(call("func_attr", kept)))
            return
        if isinstance(node, ast.Call) and function is not None:
            self.values.value(node)
        raise self.state.error(node, "expected a loop, a block, a store or a buffer")

    # -- stores and names in loops

    def _assign(
        self, s: ast.Assign | ast.AugAssign | ast.AnnAssign, after: Sequence[ast.stmt], c: Context
    ) -> list[ast.stmt]:
        target = s.targets[0] if isinstance(s, ast.Assign) else s.target
        if isinstance(target, ast.Name) and not isinstance(s, ast.AugAssign):
            if s.value is None:
                raise self.state.error(s, f"{target.id} is given no value")
            self._let(target, s.value, after)
            return []
        return self.blocks.plain(s, c)

    def _let(self, target: ast.Name, node: ast.expr, after: Sequence[ast.stmt]) -> None:
        e = self.values.value(node)
        read = {x.value.id for x in ast.walk(e.node) if isinstance(x, ast.Subscript)
                and isinstance(x.value, ast.Name)}  # fmt: skip
        for s in after:
            for x in ast.walk(s):
                if not isinstance(x, ast.Subscript) or not isinstance(x.ctx, ast.Store):
                    continue
                thing = self.state.names.get(ast.unparse(x.value))
                written = getattr(getattr(thing, "base", thing), "name", None)
                if written is None or written in read:
                    raise self.state.error(
                        node, f"{target.id} is a value of elements that are written after it"
                    )
        self.state.names[target.id] = e

    # -- conditions

    def _if(self, s: ast.If, c: Context) -> list[ast.stmt]:
        test = self.values.condition(s.test)
        if not is_of_loops(test) and len(s.body) == len(s.orelse) == 1:
            # One of two values of one element is a value.
            made = self.blocks.either(s, c)
            if made is not None:
                return made
        out: list[ast.stmt] = []
        for nodes, wanted in ((s.body, True), (s.orelse, False)):
            for inner in self.under(s, test, wanted, nodes, c) if nodes else ():
                names = dict(self.state.names)
                out += self.body(nodes, inner)
                self.state.names.clear()
                self.state.names.update(names)
        return out

    def under(
        self, place: ast.If, test: ast.expr, wanted: bool, nodes: Sequence[ast.stmt], c: Context
    ) -> list[Context]:
        """The places in which statements under a condition (or its opposite) stand."""
        if is_of_loops(test):
            found = cases(test, wanted)
            if found is not None and self._is_sum(found):
                return [replace(c, conditions=(*c.conditions, *x)) for x in found]
        self.check_steady(place, test, nodes)
        guard = test if wanted else ast.UnaryOp(ast.Not(), test)
        return [replace(c, guards=(*c.guards, guard))]

    def _is_sum(self, found: list[tuple[ast.expr, ...]]) -> bool:
        """Whether all comparisons are of integers, as conditions of loops are."""
        return not any(
            isinstance(x, ast.Call) or (isinstance(x, ast.Constant) and isinstance(x.value, float))
            for case in found
            for e in case
            for x in ast.walk(e)
        )

    def check_steady(self, place: ast.stmt, test: ast.expr, nodes: Sequence[ast.stmt]) -> None:
        """Raise ScriptError if statements change what a condition on them reads."""
        read = {ast.unparse(x.value) for x in ast.walk(test) if isinstance(x, ast.Subscript)}
        stores = [
            x
            for s in nodes
            for x in ast.walk(s)
            if isinstance(x, ast.Subscript) and isinstance(x.ctx, ast.Store)
        ]
        if len(stores) < 2:
            return
        for x in stores:
            thing = self.state.names.get(ast.unparse(x.value))
            if getattr(getattr(thing, "base", thing), "name", None) in (*read, None):
                raise self.state.error(
                    place, "the statements under a condition change what it reads"
                )

    # -- loops

    def _for(self, s: ast.For, c: Context) -> list[ast.stmt]:
        node, function = self.loop_of(s)
        with self.state.scope():
            self.fors.append(s)
            if function == "grid":
                out = self._grid(s, node, c)
            else:
                out = self._single(s, node, LOOPS[function], c)
            self.fors.pop()
        return out

    def _grid(self, s: ast.For, node: ast.Call, c: Context) -> list[ast.stmt]:
        targets = s.target.elts if isinstance(s.target, ast.Tuple) else [s.target]
        if len(targets) != len(node.args):
            raise self.state.error(node, f"{len(node.args)} extents for {len(targets)} loops")
        made: list[ast.For] = []
        for target, extent in zip(targets, node.args, strict=True):
            pair = extent.elts if isinstance(extent, ast.Tuple) else [number(0), extent]
            first, last = (self.values.index(ast.copy_location(x, node)) for x in pair)
            new, c = self._loop(s, target, "serial", first, last, 1, {}, c)
            made.append(new)
        return self._nested(made, self.body(s.body, c))

    def _single(self, s: ast.For, node: ast.Call, kind: str, c: Context) -> list[ast.stmt]:
        args, given = list(node.args), {str(k.arg): k.value for k in node.keywords}
        extra: dict[str, ast.expr] = {}
        if kind == "thread_binding":
            if args and isinstance(args[-1], ast.Constant) and isinstance(args[-1].value, str):
                given["thread"] = args.pop()
            if "thread" not in given:
                raise self.state.error(node, "T.thread_binding needs thread=")
            extra["thread"] = self._thread(given["thread"])
        if "annotations" in given:
            kept = kept_annotations(self.state, given["annotations"], "loop")
            if kept.keys:
                extra["annotations"] = kept
        args += [given[k] for k in ("start", "begin", "stop", "end", "extent") if k in given]
        step = given.get("step", args[2] if len(args) > 2 else None)
        args = args[:2]
        if not args:
            raise self.state.error(node, "a loop needs an extent")
        first = self.values.index(args[0]) if len(args) == 2 else number(0)
        last = self.values.index(args[-1])
        by = 1 if step is None else number_of(self.values.index(step))
        if by is None or by < 1:
            raise self.state.error(node, "the step of a loop is a number from 1 up")
        new, c = self._loop(s, s.target, kind, first, last, by, extra, c)
        return self._nested([new], self.body(s.body, c))

    def _thread(self, node: ast.expr) -> ast.expr:
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and text == "vthread":
            return ast.Constant("vthread.x")
        return node

    def _loop(
        self,
        place: ast.For,
        target: ast.expr,
        kind: str,
        first: ast.expr,
        last: ast.expr,
        step: int,
        extra: dict[str, ast.expr],
        c: Context,
    ) -> tuple[ast.For, Context]:
        """A loop from 0 by 1 in the place of one from `first` to `last`, and what stands in it."""
        if not isinstance(target, ast.Name):
            raise self.state.error(place, "expected one name for each loop")
        title = self.state.fresh(target.id)
        around, known = {x.name for x in c.loops}, c.sizes()
        if any(isinstance(x, ast.Subscript) for e in (first, last) for x in ast.walk(e)):
            raise self.state.error(
                place.iter,
                "the range of a loop is read from memory, so nothing bounds it\n"
                "give the loop its largest range and put the body under `if`",
            )
        extent, conditions = difference(last, first), c.conditions
        whole: ast.expr = number(0) if extent is None else number(extent)
        if extent is None and not around & (names_in(first) | names_in(last)):
            whole = minus(last, first)
        elif extent is None:
            # The range depends on loops outside: all of it, and conditions.
            begin, end = span(first, known), span(last, known)
            if begin is None or end is None:
                raise self.state.error(place.iter, "the range depends on loops, and has no bound")
            var = plus(times(name(title), step), number(begin[0]))
            if begin[0] != begin[1] and step != 1:
                raise self.state.error(
                    place.iter, "a loop with a step begins at a number, not at one of other loops"
                )
            if begin[0] != begin[1]:
                conditions = (*conditions, ast.Compare(var, [ast.GtE()], [first]))
                first = number(begin[0])
            if end[0] != end[1]:
                conditions = (*conditions, below(var, last))
            extent = end[1] - begin[0]
        if extent is not None:
            extent = max(-(-extent // step), 0)
            whole = number(extent)
            if extent == 0:
                raise self.state.error(place.iter, "the loop has no iterations")
        elif step != 1:
            whole = ast.BinOp(plus(whole, number(step - 1)), ast.FloorDiv(), number(step))
        self.state.names[target.id] = Value(plus(times(name(title), step), first), INDEX)
        self.origin[title] = place
        self.state.extents.pop(title, None)
        if extent is not None:
            self.state.extents[title] = extent
        made = ast.For(ast.Name(title, ast.Store()), call(kind, whole, **extra), [], [], lineno=0)
        return made, Context((*c.loops, Loop(title, whole, extent)), conditions, c.guards)

    def _nested(self, made: list[ast.For], body: list[ast.stmt]) -> list[ast.stmt]:
        """The loops around a body; nothing where the body is empty."""
        for loop in reversed(made):
            if not body:
                return []
            loop.body = body
            body = [loop]
        return body

    # -- what opens a scope

    def _with(self, s: ast.With, c: Context) -> list[ast.stmt]:
        if len(s.items) != 1 or not isinstance(s.items[0].context_expr, ast.Call):
            raise self.state.error(s, "expected `with T.block(...)`")
        node = s.items[0].context_expr
        function = called(node.func)
        if function in ("block", "sblock"):
            return self.blocks.block(s, node, c)
        if function == "init":
            raise self.state.error(s, "T.init stands in a block")
        bound = s.items[0].optional_vars
        if function in ("allocate", "decl_buffer") and isinstance(bound, ast.Name):
            return self.body([ast.copy_location(ast.Assign([bound], node), s), *s.body], c)
        if function in ("let", "LetStmt"):
            given = {k.arg: k.value for k in node.keywords}
            value = node.args[-1] if node.args else given.get("value")
            if value is None or not (bound or node.args or "var" in given):
                raise self.state.error(s, "expected a name and a value")
            target = bound or given.get("var") or node.args[0]
            return self.body([ast.copy_location(ast.Assign([target], value), s), *s.body], c)
        if function == "launch_thread":
            return self._for(self.launched(s, node, bound, s.body), c)
        if function == "attr":
            self.state.note(s, f"{ast.unparse(node)[:60]} is left out")
            return self.body(s.body, c)
        raise self.state.error(s, f"{ast.unparse(node)[:60]} has no counterpart here")
