"""Attributes, tensors, and the types of inputs, as a file has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.checks import mapping, shown
from autosched.graph.errors import Unsupported
from autosched.graph.infer import is_text
from autosched.graph.ir import Array
from autosched.graph.onnx_import.files import Bounds
from autosched.graph.types import TensorType
from autosched.integers import as_int
from autosched.tir import dtypes

if TYPE_CHECKING:
    import onnx

READ = frozenset({*dtypes.DTYPES, "uint16", "uint32", "uint64"})
"""Element types of constants; te has fewer."""
PLAIN = {
    "FLOAT": "<f4", "DOUBLE": "<f8", "FLOAT16": "<f2", "BOOL": "?", "INT8": "i1", "INT16": "<i2",
    "INT32": "<i4", "INT64": "<i8", "UINT8": "u1", "UINT16": "<u2", "UINT32": "<u4",
    "UINT64": "<u8",
}  # fmt: skip
"""Element types whose bytes in a file are those of an array."""


class Tensors:
    """Reads attributes and tensors of a file in `folder`."""

    def __init__(self, folder: Path | None, bounds: Bounds) -> None:
        self.folder, self.bounds = folder, bounds

    def attribute(self, a: onnx.AttributeProto) -> Any:
        """The value of an attribute: a number, text, a tuple of these, or an array."""
        import onnx

        kind = onnx.AttributeProto
        if a.type == kind.INT:
            return a.i
        if a.type == kind.FLOAT:
            return a.f
        if a.type == kind.STRING:
            return a.s.decode("utf-8", "replace")
        if a.type == kind.INTS:
            return tuple(a.ints)
        if a.type == kind.FLOATS:
            return tuple(a.floats)
        if a.type == kind.STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in a.strings)
        if a.type == kind.TENSOR:
            return self.array(a.t, f"attribute {a.name}")
        raise Unsupported(f"attribute {a.name} is of a type that is not supported")

    def array(self, tensor: onnx.TensorProto, where: str) -> Array:
        """The array of a tensor. Raises Unsupported, naming it by `where`."""
        import onnx
        from onnx import numpy_helper

        check_shape(tensor.dims, where, self.bounds)
        try:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                array = self._external(tensor, where)
            else:
                array = numpy_helper.to_array(tensor)
        except Unsupported:
            raise
        except Exception as e:  # onnx raises whatever NumPy and protobuf do
            raise Unsupported(f"{where} cannot be read: {type(e).__name__}: {e}") from e
        if array.dtype.name in ("int4", "uint4"):  # as bytes: te has no halves of them
            array = array.astype(array.dtype.name.replace("4", "8"))
        if array.dtype.name == "bfloat16":
            array = array.astype(np.float32)
        if array.dtype.name not in READ and not is_text(array):
            raise Unsupported(f"{where} has the element type {array.dtype.name}")
        return array

    def _external(self, tensor: onnx.TensorProto, where: str) -> Array:
        """The array of a tensor in another file, in memory once."""
        import onnx
        from onnx import numpy_helper

        entries = {e.key: e.value for e in tensor.external_data}
        name = entries.get("location", "")
        if self.folder is None:
            raise Unsupported(f"{where} is in another file, {name!r}; give the model by its path")
        folder = self.folder.resolve()
        path = (folder / name).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise Unsupported(f"{where} is in {name!r}, which is no file in the model's folder")
        size, shape = path.stat().st_size, tuple(tensor.dims)
        start = _bytes(entries, "offset", where) or 0
        length = _bytes(entries, "length", where)
        plain = PLAIN.get(onnx.TensorProto.DataType.Name(tensor.data_type))
        need = None if plain is None else prod(shape) * np.dtype(plain).itemsize
        if need is not None and length not in (None, need):
            raise Unsupported(
                f"{where} is {length} bytes of {name!r}; its shape {shape} takes {need}"
            )
        if need is None:
            need = max(size - start, 0) if length is None else length
        if start + need > size:
            raise Unsupported(
                f"{where} is bytes {start} to {start + need} of {name!r}, which has {size}"
            )
        if plain is not None:
            return np.fromfile(path, plain, prod(shape), offset=start).reshape(shape)
        data = np.fromfile(path, np.uint8, need, offset=start).tobytes()
        return numpy_helper.to_array(
            onnx.TensorProto(dims=shape, data_type=tensor.data_type, raw_data=data)
        )


def _bytes(entries: Mapping[str, str], key: str, where: str) -> int | None:
    """A number of bytes in the description of an external tensor, None where there is none."""
    text = entries.get(key)
    if text is not None and not re.fullmatch("[0-9]{1,18}", text):
        raise Unsupported(f"{where} has the {key} {text[:40]!r}; expected a number of bytes")
    return None if text is None else int(text)


def check_shape(shape: Sequence[Any], where: str, bounds: Bounds) -> None:
    """Raises Unsupported for a shape that no value may have."""
    count = 1
    if len(shape) > bounds.rank:
        raise Unsupported(f"{where} has {len(shape)} axes; at most {bounds.rank} are supported")
    for n in shape:
        count *= max(n, 1) if isinstance(n, int) else 1
        if isinstance(n, int) and (n < 0 or count > bounds.elements):
            raise Unsupported(
                f"{where} has the shape {tuple(shape)}; expected sizes >= 0, and at most "
                f"{bounds.elements} elements"
            )


def input_types(
    infos: Sequence[onnx.ValueInfoProto], shapes: Mapping[str, Sequence[int]], bounds: Bounds
) -> list[TensorType]:
    """The types of inputs, whose shapes may be given from outside, by name. Raises Unsupported
    where a size is open, or one symbol is given two sizes."""
    shapes = mapping("shapes", shapes, "shapes by the names of inputs", Unsupported)
    names = [i.name for i in infos]
    if wrong := [n for n in shapes if n not in names]:
        raise Unsupported(f"no input is named {wrong[0]!r}; there are {', '.join(names)}")
    types = [_input_type(i, shapes.get(i.name), bounds) for i in infos]
    _check_symbols(infos, types)
    return types


def _check_symbols(infos: Sequence[onnx.ValueInfoProto], types: Sequence[TensorType]) -> None:
    """Raises Unsupported for a symbol with two sizes."""
    seen: dict[str, tuple[int, str]] = {}
    for info, t in zip(infos, types, strict=True):
        for d, n in zip(info.type.tensor_type.shape.dim, t.known, strict=False):
            if not d.dim_param.isidentifier() or re.match("None$|unk__", d.dim_param):
                continue  # what exporters write where they have no name
            size, name = seen.setdefault(d.dim_param, (int(n), info.name))
            if size != n:
                raise Unsupported(
                    f"the size {d.dim_param} is {size} of the input {name!r} and {n} of the input "
                    f"{info.name!r}; expected one number for it"
                )


def _input_type(
    info: onnx.ValueInfoProto, given: Iterable[int] | None, bounds: Bounds
) -> TensorType:
    """The type of an input whose shape may be given from outside. Raises Unsupported where a size
    is open."""
    where = f"the input {info.name!r}"
    if info.type.WhichOneof("value") != "tensor_type":
        raise Unsupported(f"{where} is no tensor")
    tensor = info.type.tensor_type
    dtype = dtype_name(tensor.elem_type, where)
    declared = [
        d.dim_value if d.WhichOneof("value") == "dim_value" else d.dim_param or "?"
        for d in tensor.shape.dim
    ]
    if given is None:
        if not tensor.HasField("shape"):
            raise Unsupported(f"{where} has no shape; give it: shapes={{{info.name!r}: (...)}}")
        open_ = [str(d) for d in declared if isinstance(d, str)]
        if open_:
            raise Unsupported(
                f"{where} has the shape ({', '.join(map(str, declared))}), whose size "
                f"{', '.join(open_)} is open; fix it: shapes={{{info.name!r}: (...)}}, or on the "
                f"command line --shape {info.name}=..."
            )
        given = [int(d) for d in declared]
    sizes = [as_int(n) for n in given] if isinstance(given, Iterable) else [None]
    shape = tuple(n for n in sizes if n is not None)
    if len(shape) != len(sizes):
        raise Unsupported(
            f"{where} is given the shape {shown(given)}; expected numbers, as in (1, 3, 224, 224)"
        )
    if tensor.HasField("shape") and (
        len(shape) != len(declared)
        or any(isinstance(d, int) and d != n for d, n in zip(declared, shape, strict=True))
    ):
        found = ", ".join(map(str, declared))
        raise Unsupported(f"{where} has the shape ({found}), which {shape} does not fit")
    check_shape(shape, where, bounds)
    return TensorType(shape, dtype)


def declared_type(info: onnx.ValueInfoProto) -> TensorType | None:
    """The type that a file writes to a value; None where a size of it is open."""
    tensor = info.type.tensor_type
    if not tensor.HasField("shape") or any(
        d.WhichOneof("value") != "dim_value" or d.dim_value < 0 for d in tensor.shape.dim
    ):
        return None
    dtype = dtype_name(tensor.elem_type, f"the value {info.name!r}")
    return TensorType(tuple(d.dim_value for d in tensor.shape.dim), dtype)


def dtype_name(number: int | str, where: str) -> str:
    """The dtype that a number of ONNX's, or its name in the first opsets, stands for; of bfloat16
    float32, which has all its values. Raises Unsupported."""
    name = number.lower() if isinstance(number, str) else _element_types().get(number, "")
    wider = {"float": "float32", "double": "float64", "bfloat16": "float32"}
    found = wider.get(name, name)
    if found not in dtypes.ARITHMETIC:
        raise Unsupported(
            f"{where} has the element type {found or number}, which is not supported; there are "
            f"{', '.join(dtypes.ARITHMETIC)}"
        )
    return found


@cache
def _element_types() -> dict[int, str]:
    """Names of element types by ONNX's numbers."""
    import onnx

    return {v: k.lower() for k, v in onnx.TensorProto.DataType.items()}


def type_proto(t: TensorType) -> onnx.TypeProto:
    """A type as ONNX writes it."""
    from onnx import helper

    return helper.make_tensor_type_proto(
        helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype)), [int(n) for n in t.known]
    )
