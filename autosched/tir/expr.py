"""Scalar expressions: the bodies of blocks and of tensor expressions.

Four node types only: a variable, a constant, a slot (the value of one of the enclosing block's
accesses) and a call of an operation of the table `OPS` in `operations.py`. All are immutable and
compare by identity; `same` compares structure. Operators build calls, `a < b` included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self, Union

import numpy as np

from autosched.checks import shown
from autosched.errors import TensorExprError
from autosched.tir import dtypes
from autosched.tir.operations import CONVERSIONS, ON_BOOL, OPS
from autosched.tir.promote import promoted

Scalar = Union[int, float, bool]
ExprLike = Union["Operators", int, float, bool]
Operator = Callable[["Operators", ExprLike], "Expr"]

COMPARISONS = (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal)
NO_TRUTH_VALUE = (
    "an expression has no truth value while the program is being written; "
    "use te.if_then_else(condition, a, b), te.all(...) or te.any(...)"
)


def _operator(op: str) -> tuple[Operator, Operator]:
    """The methods of an operator of Python's, from the left and from the right."""
    return lambda a, b: binary(op, a, b), lambda a, b: binary(op, b, a)


class Operators:
    """The operators of expressions, for all that `as_expr` makes one of. Nothing of it changes,
    and all compares by identity, so a copy is the thing itself."""

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub")
    __mul__, __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("div")
    __floordiv__, __rfloordiv__ = _operator("floordiv")
    __mod__, __rmod__ = _operator("floormod")
    __and__, __rand__ = _operator("bitwise_and")
    __or__, __ror__ = _operator("bitwise_or")
    __xor__, __rxor__ = _operator("bitwise_xor")
    __lshift__, __rlshift__ = _operator("shift_left")
    __rshift__, __rrshift__ = _operator("shift_right")
    __lt__, __gt__ = _operator("lt")[0], _operator("gt")[0]
    __le__, __ge__ = _operator("le")[0], _operator("ge")[0]

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __pos__(self) -> Expr:
        return apply(as_expr, "copy", self)

    def __abs__(self) -> Expr:
        return unary("abs", self)

    def __invert__(self) -> Expr:
        return unary("bitwise_not", self)

    def __pow__(self, other: ExprLike) -> Expr:
        return power(self, other)

    def __rpow__(self, other: ExprLike) -> Expr:
        return power(other, self)

    def __matmul__(self, other: object) -> Expr:
        raise TensorExprError(
            "an expression has no operator @; write te.compute with te.sum(A[i, k] * B[k, j], "
            "axis=k)"
        )

    __rmatmul__ = __matmul__

    def __divmod__(self, other: object) -> Expr:
        raise TensorExprError("an expression has no divmod; use x // y and x % y")

    __rdivmod__ = __divmod__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's operators, as in `np.float32(2) * x`, are ours; its functions are refused."""
        boxed = [np.array(x, dtype=object) if isinstance(x, Operators) else x for x in inputs]
        if method == "__call__" and ufunc in COMPARISONS:
            options.setdefault("dtype", object)  # else NumPy asks the result for its truth value
        try:
            return getattr(ufunc, method)(*boxed, **options)
        except (TypeError, ValueError) as error:
            ours = [n for n, op in OPS.items() if op.numpy is ufunc and op.cost == "math"]
            hint = f"te.{ours[0]}" if ours else "the functions of autosched.te"
            raise TensorExprError(
                f"np.{ufunc.__name__} does not take an expression; use {hint}"
            ) from error

    def astype(self, dtype: str) -> Expr:
        """This expression converted to `dtype`."""
        return cast(self, dtype)


class Expr(Operators):
    """Base of all expressions. Has `.dtype`; compares by identity (see `same`)."""

    __slots__ = ()
    dtype: str

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("eq", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("ne", self, other)  # type: ignore[arg-type]

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TensorExprError(NO_TRUTH_VALUE)

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
    number: Any = value.item() if isinstance(value, np.generic) else value
    if not isinstance(number, (bool, int, float)):
        raise TensorExprError(f"a constant is {shown(value)}; expected a number")
    if dtype is None:
        kinds = {bool: "bool", int: "int64", float: "float32"}
        dtype = next(name for kind, name in kinds.items() if isinstance(number, kind))
    dtypes.check(dtype, "a constant")
    if dtypes.is_float(dtype):
        return Const(_float(number), dtype)
    if dtype == "bool":
        return Const(bool(number), dtype)
    if number != number or number in (float("inf"), float("-inf")) or int(number) != number:
        raise TensorExprError(f"constant {number!r} is no {dtype}; cast it or use a float dtype")
    if not dtypes.minimum(dtype) <= number <= dtypes.maximum(dtype):
        raise TensorExprError(f"constant {number!r} does not fit {dtype}")
    return Const(int(number), dtype)


def _float(number: int | float) -> float:
    try:
        return float(number)
    except OverflowError as e:
        raise TensorExprError(f"constant {shown(number)} is beyond every float dtype") from e


def as_expr(value: ExprLike, like: str | None = None) -> Expr:
    """`value` as an expression; a Python number takes the dtype `like` where it fits."""
    if isinstance(value, Expr):
        return value
    convert = getattr(value, "__as_expr__", None)
    if convert is not None and not isinstance(value, type):  # te.Tensor of rank 0
        return convert()  # type: ignore[no-any-return]
    if isinstance(value, (bool, int, float, np.generic)):
        # A float64 of NumPy is a float of Python; the others say which dtype is meant.
        if like is not None and (isinstance(value, float) or not isinstance(value, np.generic)):
            if isinstance(value, float) and not dtypes.is_float(like):
                return const(value)
            return const(value, like)
        return const(value)
    raise TensorExprError(
        f"expected a number or an expression, found {type(value).__name__}: {shown(value)}"
    )


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """Call of a two-argument operation; Python numbers take the other side's dtype, and operands of
    different dtypes meet in the one that `promote.promoted` gives.

    Raises TensorExprError where there is none.
    """
    return apply(lambda x, y: call(op, *matched(OPS[op].symbol or op, x, y)), op, a, b)


def unary(op: str, x: ExprLike) -> Expr:
    """Call of a one-argument operation."""
    return apply(lambda v: call(op, as_expr(v)), op, x)


def apply(function: Callable[..., Expr], name: str, *operands: ExprLike) -> Expr:
    """`function` of the operands; where one is a whole tensor, or all are such of rank 0 and
    numbers, the tensor of it for each element, called `name` (te.Tensor does that:
    `__elementwise__`)."""
    whole: list[Any] = [x for x in operands if hasattr(x, "__elementwise__")]
    others = len(whole) < sum(isinstance(x, Operators) for x in operands)
    if any(x.shape for x in whole) or (whole and not others):
        return whole[0].__elementwise__(function, name, operands)  # type: ignore[no-any-return]
    return function(*operands)


def matched(what: str, a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    """Both operands in one dtype; `what` names the operation in errors."""
    like_b = getattr(b, "dtype", None)
    left = as_expr(a, like_b if isinstance(like_b, str) else None)
    right = as_expr(b, left.dtype)
    if left.dtype == right.dtype:
        return left, right
    together = promoted(left.dtype, right.dtype)
    if together is None:
        raise TensorExprError(
            f"operands of {what} have different dtypes: {left.dtype}, {right.dtype}, and no "
            "integer dtype holds both; convert one with .astype(...)"
        )
    return cast(left, together), cast(right, together)


def power(x: ExprLike, y: ExprLike) -> Expr:
    """x to the power of y: of floats any, of integers a constant number of factors.

    Raises TensorExprError on an integer to the power of something else.
    """
    return apply(_power, "pow", x, y)


def _power(x: ExprLike, y: ExprLike) -> Expr:
    left, right = matched("**", x, y)
    if dtypes.is_float(left.dtype):
        return call("pow", left, right)
    if not isinstance(right, Const) or not 0 <= right.value <= 64:
        raise TensorExprError(
            f"{left!r} ** {right!r} is a power of {left.dtype}; expected a constant exponent from "
            "0 to 64, or convert the base with .astype('float32')"
        )
    result, square, left_over = const(1, left.dtype), left, int(right.value)
    total: Expr = result
    while left_over:
        if left_over & 1:
            total = square if total is result else call("mul", total, square)
        left_over >>= 1
        square = call("mul", square, square) if left_over else square
    return total


def call(op: str, *args: Expr, dtype: str | None = None) -> Expr:
    """Call of `op`, type-checked and folded where all arguments are constants of integer type."""
    if op in ON_BOOL and args[0].dtype == "bool":
        op = ON_BOOL[op]
    row = OPS[op]
    if len(args) != row.arity:
        raise TensorExprError(f"{op} takes {row.arity} arguments, found {len(args)}")
    operands = args[1:] if op in ("select", "if_then_else") else args
    if row.result != "given" and operands is args and all(x.dtype == "bfloat16" for x in args):
        # No processor of today computes all of it: in float32, rounded after each operation.
        wide = call(op, *(cast(x, "float32") for x in args))
        return cast(wide, "bfloat16") if wide.dtype == "float32" else wide
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
        hint = {"div": "use // for integer division"}.get(op, "convert it with .astype('float32')")
        raise TensorExprError(f"{op} is not defined on {args[0].dtype}; {hint}")
    if row.result == "int" and not dtypes.is_int(args[0].dtype):
        raise TensorExprError(
            f"{row.symbol or op} is not defined on {args[0].dtype}; expected integers, or for "
            "&, |, ^ and ~ conditions"
        )
    if op in ("neg", "abs") and args[0].dtype == "bool":
        raise TensorExprError(f"{op} is not defined on bool")
    result = {"bool": "bool", "given": dtype}.get(row.result, operands[0].dtype)
    assert result is not None
    folded = _fold(op, args, result)
    return folded if folded is not None else Call(op, tuple(args), result)


def as_arithmetic(e: Call) -> Call:
    """Shifts by a constant and masks of the low bits, as products and quotients, which proofs and
    index forms know; all else as it is."""
    b = e.args[-1]
    if OPS[e.op].result == "int" and isinstance(b, Const) and 0 <= b.value < 1 << 62:
        n = int(b.value)
        shift = {"shift_left": "mul", "shift_right": "floordiv"}.get(e.op)
        if shift is not None and n < 62:
            return Call(shift, (e.args[0], Const(1 << n, e.dtype)), e.dtype)
        if e.op == "bitwise_and" and n & (n + 1) == 0:
            return Call("floormod", (e.args[0], Const(n + 1, e.dtype)), e.dtype)
    return e


def cast(value: ExprLike, dtype: str) -> Expr:
    """`value` converted to `dtype`; floats to integers truncate, what does not fit
    becomes the least or the largest integer, and NaN 0."""
    dtypes.check(dtype, "a cast")
    return apply(lambda v: _cast(as_expr(v), dtype), "cast", value)


def _cast(expr: Expr, dtype: str) -> Expr:
    if expr.dtype == dtype:
        return expr
    if "bfloat16" in (expr.dtype, dtype) and "float32" not in (expr.dtype, dtype):
        return cast(cast(expr, "float32"), dtype)
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
            if (op, b.value) in (("add", 0), ("sub", 0), ("mul", 1), ("floordiv", 1)):
                return a
            if (op, b.value) in (("mul", 0), ("floormod", 1)):
                return Const(0, dtype)
        if a.dtype == dtypes.INDEX and isinstance(a, Const):
            if (op, a.value) in (("add", 0), ("mul", 1)):
                return b
            if (op, a.value) == ("mul", 0):
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
    stack = [expr]
    while stack:
        e = stack.pop()
        yield e
        stack += reversed(children(e))


def rewrite(expr: Expr, leaf: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild `expr`, replacing every node for which `leaf` returns something, outermost first."""
    replaced = leaf(expr)
    if replaced is not None:
        return replaced
    if isinstance(expr, Call):
        args = tuple(rewrite(x, leaf) for x in expr.args)
        if all(x is y for x, y in zip(args, expr.args, strict=True)):
            return expr
        if expr.op in CONVERSIONS:
            return Call(expr.op, args, expr.dtype)
        return call(expr.op, *args, dtype=expr.dtype)
    return expr


def substitute(expr: Expr, values: dict[Var, Expr]) -> Expr:
    """Replace variables by expressions."""
    return rewrite(expr, lambda e: values.get(e) if isinstance(e, Var) else None)
