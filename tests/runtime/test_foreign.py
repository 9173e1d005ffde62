"""Arrays of other libraries: taken where they are, or refused with the reason.

There is no device of CUDA here: arrays on one are doubles, of which only what they say is read.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.codegen.artifact import KernelInfo, Param
from autosched.errors import ArgumentError
from autosched.runtime.arrays import empty
from autosched.runtime.device_arguments import cuda_arguments
from autosched.runtime.foreign import CPU, CUDA, Foreign, foreign

Array = np.ndarray[Any, Any]


class OnlyDLPack:
    """What another library's array on the CPU shows of itself. `old`: from before DLPack 1.0."""

    def __init__(self, array: Array, old: bool = False) -> None:
        self.array, self.old = array, old

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        if self.old and options:
            raise TypeError("no options are known")
        return self.array.__dlpack__(**options)


class WithGradients(OnlyDLPack):
    """As PyTorch refuses."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("Can't export tensors that require gradient")


class OnCuda:
    """`__cuda_array_interface__` of an array that is nowhere."""

    def __init__(self, shape: tuple[int, ...] = (4, 8), **fields: Any) -> None:
        self.__cuda_array_interface__ = {
            "version": 3,
            "shape": shape,
            "typestr": "<f4",
            "data": (0x7F0000001000, False),
            **fields,
        }


class DLPackOnCuda(OnlyDLPack):
    """Memory of the host that says it were that of device `number`; `asked` is the stream."""

    number = 1
    asked: Any = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return (CUDA, self.number)

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        self.asked = stream
        return self.array.__dlpack__(**options)


def adding() -> at.BuiltFunction:
    a = te.placeholder((4, 8), name="a")
    b = te.compute((4, 8), lambda i, j: a[i, j] + 1, name="b")
    return at.build(te.create_prim_func([a, b]))


# On the CPU


@pytest.mark.parametrize("old", [False, True])
def test_memory_of_another_library_is_used_where_it_is(old: bool) -> None:
    func = adding()
    a, b = np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32)
    func(OnlyDLPack(a, old), OnlyDLPack(b, old))
    np.testing.assert_array_equal(b, a + 1)
    found = foreign(OnlyDLPack(b, old), "b")
    assert found is not None
    assert (found.pointer, found.shape, found.device) == (b.ctypes.data, (4, 8), (CPU, 0))


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool"]
)
def test_dtypes(dtype: str) -> None:
    array = np.ones((2, 3), dtype)
    found = foreign(OnlyDLPack(array), "x")
    assert found is not None
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.numpy(), array)
    assert found.numpy().dtype == dtype


def test_the_owner_lives_as_long_as_the_view() -> None:
    array = np.arange(1000.0)
    gone = weakref.ref(array)
    found = foreign(OnlyDLPack(array), "x")
    assert found is not None
    view = found.numpy()
    del array, found
    gc.collect()
    assert gone() is not None
    assert view[999] == 999.0
    del view
    gc.collect()
    assert gone() is None


def frozen(a: Array) -> Array:
    a.flags.writeable = False
    return a


@pytest.mark.parametrize(
    ("index", "given", "message"),
    [
        (1, OnlyDLPack(frozen(np.ones((4, 8), np.float32))), r"argument 1 \(b\) .* is read-only"),
        (0, OnlyDLPack(np.ones((8, 4), np.float32).T), r"\(a\) .* not C-contiguous \(strides"),
        (0, OnlyDLPack(np.ones((4, 8))), "has dtype float64; expected float32"),
        (0, OnlyDLPack(np.ones((4, 7), np.float32)), r"has shape \(4, 7\); expected \(4, 8\)"),
        (0, WithGradients(np.ones((4, 8), np.float32)), "does not give out its memory .*gradient"),
        (0, OnCuda(), "in the memory of cuda:0; expected memory of the host: copy it"),
        (0, DLPackOnCuda(np.ones((4, 8), np.float32)), "in the memory of cuda:1"),
        (0, OnCuda(typestr=">f4"), "elements of >f4 .not native., which is no dtype"),
    ],
    ids=["read-only", "strided", "dtype", "shape", "gradients", "cuda", "dlpack", "byte order"],
)
def test_what_does_not_fit(index: int, given: Any, message: str) -> None:
    arrays: list[Any] = [np.ones((4, 8), np.float32), np.ones((4, 8), np.float32)]
    arrays[index] = given
    with pytest.raises(ArgumentError, match=message):
        adding()(*arrays)


def test_overlaps_are_seen_through_other_libraries() -> None:
    a = np.ones((4, 8), np.float32)
    with pytest.raises(ArgumentError, match=r"output b .* overlaps a"):
        adding()(a, OnlyDLPack(a))


# On a device of CUDA

INFO = KernelInfo("f", (Param("a", (4, 8), "float32", False), Param("b", (4, 8), "float32", True)))
FAR = {"data": (0x7F0000002000, False)}


def test_arrays_on_the_device_stay_there() -> None:
    """The function is launched on the stream on which they are ready."""
    found = cuda_arguments(INFO, [OnCuda(stream=7), OnCuda(stream=9, **FAR)])
    assert (found.device, found.stream, found.others) == (0, 7, (9,))
    assert [x.pointer for x in found.arrays if isinstance(x, Foreign)] == [
        0x7F0000001000,
        0x7F0000002000,
    ]


def test_without_a_stream_it_is_the_default_one() -> None:
    given = DLPackOnCuda(aligned())
    found = cuda_arguments(INFO, [given, DLPackOnCuda(aligned())])
    assert (given.asked, found.stream, found.others, found.device) == (1, 1, (), 1)


def test_numpy_arrays_are_left_to_be_copied() -> None:
    b = np.zeros((4, 8), np.float32)
    found = cuda_arguments(INFO, [OnCuda(), b])
    assert found.arrays[1] is b
    host = cuda_arguments(INFO, [b, OnlyDLPack(np.zeros((4, 8), np.float32))])
    assert host.device is None
    assert isinstance(host.arrays[1], np.ndarray)


def aligned() -> Array:
    return empty((4, 8))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([OnCuda(), OnCuda()], "output b .* overlaps a"),
        ([OnCuda(), DLPackOnCuda(aligned())], r"\(a\) of f is on CUDA device 0 and .*\(b\).* on 1"),
        ([OnCuda((4, 7)), OnCuda(**FAR)], r"is float32\[4, 7\]; expected float32\[4, 8\]"),
        ([OnCuda(typestr="<f8"), OnCuda(**FAR)], r"is float64\[4, 8\]; expected float32"),
        ([OnCuda(), OnCuda(data=(0x7F0000002000, True))], r"\(b\) .* output and is read-only"),
        ([OnCuda(strides=(4, 16)), OnCuda(**FAR)], r"not C-contiguous \(strides \(1, 4\), in el"),
        ([OnCuda(strides=(32, 3)), OnCuda(**FAR)], "at parts of others"),
        ([OnCuda(data=(0x7F0000001004, False)), OnCuda(**FAR)], "not aligned to the 16 bytes"),
        ([OnCuda(stream=0), OnCuda(**FAR)], "stream 0 .* has no meaning"),
        ([OnCuda(mask=OnCuda()), OnCuda(**FAR)], r"\(a\) of f has a mask"),
        ([OnCuda()], "takes 2 arrays"),
    ],
    ids=[
        "overlap",
        "devices",
        "shape",
        "dtype",
        "read-only",
        "strided",
        "parts",
        "alignment",
        "stream",
        "mask",
        "count",
    ],
)
def test_what_does_not_fit_on_a_device(given: list[Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        cuda_arguments(INFO, given)
