"""Intrinsics whose implementation is a function: it takes the place of the nest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensor_programs import dot_matmul

import autosched as at
from autosched import te
from autosched.errors import CodegenError, ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc, loops_of

PARAMS = 'A: T.Buffer((4, 8), "int32"), B: T.Buffer((8, 4), "int32"), C: T.Buffer((4, 4), "int32")'
MEANING = f"""
@T.prim_func
def tile({PARAMS}):
    for i, j, k in T.grid(4, 4, 8):
        with T.block("update"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
IMPLEMENTATION = """
@T.prim_func
def tile(X: T.Buffer((4, 8), "int32"), Y: T.Buffer((8, 4), "int32"), Z: T.Buffer((4, 4), "int32")):
    turned = T.alloc_buffer((4, 8), "int32")
    for j in T.unroll(4):
        for k in T.vectorized(8):
            with T.block("turn"):
                vj, vk = T.axis.remap("SS", [j, k])
                turned[vj, vk] = Y[vk, vj]
    for k in T.serial(8):
        for i in T.unroll(4):
            for j in T.vectorized(4):
                with T.block("update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    Z[vi, vj] = Z[vi, vj] + X[vi, vk] * turned[vj, vk]
"""
NAME = "tile_4x4x8_by_function"


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    at.TensorIntrin.register(NAME, parse_func(MEANING, check=False), IMPLEMENTATION)


def matmul(n: int = 10, m: int = 8, k: int = 16) -> PrimFunc:
    return parse_func(f"""
@T.prim_func
def main(P: T.Buffer(({n}, {k}), "int32"), Q: T.Buffer(({k}, {m}), "int32"),
         R: T.Buffer(({n}, {m}), "int32")):
    for i, j, k in T.grid({n}, {m}, {k}):
        with T.block("R"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                R[vi, vj] = 0
            R[vi, vj] = R[vi, vj] + P[vi, vk] * Q[vk, vj]
""")


def tiled(func: PrimFunc, decompose: bool = True) -> Schedule:
    sch = Schedule(func)
    i, j, k = sch.get_loops("R")
    (i0, i1), (j0, j1), (k0, k1) = (
        sch.split(i, [None, 4]),
        sch.split(j, [None, 4]),
        sch.split(k, [None, 8]),
    )
    sch.reorder(i0, j0, k0, i1, j1, k1)
    if decompose:
        sch.decompose_reduction("R", k0)
    sch.tensorize(i1, NAME)
    return sch


def test_the_function_takes_the_place_of_the_nest() -> None:
    func = matmul(n=12)
    sch = tiled(func)
    assert "turn" in sch.func.script()
    assert {x.kind for x in loops_of(sch.func)} == {"serial", "unrolled", "vectorized"}
    again = Schedule(func)
    again.replay(sch.trace)
    assert again.func.same(sch.func)
    assert parse_func(sch.func.script(), check=False).same(sch.func)
    rng = np.random.default_rng(1)
    p, q = (rng.integers(-99, 99, b.shape).astype(np.int32) for b in func.params[:2])
    for run in (interp.run, lambda f, a: at.build(f, target="llvm")(*a)):
        out = np.full((12, 8), 7, np.int32)
        run(sch.func, [p, q, out])
        assert (out == p @ q).all()
    sch.parallel(sch.get_loops("R")[0])
    out = np.full((12, 8), 7, np.int32)
    at.build(sch.func, target="llvm")(p, q, out)
    assert (out == p @ q).all()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ScheduleError, match="decompose_reduction first"):
        tiled(matmul(n=12), decompose=False)
    with pytest.raises(ScheduleError, match="a predicate of the block depends on the loops"):
        tiled(matmul(n=10))


def test_an_implementation_is_tried_when_it_is_registered() -> None:
    wrong = IMPLEMENTATION.replace("X[vi, vk] * turned", "X[vi, vk] + turned")
    other = IMPLEMENTATION.replace("(4, 8)", "(8, 4)").replace("def tile(X", "def tile(X")
    far = IMPLEMENTATION.replace("Y[vk, vj]", "Y[vk, vj + 1]")
    for text, message in (
        (wrong, "computes another C than its meaning"),
        (other, "the implementation has parameters"),
        (far, "out of bounds"),
    ):
        with pytest.raises(ScheduleError, match=message):
            at.TensorIntrin.register("never", MEANING, text)


def test_a_mark_alone_is_refused_when_it_is_built() -> None:
    text = f"""
@T.prim_func
def main({PARAMS}):
    for i, j in T.grid(4, 4):
        with T.block("zero"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = 0
    for i in T.serial(4, annotations={{"tensorize": "{NAME}"}}):
        for j in T.serial(4, annotations={{"tensorize": "{NAME}"}}):
            for k in T.serial(8, annotations={{"tensorize": "{NAME}"}}):
                with T.block("update"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    with pytest.raises(CodegenError, match="implemented by a function"):
        at.build(parse_func(text), target="llvm")


def compiled(func: PrimFunc, *inputs: np.ndarray) -> np.ndarray:
    out = np.full(func.params[-1].shape, 7, np.int32)
    at.build(func, target="llvm")(*inputs, out)
    return out


def test_axes_of_any_name_and_order_are_mapped() -> None:
    a, b = te.placeholder((16, 8), "int32", "a"), te.placeholder((12, 16), "int32", "b")
    r = te.reduce_axis((0, 16), "r")
    c = te.compute((8, 12), lambda m, n: te.sum(b[n, r] * a[r, m], axis=r), name="c")
    func = te.create_prim_func([b, a, c])
    sch = Schedule(func)
    loops = sch.auto_tensorize("c", NAME)
    assert [sch.get(x).extent for x in loops] == [2, 3, 2]
    assert [s.op for s in sch.trace.steps[2:]] == [
        *("split", "split", "split", "reorder", "decompose_reduction", "tensorize"),
    ]
    again = Schedule(func)
    again.replay(sch.trace)
    assert again.func.same(sch.func)
    sch.parallel(loops[0])
    rng = np.random.default_rng(2)
    x, y = (rng.integers(-99, 99, p.shape).astype(np.int32) for p in func.params[:2])
    np.testing.assert_array_equal(compiled(sch.func, x, y), (x @ y).T)


def test_of_axes_that_fit_the_last_are_mapped() -> None:
    image, kernel = (
        te.placeholder((6, 10, 8), "int32", "image"),
        te.placeholder((3, 3, 8, 4), "int32", "kernel"),
    )
    p, q, s = te.reduce_axis((0, 3), "p"), te.reduce_axis((0, 3), "q"), te.reduce_axis((0, 8), "s")
    conv = te.compute(
        (4, 8, 4),
        lambda y, x, c: te.sum(image[y + p, x + q, s] * kernel[p, q, s, c], axis=[p, q, s]),
        name="conv",
    )
    sch = Schedule(te.create_prim_func([image, kernel, conv]))
    intrin = at.TensorIntrin.get(NAME)
    assert [sch.get(x).extent for x in sch.auto_tensorize("conv", intrin)] == [4, 2, 3, 3]
    rng = np.random.default_rng(3)
    x, w = (rng.integers(-9, 9, b.shape).astype(np.int32) for b in sch.func.params[:2])
    expected = sum(x[i : i + 4, j : j + 8] @ w[i, j] for i in range(3) for j in range(3))
    np.testing.assert_array_equal(compiled(sch.func, x, w), expected)


def test_a_machine_instruction_is_mapped_where_its_operands_lie_so() -> None:
    name = "dot_16x4_u8s8s32_vnni"
    sch = Schedule(dot_matmul(name, 12, 32, 8))
    with pytest.raises(ScheduleError, match="elements of B do not lie in memory as those of B"):
        sch.auto_tensorize("C", name)
    sch.cache_read("C", 1, "global", [[1, 16], [0, 4], [1, 1, 16], [0, 1, 4]])
    assert [sch.get(x).extent for x in sch.auto_tensorize("C", name)] == [12, 2, 2]


def summed(n: int, m: int, body: Callable[..., Any]) -> PrimFunc:
    a = te.placeholder((n, 16), "int32", "a")
    r = te.reduce_axis((0, 16), "r")
    c = te.compute((n, m), lambda i, j: te.sum(body(a[i, r], a[j, r]), axis=r), name="c")
    return te.create_prim_func([a, c])


@pytest.mark.parametrize(
    ("func", "message"),
    [
        (summed(8, 4, lambda x, y: x + y), r"expected a block of sum of slot0 \* slot1 .* found"),
        (summed(10, 4, lambda x, y: x * y), "no loop stands for i: .* i of 10 is spatial, moving"),
        (summed(8, 4, lambda x, y: x * x), "j of 4 is spatial, moving through C"),
    ],
)
def test_what_cannot_be_mapped_is_left_as_it_was(func: PrimFunc, message: str) -> None:
    sch = Schedule(func)
    block = sch.get_block("c")
    with pytest.raises(ScheduleError, match=f"(?s)auto_tensorize.c. as {NAME}: .*{message}"):
        sch.auto_tensorize(block, NAME)
    assert sch.func.same(func)
    assert len(sch.trace.steps) == 1


def test_a_meaning_of_te_accumulates() -> None:
    a, b = te.placeholder((4, 8), "int32", "a"), te.placeholder((8, 4), "int32", "b")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((4, 4), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    meaning = te.create_prim_func([a, b, c])
    made = at.TensorIntrin.register("tile_by_te", meaning, IMPLEMENTATION)
    with pytest.raises(ScheduleError, match="another c than its meaning, which accumulates in"):
        at.TensorIntrin.register("never", meaning, meaning)
    sch = Schedule(matmul(n=12))
    sch.auto_tensorize("R", made)
    assert "turn" in sch.func.script()
