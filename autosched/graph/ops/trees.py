"""Leaves of decision trees: rows walk from the roots through tables of nodes, as a routine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import Known, Results, host_operator
from autosched.graph.ops.routines import first_long, fixed, nest, routine
from autosched.graph.ops.tensors import TensorLike

Array = npt.NDArray[Any]
COMPARED: dict[str, tuple[str, Callable[..., Any]]] = {
    "BRANCH_LEQ": ("<=", np.less_equal),
    "BRANCH_LT": ("<", np.less),
    "BRANCH_GTE": (">=", np.greater_equal),
    "BRANCH_GT": (">", np.greater),
    "BRANCH_EQ": ("==", np.equal),
    "BRANCH_NEQ": ("!=", np.not_equal),
}
"""How a feature is compared with the value of a node, by the name that ONNX has for it."""

_WALK = """
at = T.alloc_buffer((), "int32")
at[()] = roots[t]
while inner[T.clamp_index(at[()], {nodes})]:
    node = T.clamp_index(at[()], {nodes})
    e = x[n, T.clamp_index(feature[node], {features})]
    at[()] = T.select({taken}, yes[node], no[node])
out[n, t] = T.int64(at[()])
"""


def _leaves(x: Known, *tables: Known, **_: Any) -> Results:
    return [((x.shape[0], tables[-1].shape[0]), "int64")]


def tree_leaves_kernel(
    x: TensorLike,
    feature: TensorLike,
    value: TensorLike,
    yes: TensorLike,
    no: TensorLike,
    inner: TensorLike,
    missing: TensorLike,
    roots: TensorLike,
    *,
    mode: str,
) -> Any:
    """The loops over rows, which threads share, and trees."""
    rows, features = fixed(x.shape)
    (nodes,), (trees,) = fixed(value.shape), fixed(roots.shape)
    if x.dtype not in ("float32", "float64") or value.dtype != x.dtype:
        raise Unsupported(f"values are {value.dtype} and features {x.dtype}; expected one type")
    taken = f"e {COMPARED[mode][0]} value[node] or (e != e and missing[node])"
    body = _WALK.format(nodes=nodes, features=features, taken=taken)
    shape = (rows, trees)
    body = nest(["n", "t"], shape, body, first_long(shape, rows * trees * STEPS, [0]))
    tables = {"feature": feature, "value": value, "yes": yes, "no": no, "inner": inner,
              "missing": missing, "roots": roots}  # fmt: skip
    (made,) = routine("tree_leaves", {"x": x, **tables}, {"out": (shape, "int64")}, body)
    return made


STEPS = 16
"""Elements that a walk counts as where it is decided whether threads share the rows."""


@host_operator("autosched.TreeLeaves", _leaves, tree_leaves_kernel)
def tree_leaves(
    x: Array,
    feature: Array,
    value: Array,
    yes: Array,
    no: Array,
    inner: Array,
    missing: Array,
    roots: Array,
    *,
    mode: str,
) -> Array:
    """The node that each row (rows, features) ends in, in each tree: (rows, trees). A node asks for
    a feature, and names the nodes that follow; one that is not `inner` is a leaf."""
    at = np.broadcast_to(roots, (len(x), len(roots))).astype(np.int64)
    for _ in feature:  # a walk visits no node twice
        if not inner[at].any():
            break
        seen = np.take_along_axis(x, feature[at].astype(np.int64), 1)
        taken = COMPARED[mode][1](seen, value[at]) | (np.isnan(seen) & missing[at])
        at = np.where(inner[at], np.where(taken, yes[at], no[at]), at)
    return at
