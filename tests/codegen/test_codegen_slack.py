"""Vectors that hang over an end: behind a buffer on the stack, and in a loop's last iteration."""

from __future__ import annotations

import pytest
from guarded import TARGETS, check

from autosched import ops, te
from autosched.codegen.build import generate_ir
from autosched.schedule import Schedule
from autosched.sketch.default import default_schedule
from autosched.target import Target


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [1, 3, 7, 10, 17, 20, 33, 100, 130])
def test_rows_of_any_length(columns: int, target: str) -> None:
    """Intermediates of a row whose last vector is not whole."""
    for operator in (ops.softmax, ops.layer_norm):
        func = te.create_prim_func(operator(3, columns))
        schedule = default_schedule(func, Target(target))
        check(schedule, func, target=target, rtol=1e-5, atol=1e-6)


def test_short_rows_stay_in_registers() -> None:
    """Only the result is stored with a mask: what lies between was never in memory to LLVM."""
    func = te.create_prim_func(ops.softmax(8, 10))
    target = Target("llvm -mcpu=x86-64-v4")
    ir = generate_ir(default_schedule(func, target).func, target).ir
    assert ir.count("call void @llvm.masked.store") == 1


def test_slack_is_no_part_of_the_buffer() -> None:
    """A store that ends before the end of its buffer leaves the rest alone."""
    a = te.placeholder((40,), name="a")
    b = te.compute((40,), lambda i: a[i] + 1.0, name="b")
    out = te.compute((40,), lambda i: b[39 - i] * 2.0, name="out")
    func = te.create_prim_func([a, out])
    sch = Schedule(func)
    (i,) = sch.get_loops(sch.get_block("b"))
    for loop in sch.split(i, [4, 10])[1:]:
        sch.vectorize(loop)
    check(sch, func)


@pytest.mark.parametrize("target", TARGETS)
def test_no_branch_depends_on_lanes_that_nobody_wrote(target: str) -> None:
    """Of five elements in eight lanes the last three are what the stack held: sin would ask whether
    they are large."""
    a = te.placeholder((4, 5), name="a")
    b = te.compute((4, 5), lambda i, j: a[i, j] * 0.5, name="b")
    out = te.compute((4, 5), lambda i, j: te.sin(b[i, j]), name="out")
    func = te.create_prim_func([a, out])
    sch = Schedule(func)
    sch.compute_at(sch.get_block("b"), sch.get_loops(sch.get_block("out"))[0])
    sch.unroll(sch.get_loops(sch.get_block("b"))[-1])
    sch.vectorize(sch.get_loops(sch.get_block("out"))[-1])
    check(sch, func, target=target, rtol=1e-6)
    ir = generate_ir(sch.func, Target("llvm -mcpu=x86-64-v3")).ir
    argument = ir.split("@autosched.sin.8xfloat(<8 x float> ")[1].split(")")[0]
    assert f"{argument} = select <8 x i1> <i1 true, i1 true, i1 true, i1 true, i1 true, i1 f" in ir


@pytest.mark.parametrize("extent", [5, 31, 32, 33, 100, 129])
@pytest.mark.parametrize("width", [8, 32, 48])
def test_last_iterations(extent: int, width: int) -> None:
    """Vectors in a serial loop: masks only where lanes do not exist, also where the end depends on
    loops outside."""
    a = te.placeholder((6, extent), name="a")
    out = te.compute((6, extent), lambda i, j: a[i, j] * 3.0, name="out")
    func = te.create_prim_func([a, out])
    for form in ("plain", "tiled"):
        sch = Schedule(func)
        _, j = sch.get_loops(sch.get_block("out"))
        if form == "plain":
            parts = sch.split(j, [None, width])
        else:
            parts = sch.split(j, [None, 2, width])
            sch.parallel(parts[0])
        sch.vectorize(parts[-1])
        check(sch, func)


def test_whole_iterations_have_no_masks() -> None:
    """The end is known before the loop, so no lane is compared with it inside."""
    a = te.placeholder((6, 1000), name="a")
    out = te.compute((6, 1000), lambda i, j: a[i, j] * 3.0, name="out")
    func = te.create_prim_func([a, out])
    sch = Schedule(func)
    sch.vectorize(sch.split(sch.get_loops(sch.get_block("out"))[1], [None, 32])[1])
    assert "icmp slt <" not in generate_ir(sch.func, Target("llvm -mcpu=x86-64-v4")).ir
