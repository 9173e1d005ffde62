"""Expressions of TVMScript as expressions here, with every conversion written out.

There, loop variables are int32 and numbers are converted silently. Here a loop variable is int64,
an index is int64, and nothing is converted silently: what is rewritten carries its type along, and
`T.cast` is written where it changes.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from autosched.script.migrate.elements import EXPECTED, Elements
from autosched.script.migrate.ranges import span
from autosched.script.migrate.spelling import CHOICES, FUNCTIONS, OPAQUE, OPERATORS, called
from autosched.script.migrate.things import (
    FLOAT,
    INDEX,
    INT,
    Array,
    State,
    Value,
    call,
    name,
    number,
    number_of,
)
from autosched.tir import dtypes
from autosched.tir.operations import OPS

_WIDTH = {d: 8 * dtypes.itemsize(d) if d != "bool" else 1 for d in dtypes.DTYPES}
_BITS: tuple[type[ast.operator], ...] = (
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.LShift,
    ast.RShift,
)


def is_real(dtype: str) -> bool:
    """Whether a type is one of numbers with fractions."""
    return dtype == FLOAT or (dtype in dtypes.DTYPES and dtypes.is_float(dtype))


Special = Callable[["Values", ast.expr, list[ast.expr]], Value]
"""A function of T that is read in a way of its own, from the call and its arguments."""


class Values(Elements):
    """Rewrites expressions; names mean what `state.names` says."""

    def __init__(self, state: State, special: Mapping[str, Special]) -> None:
        self.state, self.special = state, special
        self.is_routine = False
        """Whether C functions may be called."""

    # -- entries

    def index(self, node: ast.expr) -> ast.expr:
        """An expression in the place of an index, an extent or a binding."""
        e = self.value(node)
        if e.dtype in (INDEX, INT, "int64"):
            return e.node
        if e.dtype in dtypes.DTYPES and dtypes.is_int(e.dtype):
            return call("cast", e.node, ast.Constant("int64"))
        raise self.state.error(node, f"an index is an integer, found {e.dtype}")

    def of(self, node: ast.expr, dtype: str) -> ast.expr:
        """An expression of `dtype`, converted if it has another."""
        return self.converted(node, self.value(node), dtype)

    def condition(self, node: ast.expr) -> ast.expr:
        """An expression of dtype bool."""
        e = self.value(node)
        if e.dtype == "bool":
            return e.node
        if e.dtype == INT:
            return ast.Constant(bool(number_of(e.node)))
        return ast.Compare(e.node, [ast.NotEq()], [number(0)])

    def assigned(
        self, target: ast.Subscript, s: ast.Assign | ast.AugAssign | ast.AnnAssign
    ) -> tuple[Value, ast.expr]:
        """The element that a statement stores to, and what it stores, of the element's dtype."""
        assert s.value is not None
        e = self.value(target)
        if not isinstance(s, ast.AugAssign):
            return e, self.of(s.value, e.dtype)
        found = self.operation(target, s.op, e, self.value(s.value))
        return e, self.converted(target, found, e.dtype)

    def converted(self, place: ast.expr, e: Value, dtype: str) -> ast.expr:
        """`e` as one of `dtype`."""
        if e.dtype == dtype or (e.dtype == INDEX and dtype == "int64"):
            return e.node
        if e.dtype == INDEX and number_of(e.node) is not None:
            return call(dtype, e.node)
        if e.dtype == INT or (e.dtype == FLOAT and is_real(dtype)):
            constant = isinstance(e.node, (ast.Constant, ast.UnaryOp))
            return e.node if constant and dtype != "bool" else call(dtype, e.node)
        if "bfloat16" in (e.dtype, dtype) and "float32" not in (e.dtype, dtype):
            e = Value(call("cast", e.node, ast.Constant("float32")), "float32")
        return call("cast", e.node, ast.Constant(dtype))

    def value(self, node: ast.expr) -> Value:
        """The expression and its type."""
        reader = _READERS.get(type(node))
        if reader is None:
            kind = type(node).__name__
            raise self.state.error(node, f"{kind} is no part of an expression; expected {EXPECTED}")
        found: Value = reader(self, node)
        self.state.spend(node, found.node)
        return found

    # -- types

    def unified(self, place: ast.expr, *operands: Value) -> tuple[list[ast.expr], str]:
        """Operands of one type, and that type, by TVM's rules: floats before integers, the wider
        before the narrower."""
        dtype = operands[0].dtype
        for e in operands[1:]:
            dtype = self._joined(place, dtype, e.dtype)
        if dtype in (INT, INDEX, FLOAT):
            return [e.node for e in operands], dtype
        return [self.converted(place, e, dtype) for e in operands], dtype

    def _joined(self, place: ast.expr, a: str, b: str) -> str:
        if a == b:
            return a
        for x, y in ((a, b), (b, a)):
            if x == INT:
                return y
        for x, y in ((a, b), (b, a)):
            if x == FLOAT:
                return y if is_real(y) else "float32"
            if x == INDEX:
                return y if is_real(y) or _WIDTH.get(y, 0) >= 32 else "int32"
        for x, y in ((a, b), (b, a)):
            if is_real(x) and not is_real(y):
                return x
        if "bfloat16" in (a, b) or (is_real(a) and is_real(b)):
            return "float32" if "bfloat16" in (a, b) else max(a, b, key=_WIDTH.__getitem__)
        if _WIDTH[a] == _WIDTH[b]:
            raise self.state.error(place, f"operands have dtypes {a} and {b}; convert one first")
        return max(a, b, key=_WIDTH.__getitem__)

    # -- nodes

    def _constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, bool):
            return Value(node, "bool")
        if isinstance(node.value, int):
            return Value(number(node.value), INT)
        if isinstance(node.value, float):
            return Value(node, FLOAT)
        raise self.state.error(node, f"expected a number, found {node.value!r}")

    def _name(self, node: ast.Name) -> Value:
        thing = self.state.names.get(node.id)
        if isinstance(thing, Value):
            return thing
        if isinstance(thing, Array) and not thing.shape:  # a scalar parameter
            return self.element(node, thing, ())
        if thing is None:
            raise self.state.error(
                node, f"{node.id!r} is not defined here; give it to migrate(constants=…)"
            )
        raise self.state.error(node, f"{node.id} is no value; expected {EXPECTED}")

    def _unary(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            return Value(ast.UnaryOp(node.op, self.condition(node.operand)), "bool")
        e = self.value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return e
        n = number_of(e.node)
        if n is not None and isinstance(node.op, ast.USub):
            return Value(number(-n), e.dtype)
        return Value(ast.UnaryOp(node.op, e.node), e.dtype)

    def _binary(self, node: ast.BinOp) -> Value:
        if isinstance(node.op, ast.Pow):
            return self._called(node, "pow", [node.left, node.right])
        return self.operation(node, node.op, self.value(node.left), self.value(node.right))

    def operation(self, place: ast.expr, op: ast.operator, a: Value, b: Value) -> Value:
        """An operator on two values."""
        if a.dtype == b.dtype == "bool" and not isinstance(op, _BITS):
            raise self.state.error(place, "arithmetic on conditions; convert them first")
        (left, right), dtype = self.unified(place, a, b)
        if isinstance(op, ast.Div) and not is_real(dtype):
            return Value(self.toward_zero(left, right), dtype)
        m, n = number_of(left), number_of(right)
        if dtype == INT and m is not None and n is not None:
            found = _folded(op, m, n)
            if found is not None:
                return Value(number(found), INT)
        return Value(ast.BinOp(left, op, right), dtype)

    def toward_zero(self, a: ast.expr, b: ast.expr) -> ast.expr:
        """The quotient of integers, rounded to zero."""
        ends, by = span(a, self.state.extents), number_of(b)
        down = ast.BinOp(a, ast.FloorDiv(), b)
        if ends is not None and ends[0] >= 0 and by is not None and by > 0:
            m = number_of(a)
            return down if m is None else number(m // by)
        zero = number(0)
        rest = ast.Compare(ast.BinOp(a, ast.Mod(), b), [ast.NotEq()], [zero])
        signs = [
            ast.BoolOp(
                ast.And(),
                [ast.Compare(a, [first()], [zero]), ast.Compare(b, [second()], [zero])],
            )
            for first, second in ((ast.Lt, ast.Gt), (ast.Gt, ast.Lt))
        ]
        test = ast.BoolOp(ast.And(), [rest, ast.BoolOp(ast.Or(), list(signs))])
        return call("select", test, ast.BinOp(down, ast.Add(), number(1)), down)

    def _bool(self, node: ast.BoolOp) -> Value:
        return Value(ast.BoolOp(node.op, [self.condition(v) for v in node.values]), "bool")

    def _compare(self, node: ast.Compare) -> Value:
        links: list[ast.expr] = []
        left = self.value(node.left)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            (a, b), _ = self.unified(node, left, right)
            links.append(ast.Compare(a, [op], [b]))
            left = right
        return Value(links[0] if len(links) == 1 else ast.BoolOp(ast.And(), links), "bool")

    def _choice(self, node: ast.IfExp) -> Value:
        return self._chosen("if_then_else", node, node.test, node.body, node.orelse)

    def _chosen(
        self, function: str, place: ast.expr, test: ast.expr, yes: ast.expr, no: ast.expr
    ) -> Value:
        a, b = self.value(yes), self.value(no)
        sides, dtype = self.unified(place, a, b)
        return Value(call(function, self.condition(test), *sides), dtype)

    # -- calls

    def _call(self, node: ast.Call) -> Value:
        function = called(node.func)
        if function is None:
            if isinstance(node.func, ast.Attribute) and node.func.attr == "astype" and node.args:
                return self._cast(node, node.func.value, node.args[0])
            plain = node.func.id if isinstance(node.func, ast.Name) else ""
            if plain in ("min", "max", "abs", "float", "int", "bool"):
                return self._called(node, plain, node.args)
            raise self.state.error(node, f"a call of {ast.unparse(node.func)} is no value")
        if any(function.startswith(x) for x in OPAQUE):
            raise self.state.error(
                node, f"T.{function} is opaque: nothing says what it computes from what it reads"
            )
        return self._called(node, function, node.args)

    def _called(self, node: ast.expr, function: str, args: list[ast.expr]) -> Value:
        given = {k.arg: k.value for k in node.keywords} if isinstance(node, ast.Call) else {}
        if function in ("cast", "Cast"):
            both = [*args, *(given[k] for k in ("value", "dtype") if k in given)]
            if len(both) != 2:
                raise self.state.error(node, "a cast has a value and a dtype")
            first, second = both
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                first, second = second, first
            return self._cast(node, first, second)
        if function in CHOICES and len(args) == 3:
            return self._chosen(CHOICES[function], node, *args)
        if function in OPERATORS and len(args) == 2:
            text = OPERATORS[function]
            left = ast.copy_location(name("a"), node)
            tree = ast.parse(f"a {text} b", mode="eval").body
            if isinstance(tree, ast.BinOp):
                return self.operation(node, tree.op, self.value(args[0]), self.value(args[1]))
            if isinstance(tree, ast.BoolOp):
                return self._bool(ast.copy_location(ast.BoolOp(tree.op, args), left))
            assert isinstance(tree, ast.Compare)
            return self._compare(ast.copy_location(ast.Compare(args[0], tree.ops, [args[1]]), left))
        special = self.special.get(function)
        if special is not None:
            return special(self, node, args)
        if function in dtypes.DTYPES:
            return self._number(node, function, args)
        if function in FUNCTIONS:
            op = FUNCTIONS[function]
            if OPS[op].arity != len(args):
                raise self.state.error(node, f"T.{function} takes {OPS[op].arity} arguments")
            operands, dtype = self.unified(node, *map(self.value, args))
            if OPS[op].result == "float" and not is_real(dtype):
                operands = [self.converted(node, self.value(x), "float32") for x in args]
                dtype = "float32"
            return Value(call(op, *operands), dtype)
        raise self.state.error(node, f"T.{function} has no counterpart here")

    def _cast(self, node: ast.expr, value: ast.expr, to: ast.expr) -> Value:
        dtype = self.dtype(to)
        e = self.value(value)
        if dtype in ("int32", "int64") and e.dtype in (INDEX, INT):
            return Value(e.node, e.dtype)
        if e.dtype == INT and number_of(e.node) is not None:
            return Value(call(dtype, e.node), dtype)
        return Value(self.converted(node, e, dtype), dtype)

    def dtype(self, node: ast.expr) -> str:
        """A dtype, given as a text or by a name that stands for one."""
        found: object = node.value if isinstance(node, ast.Constant) else None
        if isinstance(node, ast.Name):
            found = self.state.names.get(node.id)
        if isinstance(node, ast.Attribute) and node.attr == "dtype":
            thing = self.state.names.get(ast.unparse(node.value))
            found = getattr(thing, "dtype", None)
        if not isinstance(found, str):
            found = called(node)
        if found not in dtypes.DTYPES:
            raise self.state.error(
                node, f"dtype {ast.unparse(node)}; expected one of {', '.join(dtypes.DTYPES)}"
            )
        return str(found)

    def _number(self, node: ast.expr, dtype: str, args: list[ast.expr]) -> Value:
        """`T.float32(0.5)`; `T.int32(4)` is a plain number, which takes the type of its place."""
        if len(args) != 1:
            raise self.state.error(node, f"T.{dtype} takes one argument")
        (arg,) = args
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
            return Value(call(dtype, arg), dtype)
        e = self.value(arg)
        if dtype in ("int32", "int64") and e.dtype in (INT, INDEX):
            return Value(e.node, INDEX if dtype == "int32" else dtype)
        if e.dtype in (INT, FLOAT):
            return Value(call(dtype, e.node), dtype)
        return Value(self.converted(node, e, dtype), dtype)


def _folded(op: ast.operator, m: int, n: int) -> int | None:
    if isinstance(op, ast.Add):
        return m + n
    if isinstance(op, ast.Sub):
        return m - n
    if isinstance(op, ast.Mult):
        return m * n
    if n and isinstance(op, (ast.FloorDiv, ast.Mod)):
        return m // n if isinstance(op, ast.FloorDiv) else m % n
    return None


_READERS: dict[type[ast.expr], Callable[[Values, ast.expr], Value]] = {
    ast.Constant: Values._constant,  # type: ignore[dict-item]
    ast.Name: Values._name,  # type: ignore[dict-item]
    ast.UnaryOp: Values._unary,  # type: ignore[dict-item]
    ast.BinOp: Values._binary,  # type: ignore[dict-item]
    ast.BoolOp: Values._bool,  # type: ignore[dict-item]
    ast.Compare: Values._compare,  # type: ignore[dict-item]
    ast.IfExp: Values._choice,  # type: ignore[dict-item]
    ast.Subscript: Values.subscript,  # type: ignore[dict-item]
    ast.Attribute: Values.fact,  # type: ignore[dict-item]
    ast.Call: Values._call,  # type: ignore[dict-item]
}
