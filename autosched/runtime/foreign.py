"""Arrays of other libraries, where they are: DLPack and `__cuda_array_interface__`.

PyTorch, CuPy, JAX and NumPy all speak one of the two. What comes out is an address with a shape; no
element is copied or looked at.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.errors import ArgumentError
from autosched.tir.dtypes import array_dtype, itemsize

CPU, CUDA, CUDA_HOST, OPENCL, CUDA_MANAGED = 1, 2, 3, 4, 13
"""Kinds of devices, as DLPack numbers them."""
ON_HOST = (CPU, CUDA_HOST, CUDA_MANAGED)
"""Those whose memory the CPU reads."""
ON_CUDA = (CUDA, CUDA_MANAGED)
"""Those whose memory kernels of CUDA read."""
_NAMES = {CPU: "cpu", CUDA: "cuda", CUDA_HOST: "cuda_host", OPENCL: "opencl", CUDA_MANAGED: "cuda"}
LEGACY_STREAM = 1
"""How both protocols write CUDA's default stream, which other (blocking) streams wait for."""
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
_READ_ONLY, _COPIED = 1, 2


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


@dataclass(frozen=True, eq=False)
class Foreign:
    """An array in memory that something else owns, and keeps while `owner` is referred to.

    `strides` are in elements, `device` is DLPack's (kind, number). `stream` is the CUDA stream on
    which the elements are ready, as the interfaces write it; None where nobody says.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: tuple[int, int]
    readonly: bool
    owner: object
    stream: int | None = None

    @property
    def place(self) -> str:
        """The device, for people."""
        kind, number = self.device
        return f"{_NAMES.get(kind, f'device kind {kind}')}:{number}"

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent != 1 and stride != step:
                return prod(self.shape) == 0
            step *= extent
        return True

    @property
    def nbytes(self) -> int:
        """Bytes of the elements of a contiguous array."""
        return prod(self.shape) * itemsize(self.dtype)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        dtype = array_dtype(self.dtype)
        return {
            "version": 3,
            "shape": self.shape,
            "strides": tuple(n * dtype.itemsize for n in self.strides),
            "typestr": dtype.str,
            "data": (self.pointer, self.readonly),
        }

    def numpy(self) -> npt.NDArray[Any]:
        """The same memory as a NumPy array, of bfloat16 as uint16; for memory of the host."""
        return np.asarray(self)


def foreign(array: Any, where: str, stream: int | None = None) -> Foreign | None:
    """What `array` says of itself by `__cuda_array_interface__` or DLPack; None if it has neither.

    `stream`: the CUDA stream (as DLPack writes it) that is to wait until the elements are ready;
    without, that on which PyTorch works now, or else CUDA's default stream. `where` begins
    messages. Raises ArgumentError where the array gives its memory to nobody, or has elements of no
    dtype here.
    """
    try:
        interface = getattr(array, "__cuda_array_interface__", None)
        told = isinstance(interface, Mapping) and interface.get("stream") is not None
        if told or not (hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__")):
            return None if interface is None else _of_interface(array, interface, where)
        kind, number = (int(x) for x in array.__dlpack_device__())
        ready = _ready(array, stream) if kind in ON_CUDA else None
        capsule = _capsule(array, ready)
    except (BufferError, RuntimeError, TypeError, ValueError, KeyError) as e:
        raise ArgumentError(
            f"{where} is {_a(array)} that does not give out its memory ({e}); pass an array "
            "without gradients, in plain memory"
        ) from e
    return _of_capsule(capsule, (kind, number), where, ready)


def _ready(array: Any, stream: int | None) -> int:
    """The stream that is to wait for an array on CUDA: `stream`, or that on which its library
    works, or the default stream."""
    if stream is not None:
        return stream
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return int(torch.cuda.current_stream(array.device).cuda_stream) or LEGACY_STREAM
    return LEGACY_STREAM


def _capsule(array: Any, stream: int | None) -> Any:
    options: dict[str, Any] = {} if stream is None else {"stream": stream}
    try:
        return array.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # libraries from before DLPack 1.0 know no max_version
        return array.__dlpack__(**options)


def _of_capsule(capsule: Any, device: tuple[int, int], where: str, stream: int | None) -> Foreign:
    """What a capsule tells. It is not consumed: when it goes, it gives the memory back itself."""
    name_of = ctypes.pythonapi.PyCapsule_GetName
    name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
    name = name_of(capsule)
    if name not in (b"dltensor", b"dltensor_versioned"):
        raise ArgumentError(f"{where}: __dlpack__ gave a capsule {name!r}; expected a dltensor")
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(capsule, name)
    readonly = False
    if name == b"dltensor_versioned":
        versioned = _Versioned.from_address(address)
        if versioned.major != 1:
            raise ArgumentError(
                f"{where} speaks DLPack {versioned.major}.{versioned.minor}; expected 1.x"
            )
        # What is written to a copy is lost.
        tensor, readonly = versioned.tensor, bool(versioned.flags & (_READ_ONLY | _COPIED))
    else:
        tensor = _Tensor.from_address(address)
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides else dense(shape)
    pointer = (tensor.data or 0) + tensor.byte_offset
    dtype = _dtype(tensor.code, tensor.bits, tensor.lanes, where)
    return Foreign(pointer, shape, strides, dtype, device, readonly, capsule, stream)


def _dtype(code: int, bits: int, lanes: int, where: str) -> str:
    kind = _KINDS.get(code, f"code {code} of ")
    name = "bool" if kind == "bool" else f"{kind}{bits}"
    return _known(name if lanes == 1 else f"{name} x {lanes}", where)


def _of_interface(array: Any, interface: Mapping[str, Any], where: str) -> Foreign:
    if interface.get("mask") is not None:
        raise ArgumentError(f"{where} has a mask, which kernels do not see; pass an array without")
    shape = tuple(int(n) for n in interface["shape"])
    dtype = np.dtype(interface["typestr"])
    name = _known(dtype.name if dtype.isnative else f"{dtype.str} (not native)", where)
    given = interface.get("strides")
    if given is not None and any(n % dtype.itemsize for n in given):
        raise ArgumentError(f"{where} has elements at parts of others (strides {given})")
    strides = dense(shape) if given is None else tuple(n // dtype.itemsize for n in given)
    pointer, readonly = interface["data"]
    stream = interface.get("stream")
    if stream == 0:
        raise ArgumentError(f"{where}: stream 0 of __cuda_array_interface__ has no meaning")
    number = int(getattr(getattr(array, "device", None), "id", 0) or 0)
    device = (CUDA, number)
    return Foreign(int(pointer), shape, strides, name, device, bool(readonly), array, stream)


def _known(name: str, where: str) -> str:
    try:
        itemsize(name)
    except (KeyError, TypeError, ValueError) as e:
        raise ArgumentError(
            f"{where} has elements of {name}, which is no dtype of tensor programs; convert it"
        ) from e
    return name


def dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of an array in C order, in elements."""
    return tuple(prod(shape[n + 1 :]) for n in range(len(shape)))


def _a(thing: object) -> str:
    return f"a {type(thing).__module__.split('.')[0]}.{type(thing).__name__}"
