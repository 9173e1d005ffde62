"""What is wrong with the arguments of a call, said precisely."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.checks import shown, unmasked
from autosched.codegen.artifact import KernelInfo
from autosched.codegen.formula import evaluate
from autosched.errors import ArgumentError
from autosched.runtime.foreign import ON_HOST, foreign
from autosched.tir.dtypes import array_dtype, from_float32, is_float, maximum, minimum

Array = npt.NDArray[Any]
_LARGEST_BFLOAT16 = float.fromhex("0x1.fep127")


def check_arguments(
    info: KernelInfo, arguments: Sequence[Any]
) -> tuple[tuple[Array, ...], dict[str, int]]:
    """The arguments as NumPy arrays over the same memory, and the symbolic sizes by name.

    Raises ArgumentError naming the argument, what was expected, what was found and what to do.
    """
    check_count(info, arguments)
    arrays = tuple(check_array(info, n, argument) for n, argument in enumerate(arguments))
    check_apart(info, [(0, a.ctypes.data, a.nbytes) for a in arrays])
    return arrays, _sizes(info, arrays)


def check_count(info: KernelInfo, arguments: Sequence[Any]) -> None:
    """Raise ArgumentError unless there is one argument a parameter."""
    if len(arguments) != len(info.params):
        names = ", ".join(p.name for p in info.params)
        raise ArgumentError(
            f"{info.title} takes {len(info.params)} arrays ({names}), found {len(arguments)}; "
            "outputs are passed as well, e.g. autosched.runtime.arrays.empty(shape, dtype)"
        )


def place_of(info: KernelInfo, index: int) -> str:
    """How messages name an argument."""
    return f"argument {index} ({info.params[index].name}) of {info.title}"


def _sizes(info: KernelInfo, arrays: Sequence[Array]) -> dict[str, int]:
    """The symbolic sizes; raises ArgumentError where a shape gives none, or two shapes disagree."""
    found: dict[str, int] = {}
    origin: dict[str, str] = {}
    for s in info.sizes:
        param, offset = info.params[s.param], evaluate(s.offset, found)
        extent = arrays[s.param].shape[s.dim]
        where = f"{param.name}.shape[{s.dim}]"
        value, left = divmod(extent - offset, s.scale)
        if left or value < 1:
            raise ArgumentError(
                f"argument {s.param} ({param.name}) of {info.title} has extent {extent} in "
                f"dimension {s.dim}; expected {param.shape[s.dim]} for a size {s.name} of at "
                "least 1"
            )
        found[s.name], origin[s.name] = value, where
    for param, array in zip(info.params, arrays, strict=True):
        for dim, (extent, formula) in enumerate(zip(array.shape, param.shape, strict=True)):
            if evaluate(formula, found) == extent:
                continue
            here = f"{param.name}.shape[{dim}]"
            if formula in found:
                raise ArgumentError(
                    f"{formula} is {found[formula]} in {origin[formula]} but {extent} in {here}"
                )
            given = ", ".join(f"{k} = {v} ({origin[k]})" for k, v in found.items() if k in formula)
            raise ArgumentError(
                f"{here} is {extent}; expected {formula} = {evaluate(formula, found)} with {given}"
            )
    return found


def check_array(info: KernelInfo, index: int, argument: Any) -> Array:
    """One argument as an array of the host; raises ArgumentError."""
    param, where = info.params[index], place_of(info, index)
    if type(argument) in (bool, int, float) and not param.shape and not param.written:
        return _of_number(argument, param.dtype, where)
    array = _as_array(argument, where)
    if param.dtype == "bfloat16" and array.dtype.name == "bfloat16":
        array = array.view(np.uint16)  # ml_dtypes has a type for it
    if array.dtype != array_dtype(param.dtype):
        found = array.dtype.name if array.dtype.isnative else f"{array.dtype.str} (not native)"
        # An output that is converted would be a copy, and the result would be lost.
        hint = (
            f"pass an array made with dtype={param.dtype!r}"
            if param.written
            else f"convert it with {param.name}.astype({param.dtype!r})"
        )
        if param.dtype == "bfloat16":
            hint = "pass its bit patterns as uint16; autosched.tir.dtypes.from_float32 makes them"
        raise ArgumentError(f"{where} has dtype {found}; expected {param.dtype}; {hint}")
    if len(array.shape) != len(param.shape) or any(
        isinstance(want, int) and n != want
        for n, want in zip(array.shape, param.shape, strict=True)
    ):
        expected = ", ".join(map(str, param.shape)) + ("," if len(param.shape) == 1 else "")
        raise ArgumentError(f"{where} has shape {array.shape}; expected ({expected})")
    if param.written and not array.flags.writeable:
        raise ArgumentError(f"{where} is an output and is read-only; pass a writable array")
    if not array.flags.c_contiguous:
        hint = (
            "pass a C-contiguous array and copy the result"
            if param.written
            else f"make it so with np.ascontiguousarray({param.name})"
        )
        raise ArgumentError(f"{where} is not C-contiguous (strides {array.strides}); {hint}")
    if array.ctypes.data % array.itemsize:
        hint = "pass an aligned array" if param.written else f"copy it with {param.name}.copy()"
        raise ArgumentError(
            f"{where} starts at address {array.ctypes.data:#x}, which is not aligned to its "
            f"{array.itemsize}-byte elements; {hint}"
        )
    return array


def _of_number(value: float, dtype: str, where: str) -> Array:
    """A number of Python as an input without dimensions; raises ArgumentError where its dtype does
    not have it."""
    if is_float(dtype):
        largest = _LARGEST_BFLOAT16 if dtype == "bfloat16" else float(np.finfo(dtype).max)
        fits = value != value or abs(value) == inf or abs(value) <= largest
    elif dtype == "bool":
        fits = isinstance(value, bool)
    else:
        fits = isinstance(value, int) and minimum(dtype) <= value <= maximum(dtype)
    if fits and dtype == "bfloat16":
        return from_float32(value)
    if fits:
        return np.asarray(value, array_dtype(dtype))
    raise ArgumentError(
        f"{where} is {shown(value)}, which is no {dtype}; pass a number that it has"
    )


def _as_array(argument: Any, where: str) -> Array:
    if isinstance(argument, np.ndarray):
        unmasked(where, argument, ArgumentError)
        return argument
    try:
        return np.asarray(memoryview(argument))
    # memoryview raises NotImplementedError for a buffer of a format that it has no code for.
    except (TypeError, ValueError, NotImplementedError) as e:
        found = foreign(argument, where)
        if found is None:
            raise ArgumentError(
                f"{where} is {_a(type(argument).__name__)}, not a NumPy array; inputs are made "
                "with np.asarray(values, dtype), outputs with np.empty(shape, dtype); arrays of "
                "other libraries are taken by DLPack"
            ) from e
    if found.device[0] not in ON_HOST:
        raise ArgumentError(
            f"{where} is in the memory of {found.place}; expected memory of the host: copy it "
            "there, with .cpu() or .get(), or build the function for that device"
        )
    return found.numpy()


def _a(name: str) -> str:
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def check_apart(info: KernelInfo, spans: Sequence[tuple[object, int, int]]) -> None:
    """Outputs share no memory with any other argument; raises ArgumentError.

    `spans`: of each argument (what holds its memory, first byte, number of bytes).
    """
    for i, (space, start, size) in enumerate(spans):
        if not info.params[i].written:
            continue
        for j, (other_space, other, other_size) in enumerate(spans):
            apart = i == j or space != other_space or not size or not other_size
            if not apart and start < other + other_size and other < start + size:
                raise ArgumentError(
                    f"output {info.params[i].name} (argument {i}) of {info.title} overlaps "
                    f"{info.params[j].name} (argument {j}) in memory; pass a separate array, "
                    f"or a copy of {info.params[j].name}"
                )
