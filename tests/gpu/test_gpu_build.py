"""Targets, at.build and what it hands back; binding in both faces of a schedule."""

from __future__ import annotations

import logging
import pickle
import re
from typing import Any

import numpy as np
import pytest
from gpu_programs import plain_matmul, tiled_matmul
from gpu_run import barriers, check, source

import autosched as at
from autosched import te
from autosched.codegen.cuda import compile_cuda
from autosched.errors import (
    ArgumentError,
    BuildError,
    CodegenError,
    ScheduleError,
    TargetError,
)
from autosched.runtime.opencl import default_queue
from autosched.schedule import Schedule
from autosched.target.gpu import MOST, THREADS, device_of, limits_of
from autosched.tir import interp, whole
from autosched.tir.nodes import PrimFunc

# Targets


@pytest.mark.parametrize(
    "text",
    [
        "cuda -arch=sm_90",
        "cuda -arch=sm_100a -max-threads-per-block=512",
        "opencl",
        "opencl -max-threads-per-block=1024 -max-shared-memory-per-block=65536",
    ],
)
def test_a_target_is_its_text(text: str) -> None:
    target = at.Target(text)
    assert str(target) == text
    assert at.Target(str(target)) == target == pickle.loads(pickle.dumps(target))
    assert target.is_gpu
    assert not target.is_host


def test_usual_limits_are_not_written_out() -> None:
    assert str(at.Target("opencl -max-threads-per-block=256")) == "opencl"
    assert limits_of(at.Target("opencl -max-threads-per-block=64")).max_threads == 64
    usual = "cuda -arch=sm_90 -multiprocessors=132 -max-shared-memory-per-block=232448"
    assert str(at.Target(usual)) == "cuda -arch=sm_90"


def test_another_device_is_described() -> None:
    params = at.HardwareParams(
        max_shared_memory_per_block=48 << 10,
        max_local_memory_per_block=32768,
        max_threads_per_block=512,
        max_vthread_extent=4,
        warp_size=32,
        multiprocessors=60,
    )
    target = params.applied(at.Target("cuda -arch=sm_90"))
    assert str(target) == (
        "cuda -arch=sm_90 -max-threads-per-block=512 -max-shared-memory-per-block=49152 "
        "-multiprocessors=60 -registers-per-block=32768 -max-vthread-extent=4"
    )
    assert at.Target(str(target)) == target
    device, limits = device_of(target), limits_of(target)
    assert (device.processors, device.registers, device.max_virtual) == (60, 32768, 4)
    assert device.memory < device_of(at.Target("cuda -arch=sm_90")).memory
    assert (limits.max_threads, limits.shared_bytes) == (512, 49152)


def test_opencl_says_what_a_device_is() -> None:
    target = at.HardwareParams.of_opencl().applied(at.Target("opencl"))
    info = default_queue().info
    assert limits_of(target).max_threads == min(info.max_threads, MOST[THREADS])
    gpu = at.Target("opencl -multiprocessors=20")
    assert device_of(gpu).processors == 20
    assert device_of(gpu).clock != device_of(at.Target("opencl")).clock, "of a CPU under PoCL"


def test_figures_of_another_kind_are_refused() -> None:
    with pytest.raises(TargetError, match=r"num_cores are figures of a CPU, and opencl is none"):
        at.HardwareParams(num_cores=2).applied(at.Target("opencl"))
    with pytest.raises(TargetError, match=r"max_threads_per_block are figures of a GPU"):
        at.HardwareParams(max_threads_per_block=2).applied(at.Target("llvm"))
    with pytest.raises(TargetError, match=r"warp_size=64, and generated code takes 32"):
        at.HardwareParams(warp_size=64).applied(at.Target("cuda -arch=sm_90"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuda", "names its architecture, as in -arch=sm_90; found none"),
        ("cuda -arch=hopper", "found -arch=hopper"),
        ("opencl -arch=sm_90", "unknown option '-arch=sm_90' of target"),
        ("opencl -mcpu=znver5", "known: -max-threads-per-block=, -max-shared"),
        ("opencl -max-threads-per-block=0", "-max-threads-per-block=0 is no limit; expected 1 to"),
        ("opencl -max-threads-per-block=lots", "is no limit"),
    ],
)
def test_targets_refused(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=re.escape(message)):
        at.Target(text)


# Building and calling


def stage() -> tuple[te.StageSchedule, list[te.Tensor]]:
    a, b, c = plain_matmul(8, 64, 4)
    s = te.create_schedule(c.op)
    outer, inner = s[c].split(c.op.axis[1], factor=32)
    s[c].bind(c.op.axis[0], te.thread_axis("blockIdx.y"))
    s[c].bind(outer, te.thread_axis("blockIdx.x"))
    s[c].bind(inner, te.thread_axis("threadIdx.x"))
    return s, [a, b, c]


def test_build_for_opencl() -> None:
    s, args = stage()
    built = at.build(s, args, "opencl", name="product")
    (launch,) = built.launches  # type: ignore[attr-defined]
    assert (launch.grid, launch.block, launch.args) == ((2, 8, 1), (32, 1, 1), (0, 1, 2))
    assert "void product_kernel(" in built.source
    assert [p.name for p in built.args] == ["A", "B", "C"]
    rng = np.random.default_rng(0)
    a, b = rng.random((8, 4), np.float32), rng.random((4, 64), np.float32)
    c = np.full((8, 64), np.nan, np.float32)
    built(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    timing = built.time_evaluator(number=2, repeat=3)(a, b, c)
    assert len(timing.seconds) == 3
    assert timing.median > 0


def test_device_arrays_stay_on_the_device() -> None:
    import pyopencl.array as cl_array

    s, args = stage()
    built = at.build(s, args, "opencl")
    queue = default_queue().queue
    rng = np.random.default_rng(0)
    a, b = rng.random((8, 4), np.float32), rng.random((4, 64), np.float32)
    given = [cl_array.to_device(queue, x) for x in (a, b, np.zeros((8, 64), np.float32))]
    built(*given)
    np.testing.assert_allclose(given[2].get(), a @ b, rtol=1e-5)
    with pytest.raises(ArgumentError, match=r"argument 1 \(B\) of main is float32\[8, 64\]"):
        built(given[0], given[2], given[1])
    with pytest.raises(ArgumentError, match="takes 3 arrays"):
        built(*given[:2])
    with pytest.raises(ArgumentError, match=r"overlaps|is float32\[8, 64\]"):
        built(given[2], given[1], given[2])


def test_buffers_and_arrays_of_the_host_together() -> None:
    """What is on the device stays there; NumPy arrays beside it are copied."""
    import pyopencl as cl

    s, args = stage()
    built = at.build(s, args, "opencl")
    queue = default_queue()
    rng = np.random.default_rng(0)
    a, b = rng.random((8, 4), np.float32), rng.random((4, 64), np.float32)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    on_device = cl.Buffer(queue.context, flags, hostbuf=b)
    c = np.empty((8, 64), np.float32)
    built(a, on_device, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    small = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 100)
    with pytest.raises(ArgumentError, match=r"\(B\) of main is a buffer of 100 bytes; expected"):
        built(a, small, c)
    other = cl.Buffer(cl.Context([queue.device]), flags, hostbuf=b)
    with pytest.raises(ArgumentError, match=r"\(B\) of main belongs to another OpenCL context"):
        built(a, other, c)


def test_numpy_arrays_are_checked_and_noted(caplog: pytest.LogCaptureFixture) -> None:
    from autosched.runtime import device as runtime

    runtime._note.cache_clear()
    s, args = stage()
    built = at.build(s, args, "opencl")
    a, b, c = (np.ones(p.shape, np.float32) for p in built.args)
    with caplog.at_level(logging.INFO, "autosched.runtime.device"):
        built(a, b, c)
        built(a, b, c)
    assert [r.message for r in caplog.records if "copied to the device" in r.message] == [
        r.message for r in caplog.records
    ]
    assert len(caplog.records) == 1
    with pytest.raises(ArgumentError, match="has dtype float64; expected float32"):
        built(a.astype("float64"), b, c)


def test_build_for_cuda() -> None:
    s, args = stage()
    built = at.build(s, args, "cuda -arch=sm_90", compile_only=True)
    assert built.artifact.code[:4] == b"\x7fELF"
    assert "__global__" in built.source
    kernels = built.kernels  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(kernels)) == kernels
    with pytest.raises(BuildError, match="running CUDA needs NVIDIA's driver, which is not here"):
        built(*(np.zeros(p.shape, np.float32) for p in built.args))


def test_what_a_gpu_function_is_not() -> None:
    s, args = stage()
    built = at.build(s, args, "opencl", compile_only=True)
    refused: list[Any] = [
        lambda: built.export("x"),
        lambda: built.assembly(),
        lambda: built.with_threads(2),
        lambda: built.function,
    ]
    for call in refused:
        with pytest.raises(BuildError, match="main, built for opencl, "):
            call()


def test_nvrtc_says_what_is_wrong() -> None:
    with pytest.raises(BuildError, match=r"NVRTC refused the generated code for sm_90(.|\n)*oops"):
        compile_cuda('extern "C" __global__ void k() { oops; }', "sm_90")


def test_a_module_of_functions() -> None:
    s, args = stage()
    func = s.replay(args, "product").func
    built = at.build(at.IRModule({"product": func, "again": func}), target="opencl")
    assert set(built) == {"product", "again"}  # type: ignore[call-overload]


# Binding


def test_an_unbound_program_is_one_thread() -> None:
    a, b, c = plain_matmul(3, 4, 5)
    plain = te.create_prim_func([a, b, c])
    assert "reqd_work_group_size(1, 1, 1)" in check(plain, plain)


def test_a_schedule_with_bind_prints_and_replays() -> None:
    plain, func = tiled_matmul()
    from autosched.script import parse

    assert parse(func.script()).same(func)
    inputs = [np.random.default_rng(0).random((64, 64), np.float32) for _ in "ab"]
    found = [np.empty((64, 64), np.float32) for _ in range(2)]
    whole.reference(plain, [*inputs, found[0]])
    small_plain, small = tiled_matmul(33, 9, 5)
    arrays = [np.ones(b.shape, np.float32) for b in small.params]
    interp.run(at.lower(small), arrays)  # the interpreter runs threads one after the other
    np.testing.assert_allclose(arrays[2], np.full((33, 9), 5.0))
    assert small_plain.params[0].shape == (33, 5)


def softmax_rows() -> tuple[Schedule, Any, Any]:
    a = te.placeholder((4, 64), name="A")
    k = te.reduce_axis((0, 64), name="k")
    total = te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="total")
    sch = Schedule(te.create_prim_func([a, total]))
    (block,) = sch.get_blocks()
    return sch, block, sch.get_loops(block)


def test_reductions_are_bound_to_threads_only() -> None:
    sch, _, (i, k) = softmax_rows()
    with pytest.raises(ScheduleError, match="runs over a reduction axis of total; it cannot be"):
        sch.bind(k, "blockIdx.x")
    sch.bind(i, "blockIdx.x")
    sch.bind(k, "threadIdx.x")
    assert "exchange" in source(sch.func)


def test_threads_below_threads_share_out_what_does_not_depend_on_them() -> None:
    a, b, c = plain_matmul(4, 64, 8)
    sch = Schedule(te.create_prim_func([a, b, c]))
    (block,) = sch.get_blocks()
    i, j, _ = sch.get_loops(block)
    outer, _ = sch.split(i, [None, 2])
    sch.bind(outer, "threadIdx.y")
    with pytest.raises(ScheduleError, match=r"bound to threadIdx\.y already, and C uses it"):
        sch.bind(j, "threadIdx.y")


def test_scopes_at_the_root_are_refused() -> None:
    a, b, c = plain_matmul(4, 64, 8)
    sch = Schedule(te.create_prim_func([a, b, c]))
    (block,) = sch.get_blocks()
    sch.cache_read(block, "A", "shared")
    with pytest.raises(CodegenError, match="A_shared has the scope 'shared' and is used outside"):
        source(sch.func)


def scan() -> tuple[PrimFunc, PrimFunc]:
    x = te.placeholder((9, 100), name="X")
    state = te.placeholder((9, 100), name="state")
    init = te.compute((1, 100), lambda _, i: x[0, i], name="init")
    update = te.compute((9, 100), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    total = te.scan(init, update, state, inputs=[x])
    s = te.create_schedule(total.op)
    for stage in (init, update):
        _, inner = s[stage].split(stage.op.axis[1], factor=32)
        s[stage].bind(inner, te.thread_axis("threadIdx.x"))
    return te.create_prim_func([x, total]), s.replay([x, total], "main").func


def test_a_scan_bound_by_its_stages() -> None:
    plain, func = scan()
    assert barriers(check(func, plain)) == 0


def test_vectors_are_loaded_where_they_are_aligned() -> None:
    for n, expected in ((64, 2), (66, 0)):
        a = te.placeholder((4, n), name="A")
        twice = te.compute((4, n), lambda i, j, a=a: a[i, j] * 2, name="B")
        plain = te.create_prim_func([a, twice])
        sch = Schedule(plain)
        (block,) = sch.get_blocks()
        _, lanes = sch.split(sch.get_loops(block)[1], [None, 4])
        spread_rows = sch.get_loops(block)[0]
        sch.bind(spread_rows, "threadIdx.x")
        sch.vectorize(lanes)
        text = check(sch.func, plain)
        assert text.count("float4 *)") == expected
