"""A valid call of every public function and method: the table, and calls of tensor expressions."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autosched import te
from autosched.tir.nodes import PrimFunc

Called = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Door:
    """`make` gives what is called and a valid call's arguments, fresh each time. `skip`: names of
    arguments, or places of them, that may be anything, with the reason."""

    name: str
    make: Callable[[], Called]
    skip: dict[str | int, str] = field(default_factory=dict)


DOORS: dict[str, Door] = {}


def door(
    name: str, skip: dict[str | int, str] | None = None
) -> Callable[[Callable[[], Any]], None]:
    """Make a door of a function that returns (called, *arguments), maybe with a dict of keywords
    as the last."""

    def add(make: Callable[[], Any]) -> None:
        def call() -> Called:
            called, *args = make()
            kwargs = args.pop() if args and type(args[-1]) is _Keywords else {}
            return called, tuple(args), dict(kwargs)

        assert name not in DOORS
        DOORS[name] = Door(name, call, skip or {})

    return add


class _Keywords(dict[str, Any]):
    pass


def kw(**given: Any) -> _Keywords:
    return _Keywords(given)


# Tensor expressions -------------------------------------------------------------------------


def tensors() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((4,), lambda i: te.sum(B[i, k], axis=k), name="C")
    return A, B, C


def program() -> PrimFunc:
    A, _, C = tensors()
    return te.create_prim_func([A, C])


A0, B0, C0 = tensors()
FUNC = program()


def element() -> Any:
    return A0[0, 0]


door("te.placeholder")(lambda: (te.placeholder, (4,), "float32", "A"))
door("te.compute")(lambda: (te.compute, (4,), lambda i: i * 2, "D", "tag", {}, None))
door("te.reinterpret")(lambda: (te.reinterpret, "int32", A0))
door("te.gradient")(lambda: (te.gradient, C0, [A0, B0], C0))
door("te.call_extern")(lambda: (te.call_extern, "none", A0, 1))
door("te.extern")(
    lambda: (te.extern, (4,), [A0], lambda ins, outs: None, "D", "float32", "tag", {})
)
door("te.extern, what the function returns")(
    lambda: (lambda x: te.extern((4,), [A0], lambda ins, outs: x), None)
)
door("te.compute, what the function returns")(
    lambda: (lambda value: te.compute((4,), lambda i: value, "D"), 1.0)
)
door("te.compute, FLOP")(
    lambda: (lambda value: te.compute((4,), lambda i: i, "D", attrs={"FLOP": value}), 1.0)
)
door("te.compute, layout_free_placeholders")(
    lambda: (
        lambda value: te.compute(
            (4,), lambda i: A0[i, 0], "D", attrs={"layout_free_placeholders": value}
        ),
        [A0],
    )
)
door("te.reduce_axis")(lambda: (te.reduce_axis, (0, 4), "k"))
door("te.reduce_axis, begin")(lambda: (lambda b: te.reduce_axis((b, 4)), 0))
door("te.reduce_axis, end")(lambda: (lambda e: te.reduce_axis((0, e)), 4))
door("te.var")(lambda: (te.var, "n", "int64"))
door("te.size_var")(lambda: (te.size_var, "n", "int64"))
door("te.thread_axis")(lambda: (te.thread_axis, (0, 4), "threadIdx.x", "t"))
door("te.thread_axis, tag alone")(lambda: (te.thread_axis, "threadIdx.x"))
for n in ("sum", "max", "min", "prod"):
    door(f"te.{n}")(
        lambda n=n: (getattr(te, n), element(), kw(axis=te.reduce_axis((0, 4)), where=True))
    )
    door(f"te.{n}, of two")(lambda n=n: (getattr(te, n), element(), element()))
door("te.comm_reducer")(
    lambda: (te.comm_reducer, lambda x, y: x * y + x + y, lambda t: te.const(0, t), "mine")
)


def _mine(combine: Any = lambda x, y: x * y + x + y, identity: Any = 0) -> Any:
    reducer = te.comm_reducer(
        (lambda x, y: combine) if not callable(combine) else combine, lambda t: identity
    )
    return reducer(element(), te.reduce_axis((0, 4)))


door("reducer")(
    lambda: (
        te.comm_reducer(lambda x, y: x * y + x + y, lambda t: te.const(0, t)),
        element(),
        te.reduce_axis((0, 4)),
        True,
    )
)
door("te.comm_reducer, combination")(lambda: (_mine, lambda x, y: x * y + x + y))
door("te.comm_reducer, identity")(lambda: (_mine, lambda x, y: x * y + x + y, 0))
for n in [
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "tanh",
    "erf",
    "sigmoid",
    "floor",
    "ceil",
    "round",
    "sin",
    "cos",
    "abs",
]:
    door(f"te.{n}")(lambda n=n: (getattr(te, n), element()))
for n in ("select", "if_then_else"):
    door(f"te.{n}")(lambda n=n: (getattr(te, n), element() > 0, element(), element()))
for n in ("pow", "power"):
    door(f"te.{n}")(lambda n=n: (getattr(te, n), element(), element()))
for n in ("floordiv", "floormod", "clamp_index", "wrap_index"):
    door(f"te.{n}")(lambda n=n: (getattr(te, n), te.const(7), te.const(2)))
for n in ("all", "any"):
    door(f"te.{n}")(lambda n=n: (getattr(te, n), element() > 0, element() > 1))
for n in ("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"):
    door(f"te.{n}")(lambda n=n: (getattr(te, n), te.const(7), te.const(2)))
for n in ("div", "truncdiv", "truncmod", "ceildiv", "indexdiv", "indexmod"):
    door(f"te.{n}")(lambda n=n: (getattr(te, n), te.const(7), te.const(2)))
for n in ("popcount", "clz"):
    door(f"te.{n}")(lambda n=n: (getattr(te, n), te.const(7)))
for n in ("atan2", "hypot", "fmod", "copysign", "nextafter"):
    door(f"te.{n}")(lambda n=n: (getattr(te, n), element(), element()))
for n in (
    *("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "exp2", "exp10"),
    *("expm1", "log2", "log10", "log1p", "trunc", "nearbyint", "fabs"),
    *("isnan", "isinf", "isfinite"),
):
    door(f"te.{n}")(lambda n=n: (getattr(te, n), element()))
door("te.ldexp")(lambda: (te.ldexp, element(), 3))
door("te.q_multiply_shift")(lambda: (te.q_multiply_shift, te.const(7), te.const(2), 31, 1))
door("te.bitwise_not")(lambda: (te.bitwise_not, te.const(7)))
door("te.likely")(lambda: (te.likely, element() > 0))
door("te.logical_not")(lambda: (te.logical_not, element() > 0))
door("te.cast")(lambda: (te.cast, element(), "int32"))
door("te.const")(lambda: (te.const, 1, "int32"))
door("te.min_value")(lambda: (te.min_value, "int32"))
door("te.max_value")(lambda: (te.max_value, "int32"))
door("te.create_prim_func")(lambda: (te.create_prim_func, [A0, C0], "f"))
door("te.create_schedule")(lambda: (te.create_schedule, C0.op))
door("tensor[]")(lambda: (lambda i, j: A0[i, j], 0, 0))
door("tensor()")(lambda: (A0, 0, 0))
door("Tensor.astype")(lambda: (te.placeholder((), name="S").astype, "float32"))
door("Expr.astype")(lambda: (element().astype, "float32"))
for n in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "floordiv",
    "rfloordiv",
    "mod",
    "rmod",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "pow",
    "and",
    "rand",
    "or",
    "ror",
    "xor",
    "rxor",
    "lshift",
    "rlshift",
    "rshift",
    "rrshift",
    "matmul",
    "rmatmul",
    "divmod",
]:
    for what, make in (
        ("float", lambda: te.placeholder((), name="S")()),
        ("int", lambda: te.placeholder((), "int32", name="S")()),
        ("bool", lambda: te.placeholder((), "bool", name="S")()),
        ("scalar tensor", lambda: te.placeholder((), "int32", name="S")),
    ):
        door(f"{what}.__{n}__")(lambda n=n, make=make: (_operator(n, make()), 1))


def _operator(name: str, of: Any) -> Callable[[Any], Any]:
    """The operator with `of` at the left; at the right, where its name begins with r."""
    own = {"divmod": divmod, "and": operator.and_, "or": operator.or_}

    def call(other: Any) -> Any:
        if name in own or hasattr(operator, name):
            return (own.get(name) or getattr(operator, name))(of, other)
        if name == "rmod" and isinstance(other, (str, bytes)):
            return None  # Python's formatting of texts
        return (own.get(name[1:]) or getattr(operator, name[1:]))(other, of)

    return call


def recurrence() -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Tensor]:
    X = te.placeholder((6, 4), name="X")
    S = te.placeholder((6, 4), name="S")
    first = te.compute((1, 4), lambda _, i: X[0, i], name="first")
    step = te.compute((6, 4), lambda t, i: S[t - 1, i] + X[t, i], name="step")
    return first, step, S, X


@door("te.scan")
def _() -> Any:
    first, step, S, X = recurrence()
    return te.scan, first, step, S, [X], "out", "tag", {}
