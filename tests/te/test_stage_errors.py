"""Misuse of the stage view: refused by an error that names the stage and the axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stage_cases import example

from autosched import te
from autosched.errors import ScheduleError, TensorExprError


def _foreign(e: Any) -> None:
    e.s[e.d].split(e.c.op.axis[0], factor=2)


def _stranger(e: Any) -> None:
    e.s[e.d].unroll(te.reduce_axis((0, 3), "z"))


def _no_axis(e: Any) -> None:
    e.s[e.d].parallel("x")


def _of_an_input(e: Any) -> None:
    e.s[e.a].split(e.k, factor=2)


def _split_twice(e: Any) -> None:
    e.s[e.d].split(e.d.op.axis[0], factor=2)
    e.s[e.d].vectorize(e.d.op.axis[0])


def _fused_away(e: Any) -> None:
    e.s[e.d].fuse(*e.d.op.axis)
    e.s[e.d].reorder(*e.d.op.axis)


def _moved_away(e: Any) -> None:
    e.s.cache_write(e.c, "local")
    e.s[e.c].split(e.k, factor=2)


def _no_factor(e: Any) -> None:
    e.s[e.d].split(e.d.op.axis[0])


def _two_factors(e: Any) -> None:
    e.s[e.d].split(e.d.op.axis[0], factor=2, nparts=2)


def _bad_factor(e: Any) -> None:
    e.s[e.d].split(e.d.op.axis[0], factor=0)


def _fuse_apart(e: Any) -> None:
    x, y = e.c.op.axis
    e.s[e.c].reorder(x, e.k, y)
    e.s[e.c].fuse(x, y)


def _fuse_backwards(e: Any) -> None:
    e.s[e.d].fuse(*reversed(e.d.op.axis))


def _fuse_nothing(e: Any) -> None:
    e.s[e.d].fuse()


def _reorder_twice(e: Any) -> None:
    x, y = e.d.op.axis
    e.s[e.d].reorder(x, y, x)


def _mark_twice(e: Any) -> None:
    e.s[e.d].unroll(e.d.op.axis[1])
    e.s[e.d].vectorize(e.d.op.axis[1])


def _split_marked(e: Any) -> None:
    e.s[e.d].parallel(e.d.op.axis[0])
    e.s[e.d].split(e.d.op.axis[0], factor=2)


def _output_at(e: Any) -> None:
    e.s[e.d].compute_at(e.s[e.c], e.k)


def _inline_output(e: Any) -> None:
    e.s[e.d].compute_inline()


def _inline_input(e: Any) -> None:
    e.s[e.a].compute_inline()


def _inline_reduction(e: Any) -> None:
    e.s[e.c].compute_inline()


def _inline_scheduled(e: Any) -> None:
    e.s[e.p].split(e.p.op.axis[0], factor=2)
    e.s[e.p].compute_inline()


def _at_no_consumer(e: Any) -> None:
    e.s[e.c].compute_at(e.s[e.p], e.p.op.axis[0])


def _at_a_tensor(e: Any) -> None:
    e.s[e.c].compute_at(e.d, e.d.op.axis[0])


def _at_another_schedule(e: Any) -> None:
    other = te.create_schedule(e.d.op)
    e.s[e.c].compute_at(other[e.d], e.d.op.axis[0])


def _at_a_foreign_axis(e: Any) -> None:
    e.s[e.c].compute_at(e.s[e.d], e.p.op.axis[0])


def _at_an_axis_split_later(e: Any) -> None:
    e.s[e.c].compute_at(e.s[e.d], e.d.op.axis[0])
    e.s[e.d].split(e.d.op.axis[0], factor=2)


def _at_an_axis_that_moved(e: Any) -> None:
    e.s[e.p].compute_at(e.s[e.c], e.k)
    e.s.cache_write(e.c, "local")


def _at_an_inlined_stage(e: Any) -> None:
    q = te.compute((8, 8), lambda x, y: e.c[x, y] + 1.0, name="Q")
    r = te.compute((8, 8), lambda x, y: q[x, y] + 1.0, name="R")
    e.s, e.args = te.create_schedule(r.op), [e.a, r]
    e.s[e.c].compute_at(e.s[q], q.op.axis[0])
    e.s[q].compute_inline()


def _not_all_consumers(e: Any) -> None:
    q = te.compute((8, 8), lambda x, y: e.c[x, y] + e.d[x, y], name="Q")
    e.s, e.args = te.create_schedule(q.op), [e.a, q]
    e.s[e.c].compute_at(e.s[e.d], e.d.op.axis[0])


def _parallel_reduction(e: Any) -> None:
    e.s[e.c].parallel(e.k)


def _vectorize_outside(e: Any) -> None:
    e.s[e.d].vectorize(e.d.op.axis[0])


def _bind_text(e: Any) -> None:
    e.s[e.d].bind(e.d.op.axis[0], "threadIdx.x")


def _bind_twice(e: Any) -> None:
    tx = te.thread_axis("threadIdx.x")
    x, y = e.d.op.axis
    e.s[e.d].bind(e.s[e.d].split(x, factor=4)[0], tx)
    e.s[e.d].bind(y, tx)


def _too_many_virtual(e: Any) -> None:
    x, y = e.d.op.axis
    for axis in (*e.s[e.d].split(x, factor=4), *e.s[e.d].split(y, factor=4)):
        e.s[e.d].bind(axis, te.thread_axis("vthread"))


def _bad_tag(e: Any) -> None:
    te.thread_axis("warp.x")


def _bad_domain(e: Any) -> None:
    te.thread_axis((1, 4), "threadIdx.x")


def _bad_pragma(e: Any) -> None:
    e.s[e.d].pragma(e.d.op.axis[0], 3)


def _pragma_value(e: Any) -> None:
    e.s[e.d].pragma(e.d.op.axis[0], "key", object())


def _read_by_no_reader(e: Any) -> None:
    e.s.cache_read(e.a, "local", [e.d])


def _read_by_none(e: Any) -> None:
    e.s.cache_read(e.a, "local", [])


def _bad_scope(e: Any) -> None:
    e.s.cache_read(e.a, "wmma", [e.p])


def _write_of_an_input(e: Any) -> None:
    e.s.cache_write(e.a, "local")


def _write_after_split(e: Any) -> None:
    e.s[e.c].split(e.k, factor=2)
    e.s.cache_write(e.c, "local")


def _write_after_mark(e: Any) -> None:
    e.s[e.d].parallel(e.d.op.axis[0])
    e.s.cache_write(e.d, "local")


def _write_of_some(e: Any) -> None:
    e.s.cache_write([e.c, e.d], "local")


def _write_twice(e: Any) -> None:
    e.s.cache_write([e.c, e.c], "local")


def _tensorize_unknown(e: Any) -> None:
    e.s[e.c].tensorize(e.k, "never")


def _tensorize_other_loops(e: Any) -> None:
    e.s[e.c].tensorize(e.k, "dot_16x4_u8s8s32_vnni")


def _layout_of_an_output(e: Any) -> None:
    e.s[e.d].transform_layout(lambda i, j: (j, i))


def _layout_of_nothing(e: Any) -> None:
    e.s[e.c].transform_layout(3)


def _layout_and_strides(e: Any) -> None:
    e.s[e.c].storage_align(e.c.op.axis[0], 8)
    e.s[e.c].transform_layout(lambda i, j: (j, i))


def _write_of_a_name(e: Any) -> None:
    e.s.cache_write("C", "local")


def _factor_a_spatial_loop(e: Any) -> None:
    e.s.rfactor(e.c, e.c.op.axis[0])


def _factor_after_spatial_split(e: Any) -> None:
    e.s[e.c].split(e.c.op.axis[0], factor=2)
    e.s.rfactor(e.c, e.k)


def _factor_after_reorder(e: Any) -> None:
    e.s[e.c].reorder(e.k, *e.c.op.axis)
    e.s.rfactor(e.c, e.k)


def _factor_axis(e: Any) -> None:
    e.s.rfactor(e.c, e.k, 3)


def _factor_of_no_reduction(e: Any) -> None:
    e.s.rfactor(e.d, e.d.op.axis[0])


def _no_stage(e: Any) -> None:
    e.s[te.placeholder((3,), name="Z")]


def _no_tensor(e: Any) -> None:
    e.s["C"]


def _input_for_op(e: Any) -> None:
    te.create_schedule(e.a.op)


def _nothing(e: Any) -> None:
    te.create_schedule([])


def _no_output(e: Any) -> None:
    e.args = [e.a, e.c]


def _no_input(e: Any) -> None:
    e.args = [e.d]


def _copy_as_parameter(e: Any) -> None:
    e.args = [e.a, e.s.cache_write(e.c, "local"), e.d]


def _moved_parameter(e: Any) -> None:
    e.args = [e.a, e.c, e.d]
    e.s[e.c].compute_at(e.s[e.d], e.d.op.axis[0])


MISUSE: dict[Callable[[Any], None], str] = {
    _foreign: r"s\[D\].split\(i\): i is an axis of stage C; the axes of D are x, y",
    _stranger: r"s\[D\].unroll\(z\): z is an axis of no stage here; the axes of D are x, y",
    _no_axis: r"s\[D\].parallel\('x'\): expected an axis of stage D \(x, y\); found 'x'",
    _of_an_input: r"s\[A\].split\(k\): k is an axis of stage C; A is an input and has no loops",
    _split_twice: r"s\[D\].vectorize\(x\): axis x of stage D was split into x.outer, x.inner; its "
    r"loops now are x.outer, x.inner, y",
    _fused_away: r"s\[D\].reorder\(x, y\): axis x of stage D was fused into x.y.fused",
    _moved_away: r"s\[C\].split\(k\): k is an axis of stage C_local; the axes of C are i, j",
    _no_factor: r"s\[D\].split\(x\): give either factor= or nparts=; found neither",
    _two_factors: r"s\[D\].split\(x\): give either factor= or nparts=; found both",
    _bad_factor: r"s\[D\].split\(x\): a factor is a positive int; found 0",
    _fuse_apart: r"s\[C\].fuse\(i, j\): fuse takes loops that follow .* stage C are i, k, j",
    _fuse_backwards: r"s\[D\].fuse\(y, x\): fuse takes loops that follow one another",
    _fuse_nothing: r"s\[D\].fuse\(\): fuse needs at least one axis",
    _reorder_twice: r"s\[D\].reorder\(x, y, x\): axis x is named twice",
    _mark_twice: r"s\[D\].vectorize\(y\): loop y of stage D has its unroll already",
    _split_marked: r"s\[D\].split\(x\): loop x of stage D has its parallel already; .* last",
    _output_at: r"s\[D\].compute_at: D is an output of the schedule and must be written in full; "
    r"use s.cache_write\(D, scope\)",
    _inline_output: r"s\[D\].compute_inline: D is an output",
    _inline_input: r"s\[A\].compute_inline: A is an input, which nothing computes",
    _inline_reduction: r"s\[C\].compute_inline\(\): C reduces over k .* use compute_at",
    _inline_scheduled: r"s\[P\].compute_inline\(\): other calls schedule the loops of stage P",
    _at_no_consumer: r"s\[C\].compute_at\(s\[P\], i\): stage P does not consume C; its consumers "
    r"are D",
    _at_a_tensor: r"s\[C\].compute_at: expected a stage of this schedule, such as s\[C\]",
    _at_another_schedule: r"s\[C\].compute_at: expected a stage of this schedule",
    _at_a_foreign_axis: r"s\[C\].compute_at\(s\[D\], i\): i is an axis of stage P",
    _at_an_axis_split_later: r"s\[C\].compute_at\(s\[D\], x\): axis x of stage D was split into",
    _at_an_axis_that_moved: r"s\[P\].compute_at\(s\[C\], k\): the loops of stage C were made anew; "
    "they are i, j",
    _at_an_inlined_stage: r"s\[C\].compute_at\(s\[Q\], x\): stage Q is inlined and has no loops",
    _not_all_consumers: r"s\[C\].compute_at\(s\[D\], x\): .* its consumer Q is not below loop x",
    _parallel_reduction: r"s\[C\].parallel\(k\): loop k runs over a reduction axis of C",
    _vectorize_outside: r"s\[D\].vectorize\(x\): vectorize: loop x has the serial loop y below",
    _bind_text: r"s\[D\].bind\(x\): expected an axis made by te.thread_axis, found 'threadIdx.x'",
    _bind_twice: r"s\[D\].bind\(y, threadIdx.x\): .* loop x_0 around y is bound to threadIdx.x",
    _too_many_virtual: r"s\[D\].bind\(y.inner, vthread\): there are three virtual thread axes",
    _bad_tag: "thread_axis: no tag 'warp.x'; expected one of blockIdx.x",
    _bad_domain: "thread_axis: a thread axis begins at 0; found 1",
    _bad_pragma: r"s\[D\].pragma\(x\): the name of a pragma is a text; found 3",
    _pragma_value: r"s\[D\].pragma\(x, 'key'\): a step holds numbers, texts",
    _read_by_no_reader: r"s.cache_read\(A, 'local'\): stage D does not read A; P does",
    _read_by_none: r"s.cache_read\(A, 'local'\): expected the operations that shall read",
    _bad_scope: r"s.cache_read\(A, 'wmma'\): .*no scope 'wmma'; expected one of global",
    _write_of_an_input: r"s.cache_write\(A\): A is an input",
    _write_after_split: r"s.cache_write\(C, 'local'\): axis k of stage C was split into .* first",
    _write_after_mark: r"s.cache_write\(D, 'local'\): loop x of stage D has its kind .* first",
    _write_of_some: r"s.cache_write\(\[C, D\], 'local'\): expected the tensors that one stage",
    _write_twice: r"s.cache_write\(\[C, C\], 'local'\): stage C computes 1 tensors .* each of them",
    _tensorize_unknown: "no tensor intrinsic 'never'; known: ",
    _tensorize_other_loops: r"s\[C\].tensorize\(k\): tensorize: dot_16x4.* is a nest of 2 loops; "
    "found 1 from k",
    _layout_of_an_output: r"s\[D\].transform_layout: .* D is an argument .* parameters=True",
    _layout_of_nothing: r"s\[C\].transform_layout: expected a function of the indices",
    _layout_and_strides: r"s\[C\].transform_layout: stage C has strides of its own",
    _write_of_a_name: "s.cache_write: expected a tensor, found 'C'",
    _factor_a_spatial_loop: r"s.rfactor\(C, i\): i is a spatial loop of stage C; its reduction "
    "loops are k",
    _factor_after_spatial_split: r"s.rfactor\(C, k\): axis i of stage C was split into",
    _factor_after_reorder: r"s.rfactor\(C, k\): the loops of stage C are reordered already",
    _factor_axis: r"s.rfactor\(C, k\): factor_axis is between -3 and 2; found 3",
    _factor_of_no_reduction: r"s.rfactor\(D, x\): x is a spatial loop of stage D; .* are none",
    _no_stage: "Z is not part of this schedule; its stages are A, P, C, D",
    _no_tensor: "'C' is not part of this schedule",
    _input_for_op: "expected an operation that computes, found the input A",
    _nothing: "expected at least one operation",
    _no_output: "args: the output D of the schedule is not among A, C",
    _no_input: "P reads the placeholder A, which is not a parameter",
    _copy_as_parameter: r"args: C_local is none of the tensors .* \(A, P, C, D\)",
    _moved_parameter: r"s\[C\].compute_at\(s\[D\], x\): .* C is an argument of main",
}


@pytest.mark.parametrize("misuse", MISUSE, ids=lambda f: f.__name__.strip("_"))
def test_misuse_is_refused_by_name(misuse: Callable[[Any], None]) -> None:
    with pytest.raises((ScheduleError, TensorExprError), match=f"(?s){MISUSE[misuse]}"):
        _do(misuse)


def _do(misuse: Callable[[Any], None]) -> None:
    e = example()
    misuse(e)
    e.s.replay(e.args)
