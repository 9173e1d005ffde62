"""The interpreter on programs written by hand: order, predicates, scratch memory, and refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.errors import ArgumentError, VerifyError
from autosched.tir import interp, whole
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Slot, Var, call, const
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Iter,
    Node,
    Predicate,
    PrimFunc,
    map_func,
)
from autosched.tir.reducers import known_reducer
from autosched.workloads import prim_func_of

F32 = "float32"


def nest(body: Node, *loops: tuple[Var, int], **options: Any) -> Node:
    """`body` inside loops, outermost first; `options` go to the outermost."""
    for n, (v, extent) in reversed(list(enumerate(loops))):
        body = For(v, extent, (body,), **(options if n == 0 else {}))
    return body


def copy(
    source: Buffer, target: Buffer, bindings: list[Affine], extents: list[int], **changes: Any
) -> Block:
    """target[v…] = source[v…]."""
    iters = tuple(Iter(Var(f"v{n}"), e) for n, e in enumerate(extents))
    at = tuple(Affine.of(i.var) for i in iters)
    block = Block(
        f"to_{target.name}",
        iters,
        tuple(bindings),
        (),
        (Access(source, at),),
        (Access(target, at),),
        (Slot(0, source.dtype),),
    )
    return replace(block, **changes)


def test_a_split_with_a_tail() -> None:
    """7 = 3 x 3 - 2: predicates skip points, and nothing is read at them."""
    A, S = Buffer("A", (7,), F32), Buffer("S", (), F32)
    o, i, vk = Var("o"), Var("i"), Var("vk")
    form = Affine.of(o, 3) + Affine.of(i)
    block = Block(
        "S",
        (Iter(vk, 7, "reduce"),),
        (form,),
        (Predicate(form, 7),),
        (Access(A, (Affine.of(vk),)),),
        (Access(S, ()),),
        (Slot(0, F32),),
        known_reducer("sum", F32),
    )
    a, s = np.arange(7, dtype=F32), np.full((), np.nan, F32)
    interp.run(PrimFunc("main", (A, S), (nest(block, (o, 3), (i, 3)),)), [a, s])
    assert s == 21
    # Without the initialisation it adds to what is there.
    again = nest(replace(block, init=False), (o, 3), (i, 3))
    interp.run(PrimFunc("main", (A, S), (again,)), [a, s])
    assert s == 42
    bad = nest(replace(block, predicates=()), (o, 3), (i, 3))
    with pytest.raises(
        VerifyError, match=re.escape("block S at (o=2, i=1): axis vk is 7, outside its extent 7")
    ):
        interp.run(PrimFunc("main", (A, S), (bad,)), [a, s])


def test_fused_loops() -> None:
    A, B = Buffer("A", (3, 4), F32), Buffer("B", (3, 4), F32)
    f = Var("f")
    bindings = [
        Affine.of(Digit(Affine.of(f), 4, None)),
        Affine.of(Digit(Affine.of(f), 1, 4)),
    ]
    func = PrimFunc("main", (A, B), (nest(copy(A, B, bindings, [3, 4]), (f, 12), kind="parallel"),))
    a, b = np.arange(12, dtype=F32).reshape(3, 4), np.zeros((3, 4), F32)
    interp.run(func, [a, b])
    np.testing.assert_array_equal(a, b)


def lowered(producer_extent: int) -> PrimFunc:
    """For each row: copy it into a scratch row, then out of it. The scratch's rows are numbered
    from the loop's: its index is `vi - i`."""
    A, B, row = Buffer("A", (3, 4), F32), Buffer("B", (3, 4), F32), Buffer("row", (1, 4), F32)
    i, j, j2 = Var("i"), Var("j"), Var("j2")

    def stage(source: Buffer, target: Buffer, loop: Var) -> Block:
        block = copy(source, target, [Affine.of(i), Affine.of(loop)], [3, 4])
        vi, vj = (Affine.of(x.var) for x in block.iters)
        access = Access(row, (vi - Affine.of(i), vj))
        return replace(block, **{"writes" if target is row else "reads": (access,)})

    body = (
        For(j, producer_extent, (stage(A, row, j),)),
        For(j2, 4, (stage(row, B, j2),)),
    )
    return PrimFunc("main", (A, B), (For(i, 3, body, allocs=(row,)),))


def test_lowered_form() -> None:
    a, b = np.arange(12, dtype=F32).reshape(3, 4), np.zeros((3, 4), F32)
    interp.run(lowered(4), [a, b])
    np.testing.assert_array_equal(a, b)


def test_scratch_memory_is_poisoned_at_every_iteration() -> None:
    a, b = np.ones((3, 4), F32), np.zeros((3, 4), F32)
    interp.run(lowered(3), [a, b])
    np.testing.assert_array_equal(b[:, :3], 1)
    assert np.isnan(b[:, 3]).all()


@pytest.mark.parametrize(("dtype", "value"), [("int8", 127), ("uint8", 255), ("bool", True)])
def test_intermediates_are_poisoned(dtype: str, value: Any) -> None:
    T, B = Buffer("T", (2,), dtype), Buffer("B", (2,), dtype)
    i = Var("i")
    b = np.zeros(2, dtype)
    interp.run(PrimFunc("f", (B,), (nest(copy(T, B, [Affine.of(i)], [2]), (i, 2)),)), [b])
    assert (b == value).all()


def test_integers_wrap_without_a_warning() -> None:
    A = te.placeholder((3,), name="A", dtype="int8")
    B = te.compute((3,), lambda i: A[i] * A[i] + 100, name="B")
    C = te.compute((3,), lambda i: te.abs(-A[i]) // 0, name="C")
    a, b, c = np.array([127, -128, 3], "int8"), np.zeros(3, "int8"), np.zeros(3, "int8")
    interp.run(te.create_prim_func([A, B, C]), [a, b, c])
    np.testing.assert_array_equal(b, [101, 100, 109])


def test_float16_rounds_at_every_step() -> None:
    A = te.placeholder((2,), name="A", dtype="float16")
    B = te.compute((2,), lambda i: (A[i] + 1) - 1, name="B")
    a, b = np.array([1e-4, 2048], "float16"), np.zeros(2, "float16")
    interp.run(te.create_prim_func([A, B]), [a, b])
    np.testing.assert_array_equal(b, [0, 2047])


def shrunk(func: PrimFunc, shape: tuple[int, ...]) -> PrimFunc:
    """`func` with a smaller first parameter than its accesses were written for."""
    old = func.params[0]
    new = replace(old, shape=shape)

    def access(a: Access) -> Access:
        return Access(new, a.indices) if a.buffer is old else a

    func = map_func(func, lambda b: replace(b, reads=tuple(access(a) for a in b.reads)))
    return replace(func, params=(new, *func.params[1:]))


@pytest.mark.parametrize("execute", [interp.run, whole.reference])
def test_only_the_side_taken_is_read(execute: Any) -> None:
    A = te.placeholder((3,), name="A")
    a, b = np.ones(3, F32), np.zeros(5, F32)
    lazy = te.compute((5,), lambda i: te.if_then_else(i < 3, A[i], 2.0), name="B")
    execute(te.create_prim_func([A, lazy]), [a, b])
    np.testing.assert_array_equal(b, [1, 1, 1, 2, 2])
    wide = te.placeholder((5,), name="A")
    strict = te.compute((5,), lambda i: te.select(i < 3, wide[i], 2.0), name="B")
    with pytest.raises(VerifyError, match=r"block B.*A\[v.*i\] is out of bounds: index 0"):
        execute(shrunk(te.create_prim_func([wide, strict]), (3,)), [a, b])


def test_the_message_names_block_access_and_point() -> None:
    A = te.placeholder((3, 4), name="A")
    B = te.compute((3, 3), lambda i, j: A[i, j + 1], name="B")
    arrays = [np.zeros((3, 3), F32) for _ in range(2)]
    message = (
        "block B at (vi=0, vj=2, i=0, j=2): A[vi, vj + 1] is out of bounds: index 1 is 3, extent 3"
    )
    with pytest.raises(VerifyError, match=re.escape(message)):
        interp.run(shrunk(te.create_prim_func([A, B]), (3, 3)), arrays)


def test_a_product_out_of_bounds() -> None:
    """As a product of matrices, too."""
    a, b = te.placeholder((4, 6), name="A"), te.placeholder((6, 5), name="B")
    k = te.reduce_axis((0, 6), name="k")
    made = te.compute((4, 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    func = shrunk(te.create_prim_func([a, b, made]), (4, 5))
    arrays = [np.zeros(s, F32) for s in ((4, 5), (6, 5), (4, 5))]
    with pytest.raises(VerifyError, match="index 1 takes values from 0 to 5, extent 5"):
        whole.reference(func, arrays, blas=True)


def test_a_write_out_of_bounds() -> None:
    A, B = Buffer("A", (3,), F32), Buffer("B", (2,), F32)
    i = Var("i")
    func = PrimFunc("f", (A, B), (nest(copy(A, B, [Affine.of(i)], [3]), (i, 3)),))
    with pytest.raises(VerifyError, match=r"B\[v0\] is out of bounds: index 0 is 2, extent 2"):
        interp.run(func, [np.zeros(3, F32), np.zeros(2, F32)])


def test_recurrences_run_in_order() -> None:
    A, B = Buffer("A", (5,), F32), Buffer("B", (5,), F32)
    i = Var("i")
    block = copy(A, B, [Affine.of(i)], [5])
    at = Affine.of(block.iters[0].var)
    block = replace(
        block,
        iters=(replace(block.iters[0], kind="sequential"),),
        reads=(*block.reads, Access(B, (at - 1,))),
        body=(
            call(
                "if_then_else",
                block.iters[0].var < 1,
                Slot(0, F32),
                call("add", Slot(0, F32), Slot(1, F32)),
            ),
        ),
    )
    func = PrimFunc("f", (A, B), (nest(block, (i, 5)),))
    a, b = np.arange(5, dtype=F32), np.zeros(5, F32)
    for execute in (interp.run, whole.reference):
        b[:] = -1
        execute(func, [a, b])
        np.testing.assert_array_equal(b, a.cumsum())


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("matmul", (9, 11, 7)),
        ("softmax", (5, 13)),
        ("argmax", (6, 17)),
        ("conv2d", (6, 5, 4, 6, 3, 1, 1)),
    ],
)
def test_pieces_add_up(name: str, args: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    func = prim_func_of(name, args)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, b.shape).astype(b.dtype) for b in func.params]
    results = []
    for limit in (whole.CHUNK_BYTES, 1000, 100):
        monkeypatch.setattr(whole, "CHUNK_BYTES", limit)
        mine = [a.copy() for a in arrays]
        whole.reference(func, mine)
        results.append(mine)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_refusals() -> None:
    func = prim_func_of("matmul", (2, 3, 4))
    a, b, c = np.zeros((2, 3), F32), np.zeros((3, 4), F32), np.zeros((2, 4), F32)
    for arrays, message in [
        ([a, b], "main takes 3 arrays, found 2"),
        ([a, c, c], "argument B of main is float32[2, 4]; expected float32[3, 4]"),
        (
            [a, b, c.astype("float64")],
            "argument C of main is float64[2, 4]; expected float32[2, 4]",
        ),
    ]:
        with pytest.raises(ArgumentError, match=re.escape(message)):
            interp.run(func, arrays)
    with pytest.raises(VerifyError, match="block to_row has been scheduled"):
        whole.reference(lowered(4), [np.zeros((3, 4), F32)] * 2)


def test_ill_typed_blocks() -> None:
    A, B = Buffer("A", (3,), F32), Buffer("B", (3,), F32)
    i = Var("i")
    good = copy(A, B, [Affine.of(i)], [3])
    arrays = [np.zeros(3, F32)] * 2
    for body, message in [
        (const(1), "block to_B stores int64 into B, which holds float32"),
        (Slot(1, F32), "slot 1 of block to_B is no read of dtype float32"),
    ]:
        func = PrimFunc("f", (A, B), (nest(replace(good, body=(body,)), (i, 3)),))
        with pytest.raises(VerifyError, match=message):
            interp.run(func, arrays)


def test_a_population_is_refused() -> None:
    A, B = Buffer("A", (3,), F32), Buffer("B", (3,), F32)
    i = Var("i")
    block = copy(A, B, [Affine.of(i)], [3])
    func = PrimFunc("f", (A, B), (For(i, np.array([3, 3]), (block,)),))
    with pytest.raises(VerifyError, match="a population cannot be executed"):
        interp.run(func, [np.zeros(3, F32)] * 2)
