"""Double buffers: half the barriers, the same results; and where there are none to have."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from pathlib import Path

import numpy as np
import pytest
from cuda_on_host import CXX, run_on_host
from gpu_programs import plain_matmul, shared_rows, tiled_matmul, transposed
from gpu_run import barriers, check, cuda, program, source

from autosched import te
from autosched.codegen.cuda import compile_cuda
from autosched.errors import CodegenError, ScheduleError
from autosched.schedule import Schedule
from autosched.search.analysis import analyse
from autosched.sketch.generate import generate_space
from autosched.workloads import prim_func_of


@pytest.mark.parametrize(("doubled", "expected"), [("", 2), ("A", 2), ("AB", 1)])
def test_a_step_waits_once_if_all_that_is_shared_alternates(doubled: str, expected: int) -> None:
    plain, func = tiled_matmul(doubled=doubled)
    text = check(func, plain)
    assert barriers(text) == barriers(source(func, cuda())) == expected
    assert ("ax2_0 % 2 * 256" in text) == bool(doubled)
    (kernel,) = program(func).kernels
    assert kernel.shared_bytes == (2 + len(doubled)) * 1024


@pytest.mark.long
@pytest.mark.parametrize("size", [(45, 50, 21), (64, 64, 16), (33, 40, 9)], ids=str)
def test_tiles_that_overhang(size: tuple[int, int, int]) -> None:
    """Of odd sizes, and of two steps, whose number is the half itself."""
    plain, func = tiled_matmul(*size, doubled="AB")
    assert barriers(check(func, plain)) == 1


@pytest.mark.parametrize(("doubled", "copies"), [("", 0), ("A", 1), ("AB", 2)])
def test_cuda_fetches_while_it_computes(doubled: str, copies: int) -> None:
    """In the steps, not before them; every barrier waits for what is under way."""
    _, func = tiled_matmul(doubled=doubled)
    lines = [x.strip() for x in source(func, cuda()).splitlines()]
    assert sum(x.startswith("copy_16(&") for x in lines) == copies
    places = [n for n, x in enumerate(lines) if x == "__syncthreads();"]
    assert all((lines[n - 1] == "copied();") == bool(doubled) for n in places)
    assert "copy_16" not in source(func)
    assert compile_cuda("\n".join(lines), "sm_90")


@pytest.mark.parametrize("both", [False, True])
def test_what_a_fetch_goes_through_is_there_in_its_step(both: bool, tmp_path: Path) -> None:
    """A copy of a copy: whether or not the first one alternates as well, it is read at once."""
    a, k = te.placeholder((64, 96), name="A"), te.reduce_axis((0, 96), name="k")
    c = te.compute((64,), lambda i: te.sum(a[i, k], axis=k), name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    block = sch.get_block("C")
    second = sch.cache_read(block, 0, "shared")
    first = sch.cache_read(second, 0, "shared")
    i, terms = sch.get_loops(block)
    for loop, axis in zip(sch.split(i, [None, 32]), ("blockIdx.x", "threadIdx.x"), strict=True):
        sch.bind(loop, axis)
    steps, _ = sch.split(terms, [None, 4])
    for copy, width in ((second, 4), (first, 1)):  # other threads read than have written
        sch.compute_at(copy, steps)
        sch.annotate(copy, "cooperative", width)
    for copy in (second, first)[: 1 + both]:
        sch.double_buffer(copy, 3)
    text = source(sch.func, cuda())
    assert "copied_but_1();" in text
    assert "copy_4(" not in text
    data = np.random.default_rng(0).uniform(-1, 1, (64, 96)).astype(np.float32)
    if CXX is not None:
        for (found,) in run_on_host(sch.func, [data], tmp_path):
            np.testing.assert_allclose(found, data.sum(1), rtol=1e-4, atol=1e-4)


def test_what_is_computed_while_it_is_fetched_is_no_copy() -> None:
    a, b, _ = plain_matmul(64, 64, 64)
    twice = te.compute(a.shape, lambda i, j: a[i, j] * 2, name="twice")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(twice[i, k] * b[k, j], axis=k), name="C")
    space = generate_space(te.create_prim_func([a, b, c]), cuda())
    (ahead,) = [n for n, v in enumerate(space.variants) if v.name == "C.ahead"]
    text = source(space.schedule(ahead, space.default()[1]).func, cuda())
    assert text.count("copy_16(&") == 1
    assert "&B[" in text


def test_one_step_has_one_buffer() -> None:
    plain, func = tiled_matmul(32, 32, 8, doubled="AB")
    assert "% 2" not in check(func, plain)
    (kernel,) = program(func).kernels
    assert kernel.shared_bytes == 2048


def test_an_outer_loop_waits_for_the_last_steps_before_it() -> None:
    """The first step of the next tile writes a half that is read in the last one of this."""
    a, b, c = plain_matmul(24, 16, 12)
    plain = te.create_prim_func([a, b, c])
    sch = Schedule(plain)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    tile, _ = sch.split(i, [None, 8])
    steps, rest = sch.split(k, [None, 4])
    sch.reorder(tile, j, steps, rest, sch.get_loops(block)[1])
    copy = sch.cache_read(block, "A", "shared")
    sch.compute_at(copy, steps)
    lanes = sch.fuse(*sch.get_loops(copy)[-2:])
    _, lane = sch.split(lanes, [None, 16])
    sch.bind(j, "threadIdx.x")
    sch.bind(lane, "threadIdx.x")
    sch.double_buffer(copy)
    text = check(sch.func, plain)
    assert barriers(text) == 2


@pytest.mark.parametrize(("terms", "loops", "exposed"), [(8, [6], 1), (32, [3, 8], 3)])
def test_short_loops_of_steps_are_one_with_those_around(
    terms: int, loops: list[int], exposed: int
) -> None:
    """Of a sum over two axes the next step is fetched ahead in all of them."""
    a, b = te.placeholder((8, 3, terms), name="A"), te.placeholder((3, terms, 8), name="B")
    k, r = te.reduce_axis((0, 3), name="k"), te.reduce_axis((0, terms), name="r")
    c = te.compute((8, 8), lambda i, j: te.sum(a[i, k, r] * b[k, r, j], axis=[k, r]), name="C")
    plain = te.create_prim_func([a, b, c])
    space = generate_space(plain, cuda())
    (ahead,) = (n for n, v in enumerate(space.variants) if v.name == "C.ahead")
    values = {
        name: value
        for spec in space.variants[ahead].decisions
        for name, value in zip(spec.names, spec.default, strict=True)
    }
    values |= {"C.vk.1": 1, "C.vk.2": 1, "C.vr.1": 4, "C.vr.2": 1}
    func = space.schedule(ahead, values).func
    text = check(func, plain)
    assert [int(n) for n in re.findall(r"for \(int [kr]_0 = 0; [kr]_0 < (\d+)", text)] == loops
    (kernel,) = analyse(func, cuda()).kernels
    assert kernel.exposed == exposed
    assert kernel.steps == prod(loops)


def test_a_step_that_fetches_nothing_more_computes_all_the_same() -> None:
    """On PoCL too, whose work-items may miss what stands behind equal tests of a step's number."""
    plain = prim_func_of("conv2d", (8, 8, 4, 32, 5, 1, 1))
    space = generate_space(plain, cuda())
    (ahead,) = (n for n, v in enumerate(space.variants) if v.name == "conv2d.ahead")
    values = dict.fromkeys(space.variants[ahead].decision_names, 1)
    values |= {f"conv2d.{x}": 2 for x in ("vx.1", "vx.2", "vx.4")}
    values |= {"conv2d.vy.2": 6, "conv2d.vco.2": 8, "conv2d.vco.4": 4, "conv2d.vrc.1": 4}
    text = check(space.schedule(ahead, {**values, "weight_shared.fetch": 2}).func, plain)
    assert text.count("if (rx_0 < 24") == 2


def test_a_padded_double_buffer_keeps_its_padding() -> None:
    _, func = tiled_matmul(doubled="A")
    assert "A_shared[512]" in source(func)
    plain, padded = tiled_matmul(doubled="A", padding=1)
    text = check(padded, plain)
    assert "A_shared[576]" in text  # two halves of 32 rows of 9
    assert re.search(r"A_shared\[ax2_0 % 2 \* 288 \+ [^\]]*ty \* 18", text)
    assert barriers(text) == 2


def refused(change: Callable[[Schedule], None], message: str) -> None:
    a, b, c = plain_matmul(8, 64, 8)
    sch = Schedule(te.create_prim_func([a, b, c]))
    before = sch.func
    with pytest.raises(ScheduleError, match=message):
        change(sch)
    assert "double_buffer" not in [step.op for step in sch.trace.steps]
    assert before is not None


def test_what_is_no_double_buffer() -> None:
    def at_root(s: Schedule) -> None:
        s.double_buffer(s.cache_read(s.get_block("C"), "A", "shared"))

    def local(s: Schedule) -> None:
        s.double_buffer(s.cache_read(s.get_block("C"), "A", "local"))

    def output(s: Schedule) -> None:
        s.double_buffer(s.get_block("C"))

    def in_threads(s: Schedule) -> None:
        copy = s.cache_read(s.get_block("C"), "A", "shared")
        i, j, _ = s.get_loops(s.get_block("C"))
        s.bind(i, "blockIdx.x")
        s.bind(j, "threadIdx.x")
        s.compute_at(copy, j)
        s.double_buffer(copy)

    refused(at_root, "no serial loop holds all that accesses A_shared, so there are no steps")
    refused(in_threads, "no serial loop holds all that accesses A_shared")
    refused(local, r"double_buffer\(A_local\): .* writes A_local \(local\)")
    refused(output, "C is an argument of main; expected an intermediate")


def test_twice_the_shared_memory_counts() -> None:
    a, b, c = plain_matmul(32, 32, 4096)
    sch = Schedule(te.create_prim_func([a, b, c]))
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    steps, _ = sch.split(k, [None, 256])
    copy = sch.cache_read(block, "A", "shared")
    sch.reorder(steps, i, j)
    sch.compute_at(copy, steps)
    _, lane = sch.split(sch.get_loops(copy)[-1], [None, 32])
    sch.bind(j, "threadIdx.x")
    sch.bind(lane, "threadIdx.x")
    assert source(sch.func)
    sch.double_buffer(copy)
    with pytest.raises(CodegenError, match=r"65536 bytes of shared memory \(A_shared 65536\)"):
        source(sch.func)


@pytest.mark.parametrize("copies", [None, 2, 3])
def test_a_schedule_prints_and_replays(copies: int | None) -> None:
    a, b, c = plain_matmul(8, 8, 8)
    s = te.create_schedule(c.op)
    copy = s.cache_read(a, "shared", [c])
    s[copy].compute_at(s[c], s[c].op.reduce_axis[0])
    s[c].reorder(s[c].op.reduce_axis[0], *s[c].op.axis)
    s[copy].double_buffer(copies)
    sch = s.replay([a, b, c], "main")
    kept = "True" if copies is None else str(copies)
    assert "sch.double_buffer(" in sch.trace.as_python()
    assert f"'double_buffer': {kept}" in sch.func.script()
    from autosched.script import parse

    assert parse(sch.func.script()).same(sch.func)
    again = Schedule(te.create_prim_func([a, b, c]))
    again.replay(sch.trace)
    assert again.func.same(sch.func)


@pytest.mark.parametrize("padding", [0, 1])
def test_storage_align_spreads_columns_over_banks(padding: int) -> None:
    """A column of 32 rows of 32 lies in one bank of 32; rows of 33 elements put it in all."""
    plain, func = transposed(padding)
    text = check(func, plain)
    rows = 32 + padding
    assert f"A_shared[{32 * rows}]" in text
    assert f"tx * {rows} + " in text


def test_rows_without_steps_are_not_doubled() -> None:
    _, func = shared_rows(40, True)
    assert barriers(source(func)) == 1
