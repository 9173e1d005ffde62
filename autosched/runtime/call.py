"""From Python to a kernel in well under a microsecond.

A wrapper in LLVM IR, made once a process, is a CPython function of its own (METH_FASTCALL). Its
`self` is a tuple whose first item is a bytearray, the descriptor: the kernel's address, its
workspace, dtype, shape and direction of every argument, and the values of its symbolic sizes. It
takes the arguments' buffers, checks them, and calls the kernel without the GIL. On the first thing
that does not fit it clears the error and returns NotImplemented, and Python code says precisely
what is wrong.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from autosched.codegen.artifact import KernelInfo, Param
from autosched.runtime.call_ir import CALL, TIME, wrapper_ir
from autosched.runtime.link import Library, link
from autosched.target import Target
from autosched.tir.dtypes import itemsize as itemsize_of

FORMATS = {
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "lq",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "LQ",
    "bool": "?",
    "bfloat16": "H",
}
"""Buffer formats that are a dtype; where there are two, they are the same on this platform."""

_METH_FASTCALL = 0x0080

# The descriptor, in 64-bit words: a head, a row a parameter, the shapes, then the symbolic sizes.
# call_ir.py reads it. The head: kernel, params, workspace, its bytes, threads, lock, number of
# sizes, where they stand.
_HEAD = struct.Struct("=qqqqqqqq")
_ROW = struct.Struct("=qqqqqqqq")  # flags, ndim, itemsize, format, format, bytes, shape, written

_PYBUF_WRITABLE, _PYBUF_FORMAT, _PYBUF_C_CONTIGUOUS = 0x1, 0x4, 0x38


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


@cache
def _wrapper() -> tuple[Library, _MethodDef]:
    """The wrapper's code and what CPython needs to know about it; both live for ever."""
    from autosched.codegen.llvm.assemble import compile_ir

    host = Target("llvm")
    library = link(compile_ir(wrapper_ir(host.arch, id(np.ndarray)), host, "full"), (CALL, TIME))
    definition = _MethodDef(b"kernel", library[CALL], _METH_FASTCALL, b"Call the kernel.")
    return library, definition


def make_call(
    info: KernelInfo,
    kernel: int,
    workspace: int,
    threads: int,
    keep: tuple[Any, ...],
    sizes: Sequence[int] = (),
) -> Callable[..., Any]:
    """A function of the kernel's arrays that returns None, or NotImplemented if they do not fit.

    `info` is for one choice of symbolic sizes, whose values are `sizes`. `kernel` and `workspace`
    are addresses; `keep` holds what they belong to, and lives as long as the function does.
    """
    self = (bytearray(_describe(info, kernel, workspace, threads, sizes)), *keep)
    new = ctypes.pythonapi.PyCFunction_NewEx
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return new(ctypes.addressof(_wrapper()[1]), self, None)  # type: ignore[no-any-return]


def workspace_bytes(info: KernelInfo, threads: int) -> int:
    """Bytes of scratch memory for one call, rounded up to cache lines."""
    total: int = info.workspace_bytes + threads * info.thread_bytes
    return -(-total // 64) * 64


def time_calls(
    kernel: int, args: Any, workspace: int, threads: int, number: int, flush: Any = None
) -> int:
    """Nanoseconds that `number` calls take, measured in native code.

    `args` is a ctypes array of the arguments' addresses; `flush` one of (start, end) pairs, ended
    by zeros, of what is put out of all caches before each call.
    """
    return int(_timer()(kernel, args, workspace, threads, number, flush))


@cache
def _timer() -> Any:
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int64,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int32,
        ctypes.c_int64,
        ctypes.c_void_p,
    )
    return prototype(_wrapper()[0][TIME])


def _describe(
    info: KernelInfo, kernel: int, workspace: int, threads: int, sizes: Sequence[int]
) -> bytes:
    """The descriptor's bytes."""
    offset = _HEAD.size + _ROW.size * len(info.params)
    rows, shapes = b"", b""
    for param in info.params:
        rows += _row(param, offset + len(shapes))
        shapes += struct.pack(f"={len(param.shape)}q", *param.shape)
    scratch = workspace_bytes(info, threads)
    end = offset + len(shapes)
    head = _HEAD.pack(kernel, len(info.params), workspace, scratch, threads, 0, len(sizes), end)
    return head + rows + shapes + struct.pack(f"={len(sizes)}q", *sizes)


def _row(param: Param, shape: int) -> bytes:
    formats = FORMATS[param.dtype]
    itemsize = itemsize_of(param.dtype)
    flags = _PYBUF_FORMAT | _PYBUF_C_CONTIGUOUS | (_PYBUF_WRITABLE if param.written else 0)
    return _ROW.pack(
        flags,
        len(param.shape),
        itemsize,
        ord(formats[0]),
        ord(formats[-1]),
        prod(param.shape) * itemsize,
        shape,
        int(param.written),
    )
