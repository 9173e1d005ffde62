"""Recording NumPy calls on columns as instructions of a tape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.errors import AutoschedError

Operand = int
"""The instruction of that number; below zero the constant number `-1 - operand`."""


_COMPARISONS = {
    "less": np.less,
    "less_equal": np.less_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}


_LOGICAL: dict[str, Callable[..., Any]] = {
    **_COMPARISONS,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_not": np.logical_not,
}


_EVALUATE: dict[str, Callable[..., Any]] = {
    **_LOGICAL,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "negative": np.negative,
    "absolute": np.absolute,
    "floor": np.floor,
    "ceil": np.ceil,
    "where": np.where,
    "lowest_bit": lambda x: np.float64(np.int64(x) & -np.int64(x)),
}


_COMMUTATIVE = frozenset(
    {"add", "multiply", "minimum", "maximum", "equal", "not_equal", "logical_and", "logical_or"}
)


_RENAMED = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "invert": "logical_not"}


_SWAPPED = {"greater": "less", "greater_equal": "less_equal"}


class NotRecordable(AutoschedError):
    """The computation did something with a column that a tape cannot repeat."""


class Column(np.ndarray[Any, Any]):
    """A column under recording. It has a shape and no values: those are computed where the code
    decides by them, see `Recorder.decide`."""

    recorder: Recorder | None
    ref: Operand

    def __array_finalize__(self, _: object) -> None:
        self.recorder = None

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any
    ) -> Any:
        if method == "__call__" and out is None and not kwargs:
            return _recorder_of(inputs).apply(ufunc.__name__, inputs)
        if method == "reduce" and ufunc in (np.logical_and, np.logical_or):
            return _recorder_of(inputs).decide(inputs[0], ufunc is np.logical_and)
        raise NotRecordable(f"a tape has no {ufunc.__name__}.{method} with out or options")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func is np.where and len(args) == 3:
            return _recorder_of(args).apply("where", args)
        if func in (np.all, np.any, np.clip):
            return super().__array_function__(func, types, args, kwargs)
        raise NotRecordable(f"a tape has no {func.__name__}")

    def __getitem__(self, _: Any) -> Any:
        raise NotRecordable("a tape has no single rows")

    def astype(self, dtype: Any, *_: Any, **__: Any) -> Any:
        """The column itself: tapes know one type of number."""
        if np.dtype(dtype).kind not in "fi":  # truth values are 0 and 1
            raise NotRecordable(f"a tape has no conversion to {dtype}")
        return self


def _recorder_of(values: Sequence[Any]) -> Recorder:
    for v in values:
        if type(v) is Column and v.recorder is not None:
            return v.recorder
    raise NotRecordable("a column of unknown origin: a view or copy of a recorded one")


class Recorder:
    """Notes instructions, each different one once, and the facts that the computation relied on.

    Parallel lists over instructions: operation and operands, values for the candidates at hand
    (None as long as nothing asks for them), and bounds of all values that it can take.
    """

    def __init__(self) -> None:
        self.code: list[tuple[str, tuple[Operand, ...]]] = []
        self.constants: list[float] = []
        self.guards: dict[Operand, None] = {}
        self._values: list[Any] = []
        self._shape: npt.NDArray[np.int64] | None = None
        self._low: list[float] = []
        self._high: list[float] = []
        self._known: dict[tuple[str, tuple[Operand, ...]], Operand] = {}
        self._constant: dict[float, Operand] = {}

    def column(self, values: npt.ArrayLike, low: float, high: float) -> Column:
        """A new input, its values in [low, high]."""
        data = np.asarray(values)
        if self._shape is None:
            self._shape = np.broadcast_to(np.int64(0), data.shape)
        ref = self._append("input", (), low, high)
        self._values[ref] = data
        return self._column(ref)

    def _append(self, op: str, operands: tuple[Operand, ...], low: float, high: float) -> Operand:
        self.code.append((op, operands))
        self._values.append(None)
        self._low.append(low)
        self._high.append(high)
        return len(self.code) - 1

    def _column(self, ref: Operand) -> Column:
        assert self._shape is not None  # the inputs came first
        made = self._shape.view(Column)
        made.recorder, made.ref = self, ref
        return made

    def _value(self, ref: Operand) -> Any:
        """Values of an instruction for the candidates at hand."""
        pending = [ref]
        while pending:
            x = pending[-1]
            op, operands = self.code[x]
            missing = [y for y in operands if y >= 0 and self._values[y] is None]
            if self._values[x] is None and not missing:
                given = (self._values[y] if y >= 0 else self._number(y) for y in operands)
                self._values[x] = _EVALUATE[op](*given)
            pending += missing
            if not missing:
                pending.pop()
        return self._values[ref]

    def operand(self, value: Any) -> Operand:
        """What stands for a value in an instruction."""
        if type(value) is Column:
            if value.recorder is not self:
                raise NotRecordable("a column of unknown origin: a view or copy of a recorded one")
            return value.ref
        kind = type(value)
        if kind is int or kind is float or kind is np.int64:
            return self._literal(float(value))
        if isinstance(value, np.ndarray) and value.ndim:
            raise NotRecordable(f"an array of shape {value.shape} that no recorded operation made")
        return self._literal(float(value))

    def _literal(self, value: float) -> Operand:
        found = self._constant.get(value)
        if found is None:
            self.constants.append(value)
            found = self._constant[value] = -len(self.constants)
        return found

    def _number(self, x: Operand) -> float:
        return self.constants[-1 - x]

    def apply(self, name: str, inputs: Sequence[Any]) -> Any:
        """The result of an operation, noted: a column, or a number where it is one for all."""
        name = _RENAMED.get(name, name)
        made = self._emit(name, tuple(map(self.operand, inputs)))
        if made >= 0:
            return self._column(made)
        number = self._number(made)
        if name in _LOGICAL or name in _SWAPPED:
            return np.bool_(number)
        return np.int64(number) if number.is_integer() and abs(number) < 2**52 else number

    def decide(self, condition: Any, universal: bool) -> np.bool_:
        """Whether a condition holds for all candidates (`universal`), or for some. What holds for
        all of them becomes a guard."""
        ref = self.operand(condition)
        if ref < 0:
            return np.bool_(self._number(ref))
        values = self._value(ref)
        answer = np.bool_(values.all() if universal else values.any())
        if bool(answer) is universal:
            truth = (
                ref
                if self.code[ref][0] in _LOGICAL
                else self._emit("not_equal", (ref, self._literal(0.0)))
            )
            kept = truth if universal else self._emit("logical_not", (truth,))
            if kept >= 0:
                self.guards[kept] = None
        return answer

    def kept(self) -> Operand:
        """Whether a row keeps all guards."""
        total = self._literal(1.0)
        for guard in self.guards:
            total = self._emit("logical_and", (total, guard))
        return total

    # Emitting --------------------------------------------------------------------------------

    def _emit(self, op: str, operands: tuple[Operand, ...]) -> Operand:
        if op not in _EVALUATE:
            return self._expanded(op, operands)
        if max(operands) < 0:
            return self._literal(float(_EVALUATE[op](*map(self._number, operands))))
        if len(operands) == 2 and op in _COMMUTATIVE and operands[0] > operands[1]:
            operands = operands[::-1]  # constants first
        found = self._known.get((op, operands))
        if found is None:
            simple = self._simplified(op, operands)
            found = (
                self._append(op, operands, *self._bounds(op, operands))
                if simple is None
                else simple
            )
            self._known[op, operands] = found
        return found

    def _expanded(self, op: str, operands: tuple[Operand, ...]) -> Operand:
        """Operations that are made of others."""
        if op in _SWAPPED:
            return self._emit(_SWAPPED[op], operands[::-1])
        if op == "floor_divide":
            return self._emit("floor", (self._emit("divide", operands),))
        if op == "remainder":
            whole = self._emit("floor_divide", operands)
            return self._emit(
                "subtract", (operands[0], self._emit("multiply", (whole, operands[1])))
            )
        if op == "clip":
            return self._emit("minimum", (self._emit("maximum", operands[:2]), operands[2]))
        if op == "gcd" and operands[1] < 0:
            power = int(self._number(operands[1]))
            if power > 0 and power & (power - 1) == 0:
                bit = self._emit("lowest_bit", operands[:1])
                return self._emit("minimum", (bit, operands[1]))
        raise NotRecordable(f"a tape has no operation {op}")

    def _range(self, x: Operand) -> tuple[float, float]:
        if x >= 0:
            return self._low[x], self._high[x]
        return (self._number(x),) * 2

    def _simplified(self, op: str, operands: tuple[Operand, ...]) -> Operand | None:
        """A simpler operand of the same value, from identities and from bounds."""
        x = operands[0]
        if len(operands) == 1:
            return self._simplified_unary(op, x)
        y = operands[1]
        if op == "where":
            if x < 0:
                return y if self._number(x) else operands[2]
            return y if y == operands[2] else None
        if op in ("add", "subtract", "multiply", "divide"):
            return self._simplified_arithmetic(op, x, y)
        a, b = self._range(x), self._range(y)
        if op in ("minimum", "maximum"):
            if op == "maximum":
                a, b = (-a[1], -a[0]), (-b[1], -b[0])
            return x if x == y or a[1] <= b[0] else y if b[1] <= a[0] else None
        known = _compared(op, a, b, x == y)
        if known is not None:
            return self._literal(float(known))
        if op in ("logical_and", "logical_or") and (x == y or x < 0):
            return y  # A constant that settles it was compared away.
        return None

    def _simplified_unary(self, op: str, x: Operand) -> Operand | None:
        if op == "absolute" and self._low[x] >= 0.0:
            return x
        if op != "negative":
            return None
        inner, operands = self.code[x]
        if inner == "negative":
            return operands[0]
        # -(-a // b) is a rounded up.
        if inner == "floor" and operands[0] >= 0 and self.code[operands[0]][0] == "divide":
            dividend, divisor = self.code[operands[0]][1]
            negated = self._emit("negative", (dividend,))
            return self._emit("ceil", (self._emit("divide", (negated, divisor)),))
        return None

    def _simplified_arithmetic(self, op: str, x: Operand, y: Operand) -> Operand | None:
        if op == "subtract" and x == y:
            return self._literal(0.0)
        if op in ("add", "multiply") and x < 0:  # constants come first
            number = self._number(x)
            if op == "multiply" and number == 0.0:
                return x
            return y if number == (0.0 if op == "add" else 1.0) else None
        if op in ("subtract", "divide") and y < 0:
            return x if self._number(y) == (0.0 if op == "subtract" else 1.0) else None
        return None

    def _bounds(self, op: str, operands: tuple[Operand, ...]) -> tuple[float, float]:
        a = self._range(operands[0])
        if op in _LOGICAL:
            return 0.0, 1.0
        if op in ("floor", "ceil"):
            return (
                math.floor(a[0]) if math.isfinite(a[0]) else a[0],
                math.ceil(a[1]) if math.isfinite(a[1]) else a[1],
            )
        if op == "negative":
            return -a[1], -a[0]
        if op == "absolute":
            return 0.0, max(abs(a[0]), abs(a[1]))
        if op == "lowest_bit":
            return 0.0, math.inf
        b = self._range(operands[1])
        if op == "where":
            c = self._range(operands[2])
            return min(b[0], c[0]), max(b[1], c[1])
        if op == "add":
            return a[0] + b[0], a[1] + b[1]
        if op == "subtract":
            return a[0] - b[1], a[1] - b[0]
        if op in ("minimum", "maximum"):
            pick = min if op == "minimum" else max
            return pick(a[0], b[0]), pick(a[1], b[1])
        if op == "multiply" and a[0] >= 0.0 and b[0] >= 0.0:
            return a[0] * b[0], a[1] * b[1] if a[1] and b[1] else 0.0
        if op == "divide" and a[0] >= 0.0 and b[0] > 0.0:
            return a[0] / b[1], a[1] / b[0]
        return -math.inf, math.inf


def _compared(op: str, a: tuple[float, float], b: tuple[float, float], same: bool) -> bool | None:
    """What a comparison or connective of values within bounds always gives."""
    if op == "less":
        return False if same or a[0] >= b[1] else True if a[1] < b[0] else None
    if op == "less_equal":
        return True if same or a[1] <= b[0] else False if a[0] > b[1] else None
    if op == "logical_and":
        return False if a[1] == 0.0 or b[1] == 0.0 else None
    if op == "logical_or":
        return True if a[0] == 1.0 or b[0] == 1.0 else None
    if same:
        return op == "equal"
    return op == "not_equal" if a[1] < b[0] or b[1] < a[0] else None
