"""Which points of a computation read a given element: the index map of a read, solved.

A read `x[y * 2 + r, c]` over axes y, r, c reads element (j0, j1) where c = j1 and, for each r,
y = (j0 - r) / 2, if that is a whole number in the range of y.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from autosched.te.axes import reduced_like
from autosched.te.equations import equations
from autosched.te.tensor import Extent, IterVar, TensorRead
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Int, always, is_zero
from autosched.tir.expr import Expr, Var
from autosched.tir.from_expr import from_expr
from autosched.tir.height import nodes


@dataclass(frozen=True)
class Points:
    """The axes' `values` over the element's indices and the axes `over`, at those points where all
    `conditions` hold and, over the axes themselves, `read`: those that read arrays."""

    values: Mapping[Var, Expr]
    over: tuple[IterVar, ...]
    conditions: tuple[Expr, ...]
    read: tuple[Expr, ...]

    def at(self, e: Expr) -> Expr:
        """An expression over the axes at these points."""
        return moved(e, self.values)


def moved(e: Expr, values: Mapping[Var, Expr]) -> Expr:
    """An expression with its axes replaced, inside the indices of what it reads, too."""

    def leaf(x: Expr) -> Expr | None:
        if isinstance(x, Var):
            return values.get(x)
        if isinstance(x, TensorRead):
            return TensorRead(x.tensor, tuple(ex.rewrite(i, leaf) for i in x.indices))
        return None

    return ex.rewrite(e, leaf)


def settled(e: Expr, axes: Sequence[Var]) -> Expr:
    """An expression without the comparisons of indices whose result the axes' ranges tell."""
    extents = _extents(axes)

    def leaf(x: Expr) -> Expr | None:
        if not isinstance(x, ex.Call) or x.op not in _COMPARED or x.args[0].dtype != "int64":
            return None
        a, b = x.args if x.op in ("lt", "ge") else x.args[::-1]
        form = from_expr(a - b, lambda v: v in extents)
        if form is None:
            return None
        low, high = form.span(extents)
        # a < b, and a >= b; b < a and b >= a have been turned around.
        below, above = always(high < 0), always(low >= 0)
        if not below and not above:
            return None
        return ex.const(below if x.op in ("lt", "gt") else above, "bool")

    return ex.rewrite(e, leaf)


def guarded(e: Expr, read: TensorRead, condition: Expr) -> Expr:
    """`condition` where `e` evaluates `read`, under the conditions of that; False elsewhere."""
    known: dict[int, Expr] = {}

    def of(x: Expr) -> Expr:
        if id(x) not in known:
            known[id(x)] = found(x)
        return known[id(x)]

    def found(x: Expr) -> Expr:
        if isinstance(x, TensorRead):
            return condition if x.same_leaf(read) else _NO
        if not isinstance(x, ex.Call):
            return _NO
        if x.op == "if_then_else":
            a, b = of(x.args[1]), of(x.args[2])
            return a if a is b else ex.call("if_then_else", x.args[0], a, b)
        parts = [p for p in map(of, x.args) if p is not _NO]
        if any(p is condition for p in parts):
            return condition
        return reduce(lambda a, b: ex.binary("or", a, b), parts) if parts else _NO

    return of(e)


_NO = ex.const(False, "bool")


def _extents(axes: Sequence[Var]) -> dict[Var, Int]:
    """Extents of those axes that begin at 0, as forms take them."""
    return {a: a.extent for a in axes if isinstance(a, IterVar) and is_zero(a.begin)}


_COMPARED = ("lt", "le", "gt", "ge")


def inverse(
    indices: Sequence[Expr],
    axes: Sequence[IterVar],
    element: Sequence[Var],
    shape: Sequence[Extent],
) -> Points:
    """The points of `axes` at which `indices` are those of `element`, of an array of `shape`.

    Of each equation one axis is solved for, the longest one that can be; what is left is summed
    over.
    An index that is not affine, or has no axis left, is a condition. One that arrays decide may be
    read at these points only, and where the program reads it.
    """
    single = {a for a in axes if isinstance(a.extent, int) and a.extent == 1}
    own = set(axes)
    wanted = [d for d, n in enumerate(shape) if not (isinstance(n, int) and n == 1)]
    forms = {d: from_expr(indices[d], lambda v: v in own) for d in wanted}
    affine = {d: f for d, f in forms.items() if f is not None}
    told = equations(affine, element, shape, _extents(axes))
    taken: dict[IterVar, tuple[Affine, Expr]] = {}
    left = list(told.each)
    depends: dict[Var, set[Var]] = {}
    while True:
        solved = _next(left, axes, taken, depends)
        if solved is None:
            break
        n, axis = solved
        form = left[n][0]
        taken[axis] = left.pop(n)
        rest = {v for v in form.variables() if v is not axis}
        needs = {w for v in rest for w in (depends.get(v, {v}))}
        depends = {v: (ws - {axis}) | needs if axis in ws else ws for v, ws in depends.items()}
        depends[axis] = needs
    over = {a: reduced_like(a) for a in axes if a not in taken and a not in single}
    values: dict[Var, Expr] = {a: r for a, r in over.items()}  # noqa: C416 - wider types
    values |= {a: ex.const(a.begin, "int64") for a in single if a not in taken}
    summed = (*over.values(), *told.over)
    conditions = list(told.conditions)
    for axis in _in_order(taken):
        form, value = taken[axis]
        factor = form.coefficient(axis)
        assert isinstance(factor, int)
        rest_of = moved((form - Affine.of(axis, factor)).to_expr(), values)
        number = value - rest_of if factor > 0 else rest_of - value
        size = abs(factor)
        values[axis] = number if size == 1 else number // size
        if size != 1:
            conditions.append(number % size == 0)
        conditions += _inside(values[axis], axis, [*summed, *element])
    conditions += [moved(form.to_expr(), values) == value for form, value in left]
    others = [d for d in wanted if d not in affine]
    read = [d for d in others if any(isinstance(e, TensorRead) for e in nodes(indices[d]))]
    conditions += [moved(indices[d], values) == element[d] for d in others if d not in read]
    chosen = tuple(indices[d] == element[d] for d in read)
    return Points(values, summed, tuple(conditions), chosen)


def _next(
    left: Sequence[tuple[Affine, Expr]],
    axes: Sequence[IterVar],
    taken: Collection[Var],
    depends: Mapping[Var, set[Var]],
) -> tuple[int, IterVar] | None:
    """(equation, axis) to solve next: of the equation with the fewest axes the longest."""
    best: tuple[tuple[int, float], tuple[int, IterVar]] | None = None
    for n, (form, _) in enumerate(left):
        free = {v for v in form.variables() if v not in taken}
        others = {w for v in form.variables() if v in taken for w in depends[v]}
        for axis in axes:
            factor = form.coefficient(axis)
            if axis in taken or axis in others or not isinstance(factor, int) or factor == 0:
                continue
            if sum(v is axis for v in form.variables()) != 1:
                continue  # inside a digit as well
            length = axis.extent if isinstance(axis.extent, int) else float("inf")
            rank = (len(free), -float(length))
            if best is None or rank < best[0]:
                best = rank, (n, axis)
    return None if best is None else best[1]


def _in_order(taken: Mapping[IterVar, tuple[Affine, Expr]]) -> list[IterVar]:
    """The axes that are solved for, each after those that stand in its value."""
    order: list[IterVar] = []
    left = list(taken)
    while left:
        for axis in left:
            form, _ = taken[axis]
            if not any(v is not axis and v is w for v in form.variables() for w in left):
                order.append(axis)
                left = [v for v in left if v is not axis]
                break
        else:
            raise AssertionError("axes that need each other")
    return order


def _inside(e: Expr, axis: IterVar, variables: Sequence[Var]) -> list[Expr]:
    """Conditions under which a value is one of an axis; none where that is sure."""
    extents = _extents(variables)
    form = from_expr(e, lambda v: v in extents)
    end = axis.begin + axis.extent
    low, high = (None, None) if form is None else form.span(extents)
    out = []
    if low is None or not always(low >= axis.begin):
        out.append(e >= axis.begin)
    if high is None or not always(high < end):
        out.append(e < (end if isinstance(end, int) else ex.as_expr(end)))
    return out
