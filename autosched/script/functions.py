"""Functions: parameters, buffers, loops."""

from __future__ import annotations

import ast
from typing import Any

from autosched.errors import ScriptError
from autosched.script.blocks import BlockReader, predicates, with_call
from autosched.script.exprs import Expressions, called
from autosched.script.limits import Budget
from autosched.script.literals import Arguments, dictionary, dtype, literal, string
from autosched.script.scope import Handle, Local, Scope
from autosched.script.source import MIGRATE, Place, Source
from autosched.tir import dtypes
from autosched.tir.affine import Int
from autosched.tir.expr import Const, Var
from autosched.tir.nodes import Block, Buffer, For, Node, Predicate, PrimFunc, allocated
from autosched.tir.size_atoms import SizeVar

LOOPS = {
    "serial": "serial",
    "parallel": "parallel",
    "vectorized": "vectorized",
    "unroll": "unrolled",
    "thread_binding": "thread",
}
"""Functions of T that make a loop -> its kind."""
_STATEMENTS = (
    "a loop (for i in T.serial(n)), a block (with T.block(name)), an `if` around them, or "
    "B = T.alloc_buffer(shape, dtype)"
)


class FunctionReader:
    """Reads one function. `constants` are the numbers of the module around it."""

    expressions: type[Expressions] = Expressions

    def __init__(
        self,
        source: Source,
        budget: Budget,
        node: ast.FunctionDef,
        constants: dict[str, int | float] | None = None,
    ) -> None:
        self.source, self.budget, self.node = source, budget, node
        self.scope = Scope(source, constants)
        self.exprs = self.expressions(source, budget, self.scope)
        self.params: list[Buffer | None] = []
        self.allocs: list[Buffer] = []
        self.attrs: dict[str, Any] = {}
        self.extents: dict[Var, Int] = {}
        self.conditions: tuple[Predicate, ...] = ()
        self.blocks = self.bytes = 0

    def error(self, place: Place, message: str) -> ScriptError:
        return self.source.error(place, message)

    def read(self) -> PrimFunc:
        """The function."""
        self.check_params()
        for arg in self.node.args.args:
            self._param(arg)
        body = self._body(self.node.body, 0, None)
        return PrimFunc(
            self.node.name,
            self.matched(),
            tuple(body),
            tuple(self.attrs.items()),
            tuple(self.allocs),
        )

    def check_params(self) -> None:
        """Raise ScriptError unless the parameters are plain names with types."""
        a = self.node.args
        odd: list[ast.arg | ast.expr] = [*a.posonlyargs, *a.kwonlyargs, *a.defaults]
        odd += [x for x in (a.vararg, a.kwarg) if x is not None]
        for place in odd:
            raise self.error(place, "expected plain parameters, name: T.Buffer(shape, dtype)")

    def matched(self) -> tuple[Buffer, ...]:
        """The parameters. Raises ScriptError for a handle that no T.match_buffer describes."""
        params: list[Buffer] = []
        for arg, b in zip(self.node.args.args, self.params, strict=True):
            if b is None:
                raise self.error(arg, f"no T.match_buffer describes the handle {arg.arg}")
            params.append(b)
        return tuple(params)

    # -- buffers

    def _param(self, arg: ast.arg) -> None:
        hint = arg.annotation
        if isinstance(hint, ast.Call) and called(hint.func) == "Buffer":
            buffer = self._buffer(arg.arg, Arguments(self.source, hint, "T.Buffer"))
            self.params.append(buffer)
            self.scope.define(arg.arg, buffer, arg)
        elif hint is not None and called(hint) == "handle":
            self.params.append(None)
            self.scope.define(arg.arg, Handle(len(self.params) - 1), arg)
        elif isinstance(hint, ast.Subscript) and called(hint.value) == "Buffer":
            inside = hint.slice.elts if isinstance(hint.slice, ast.Tuple) else [hint.slice]
            given = ", ".join(ast.unparse(x) for x in inside)
            raise self.error(hint, f"T.Buffer takes parentheses; write T.Buffer({given[:80]})")
        else:
            raise self.error(
                hint or arg,
                f"parameter {arg.arg} needs a type; expected T.Buffer(shape, dtype) or T.handle",
            )

    def _buffer(self, name: str, args: Arguments) -> Buffer:
        shape_node = args.need("shape")
        given = args.take("dtype")
        kind = "float32" if given is None else dtype(self.source, given)
        scope, label = args.take("scope", False), args.take("name", False)
        align = self._align(args.take("align", False))
        args.done()
        sizes = shape_node.elts if isinstance(shape_node, (ast.Tuple, ast.List)) else [shape_node]
        shape = tuple(self.exprs.extent(n, "an extent of a shape", True) for n in sizes)
        count = allocated(tuple(n if isinstance(n, int) else 1 for n in shape), align)
        self.bytes += int(count) * dtypes.itemsize(kind)
        if self.bytes > self.budget.limits.bytes:
            raise self.error(
                shape_node,
                f"with {name} the buffers have {self.bytes} bytes; "
                f"at most {self.budget.limits.bytes} are allowed",
            )
        return Buffer(
            name if label is None else string(self.source, label, "a buffer's name"),
            shape,
            kind,
            "global" if scope is None else string(self.source, scope, "a buffer's scope"),
            align,
        )

    def _align(self, node: ast.expr | None) -> tuple[tuple[int, int, int], ...]:
        if node is None:
            return ()
        found = literal(self.source, self.budget, node)
        rows = found if isinstance(found, (tuple, list)) else [found]
        for row in rows:
            numbers = row if isinstance(row, (tuple, list)) else ()
            if len(numbers) != 3 or any(type(n) is not int for n in numbers) or numbers[1] < 1:
                raise self.error(
                    node, "align is a tuple of (axis, factor, offset), of which factor is positive"
                )
        return tuple((a, f, o) for a, f, o in rows)

    def _alloc(self, target: ast.expr, call: ast.Call, loop: list[Buffer] | None) -> None:
        if not isinstance(target, ast.Name):
            raise self.error(target, "expected a name for the buffer")
        args = Arguments(self.source, call, "T.alloc_buffer")
        placed = args.take("placed", False)
        if placed is not None and not (isinstance(placed, ast.Constant) and placed.value is True):
            raise self.error(placed, "placed is True or left out")
        if placed is not None and loop is not None:
            raise self.error(placed, "a buffer of a loop is placed there; leave `placed` out")
        buffer = self._buffer(target.id, args)
        self.scope.define(target.id, buffer, target)
        if loop is not None:
            loop.append(buffer)
        elif placed is not None:
            self.allocs.append(buffer)

    def _match(self, target: ast.expr, call: ast.Call) -> None:
        if not isinstance(target, ast.Name):
            raise self.error(target, "expected a name for the buffer")
        args = Arguments(self.source, call, "T.match_buffer")
        node = args.need("handle")
        thing = self.scope.names.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(thing, Handle):
            raise self.error(node, "expected a parameter of type T.handle")
        if self.params[thing.position] is not None:
            raise self.error(node, "the handle is matched twice")
        buffer = self._buffer(target.id, args)
        self.params[thing.position] = buffer
        self.scope.define(target.id, buffer, target)

    # -- statements

    def _body(self, nodes: list[ast.stmt], depth: int, loop: list[Buffer] | None) -> list[Node]:
        """The loops and blocks among `nodes`. `loop` collects the buffers of the loop around."""
        out: list[Node] = []
        for n, s in enumerate(nodes):
            self.budget.spend(s)
            whole = self._in_order(s, out) if depth == 0 else None
            if whole is not None:
                out.append(whole)
            elif isinstance(s, ast.For):
                out.append(self._loop(s, depth))
            elif isinstance(s, ast.With):
                call = with_call(s)
                if call is not None and called(call.func) == "opaque":
                    out.append(self._opaque(s, depth))
                else:
                    out.append(self._block(s))
            elif isinstance(s, ast.If):
                out += self._if(s, depth)
            elif not self._declaration(s, loop, depth == 0) and not self._is_idle(s, n):
                raise self.error(s, f"expected {_STATEMENTS}")
        return out

    def _is_idle(self, s: ast.stmt, n: int) -> bool:
        """`pass`, or a docstring."""
        if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant):
            return n == 0 and isinstance(s.value.value, str)
        return isinstance(s, ast.Pass)

    def _declaration(self, s: ast.stmt, loop: list[Buffer] | None, is_top: bool) -> bool:
        """Read a declaration; False if `s` is none."""
        if is_top and isinstance(s, ast.Assign) and len(s.targets) == 1 and self._sizes(s):
            return True
        if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.value, ast.Call):
            name = called(s.value.func)
            if name == "alloc_buffer":
                if self.conditions:
                    raise self.error(s, "a buffer is allocated outside of the `if`")
                self._alloc(s.targets[0], s.value, loop)
                return True
            if name == "match_buffer" and is_top:
                self._match(s.targets[0], s.value)
                return True
        elif isinstance(s, ast.Expr) and isinstance(s.value, ast.Call):
            name = called(s.value.func)
            if name == "func_attr" and is_top:
                args = Arguments(self.source, s.value, "T.func_attr")
                node = args.need("attrs")
                given = dictionary(self.source, self.budget, node, "attributes")
                args.done()
                assert isinstance(node, ast.Dict)
                for key, value in zip(given, node.values, strict=True):
                    self.source.remember_attribute(self.node.name, key, value)
                self.attrs.update(given)
                return True
        return False

    def _sizes(self, s: ast.Assign) -> bool:
        """`n = T.int64()`, or `n, m = T.int64(), T.int64()`; False if `s` is no such thing."""
        target, value = s.targets[0], s.value
        many = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        targets = target.elts if many else [target]  # type: ignore[attr-defined]
        values = value.elts if many else [value]  # type: ignore[attr-defined]
        makers = [called(v.func) if isinstance(v, ast.Call) else None for v in values]
        if len(targets) != len(values) or not all(m in (*dtypes.DTYPES, "var") for m in makers):
            return False
        for name, call, maker in zip(targets, values, makers, strict=True):
            assert isinstance(call, ast.Call)
            args = Arguments(self.source, call, f"T.{maker}")
            kind = args.take("dtype") if maker == "var" else None
            args.done()
            found = maker if maker != "var" else dtype(self.source, kind) if kind else dtypes.INDEX
            if found != dtypes.INDEX:
                raise self.error(call, f"a symbolic size is T.int64(), found {found}")
            if not isinstance(name, ast.Name):
                raise self.error(name, "expected a name for the size")
            self.scope.define(name.id, SizeVar(name.id), name)
        return True

    def _if(self, s: ast.If, depth: int) -> list[Node]:
        """`if` around loops and blocks: a predicate of every block inside."""
        if s.orelse:
            raise self.error(
                s.orelse[0],
                "an `if` around blocks skips points and has no `else`; "
                "to choose between values use T.if_then_else or an `if` inside the block "
                f"({MIGRATE})",
            )
        before = self.conditions
        self.conditions = (*before, *predicates(self.exprs, s.test, "the condition"))
        self._check_depth(s, depth + 1)
        body = self._body(s.body, depth + 1, None)
        self.conditions = before
        return body

    def _in_order(self, s: ast.stmt, before: list[Node]) -> Block | None:
        """A nest that runs as it is written, after the nodes `before`; None for every other."""
        return None

    def _opaque(self, s: ast.With, depth: int) -> Block:
        """An opaque block, which the readers of whole programs know (`script/opaque.py`)."""
        raise self.error(s.items[0].context_expr, "expected T.block(name)")

    def _count(self, s: ast.With) -> None:
        self.blocks += 1
        if self.blocks > self.budget.limits.blocks:
            raise self.error(
                s.items[0].context_expr, f"more than {self.budget.limits.blocks} blocks"
            )

    def _block(self, s: ast.With) -> Block:
        self._count(s)
        block = BlockReader(self.exprs, s, self.extents, self.conditions).read()
        self.source.remember(block, s)
        return block

    def _check_depth(self, place: ast.stmt, depth: int) -> None:
        if depth > self.budget.limits.depth:
            raise self.error(place, f"loops nest more than {self.budget.limits.depth} deep")

    def _loop(self, s: ast.For, depth: int) -> Node:
        call = s.iter
        name = called(call.func) if isinstance(call, ast.Call) else None
        is_range = (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Name)
            and call.func.id == "range"
        )
        if not isinstance(call, ast.Call) or not (is_range or name == "grid" or name in LOOPS):
            raise self.error(
                s.iter, f"expected T.grid(...), or one of {', '.join(f'T.{x}' for x in LOOPS)}"
            )
        if s.orelse:
            raise self.error(s.orelse[0], "a loop has no `else`")
        mark = self.scope.mark()
        if name == "grid":
            loops = self._grid(s.target, call)
        else:
            loops = [self._single(s.target, call, "serial" if is_range else str(name))]
        self._check_depth(s, depth + len(loops))
        for x in loops:
            self.extents[x.var] = x.extent
        allocs: list[Buffer] = []
        body = tuple(self._body(s.body, depth + len(loops), allocs))
        if not body:
            raise self.error(s, "the loop has no block inside")
        self.scope.leave(mark)
        for n, x in enumerate(reversed(loops)):
            del self.extents[x.var]
            inner = tuple(allocs) if n == 0 else ()
            loop = For(x.var, x.extent, body, x.kind, x.thread, x.annotations, inner)
            self.source.remember(loop, s)
            body = (loop,)
        (whole,) = body
        return whole

    def _grid(self, target: ast.expr, call: ast.Call) -> list[For]:
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        if call.keywords or len(call.args) != len(targets) or not targets:
            raise self.error(
                call, f"T.grid has {len(call.args)} extents for {len(targets)} loop variables"
            )
        extents = [self.exprs.extent(n, "a loop's extent", True) for n in call.args]
        return [
            For(self._variable(t), n, (), "serial") for t, n in zip(targets, extents, strict=True)
        ]

    def _single(self, target: ast.expr, call: ast.Call, name: str) -> For:
        args = Arguments(self.source, call, f"T.{name}")
        if len(args.positional) == 2:
            start = self.exprs.expr(args.positional.pop(0), dtypes.INDEX)
            if not isinstance(start, Const) or start.value != 0:
                raise self.error(call.args[0], f"loops start at 0; {MIGRATE}")
        extent = self.exprs.extent(args.need("extent"), "a loop's extent", True)
        thread = args.take("thread", False) if name == "thread_binding" else None
        if name == "thread_binding" and thread is None:
            raise self.error(call, 'T.thread_binding needs thread=, such as thread="blockIdx.x"')
        notes = args.take("annotations", False)
        args.done()
        given = {} if notes is None else dictionary(self.source, self.budget, notes, "annotations")
        return For(
            self._variable(target),
            extent,
            (),
            LOOPS[name],
            None if thread is None else string(self.source, thread, "a thread axis"),
            tuple(sorted(given.items())),
        )

    def _variable(self, target: ast.expr) -> Var:
        if not isinstance(target, ast.Name):
            raise self.error(target, "expected one name for each loop variable")
        var = Var(target.id)
        self.scope.define(target.id, Local("loop", var), target)
        return var
