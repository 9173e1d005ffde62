"""Programs with opaque blocks for the tests of schedules and code."""

from __future__ import annotations

from typing import Any

from schedule_fuzz import STAGES, Choices, Stage, _recent

from autosched import te
from autosched.script import parse
from autosched.tir.routine import Routine


def prefix(n: int, m: int, dtype: str = "int64") -> Routine:
    """Sums of the elements of a row so far, less those of the row before."""
    found = parse(f"""
@T.routine
def prefix(x: T.Buffer(({n}, {m}), "{dtype}"), y: T.Buffer(({n}, {m}), "{dtype}")):
    for i in range({n}):
        for j in range({m}):
            for k in T.serial(0, j + 1):
                y[i, j] += x[i, k]
        if i > 0:
            y[i, 0] = y[i, 0] - y[i - 1, 0]
""")
    assert isinstance(found, Routine)
    return found


def turned(n: int, m: int, dtype: str = "int64") -> Routine:
    """Each element at a place that another tensor's elements decide; some places stay 0."""
    found = parse(f"""
@T.routine
def turned(
    x: T.Buffer(({n}, {m}), "{dtype}"),
    p: T.Buffer(({n}, {m}), "{dtype}"),
    y: T.Buffer(({m}, {n}), "{dtype}"),
    z: T.Buffer(({n}, {m}), "{dtype}"),
):
    for i in range({n}):
        for j in range({m}):
            y[T.cast(p[i, j], "int64") % {m}, i] += x[i, j]
            z[i, j] = p[i, j] - 1
""")
    assert isinstance(found, Routine)
    return found


def _prefix(c: Choices, tensors: list[Any], name: str) -> Any:
    t = _recent(c, tensors, 2)
    return te.extern(t.shape, [t], prefix(*t.shape, t.dtype), name=name)


def _turned(c: Choices, tensors: list[Any], name: str) -> Any:
    t = _recent(c, tensors, 2)
    same = [u for u in tensors if u.shape == t.shape and u is not t]
    if not same:
        return _prefix(c, tensors, name)
    n, m = t.shape
    y, z = te.extern([(m, n), (n, m)], [t, same[-1]], turned(n, m, t.dtype), name=name)
    tensors.append(z)
    return y


OPAQUE: tuple[Stage, ...] = (_prefix, *STAGES, _turned, _prefix)
