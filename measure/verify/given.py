"""Input data that a user gives for a workload in the place of random ones: real indices, masks.

They are of this process, by workload key, as a job of a local pool is opened by the process that
knows them. (TVM's `register_task_input_buffer` keeps them likewise.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from autosched.checks import mapping, shown, unmasked
from autosched.errors import MeasureError
from autosched.tir import dtypes
from autosched.tir.nodes import PrimFunc, inputs_of
from measure.verify.verification import Array

_given: dict[str, dict[str, Array]] = {}


def give_inputs(key: str, func: PrimFunc, inputs: Mapping[str, Any]) -> None:
    """Take arrays for inputs of `func`, a workload of that key, by parameter name; an empty mapping
    takes those given before back. Raises MeasureError for a name that is no input, a masked array,
    or an array of another shape or dtype."""
    known = {b.name: b for b in inputs_of(func)}
    found: dict[str, Array] = {}
    expected = "a mapping from names to arrays"
    for name, value in mapping("task_inputs", inputs, expected, MeasureError).items():
        if name not in known:
            raise MeasureError(
                f"task_inputs has {shown(name)}, which is no input of {func.name}; its inputs are "
                f"{', '.join(known)}"
            )
        unmasked(f"{name} of task_inputs", value, MeasureError)
        buffer, array = known[name], np.asarray(value)
        shape = tuple(int(n) for n in buffer.shape)
        if array.shape != shape or array.dtype != dtypes.array_dtype(buffer.dtype):
            raise MeasureError(
                f"task_inputs has {array.dtype}{list(array.shape)} for {name}; expected "
                f"{dtypes.array_dtype(buffer.dtype)}{list(shape)}"
            )
        found[name] = np.ascontiguousarray(array)
    if found:
        _given[key] = found
    else:
        _given.pop(key, None)


def given_inputs(key: str) -> Mapping[str, Array]:
    """What was given for a workload, by parameter name."""
    return _given.get(key, {})
