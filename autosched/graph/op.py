"""Every operator as a function of values: `op.relu(x)`, `op.reduce_mean(x, axes=(1,))`.

Names are those of ONNX, written as Python writes them; attributes are given by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autosched.graph import ops
from autosched.graph.builder import call
from autosched.graph.ops.registry import Operator, named, python_name


def _caller(row: Operator) -> Callable[..., Any]:
    def operator(*args: Any, outputs: int = 1, **attrs: Any) -> Any:
        return call(row.name, args, attrs, outputs)

    definition = row.compute or row.host
    operator.__name__ = operator.__qualname__ = python_name(row.name)
    operator.__doc__ = definition.__doc__ if definition is not None else None
    return operator


def __getattr__(name: str) -> Callable[..., Any]:
    row = named(name)
    if row is None:
        raise AttributeError(f"no operator is called op.{name}; dir(op) lists them")
    return _caller(row)


def __dir__() -> list[str]:
    return sorted(map(python_name, ops.OPERATORS))
