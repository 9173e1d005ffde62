"""One function of TVMScript: its parameters, its buffers, and its loops."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from autosched.script.migrate.blocks import Blocks
from autosched.script.migrate.ranges import below, cases, is_of_loops, span, terms
from autosched.script.migrate.spelling import LOOPS, MATCH_IGNORED, SCOPES
from autosched.script.migrate.things import (
    INDEX,
    Array,
    Context,
    Handle,
    Loop,
    Memory,
    Note,
    Reshaped,
    State,
    Thing,
    Value,
    Window,
    call,
    minus,
    name,
    names_in,
    number,
    number_of,
    plus,
    times,
)
from autosched.script.migrate.values import Values, called
from autosched.script.source import Source
from autosched.tir import dtypes

_SIZES = (*dtypes.SIGNED, "var")


class Function:
    """Rewrites one function. `names` are what texts around it define."""

    def __init__(self, source: Source, node: ast.FunctionDef, names: Mapping[str, Thing]) -> None:
        self.state = State(source, dict(names))
        self.node = node
        self.values = Values(self.state)
        self.blocks = Blocks(self.state, self.values, self)
        self.params: list[ast.arg] = []
        self.head: list[ast.stmt] = []
        self.allocs: list[ast.stmt] = []
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
        a = self.node.args
        if a.posonlyargs or a.kwonlyargs or a.defaults or a.vararg or a.kwarg:
            raise self.state.error(self.node, "expected plain parameters")
        for arg in a.args:
            self._param(arg)
        body = self.body(self.node.body, Context())
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

    # -- parameters and buffers

    def _param(self, arg: ast.arg) -> None:
        hint = arg.annotation
        title = self.state.fresh(arg.arg)
        function = (
            called(hint.func) if isinstance(hint, ast.Call) else called(hint) if hint else None
        )
        if isinstance(hint, ast.Subscript) and called(hint.value) == "Buffer":
            inside = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
            hint = ast.copy_location(ast.Call(hint.value, list(inside), []), hint)
            function = "Buffer"
        if function == "Buffer" and isinstance(hint, ast.Call):
            array = self._described(title, hint, hint.args[0], hint.args[1:])
            self.state.names[arg.arg] = array
            self.params.append(ast.arg(title, self._type(array, self._scope(hint))))
        elif function == "handle" or (isinstance(hint, ast.Call) and function == "handle"):
            self.state.names[arg.arg] = Handle(len(self.params))
            self.params.append(ast.arg(title, call("handle").func))
        elif function in dtypes.DTYPES:
            array = Array(title, (), str(function))
            self.state.names[arg.arg] = array
            self.params.append(ast.arg(title, self._type(array, "global")))
            self.state.note(arg, f"the scalar {arg.arg} is a buffer without dimensions here")
        else:
            raise self.state.error(arg, f"parameter {arg.arg} is no buffer, handle or number")

    def _type(self, array: Array, scope: str) -> ast.expr:
        return call("Buffer", *self._shaped(array), **self._scoped(scope))

    def _scoped(self, scope: str) -> dict[str, ast.expr]:
        return {} if scope == "global" else {"scope": ast.Constant(scope)}

    def _shaped(self, array: Array) -> tuple[ast.expr, ast.expr]:
        return ast.Tuple(list(array.shape), ast.Load()), ast.Constant(array.dtype)

    def _described(
        self, title: str, node: ast.Call, shape: ast.expr, rest: Sequence[ast.expr]
    ) -> Array:
        """What the arguments of T.Buffer and its like say of a buffer."""
        given = {str(k.arg): k.value for k in node.keywords}
        given |= dict(zip(("dtype", "data", "strides", "elem_offset", "scope"), rest, strict=False))
        dtype = self.values.dtype(given["dtype"]) if "dtype" in given else "float32"
        extents = shape.elts if isinstance(shape, (ast.Tuple, ast.List)) else [shape]
        if isinstance(shape, ast.Name) and isinstance(self.state.names.get(shape.id), str):
            raise self.state.error(shape, "a shape is a tuple of numbers")
        array = Array(title, tuple(self.values.index(n) for n in extents), dtype)
        strides = given.get("strides")
        if isinstance(strides, (ast.List, ast.Tuple)) and strides.elts:
            self._check_dense(strides, array)
        for key in MATCH_IGNORED:
            offset = given.get(key)
            if key != "elem_offset" or offset is None or self._is_zero(offset):
                continue
            if not isinstance(offset, ast.Name):
                raise self.state.error(offset, "a buffer begins at its first element here")
        return array

    def _is_zero(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) and node.value in (0, None)

    def _check_dense(self, node: ast.List | ast.Tuple, array: Array) -> None:
        step = 1
        for s, n in zip(reversed(node.elts), reversed(array.shape), strict=False):
            size = number_of(n)
            if isinstance(s, ast.Name) and isinstance(self.state.names.get(s.id), Value):
                self.state.note(node, f"{array.name} is taken to be dense: its strides are free")
                return
            if not (isinstance(s, ast.Constant) and s.value == step and size is not None):
                raise self.state.error(node, "buffers are dense here; strides of their own are not")
            step *= size

    def _scope(self, node: ast.Call, position: int | None = None) -> str:
        given = {k.arg: k.value for k in node.keywords}.get("scope")
        if given is None and position is not None and len(node.args) > position:
            given = node.args[position]
        if given is None:
            return "global"
        found = given.value if isinstance(given, ast.Constant) else None
        if not isinstance(found, str) or found not in SCOPES:
            raise self.state.error(given, f"scope {ast.unparse(given)} has no counterpart here")
        if SCOPES[found] not in (found, "global"):
            self.state.note(node, f"scope {found!r} is {SCOPES[found]!r} here")
        return SCOPES[found]

    def allocate(self, array: Array, scope: str, context: Context) -> Array:
        """Declare an intermediate, one for each iteration of the loops around it."""
        own = replace(array, prefix=tuple(x.name for x in context.loops))
        whole = replace(array, shape=(*(x.extent for x in context.loops), *array.shape))
        made = call("alloc_buffer", *self._shaped(whole), **self._scoped(scope))
        self.allocs.append(ast.Assign([ast.Name(array.name, ast.Store())], made, lineno=0))
        return own

    # -- statements

    def body(self, nodes: Sequence[ast.stmt], context: Context) -> list[ast.stmt]:
        """The new text of statements outside of blocks."""
        out: list[ast.stmt] = []
        for n, s in enumerate(nodes):
            self.state.spend_statement()
            if isinstance(s, ast.For):
                out += self._for(s, context)
            elif isinstance(s, ast.With):
                out += self._with(s, context)
            elif isinstance(s, ast.If):
                out += self._if(s, context)
            elif isinstance(s, (ast.Pass, ast.Assert)) or self._is_text(s):
                if isinstance(s, ast.Assert):
                    self.state.note(s, "an assertion is left out")
            elif self.declaration(s, context):
                continue
            elif (scoped := self._opens(s)) is not None:
                # `tx = T.launch_thread(...)`, T.attr(...): what follows stands inside.
                return [*out, *self._for(self._launch(s, scoped, nodes[n + 1 :]), context)]
            elif isinstance(s, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
                out += self._assign(s, nodes[n + 1 :], context)
            elif isinstance(s, ast.Expr):
                self.effect(s.value)
            else:
                raise self.state.error(s, f"{type(s).__name__} has no counterpart here")
        return out

    def _is_text(self, s: ast.stmt) -> bool:
        return isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)

    def effect(self, node: ast.expr) -> None:
        """`T.evaluate` of what has no effect is left out; all else is refused."""
        function = called(node.func) if isinstance(node, ast.Call) else None
        if function in ("evaluate", "ret") and isinstance(node, ast.Call):
            (inner,) = node.args
            if not any(isinstance(x, (ast.Call, ast.Subscript)) for x in ast.walk(inner)):
                return
            self.values.value(inner)  # refuses what is opaque
            return
        if function == "func_attr" and isinstance(node, ast.Call) and not self.fors:
            self.head.append(ast.Expr(node))
            return
        if isinstance(node, ast.Call) and function is not None:
            self.values.value(node)
        raise self.state.error(node, "expected a loop, a block, a store or a buffer")

    def declaration(self, s: ast.stmt, context: Context) -> bool:
        """Whether `s` declares a buffer or a size; notes it."""
        if not isinstance(s, (ast.Assign, ast.AnnAssign)) or s.value is None:
            return False
        target = s.targets[0] if isinstance(s, ast.Assign) else s.target
        function = called(s.value.func) if isinstance(s.value, ast.Call) else None
        if isinstance(target, ast.Tuple) and isinstance(s.value, ast.Tuple):
            pairs = zip(target.elts, s.value.elts, strict=True)
            parts = [ast.copy_location(ast.Assign([t], v), s) for t, v in pairs]
            return all(self.declaration(p, context) for p in parts)
        if not isinstance(target, ast.Name) or not isinstance(s.value, ast.Call):
            return False
        if function in _SIZES and not (s.value.args and function != "var"):
            self._size(target, s.value)
        elif function == "match_buffer":
            self._match(target.id, s.value)
        elif function == "alloc_buffer":
            title = self.state.fresh(target.id)
            first = self._shape_of(s.value)
            array = self._described(title, s.value, first, s.value.args[1:2])
            scope = self._scope(s.value, 5 if len(s.value.args) > 5 else None)
            self.state.names[target.id] = self.allocate(array, scope, context)
        elif function == "allocate":
            self._memory(target.id, s.value, context)
        elif function in ("Buffer", "decl_buffer", "buffer_decl"):
            self._declared(target.id, s.value, context)
        else:
            return False
        return True

    def _shape_of(self, node: ast.Call) -> ast.expr:
        given = {k.arg: k.value for k in node.keywords}
        if not node.args and "shape" not in given:
            raise self.state.error(node, "a buffer needs a shape")
        return node.args[0] if node.args else given["shape"]

    def _size(self, target: ast.Name, node: ast.Call) -> None:
        title = self.state.fresh(target.id)
        self.state.names[target.id] = Value(name(title), INDEX)
        self.head.append(ast.Assign([ast.Name(title, ast.Store())], call("int64"), lineno=0))

    def _match(self, target: str, node: ast.Call) -> None:
        given = {k.arg: k.value for k in node.keywords}
        handle = node.args[0] if node.args else given.get("param")
        thing = self.state.names.get(handle.id) if isinstance(handle, ast.Name) else None
        if isinstance(thing, Handle):
            title = self.state.fresh(target)
            shape = node.args[1] if len(node.args) > 1 else given["shape"]
            array = self._described(title, node, shape, node.args[2:3])
            matched = call("match_buffer", name(self.params[thing.position].arg))
            matched.args += self._shaped(array)
            scope = self._scoped(self._scope(node))
            matched.keywords = [ast.keyword(k, v) for k, v in scope.items()]
            self.head.append(ast.Assign([ast.Name(title, ast.Store())], matched, lineno=0))
            self.state.names[target] = array
            return
        if not isinstance(handle, ast.Subscript) or not isinstance(handle.value, ast.Name):
            raise self.state.error(node, "expected a handle, or a region of a buffer, to match")
        base = self.state.names.get(handle.value.id)
        if not isinstance(base, Array):
            raise self.state.error(handle, "expected a region of a buffer")
        self.state.names[target] = self._window(node, base, handle)

    def _window(self, node: ast.Call, base: Array, region: ast.Subscript) -> Window:
        begin, extent = [], []
        inside = region.slice.elts if isinstance(region.slice, ast.Tuple) else [region.slice]
        for at, n in zip(inside, base.shape, strict=True):
            if isinstance(at, ast.Slice):
                first = number(0) if at.lower is None else self.values.index(at.lower)
                last = n if at.upper is None else self.values.index(at.upper)
                extent.append(self._difference(last, first))
            else:
                first = self.values.index(at)
                extent.append(1)
            begin.append(first)
        given = {k.arg: k.value for k in node.keywords}
        shape = node.args[1] if len(node.args) > 1 else given["shape"]
        sizes = [self.values.index(n) for n in getattr(shape, "elts", [shape])]
        wanted = [number_of(n) for n in sizes]
        skipped = len(extent) - len(wanted)
        if skipped < 0 or extent[skipped:] != wanted or any(n != 1 for n in extent[:skipped]):
            raise self.state.error(
                node,
                f"the region has extents {extent}; a buffer of it has the last of these, "
                f"found {wanted}",
            )
        return Window(base, tuple(begin), tuple(sizes))

    def _difference(self, last: ast.expr, first: ast.expr) -> int | None:
        """`last - first`, where that is a number."""
        a, b = terms(last), terms(first)
        if a is None or a != b:
            return None
        zero = dict.fromkeys(a, 1)
        ends = span(last, zero), span(first, zero)
        return None if None in ends else ends[0][0] - ends[1][0]  # type: ignore[index]

    def _memory(self, target: str, node: ast.Call, context: Context) -> None:
        shape = self._shape_of(node)
        extents = [self.values.index(n) for n in getattr(shape, "elts", [shape])]
        sizes = [number_of(n) for n in extents]
        if any(n is None for n in sizes):
            raise self.state.error(node, "T.allocate of a symbolic size")
        dtype = self.values.dtype(node.args[1]) if len(node.args) > 1 else "float32"
        if len(node.args) > 3 or any(k.arg == "condition" for k in node.keywords):
            raise self.state.error(node, "T.allocate under a condition")
        title = self.state.fresh(target)
        total = number(prod(n for n in sizes if n is not None))
        own = self.allocate(Array(title, (total,), dtype), self._scope(node, 2), context)
        self.state.names[target] = Memory(title, total, dtype, "global", own.prefix)

    def _declared(self, target: str, node: ast.Call, context: Context) -> None:
        """T.decl_buffer: a view of memory, or a buffer of its own."""
        given = {k.arg: k.value for k in node.keywords}
        data = given.get("data")
        title = target if data is not None else self.state.fresh(target)
        array = self._described(title, node, self._shape_of(node), node.args[1:2])
        if data is None:
            self.state.names[target] = self.allocate(array, self._scope(node), context)
            return
        if isinstance(data, ast.Attribute) and data.attr == "data":
            data = data.value
        thing = self.state.names.get(data.id) if isinstance(data, ast.Name) else None
        base = self.values.flat(thing) if isinstance(thing, Memory) else thing
        sizes = [number_of(n) for n in array.shape]
        if not isinstance(base, Array) or None in sizes or base.dtype != array.dtype:
            raise self.state.error(node, "a view is one of a buffer of the same dtype")
        have = [number_of(n) for n in base.shape]
        if None in have or prod(n for n in have if n) != prod(n for n in sizes if n):
            raise self.state.error(node, "a view has as many elements as what it is of")
        view = Reshaped(base, tuple(n for n in sizes if n is not None))
        self.state.names[target] = base if have == sizes else view

    # -- stores and names in loops

    def _assign(
        self, s: ast.Assign | ast.AugAssign | ast.AnnAssign, after: Sequence[ast.stmt], c: Context
    ) -> list[ast.stmt]:
        target = s.targets[0] if isinstance(s, ast.Assign) else s.target
        if isinstance(target, ast.Name) and not isinstance(s, ast.AugAssign):
            if s.value is None or c.guards:
                raise self.state.error(s, "a name is given a value, outside of a condition on data")
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
            if nodes:
                for inner in self.under(s, test, wanted, nodes, c):
                    out += self.body(nodes, inner)
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
        node = s.iter
        function = called(node.func) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = {"range": "serial"}.get(node.func.id)
        if not isinstance(node, ast.Call) or not (function == "grid" or function in LOOPS):
            raise self.state.error(s.iter, f"{ast.unparse(s.iter)[:60]} is no loop")
        if s.orelse:
            raise self.state.error(s.orelse[0], "a loop has no `else`")
        active, names = set(self.state.active), dict(self.state.names)
        self.fors.append(s)
        if function == "grid":
            out = self._grid(s, node, c)
        else:
            out = self._single(s, node, LOOPS[function or ""], c)
        self.fors.pop()
        self.state.active = active
        self.state.names.clear()
        self.state.names.update(names)
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
            extra["annotations"] = given["annotations"]
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
                "the range of a loop is read from memory, so nothing bounds it; give the loop its "
                "largest range and put the body under `if`",
            )
        extent, conditions = self._difference(last, first), c.conditions
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
            value = node.args[-1] if node.args else given["value"]
            target = bound or given.get("var") or node.args[0]
            return self.body([ast.copy_location(ast.Assign([target], value), s), *s.body], c)
        if function == "launch_thread":
            return self._for(self._launched(s, node, bound, s.body), c)
        if function == "attr":
            self.state.note(s, f"{ast.unparse(node)[:60]} is left out")
            return self.body(s.body, c)
        raise self.state.error(s, f"{ast.unparse(node)[:60]} has no counterpart here")

    def _opens(self, s: ast.stmt) -> ast.Call | None:
        """The call of T.launch_thread that what follows stands in."""
        value = s.value if isinstance(s, (ast.Assign, ast.Expr)) else None
        is_launch = isinstance(value, ast.Call) and called(value.func) == "launch_thread"
        return value if is_launch and isinstance(value, ast.Call) else None

    def _launch(self, s: ast.stmt, node: ast.Call, after: Sequence[ast.stmt]) -> ast.For:
        target = s.targets[0] if isinstance(s, ast.Assign) else None
        return self._launched(s, node, target, after)

    def _launched(
        self, s: ast.stmt, node: ast.Call, target: ast.expr | None, body: Sequence[ast.stmt]
    ) -> ast.For:
        thread, extent = node.args
        looped = call("thread_binding", extent, thread=thread)
        bound = target or ast.Name("thread", ast.Store())
        made = ast.For(bound, looped, list(body), [])
        return ast.fix_missing_locations(ast.copy_location(made, s))
