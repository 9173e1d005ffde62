"""Scalar expressions and affine forms, read from the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, Union

from autosched.errors import ScriptError, TensorExprError
from autosched.script.limits import Budget
from autosched.script.literals import (
    Arguments,
    checked_number,
    dtype,
    special_float,
)
from autosched.script.loads import Load
from autosched.script.scope import Bound, Handle, Local, Scope
from autosched.script.source import Place, Source
from autosched.tir import dtypes
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Digit, Int, always
from autosched.tir.bits import reinterpret
from autosched.tir.clamped import clamp_index, wrap_index
from autosched.tir.expr import Const, Expr
from autosched.tir.forms import read_form
from autosched.tir.nodes import Buffer, Index
from autosched.tir.operations import OPS
from autosched.tir.size import Size, size_of
from autosched.tir.size_atoms import SizeVar

Number = Union[int, float]
Extent = Union[int, Size]
_LARGEST = 1 << 62
INDIRECT = 4
"""Loads nested in the indices of loads; proofs about them take time exponential in this."""

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "shift_left",
    ast.RShift: "shift_right",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_OPERATORS = ", ".join(row.symbol for row in OPS.values() if row.symbol)
INTRINSICS = frozenset(OPS) - {"cast", "reinterpret", "and", "or", "not"}
"""Operations that are called as T.name."""
_INDICES = {"clamp_index": clamp_index, "wrap_index": wrap_index}
"""Names for expressions that keep an index inside."""


def _largest(form: Affine) -> int:
    """Largest magnitude of the numbers in a form."""
    found = _magnitude(form.const)
    for atom, c in form.terms:
        found = max(found, _magnitude(c))
        if isinstance(atom, Digit):
            mod = 0 if atom.mod is None else _magnitude(atom.mod)
            found = max(found, _largest(atom.base), _magnitude(atom.div), mod)
    return found


def _magnitude(n: Int) -> int:
    """Of a number; of a symbolic one that of the numbers in it."""
    if isinstance(n, Size):
        return max(abs(n.const), *(abs(c) for _, c in n.terms))
    return abs(int(n))


class Expressions:
    """Reads expressions; names mean what `scope` says.

    A number without a dtype takes that of what it is combined with, else the one expected (`like`),
    else int64 or float32.
    """

    def __init__(self, source: Source, budget: Budget, scope: Scope) -> None:
        self.source, self.budget, self.scope = source, budget, scope
        self.depth = 0
        self.combining = False
        """Whether names given to values stand for operands of a combination."""
        self.loops_only = ""
        """What is being read, if only loop variables may stand in it."""

    def error(self, place: Place, message: str) -> ScriptError:
        return self.source.error(place, message)

    # -- entries

    def expr(self, node: ast.expr, like: str | None = None) -> Expr:
        """The expression at `node`."""
        found = self._operand(node, like)
        return found if isinstance(found, Expr) else self._number(node, found, like)

    def condition(self, node: ast.expr) -> Expr:
        """An expression of dtype bool."""
        e = self.expr(node, "bool")
        if e.dtype != "bool":
            raise self.error(node, f"expected a condition, found a value of dtype {e.dtype}")
        return e

    def index(self, node: ast.expr) -> Index:
        """An affine form or another int64 expression."""
        e = self.expr(node, dtypes.INDEX)
        if e.dtype != dtypes.INDEX:
            raise self.error(
                node, f'an index is int64, found {e.dtype}; convert it with T.cast(x, "int64")'
            )
        form = self._form(node, e)
        return e if form is None else form

    def form(self, node: ast.expr, what: str) -> Affine:
        """An affine form of loop variables."""
        self.loops_only = what
        e = self.expr(node, dtypes.INDEX)
        self.loops_only = ""
        form = self._form(node, e)
        if form is None:
            raise self.error(
                node,
                f"{what} must be affine: a sum of loop variables times integers, with // and % "
                "by positive integers",
            )
        return form

    def _form(self, node: ast.expr, e: Expr) -> Affine | None:
        """`e` as an affine form, if it is one."""
        form = read_form(e)
        if form is not None and _largest(form) > _LARGEST:
            raise self.error(node, "the sum has numbers beyond 2**62")
        return form

    def extent(self, node: ast.expr, what: str, may_be_empty: bool = False) -> Extent:
        """A constant integer of at least 1, or an expression of sizes that is positive, or at least
        0."""
        e = self.expr(node, dtypes.INDEX)
        is_float = isinstance(node, ast.Constant) and isinstance(node.value, float)
        n = size_of(e)
        lowest = 0 if may_be_empty and isinstance(n, Size) else 1
        if is_float or n is None or not always(n >= lowest):
            raise self.error(
                node,
                f"{what} is a constant integer from 1 up, or an expression of sizes "
                "(n = T.int64()) that is positive whatever they are",
            )
        return n

    def load(self, node: ast.expr, what: str = "an element") -> Load:
        """`A[i, j]`."""
        if not isinstance(node, ast.Subscript):
            raise self.error(node, f"expected {what} of a buffer, such as A[i, j]")
        self._enter(node)
        if self.loops_only:
            raise self.error(node, f"{self.loops_only} is made of loop variables, not of elements")
        if not isinstance(node.value, ast.Name):
            raise self.error(node.value, "expected the name of a buffer before [")
        name = node.value.id
        buffer = self.scope.find(name, node.value, "a buffer")
        if not isinstance(buffer, Buffer):
            raise self.error(node.value, f"{name} is {_kind(buffer)}; expected a buffer before [")
        inside = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for x in inside:
            if isinstance(x, (ast.Slice, ast.Starred)):
                raise self.error(node.slice, "expected one index a dimension, without : or *")
        rank = len(buffer.shape)
        if len(inside) != rank:
            shape = ", ".join(map(str, buffer.shape))
            raise self.error(
                node, f"{name} has {rank} dimensions ({shape}); found {len(inside)} indices"
            )
        indices = tuple(self.index(x) for x in inside)
        below = [
            x.nested
            for i in indices
            if isinstance(i, Expr)
            for x in ex.walk(i)
            if isinstance(x, Load)
        ]
        nested = 1 + max(below, default=0)
        if nested > INDIRECT:
            raise self.error(node, f"indices read indices more than {INDIRECT} deep")
        self.depth -= 1
        return Load(buffer, indices, buffer.dtype, node, nested)

    # -- nodes

    def _enter(self, node: ast.expr) -> None:
        self.budget.spend(node)
        self.depth += 1
        if self.depth > self.budget.limits.height:
            raise self.error(node, f"expressions nest more than {self.budget.limits.height} deep")

    def _operand(self, node: ast.expr, like: str | None) -> Expr | Number:
        """The expression at `node`, or a number that has no dtype yet."""
        read = _READERS.get(type(node))
        if read is None:
            what = type(node).__name__
            raise self.error(node, f"{what} is no part of an expression; expected {_EXPECTED}")
        self._enter(node)
        found = read(self, node, like)
        self.depth -= 1
        return found

    def _constant(self, node: ast.Constant, like: str | None) -> Expr | Number:
        value = node.value
        if isinstance(value, bool):
            return Const(value, "bool")
        if isinstance(value, (int, float)):
            checked: Number = checked_number(self.source, node, value)
            return checked
        raise self.error(node, f"expected a number, found {type(value).__name__}")

    def _number(self, node: ast.expr, value: Number, like: str | None) -> Const:
        like = like if like != "bool" else None
        made: Const = self._checked(node, lambda: ex.const(value, like))
        return made

    def _checked(self, node: ast.expr, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except TensorExprError as e:
            raise self.error(node, str(e).replace(".astype(...)", "T.cast(x, dtype)")) from e
        except OverflowError as e:
            raise self.error(node, f"number out of range: {e}") from e

    def call_op(self, node: ast.expr, op: str, *args: Expr) -> Expr:
        row = OPS[op]
        operands = args[1:] if op in ("select", "if_then_else") else args
        if len({a.dtype for a in operands}) > 1:
            found = " and ".join(dict.fromkeys(a.dtype for a in operands))
            raise self.error(
                node,
                f"operands of {row.symbol or op} have dtypes {found}; "
                f'convert one with T.cast(x, "{operands[0].dtype}")',
            )
        result: Expr = self._checked(node, lambda: ex.call(op, *args))
        return result

    def _unify(self, nodes: Sequence[ast.expr | Expr], like: str | None) -> list[Expr]:
        """Operands of one dtype, some of them read before; numbers take that of the others."""
        found: list[Expr | Number] = []
        known: str | None = None
        for node in nodes:
            e = node if isinstance(node, Expr) else self._operand(node, known or like)
            found.append(e)
            if known is None and isinstance(e, Expr):
                known = e.dtype
        if known is None and like is None and any(isinstance(x, float) for x in found):
            known = "float32"
        out: list[Expr] = []
        for node, e in zip(nodes, found, strict=True):
            if isinstance(e, Expr):
                out.append(e)
            else:
                assert isinstance(node, ast.expr)
                out.append(self._number(node, e, known or like))
        return out

    def _unary(self, node: ast.UnaryOp, like: str | None) -> Expr | Number:
        if isinstance(node.op, ast.Not):
            return self.call_op(node, "not", self.condition(node.operand))
        if isinstance(node.op, ast.Invert):
            return self.call_op(node, "bitwise_not", self.expr(node.operand, like))
        e = self._operand(node.operand, like)
        if isinstance(node.op, ast.UAdd):
            return e
        return self.call_op(node, "neg", e) if isinstance(e, Expr) else -e

    def _binary(self, node: ast.BinOp, like: str | None) -> Expr:
        # Sums are long and lean to the left, so that side is no recursion.
        chain = [node]
        while isinstance(chain[-1].left, ast.BinOp):
            chain.append(chain[-1].left)
            self.budget.spend(chain[-1])
        outside = self.depth
        left: ast.expr | Expr = chain[-1].left
        for n, link in reversed(list(enumerate(chain))):
            self.depth = outside + n
            op = _BINARY.get(type(link.op))
            if op is None:
                raise self.error(
                    link, f"{type(link.op).__name__} is no operator; expected one of {_OPERATORS}"
                )
            left = self.call_op(link, op, *self._unify((left, link.right), like))
        assert isinstance(left, Expr)
        return left

    def _bool(self, node: ast.BoolOp, like: str | None) -> Expr:
        op = "and" if isinstance(node.op, ast.And) else "or"
        out = self.condition(node.values[0])
        for n, value in enumerate(node.values[1:]):
            if n >= self.budget.limits.height:
                raise self.error(value, f"more than {n} conditions in a row; use brackets")
            out = self.call_op(node, op, out, self.condition(value))
        return out

    def _compare(self, node: ast.Compare, like: str | None) -> Expr:
        out: Expr | None = None
        left = node.left
        for n, (compare, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            op = _COMPARE.get(type(compare))
            if op is None:
                raise self.error(
                    node,
                    f"{type(compare).__name__} is no comparison; expected <, <=, >, >=, == or !=",
                )
            if n >= self.budget.limits.height:
                raise self.error(right, f"more than {n} comparisons in a row")
            link = self.call_op(node, op, *self._unify((left, right), None))
            out = link if out is None else self.call_op(node, "and", out, link)
            left = right
        assert out is not None
        return out

    def _choice(self, node: ast.IfExp, like: str | None) -> Expr:
        condition = self.condition(node.test)
        return self.call_op(
            node, "if_then_else", condition, *self._unify((node.body, node.orelse), like)
        )

    def _name(self, node: ast.Name, like: str | None) -> Expr | Number:
        thing = self.scope.find(node.id, node, _EXPECTED)
        if isinstance(thing, Local):
            if self.loops_only and thing.kind == "axis":
                raise self.error(
                    node, f"{node.id} is an axis; {self.loops_only} is made of loop variables"
                )
            return thing.var
        if isinstance(thing, Bound):
            if self.loops_only:
                raise self.error(
                    node, f"{node.id} is a value; {self.loops_only} is made of loop variables"
                )
            self.budget.spend(node, thing.size)
            return thing.combined if self.combining else thing.value
        if isinstance(thing, (int, float, SizeVar)):
            return thing
        hint = f"; expected {node.id}[...]" if isinstance(thing, Buffer) else ""
        raise self.error(node, f"{node.id} is {_kind(thing)}, which is no value{hint}")

    def _call(self, node: ast.Call, like: str | None) -> Expr:
        name = called(node.func)
        if name is None:
            plain = node.func.id if isinstance(node.func, ast.Name) else ""
            hint = f"; did you mean T.{plain}?" if plain in OPS else ""
            raise self.error(node.func, f"expected a function of T, such as T.exp{hint}")
        if name in dtypes.DTYPES:
            return self._converted(node, name)
        if name == "cast":
            args = Arguments(self.source, node, "T.cast")
            value, to = args.need("value"), args.need("dtype")
            args.done()
            operand, target = self.expr(value), dtype(self.source, to)
            cast: Expr = self._checked(node, lambda: ex.cast(operand, target))
            return cast
        if name == "reinterpret":
            args = Arguments(self.source, node, "T.reinterpret")
            to, value = args.need("dtype"), args.need("value")
            args.done()
            operand, target = self.expr(value), dtype(self.source, to)
            bits: Expr = self._checked(node, lambda: reinterpret(target, operand))
            return bits
        if name in _INDICES:
            if len(node.args) != 2 or node.keywords:
                raise self.error(node, f"T.{name} takes an index and an extent by position")
            index, extent = (self.expr(a, dtypes.INDEX) for a in node.args)
            inside: Expr = self._checked(node, lambda: _INDICES[name](index, extent))
            return inside
        if name == "call_extern":
            return self.external(node)
        if name not in INTRINSICS:
            raise self.error(node.func, f"T.{name} is no function of values; expected {_EXPECTED}")
        arity = OPS[name].arity
        if len(node.args) != arity or node.keywords:
            raise self.error(node, f"T.{name} takes {arity} arguments by position")
        if name in ("select", "if_then_else"):
            condition = self.condition(node.args[0])
            return self.call_op(node, name, condition, *self._unify(node.args[1:], like))
        result = OPS[name].result
        return self.call_op(node, name, *self._unify(node.args, None if result == "bool" else like))

    def external(self, node: ast.Call) -> Expr:
        """`T.call_extern("name", …)`, which routines have."""
        raise self.error(node.func, "a C function is called in a routine, @T.routine")

    def _converted(self, node: ast.Call, to: str) -> Expr:
        """`T.float32(0.5)`: a constant of that dtype, or a value converted to it."""
        if len(node.args) != 1 or node.keywords:
            raise self.error(node, f"T.{to} takes one argument")
        (arg,) = node.args
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
            if not dtypes.is_float(to):
                raise self.error(arg, f"T.{to} takes a number, found a string")
            return Const(special_float(self.source, arg), to)
        e = self._operand(arg, to)
        if isinstance(e, Const) and e.dtype == "bool":
            e = bool(e.value)
        if isinstance(e, Expr):
            return ex.cast(e, to)
        number: Const = self._checked(arg, lambda: ex.const(e, to))
        return number


_READERS: dict[type[ast.expr], Callable[[Expressions, Any, str | None], Expr | Number]] = {
    ast.Constant: Expressions._constant,
    ast.UnaryOp: Expressions._unary,
    ast.BinOp: Expressions._binary,
    ast.BoolOp: Expressions._bool,
    ast.Compare: Expressions._compare,
    ast.IfExp: Expressions._choice,
    ast.Name: Expressions._name,
    ast.Subscript: lambda self, node, like: self.load(node),
    ast.Call: Expressions._call,
}
_EXPECTED = "an element of a buffer, an axis, a number, an operator or a function of T"


def called(func: ast.expr) -> str | None:
    """`"axis.spatial"` for `T.axis.spatial`; None for what is no attribute of T."""
    parts: list[str] = []
    while isinstance(func, ast.Attribute) and len(parts) < 3:
        parts.append(func.attr)
        func = func.value
    if isinstance(func, ast.Name) and func.id == "T" and parts:
        return ".".join(reversed(parts))
    return None


def _kind(thing: object) -> str:
    if isinstance(thing, Buffer):
        return "a buffer"
    if isinstance(thing, Local):
        return "a loop variable" if thing.kind == "loop" else "an axis"
    if isinstance(thing, Handle):
        return "a handle that T.match_buffer has not described"
    return "a value"
