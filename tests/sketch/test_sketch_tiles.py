"""Sketches that end in products of tile registers: exact for bytes of any size."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from test_sketch_tensorize import apply, check_product, convolution, numbers, product_of

from autosched import graph, te
from autosched.codegen.build import build_artifact
from autosched.codegen.llvm.listing import listing
from autosched.graph import op, passes
from autosched.graph.kernels import select, task_of
from autosched.lowering.lower import lower
from autosched.runtime.function import Function
from autosched.script import parse_func
from autosched.search.evaluate import legal
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.tir.interp import run as interpret

HOST = Target("llvm -num-cores=2")
SERVER = "-mtriple=x86_64-unknown-linux-gnu -num-cores=2"
WITH = Target(f"llvm -mcpu=sapphirerapids {SERVER}")
WITHOUT = Target(f"llvm -mcpu=sapphirerapids -mattr=-amx-bf16,-amx-int8,-amx-tile {SERVER}")
LONG = pytest.mark.long
KINDS = tuple(product(("uint8", "int8"), repeat=2))
runs = pytest.mark.skipif("amx-int8" not in HOST.features, reason="the processor has no AMX")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def candidates(space, count: int) -> list:
    """Programs of the variants with tile registers: defaults first, then legal ones, drawn."""
    found = [v for v in space.variants if "_amx" in v.name]
    defaults = []
    for v in found[:1]:
        values = {n: x for s in v.decisions for n, x in zip(s.names, s.default, strict=True)}
        defaults.append(v.trace.bind(values).apply(space.func).func)
    if count == 1:
        return defaults
    drawn = space.sample(np.random.default_rng(1), 256)
    drawn = drawn.take(drawn.unique())
    drawn = drawn.take(np.flatnonzero(legal(space, drawn)))
    rows = [n for n, v in enumerate(drawn.variant) if "_amx" in space.variants[v].name]
    return defaults + [apply(space, drawn, n) for n in rows[: count - 1]]


def check_sizes(sizes, rng, count: int = 1) -> None:
    """Products of each pair of dtypes, with and without a consumer in turns, where tiles are a
    choice at all."""
    checked = 0
    for n, (size, kind) in enumerate(product(sizes, KINDS)):
        func = product_of(*kind, *size, fused=n % 3 > 0)
        for made in candidates(generate_space(func, HOST), count):
            check_product(made, func, rng)
            checked += 1
    assert checked >= len(sizes) * len(KINDS) // 2


@runs
def test_products_of_odd_sizes(rng):
    check_sizes([(37, 45, 59)], rng)


@runs
@LONG
def test_products_of_any_size(rng):
    """Sizes from 1 to 70 in each dimension, drawn, and those around a tile's."""
    sizes = [(16, 16, 64), (17, 15, 65), (2, 1, 70), (70, 70, 63)]
    sizes += [tuple(map(int, s)) for s in rng.integers(1, 71, (20, 3))]
    check_sizes(sizes, rng)


@runs
@LONG
def test_random_candidates(rng):
    check_sizes([(37, 45, 59), (64, 70, 130)], rng, count=8)


@runs
@pytest.mark.parametrize(
    ("sizes", "attrs"),
    [
        ((14, 33, 17, 3), {"pads": (1, 1, 1, 1), "strides": (2, 1)}),
        pytest.param((14, 64, 40, 1), {"strides": (2, 2)}, marks=LONG),
        pytest.param((7, 60, 64, 3), {"pads": (1, 1, 1, 1)}, marks=LONG),
        pytest.param((28, 48, 16, 2), {"dilations": (3, 2)}, marks=LONG),
    ],
)
def test_convolutions(sizes, attrs, rng):
    module, func = convolution(*sizes, **attrs)
    assert "_amx" in default_schedule(func, HOST).mod.script()
    x = numbers(rng, "uint8", (1, sizes[1], sizes[0], sizes[0]))
    (found,) = graph.build(module)(x)
    np.testing.assert_array_equal(found, graph.evaluate(module, "main", x))


@runs
def test_the_printed_program_is_the_program(rng):
    func = product_of("uint8", "int8", 32, 32, 64)
    text = default_schedule(func, HOST).func.script()
    assert "dot_16x16x64_u8s8s32_amx" in text
    check_product(parse_func(text), func, rng)


def test_code_for_a_server_that_is_not_here(rng):
    """Code is read, and the program interpreted; a target without tile registers has none."""
    func = product_of("uint8", "int8", 64, 64, 70)
    schedule = default_schedule(func, WITH)
    lines = [line.text for line in listing(schedule.func, WITH).assembly]
    assert sum("tdpbusd" in line for line in lines) == 4
    assert sum("tileloadd" in line for line in lines) == 4  # accumulators start as zeros
    assert sum("tilestored" in line for line in lines) == 4  # and none is spilled
    assert any("ldtilecfg" in line for line in lines)
    assert any("tilerelease" in line for line in lines)
    assert "amx" not in default_schedule(func, WITHOUT).mod.script()
    small = default_schedule(product_of("uint8", "int8", 4, 3, 70), WITH)
    arrays = [numbers(rng, d, s) for d, s in (("uint8", (4, 70)), ("int8", (70, 3)))]
    arrays += [np.ones(3, "i4"), np.zeros((4, 3), "i4")]
    interpret(lower(small.func), arrays)
    want = arrays[0].astype("i8") @ arrays[1].astype("i8") + 1
    np.testing.assert_array_equal(arrays[-1], want)


def narrow(size: int, ci: int, co: int, window: int, group: int = 1, target: Target = WITH):
    """What computes a convolution in bfloat16 on a target, and its program."""
    w = graph.const(np.ones((co, ci // group, window, window), "f4"))
    x = graph.var("x", (1, ci, size, size))
    module = graph.module(main=graph.function([x], op.relu(op.conv(x, w, group=group))))
    ready = passes.layout(passes.fuse(passes.bfloat16(module)))
    groups = [f for f in ready.graphs.values() if f.is_primitive]
    (found,) = [f for f in groups if "conv_sums" in f.script()]
    chosen = select(found, target)
    return chosen.implementation.name, chosen.func.script()


def test_groups_whose_columns_are_whole_tiles():
    assert "_amx" in narrow(9, 64, 128, 3, group=2)[1]


def grouped_rows(rows: int):
    """Two products, one below the other in the result, and what follows."""
    a = te.placeholder((2, rows, 64), name="A", dtype="uint8")
    b = te.placeholder((2, 64, 16), name="B", dtype="int8")
    k = te.reduce_axis((0, 64), name="k")

    def value(i, j):
        x, y = a[i // rows, i % rows, k], b[i // rows, k, j]
        return te.sum(x.astype("int32") * y.astype("int32"), axis=k)

    c = te.compute((2 * rows, 16), value, name="C")
    return te.create_prim_func([a, b, te.compute(c.shape, lambda i, j: c[i, j] + 1, name="D")])


@pytest.mark.parametrize(("rows", "tiled"), [(72, True), (18, True), (17, False)])
def test_rows_of_groups(rows, tiled, rng):
    """Rows of one group do not run on into those of the next."""
    func = grouped_rows(rows)
    assert any("_amx" in v.name for v in generate_space(func, WITH).variants) == tiled
    a, b = numbers(rng, "uint8", (2, rows, 64)), numbers(rng, "int8", (2, 64, 16))
    out = np.zeros((2 * rows, 16), "i4")
    Function(build_artifact(default_schedule(func, HOST).func, HOST))(a, b, out)
    np.testing.assert_array_equal(out.reshape(2, rows, 16), a.astype("i4") @ b.astype("i4") + 1)


def test_panels_of_groups_leave_room_for_rows():
    """Three panels a group and four rows would be twelve tiles of eight."""
    w, x = np.ones((96, 64, 3, 3), "f4"), graph.var("x", (1, 128, 18, 18))
    module = graph.module(main=graph.function([x], op.relu(op.conv(x, graph.const(w), group=2))))
    ready = passes.layout(passes.fuse(passes.bfloat16(module)))
    (found,) = [f for f in ready.graphs.values() if f.is_primitive and "sums" in f.script()]
    assert select(found, WITH).func.script().count("T.unroll(3)") == 1
    assert "T.unroll(4)" not in select(found, WITH).func.script()


@pytest.mark.parametrize(("columns", "place"), [(768, "root"), (128, "thread")])
def test_what_many_tiles_read_is_rounded_once(columns, place):
    x, w = graph.var("x", (128, 512)), graph.const(np.ones((512, columns), "f4"))
    module = graph.module(main=graph.function([x], op.relu(op.matmul(x, w))))
    ready = passes.layout(passes.fuse(passes.bfloat16(module)))
    (found,) = [f for f in ready.graphs.values() if f.is_primitive]
    first = generate_space(task_of(found), WITH).variants[0].name
    assert "_amx" in first
    assert first.endswith(f"cast.{place}")


def test_few_channels_are_products_of_float32():
    """Three terms would leave most of a tile empty, and products of vectors are slow there."""
    assert narrow(9, 3, 64, 3)[0] == "conv_sums.float"
    assert narrow(9, 3, 64, 3, target=WITHOUT)[0] == "conv_sums.direct"


@pytest.mark.parametrize(
    ("depth", "tile"), [(40, "16x16x40"), (48, "16x16x48"), (96, "16x16x48"), (80, "16x16x40"),
                        (144, "16x16x48"), (208, "16x16x52"), (100, "16x16x64"), (68, "16x16x64")],
)  # fmt: skip
def test_terms_are_equal_parts_where_they_can_be(depth, tile, rng):
    """Then none are added, and an operand is read as it lies."""
    func = product_of("uint8", "int8", 16, 16, depth)
    assert f"dot_{tile}_u8s8s32_amx" in default_schedule(func, WITH).mod.script()
    if "amx-int8" in HOST.features:
        check_product(default_schedule(func, HOST).func, func, rng)


def test_rows_of_pixels_share_a_panel_of_many_weights():
    """Seven rows of seven pixels read 4 MB of weights twice, not seven times."""
    _, func = convolution(7, 512, 512, 3, pads=(1, 1, 1, 1))
    (made,) = [v for v in generate_space(func, WITH).variants if "amx+pad.thread" in v.name]
    tiles = {s.axis: s.default for s in made.decisions}
    assert (tiles["vy"], tiles["vc"]) == ((1, 2, 4), (1, 4, 1))


@pytest.mark.parametrize("sizes", [(13, 128, 1000, 1), (13, 64, 72, 3)])
def test_tiles_that_hang_over_are_compiled(sizes):
    """LLVM's O3 makes of the conditions what it crashes on, or runs out of tile registers by."""
    _, func = convolution(*sizes)
    schedule = default_schedule(func, WITH)
    assert "_amx" in schedule.mod.script()
    assert build_artifact(schedule.func, WITH, "full").code


def test_short_sums_stay_with_vectors():
    """Three terms would leave 61 of 64 empty."""
    assert "_vnni" in default_schedule(product_of("uint8", "int8", 64, 64, 3), WITH).mod.script()


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
def test_windows_are_terms_where_nothing_else_is(dtype):
    """Channels first: four taps lie side by side, but the 64 channels fill the tiles."""
    x = te.placeholder((1, 64, 31, 31), name="x", dtype=dtype)
    w = te.placeholder((64, 4, 4, 16), name="w", dtype="int8" if dtype == "uint8" else dtype)
    c, ry, rx = (te.reduce_axis((0, n), name=a) for n, a in ((64, "c"), (4, "ry"), (4, "rx")))
    total = "int32" if dtype == "uint8" else "float32"

    def value(y, z, f):
        data, weight = x[0, c, y + ry, z + rx], w[c, ry, rx, f]
        return te.sum(te.cast(data, total) * te.cast(weight, total), axis=[c, ry, rx])

    func = te.create_prim_func([x, w, te.compute((28, 28, 16), value, name="y")])
    terms = 64 if dtype == "uint8" else 32
    assert f"dot_14x16x{terms}_" in generate_space(func, WITH).variants[0].name
