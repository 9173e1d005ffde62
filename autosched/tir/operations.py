"""The table of operations: how each is written, what it is defined on, and what it means."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Op:
    """One row of the operation table.

    `result` gives the dtype of the result from those of the arguments: "same" as the first,
    "bool", "float" (same, and only defined on floats), "int" (same, only on integers), or "given",
    where the call says it. `symbol`
    prints infix where there is one. `cost` is the class under which FLOP counts and features file
    it: one of addsub, mul, div, cmp, math, select, bool, cast. `numpy` is the meaning, and the
    oracle of the tests.
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


def _exp10(x: Any) -> Any:
    return np.power(np.asarray(x).dtype.type(10), x)


def _bits(x: Any) -> Any:
    values = np.asarray(x)
    return values.view(f"uint{8 * values.dtype.itemsize}")


def _popcount(x: Any) -> Any:
    patterns = _bits(x)
    one = patterns.dtype.type(1)
    width = range(8 * patterns.dtype.itemsize)
    return np.asarray(sum(patterns >> one.dtype.type(n) & one for n in width)).astype(
        np.asarray(x).dtype
    )


def _clz(x: Any) -> Any:
    """Zeros above the highest bit that is set."""
    patterns = _bits(x)
    width = 8 * patterns.dtype.itemsize
    left = sum((patterns >> patterns.dtype.type(n) != 0).astype(np.int64) for n in range(width))
    return np.asarray(width - left).astype(np.asarray(x).dtype)


CONVERSIONS = ("cast", "reinterpret")
"""Operations whose result has the dtype that the call gives."""
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
    "bitwise_or": Op(2, "int", "|", "addsub", np.bitwise_or, 42),
    "bitwise_xor": Op(2, "int", "^", "addsub", np.bitwise_xor, 44),
    "bitwise_and": Op(2, "int", "&", "addsub", np.bitwise_and, 46),
    "bitwise_not": Op(1, "int", None, "addsub", np.bitwise_not),
    "shift_left": Op(2, "int", "<<", "addsub", np.left_shift, 48),
    "shift_right": Op(2, "int", ">>", "addsub", np.right_shift, 48),
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
    "reinterpret": Op(1, "given", None, "cast", None),  # type: ignore[arg-type]
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
    "tan": Op(1, "float", None, "math", np.tan),
    "asin": Op(1, "float", None, "math", np.arcsin),
    "acos": Op(1, "float", None, "math", np.arccos),
    "atan": Op(1, "float", None, "math", np.arctan),
    "atan2": Op(2, "float", None, "math", np.arctan2),
    "sinh": Op(1, "float", None, "math", np.sinh),
    "cosh": Op(1, "float", None, "math", np.cosh),
    "asinh": Op(1, "float", None, "math", np.arcsinh),
    "acosh": Op(1, "float", None, "math", np.arccosh),
    "atanh": Op(1, "float", None, "math", np.arctanh),
    "exp2": Op(1, "float", None, "math", np.exp2),
    "exp10": Op(1, "float", None, "math", _exp10),
    "expm1": Op(1, "float", None, "math", np.expm1),
    "log2": Op(1, "float", None, "math", np.log2),
    "log10": Op(1, "float", None, "math", np.log10),
    "log1p": Op(1, "float", None, "math", np.log1p),
    "hypot": Op(2, "float", None, "math", np.hypot),
    "fmod": Op(2, "float", None, "math", np.fmod),
    "copysign": Op(2, "float", None, "cmp", np.copysign),
    "trunc": Op(1, "float", None, "math", np.trunc),
    "nextafter": Op(2, "float", None, "addsub", np.nextafter),
    "popcount": Op(1, "int", None, "addsub", _popcount),
    "clz": Op(1, "int", None, "addsub", _clz),
}
"""`select` evaluates both sides; `if_then_else` evaluates only the side taken, so its condition
may guard an access that would be out of bounds. `floordiv` and `floormod` round to minus
infinity. Shifts by less than 0 or by the width and more shift everything out: 0 is left, or -1 of
what is negative and shifted to the right."""
ON_BOOL = {"bitwise_or": "or", "bitwise_xor": "ne", "bitwise_and": "and", "bitwise_not": "not"}
"""What bitwise operations are on conditions."""
