"""Values that unrolled loops decide: expressions of axes alone, such as the matrix of a transform
written as a chain of selects."""

from __future__ import annotations

from collections.abc import Callable

from autosched.tir.expr import Call, Const, Expr, Var, walk
from autosched.tir.fold import fold_constant


class Constants:
    """Evaluates expressions whose axes all have known values, each value once.

    `axis(var)` gives the number that an axis stands at, None while it is only known at run time.
    """

    def __init__(self, axis: Callable[[Var], int | None]) -> None:
        self.axis = axis
        self._axes: dict[int, tuple[Var, ...] | None] = {}
        self._known: dict[tuple[int, tuple[int, ...]], Const | None] = {}
        self._folded: dict[tuple[str, ...], Const | None] = {}

    def value(self, e: Expr) -> Const | None:
        """The constant that `e` is here; None if it depends on anything else."""
        if isinstance(e, Const):
            return e
        if isinstance(e, Var):
            number = self.axis(e)
            return None if number is None else Const(number, e.dtype)
        if not isinstance(e, Call):
            return None
        axes = self._used(e)
        if axes is None:
            return None
        here = []
        for var in axes:
            number = self.axis(var)
            if number is None:
                return None
            here.append(number)
        key = (id(e), tuple(here))
        if key not in self._known:
            self._known[key] = self._compute(e)
        return self._known[key]

    def _used(self, e: Call) -> tuple[Var, ...] | None:
        """The variables of `e`; None where it reads memory."""
        if id(e) not in self._axes:
            parts = list(walk(e))
            plain = all(isinstance(x, (Call, Const, Var)) for x in parts)
            used = dict.fromkeys(x for x in parts if isinstance(x, Var))
            self._axes[id(e)] = tuple(used) if plain else None
        return self._axes[id(e)]

    def _compute(self, e: Call) -> Const | None:
        first = self.value(e.args[0])
        if e.op in ("select", "if_then_else"):
            return None if first is None else self.value(e.args[1 if first.value else 2])
        if e.op in ("and", "or"):
            if first is None or bool(first.value) == (e.op == "or"):
                return first
            return self.value(e.args[1])
        args = []
        for a in (first, *map(self.value, e.args[1:])):
            if a is None:
                return None
            args.append(a)
        key = (e.op, e.dtype, args[0].dtype, *(str(a.value) for a in args))
        if key not in self._folded:
            self._folded[key] = fold_constant(Call(e.op, tuple(args), e.dtype))
        return self._folded[key]
