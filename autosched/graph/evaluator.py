"""The evaluator: any program of the graph level, by NumPy. It is slow, and the reference.

Values are arrays, tuples, tagged tuples (`Tagged`) and function values, which can be called.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from autosched.checks import instance, shown
from autosched.errors import ArgumentError, WorkloadError
from autosched.graph.data import constructors
from autosched.graph.ir import Function
from autosched.graph.machine import Machine
from autosched.graph.types import DataRef, FuncType, TensorType, TupleType, Type
from autosched.graph.values import Tagged
from autosched.tir import dtypes
from autosched.tir.module import IRModule


def evaluate(module: IRModule, name: str = "main", *args: Any) -> Any:
    """The results of a graph function on values: one, or a tuple of several.

    Arguments are arrays (numbers where the shape is ()), tuples, values of data types and
    functions. A call in tail position takes no memory; other recursion up to 200,000 calls deep.

    Raises ArgumentError on a wrong number or kind of arguments, Unsupported, naming the operator,
    for what cannot be computed, and WorkloadError where recursion is too deep."""
    instance("the module to evaluate", module, IRModule, "an IRModule", ArgumentError)
    function = module.graphs.get(name) if isinstance(name, str) else None
    if not isinstance(function, Function):
        have = ", ".join(n for n, f in module.graphs.items() if isinstance(f, Function)) or "none"
        raise WorkloadError(f"no graph function is named {shown(name)}; the module has {have}")
    if len(args) != len(function.params):
        raise ArgumentError(f"{name} takes {len(function.params)} arguments, found {len(args)}")
    machine = Machine(module)
    given = [
        _argument(module, p.name, p.type, a) for p, a in zip(function.params, args, strict=True)
    ]
    with np.errstate(all="ignore"):
        results = machine.run(machine.value(name), given)
    return results[0] if len(results) == 1 else tuple(results)


def _argument(module: IRModule, name: str, t: Type, a: Any) -> Any:
    """An argument as a value. Raises ArgumentError for one that cannot be of the type."""
    if isinstance(t, TensorType):
        return _array(name, t, a)
    if isinstance(t, DataRef):
        found = constructors(module.graphs)
        made = found.get(a.constructor) if isinstance(a, Tagged) else None
        if made is None or made.data.name != t.name or len(made.fields) != len(a.fields):
            have = ", ".join(c.name for c in found.values() if c.data.name == t.name)
            raise ArgumentError(
                f"{name} is {shown(a)}; expected a value of {t.name}: graph.Tagged of {have}"
            )
    if isinstance(t, TupleType):
        if not isinstance(a, tuple) or len(a) != len(t.fields):
            raise ArgumentError(f"{name} is {shown(a)}; expected a tuple of {len(t.fields)} values")
        return tuple(_argument(module, name, f, x) for f, x in zip(t.fields, a, strict=True))
    if isinstance(t, FuncType) and not callable(a):
        raise ArgumentError(f"{name} is {shown(a)}; expected a function")
    return a


def _array(name: str, t: TensorType, a: Any) -> Any:
    number = isinstance(a, (bool, int, float)) and t.shape == () and t.dtype
    if number:
        try:
            a = np.asarray(a, dtypes.array_dtype(t.dtype))
        except OverflowError as e:
            raise ArgumentError(f"{name} is {a}, which is beyond {t.dtype}") from e
    if t.shape is None:
        return a
    rank = len(t.shape)
    array = isinstance(a, (np.ndarray, np.generic)) and a.dtype.kind not in "OUSMm"
    if not (array and a.ndim == rank):
        raise ArgumentError(f"{name} is {shown(a)}; expected an array of {rank} dimensions")
    return np.asarray(a)
