"""Random ONNX models with axes of open lengths n and m."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto
from random_nodes import Model
from random_sizes import (
    INPUTS,
    Dim,
    Dims,
    Inputs,
    N,
    grown_by,
    is_flat,
    least_of,
    parts_of,
    product_of,
)
from random_windows import conv, counted, resized, windows

Rule = Callable[[Model, str, Dims], "tuple[str, Dims] | None"]


def unary(m: Model, a: str, dims: Dims) -> tuple[str, Dims]:
    ops = ("Reciprocal", "Log", "Exp", "Relu", "Neg", "Tanh", "Cos", "Abs")
    return m.node(ops[m.pick(len(ops))], [a]), dims


def binary(m: Model, a: str, dims: Dims) -> tuple[str, Dims]:
    op = ("Add", "Mul", "Sub", "Div", "Max")[m.pick(5)]
    same = [v for v, d in m.values if d == dims]
    if m.pick(2) and isinstance(dims[-1], int):
        return m.node(op, [a, m.floats(dims[-1])]), dims
    return m.node(op, [a, same[m.pick(len(same))]]), dims


def softmax(m: Model, a: str, dims: Dims) -> tuple[str, Dims]:
    op = ("Softmax", "LogSoftmax")[m.pick(2)]
    return m.node(op, [a], axis=m.pick(len(dims)) - len(dims)), dims


def norm(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    if not isinstance(dims[-1], int):
        return None
    return m.node("LayerNormalization", [a, m.floats(dims[-1])], axis=-1), dims


REDUCTIONS = (
    "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ArgMax", "ReduceSum", "ReduceProd",
    "ReduceLogSumExp",
)  # fmt: skip


def means(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """The mean over two axes."""
    if len(dims) < 3:
        return None
    n = m.pick(len(dims) - 1)
    return m.node("ReduceMean", [a], axes=[n, n + 1]), (*dims[:n], 1, 1, *dims[n + 2 :])


def reduce(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    axis = m.pick(len(dims))
    if len(dims) < 3:
        return None
    op = REDUCTIONS[m.pick(len(REDUCTIONS))]
    if op == "ReduceSum":
        name = m.node(op, [a, m.const(np.asarray([axis]))], keepdims=1)
    elif op == "ArgMax":
        at = m.node(op, [a], axis=axis, keepdims=1)
        name = m.node("Cast", [at], to=TensorProto.FLOAT)
    else:
        name = m.node(op, [a], axes=[axis], keepdims=1)
    return name, (*dims[:axis], 1, *dims[axis + 1 :])


def transpose(m: Model, a: str, dims: Dims) -> tuple[str, Dims]:
    axes, perm = list(range(len(dims))), []
    while axes:
        perm.append(axes.pop(m.pick(len(axes))))
    return m.node("Transpose", [a], perm=perm), tuple(dims[p] for p in perm)


def product(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    if len(dims) < 2:
        return None
    kind = m.pick(4)
    if kind == 0 and isinstance(dims[-1], int):
        return m.node("MatMul", [a, m.floats(dims[-1], 3)]), (*dims[:-1], 3)
    if kind == 1:
        row = m.node("Gather", [a, m.const(np.asarray(0))], axis=len(dims) - 2)
        while len(dims) > 2:
            row = m.node("Gather", [row, m.const(np.asarray(0))], axis=0)
            dims = dims[1:]
        return m.node("MatMul", [a, row]), dims[:-1]
    axes = list(range(len(dims)))
    axes[-2:] = axes[:-3:-1]
    other = m.node("Transpose", [a], perm=axes)
    if m.pick(2):
        return m.node("MatMul", [a, other]), (*dims[:-1], dims[-2])
    return m.node("MatMul", [other, a]), (*dims[:-2], dims[-1], dims[-1])


def concat(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    axis = m.pick(len(dims))
    if any(not isinstance(d, int) for n, d in enumerate(dims) if n != axis) or is_flat(dims[axis]):
        return None
    fixed = [d if isinstance(d, int) else 0 for d in dims]
    fixed[axis] = 1 + m.pick(2)
    parts = [a, m.floats(*fixed)]
    if m.pick(2):
        parts.reverse()
    more = fixed[axis]
    if m.pick(3) == 0:
        parts.append(m.floats(*fixed))
        more *= 2
    d = dims[axis]
    name = m.node("Concat", parts, axis=axis)
    return name, (*dims[:axis], grown_by(d, more), *dims[axis + 1 :])


def joined(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """Two values one after the other, along an axis in which their sizes may differ."""
    axis = m.pick(len(dims))
    found = []
    for name, other in m.values:
        same = len(other) == len(dims) and all(
            x == y for n, (x, y) in enumerate(zip(dims, other, strict=True)) if n != axis
        )
        if same and {str(dims[axis])[2:3], str(other[axis])[2:3]} == {"n", "m"}:
            found.append((name, other))
    if not found:
        return None
    b, other = found[m.pick(len(found))]
    x, y = dims[axis], other[axis]
    assert not isinstance(x, int)
    assert not isinstance(y, int)
    if len(x[0] + y[0]) > 2 or len(x) + len(y) > 4:
        return None
    size: Dim = ("nm", x[1] + y[1])
    return m.node("Concat", [a, b], axis=axis), (*dims[:axis], size, *dims[axis + 1 :])


def places(m: Model, a: str, dims: Dims) -> tuple[str, Dims]:
    """Numbers from one size to the sum of it and that of the last axis, which are added."""
    sizes = [
        m.node("Gather", [m.node("Shape", [v]), m.const(np.asarray(len(d) - 1))])
        for v, d in (m.values[m.pick(len(m.values))], (a, dims))
    ]
    limit = m.node("Add", sizes)
    found = m.node("Range", [sizes[0], limit, m.const(np.asarray(1))])
    return m.node("Add", [a, m.node("Cast", [found], to=TensorProto.FLOAT)]), dims


def cross(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """The product of two values over their last axes."""
    found = [v for v in m.values if len(v[1]) == len(dims) == 3 and (v[1][0], v[1][2]) == dims[::2]]
    if not found:
        return None
    b, other = found[m.pick(len(found))]
    turned = m.node("Transpose", [b], perm=[0, 2, 1])
    return m.node("MatMul", [a, turned]), (*dims[:2], other[1])


def cut(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    axis = m.pick(len(dims))
    d = dims[axis]
    low = least_of(d)
    if low < 3 or is_flat(d):
        return None
    start, stop = ((0, 2), (-1, 1 << 40), (1, 1 << 40), (0, -1), (-2, -1), (1, 3))[m.pick(6)]
    size: Dim
    if (start, stop) in ((1, 1 << 40), (0, -1)):
        size = grown_by(d, -1)
    else:
        size = {(0, 2): 2, (-1, 1 << 40): 1, (-2, -1): 1, (1, 3): 2}[start, stop]
    given = [m.const(np.asarray([k])) for k in (start, stop, axis)]
    return m.node("Slice", [a, *given]), (*dims[:axis], size, *dims[axis + 1 :])


def turned(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """An axis from its last element to the first."""
    axis = m.pick(len(dims))
    if is_flat(dims[axis]):
        return None
    given = [m.const(np.asarray([k])) for k in (-1, -1 << 40, axis, -1)]
    return m.node("Slice", [a, *given]), dims


def gather(m: Model, a: str, dims: Dims) -> tuple[str, Dims]:
    if m.pick(2):
        # Of padding with zeros this index is beyond the table.
        index = m.node("Sub", ["ids", m.const(np.asarray(8))]) if m.pick(2) else "ids"
        return m.node("Gather", [m.floats(8, 4), index], axis=0), (N, 4)
    axis = m.pick(len(dims))
    d = dims[axis]
    low = least_of(d)
    if m.pick(4) == 0 and len(dims) > 2:
        name = m.node("Gather", [a, m.const(np.asarray(-1 - m.pick(2)))], axis=axis)
        return name, (*dims[:axis], *dims[axis + 1 :])
    index = np.asarray([0, -1, low - 1, -low])
    name = m.node("Gather", [a, m.const(index)], axis=axis)
    return name, (*dims[:axis], 4, *dims[axis + 1 :])


def reshape(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    if len(dims) > 3 or not isinstance(dims[-1], int) or dims[-1] % 2:
        return None
    shape = [0] * (len(dims) - 1) + [2, dims[-1] // 2]
    name = m.node("Reshape", [a, m.const(np.asarray(shape))])
    return name, (*dims[:-1], 2, dims[-1] // 2)


def flatten(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """(a, b, c) as (a * b, c), or (a, b * c), with the sizes computed."""
    if len(dims) < 2:
        return None
    n = m.pick(len(dims) - 1)
    x, y = dims[n], dims[n + 1]
    both: Dim = ("*", (*parts_of(x), *parts_of(y)))
    if isinstance(x, int) and isinstance(y, int):
        both = x * y
    shape = m.node("Shape", [a])
    sizes = [m.node("Gather", [shape, m.const(np.asarray([k]))]) for k in range(len(dims))]
    sizes[n : n + 2] = [m.const(np.asarray([-1]))]
    name = m.node("Reshape", [a, m.node("Concat", sizes, axis=0)])
    return name, (*dims[:n], both, *dims[n + 2 :])


def divide(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """An axis that was made of two or more is two again."""
    found = [n for n, d in enumerate(dims) if not isinstance(d, int) and d[0] == "*"]
    if not found:
        return None
    n = found[m.pick(len(found))]
    parts = parts_of(dims[n])
    k = 1 + m.pick(len(parts) - 1)
    before = [m.size(d) for d in parts[:k]]
    if None in before:
        return None
    first = functools.reduce(lambda x, y: m.node("Mul", [x, y]), [str(b) for b in before])
    shape = m.node("Shape", [a])
    sizes = [m.node("Gather", [shape, m.const(np.asarray([k]))]) for k in range(len(dims))]
    sizes[n : n + 1] = [first, m.const(np.asarray([-1]))]
    name = m.node("Reshape", [a, m.node("Concat", sizes, axis=0)])
    return name, (*dims[:n], product_of(parts[:k]), product_of(parts[k:]), *dims[n + 1 :])


def running(m: Model, a: str, dims: Dims) -> tuple[str, Dims]:
    axis = m.const(np.asarray(m.pick(len(dims))))
    return m.node("CumSum", [a, axis], exclusive=m.pick(2), reverse=m.pick(2)), dims


def triangle(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    if len(dims) < 2:
        return None
    return m.node("Trilu", [a, m.const(np.asarray(m.pick(3) - 1))], upper=m.pick(2)), dims


def length(m: Model, a: str, dims: Dims) -> tuple[str, Dims]:
    """Something that is computed from a size: a factor, or positions along the last axis."""
    axis = m.pick(len(dims))
    size = m.node("Gather", [m.node("Shape", [a]), m.const(np.asarray(axis))])
    if m.pick(2):
        factor = m.node("Cast", [m.node("Mul", [size, size])], to=TensorProto.FLOAT)
        return m.node("Div", [a, m.node("Sqrt", [factor])]), dims
    last = m.node("Gather", [m.node("Shape", [a]), m.const(np.asarray(len(dims) - 1))])
    zero, one = m.const(np.asarray(0)), m.const(np.asarray(1))
    places = m.node("Cast", [m.node("Range", [zero, last, one])], to=TensorProto.FLOAT)
    return m.node("Add", [a, places]), dims


def expand(m: Model, a: str, dims: Dims) -> tuple[str, Dims]:
    """A constant in the shape of a value, and a mask of its first elements."""
    ones = m.node("Expand", [m.floats(1), m.node("Shape", [a])])
    return m.node("Where", [m.node("Less", [ones, a]), a, ones]), dims


def pad(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    axis, more = m.pick(len(dims)), (m.pick(3), m.pick(3))
    if is_flat(dims[axis]):
        return None
    pads = [0] * (2 * len(dims))
    pads[axis], pads[axis + len(dims)] = more
    d = dims[axis]
    total = sum(more)
    name = m.node("Pad", [a, m.const(np.asarray(pads)), m.floats()])
    return name, (*dims[:axis], grown_by(d, total), *dims[axis + 1 :])


def tile(m: Model, a: str, dims: Dims) -> tuple[str, Dims]:
    repeats = [1 + m.pick(2) if isinstance(d, int) else 1 for d in dims]
    made = tuple(d * r if isinstance(d, int) else d for d, r in zip(dims, repeats, strict=True))
    return m.node("Tile", [a, m.const(np.asarray(repeats))]), made


def einsum(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """Products over some axes with itself."""
    if len(dims) != 3:
        return None
    text, axes = (("bij,bkj->bik", (0, 1, 1)), ("bij,bij->bj", (0, 2)), ("bij,bij->i", (1,)))[
        m.pick(3)
    ]
    return m.node("Einsum", [a, a], equation=text), tuple(dims[n] for n in axes)


def at_places(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """Elements along an axis, at its end too; or of two axes."""
    if len(dims) != 3 or dims[0] != 2:
        return None
    if m.pick(2):
        index = m.const(np.asarray([[0, 1], [1, -1], [-1, -2]]))
        return m.node("GatherND", [a, index]), (3, dims[2])
    shape = m.node("Shape", [a])
    wide = m.node("Add", [m.node("Mul", [shape, m.const(np.asarray([1, 1, 0]))]),
                          m.const(np.asarray([0, 0, 2]))])  # fmt: skip
    index = m.node("Expand", [m.const(np.asarray([0, -1])), wide])
    return m.node("GatherElements", [a, index], axis=2), (*dims[:2], 2)


def chosen(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """Operators along an axis of a fixed size."""
    if not isinstance(dims[-1], int):
        return None
    return m.node(("Hardmax", "LpNormalization")[m.pick(2)], [a], axis=-1), dims


def batch_norm(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    if len(dims) < 2 or not isinstance(dims[1], int):
        return None
    weights = [m.node("Abs", [m.floats(dims[1])]) for _ in range(4)]
    return m.node("BatchNormalization", [a, *weights]), dims


def recurrent(m: Model, a: str, dims: Dims) -> tuple[str, Dims] | None:
    """A layer in both directions: all steps, or the last."""
    if len(dims) != 3 or not isinstance(dims[2], int) or not isinstance(dims[1], int):
        return None
    op, gates = (("LSTM", 4), ("GRU", 3), ("RNN", 1))[m.pick(3)]
    weights = [m.floats(2, gates * 3, dims[2]), m.floats(2, gates * 3, 3)]
    every = m.node(op, [a, *weights], hidden_size=3, direction="bidirectional")
    last = f"{every}_last"
    m.nodes[-1].output.append(last)
    if m.pick(2):
        return last, (2, dims[1], 3)
    flat = m.node("Squeeze", [m.node("Slice", [every, *(
        m.const(np.asarray([k])) for k in (0, 1, 1))]), m.const(np.asarray([1]))])  # fmt: skip
    return flat, (dims[0], dims[1], 3)


RULES: tuple[Rule, ...] = (
    unary, binary, softmax, norm, reduce, transpose, product, concat, cut, gather, reshape, flatten,
    flatten, divide, divide, running, triangle, length, expand, conv, windows, windows, means, pad,
    tile, einsum, at_places, chosen, batch_norm, recurrent, joined, cross, places, counted, counted,
    resized, turned,
)  # fmt: skip


def random_model(numbers: list[int], inputs: Inputs = INPUTS) -> onnx.ModelProto:
    """A model of up to 12 operators."""
    m = Model(list(numbers), inputs)
    while m.numbers and len(m.values) < 3 + 12:
        rule = RULES[m.pick(len(RULES))]
        made = rule(m, *m.value())
        if made is not None and math.prod(d if isinstance(d, int) else 8 for d in made[1]) < 5000:
            m.values.append(made)
    return m.proto()
