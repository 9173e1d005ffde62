"""Adjoint: what a call of an operator passes back to one of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autosched import te
from autosched.errors import TensorExprError
from autosched.graph.errors import Unsupported
from autosched.graph.ops.pointwise import pointwise
from autosched.graph.ops.registry import find, operator
from autosched.graph.ops.tensors import TensorLike, computed, constant, is_empty, stage, within
from autosched.te.adjoint import adjoint as te_adjoint
from autosched.te.tensor import Tensor

CLOSED: dict[str, Callable[[Any], Any]] = {
    "Acos": lambda x: -te.rsqrt(1.0 - x * x),
    "Acosh": lambda x: te.rsqrt((x - 1.0) * (x + 1.0)),
    "Asin": lambda x: te.rsqrt(1.0 - x * x),
    "Asinh": lambda x: te.rsqrt(x * x + 1.0),
    "Atan": lambda x: 1.0 / (x * x + 1.0),
    "Atanh": lambda x: 1.0 / (1.0 - x * x),
    "Cosh": lambda x: (te.exp(x) - te.exp(-x)) * 0.5,
    "Sinh": lambda x: (te.exp(x) + te.exp(-x)) * 0.5,
    "Softplus": te.sigmoid,
}
"""Derivatives that are shorter than those of what approximates the function, by the rules."""


MOST_ABSENT = 64
"""Values at the end that are left out."""


@operator("Adjoint")
def adjoint(
    *tensors: TensorLike | None,
    of: str,
    wrt: int,
    inputs: int,
    results: int = 1,
    attrs: Sequence[tuple[str, Any]] = (),
) -> Any:
    """The adjoint of input `wrt` of the operator `of` with the attributes `attrs`: of its `inputs`
    inputs, which come first, and the adjoints of its `results` results. It follows from the
    operator's definition."""
    if inputs < 1 or results < 1 or inputs + results > len(tensors) + MOST_ABSENT:
        raise Unsupported(
            f"attributes inputs and results are {inputs} and {results}; found {len(tensors)} values"
        )
    every = [*tensors, *([None] * (inputs + results - len(tensors)))]
    given, above = every[:inputs], every[inputs:]
    with within({}):
        return _adjoint(of, wrt, given, above, dict(attrs))


def _adjoint(
    of: str,
    wrt: int,
    given: Sequence[TensorLike | None],
    above: Sequence[TensorLike | None],
    attrs: Mapping[str, Any],
) -> Any:
    x, g = given[0] if given else None, above[0] if above else None
    if of in CLOSED and x is not None and g is not None:
        return pointwise("adjoint", lambda e, d: d * CLOSED[of](e), x, g)
    row = find(of)
    if row.compute is None:
        raise Unsupported(f"{of} is computed on the host, which has no adjoint")
    own = given[wrt] if 0 <= wrt < len(given) else None
    if own is None:
        raise Unsupported(f"attribute wrt is {wrt}; {of} has no such input here")
    if is_empty(own.shape):
        return constant(0, own.dtype, own.shape)
    leaves: list[TensorLike | None] = []
    for n, t in enumerate(given):
        # The input as a tensor of its own, which is read for this input alone.
        alone = isinstance(t, Tensor) and sum(t is y for y in given) == 1
        leaves.append(t if n != wrt or t is None or alone else stage(t.shape, t, "input"))
    leaf = leaves[wrt]
    assert isinstance(leaf, Tensor)
    if of == "MaxPool":  # nothing comes back to the places, which take another reduction
        above = above[:1]
    keywords = dict(attrs)
    if "outputs" in row.attributes:
        keywords["outputs"] = len(above)
    made = row.compute(*leaves, **keywords)
    results = tuple(made) if isinstance(made, (tuple, list)) else (made,)
    # From a result without elements nothing comes back.
    back = [(r, a) for r, a in zip(results, above, strict=False) if not is_empty(r.shape)]
    try:
        found = te_adjoint([computed(r) for r, _ in back], [a for _, a in back], leaf)
    except TensorExprError as e:
        raise Unsupported(f"{of} has no adjoint: {e}") from e
    return constant(0, leaf.dtype, leaf.shape) if found is None else found
