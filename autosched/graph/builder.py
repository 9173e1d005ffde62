"""Making graph functions in Python: operators called on values bind as they go.

x, w = graph.var("x", (1, 64), "float32"), graph.var("w", (32, 64), "float32")
a = op.relu(nn.dense(x, w))                   # used twice, computed once
mod = graph.module(main=graph.function([x, w], op.add(a, a)))
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np

from autosched.checks import choice, instance, listed, shown, text, unmasked
from autosched.errors import WorkloadError
from autosched.graph import ops
from autosched.graph.conversion import Patterns, kept
from autosched.graph.infer import infer, split_static, type_of_array
from autosched.graph.ir import Atom, Binding, Body, Call, Const, Function, Global, Var
from autosched.graph.ops.index import INDICES
from autosched.graph.ops.registry import python_name
from autosched.graph.spec import frozen
from autosched.graph.types import TensorType, Type
from autosched.integers import as_int, plain
from autosched.tir import dtypes
from autosched.tir.expr import Expr
from autosched.tir.module import IRModule
from autosched.tir.nodes import PrimFunc
from autosched.tir.size import Size

ValueLike = Union["Value", int, float, bool, "np.ndarray[Any, Any]", Sequence[Any]]


class Value:
    """An atom with the binding that made it; arithmetic on values calls operators."""

    __slots__ = ("atom", "binding", "parents")
    __array_ufunc__ = None  # NumPy's arrays leave arithmetic with a value to the value

    def __init__(
        self, atom: Atom, binding: Binding | None = None, parents: tuple[Value, ...] = ()
    ) -> None:
        self.atom, self.binding, self.parents = atom, binding, parents

    @property
    def type(self) -> Type:
        """Type of the value."""
        assert not isinstance(self.atom, Global)
        return self.atom.type

    @property
    def shape(self) -> tuple[Any, ...]:
        """Shape of a tensor."""
        assert isinstance(self.type, TensorType)
        return self.type.known

    @property
    def dtype(self) -> str:
        """Dtype of a tensor."""
        assert isinstance(self.type, TensorType)
        return self.type.dtype

    def __repr__(self) -> str:
        name = self.atom.name if isinstance(self.atom, (Var, Global)) else "const"
        return f"<{name}: {self.type}>"

    def __bool__(self) -> bool:
        raise WorkloadError(
            "a value of a graph is true or false only when it runs; choose by op.where, or by "
            "graph.if_"
        )

    def __add__(self, other: ValueLike) -> Value:
        return _one("Add", self, other)

    def __radd__(self, other: ValueLike) -> Value:
        return _one("Add", other, self)

    def __sub__(self, other: ValueLike) -> Value:
        return _one("Sub", self, other)

    def __rsub__(self, other: ValueLike) -> Value:
        return _one("Sub", other, self)

    def __mul__(self, other: ValueLike) -> Value:
        return _one("Mul", self, other)

    def __rmul__(self, other: ValueLike) -> Value:
        return _one("Mul", other, self)

    def __truediv__(self, other: ValueLike) -> Value:
        return _one("Div", self, other)

    def __rtruediv__(self, other: ValueLike) -> Value:
        return _one("Div", other, self)

    def __matmul__(self, other: ValueLike) -> Value:
        return _one("MatMul", self, other)

    def __rmatmul__(self, other: ValueLike) -> Value:
        return _one("MatMul", other, self)

    def __pow__(self, other: ValueLike) -> Value:
        return _one("Pow", self, other)

    def __neg__(self) -> Value:
        return _one("Neg", self)

    def __lt__(self, other: ValueLike) -> Value:
        return _one("Less", self, other)

    def __le__(self, other: ValueLike) -> Value:
        return _one("LessOrEqual", self, other)

    def __gt__(self, other: ValueLike) -> Value:
        return _one("Greater", self, other)

    def __ge__(self, other: ValueLike) -> Value:
        return _one("GreaterOrEqual", self, other)


def var(name: str, shape: Sequence[Any], dtype: str = "float32") -> Value:
    """A parameter. `shape`: ints, and sizes made by te.var. Raises WorkloadError on a dtype that
    there is not, or a shape that is none."""
    name = text("the name of a parameter", name, WorkloadError)
    dtype = choice(f"dtype of {name}", dtype, dtypes.DTYPES, WorkloadError)
    what = f"the shape of {name}"
    listed(what, shape, (int, np.integer, Size, Expr), "ints and sizes of te.var", WorkloadError)
    if any(isinstance(n, (int, np.integer)) and n < 0 for n in shape):
        raise WorkloadError(f"{what} is {shown(shape)}; expected no extent below 0")
    sizes = tuple(int(n) if isinstance(n, np.integer) else n for n in shape)
    return Value(Var(name, TensorType(sizes, dtype)))


def const(value: Any, dtype: str | None = None) -> Const:
    """A constant; without `dtype`, float32 for floats. Raises WorkloadError for what is no array of
    numbers, a dtype that there is not, and a number that is no value of the dtype."""
    if dtype is not None:
        dtype = choice("dtype of a constant", dtype, dtypes.DTYPES, WorkloadError)
    unmasked("a constant", value, WorkloadError)
    try:
        array = value if isinstance(value, Patterns) else np.asarray(value)
        if dtype is None and array.dtype == np.float64 and not isinstance(value, np.ndarray):
            dtype = "float32"
        array = kept(array, dtype or type_of_array(array).dtype)
    except (TypeError, ValueError, OverflowError) as e:
        raise WorkloadError(f"a constant is {shown(value)}; expected an array of numbers") from e
    if array.dtype.kind in "OUSMm":
        raise WorkloadError(f"a constant has dtype {array.dtype}; expected an array of numbers")
    made = np.ascontiguousarray(array).reshape(array.shape)
    made.flags.writeable = False
    return Const(type_of_array(array), made)


MOST_OUTPUTS = 1 << 16
"""Results of one call."""


def call(name: str, args: Sequence[Any], attrs: Mapping[str, Any], outputs: int = 1) -> Any:
    """The result of an operator called on values: a Value, or a tuple of as many as `outputs`."""
    count = as_int(outputs)
    if count is None or not 1 <= count <= MOST_OUTPUTS:
        raise WorkloadError(
            f"outputs of {name} is {shown(outputs)}; expected an int from 1 up to {MOST_OUTPUTS}"
        )
    static, dtype = ops.find(name).static, _dtype_beside(args)
    index = INDICES.get(name)
    kinds = ("int64" if n == index else None if n in static else dtype for n in range(len(args)))
    values = [_value(a, kind) for a, kind in zip(args, kinds, strict=True)]
    needed = _needed(name)
    for n, v in enumerate(values[: len(needed)]):
        if v is None and needed[n]:
            which = "the first input" if n == 0 else f"input {n + 1}"
            raise WorkloadError(f"{which} of {name} is None; expected a value of the graph")
    attrs = {k: _attribute(f"attribute {k} of {name}", v) for k, v in attrs.items()}
    made, _ = make_call(name, [None if v is None else v.atom for v in values], attrs)
    types = infer(made, count)
    base = python_name(name).rstrip("_")
    variables = tuple(Var(base, t) for t in types)
    binding = Binding(variables, made)
    parents = tuple(v for v in values if v is not None)
    out = tuple(Value(v, binding, parents) for v in variables)
    return out if count > 1 else out[0]


def _needed(name: str) -> list[bool]:
    """Of an operator's inputs in order, whether each has to be given."""
    found = ops.find(name).parameters.values()
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [p.default is inspect.Parameter.empty for p in found if p.kind is kind]


DEEPEST = 4
"""Lists in lists in an attribute."""


def _attribute(name: str, value: Any, depth: int = 0) -> Any:
    """An attribute as what can be compared, hashed and printed: numbers, texts and tuples."""
    value = plain(value)
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        value = value.tolist()
    if isinstance(value, (list, tuple)) and depth < DEEPEST:
        return tuple(_attribute(name, x, depth + 1) for x in value)
    if isinstance(value, int) and not isinstance(value, bool) and not -_INT64 <= value < _INT64:
        raise WorkloadError(f"{name} is {shown(value)}; expected an integer of 64 bits")
    if isinstance(value, str):
        return str.__str__(value)
    if value is None or isinstance(value, (bool, int, float, bytes)):
        return value
    raise WorkloadError(f"{name} is {shown(value)}; expected a number, a text, or a list of them")


_INT64 = 1 << 63


def make_call(
    name: str, args: Sequence[Atom | None], attrs: Mapping[str, Any]
) -> tuple[Call, bool]:
    """A call in its normal form: static inputs that are constants are attributes, and attributes
    at their defaults are left out. Also whether all static inputs are known."""
    op = ops.find(name)
    split = split_static(op, args, attrs)
    left, given = (list(args), dict(attrs)) if split is None else split
    kept = {
        k: frozen(v)
        for k, v in given.items()
        if k not in op.attributes or op.attributes[k] is None or op.attributes[k] != v
    }
    kept = {k: v for k, v in kept.items() if v is not None}
    return Call(name, tuple(left), tuple(sorted(kept.items()))), split is not None


def _one(name: str, *args: Any) -> Value:
    made: Value = call(name, args, {})
    return made


def _dtype_beside(args: Sequence[Any]) -> str | None:
    """The dtype that plain numbers take: that of the first value that is no condition."""
    found = [a.dtype for a in args if isinstance(a, Value)]
    return next((t for t in found if t != "bool"), found[0] if found else None)


def _value(a: Any, dtype: str | None) -> Value | None:
    if a is None or isinstance(a, Value):
        return a
    if isinstance(a, Const):
        return Value(a)
    plain = isinstance(a, (int, float)) and not isinstance(a, bool)
    return Value(const(a, dtype if plain else None))


def producers(values: Sequence[Value]) -> tuple[list[Binding], list[Value]]:
    """The bindings that values need, producers first, and the values among them that none binds."""
    order: list[Binding] = []
    ends: list[Value] = []
    seen: set[int] = set()
    stack = [(v, False) for v in reversed(values)]
    while stack:
        value, expanded = stack.pop()
        if value.binding is None:
            ends.append(value)
        elif expanded:
            order.append(value.binding)
        elif id(value.binding) not in seen:
            seen.add(id(value.binding))
            stack.append((value, True))
            stack += [(p, False) for p in reversed(value.parents)]
    return order, ends


def function(
    params: Sequence[Value],
    results: Value | Const | Sequence[Value | Const],
    name: str = "main",
) -> Function:
    """The function of these parameters and results: with all that the results need.

    Raises WorkloadError where they need a variable that is no parameter, and for what is no
    value."""
    name = text("the name of a function", name, WorkloadError)
    given = [results] if isinstance(results, (Value, Const)) else results
    listed(f"parameters of {name}", params, Value, "values of the graph", WorkloadError)
    listed(f"results of {name}", given, (Value, Const), "values of the graph", WorkloadError)
    outs = [Value(r) if isinstance(r, Const) else r for r in given]
    order, ends = producers(outs)
    known = {id(p.atom) for p in params}
    for v in ends:
        if isinstance(v.atom, Var) and id(v.atom) not in known:
            raise WorkloadError(
                f"{name} uses the variable {v.atom.name}, which is none of its parameters"
            )
    variables = []
    for p in params:
        if not isinstance(p.atom, Var):
            raise WorkloadError(f"a parameter of {name} is a constant; expected graph.var(...)")
        variables.append(p.atom)
    return Function(name, tuple(variables), Body(tuple(order), tuple(v.atom for v in outs)))


def module(**functions: Function | PrimFunc) -> IRModule:
    """A module of graph functions and loop functions, by name. Raises WorkloadError for others."""
    for name, f in functions.items():
        kinds = "a function of graph.function or a PrimFunc"
        instance(f"function {name}", f, (Function, PrimFunc), kinds, WorkloadError)
    loops = {n: f for n, f in functions.items() if isinstance(f, PrimFunc)}
    return IRModule(loops, {n: f for n, f in functions.items() if isinstance(f, Function)})
