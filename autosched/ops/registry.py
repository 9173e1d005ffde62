"""The table of library operators, and what their functions share."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

from autosched.checks import shown
from autosched.errors import WorkloadError
from autosched.integers import as_int
from autosched.te import Tensor
from autosched.tir.expr import Expr

Operator = Callable[..., list[Tensor]]
F = TypeVar("F", bound=Operator)

OPERATORS: dict[str, Operator] = {}
"""Name -> function; names and arguments are part of the wire format."""


def operator(function: F) -> F:
    """Put a function into the library under its name; it may be called with NumPy's integers.
    Called with tensors it is the operator of that name on tensors (`autosched.ops.tensors`)."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Tensor):
            from autosched.ops.tensors import apply

            return apply(function.__name__, args, kwargs)
        return function(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})

    OPERATORS[function.__name__] = called
    return cast(F, called)


def _plain(value: Any) -> Any:
    found = as_int(value)
    return value if found is None else found


def get(name: str) -> Operator:
    """The operator called `name`. Raises WorkloadError, listing what there is."""
    if not isinstance(name, str) or name not in OPERATORS:
        near = get_close_matches(name[:80], OPERATORS, 1) if isinstance(name, str) else []
        hint = f" (did you mean {near[0]}?)" if near else ""
        known = ", ".join(sorted(OPERATORS))
        raise WorkloadError(f"no operator named {shown(name)} in the library{hint}; it has {known}")
    return OPERATORS[name]


def require(name: str, low: int, **values: int) -> None:
    """Raise WorkloadError unless all of an operator's arguments are ints of at least `low`."""
    for argument, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise WorkloadError(f"{argument} of {name} is {value!r}; expected an int >= {low}")


def wider(e: Expr, dtype: str | None) -> Expr:
    """A factor of a sum as `dtype`, if one is given."""
    return e if dtype is None else e.astype(dtype)


def out_extent(name: str, axis: str, size: int, window: int, stride: int, pad: int) -> int:
    """Positions of a window along one axis: (size + 2 pad - window) // stride + 1."""
    if size + 2 * pad < window:
        raise WorkloadError(
            f"the window of {name} covers {window} elements along {axis}, which has only "
            f"{size} + 2*{pad}; enlarge {axis} or the padding"
        )
    return (size + 2 * pad - window) // stride + 1
