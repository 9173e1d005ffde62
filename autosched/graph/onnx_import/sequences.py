"""Sequences and optional values: known element by element while the file is read, so that nothing
of them is left in the module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.graph.errors import Unsupported
from autosched.graph.fold import constant
from autosched.graph.ir import Atom, Const, tensor_type
from autosched.graph.onnx_import.scope import Listed, Scope, Value, tensors
from autosched.graph.onnx_import.tensors import dtype_name
from autosched.graph.onnx_import.upgrade import upgraded

if TYPE_CHECKING:
    import onnx

    from autosched.graph.onnx_import.reader import Reader

Attrs = dict[str, Any]
ABSENT = Listed((), absent=True)
"""An optional value that there is none of."""


class Node:
    """One node: its arguments, and the operators that stand for it."""

    def __init__(self, reader: Reader, args: Sequence[Value | None], scope: Scope) -> None:
        self.reader, self.args, self.scope = reader, args, scope

    def given(self, n: int) -> Value | None:
        """Argument n; None where it is left out."""
        return self.args[n] if n < len(self.args) else None

    def items(self, n: int) -> tuple[Atom, ...]:
        """The elements of a sequence. Raises Unsupported for anything else."""
        found = self.given(n)
        if not isinstance(found, Listed) or found.absent:
            raise Unsupported(f"its input {n} is no sequence whose elements are known")
        return found.items

    def tensor(self, n: int) -> Atom:
        """Argument n. Raises Unsupported for a sequence and for none."""
        (found,) = tensors([self.given(n)])
        if found is None:
            raise Unsupported(f"its input {n} is missing")
        return found

    def position(self, n: int, count: int) -> int:
        """A known place in a sequence of `count` places. Raises Unsupported."""
        at = self.tensor(n)
        if not isinstance(at, Const):
            raise Unsupported("the position is known only when the model runs")
        found = int(at.value.reshape(-1)[0])
        if not -count <= found < count:
            raise Unsupported(f"the position {found} is outside of {count} places")
        return found % count

    def one(self, name: str, args: Sequence[Atom], attrs: Attrs) -> Atom:
        """The result of another operator."""
        call = upgraded(self.scope, name, args, attrs, 1)
        return self.scope.emit(call.name, call.args, call.attrs)[0]

    def unsqueezed(self, x: Atom, axis: int) -> Atom:
        """A value with another axis."""
        return self.scope.emit("Unsqueeze", [x, constant(np.array([axis], np.int64))], {})[0]


def _empty(node: Node, attrs: Attrs) -> Value:
    dtype_name(int(attrs.pop("dtype", 1)), "attribute dtype")
    return Listed(())


def _construct(node: Node, attrs: Attrs) -> Value:
    return Listed(tuple(node.tensor(n) for n in range(len(node.args))))


def _insert(node: Node, attrs: Attrs) -> Value:
    items = list(node.items(0))
    # Behind the last one is a place, too.
    at = len(items) if node.given(2) is None else _insertion(node, len(items))
    items.insert(at, node.tensor(1))
    return Listed(tuple(items))


def _insertion(node: Node, count: int) -> int:
    at = node.tensor(2)
    if isinstance(at, Const) and int(at.value.reshape(-1)[0]) == count:
        return count
    return node.position(2, count)


def _erase(node: Node, attrs: Attrs) -> Value:
    items = list(node.items(0))
    del items[-1 if node.given(1) is None else node.position(1, len(items))]
    return Listed(tuple(items))


def _at(node: Node, attrs: Attrs) -> Value:
    """An element; where its place is computed, a row of all elements in one value."""
    items = node.items(0)
    if isinstance(node.tensor(1), Const):
        return items[node.position(1, len(items))]
    types = {(t.shape, t.dtype) for t in map(tensor_type, items)}
    if len(types) != 1:
        raise Unsupported("the position is computed, and the elements are not all of one shape")
    rows = node.one("Concat", [node.unsqueezed(x, 0) for x in items], {"axis": 0})
    return node.one("Gather", [rows, node.tensor(1)], {"axis": 0})


def _length(node: Node, attrs: Attrs) -> Value:
    return constant(np.asarray(len(node.items(0)), np.int64))


def _concat(node: Node, attrs: Attrs) -> Value:
    axis, fresh = int(attrs.pop("axis")), bool(attrs.pop("new_axis", 0))
    items: Sequence[Atom] = node.items(0)
    if not items:
        raise Unsupported("the sequence has no elements")
    if fresh:
        items = [node.unsqueezed(x, axis) for x in items]
    return items[0] if len(items) == 1 else node.one("Concat", items, {"axis": axis})


def _split(node: Node, attrs: Attrs) -> Value:
    x, axis, keep = node.tensor(0), int(attrs.pop("axis", 0)), bool(attrs.pop("keepdims", 1))
    t = tensor_type(x)
    if not t.is_static or not -len(t.known) <= axis < len(t.known):
        raise Unsupported(f"the axis {axis} of {t} has no size that is known")
    extent = int(t.known[axis])
    sizes = _sizes(node.given(1), extent)
    node.reader.count(len(sizes))
    squeeze = node.given(1) is None and not keep
    ends = np.cumsum(sizes).tolist()
    out = []
    for size, end in zip(sizes, ends, strict=True):
        places: Attrs = {"starts": (end - size,), "ends": (end,), "axes": (axis,), "steps": (1,)}
        (piece,) = node.scope.emit("Slice", [x], places)
        if squeeze:
            axes = constant(np.array([axis], np.int64))
            (piece,) = node.scope.emit("Squeeze", [piece, axes], {})
        out.append(piece)
    return Listed(tuple(out))


def _sizes(given: Value | None, extent: int) -> list[int]:
    """The sizes of the pieces of an axis. Raises Unsupported."""
    if given is None:
        return [1] * extent
    if not isinstance(given, Const):
        raise Unsupported("the sizes of the pieces are known only when the model runs")
    value = given.value
    if value.ndim:
        sizes = [int(n) for n in value.reshape(-1)]
        if sum(sizes) != extent or min(sizes, default=0) < 0:
            raise Unsupported(f"the sizes {sizes[:8]} do not make {extent}")
        return sizes
    each = int(value)
    if each <= 0:
        raise Unsupported(f"pieces of {each} elements cannot be; expected at least 1")
    return [min(each, extent - n) for n in range(0, extent, each)]


def _optional(node: Node, attrs: Attrs) -> Value:
    attrs.pop("type", None)
    found = node.given(0)
    return ABSENT if found is None else found


def _has_element(node: Node, attrs: Attrs) -> Value:
    found = node.given(0)
    there = found is not None and not (isinstance(found, Listed) and found.absent)
    return constant(np.asarray(there))


def _get_element(node: Node, attrs: Attrs) -> Value:
    found = node.given(0)
    if found is None or (isinstance(found, Listed) and found.absent):
        raise Unsupported("the optional value has no element")
    return found


RULES: dict[str, Callable[[Node, Attrs], Value]] = {
    "SequenceEmpty": _empty, "SequenceConstruct": _construct, "SequenceInsert": _insert,
    "SequenceErase": _erase, "SequenceAt": _at, "SequenceLength": _length,
    "ConcatFromSequence": _concat, "SplitToSequence": _split, "Optional": _optional,
    "OptionalHasElement": _has_element, "OptionalGetElement": _get_element,
}  # fmt: skip
"""The operators on sequences and optional values."""


def read(
    reader: Reader, node: onnx.NodeProto, args: Sequence[Value | None], scope: Scope
) -> Sequence[Value]:
    """The result of one of RULES. Raises Unsupported."""
    names = [a.name for a in node.attribute if a.name != "type"]
    attrs = {a.name: reader.tensors.attribute(a) for a in node.attribute if a.name in names}
    result = RULES[node.op_type](Node(reader, args, scope), attrs)
    if attrs:
        raise Unsupported(f"{node.op_type} has no attribute {next(iter(attrs))}")
    return [result]
