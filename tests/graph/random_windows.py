"""Operators of random models whose sizes are numbers of windows, or counted again."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from random_nodes import Model
from random_sizes import Dims, by_of, grown_by, is_flat, least_of, windows_of


def counted(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """Positions, or the beginning of a table or zeros, as many as the last axis has elements,
    which are counted again from the size of an input."""
    d = dims[-1]
    if isinstance(d, int) or d[0] not in ("n", "m"):
        return None
    n, by = m.size((d[0], 0)), by_of(d)
    before = max(0, -(d[1] + 3) // by + 1)  # a quotient below 0 is rounded up
    if n is None:
        return None
    longer = m.node("Add", [n, m.const(np.asarray([d[1] + by * before]))])
    divided = m.node("Div", [longer, m.const(np.asarray([by]))])
    count = m.node("Sub", [divided, m.const(np.asarray([before]))])
    kind = m.pick(3)
    if kind == 0:
        limit = m.node("Squeeze", [count])
        places = m.node("Range", [m.const(np.asarray(0)), limit, m.const(np.asarray(1))])
        found = m.node("Cast", [places], to=TensorProto.FLOAT)
    elif kind == 1:
        found = m.node("Slice", [m.floats(64), m.const(np.asarray([0])), count])
    else:
        found = m.node("Expand", [m.floats(1), count])
    return m.node("Add", [a, found]), dims


def resized(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """The last axis as long as that of another value."""
    b, other = m.value()
    if len(dims) != 3 or is_flat(dims[2]) or is_flat(other[-1]):
        return None
    first = m.node("Gather", [m.node("Shape", [a]), m.const(np.asarray([0, 1]))])
    last = m.node("Gather", [m.node("Shape", [b]), m.const(np.asarray([len(other) - 1]))])
    sizes = m.node("Concat", [first, last], axis=0)
    kinds = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    attrs: dict[str, str] = {"coordinate_transformation_mode": kinds[m.pick(4)]}
    if m.pick(2):
        attrs["mode"] = "linear"
    else:
        modes = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        attrs["nearest_mode"] = modes[m.pick(4)]
    return m.node("Resize", [a, "", "", sizes], **attrs), (*dims[:2], other[-1])


def conv(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    if len(dims) != 3 or not isinstance(dims[1], int):
        return None
    return m.node("Conv", [a, m.floats(3, dims[1], 3)], pads=[1, 1]), (dims[0], 3, dims[2])


def windows(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """A convolution or a pool with a stride, or a pool of all."""
    if len(dims) != 3 or not isinstance(dims[1], int) or is_flat(dims[2]):
        return None
    op = ("Conv", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool")[
        m.pick(6)
    ]
    if op.startswith("Global"):
        return m.node(op, [a]), (*dims[:2], 1)
    size, stride, apart = 1 + m.pick(3), 1 + m.pick(3), 1 + m.pick(2)
    reach = (size - 1) * apart + 1 if op == "Conv" else size
    pads = [m.pick(min(2, size)), m.pick(min(2, size))]
    attrs: dict[str, object] = {"kernel_shape": [size], "strides": [stride], "pads": pads}
    if least_of(dims[2]) + sum(pads) < reach:
        return None
    end = windows_of(grown_by(dims[2], sum(pads)), reach, stride)
    if op != "LpPool" and m.pick(4) == 0:
        del attrs["pads"]
        attrs["auto_pad"] = ("SAME_UPPER", "SAME_LOWER")[m.pick(2)]
        end = windows_of(dims[2], 1, stride)
        if op == "Conv":
            attrs["dilations"] = [apart]
        given = [a, m.floats(3, dims[1], size)] if op == "Conv" else [a]
        return m.node(op, given, **attrs), (dims[0], 3 if op == "Conv" else dims[1], end)
    if op == "Conv":
        made = m.node(op, [a, m.floats(3, dims[1], size)], dilations=[apart], **attrs)
        return made, (dims[0], 3, end)
    if op == "AveragePool":
        attrs["count_include_pad"] = m.pick(2)
    if op != "LpPool" and m.pick(2):
        attrs["ceil_mode"] = 1
        more = windows_of(grown_by(dims[2], sum(pads) + stride - 1), reach, stride)
        last = windows_of(grown_by(dims[2], pads[0]), 1, stride)
        end = min(more, last, key=lambda d: d if isinstance(d, int) else d[1])
    return m.node(op, [a], **attrs), (*dims[:2], end)
