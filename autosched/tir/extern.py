"""C functions of shared libraries, which routines may call.

    register("scale", "float32", ("float32*", "float32", "int64"), "./libscale.so")

makes `T.call_extern("scale", A, 2.0, 16)` a value in routines. A name that is not
registered in this process is refused, so a text from elsewhere calls nothing. Accesses of the C
function itself are not checked.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from autosched.checks import path_text, shown, text
from autosched.errors import ArgumentError
from autosched.tir import dtypes

_C = {
    "float32": ctypes.c_float, "float64": ctypes.c_double,
    "int8": ctypes.c_int8, "int16": ctypes.c_int16, "int32": ctypes.c_int32,
    "int64": ctypes.c_int64, "uint8": ctypes.c_uint8, "uint16": ctypes.c_uint16,
    "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64,
}  # fmt: skip
"""What C has a number for."""


@dataclass(frozen=True)
class Extern:
    """A C function: the dtype of what it returns ("" for void), and of its arguments; `float32*` is
    the memory of a buffer."""

    name: str
    result: str
    args: tuple[str, ...]
    file: str

    @property
    def returns(self) -> str:
        """The dtype of a call as a value: of void, an int32 that is 0."""
        return self.result or "int32"


@dataclass(frozen=True)
class _Loaded:
    extern: Extern
    library: ctypes.CDLL
    function: Any


_known: dict[str, _Loaded] = {}


def register(
    name: str, result: str, args: Iterable[str], library: str | os.PathLike[str]
) -> Extern:
    """Make the C function `name` of a shared library known to this process.

    Registering a name again replaces what it was. Raises ArgumentError for a dtype that C has no
    number for, and where the library or the function is not found.
    """
    name = text("the name of a C function", name, ArgumentError)
    if isinstance(args, str):
        raise ArgumentError(f"args of {name} are {args!r}; expected a tuple of dtypes")
    kinds = tuple(args)
    for kind in (*kinds, result or "int32"):
        plain = kind.removesuffix("*") if isinstance(kind, str) else kind
        if plain not in _C or (kind is result and plain != kind):
            raise ArgumentError(
                f"{name}: {shown(kind)} is no type of C here; expected one of {', '.join(_C)}, for "
                "the memory of a buffer with a *, or of the result '' for void"
            )
    path = path_text("library", library, ArgumentError)
    try:
        loaded = ctypes.CDLL(os.path.abspath(path) if os.path.exists(path) else path)
        function = getattr(loaded, name)
    except (OSError, AttributeError) as e:
        raise ArgumentError(f"no C function {name} in {path}: {e}") from e
    function.restype = _C[result] if result else None
    function.argtypes = [ctypes.c_void_p if k.endswith("*") else _C[k] for k in kinds]
    extern = Extern(name, result, kinds, path)
    _known[name] = _Loaded(extern, loaded, function)
    return extern


def found(name: str) -> Extern | None:
    """The C function of this name that this process knows."""
    known = _known.get(name)
    return None if known is None else known.extern


def address(extern: Extern) -> int:
    """Where the code of a function is. Raises ArgumentError if this process does not know it, or
    another one of its name."""
    known = _known.get(extern.name)
    if known is None or known.extern != extern:
        raise ArgumentError(
            f"the C function {extern.name} of {extern.file} is not registered in this process; "
            f"autosched.tir.extern.register({extern.name!r}, {extern.result!r}, {extern.args!r}, "
            f"{extern.file!r})"
        )
    return ctypes.cast(known.function, ctypes.c_void_p).value or 0


def call(extern: Extern, values: Iterable[Any]) -> Any:
    """Call a function on numbers and C-contiguous arrays. Raises ArgumentError as `address`."""
    address(extern)
    given = []
    for kind, value in zip(extern.args, values, strict=True):
        if not kind.endswith("*"):
            given.append(value.item())
        elif not value.flags.c_contiguous:
            raise ArgumentError(f"{extern.name} takes memory without gaps; copy the array")
        else:
            given.append(value.ctypes.data)
    result = _known[extern.name].function(*given)
    return dtypes.array_dtype(extern.returns).type(0 if result is None else result)
