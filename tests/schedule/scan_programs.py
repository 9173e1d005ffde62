"""Recurrences that the tests of schedules and of generated code share, over integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autosched import te
from autosched.te import Tensor
from autosched.tir.nodes import PrimFunc

DTYPE = "int64"


def _in(shape: Sequence[int], name: str, dtype: str) -> Tensor:
    return te.placeholder(tuple(shape), name=name, dtype=dtype)


def cumsum(t: int = 7, n: int = 6, dtype: str = DTYPE) -> PrimFunc:
    """Independent columns."""
    x, s = _in((t, n), "X", dtype), _in((t, n), "s", dtype)
    first = te.compute((1, n), lambda i, j: x[i, j], name="first")
    step = te.compute((t, n), lambda i, j: s[i - 1, j] + x[i, j], name="step")
    return te.create_prim_func([x, te.scan(first, step, s, inputs=[x], name="out")])


def fibonacci(t: int = 7, n: int = 6, dtype: str = DTYPE) -> PrimFunc:
    """Two steps back, and a result of one dimension that nothing asks for."""
    n = max(n, 2)
    x, s = _in((t + 2, n), "X", dtype), _in((t + 2, n), "s", dtype)
    first = te.compute((2, n), lambda i, j: x[i, j], name="first")
    step = te.compute((t + 2, n), lambda i, j: s[i - 1, j] + s[i - 2, j] - x[i, j], name="step")
    return te.create_prim_func([x, te.scan(first, step, s, name="out")])


def matvec(t: int = 5, n: int = 6, dtype: str = DTYPE) -> PrimFunc:
    """The update itself is a reduction over the state."""
    w, x = _in((n, n), "W", dtype), _in((1, n), "X", dtype)
    s, k = _in((t, n), "s", dtype), te.reduce_axis((0, n), name="k")
    step = te.compute((t, n), lambda i, j: te.sum(w[j, k] * s[i - 1, k], axis=k), name="step")
    return te.create_prim_func([w, x, te.scan(x, step, s, name="out")])


def cell(t: int = 5, n: int = 6, dtype: str = DTYPE) -> PrimFunc:
    """Elman's cell over a batch, a projection before and a consumer after."""
    b = 3
    w, u, x = _in((n, n), "W", dtype), _in((n, n), "U", dtype), _in((t, b, n), "X", dtype)
    k, r = te.reduce_axis((0, n), name="k"), te.reduce_axis((0, n), name="r")
    s = _in((t, b, n), "s", dtype)
    known = te.compute(
        (t, b, n), lambda i, p, j: te.sum(x[i, p, k] * w[j, k], axis=k), name="known"
    )
    first = te.compute((1, b, n), lambda i, p, j: te.max_value(dtype) * 0 + known[0, p, j], "first")
    part = te.compute(
        (t, b, n), lambda i, p, j: te.sum(s[i - 1, p, r] * u[j, r], axis=r), name="part"
    )
    step = te.compute((t, b, n), lambda i, p, j: (known[i, p, j] + part[i, p, j]) % 97, name="step")
    out = te.scan(first, step, s, inputs=[x], name="h")
    after = te.compute((t, b, n), lambda i, p, j: out[i, p, j] * 2, name="after")
    return te.create_prim_func([w, u, x, after])


def two_states(t: int = 6, n: int = 4, dtype: str = DTYPE) -> PrimFunc:
    """States of different shapes; one, elementwise, is not asked for, and read when new."""
    m = 3
    x = _in((t, n, m), "X", dtype)
    a, b = _in((t, n, m), "a", dtype), _in((t, n), "b", dtype)
    k = te.reduce_axis((0, m), name="k")
    a0 = te.compute((1, n, m), lambda i, j, q: x[i, j, q], name="a0")
    b0 = te.compute((1, n), lambda i, j: x[i, j, 0], name="b0")
    total = te.compute((t, n), lambda i, j: te.sum(a[i - 1, j, k], axis=k), name="total")
    new_b = te.compute((t, n), lambda i, j: b[i - 1, j] - total[i, j], name="new_b")
    new_a = te.compute(
        (t, n, m), lambda i, j, q: a[i - 1, j, q] + new_b[i, j] * x[i, j, q], name="new_a"
    )
    out, _ = te.scan([a0, b0], [new_a, new_b], [a, b], inputs=[x], name="out")
    return te.create_prim_func([x, out])


def swapped(t: int = 6, n: int = 5, dtype: str = DTYPE) -> PrimFunc:
    """A tuple of two states, each from the old values of both, rows reversed in one."""
    x = _in((t, n), "X", dtype)
    a, b = _in((t, n), "a", dtype), _in((t, n), "b", dtype)
    a0 = te.compute((1, n), lambda i, j: x[i, j], name="a0")
    both = te.compute(
        (t, n),
        lambda i, j: (b[i - 1, n - 1 - j] + x[i, j], a[i - 1, j] - b[i - 1, j]),
        name="both",
    )
    out = te.scan([a0, a0], list(both), [a, b], name="out")
    return te.create_prim_func([x, *out])


PROGRAMS: tuple[Callable[..., PrimFunc], ...] = (
    cumsum,
    fibonacci,
    matvec,
    cell,
    two_states,
    swapped,
)
