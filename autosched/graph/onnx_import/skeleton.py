"""Skeletons: ONNX models without their weights, from which the same kernels follow.

The kernels of a model, and so the keys of their records, follow from shapes, and from the few
constants that shapes or the code of a kernel depend on. `skeleton` leaves those in place and puts a
number in the place of every other array; arrays with equal contents get the same number, since
calls of equal arguments are made once. `from_skeleton` has arrays of arbitrary values for them: its
module has the tasks of the model, and computes nothing of use.

Only a kernel into whose code a number goes that is computed from a whole weight (the scale of a
tensor taken from its largest element, say) has another key than with the model itself, and one of
bytes may have whose weight is reshaped on its way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from autosched.errors import WorkloadError
from autosched.graph.errors import Unsupported
from autosched.graph.fold import SMALL
from autosched.graph.ir import Array
from autosched.graph.onnx_import.files import BOUNDS, MALFORMED, Bounds, ModelLike, load
from autosched.graph.onnx_import.reader import Reader
from autosched.graph.onnx_import.scope import inputs_of
from autosched.graph.onnx_import.tensors import READ, Tensors, check_shape, input_types
from autosched.graph.ops.quantised import LARGEST_SUM, NARROW, bits_of_sums
from autosched.tir.module import IRModule

if TYPE_CHECKING:
    import onnx

LARGEST = 1_000_000
"""Bytes of a skeleton."""
SKELETON_BOUNDS = Bounds(bytes=LARGEST, nodes=20_000, elements=1 << 30)
ROOM = 3 << 29
"""Bytes of all arrays that a skeleton has numbers for."""

_MARK = "autosched.weight:"
_NUMBERS, _CODES, _EQUAL = 16, 64, 64
"""Elements of constants that stay: floating-point numbers, small integers, and equal elements."""
_TILE = 4093
_DIGITS = "0123456789"
_WIDE = "w"
"""Between the number of a weight of bytes and the axes along which its sums are large."""
_EXTREMES = LARGEST_SUM // 128
"""Elements of -128 whose sum is large."""
_DRAWN = 500
"""Other elements of such a weight that are not 0: fewer than have a large sum."""


def skeleton(model: ModelLike, shapes: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """A model as an ONNX file without its weights, of at most LARGEST bytes.

    `model` and `shapes` are those of `from_onnx`; the shapes are fixed in the skeleton. What stays
    of the constants: up to 16 floating-point numbers, up to 64 that are equal, integers of 64 bits
    and equal ones up to 16,384, others up to 64. Raises Unsupported for what is no model or has an
    input of an open size, WorkloadError for a model whose skeleton is too large.
    """
    import onnx

    proto, folder = load(model, BOUNDS)
    tensors = Tensors(folder, BOUNDS)
    made = onnx.ModelProto()
    made.CopyFrom(_bare(proto))
    try:
        _fix_inputs(made.graph, shapes or {})
        numbers: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        # The copy has the names and shapes, the model the arrays.
        for copy, original in zip(_tensors(made), _tensors(proto), strict=True):
            _strip(copy, tensors.array(original, f"the constant {original.name!r}"), numbers)
    except MALFORMED as e:
        raise Unsupported(f"the model is malformed: {type(e).__name__}: {e}") from e
    data: bytes = made.SerializeToString()
    if len(data) > LARGEST:
        largest = max(_tensors(made), key=lambda t: t.ByteSize(), default=None)
        which = ""
        if largest is not None and largest.ByteSize() > LARGEST // 8:
            which = f"; its largest constant is {largest.name!r}, {largest.ByteSize():,} bytes"
        raise WorkloadError(
            f"without its weights the model still has {len(data):,} bytes, and at most "
            f"{LARGEST:,} are sent{which}; tune it on this machine: autosched tune MODEL.onnx"
        )
    return data


def from_skeleton(data: bytes, bounds: Bounds = SKELETON_BOUNDS, room: int = ROOM) -> IRModule:
    """The module of a skeleton: it has the tasks of the model, and values of no meaning.

    Nothing is read besides `data`, and its arrays have at most `room` bytes. Raises Unsupported,
    naming node, operator and attribute.
    """
    proto, _ = load(data, bounds)
    try:
        reader = Reader(proto, None, bounds)
        reader.tensors = _StandIns(bounds, room)
        return IRModule({}, {"main": reader.main({})})
    except MALFORMED as e:
        raise Unsupported(f"the skeleton is malformed: {type(e).__name__}: {e}") from e


def _bare(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the contents of its arrays and without what is written for people."""
    import onnx

    made = onnx.ModelProto(ir_version=proto.ir_version)
    made.opset_import.extend(proto.opset_import)
    made.graph.CopyFrom(_bare_graph(proto.graph))
    for function in proto.functions:
        copy = made.functions.add()
        copy.CopyFrom(function)
        copy.ClearField("doc_string")
        copy.ClearField("node")
        copy.ClearField("value_info")
        copy.node.extend(_bare_node(n) for n in function.node)
    return made


def _bare_graph(graph: onnx.GraphProto) -> onnx.GraphProto:
    import onnx

    made = onnx.GraphProto(name=graph.name)
    made.node.extend(_bare_node(n) for n in graph.node)
    made.initializer.extend(_bare_tensor(t) for t in graph.initializer)
    made.sparse_initializer.extend(graph.sparse_initializer)
    made.input.extend(graph.input)
    made.output.extend(onnx.ValueInfoProto(name=o.name, type=o.type) for o in graph.output)
    return made


def _bare_node(node: onnx.NodeProto) -> onnx.NodeProto:
    import onnx

    made = onnx.NodeProto(
        name=node.name, op_type=node.op_type, domain=node.domain, input=node.input,
        output=node.output,
    )  # fmt: skip
    for a in node.attribute:
        copy = made.attribute.add(name=a.name, type=a.type, ref_attr_name=a.ref_attr_name)
        if a.HasField("g"):
            copy.g.CopyFrom(_bare_graph(a.g))
        elif a.HasField("t") and node.op_type == "Constant":
            copy.t.CopyFrom(_bare_tensor(a.t))
        else:
            copy.CopyFrom(a)
            copy.ClearField("doc_string")
    return made


def _bare_tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    import onnx

    return onnx.TensorProto(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)


def _fix_inputs(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Put numbers in the place of open sizes. Raises Unsupported where one stays open."""
    inputs = inputs_of(graph)
    for info, found in zip(inputs, input_types(inputs, shapes, BOUNDS), strict=True):
        sizes = info.type.tensor_type.shape
        del sizes.dim[:]
        for n in found.known:
            sizes.dim.add(dim_value=int(n))
        info.type.tensor_type.shape.SetInParent()  # of a number there are no sizes
        info.ClearField("doc_string")


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """The constants of a model, of subgraphs and function bodies too, in one order."""
    yield from _of_graph(model.graph)
    for function in model.functions:
        yield from _of_nodes(function.node)


def _of_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    yield from _of_nodes(graph.node)


def _of_nodes(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for a in node.attribute:
            if a.HasField("g"):
                yield from _of_graph(a.g)
            elif a.HasField("t") and node.op_type == "Constant":
                yield a.t


def _strip(
    copy: onnx.TensorProto,
    array: Array,
    numbers: dict[tuple[str, tuple[int, ...], bytes], int],
) -> None:
    """Give a bare tensor its contents, or the number of these."""
    from onnx import TensorProto, numpy_helper

    if copy.data_type == TensorProto.BFLOAT16:  # it is read as float32
        copy.data_type = TensorProto.FLOAT
    if _stays(array):
        full = numpy_helper.from_array(array, copy.name)
        full.data_type = copy.data_type
        copy.CopyFrom(full)
        return
    content = hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data).digest()
    number = numbers.setdefault((array.dtype.str, array.shape, content), len(numbers))
    wide = "".join(map(str, _wide_axes(array)))
    copy.doc_string = f"{_MARK}{number}{_WIDE if wide else ''}{wide}"


def _wide_axes(array: Array) -> list[int]:
    """The axes of a weight of bytes along which its sums are large: those by filters decide
    between kernels (`bits_of_sums`), and filters may be any axis, as a weight may be transposed on
    its way to a convolution."""
    if array.dtype.name not in ("int8", "uint8") or array.ndim < 3 or array.size < _EXTREMES:
        return []
    signed = array if array.dtype == np.int8 else array.astype(np.int16) - _zero(array.dtype)
    return [
        n for n in range(min(array.ndim, 9)) if bits_of_sums(np.moveaxis(signed, n, 0)) != NARROW
    ]


def _zero(dtype: np.dtype) -> int:
    """What is taken off bytes before they are multiplied (`passes/integers.py`)."""
    return 128 if dtype == np.uint8 else 0


def _stays(array: Array) -> bool:
    kind, size = array.dtype.kind, array.size
    if kind in "OSU":
        return True
    if kind in "iub":
        most = SMALL if array.dtype in (np.int64, np.bool_) or _is_even(array) else _CODES
        return size <= most
    # x + 0 and x * 1 are not computed, for as many elements.
    return size <= _NUMBERS or (size <= _EQUAL and _is_even(array))


def _is_even(array: Array) -> bool:
    """Whether all elements are equal, as zero points are."""
    return array.size > 0 and bool(np.all(array == array.flat[0]))


class _StandIns(Tensors):
    """The tensors of a skeleton: arrays by their numbers, others as they are, none in a file."""

    def __init__(self, bounds: Bounds, room: int) -> None:
        super().__init__(None, bounds)
        self._room = room

    def array(self, tensor: onnx.TensorProto, where: str) -> Array:
        if not tensor.doc_string.startswith(_MARK):
            return super().array(tensor, where)
        import onnx

        check_shape(tensor.dims, where, self.bounds)
        number = tensor.doc_string.removeprefix(_MARK)
        number, _, axes = number.partition(_WIDE)
        wide = [int(n) for n in axes if n in _DIGITS]
        if not (number.isascii() and number.isdigit() and len(number) <= 9):
            raise Unsupported(f"{where} has the number {number[:20]!r}; expected up to 9 digits")
        try:
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
        except KeyError as e:
            raise Unsupported(f"{where} has the element type {tensor.data_type}") from e
        if dtype.name not in READ:
            raise Unsupported(f"{where} has the element type {dtype.name}")
        shape = tuple(tensor.dims)
        size = int(np.prod(shape, dtype=object))
        self._room -= size * dtype.itemsize
        if self._room < 0:
            raise Unsupported(
                "the model's weights have more bytes than a server has room for while it looks at "
                "a model; tune it on your machine: autosched tune MODEL.onnx"
            )
        if axes != "".join(map(str, wide)) or any(n >= len(shape) for n in wide):
            raise Unsupported(f"{where} has the axes {axes[:20]!r}; expected some of its own")
        if dtype.name in ("int8", "uint8") and len(shape) > 2 and size >= _EXTREMES:
            return _bytes(int(number), shape, dtype, wide)
        return _stand_in(int(number), shape, size, dtype)


def _bytes(number: int, shape: tuple[int, ...], dtype: np.dtype, wide: list[int]) -> Array:
    """Bytes that differ from number to number, whose sums are large along these axes alone."""
    signed = np.zeros(shape, np.int16)
    signed.reshape(-1)[:_DRAWN] = np.random.default_rng(number).integers(1, 100, _DRAWN)
    for axis in wide:
        rows = np.moveaxis(signed, axis, 0)[0]
        if rows.size >= _EXTREMES:
            # Apart by an odd number near the golden section, so along no other axis are they near.
            step = int(rows.size * 0.618) | 1
            while gcd(step, rows.size) > 1:
                step += 2
            rows.flat[np.arange(_EXTREMES) * step % rows.size] = -128
    return (signed + _zero(dtype)).astype(dtype)


def _stand_in(number: int, shape: tuple[int, ...], size: int, dtype: np.dtype) -> Array:
    """Positive values that differ from number to number: their roots are taken, and of equal
    arrays one is kept."""
    rng = np.random.default_rng(number)
    few = min(size, _TILE)
    if dtype.kind in "iu":
        values = rng.integers(1, 100, few).astype(dtype)
    elif dtype.kind == "b":
        values = rng.integers(0, 2, few).astype(dtype)
    else:
        values = rng.uniform(0.5, 1.5, few).astype(dtype)
    out = np.empty(size, dtype)
    whole = size // few * few if few else 0
    out[:whole].reshape(-1, max(few, 1))[...] = values
    out[whole:] = values[: size - whole]
    return out.reshape(shape)
