"""Barriers: where threads meet and nowhere else; and what no barrier can order."""

from __future__ import annotations

import re

import pytest
from gpu_programs import rows_in_one_kernel, shared_rows, spread, tiled_matmul
from gpu_run import barriers, check, cuda, program, source

from autosched import te
from autosched.codegen.cuda import compile_cuda
from autosched.codegen.gpu.barriers import check_races
from autosched.codegen.gpu.generate import generate
from autosched.codegen.gpu.kernel import Kernel
from autosched.errors import CodegenError
from autosched.schedule import Schedule
from autosched.tir.affine import Affine
from autosched.tir.expr import Var, const
from autosched.tir.nodes import Access, Block, Buffer, For, PrimFunc


def test_tiles_in_shared_memory_take_two() -> None:
    """One before the tiles are read, one before the next are written."""
    plain, func = tiled_matmul()
    text = check(func, plain)
    assert barriers(text) == barriers(source(func, cuda())) == 2
    loop = text[text.index("for (int ax2_0") :]
    assert re.match(r"for [^\n]*\n\s+barrier\(CLK_LOCAL_MEM_FENCE\);\n", loop)


def test_tiles_that_overhang() -> None:
    plain, func = tiled_matmul(45, 50, 21)
    check(func, plain)


@pytest.mark.parametrize("reverse", [False, True])
def test_only_what_another_thread_wrote_is_waited_for(reverse: bool) -> None:
    plain, func = shared_rows(40, reverse)
    assert barriers(check(func, plain)) == int(reverse)


@pytest.mark.parametrize(("name", "expected"), [("softmax", 4), ("layer_norm", 4)])
def test_reductions_across_threads(name: str, expected: int) -> None:
    """Each takes a loop's barrier and one before its result is read."""
    plain, func = rows_in_one_kernel(name, (3, 100), 64)
    text = check(func, plain)
    assert barriers(text) == expected
    assert len(program(func).kernels) == 1


@pytest.mark.parametrize("threads", [8, 24, 32, 96, 128])
def test_numbers_of_threads(threads: int) -> None:
    """Of one warp, no power of two, several warps."""
    plain, func = rows_in_one_kernel("softmax", (2, 150), threads)
    check(func, plain)
    text = source(func, cuda())
    assert ("__shfl" in text) == (threads in (32, 128))


def test_values_of_one_warp_need_no_shared_memory() -> None:
    text = source(rows_in_one_kernel("softmax", (2, 150), 32)[1], cuda())
    assert "exchange" not in text


def test_a_barrier_stands_outside_of_every_branch() -> None:
    """All threads come to it: only loops are around."""
    for _, func in (tiled_matmul(45, 50, 21), rows_in_one_kernel("softmax", (3, 100), 64)):
        stack: list[str] = []
        for line in source(func).splitlines():
            if "barrier(" in line:
                assert not any("if (" in head for head in stack)
            if line.endswith("{"):
                stack.append(line)
            elif line.strip() == "}":
                stack.pop()


def recurrence(bound: bool) -> tuple[PrimFunc, PrimFunc]:
    """Each column by itself, or each step of all columns from their neighbours."""
    x = te.placeholder((6, 40), name="X")
    state = te.placeholder((6, 40), name="S_state")
    init = te.compute((1, 40), lambda _, j: x[0, j], name="S_init")
    if bound:
        update = te.compute((6, 40), lambda t, j: state[t - 1, j] + x[t, j], name="S_step")
    else:
        update = te.compute((6, 40), lambda t, j: state[t - 1, 39 - j] + x[t, j], name="S_step")
    s = te.scan(init, update, state, inputs=[x])
    func = te.create_prim_func([x, s])
    sch = Schedule(func)
    first, step = sch.get_blocks()
    spread(sch, first, 16)
    spread(sch, step, 16)
    return func, sch.func


def test_a_recurrence_of_columns_needs_none() -> None:
    plain, func = recurrence(True)
    assert barriers(check(func, plain)) == 0


def test_a_recurrence_of_neighbours_waits_once_a_step() -> None:
    plain, func = recurrence(False)
    text = check(func, plain)
    assert barriers(text) == 1
    assert "CLK_GLOBAL_MEM_FENCE" in text


# Races


def writing(index: Affine, extent: int, *loops: For) -> Kernel:
    """A kernel that stores to one element a point."""
    out = Buffer("out", (extent,), "float32")
    block = Block("set", (), (), (), (), (Access(out, (index,)),), (const(1.0),))
    axes = {x.thread: x for x in loops if x.thread is not None}
    body: For | Block = block
    for x in loops:
        if x.thread is None:
            body = For(x.var, x.extent, (body,))
    return Kernel("k", (body,), axes, (out,))


def axis(name: str, extent: int) -> For:
    return For(Var(name.replace(".", "_")), extent, (), "thread", name)


TX, BX, INNER = axis("threadIdx.x", 8), axis("blockIdx.x", 4), For(Var("i"), 3, ())
RACES = {
    "same element": (
        Affine(0),
        (TX,),
        "threads (threadIdx.x=0) and (threadIdx.x=7) both write out[0]",
    ),
    "overlapping tiles": (
        Affine.of(TX.var, 2) + Affine.of(INNER.var),
        (TX, INNER),
        None,  # another iteration: a barrier orders it
    ),
    "blocks overlap": (
        Affine.of(BX.var, 7) + Affine.of(TX.var),
        (BX, TX),
        "blocks (blockIdx.x=0) and (blockIdx.x=1) both write out[7] in set",
    ),
    "blocks forget the threads": (
        Affine.of(TX.var),
        (BX, TX),
        "blocks (blockIdx.x=0) and (blockIdx.x=3) both write out[0] in set",
    ),
    "apart": (Affine.of(BX.var, 8) + Affine.of(TX.var), (BX, TX), None),
}


@pytest.mark.parametrize("case", RACES)
def test_known_races(case: str) -> None:
    index, loops, message = RACES[case]
    kernel = writing(index, 64, *loops)
    if message is None:
        check_races(kernel)
        return
    with pytest.raises(CodegenError, match=re.escape(message)):
        check_races(kernel)


def test_a_race_beyond_what_can_be_gone_through_is_refused_without_a_point() -> None:
    big = axis("threadIdx.x", 1 << 20)
    with pytest.raises(CodegenError, match="another of the threads writes in set"):
        check_races(writing(Affine(0), 4, big))


def test_limits_of_the_device() -> None:
    a = te.placeholder((4096,), name="A")
    sch = Schedule(te.create_prim_func([a, te.compute((4096,), lambda i: a[i] + 1, name="B")]))
    (block,) = sch.get_blocks()
    spread(sch, block, 2048)
    with pytest.raises(CodegenError, match=r"has 2048 threads a block .*; the target allows 1024"):
        program(sch.func, cuda())


def test_shared_memory_has_an_end() -> None:
    _, func = shared_rows(60000, True)
    with pytest.raises(CodegenError, match=r"needs 240000 bytes of shared memory \(B 240000\)"):
        program(func, cuda())


def test_a_launch_asks_for_what_is_more_than_usual() -> None:
    """What reductions across threads go through, and what is little, the source declares."""
    _, func = shared_rows(20000, True)
    made = generate(func, cuda())
    assert [x.shared_bytes for x in made.launches] == [80000]
    assert "extern __shared__ __align__(16) unsigned char shared[];" in made.source
    assert "float *const B = (float *)(shared + 0);" in made.source
    assert compile_cuda(made.source, "sm_90")
    _, small = shared_rows(10000, True)
    made = generate(small, cuda())
    assert [x.shared_bytes for x in made.launches] == [0]
    assert "__shared__ __align__(16) float B[10000];" in made.source
    assert "extern __shared__" not in made.source


def test_what_a_block_was_not_asked_to_share_goes_to_a_workspace() -> None:
    a = te.placeholder((3, 9000), name="A")
    b = te.compute((3, 9000), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((3, 9000), lambda i, j: b[i, 8999 - j] + 1, name="C")
    plain = te.create_prim_func([a, c])
    sch = Schedule(plain)
    first, second = sch.get_blocks()
    row = sch.get_loops(second)[0]
    sch.compute_at(first, row)
    sch.bind(row, "blockIdx.x")
    for block in (first, second):
        spread(sch, block, 32)
    assert [b.shape for b in program(sch.func).workspaces] == [(3, 1, 9000)]
    assert barriers(check(sch.func, plain)) == 1


def test_a_local_array_is_no_way_to_another_thread() -> None:
    a = te.placeholder((4, 64), name="A")
    b = te.compute((4, 64), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((4, 64), lambda i, j: b[i, 63 - j] + 1, name="C")
    sch = Schedule(te.create_prim_func([a, c]))
    first, second = sch.get_blocks()
    sch.set_scope(first, 0, "local")
    sch.compute_at(first, sch.get_loops(second)[0])
    for block in (first, second):
        spread(sch, block, 16)
    with pytest.raises(CodegenError, match="B is local, but C may read elements that another"):
        program(sch.func)
