"""Arguments of a function on CUDA: arrays that are on the device, and what has to be copied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from autosched.codegen.artifact import KernelInfo
from autosched.codegen.gpu.vectors import MAX_BYTES
from autosched.errors import ArgumentError
from autosched.runtime.arguments import check_apart, check_array, check_count, place_of
from autosched.runtime.foreign import CUDA, LEGACY_STREAM, ON_CUDA, Foreign, foreign

ALIGNMENT = MAX_BYTES
"""Bytes, to a multiple of which arrays on a device begin: a vector load from elsewhere is an error
after which CUDA does nothing any more in this process."""

Argument = Union[Foreign, npt.NDArray[Any]]
"""An array on the device, used where it is, or one of the host, to be copied there and back."""


@dataclass(frozen=True, eq=False)
class DeviceArguments:
    """Checked arguments of a call. `device` is the number of the CUDA device that they are on, None
    if all are of the host. Launch on `stream`, once it waits for the streams in `others`."""

    arrays: tuple[Argument, ...]
    device: int | None
    stream: int = LEGACY_STREAM
    others: tuple[int, ...] = ()


def cuda_arguments(info: KernelInfo, arguments: Sequence[Any]) -> DeviceArguments:
    """The arguments of a function that runs on CUDA, checked.

    Arrays with DLPack or `__cuda_array_interface__` that are on CUDA stay where they are; anything
    else is taken as an array of the host. Raises ArgumentError.
    """
    check_count(info, arguments)
    found = tuple(_argument(info, n, argument) for n, argument in enumerate(arguments))
    devices = {x.device[1]: n for n, x in enumerate(found) if isinstance(x, Foreign)}
    if len(devices) > 1:
        (one, n), (other, m), *_ = devices.items()
        raise ArgumentError(
            f"{place_of(info, n)} is on CUDA device {one} and {place_of(info, m)} on {other}; all "
            "arrays of a call are on one device"
        )
    check_apart(info, [_span(x) for x in found])
    streams = [x.stream for x in found if isinstance(x, Foreign) and x.stream is not None]
    stream = streams[0] if streams else LEGACY_STREAM
    others = tuple(dict.fromkeys(s for s in streams if s != stream))
    return DeviceArguments(found, next(iter(devices), None), stream, others)


def _argument(info: KernelInfo, index: int, argument: Any) -> Argument:
    where = place_of(info, index)
    if isinstance(argument, np.ndarray):
        return check_array(info, index, argument)
    found = foreign(argument, where)
    if found is None or found.device[0] not in ON_CUDA:
        return check_array(info, index, argument)
    param = info.params[index]
    bits = param.dtype == "bfloat16" and found.dtype == "uint16"
    if found.shape != param.shape or (found.dtype != param.dtype and not bits):
        raise ArgumentError(
            f"{where} is {found.dtype}{list(found.shape)}; expected "
            f"{param.dtype}{list(param.shape)}"
        )
    if not found.contiguous:
        raise ArgumentError(
            f"{where} is not C-contiguous (strides {found.strides}, in elements); pass a "
            f"contiguous {'array and copy the result' if param.written else 'copy'}"
        )
    if param.written and found.readonly:
        raise ArgumentError(f"{where} is an output and is read-only; pass a writable array")
    if found.pointer % ALIGNMENT:
        raise ArgumentError(
            f"{where} starts at address {found.pointer:#x}, which is not aligned to the "
            f"{ALIGNMENT} bytes that kernels load at once; pass a copy"
        )
    return found


def _span(x: Argument) -> tuple[object, int, int]:
    """What holds the memory, first byte, number of bytes."""
    if isinstance(x, Foreign):
        return (CUDA, x.pointer, x.nbytes)
    return ("host", x.ctypes.data, x.nbytes)
