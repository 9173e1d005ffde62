"""TopK as a routine, for a small K: the best elements so far in order, and a look at each block of
elements for one that is better than the last of these."""

from __future__ import annotations

from math import prod
from textwrap import indent
from typing import Any

from autosched.graph.errors import Unsupported
from autosched.graph.ops.routines import first_long, fixed, nest, number, routine
from autosched.graph.ops.tensors import TensorLike, normal_axis
from autosched.graph.ops.views import transpose

MOST = 64
"""Elements asked for: of more, NumPy's sorting is faster than moving them one by one."""
BLOCK = 64

_TEXT = """
place = T.alloc_buffer((), "int64")
hit = T.alloc_buffer((), "int32")
for j in T.serial({head}):
    place[()] = T.min(j, {last})
    if j < {k} or {better_last}:
{insert}
for block in T.serial({blocks}):
    bound = y[{row}{last}]
    hit[()] = 0
    for u in T.vectorized({size}):
        e = x[{row}block * {size} + u + {head}]
        hit[()] = hit[()] | T.int32(not e {no_better} bound)
    if hit[()] != 0:
        for u in T.serial({size}):
            j = block * {size} + u + {head}
            place[()] = {last}
            if {better_last}:
{insert_more}
"""
_INSERT = """
e = x[{row}j]
while place[()] > 0 and {better_before}:
    to = T.clamp_index(place[()], {k})
    y[{row}to] = y[{row}T.max(to - 1, 0)]
    at[{row}to] = at[{row}T.max(to - 1, 0)]
    place[()] = place[()] - 1
y[{row}T.clamp_index(place[()], {k})] = e
at[{row}T.clamp_index(place[()], {k})] = j
"""


def top_k_kernel(
    x: TensorLike,
    k: TensorLike | None = None,
    *,
    axis: int = -1,
    largest: int = 1,
    sorted: int = 1,
) -> Any:
    """The k largest or smallest elements along an axis, best first, and their indices. They are
    sought in rows: those of another axis are put next to each other before, and back afterwards."""
    rank = len(x.shape)
    along = normal_axis(axis, rank)
    if along < rank - 1:
        last = (*range(along), *range(along + 1, rank), along)
        back = (*range(along), rank - 1, *range(along, rank - 1))
        found = top_k_kernel(transpose(x, perm=last), k, largest=largest, sorted=sorted)
        return tuple(transpose(t, perm=back) for t in found)
    shape = fixed(x.shape)
    many, outer = shape[-1], shape[:-1]
    if k is None or x.dtype == "bool":
        raise Unsupported("K is missing, or elements are bool")
    n = int(number(k, 0))
    if not 1 <= n <= min(MOST, many):
        raise Unsupported(f"K is {n}; expected 1 to {min(MOST, many)}")
    names = [f"i{d}" for d in range(len(outer))]
    row = "".join(f"{name}, " for name in names)
    floats = x.dtype.startswith("float")

    def better(a: str, b: str) -> str:
        """NaN counts as larger than all numbers."""
        apart = f"{a} > {b}" if largest else f"{a} < {b}"
        one, other = (a, b) if largest else (b, a)
        return f"({apart} or {one} != {one} and {other} == {other})" if floats else f"({apart})"

    head = n + (many - n) % BLOCK
    words = {
        "k": n, "last": n - 1, "row": row, "head": head, "blocks": (many - head) // BLOCK,
        "size": BLOCK, "no_better": "<=" if largest else ">=",
        "better_last": better(f"x[{row}j]", f"y[{row}{n - 1}]"),
        "better_before": better("e", f"y[{row}T.clamp_index(place[()] - 1, {n})]"),
    }  # fmt: skip
    insert = _INSERT.strip("\n").format(**words)
    words["insert"], words["insert_more"] = indent(insert, " " * 8), indent(insert, " " * 16)
    text = _TEXT.strip("\n").format(**words)
    if many == head:
        text = text[: text.index("for block")]
    shared = first_long(outer, prod(shape))
    outputs = {"y": ((*outer, n), x.dtype), "at": ((*outer, n), "int64")}
    return routine("top_k", {"x": x}, outputs, nest(names, outer, text, shared))
