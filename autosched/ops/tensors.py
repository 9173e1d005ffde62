"""Operators as functions from tensors to tensors: `ops.relu(x)`, `ops.softmax(x, axis=-1)`.

The definitions are those of the graph level (`autosched.graph.ops`), under ONNX's names as Python
writes them, and those of `autosched.ops.sorting`. A name that is also a workload of the library is
told apart by its arguments: `ops.softmax(x)` of a tensor, `ops.softmax(64, 1000)` of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

from autosched import te
from autosched.checks import shown
from autosched.errors import WorkloadError
from autosched.graph.ops import OPERATORS as DEFINED
from autosched.graph.ops.registry import Operator, named, python_name
from autosched.graph.ops.tensors import View, constant
from autosched.ops.sorting import SORTING
from autosched.te import Tensor

LIBRARY = {"batch_matmul": "matmul", "layer_norm": "layer_normalization"}
"""Workloads whose operator has another name."""


def function(name: str) -> Callable[..., Any] | None:
    """The operator of a name as a function of tensors; None where there is none."""
    own = SORTING.get(name)
    if own is not None:
        return own
    row = named(LIBRARY.get(name, name))
    if row is None or row.compute is None:
        return None

    def operator(*tensors: Any, **attrs: Any) -> Any:
        return _applied(name, row, tensors, attrs)

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = row.compute.__doc__
    return operator


def apply(name: str, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """The operator of a name on tensors. Raises WorkloadError where it has no such form."""
    found = function(name)
    if found is None:
        raise WorkloadError(
            f"{name} of the library is a whole workload and takes sizes, found "
            f"{shown(tensors[0])}; operators on tensors are {', '.join(names())}"
        )
    return found(*tensors, **attrs)


def names() -> list[str]:
    """Every operator on tensors."""
    computed = (python_name(row.name) for row in DEFINED.values() if row.compute is not None)
    return sorted({*computed, *SORTING, *LIBRARY})


def _applied(name: str, row: Operator, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    unknown = sorted(set(attrs) - set(row.attributes))
    missing = [
        n for n, default in row.attributes.items() if default is Parameter.empty and n not in attrs
    ]
    if unknown or missing:
        what = f"has no attribute {', '.join(unknown)}" if unknown else f"needs {missing[0]}="
        have = ", ".join(row.attributes) or "none"
        raise WorkloadError(f"the operator {name} {what}; its attributes are {have}")
    first = next((t for t in tensors if isinstance(t, Tensor)), None)
    if first is None:
        raise WorkloadError(f"the operator {name} takes tensors, found {shown(list(tensors))}")
    given = [_tensor(name, t, first.dtype) for t in tensors]
    assert row.compute is not None
    try:
        made = row.compute(*given, **attrs)
    except TypeError as error:
        raise WorkloadError(
            f"the operator {name} does not take {len(given)} tensors: {error}"
        ) from error
    return tuple(map(_whole, made)) if isinstance(made, (tuple, list)) else _whole(made)


def _tensor(name: str, value: Any, dtype: str) -> Any:
    if value is None or isinstance(value, Tensor):
        return value
    if isinstance(value, (bool, int, float)):
        return constant(value, dtype)
    raise WorkloadError(f"the operator {name} takes tensors and numbers, found {shown(value)}")


def _whole(made: Any) -> Tensor:
    """A view as a tensor: what reads it computes a copy."""
    if not isinstance(made, View):
        assert isinstance(made, Tensor)
        return made
    out: Tensor = te.compute(made.shape, made.element, name=made.name)
    return out
