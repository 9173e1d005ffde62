"""Reductions: the node that a compute's function returns, and the reducers that make it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from autosched.checks import shown
from autosched.errors import TensorExprError
from autosched.te.intrinsics import if_then_else
from autosched.te.tensor import IterVar, TensorRead, check_name
from autosched.tir import expr as ex
from autosched.tir.expr import Expr, ExprLike, Var
from autosched.tir.height import nodes
from autosched.tir.nodes import Reducer
from autosched.tir.reducers import KNOWN, check_identity, known_name, known_reducer


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Reduce(Expr):
    """Element `value_index` of the combination of `source` over `axes`, and of `init` where that is
    given.

    Exists only as the whole result of a compute's function, never inside an expression.
    """

    reducer: Reducer
    source: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    value_index: int
    init: tuple[Expr, ...] | None = None

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """That of the source."""
        return self.source[self.value_index].dtype

    @property
    def indices(self) -> tuple[Expr, ...]:
        """Subexpressions, under the name by which traversals look for them."""
        return self.source

    def same_leaf(self, other: Reduce) -> bool:
        """A reduction equals only itself."""
        return self is other

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.source))
        axes = ", ".join(a.name for a in self.axes)
        return f"{self.reducer.name}({inside}, axis=[{axes}])"


def check_axes(axis: Any, name: str) -> tuple[IterVar, ...]:
    """The axes of one reduction, checked."""
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    if not axes:
        raise TensorExprError(f"{name} has no axis to reduce")
    for n, a in enumerate(axes):
        if not isinstance(a, IterVar):
            found = f"the variable {a.name}" if isinstance(a, Var) else repr(a)
            raise TensorExprError(f"axis of {name} is {found}; expected one made by te.reduce_axis")
        if a.kind != "reduce":
            raise TensorExprError(
                f"axis {a.name} of {name} is a spatial axis of {a.owner}; "
                "only axes made by te.reduce_axis are reduced"
            )
        if any(a is b for b in axes[:n]):
            raise TensorExprError(f"{name} reduces axis {a.name} twice")
    return axes


MOST_AXES = 36
"""Of a reduction: with the axes of a tensor, no more than the loops that a script may nest."""


def make_reduce(
    reducer: Reducer, source: tuple[Expr, ...], axis: Any, where: ExprLike | None, init: Any = None
) -> tuple[Reduce, ...]:
    """One node an element of the tuple; `where` False counts as the identity, `init` is combined
    with the result."""
    axes = check_axes(axis, reducer.name)
    if len(axes) > MOST_AXES:
        raise TensorExprError(
            f"{reducer.name} reduces {len(axes)} axes; expected at most {MOST_AXES}: reduce some "
            "in a te.compute before"
        )
    for e in source:
        if e.dtype == "bfloat16":
            raise TensorExprError(
                f"{reducer.name} reduces bfloat16, which loses a sum's small terms; reduce in "
                "float32, by .astype('float32'), and convert the result"
            )
        inner = next((x for x in nodes(e) if isinstance(x, Reduce)), None)
        if inner is not None:
            raise TensorExprError(
                f"{reducer.name} reduces {inner!r}, which is a reduction; "
                "give that a te.compute of its own, or reduce all axes at once"
            )
    if where is not None:
        source = tuple(
            if_then_else(where, e, i) for e, i in zip(source, reducer.identity, strict=True)
        )
    begins = None if init is None else _initial(reducer, source, axes, init)
    return tuple(Reduce(reducer, source, axes, n, begins) for n in range(len(source)))


def _initial(
    reducer: Reducer, source: tuple[Expr, ...], axes: tuple[IterVar, ...], init: Any
) -> tuple[Expr, ...]:
    """The initial values of a reduction, checked."""
    given = tuple(init) if isinstance(init, (list, tuple)) else (init,)
    if len(given) != len(source):
        raise TensorExprError(
            f"init of {reducer.name} has {len(given)} values; expected {len(source)}"
        )
    out = []
    for value, e in zip(given, source, strict=True):
        begin = ex.as_expr(value, e.dtype)
        if begin.dtype != e.dtype:
            raise TensorExprError(
                f"init of {reducer.name} is {begin!r} of dtype {begin.dtype}; expected {e.dtype}, "
                "the dtype of what is reduced: convert it with .astype(...)"
            )
        used = next((x for x in nodes(begin) if any(x is a for a in axes)), None)
        if used is not None:
            raise TensorExprError(
                f"init of {reducer.name} depends on the reduced axis {used!r}; expected a value "
                "that the other axes decide"
            )
        out.append(begin)
    return tuple(out)


def _known(name: str, doc: str) -> Callable[..., Expr]:
    def function(
        expr: ExprLike,
        *operands: Any,
        axis: Any = None,
        where: ExprLike | None = None,
        init: ExprLike | None = None,
    ) -> Expr:
        if axis is None and operands and _is_axis(name, operands[0]):
            axis, *rest = operands
            if len(rest) > 1 or (rest and where is not None):
                raise TensorExprError(f"te.{name} over an axis takes expr, axis and where only")
            operands, where = (), rest[0] if rest else where
        if axis is not None:
            if operands:
                raise TensorExprError(f"te.{name} takes either axis=... or several operands")
            source = ex.as_expr(expr)
            reducer = known_reducer(name, source.dtype)
            return make_reduce(reducer, (source,), axis, where, init)[0]
        if not operands or where is not None or init is not None:
            raise TensorExprError(f"te.{name} needs axis=..., or two operands")
        total: Any = expr
        for operand in operands:
            total = ex.binary(KNOWN[name], total, operand)
        return cast(Expr, total)  # or the tensor of it, where operands are whole

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{doc} of `expr` over `axis` (one te.reduce_axis or a list) where `where` holds,\n"
        "combined with `init` where that is given, a value that the other axes decide;\n\n"
        f"or `te.{name}(a, b, ...)`, the operation on scalars.\n"
        "Raises TensorExprError on an axis that is none of te.reduce_axis, or given twice."
    )
    return function


def _is_axis(name: str, value: Any) -> bool:
    """Whether a positional argument is an axis. The larger of two indices makes sense; their sum
    is written with +, so a spatial axis there is a mistake that `check_axes` explains."""
    if isinstance(value, IterVar):
        return value.kind == "reduce" or name in ("sum", "prod")
    return isinstance(value, (list, tuple))


sum = _known("sum", "The sum")
prod = _known("prod", "The product")
max = _known("max", "The maximum")
min = _known("min", "The minimum")


def comm_reducer(
    fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reducer from a commutative, associative function and its neutral element.

    Elements are combined in any order, in lanes and threads too. An arg max that only asks
    `x[1] >= y[1]` is not commutative: which of equals, or which beside a NaN, it finds depends on
    the schedule. For the first of equals let it compare the places as well.

    `fcombine(x, y)` combines two values, or two tuples of them into a tuple;
    `fidentity(dtype)`, or `fidentity(dtype0, dtype1, …)` for tuples, gives the neutral element.
    The result is called as `reducer(expr, axis=, where=)`, for tuples with a tuple `expr`, whose
    length decides; it then returns a tuple, to be returned whole by the function of te.compute.
    Raises TensorExprError, when called, if the functions return something else than values of the
    operands' dtypes, or if the identity is not neutral.
    """

    name = check_name(name, "a reducer")
    for what, function in (("fcombine", fcombine), ("fidentity", fidentity)):
        if not callable(function):
            raise TensorExprError(
                f"{what} of reducer {name} is {shown(function)}; expected a function"
            )

    def reduce(expr: Any, axis: Any, where: ExprLike | None = None, init: Any = None) -> Any:
        many = isinstance(expr, (tuple, list))
        source = tuple(ex.as_expr(e) for e in (expr if many else (expr,)))
        if not source:
            raise TensorExprError(f"{name} reduces an empty tuple")
        reducer = _custom(fcombine, fidentity, name, [e.dtype for e in source], many)
        nodes = make_reduce(reducer, source, axis, where, init)
        return nodes if many else nodes[0]

    reduce.__name__ = reduce.__qualname__ = name
    return reduce


def _custom(
    fcombine: Callable[[Any, Any], Any],
    fidentity: Callable[..., Any],
    name: str,
    types: Sequence[str],
    many: bool,
) -> Reducer:
    if many:
        lhs = tuple(Var(f"x{n}", t) for n, t in enumerate(types))
        rhs = tuple(Var(f"y{n}", t) for n, t in enumerate(types))
        combined = _asked(name, "combination", fcombine, lhs, rhs)
        neutral = _asked(name, "identity", fidentity, *types)
    else:
        lhs, rhs = (Var("x", types[0]),), (Var("y", types[0]),)
        combined = (_asked(name, "combination", fcombine, lhs[0], rhs[0]),)
        neutral = (_asked(name, "identity", fidentity, types[0]),)
    parts = {"combination": combined, "identity": neutral}
    checked: dict[str, tuple[Expr, ...]] = {}
    for what, values in parts.items():
        if not isinstance(values, (tuple, list)) or len(values) != len(types):
            raise TensorExprError(
                f"{what} of reducer {name} is {values!r}; expected a tuple of {len(types)} values"
            )
        exprs = tuple(ex.as_expr(v, t) for v, t in zip(values, types, strict=True))
        for n, (e, t) in enumerate(zip(exprs, types, strict=True)):
            if e.dtype != t:
                raise TensorExprError(
                    f"{what} of reducer {name}, element {n}, has dtype {e.dtype}; expected {t}"
                )
        checked[what] = exprs
    reducer = Reducer(name, lhs, rhs, checked["combination"], checked["identity"])
    return _canonical(reducer)


def _asked(name: str, what: str, function: Callable[..., Any], *given: Any) -> Any:
    """What a user's function says."""
    try:
        return function(*given)
    except TensorExprError as e:
        raise TensorExprError(f"in the {what} of reducer {name}: {e}") from e
    except Exception as e:
        shown_given = ", ".join(map(repr, given))
        raise TensorExprError(
            f"the {what} of reducer {name} raised {type(e).__name__} on ({shown_given}): {e}"
        ) from e


def _canonical(reducer: Reducer) -> Reducer:
    """`reducer` checked; one of the known reducers where it is that one, whatever its name."""
    variables = {*reducer.lhs, *reducer.rhs}
    for e in reducer.combine:
        for x in nodes(e):
            if isinstance(x, (TensorRead, Reduce)) or (isinstance(x, Var) and x not in variables):
                raise TensorExprError(
                    f"reducer {reducer.name} uses {x!r}, which is none of its operands"
                )
    for e in reducer.identity:
        if not isinstance(e, ex.Const):
            raise TensorExprError(
                f"identity of reducer {reducer.name} is {e!r}; expected a constant"
            )
    known = known_name(reducer, commuted=True)
    if known is not None:
        return known_reducer(known, reducer.lhs[0].dtype)
    if reducer.name in KNOWN:
        raise TensorExprError(
            f"a reducer of one's own is called {reducer.name!r} but is not that; rename it"
        )
    check_identity(reducer)
    return reducer
