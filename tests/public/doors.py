"""A valid call of every public function and method."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import autosched as at
from autosched import te
from autosched.schedule import Schedule
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


# Stage schedules ----------------------------------------------------------------------------


def staged() -> tuple[Any, te.Tensor, te.Tensor, te.Tensor]:
    a, b, c = tensors()
    return te.create_schedule(c.op), a, b, c


def _stage_door(name: str, make: Callable[[Any, Any, Any, Any], Any]) -> None:
    door(name)(lambda: make(*staged()))


_stage_door("StageSchedule[]", lambda s, a, b, c: (s.__getitem__, c))
_stage_door("StageSchedule.tensor", lambda s, a, b, c: (s.tensor, c.op, 0))
_stage_door("StageSchedule.cache_read", lambda s, a, b, c: (s.cache_read, a, "local", [b]))
_stage_door("StageSchedule.cache_write", lambda s, a, b, c: (s.cache_write, c, "local"))
_stage_door("StageSchedule.rfactor", lambda s, a, b, c: (s.rfactor, c, s[c].op.reduce_axis[0], 0))
_stage_door("StageSchedule.replay", lambda s, a, b, c: (s.replay, [a, c], "f"))
_stage_door("StageSchedule.consumers", lambda s, a, b, c: (s.consumers, s[b]))
_stage_door("StageSchedule.readers", lambda s, a, b, c: (s.readers, s[b]))
_stage_door("StageSchedule.is_output", lambda s, a, b, c: (s.is_output, s[b]))
_stage_door("StageSchedule.is_state", lambda s, a, b, c: (s.is_state, b.op))
_stage_door("StageSchedule.owners", lambda s, a, b, c: (s.owners, b.op.axis[0]))
_stage_door("Stage.split", lambda s, a, b, c: (s[b].split, b.op.axis[1], 4, None))
_stage_door("Stage.split, nparts", lambda s, a, b, c: (s[b].split, b.op.axis[1], kw(nparts=4)))
_stage_door("Stage.fuse", lambda s, a, b, c: (s[b].fuse, *b.op.axis))
_stage_door("Stage.reorder", lambda s, a, b, c: (s[b].reorder, *reversed(b.op.axis)))
_stage_door("Stage.tile", lambda s, a, b, c: (s[b].tile, *b.op.axis, 2, 2))
for n in ("parallel", "vectorize", "unroll"):
    _stage_door(f"Stage.{n}", lambda s, a, b, c, n=n: (getattr(s[b], n), b.op.axis[1]))
_stage_door(
    "Stage.bind", lambda s, a, b, c: (s[b].bind, b.op.axis[1], te.thread_axis("threadIdx.x"))
)
_stage_door("Stage.pragma", lambda s, a, b, c: (_lowering(s, s[b].pragma), b.op.axis[0], "x", 1))
_stage_door("Stage.compute_at", lambda s, a, b, c: (s[b].compute_at, s[c], c.op.axis[0]))
_stage_door("Stage.compute_inline", lambda s, a, b, c: (s[b].compute_inline,))
_stage_door("Stage.compute_root", lambda s, a, b, c: (s[b].compute_root,))
_stage_door("Stage.double_buffer", lambda s, a, b, c: (s[b].double_buffer,))
_stage_door("Stage.storage_align", lambda s, a, b, c: (s[b].storage_align, b.op.axis[0], 8, 1))
_stage_door("Stage.tensorize", lambda s, a, b, c: (s[b].tensorize, b.op.axis[0], "no such"))
_stage_door("Stage.transform_layout", lambda s, a, b, c: (s[b].transform_layout, [1, 0], False))
_stage_door("Stage.rolling_buffer", lambda s, a, b, c: (_attached(s[b], s[c]).rolling_buffer,))
_stage_door("Stage.set_scope", lambda s, a, b, c: (_lowering(s, s[b].set_scope), "local"))


def _attached(stage: Any, reader: Any) -> Any:
    stage.compute_at(reader, reader.leaf_iter_vars[0])
    return stage


def _lowering(s: Any, called: Callable[..., Any]) -> Callable[..., Any]:
    """The call, and the program that it is for."""

    def both(*args: Any) -> None:
        called(*args)
        s.replay()

    return both


# Schedules ----------------------------------------------------------------------------------


def scheduled() -> tuple[Schedule, Any, Any]:
    sch = at.Schedule(FUNC)
    return sch, sch.get_block("B"), sch.get_block("C")


def _schedule_door(
    name: str, make: Callable[[Any, Any, Any], Any], skip: dict[str | int, str] | None = None
) -> None:
    door(f"Schedule.{name}", skip)(lambda: make(*scheduled()))


door("Schedule")(lambda: (at.Schedule, FUNC, {"x": 1}))
_schedule_door("get", lambda s, b, c: (s.get, b))
_schedule_door("get_block", lambda s, b, c: (s.get_block, "B"))
for n in ("get_loops", "get_child_blocks", "get_producers", "get_consumers"):
    _schedule_door(n, lambda s, b, c, n=n: (getattr(s, n), b))
_schedule_door("split", lambda s, b, c: (s.split, s.get_loops(b)[1], [2, 4]))
_schedule_door("split, factors", lambda s, b, c: (lambda *f: s.split(s.get_loops(b)[1], f), 2, 4))
_schedule_door("split_axis", lambda s, b, c: (s.split_axis, b, 0, 2))
_schedule_door("reorder", lambda s, b, c: (s.reorder, *reversed(s.get_loops(b))))
_schedule_door("fuse", lambda s, b, c: (s.fuse, *s.get_loops(b)))
for n in ("parallel", "vectorize", "unroll"):
    _schedule_door(n, lambda s, b, c, n=n: (getattr(s, n), s.get_loops(b)[1]))
_schedule_door("bind", lambda s, b, c: (s.bind, s.get_loops(b)[0], "blockIdx.x"))
_schedule_door("compute_at", lambda s, b, c: (s.compute_at, b, s.get_loops(c)[0]))
_schedule_door("reverse_compute_at", lambda s, b, c: (s.reverse_compute_at, c, s.get_loops(b)[0]))
_schedule_door("compute_inline", lambda s, b, c: (s.compute_inline, b))
_schedule_door("reverse_compute_inline", lambda s, b, c: (s.reverse_compute_inline, _after(s)[1]))
_schedule_door("cache_read", lambda s, b, c: (s.cache_read, b, 0, "local", None, ()))
_schedule_door(
    "cache_read, layout",
    lambda s, b, c: (s.cache_read, b, "A", kw(layout=[1, 0], consumers=[b])),
)
_schedule_door("cache_write", lambda s, b, c: (s.cache_write, b, 0, "local"))
_schedule_door(
    "transform_layout", lambda s, b, c: (s.transform_layout, b, ("write", 0), lambda i, j: (j, i))
)
_schedule_door(
    "transform_layout, where",
    lambda s, b, c: (
        lambda k, n: s.transform_layout(b, (k, n), lambda i, j: (j, i)),
        "write",
        0,
    ),
)
_schedule_door(
    "transform_layout, what the map returns",
    lambda s, b, c: (
        lambda value: s.transform_layout(b, ("write", 0), lambda i, j: value),
        [],
    ),
)
_schedule_door("get_output_blocks", lambda s, b, c: (s.get_output_blocks,))
_schedule_door("add_unit_loop", lambda s, b, c: (s.add_unit_loop, b))
_schedule_door("blockize", lambda s, b, c: (s.blockize, s.get_loops(b)[1]))
_schedule_door("reorder_block_iter_var", lambda s, b, c: (s.reorder_block_iter_var, b, [1, 0]))
_schedule_door("loop_partition", lambda s, b, c: (s.loop_partition, s.get_loops(b)[0], [2, None]))
_schedule_door("decompose_padding", lambda s, b, c: (s.decompose_padding, b, s.get_loops(b)[0]))
_schedule_door("pad_einsum", lambda s, b, c: (s.pad_einsum, b, [2, 4]))
_schedule_door("pad_read", lambda s, b, c: (s.pad_read, b, 0))
_schedule_door("rolling_buffer", lambda s, b, c: (s.rolling_buffer, b, 0))
_schedule_door("merge", lambda s, b, c: (s.merge, s.get_loops(b)[0], s.get_loops(c)[0]))
_schedule_door("cache_inplace", lambda s, b, c: (s.cache_inplace, "C", 0, "local"))
_schedule_door("cache_index", lambda s, b, c: (s.cache_index, "C", "local"))
_schedule_door("reindex", lambda s, b, c: (s.reindex, b, ("read", 0)))
for n in ("reindex_cache_read", "reindex_cache_write"):
    _schedule_door(n, lambda s, b, c, n=n: (getattr(s, n), b, 0, "local", [1, 0]))
_schedule_door(
    "transform_block_layout",
    lambda s, b, c: (s.transform_block_layout, b, lambda i, j: (j, i)),
)
_schedule_door(
    "sample_perfect_tile", lambda s, b, c: (s.sample_perfect_tile, s.get_loops(b)[1], 2, 16)
)
_schedule_door("sample_categorical", lambda s, b, c: (s.sample_categorical, [1, 2], [0.5, 0.5], 0))
_schedule_door("sample_compute_location", lambda s, b, c: (s.sample_compute_location, b, -1))
_schedule_door("pad_axis", lambda s, b, c: (s.pad_axis, s.get_loops(c)[1], 4))
_schedule_door("rfactor", lambda s, b, c: (s.rfactor, s.get_loops(c)[1], 0))
_schedule_door("decompose_reduction", lambda s, b, c: (s.decompose_reduction, c, s.get_loops(c)[1]))
_schedule_door("tensorize", lambda s, b, c: (s.tensorize, s.get_loops(b)[0], "no such"))
_schedule_door("annotate", lambda s, b, c: (s.annotate, b, "auto_scheduler_hint", 1))
_schedule_door(
    "annotate, a loop", lambda s, b, c: (s.annotate, s.get_loops(b)[0], "auto_scheduler_hint", 1)
)
_schedule_door(
    "unannotate", lambda s, b, c: (_annotated(s, b).unannotate, b, "auto_scheduler_hint")
)
_schedule_door("set_scope", lambda s, b, c: (s.set_scope, b, 0, "local"))
_schedule_door("auto_tensorize", lambda s, b, c: (s.auto_tensorize, b, "no such"))
_schedule_door("storage_align", lambda s, b, c: (s.storage_align, b, 0, 0, 32, 8))
_schedule_door("double_buffer", lambda s, b, c: (s.double_buffer, b, 3))
_schedule_door("replay", lambda s, b, c: (at.Schedule(FUNC).replay, s.trace))
_schedule_door("trace.apply", lambda s, b, c: (s.trace.apply, FUNC, {}))
_schedule_door("trace.bind", lambda s, b, c: (_decided().bind, {"x": 2}))
_schedule_door("trace.bind, value", lambda s, b, c: (lambda v: _decided().bind({"x": v}), 2))
_schedule_door(
    "trace.apply, value", lambda s, b, c: (lambda v: _decided().apply(FUNC, {"x": v}), 2)
)
_schedule_door("trace.as_python", lambda s, b, c: (s.trace.as_python, "apply"))
_schedule_door("trace.from_json", lambda s, b, c: (s.trace.from_json, s.trace.to_json()))


def _decided() -> Any:
    from autosched.schedule.trace import Decision

    sch = at.Schedule(FUNC, {"x": 2})
    sch.split(sch.get_loops(sch.get_block("B"))[1], [None, Decision("x")])
    return sch.trace


def _after(s: Any) -> Any:
    return s.get_blocks()


def _annotated(s: Any, b: Any) -> Any:
    s.annotate(b, "auto_scheduler_hint", 1)
    return s


def scanned() -> Any:
    first, step, S, X = recurrence()
    sch = at.Schedule(te.create_prim_func([X, te.scan(first, step, S, name="out")]))
    return sch, sch.get_block("step")


@door("Schedule.parallel_scan")
def _() -> Any:
    sch, step = scanned()
    return sch.parallel_scan, step, 2


@door("Schedule.single_pass_scan")
def _() -> Any:
    sch, step = scanned()
    return sch.single_pass_scan, step, 2, 2, 2
