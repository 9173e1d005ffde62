"""Accesses of every kind: strides, gathers, conditions; loops and outputs of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from guarded import MANY, TARGETS, check

from autosched import ops, te
from autosched.codegen.build import generate_ir
from autosched.errors import CodegenError
from autosched.lowering.lower import lower
from autosched.schedule import Decision, Schedule
from autosched.target import Target
from autosched.tir.nodes import PrimFunc, loops_of

A: dict[str, Callable[..., Any]] = {
    "transposed": lambda a, i, j: a[j % 9, i],
    "every third": lambda a, i, j: a[i, (j * 3) % 23],
    "strided rows": lambda a, i, j: a[(i * 2) % 9, j],
    "backwards": lambda a, i, j: a[8 - i, 22 - j],
    "backwards by two": lambda a, i, j: a[i, 22 - j + j % 2],
    "diagonal": lambda a, i, j: a[(i + j) % 9, j],
    "broadcast column": lambda a, i, j: a[i, 0] + a[8 - i, 22],
    "broadcast row": lambda a, i, j: a[0, j],
    "one element": lambda a, i, j: a[4, 11],
    "pairs": lambda a, i, j: a[i, j // 2] + a[i, j - j % 2],
    "reshaped": lambda a, i, j: a[(i * 23 + j) // 5 % 9, (i * 23 + j) % 5],
    "shifted inside": lambda a, i, j: te.if_then_else(
        te.all(i >= 1, j >= 2), a[i - 1, j - 2], te.const(7, "int32")
    ),
    "shifted up": lambda a, i, j: te.if_then_else(j < 20, a[i, j + 3], te.const(7, "int32")),
    "other side": lambda a, i, j: te.if_then_else(
        te.any(i < 2, j > 20), te.const(7, "int32"), a[i - 2, j + 2]
    ),
    "nested conditions": lambda a, i, j: te.if_then_else(
        i >= 3,
        te.if_then_else(j >= 3, a[i - 3, j - 3], te.const(1, "int32")),
        te.if_then_else(j < 22, a[i + 1, j + 1], te.const(2, "int32")),
    ),
    "far outside": lambda a, i, j: te.if_then_else(
        te.all(i * 100 + j < 900, i < 0), a[i + 1000000, j], te.const(3, "int32")
    ),
}


@MANY
@pytest.mark.parametrize("name", A)
def test_accesses(name: str, target: str) -> None:
    """One matrix read in every pattern, by scalars, vectors, copies and as a reduced operand."""
    a = te.placeholder((9, 23), name="a", dtype="int32")
    out = te.compute((9, 23), lambda i, j: A[name](a, i, j), name="out")
    func = te.create_prim_func([a, out])
    for form in ("scalar", "rows", "columns", "copies"):
        sch = Schedule(func)
        i, j = sch.get_loops(sch.get_block("out"))
        if form == "rows":
            sch.vectorize(j)
        elif form == "columns":
            sch.reorder(j, i)
            sch.vectorize(i)
        elif form == "copies":
            sch.unroll(i)
            sch.vectorize(sch.split(j, [None, 10])[1])
        check(sch, func, target=target)
    k = te.reduce_axis((0, 23), name="k")
    total = te.compute((9,), lambda i: te.sum(A[name](a, i, k), axis=k), name="out")
    func = te.create_prim_func([a, total])
    for form in ("scalar", "lanes", "overhang", "columns"):
        sch = Schedule(func)
        i, r = sch.get_loops(sch.get_block("out"))
        if form == "lanes":
            sch.vectorize(r)
        elif form != "scalar":
            i0, i1 = sch.split(i, [None, 4 if form == "overhang" else 16])
            r0, r1 = sch.split(r, [None, 4])
            sch.reorder(i0, r0, r1, i1)
            sch.unroll(r1)
            sch.unroll(i1) if form == "overhang" else sch.vectorize(i1)
        check(sch, func, target=target)


def forms_of(func: PrimFunc, name: str) -> list[Schedule]:
    """A block of two axes as it is, in vectors along either, and in copies."""
    out = []
    for kind in range(4):
        sch = Schedule(func)
        i, j = sch.get_loops(sch.get_block(name))
        if kind == 1:
            sch.vectorize(j)
        elif kind == 2:
            sch.reorder(j, i)
            sch.vectorize(i)
        elif kind == 3:
            sch.unroll(i)
            sch.vectorize(sch.split(j, [None, 5])[1])
        out.append(sch)
    return out


@MANY
@pytest.mark.parametrize("stride", [2, 3, 4, 5])
@pytest.mark.parametrize(("lanes", "dtype"), [(64, "int32"), (2, "int32"), (4, "int64")])
def test_every_few_elements(lanes: int, dtype: str, stride: int, target: str) -> None:
    """Up to the last element of the memory, under a condition and not; of steps up to 4 whole
    vectors are read and nothing is gathered."""
    a = te.placeholder((3, (lanes - 1) * stride + 2), name="a", dtype=dtype)
    c = te.placeholder((3,), name="c", dtype="int32")
    out = te.compute(
        (3, lanes),
        lambda i, j: a[i, j * stride + 1] + te.if_then_else(c[i] > 0, a[2 - i, j * stride], 0),
        name="out",
    )
    sch = Schedule(te.create_prim_func([a, c, out]))
    sch.vectorize(sch.get_loops(sch.get_block("out"))[1])
    check(sch.func, target=target)
    assert ("masked.gather" in generate_ir(sch.func, Target(target)).ir) == (stride > 4)


@pytest.mark.parametrize("target", TARGETS)
def test_a_lane_that_does_not_exist_is_no_reason_to_read(target: str) -> None:
    """One element for all lanes, behind or before the memory: only the idle lane would have it."""
    a = te.placeholder((7,), name="a", dtype="float32")
    for read in (
        lambda i, j: te.if_then_else(i * 3 + j >= 3, a[i - 1], 0.0),
        lambda i, j: te.if_then_else(i * 3 + j >= 9, 0.0, a[i + 4]),
    ):
        out = te.compute((5, 3), lambda i, j, read=read: read(i, j) + 1.0, name="out")
        func = te.create_prim_func([a, out])
        sch = Schedule(func)
        sch.vectorize(sch.get_loops(sch.get_block("out"))[1])
        check(sch, func, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_gathers(target: str) -> None:
    """Indices that are read from memory, and indices read through indices."""
    a = te.placeholder((11, 19), name="a", dtype="float32")
    rows = te.placeholder((7,), name="rows", dtype="int64")
    cols = te.placeholder((19,), name="cols", dtype="int32")
    out = te.compute(
        (7, 19),
        lambda i, j: (
            a[te.clamp_index(rows[i], 11), te.wrap_index(cols[j], 19)]
            + a[te.clamp_index(rows[te.cast(cols[j], "int64") % 7], 11), j]
        ),
        name="out",
    )
    func = te.create_prim_func([a, rows, cols, out])
    rng = np.random.default_rng(0)
    inputs = [
        rng.normal(size=(11, 19)).astype("float32"),
        rng.integers(0, 11, 7),
        rng.integers(0, 19, 19).astype("int32"),
    ]
    for sch in forms_of(func, "out"):
        check(sch, func, inputs, target=target)


@pytest.mark.parametrize("target", TARGETS)
def test_guarded_gathers(target: str) -> None:
    """The index itself exists only where the condition holds, and the condition is data."""
    a = te.placeholder((11,), name="a", dtype="int32")
    index = te.placeholder((6, 15), name="index", dtype="int64")
    valid = te.placeholder((6, 15), name="valid", dtype="bool")
    shifted = te.compute(
        (9, 18),
        lambda i, j: te.if_then_else(
            te.all(i >= 3, j < 15), a[te.clamp_index(index[i - 3, j], 11)], te.const(-1, "int32")
        ),
        name="shifted",
    )
    chosen = te.compute(
        (6, 15),
        lambda i, j: te.if_then_else(
            te.all(valid[i, j], index[i, j] >= 0, index[i, j] < 11),
            a[index[i, j]],
            te.const(-1, "int32"),
        ),
        name="chosen",
    )
    rng = np.random.default_rng(0)
    at, ok = rng.integers(0, 11, (6, 15)), rng.integers(0, 2, (6, 15)).astype(bool)
    values = rng.integers(0, 100, 11).astype("int32")
    func = te.create_prim_func([a, index, shifted])
    for sch in forms_of(func, "shifted"):
        check(sch, func, [values, at], target=target)
    func = te.create_prim_func([a, index, valid, chosen])
    wild = np.where(ok, at, 1 << 40)
    for sch in forms_of(func, "chosen"):
        check(sch, func, [values, wild, ok], target=target)


def test_overhanging_rows_under_conditions() -> None:
    """A row that overhangs fulfils a condition which no real row does: it must still not read."""
    a = te.placeholder((4,), name="a", dtype="int32")
    flags = te.placeholder((5,), name="flags", dtype="bool")
    index = te.placeholder((5,), name="index", dtype="int64")
    k = te.reduce_axis((0, 4), name="k")
    zero = te.const(0, "int32")
    bodies: list[Callable[[Any], Any]] = [
        lambda i: te.if_then_else(i >= 6, a[i - 6 + k], zero),
        lambda i: te.if_then_else(i + k >= 9, a[k - 5], a[k]),
        lambda i: te.if_then_else(flags[i], a[index[i] % 4 + k - k], a[k]),
        lambda i: a[(index[i] + i * i * i) % 4],
        lambda i: a[te.if_then_else(i < 5, (i + k) % 4, te.const(99, "int64"))],
    ]
    rng = np.random.default_rng(0)
    inputs = [
        rng.integers(0, 9, 4).astype("int32"),
        np.array([True, False, True, True, False]),
        rng.integers(0, 50, 5),
    ]
    for body in bodies:
        out = te.compute((5,), lambda i, body=body: te.sum(body(i), axis=k), name="out")
        func = te.create_prim_func([a, flags, index, out])
        for rows, vector in ((4, False), (8, False), (4, True), (16, True)):
            sch = Schedule(func)
            i, r = sch.get_loops(sch.get_block("out"))
            i0, i1 = sch.split(i, [None, rows])
            sch.reorder(i0, r, i1)
            sch.vectorize(i1) if vector else sch.unroll(i1)
            check(sch, func, inputs)


# Convolutions


def conv(
    n: int,
    size: int,
    pad: int,
    stride: int,
    dilation: int,
    channels: int = 5,
    out_channels: int = 18,
) -> PrimFunc:
    """NHWC without batch; the padding is a condition inside the sum."""
    x = te.placeholder((n, n, channels), name="x", dtype="float32")
    w = te.placeholder((size, size, channels, out_channels), name="w", dtype="float32")
    out = (n + 2 * pad - dilation * (size - 1) - 1) // stride + 1
    r, s = te.reduce_axis((0, size), name="r"), te.reduce_axis((0, size), name="s")
    c = te.reduce_axis((0, channels), name="c")

    def point(i: Any, j: Any, o: Any) -> Any:
        y, z = i * stride + r * dilation - pad, j * stride + s * dilation - pad
        inside = te.all(y >= 0, y < n, z >= 0, z < n)
        value = te.if_then_else(inside, x[y, z, c], te.const(0, "float32"))
        return te.sum(value * w[r, s, c, o], axis=[r, s, c])

    y = te.compute((out, out, out_channels), point, name="conv")
    return te.create_prim_func([x, w, y])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("n", "size", "pad", "stride", "dilation"),
    [
        (7, 3, 1, 1, 1),
        (8, 3, 0, 2, 1),
        (9, 3, 2, 1, 2),
        (5, 5, 2, 1, 1),
        (6, 1, 0, 1, 1),
        (7, 2, 1, 3, 3),
    ],
)
def test_padded_convolutions(
    n: int, size: int, pad: int, stride: int, dilation: int, target: str
) -> None:
    """Register tiles of pixels by channels, with pixels and channels that overhang."""
    func = conv(n, size, pad, stride, dilation)
    for pixels, unroll in ((1, False), (4, False), (3, True)):
        sch = Schedule(func)
        y, x, o, r, s, c = sch.get_loops(sch.get_block("conv"))
        x0, x1 = sch.split(x, [None, pixels])
        o0, o1 = sch.split(o, [None, 32])
        sch.reorder(y, o0, x0, r, s, c, x1, o1)
        if unroll:
            sch.unroll(s)
        sch.unroll(x1)
        sch.vectorize(o1)
        sch.parallel(y)
        check(sch, func, target=target)


@pytest.mark.parametrize("rows", [1, 2, 3, 9])
def test_padding_computed_at_a_tile_of_rows(rows: int) -> None:
    """The library's convolution: each piece of rows pads its own input, with a halo."""
    func = te.create_prim_func(ops.conv2d(9, 11, 3, 20, 3, 1, 1))
    sch = Schedule(func)
    block = sch.get_block("conv2d")
    y, x, o, r, s, c = sch.get_loops(block)
    y0, y1 = sch.split(y, [None, rows])
    x0, x1 = sch.split(x, [None, 4])
    sch.reorder(y0, y1, x0, r, s, c, x1, o)
    pad = sch.get_block("pad")
    sch.compute_at(pad, y0)
    sch.vectorize(sch.get_loops(pad)[-1])
    sch.unroll(x1)
    sch.vectorize(o)
    sch.parallel(y0)
    check(sch, func)


def test_parallel_loops_inside_serial_ones() -> None:
    """Regions that begin many times, with outer counters and outer buffers handed to them."""
    func = te.create_prim_func(ops.matmul(9, 12, 33, dtype="int32"))
    sch = Schedule(func)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    k0, k1 = sch.split(k, [None, 5])
    j0, j1 = sch.split(j, [None, 16])
    sch.reorder(k0, j0, i, k1, j1)
    panel = sch.cache_read(block, "B", "global")
    sch.compute_at(panel, k0)
    sch.parallel(sch.get_loops(panel)[-2])
    sch.vectorize(j1)
    sch.parallel(i)
    check(sch, func, threads=3)


def test_loops_of_one_iteration() -> None:
    func = te.create_prim_func(ops.matmul(1, 1, 1))
    sch = Schedule(func)
    i, j, k = sch.get_loops(sch.get_block("C"))
    sch.parallel(i)
    sch.unroll(k)
    sch.vectorize(j)
    assert not list(loops_of(lower(sch.func)))
    check(sch, func)


@pytest.mark.parametrize("target", TARGETS)
def test_rank_zero(target: str) -> None:
    """Tensors of one element, reduced from everything and broadcast to everything."""
    a = te.placeholder((5, 19), name="a", dtype="float64")
    c = te.placeholder((), name="c", dtype="float64")
    r, s = te.reduce_axis((0, 5), name="r"), te.reduce_axis((0, 19), name="s")
    total = te.compute((), lambda: te.sum(a[r, s], axis=[r, s]), name="total")
    more = te.compute((), lambda: total[()] * c[()], name="more")
    out = te.compute((5, 19), lambda i, j: a[i, j] + more[()], name="out")
    func = te.create_prim_func([a, c, total, out])
    check(func, target=target)
    sch = Schedule(func)
    sch.vectorize(sch.get_loops(sch.get_block("total"))[1])
    sch.vectorize(sch.get_loops(sch.get_block("out"))[1])
    check(sch, func, target=target)


def test_several_outputs_and_unused_inputs() -> None:
    a = te.placeholder((4, 18), name="a", dtype="int16")
    unused = te.placeholder((3,), name="unused", dtype="float64")
    plus = te.compute((4, 18), lambda i, j: a[i, j] + 1, name="plus")
    odd = te.compute((4, 18), lambda i, j: plus[i, j] % 2 == 1, name="odd")
    wide = te.compute((18,), lambda j: te.cast(plus[0, j], "float32"), name="wide")
    func = te.create_prim_func([a, unused, plus, odd, wide])
    check(func)
    sch = Schedule(func)
    for name in ("plus", "odd", "wide"):
        sch.vectorize(sch.get_loops(sch.get_block(name))[-1])
    sch.parallel(sch.get_loops(sch.get_block("plus"))[0])
    check(sch, func)


def test_fused_loops() -> None:
    """Digits of a fused counter in bindings, at each position and with each kind."""
    a = te.placeholder((5, 7, 9), name="a", dtype="int32")
    out = te.compute((5, 7, 9), lambda i, j, k: a[i, j, 8 - k] - a[4 - i, j, k], name="out")
    func = te.create_prim_func([a, out])
    for kind in ("serial", "parallel", "vectorize", "unroll"):
        for part in (slice(0, 2), slice(1, 3), slice(0, 3)):
            sch = Schedule(func)
            loop = sch.fuse(*sch.get_loops(sch.get_block("out"))[part])
            if kind in ("vectorize", "unroll"):
                _, loop = sch.split(loop, [None, 10])
            if kind != "serial" and not (kind == "vectorize" and part.stop == 2):
                getattr(sch, kind)(loop)
            check(sch, func)


@pytest.mark.parametrize("shape", [(3, 64), (4, 61), (1, 16), (5, 48)])
def test_streaming_stores(shape: tuple[int, int]) -> None:
    """Stores past the caches: only in whole aligned vectors; anything else falls back."""
    a = te.placeholder(shape, name="a", dtype="float32")
    out = te.compute(shape, lambda i, j: a[i, j] + 1, name="out")
    func = te.create_prim_func([a, out])
    for parallel in (False, True):
        sch = Schedule(func)
        block = sch.get_block("out")
        i, j = sch.get_loops(block)
        sch.vectorize(j)
        if parallel:
            sch.parallel(i)
        sch.annotate(block, "streaming", True)
        check(sch, func)
        # Arrays on the bound of a page are aligned to vectors, those at its end need not be.
        text = generate_ir(sch.func, Target("llvm")).ir
        assert ("!nontemporal" in text) == (shape[1] % 16 == 0)


def test_divisors_in_lanes_that_nobody_wrote() -> None:
    """A local copy with a tail: the division runs over all lanes of it, and must not spoil any."""
    a = te.placeholder((5, 21), name="a", dtype="int32")
    for op in (te.floordiv, te.floormod):
        out = te.compute((5, 21), lambda i, j, op=op: op(100 + a[4 - i, j], a[i, j]), name="out")
        func = te.create_prim_func([a, out])
        sch = Schedule(func)
        block = sch.get_block("out")
        i, j = sch.get_loops(block)
        j0, j1 = sch.split(j, [None, 16])
        sch.reorder(j0, i, j1)
        copy = sch.cache_read(block, "a", "local", [[1, 16], [0], [1, 1, 16]])
        sch.compute_at(copy, j0)
        sch.vectorize(j1)
        sch.unroll(i)
        check(sch, func)


def test_populations_are_refused() -> None:
    func = te.create_prim_func(ops.matmul(4, 4, 4))
    sch = Schedule(func, decisions={"f": np.array([1, 2])})
    sch.split(sch.get_loops(sch.get_block("C"))[0], [None, Decision("f")])
    with pytest.raises(CodegenError, match="a population cannot be lowered"):
        lower(sch.func)


def test_thread_bindings_are_refused() -> None:
    func = te.create_prim_func(ops.matmul(4, 4, 4))
    sch = Schedule(func)
    sch.bind(sch.get_loops(sch.get_block("C"))[0], "blockIdx.x")
    with pytest.raises(CodegenError, match=r"loop i is bound to blockIdx.x, which a CPU does not"):
        generate_ir(sch.func, Target("llvm"))
