"""Arrays of another dtype that hold the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.errors import WorkloadError
from autosched.tir import dtypes


class Patterns(np.ndarray[Any, Any]):
    """Bit patterns of bfloat16, as uint16. Arrays tell the type of a value where it is evaluated,
    and NumPy's have none for bfloat16."""


def held(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """The array as values of `dtype` are evaluated: those of bfloat16 by their patterns, whether
    these are uint16 or of ml_dtypes' type, which becomes float32, too."""
    if array.dtype.name == "bfloat16" and dtype == "float32":
        return array.astype(np.float32)  # exact
    if dtype == "bfloat16" and array.dtype.name in ("bfloat16", "uint16"):
        return array.view(np.uint16).view(Patterns)
    return array


def kept(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """The array in another dtype; floats may lose digits. Raises WorkloadError where an integer
    would become another number, and a finite number infinite."""
    if isinstance(array, Patterns) and dtype == "bfloat16":
        return array
    if dtype == "bfloat16":
        return held(dtypes.from_float32(array.astype(np.float32)), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        made = array.astype(dtype)
    if array.dtype.kind not in "biufO" or np.can_cast(array.dtype, made.dtype):
        return made
    if made.dtype.kind == "f":
        lost = np.isinf(made) & np.isfinite(array.astype(np.float64))
    else:
        lost = made != array
    if np.any(lost):
        number = array[lost].reshape(-1)[0]
        raise WorkloadError(
            f"the number {number} is no value of {dtype}, {_range(dtype)}; write another number, "
            "or cast what it is used with"
        )
    return made


def _range(dtype: str) -> str:
    """What values a dtype has, in words."""
    if dtype == "bool":
        return "which has True and False"
    if dtypes.is_float(dtype):
        return f"whose largest is {np.finfo(dtype).max}"
    return f"which has the integers from {dtypes.minimum(dtype)} to {dtypes.maximum(dtype)}"
