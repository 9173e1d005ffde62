"""The buffers of a function of TVMScript: parameters, intermediates, memory, and views of them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from autosched.script.migrate.facts import shape_names
from autosched.script.migrate.ranges import difference
from autosched.script.migrate.special import SPECIAL
from autosched.script.migrate.spelling import LEAST, LOOPS, MATCH_IGNORED, SCOPES, called
from autosched.script.migrate.things import (
    INDEX,
    Array,
    Context,
    Handle,
    Memory,
    Reshaped,
    State,
    Value,
    Window,
    call,
    name,
    names_in,
    number,
    number_of,
)
from autosched.script.migrate.values import Values
from autosched.tir import dtypes

_SIZES = (*dtypes.SIGNED, "var")


class Buffers:
    """Reads the declarations of one function; `params`, `head` and `allocs` are those of the new
    text."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.values = Values(state, SPECIAL)
        self.params: list[ast.arg] = []
        self.head: list[ast.stmt] = []
        self.allocs: list[ast.stmt] = []
        self.sizes: list[str] = []
        """Symbolic sizes of the new text."""
        self.scopes: dict[str, str] = {}
        """Scopes of intermediates in the old text, by their new names."""
        self.title = ""
        """The name of the function in the old text."""
        self.is_launched = False
        """Whether T.launch_thread stands in the function."""
        self.threads: dict[str, ast.expr] = {}
        """Names of T.env_thread and the axes that they stand for."""
        self.seen_by_memory: set[ast.Call] = set()
        """Allocations whose memory is accessed, so that their strides matter."""

    def loop_of(self, s: ast.For) -> tuple[ast.Call, str]:
        """The call that a loop runs over, and its name: "grid" or one of `LOOPS`. Raises
        ScriptError where it is none of them."""
        node = s.iter
        function = called(node.func) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = {"range": "serial"}.get(node.func.id)
        if not isinstance(node, ast.Call) or function not in ("grid", *LOOPS):
            raise self.state.error(s.iter, f"{ast.unparse(s.iter)[:60]} is no loop")
        if s.orelse:
            raise self.state.error(s.orelse[0], "a loop has no `else`")
        return node, function

    def declare_params(self, node: ast.FunctionDef) -> None:
        """Read the parameters of a function."""
        a = node.args
        if a.posonlyargs or a.kwonlyargs or a.defaults or a.vararg or a.kwarg:
            raise self.state.error(node, "expected plain parameters")
        self._check_calls(node)
        self.seen_by_memory = _seen_by_memory(node)
        inside = shape_names(node)
        for arg in a.args:
            kind = called(arg.annotation) if arg.annotation is not None else None
            if arg.arg in inside and kind in dtypes.SIGNED:
                self.add_size(arg.arg)
                self.state.note(arg, f"the size {arg.arg} follows from the shapes: no argument")
        used = set().union(*map(names_in, node.body))
        for arg in a.args:
            hint = arg.annotation
            kind = called(hint.func if isinstance(hint, ast.Call) else hint) if hint else None
            if kind == "handle" and arg.arg not in used:
                self.state.note(arg, f"the handle {arg.arg} is not used: no argument")
            elif arg.arg not in inside or not isinstance(self.state.names.get(arg.arg), Value):
                self.param(arg)

    def _check_calls(self, node: ast.FunctionDef) -> None:
        """Raise ScriptError for a call with too few arguments."""
        for x in ast.walk(node):
            function = called(x.func) if isinstance(x, ast.Call) else None
            if not isinstance(x, ast.Call) or function is None:
                continue
            least = LEAST.get(function, 0)
            if len(x.args) < least or any(isinstance(a, ast.Starred) for a in x.args):
                raise self.state.error(x, f"T.{function} has {least} arguments by position")
            extent = x.args[0] if function.startswith("axis.") and x.args else None
            if isinstance(extent, (ast.Tuple, ast.List)) and len(extent.elts) != 2:
                raise self.state.error(extent, "the range of an axis is a pair")
            if function == "axis.remap" and len(x.args) != 2:
                raise self.state.error(x, "T.axis.remap has kinds and loops")

    def param(self, arg: ast.arg) -> None:
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
            array = self._described(title, hint, self._shape_of(hint), hint.args[1:])
            self.state.names[arg.arg] = array
            if all(number_of(n) is not None for n in array.shape):
                self.params.append(ast.arg(title, self._type(array, self._scope_of(hint))))
            else:
                handle = self.state.fresh(f"{title}_handle")
                self.params.append(ast.arg(handle, call("handle").func))
                self._matched(handle, array, self._scope_of(hint))
        elif function == "handle" or (isinstance(hint, ast.Call) and function == "handle"):
            self.state.names[arg.arg] = Handle(len(self.params))
            self.params.append(ast.arg(title, call("handle").func))
        elif function in (*dtypes.DTYPES, "boolean"):
            array = Array(title, (), "bool" if function == "boolean" else str(function))
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
        is_own = called(node.func) in ("alloc_buffer", "sblock_alloc_buffer")
        if isinstance(strides, (ast.List, ast.Tuple)) and strides.elts:
            if is_own and node not in self.seen_by_memory:
                self.state.note(strides, f"{title} is dense here")
            else:
                self._check_dense(strides, array)
        for key in MATCH_IGNORED:
            offset = given.get(key)
            if key != "elem_offset" or offset is None or self._is_zero(offset) or "data" in given:
                continue
            if not isinstance(offset, ast.Name):
                raise self.state.error(offset, "a buffer begins at its first element here")
        return array

    def _is_zero(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Call) and called(node.func) in dtypes.SIGNED and node.args:
            node = node.args[0]  # T.int64(0)
        return isinstance(node, ast.Constant) and node.value in (0, None)

    def _check_dense(self, node: ast.List | ast.Tuple, array: Array) -> None:
        step = 1
        for s, n in zip(reversed(node.elts), reversed(array.shape), strict=False):
            size = number_of(n)
            is_text = isinstance(s, ast.Constant) and isinstance(s.value, str)
            is_name = isinstance(s, ast.Name) and isinstance(self.state.names.get(s.id), Value)
            if is_text or is_name:
                self.state.note(node, f"{array.name} is taken to be dense: its strides are free")
                return
            if not (isinstance(s, ast.Constant) and s.value == step and size is not None):
                raise self.state.error(node, "buffers are dense here; strides of their own are not")
            step *= size

    def _scope_of(self, node: ast.Call, position: int | None = None) -> str:
        given = {k.arg: k.value for k in node.keywords}.get("scope")
        if given is None and position is not None and len(node.args) > position:
            given = node.args[position]
        if given is None:
            return "global"
        found = given.value if isinstance(given, ast.Constant) else None
        if not isinstance(found, str) or found not in SCOPES:
            raise self.state.error(given, f"scope {ast.unparse(given)} has no counterpart here")
        return SCOPES[found]

    def allocate(self, array: Array, scope: str, context: Context) -> Array:
        """Declare an intermediate, one for each iteration of the loops around it."""
        own = replace(array, prefix=tuple(x.name for x in context.loops))
        whole = replace(array, shape=(*(x.extent for x in context.loops), *array.shape))
        made = call("alloc_buffer", *self._shaped(whole), **self._scoped(scope))
        self.allocs.append(ast.Assign([ast.Name(array.name, ast.Store())], made, lineno=0))
        return own

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
            self.add_size(target.id)
        elif function == "match_buffer":
            self._match(target.id, s.value)
        elif function == "env_thread":
            self.threads[target.id] = s.value.args[0]
        elif function in ("alloc_buffer", "sblock_alloc_buffer"):
            title = self.state.fresh(target.id)
            first = self._shape_of(s.value)
            array = self._described(title, s.value, first, s.value.args[1:2])
            scope = self._scope_of(s.value, 5 if len(s.value.args) > 5 else None)
            self.state.names[target.id] = self.allocate(array, scope, context)
        elif function == "allocate":
            self._memory(target.id, s.value, context)
        elif function in ("Buffer", "decl_buffer", "buffer_decl"):
            self.declared(target.id, s.value, context)
        elif isinstance(s.value.func, ast.Attribute) and s.value.func.attr == "view":
            self._view(target.id, s.value, s.value.func.value, context)
        else:
            return False
        return True

    def _shape_of(self, node: ast.Call) -> ast.expr:
        given = {k.arg: k.value for k in node.keywords}
        if not node.args and "shape" not in given:
            raise self.state.error(node, "a buffer needs a shape")
        return node.args[0] if node.args else given["shape"]

    def add_size(self, old: str) -> None:
        """Declare a symbolic size."""
        title = self.state.fresh(old)
        self.state.names[old] = Value(name(title), INDEX)
        self.sizes.append(title)
        self.head.append(ast.Assign([ast.Name(title, ast.Store())], call("int64"), lineno=0))

    def _matched_shape(self, node: ast.Call) -> ast.expr:
        given = {k.arg: k.value for k in node.keywords}
        if len(node.args) < 2 and "shape" not in given:
            raise self.state.error(node, "T.match_buffer needs a shape")
        return node.args[1] if len(node.args) > 1 else given["shape"]

    def _match(self, target: str, node: ast.Call) -> None:
        given = {k.arg: k.value for k in node.keywords}
        handle = node.args[0] if node.args else given.get("param")
        thing = self.state.names.get(handle.id) if isinstance(handle, ast.Name) else None
        if isinstance(thing, Handle):
            title = self.state.fresh(target)
            shape = self._matched_shape(node)
            array = self._described(title, node, shape, node.args[2:3])
            self._matched(self.params[thing.position].arg, array, self._scope_of(node))
            self.state.names[target] = array
            return
        is_given = isinstance(thing, (Array, Memory, Reshaped))  # by a caller, for the handle
        if is_given and handle is not None:
            rest = [k for k in node.keywords if k.arg != "param"]
            view = ast.Call(node.func, node.args[1:], [*rest, ast.keyword("data", handle)])
            self.declared(target, ast.copy_location(view, node), Context())
            return
        if not isinstance(handle, ast.Subscript) or not isinstance(handle.value, ast.Name):
            raise self.state.error(node, "expected a handle, or a region of a buffer, to match")
        base = self.state.names.get(handle.value.id)
        if not isinstance(base, (Array, Window, Reshaped)):
            raise self.state.error(handle, "expected a region of a buffer")
        self.state.names[target] = self._window(node, base, handle)

    def _matched(self, handle: str, array: Array, scope: str) -> None:
        made = call("match_buffer", name(handle), *self._shaped(array), **self._scoped(scope))
        self.head.append(ast.Assign([ast.Name(array.name, ast.Store())], made, lineno=0))

    def _window(
        self, node: ast.Call, base: Array | Window | Reshaped, region: ast.Subscript
    ) -> Window:
        begin, extent = [], []
        inside = region.slice.elts if isinstance(region.slice, ast.Tuple) else [region.slice]
        if isinstance(region.slice, ast.Tuple) and not region.slice.elts:
            inside = []
        if len(inside) != len(base.shape):
            raise self.state.error(
                region, f"{len(inside)} indices for {len(base.shape)} dimensions"
            )
        whole = [number(n) if isinstance(n, int) else n for n in base.shape]
        for at, n in zip(inside, whole, strict=True):
            if isinstance(at, ast.Slice):
                first = number(0) if at.lower is None else self.values.index(at.lower)
                last = n if at.upper is None else self.values.index(at.upper)
                extent.append(difference(last, first))
            else:
                first = self.values.index(at)
                extent.append(1)
            begin.append(first)
        shape = self._matched_shape(node)
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
        own = self.allocate(Array(title, (total,), dtype), self._scope_of(node, 2), context)
        self.state.names[target] = Memory(title, total, dtype, "global", own.prefix)

    def declared(self, target: str, node: ast.Call, context: Context) -> None:
        """T.decl_buffer: a view of memory, or a buffer of its own."""
        given = {k.arg: k.value for k in node.keywords}
        data = given.get("data")
        title = target if data is not None else self.state.fresh(target)
        array = self._described(title, node, self._shape_of(node), node.args[1:2])
        if data is None:
            self.state.names[target] = self.allocate(array, self._scope_of(node), context)
            return
        if isinstance(data, ast.Attribute) and data.attr == "data":
            data = data.value
        thing = self.state.names.get(data.id) if isinstance(data, ast.Name) else None
        if isinstance(thing, Handle):
            self._match(target, ast.copy_location(ast.Call(node.func, [data, *node.args], [
                k for k in node.keywords if k.arg != "data"]), node))  # fmt: skip
            return
        base = self.values.flat(thing) if isinstance(thing, Memory) else thing
        origin = 0
        if isinstance(base, Reshaped):
            origin, base = base.first, base.base
        sizes = [number_of(n) for n in array.shape]
        if not isinstance(base, Array) or None in sizes or base.dtype != array.dtype:
            raise self.state.error(node, "a view is one of a buffer of the same dtype")
        have = [number_of(n) for n in base.shape]
        first = number_of(self.values.index(given["elem_offset"])) if "elem_offset" in given else 0
        first = None if first is None else first + origin
        if None in have or first is None:
            raise self.state.error(
                node, "a view of a buffer of symbolic sizes, or at a symbolic place"
            )
        total, mine = prod(n for n in have if n), prod(n for n in sizes if n)
        if first < 0 or first + mine > total:
            raise self.state.error(node, f"a view of {mine} elements from {first}, of {total}")
        view = Reshaped(base, tuple(n for n in sizes if n is not None), first)
        self.state.names[target] = base if have == sizes and not first else view

    def _view(self, target: str, node: ast.Call, of: ast.expr, context: Context) -> None:
        """`A.view(n, m)`: the elements of A in order, under another shape."""
        thing = self.state.names.get(of.id) if isinstance(of, ast.Name) else None
        base = thing.base if isinstance(thing, Reshaped) else thing
        if not isinstance(base, Array) or node.keywords or not node.args:
            raise self.state.error(node, "A.view(n, m) is a view of a dense buffer")
        shape = ast.Tuple(node.args, ast.Load())
        made = call("decl_buffer", shape, ast.Constant(base.dtype), data=of)
        self.declared(target, ast.copy_location(made, node), context)

    def drop_sizes(self) -> None:
        """Leave out sizes in no shape: names that T.LetStmt gives a value, or strides."""
        matched = [s for s in self.head if isinstance(s, ast.Assign)]
        used = set().union(*(names_in(s.value) for s in matched))
        gone = {n for n in self.sizes if n not in used}
        self.head = [
            s
            for s in self.head
            if not (isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) in gone)
        ]

    # -- threads that are launched

    def opens(self, s: ast.stmt) -> ast.Call | None:
        """The call of T.launch_thread that what follows stands in."""
        value = s.value if isinstance(s, (ast.Assign, ast.Expr)) else None
        is_launch = isinstance(value, ast.Call) and called(value.func) == "launch_thread"
        return value if is_launch and isinstance(value, ast.Call) else None

    def launch(self, s: ast.stmt, node: ast.Call, after: Sequence[ast.stmt]) -> ast.For:
        target = s.targets[0] if isinstance(s, ast.Assign) else None
        return self.launched(s, node, target, after)

    def launched(
        self, s: ast.stmt, node: ast.Call, target: ast.expr | None, body: Sequence[ast.stmt]
    ) -> ast.For:
        self.is_launched = True
        thread, extent = node.args[:2]
        if isinstance(thread, ast.Name) and thread.id in self.threads:
            target, thread = thread, self.threads[thread.id]
            if target.id in self.state.names:
                raise self.state.error(s, f"{target.id} is launched in its own threads")
        looped = call("thread_binding", extent, thread=thread)
        bound = target or ast.Name("thread", ast.Store())
        made = ast.For(bound, looped, list(body), [])
        return ast.fix_missing_locations(ast.copy_location(made, s))


def _seen_by_memory(node: ast.FunctionDef) -> set[ast.Call]:
    """The calls that make buffers of which `.data` is used."""
    used = {
        x.value.id
        for x in ast.walk(node)
        if isinstance(x, ast.Attribute) and x.attr == "data" and isinstance(x.value, ast.Name)
    }
    return {
        x.value
        for x in ast.walk(node)
        if isinstance(x, ast.Assign)
        and isinstance(x.value, ast.Call)
        and isinstance(x.targets[0], ast.Name)
        and x.targets[0].id in used
    }
