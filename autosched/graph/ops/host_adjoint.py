"""HostAdjoint: what an operator on the host passes back to one of its inputs, in NumPy.

    @adjoint_of("Det")
    def det_adjoint(wrt, above, x): ...     # of what has come back, and the operator's inputs

It is for operators whose places are data, so that no call of other operators says it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import Known, Results, host_operator

Array = npt.NDArray[Any]

NAME = "autosched.HostAdjoint"
ADJOINTS: dict[str, Callable[..., Array]] = {}
"""By operator: a function of the number of an input, of what has come back to the first result, of
the inputs, and of the attributes."""


def adjoint_of(name: str) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """A decorator: the adjoint of an operator on the host."""

    def register(compute: Callable[..., Array]) -> Callable[..., Array]:
        ADJOINTS[name] = compute
        return compute

    return register


def _like_wrt(
    above: Known, *inputs: Known | None, of: str, wrt: int, attrs: Sequence[tuple[str, Any]] = ()
) -> Results:
    x = inputs[wrt]
    if x is None:
        raise LookupError(wrt)
    return [(x.shape, x.dtype)]


@host_operator(NAME, _like_wrt)
def host_adjoint(
    above: Array,
    *inputs: Array | None,
    of: str,
    wrt: int,
    attrs: Sequence[tuple[str, Any]] = (),
) -> Array:
    """What the operator `of` with the attributes `attrs` passes back to its input `wrt`, where
    `above` has come back to its first result."""
    if of not in ADJOINTS:
        raise Unsupported(f"attribute of is {of!r}; expected one of {', '.join(ADJOINTS)}")
    x = inputs[wrt] if 0 <= wrt < len(inputs) else None
    if x is None:
        raise Unsupported(f"attribute wrt is {wrt}; {of} has no such input here")
    return np.asarray(ADJOINTS[of](wrt, above, *inputs, **dict(attrs)), x.dtype)


@adjoint_of("Det")
def det_adjoint(wrt: int, above: Array, x: Array) -> Array:
    """The cofactors, by singular values, so that a matrix may have no inverse."""
    u, values, v = np.linalg.svd(x)
    others = np.ones_like(values)
    for n in range(values.shape[-1]):
        others[..., n] = np.prod(np.delete(values, n, -1), -1)
    sign = np.linalg.det(u) * np.linalg.det(v)
    return np.asarray((above * sign)[..., None, None] * ((u * others[..., None, :]) @ v))
