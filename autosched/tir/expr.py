"""Scalar expressions: the bodies of blocks and of tensor expressions.

Four node types only: a variable, a constant, a slot (the value of one of the enclosing block's
accesses) and a call of an operation of the table `OPS`. All are immutable and compare by identity;
`same` compares structure. Operators build calls, `a < b` included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from autosched.errors import TensorExprError
from autosched.tir import dtypes

Scalar = Union[int, float, bool]
ExprLike = Union["Expr", int, float, bool]


@dataclass(frozen=True)
class Op:
    """One row of the operation table.

    `result` gives the dtype of the result from those of the arguments: "same" as the first,
    "bool", or "float" (same, and only defined on floats). `symbol` prints infix where there is
    one. `cost` is the class under which FLOP counts and features file it: one of addsub, mul, div,
    cmp, math, select, bool, cast. `numpy` is the meaning, and the oracle of the tests.
    """

    arity: int
    result: str
    symbol: str | None
    cost: str
    numpy: Callable[..., Any]
    precedence: int = 100


def _floordiv(a: Any, b: Any) -> Any:
    return np.floor_divide(a, b)


def _div(a: Any, b: Any) -> Any:
    return np.true_divide(a, b).astype(np.result_type(a), copy=False)


def _erf(x: Any) -> Any:
    from math import erf

    return np.vectorize(erf, otypes=[np.asarray(x).dtype])(x)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


OPS: dict[str, Op] = {
    "add": Op(2, "same", "+", "addsub", np.add, 50),
    "sub": Op(2, "same", "-", "addsub", np.subtract, 50),
    "mul": Op(2, "same", "*", "mul", np.multiply, 60),
    "div": Op(2, "float", "/", "div", _div, 60),
    "floordiv": Op(2, "same", "//", "div", _floordiv, 60),
    "floormod": Op(2, "same", "%", "div", np.mod, 60),
    "min": Op(2, "same", None, "cmp", np.minimum),
    "max": Op(2, "same", None, "cmp", np.maximum),
    "pow": Op(2, "float", None, "math", np.power),
    "neg": Op(1, "same", None, "addsub", np.negative),
    "abs": Op(1, "same", None, "addsub", np.abs),
    "lt": Op(2, "bool", "<", "cmp", np.less, 40),
    "le": Op(2, "bool", "<=", "cmp", np.less_equal, 40),
    "gt": Op(2, "bool", ">", "cmp", np.greater, 40),
    "ge": Op(2, "bool", ">=", "cmp", np.greater_equal, 40),
    "eq": Op(2, "bool", "==", "cmp", np.equal, 40),
    "ne": Op(2, "bool", "!=", "cmp", np.not_equal, 40),
    "and": Op(2, "bool", "and", "bool", np.logical_and, 20),
    "or": Op(2, "bool", "or", "bool", np.logical_or, 10),
    "not": Op(1, "bool", None, "bool", np.logical_not),
    "select": Op(3, "second", None, "select", np.where),
    "if_then_else": Op(3, "second", None, "select", np.where),
    "cast": Op(1, "given", None, "cast", None),  # type: ignore[arg-type]
    "exp": Op(1, "float", None, "math", np.exp),
    "log": Op(1, "float", None, "math", np.log),
    "sqrt": Op(1, "float", None, "math", np.sqrt),
    "rsqrt": Op(1, "float", None, "math", lambda x: 1 / np.sqrt(x)),
    "tanh": Op(1, "float", None, "math", np.tanh),
    "erf": Op(1, "float", None, "math", _erf),
    "sigmoid": Op(1, "float", None, "math", _sigmoid),
    "floor": Op(1, "float", None, "math", np.floor),
    "ceil": Op(1, "float", None, "math", np.ceil),
    "round": Op(1, "float", None, "math", np.rint),
    "sin": Op(1, "float", None, "math", np.sin),
    "cos": Op(1, "float", None, "math", np.cos),
}
"""`select` evaluates both sides; `if_then_else` evaluates only the side taken, so its condition
may guard an access that would be out of bounds. `floordiv` and `floormod` round to minus
infinity."""


class Expr:
    """Base of all expressions. Has `.dtype`; compares by identity (see `same`)."""

    __slots__ = ()
    dtype: str

    def __add__(self, other: ExprLike) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("floormod", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("floormod", other, self)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __pow__(self, other: object) -> Expr:
        raise TensorExprError("an expression has no operator **; use te.pow(x, y), both floats")

    __rpow__ = __pow__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's operators, as in `np.float32(2) * x`, are ours; its functions are refused."""
        boxed = [np.array(x, dtype=object) if isinstance(x, Expr) else x for x in inputs]
        try:
            return getattr(ufunc, method)(*boxed, **options)
        except TypeError as error:
            ours = [n for n, op in OPS.items() if op.numpy is ufunc and op.cost == "math"]
            hint = f"te.{ours[0]}" if ours else "the functions of autosched.te"
            raise TensorExprError(
                f"np.{ufunc.__name__} does not take an expression; use {hint}"
            ) from error

    def __lt__(self, other: ExprLike) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return binary("ge", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("eq", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("ne", self, other)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise TensorExprError(
            "an expression has no truth value while the program is being written; "
            "use te.if_then_else(condition, a, b), te.all(...) or te.any(...)"
        )

    def astype(self, dtype: str) -> Expr:
        """This expression converted to `dtype`."""
        return cast(self, dtype)

    def __repr__(self) -> str:
        from autosched.tir.printer import format_expr

        return format_expr(self)


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Var(Expr):
    """A loop variable, a block's axis or a symbolic size. Two Vars are equal if they are one
    object."""

    name: str
    dtype: str = dtypes.INDEX


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Const(Expr):
    """A constant of a known dtype."""

    value: Scalar
    dtype: str


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Slot(Expr):
    """The value of `reads[index]` of the enclosing block."""

    index: int
    dtype: str


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Call(Expr):
    """The operation `op` of the table `OPS` on `args`."""

    op: str
    args: tuple[Expr, ...]
    dtype: str

    def __bool__(self) -> bool:
        # `a == b` must be usable by `in`, dict and set, which ask for its truth value. They do not
        # compare with constants: that is somebody writing `if i == 0` for te.if_then_else.
        if self.op in ("eq", "ne") and not any(isinstance(x, Const) for x in self.args):
            a, b = self.args
            return same(a, b) == (self.op == "eq")
        return Expr.__bool__(self)


def const(value: Scalar | np.generic, dtype: str | None = None) -> Const:
    """A constant; without `dtype`, int64 for ints, float32 for floats, bool for bools.

    Raises TensorExprError if `value` does not fit `dtype` (an int out of range, a fraction).
    """
    if isinstance(value, np.generic):
        dtype = dtype or value.dtype.name
    number: Scalar = value.item() if isinstance(value, np.generic) else value
    if dtype is None:
        dtype = (
            "bool"
            if isinstance(number, bool)
            else "int64"
            if isinstance(number, int)
            else "float32"
        )
    dtypes.check(dtype, "a constant")
    if dtypes.is_float(dtype):
        return Const(float(number), dtype)
    if dtype == "bool":
        return Const(bool(number), dtype)
    if number != number or number in (float("inf"), float("-inf")) or int(number) != number:
        raise TensorExprError(f"constant {number!r} is no {dtype}; cast it or use a float dtype")
    if not dtypes.minimum(dtype) <= number <= dtypes.maximum(dtype):
        raise TensorExprError(f"constant {number!r} does not fit {dtype}")
    return Const(int(number), dtype)


def as_expr(value: ExprLike, like: str | None = None) -> Expr:
    """`value` as an expression; a Python number takes the dtype `like` where it fits."""
    if isinstance(value, Expr):
        return value
    convert = getattr(value, "__as_expr__", None)
    if convert is not None:  # te.IterVar and te.Tensor of rank 0
        return convert()  # type: ignore[no-any-return]
    if isinstance(value, (bool, int, float, np.generic)):
        if like is not None and not isinstance(value, np.generic):
            if isinstance(value, float) and not dtypes.is_float(like):
                return const(value)
            return const(value, like)
        return const(value)
    raise TensorExprError(
        f"expected a number or an expression, found {type(value).__name__}: {value!r}"
    )


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """Call of a two-argument operation; Python numbers take the other side's dtype.

    Raises TensorExprError on different dtypes: nothing is converted silently.
    """
    like_b = getattr(b, "dtype", None)
    left = as_expr(a, like_b if isinstance(like_b, str) else None)
    right = as_expr(b, left.dtype)
    return call(op, left, right)


def call(op: str, *args: Expr, dtype: str | None = None) -> Expr:
    """Call of `op`, type-checked and folded where all arguments are constants of integer type."""
    row = OPS[op]
    if len(args) != row.arity:
        raise TensorExprError(f"{op} takes {row.arity} arguments, found {len(args)}")
    operands = args[1:] if op in ("select", "if_then_else") else args
    if operands is args and args[0].dtype == "bfloat16":
        raise TensorExprError(
            f"{row.symbol or op} is not defined on bfloat16, which is for storage; compute in "
            "float32: convert with .astype('float32')"
        )
    if len({x.dtype for x in operands}) > 1:
        found = ", ".join(x.dtype for x in operands)
        raise TensorExprError(
            f"operands of {row.symbol or op} have different dtypes: {found}; "
            "convert one with .astype(...)"
        )
    if op in ("select", "if_then_else") and args[0].dtype != "bool":
        raise TensorExprError(f"condition of {op} has dtype {args[0].dtype}; expected bool")
    if op in ("and", "or", "not") and args[0].dtype != "bool":
        raise TensorExprError(f"operand of {op} has dtype {args[0].dtype}; expected bool")
    if row.result == "float" and not dtypes.is_float(args[0].dtype):
        hint = (
            "; use // for integer division"
            if op == "div"
            else "; convert it with .astype('float32')"
        )
        raise TensorExprError(f"{op} is not defined on {args[0].dtype}{hint}")
    if op in ("neg", "abs") and args[0].dtype == "bool":
        raise TensorExprError(f"{op} is not defined on bool")
    result = {
        "same": args[0].dtype,
        "float": args[0].dtype,
        "bool": "bool",
        "second": operands[0].dtype,
    }.get(row.result, dtype)
    assert result is not None
    folded = _fold(op, args, result)
    return folded if folded is not None else Call(op, tuple(args), result)


def cast(value: ExprLike, dtype: str) -> Expr:
    """`value` converted to `dtype` (floats to integers truncate, as in C)."""
    expr = as_expr(value)
    dtypes.check(dtype, "a cast")
    if expr.dtype == dtype:
        return expr
    if "bfloat16" in (expr.dtype, dtype) and "float32" not in (expr.dtype, dtype):
        raise TensorExprError(
            f"no conversion from {expr.dtype} to {dtype}; go through float32: "
            f".astype('float32').astype('{dtype}')"
        )
    return Call("cast", (expr,), dtype)


def _fold(op: str, args: tuple[Expr, ...], dtype: str) -> Expr | None:
    """Fold index arithmetic; float arithmetic is left as written."""
    a = args[0]
    if len(args) == 2:
        b = args[1]
        if isinstance(a, Const) and isinstance(b, Const) and a.dtype in ("int64", "bool"):
            if op in ("floordiv", "floormod") and b.value == 0:
                raise TensorExprError(f"{op} by zero")
            value = OPS[op].numpy(np.array(a.value), np.array(b.value)).item()
            return Const(value, dtype)
        if a.dtype == dtypes.INDEX and isinstance(b, Const):
            if b.value == 0 and op in ("add", "sub"):
                return a
            if b.value == 1 and op in ("mul", "floordiv"):
                return a
            if (b.value == 0 and op == "mul") or (b.value == 1 and op == "floormod"):
                return Const(0, dtype)
        if a.dtype == dtypes.INDEX and isinstance(a, Const):
            if a.value == 0 and op == "add":
                return b
            if a.value == 1 and op == "mul":
                return b
            if a.value == 0 and op == "mul":
                return Const(0, dtype)
        if op in ("and", "or"):
            for x, y in ((a, b), (b, a)):
                if isinstance(x, Const):
                    return y if bool(x.value) == (op == "and") else x
    elif op in ("select", "if_then_else") and isinstance(a, Const):
        return args[1] if a.value else args[2]
    return None


def same(a: Expr, b: Expr, variables: dict[Var, Var] | None = None) -> bool:
    """Structural equality; `variables` maps variables of `a` to those of `b` (identity where
    absent)."""
    if a is b:
        return True
    if type(a) is not type(b) or a.dtype != b.dtype:
        return False
    if isinstance(a, Var):
        return variables is not None and variables.get(a) is b
    if isinstance(a, Const):
        # repr tells -0.0 from 0.0 and makes NaN equal to itself
        return repr(a.value) == repr(b.value)  # type: ignore[attr-defined]
    if isinstance(a, Slot):
        return a.index == b.index  # type: ignore[attr-defined, no-any-return]
    if isinstance(a, Call):
        assert isinstance(b, Call)
        return (
            a.op == b.op
            and len(a.args) == len(b.args)
            and all(same(x, y, variables) for x, y in zip(a.args, b.args, strict=True))
        )
    return bool(a.same_leaf(b))  # type: ignore[attr-defined]


def children(expr: Expr) -> tuple[Expr, ...]:
    """Direct subexpressions."""
    return expr.args if isinstance(expr, Call) else getattr(expr, "indices", ())


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all below it, parents first."""
    yield expr
    for child in children(expr):
        yield from walk(child)


MAX_HEIGHT = 200
"""Of an expression: what reads, proves, prints and compiles expressions recurses into them."""


def height(expr: Expr) -> int:
    """Nodes on the longest way down; 1 for a leaf."""
    return _counted(expr, lambda below: max(below, default=0))


def size(expr: Expr) -> int:
    """Nodes, each counted as often as it is used."""
    return _counted(expr, sum)


def _counted(expr: Expr, together: Callable[[Iterable[int]], int]) -> int:
    """1 more than what the figures of those below a node come to, without recursion."""
    known: dict[int, int] = {}
    stack = [expr]
    while stack:
        e = stack[-1]
        below = [x for x in children(e) if id(x) not in known]
        if below:
            stack += below
        else:
            known[id(e)] = 1 + together(known[id(x)] for x in children(e))
            stack.pop()
    return known[id(expr)]


def rewrite(expr: Expr, leaf: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild `expr`, replacing every node for which `leaf` returns something, outermost first."""
    replaced = leaf(expr)
    if replaced is not None:
        return replaced
    if isinstance(expr, Call):
        args = tuple(rewrite(x, leaf) for x in expr.args)
        if all(x is y for x, y in zip(args, expr.args, strict=True)):
            return expr
        return (
            call(expr.op, *args, dtype=expr.dtype)
            if expr.op != "cast"
            else Call("cast", args, expr.dtype)
        )
    return expr


def substitute(expr: Expr, values: dict[Var, Expr]) -> Expr:
    """Replace variables by expressions."""
    return rewrite(expr, lambda e: values.get(e) if isinstance(e, Var) else None)
