"""Reductions over rows whose first and last are data: one operator of a known shape, in place of a
slice whose extent is known only as it runs."""

from __future__ import annotations

from collections.abc import Callable

from autosched.graph.ir import Atom, Call, Const, type_of
from autosched.graph.ops.row_range import DTYPES, KINDS, NAME
from autosched.graph.types import TensorType

Maker = Callable[[Atom], "Call | None"]
"""The call whose one result an atom is, if there is one."""


def of_row_range(call: Call, maker: Maker) -> Call | None:
    """rewrite:
    y = op.reduce_mean(op.gather(w, op.slice(x, start, end, [0])), axes=(0,), keepdims=0)
    ->
    y = op.autosched_reduce_row_range(w, start, end, x, kind="mean", keepdims=0)

    also without the gather, and for sums and maxima; None where the call is no such reduction.
    """
    kind = KINDS.get(str(call.callee))
    axes, data = call.attr("axes"), call.args[0] if call.args else None
    if kind is None or axes is None or tuple(axes) != (0,) or data is None:
        return None
    made, rows = maker(data), None
    table = data
    if made is not None and made.callee == "Gather" and made.attr("axis", 0) == 0:
        assert made.args[0] is not None
        assert made.args[1] is not None
        table, rows = made.args[0], made.args[1]
        made = maker(rows)
    bounds = None if made is None else _bounds(made)
    if bounds is None or made is None:
        return None
    source, start, end = bounds
    if rows is None:
        table = source
    elif len(_known(source) or ()) != 1:
        return None
    t = type_of(table)
    if not _known(table) or not isinstance(t, TensorType) or t.dtype not in DTYPES:
        return None
    attrs = (("keepdims", int(call.attr("keepdims", 1))), ("kind", kind))
    return Call(NAME, (table, start, end, *(() if rows is None else (source,))), attrs)


def _bounds(call: Call) -> tuple[Atom, Atom, Atom] | None:
    """What a slice of rows is of, and its bounds; None for any other call."""
    if call.callee != "Slice" or len(call.args) < 3:
        return None
    x, start, end, axes, step = [*call.args, None, None][:5]
    if x is None or start is None or end is None:
        return None
    if not (axes is None or _is(axes, 0)) or not (step is None or _is(step, 1)):
        return None
    return (x, start, end) if _known(start) == _known(end) == (1,) else None


def _is(a: Atom | None, value: int) -> bool:
    return isinstance(a, Const) and a.value.size == 1 and int(a.value.reshape(-1)[0]) == value


def _known(a: Atom) -> tuple[int, ...] | None:
    """A shape of elements in numbers, if it is known; else None."""
    t = type_of(a)
    if not isinstance(t, TensorType) or not t.is_static or t.elements == 0:
        return None
    return tuple(int(n) for n in t.known)
