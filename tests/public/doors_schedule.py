"""Valid calls of schedules, of stages and of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from doors import FUNC, door, kw, recurrence, tensors

import autosched as at
from autosched import ir, te
from autosched.schedule import Schedule

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
_stage_door(
    "Stage.set_store_predicate",
    lambda s, a, b, c: (s[b].set_store_predicate, te.thread_axis("threadIdx.x").equal(0)),
)
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


door("ir.structural_equal")(lambda: (ir.structural_equal, FUNC, FUNC))
door("ir.assert_structural_equal")(lambda: (ir.assert_structural_equal, FUNC, FUNC))
door("ir.structural_hash")(lambda: (ir.structural_hash, FUNC))
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
_schedule_door("seed", lambda s, b, c: (s.seed, 3))
_schedule_door("work_on", lambda s, b, c: (s.work_on, "main"))
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
