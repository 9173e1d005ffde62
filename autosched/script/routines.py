"""`@T.routine` functions: statements that run in the order in which they are written."""

from __future__ import annotations

import ast

from autosched.script.exprs import Expressions, called
from autosched.script.functions import FunctionReader
from autosched.script.literals import Arguments, string
from autosched.script.loads import Load
from autosched.script.scope import Local
from autosched.tir import dtypes
from autosched.tir.affine import Affine
from autosched.tir.expr import Call, Const, Expr, Var, rewrite, walk
from autosched.tir.extern import found
from autosched.tir.nodes import Buffer, Element, ExternCall, Index, Pointer
from autosched.tir.routine import (
    Alloc,
    Assert,
    Evaluate,
    If,
    Let,
    Loop,
    Routine,
    Statement,
    Store,
    While,
)

_STATEMENTS = (
    "a loop (for i in T.serial(first, last), while), `if`, `assert`, a store (A[i] = value), a "
    "name (x = value) or B = T.alloc_buffer(shape, dtype)"
)
_RANGES = ("serial", "parallel", "vectorized", "unroll")
"""Loops in a routine; those of T.unroll run as serial ones do."""


class _Expressions(Expressions):
    """Expressions with calls of C functions."""

    def external(self, node: ast.Call) -> Expr:
        """`T.call_extern("name", …)`; a buffer stands for its memory."""
        if not node.args or node.keywords:
            raise self.error(node, 'expected T.call_extern("name", …)')
        name = string(self.source, node.args[0], "the name of a C function")
        function = found(name)
        if function is None:
            raise self.error(
                node.args[0],
                f"no C function {name!r} is registered; see autosched.tir.extern.register",
            )
        args = node.args[1:]
        if len(args) != len(function.args):
            raise self.error(node, f"{name} takes ({', '.join(function.args)})")
        values: list[Expr] = []
        for arg, kind in zip(args, function.args, strict=True):
            thing = self.scope.names.get(arg.id) if isinstance(arg, ast.Name) else None
            e = Pointer(thing, thing.dtype) if isinstance(thing, Buffer) else self.expr(arg, kind)
            if (f"{e.dtype}*" if isinstance(e, Pointer) else e.dtype) != kind:
                raise self.error(arg, f"expected {kind}, found {e.dtype}")
            values.append(e)
        return ExternCall(function, tuple(values), function.returns)


class RoutineReader(FunctionReader):
    """Reads one routine."""

    expressions = _Expressions

    def routine(self) -> Routine:
        """The routine."""
        self.check_params()
        for arg in self.node.args.args:
            self._param(arg)
        rest = [s for s in self.node.body if not self._heads(s)]
        body = self._statements(rest, 0)
        return Routine(self.node.name, self.matched(), body, tuple(self.attrs.items()))

    def _heads(self, s: ast.stmt) -> bool:
        """Read what describes parameters and sizes; False for other statements."""
        value = s.value if isinstance(s, (ast.Assign, ast.Expr)) else None
        makers = value.elts if isinstance(value, ast.Tuple) else [value]
        for x in makers:
            name = called(x.func) if isinstance(x, ast.Call) else None
            is_size = isinstance(x, ast.Call) and name in dtypes.DTYPES and not x.args
            if name not in ("match_buffer", "func_attr", "var") and not is_size:
                return False
        return self._declaration(s, None, True)

    def _statements(self, nodes: list[ast.stmt], depth: int) -> tuple[Statement, ...]:
        mark = self.scope.mark()
        out: list[Statement] = []
        for n, s in enumerate(nodes):
            self.budget.spend(s)
            self._check_depth(s, depth)
            if isinstance(s, ast.For):
                out += self._loops(s, depth)
            elif isinstance(s, ast.While):
                if s.orelse:
                    raise self.error(s.orelse[0], "a loop has no `else`")
                condition = self._condition(s.test)
                out.append(While(condition, self._statements(s.body, depth + 1)))
            elif isinstance(s, ast.If):
                condition = self._condition(s.test)
                yes = self._statements(s.body, depth + 1)
                out.append(If(condition, yes, self._statements(s.orelse, depth + 1)))
            elif isinstance(s, ast.Assert):
                out.append(self._assert(s))
            elif isinstance(s, ast.With):
                out += self._with(s, depth)
            elif isinstance(s, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
                out.append(self._assign(s))
            elif (called_value := _evaluated(s)) is not None:
                e = self._value(called_value)
                if not isinstance(e, ExternCall):
                    raise self.error(s, "T.evaluate has a call of a C function, T.call_extern")
                out.append(Evaluate(e))
            elif not self._is_idle(s, n):
                raise self.error(s, f"expected {_STATEMENTS}")
        self.scope.leave(mark)
        return tuple(out)

    def _with(self, s: ast.With, depth: int) -> list[Statement]:
        """A block, which the readers of nests that run in order know (`script/nested.py`)."""
        raise self.error(s, f"expected {_STATEMENTS}")

    def _assign(self, s: ast.Assign | ast.AugAssign | ast.AnnAssign) -> Statement:
        targets = s.targets if isinstance(s, ast.Assign) else [s.target]
        if len(targets) != 1 or s.value is None:
            raise self.error(s, f"expected {_STATEMENTS}")
        (target,) = targets
        if isinstance(target, ast.Name) and not isinstance(s, ast.AugAssign):
            if isinstance(s.value, ast.Call) and called(s.value.func) == "alloc_buffer":
                args = Arguments(self.source, s.value, "T.alloc_buffer")
                buffer = self._buffer(target.id, args)
                self.scope.define(target.id, buffer, target)
                return Alloc(buffer)
            value = self._value(s.value)
            var = Var(target.id, value.dtype)
            self.scope.define(target.id, Local("loop", var), target)
            return Let(var, value)
        load = self.exprs.load(target, "a store to an element")
        node: ast.expr = s.value
        if isinstance(s, ast.AugAssign):
            node = ast.copy_location(ast.BinOp(target, s.op, s.value), s.value)
        value = self._value(node, load.dtype)
        if value.dtype != load.dtype:
            raise self.error(
                s.value,
                f"{ast.unparse(target)[:60]} holds {load.dtype}, the value is {value.dtype}; "
                f'convert it with T.cast(x, "{load.dtype}")',
            )
        element = _lazy(load)
        assert isinstance(element, Element)
        return Store(element, value)

    def _assert(self, s: ast.Assert) -> Assert:
        if s.msg is None:
            raise self.error(s, 'expected a text after the condition: assert i < 9, "i is beyond"')
        return Assert(self._condition(s.test), string(self.source, s.msg, "what is wrong"))

    def _value(self, node: ast.expr, like: str | None = None) -> Expr:
        return _lazy(self.exprs.expr(node, like))

    def _condition(self, node: ast.expr) -> Expr:
        return _lazy(self.exprs.condition(node))

    def _number64(self, node: ast.expr) -> Expr:
        e = self._value(node, dtypes.INDEX)
        if e.dtype != dtypes.INDEX:
            raise self.error(node, f'expected int64, found {e.dtype}; T.cast(x, "int64")')
        return e

    def _loops(self, s: ast.For, depth: int) -> list[Statement]:
        call = s.iter
        name = called(call.func) if isinstance(call, ast.Call) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            name = {"range": "serial"}.get(call.func.id)
        if not isinstance(call, ast.Call) or name not in (*_RANGES, "grid"):
            raise self.error(s.iter, "expected T.serial(first, last), T.grid(...) or range")
        if s.orelse:
            raise self.error(s.orelse[0], "a loop has no `else`")
        zero: Expr = Const(0, dtypes.INDEX)
        if name == "grid":
            targets = s.target.elts if isinstance(s.target, ast.Tuple) else [s.target]
            if len(targets) != len(call.args) or call.keywords:
                raise self.error(call, f"{len(call.args)} extents for {len(targets)} loops")
            ends = [(zero, self._number64(n), 1) for n in call.args]
        else:
            targets, ends = [s.target], [self._ends(call, name)]
        kind = name if name in ("parallel", "vectorized") else "serial"
        mark = self.scope.mark()
        variables = [self._variable(t) for t in targets]
        body = self._statements(s.body, depth + len(targets))
        self.scope.leave(mark)
        for var, (begin, end, step) in reversed(list(zip(variables, ends, strict=True))):
            body = (Loop(var, begin, end, step, body, kind),)
        return list(body)

    def _ends(self, call: ast.Call, name: str) -> tuple[Expr, Expr, int]:
        args = Arguments(self.source, call, f"T.{name}")
        given = [args.need("last")]
        second = args.take("end")
        given += [] if second is None else [second]
        step = args.take("step")
        args.done()
        by = 1
        if step is not None:
            found = self._number64(step)
            if not isinstance(found, Const) or found.value < 1:
                raise self.error(step, "the step of a loop is a number from 1 up")
            by = int(found.value)
        begin = Const(0, dtypes.INDEX) if len(given) == 1 else self._number64(given[0])
        return begin, self._number64(given[-1]), by


def _evaluated(s: ast.stmt) -> ast.expr | None:
    """What `T.evaluate(...)` evaluates."""
    call = s.value if isinstance(s, ast.Expr) else None
    if isinstance(call, ast.Call) and called(call.func) == "evaluate" and len(call.args) == 1:
        return call.args[0]
    return None


def _lazy(e: Expr) -> Expr:
    """`e` with loads as elements. Of `and` and `or`, the right side is evaluated only where the
    left one leaves the result open, as in Python, if it reads memory."""
    return rewrite(e, _leaf)


def _leaf(e: Expr) -> Expr | None:
    if isinstance(e, Load):
        return Element(e.buffer, tuple(_index(i) for i in e.at), e.dtype)
    if isinstance(e, ExternCall):
        return ExternCall(e.function, tuple(map(_lazy, e.indices)), e.dtype)
    if isinstance(e, Call) and e.op in ("and", "or"):
        a, b = (_lazy(x) for x in e.args)
        if any(isinstance(x, (Element, ExternCall)) for x in walk(b)):
            first, second = (b, Const(False, "bool")) if e.op == "and" else (Const(True, "bool"), b)
            return Call("if_then_else", (a, first, second), "bool")
        return Call(e.op, (a, b), "bool")
    return None


def _index(index: Index) -> Expr:
    return index.to_expr() if isinstance(index, Affine) else _lazy(index)
