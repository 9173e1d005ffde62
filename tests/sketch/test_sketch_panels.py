"""Default tiles of products of bytes, and what a quantised convolution stores beside its result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from test_sketch_tensorize import numbers, product_of

from autosched import graph
from autosched.graph import op, passes
from autosched.graph.lowering import lower as lower_group
from autosched.lowering.lower import lower
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.tir.interp import run as interpret
from autosched.tir.nodes import Buffer, PrimFunc, sites

TARGET = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4 -num-cores=2")
"""Products of 16 columns by four terms."""


def panels_of(rows: int, columns: int) -> int:
    """Panels of the default register tile of a product."""
    space = generate_space(product_of("uint8", "int8", rows, columns, 64), TARGET)
    (variant,) = [v for v in space.variants if v.name.startswith("C.dot_")]
    (spec,) = [s for s in variant.decisions if s.axis == "vj"]
    return int(spec.default[-1])


@pytest.mark.parametrize(
    ("columns", "panels"),
    [(1000, 3), (1024, 2), (1008, 3), (130, 3), (100, 1), (300, 1), (96, 2), (80, 1), (17, 2),
     (16, 1)],
)  # fmt: skip
def test_panels_of_a_tile_divide_the_columns(columns: int, panels: int) -> None:
    """Of ⌈columns / 16⌉ panels two are a tile, or three, or one, so that none hangs over."""
    assert panels_of(64, columns) == panels


@pytest.mark.parametrize(
    ("columns", "panels"), [(1000, 7), (1008, 7), (1024, 8), (80, 5), (100, 7), (160, 5), (300, 8)]
)
def test_panels_of_one_row(columns: int, panels: int) -> None:
    """Eight are a tile, or as many more than half of that as divide the columns."""
    assert panels_of(1, columns) == panels


def test_a_product_of_1000_columns_is_exact() -> None:
    """Interpreted: tiles of three panels, the last of them not full."""
    func = product_of("uint8", "int8", 8, 1000, 8)
    schedule = default_schedule(func, TARGET)
    assert "_u8s8s32_" in schedule.mod.script()
    rng = np.random.default_rng(0)
    a, b = numbers(rng, "uint8", (8, 8)), numbers(rng, "int8", (8, 1000))
    bias = rng.integers(-99, 99, 1000).astype("i4")
    out = np.zeros((8, 1000), "i4")
    interpret(lower(schedule.func), [a, b, bias, out])
    np.testing.assert_array_equal(out, a.astype("i8") @ b.astype("i8") + bias)


def first(kind: str, channels: int):
    """Two quantised convolutions; the first one's image is quantised, or is of bytes."""
    rng = np.random.default_rng(0)
    x = graph.var("x", (1, channels, 14, 11), kind)
    by = graph.const(np.float32(0.02)), graph.const(np.uint8(120))
    value = op.dequantize_linear(op.quantize_linear(x, *by) if kind == "float32" else x, *by)
    for depth in (channels, 16):
        w = graph.const(rng.integers(-128, 128, (16, depth, 3, 3)).astype("i1"))
        scales = graph.const(np.float32(0.01)), graph.const(np.int8(0))
        made = op.conv(value, op.dequantize_linear(w, *scales), pads=(1,) * 4, strides=(2, 2))
        value = op.dequantize_linear(op.quantize_linear(op.relu(made), *by), *by)
    return graph.module(main=graph.function([x], op.quantize_linear(value, *by)))


def stored(func: PrimFunc) -> list[Buffer]:
    """What a function writes that is no parameter."""
    params = {id(p) for p in func.params}
    written = {id(a.buffer): a.buffer for s in sites(func) for a in s.block.writes}
    return [b for n, b in written.items() if n not in params]


def allocated(node) -> Iterator[Buffer]:
    """Buffers of a lowered function."""
    yield from getattr(node, "allocs", ())
    for child in getattr(node, "body", ()) or ():
        if hasattr(child, "body"):
            yield from allocated(child)


@pytest.mark.parametrize("channels", [2, 3])
@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_a_first_convolution_stores_one_copy_of_its_image(kind: str, channels: int) -> None:
    """It is one kernel, which pads the image and its channels in one copy, from what it is given;
    beside it stand the packed weight and the sums of a tile."""
    ready = passes.optimise(first(kind, channels))
    assert len(ready["main"].body.bindings) == 2
    group = next(f for f in ready.graphs.values() if f.is_primitive)
    assert group.params[0].type.dtype == kind
    schedule = default_schedule(lower_group(group), TARGET)
    assert "_u8s8s32_" in schedule.mod.script()
    copies = stored(schedule.func)
    assert sorted(b.dtype for b in copies) == ["int32", "int8", "uint8"]
    (image,) = [b for b in copies if b.dtype == "uint8"]
    assert tuple(map(int, image.shape)) == (1, 15, 13, 4)
    found = list(allocated(lower(schedule.func)))
    assert sorted(b.dtype for b in found) == ["int32", "int8", "uint8"]


@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_a_first_convolution_is_exact(kind: str) -> None:
    """Interpreted, for a target that need not be here."""
    module = first(kind, 3)
    ready = passes.optimise(module)
    (call, _) = (b.value for b in ready["main"].body.bindings)
    group = ready[call.callee.name]
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, (1, 3, 14, 11)).astype("u1")
    if kind == "float32":
        x = ((x.astype("f4") - 120) * 0.02 + rng.uniform(-0.009, 0.009, x.shape)).astype("f4")
    arrays = [x, *(a.array for a in call.args[1:])]
    for n, p in enumerate(group.params):
        if p.type.layout:
            arrays[n] = np.ascontiguousarray(arrays[n].transpose(p.type.layout))
    want = graph.evaluate(graph.module(main=group.renamed("main")), "main", x,
                          *(a.array for a in call.args[1:]))  # fmt: skip
    (result,) = group.body.results
    layout = result.type.layout or tuple(range(4))
    out = np.zeros([want.shape[n] for n in layout], want.dtype)
    interpret(lower(default_schedule(lower_group(group), TARGET).func), [*arrays, out])
    steps = np.abs(out.astype("i4") - want.transpose(layout).astype("i4"))
    assert steps.max() <= 1
    assert (steps > 0).mean() < 0.02
    assert len(np.unique(want)) > 20
