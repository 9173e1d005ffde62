"""Convolutions of few channels by rows of windows: NumPy's sums, whatever is around a window."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from autosched import graph
from autosched.graph import op, passes
from autosched.graph.lowering import lower as lower_group
from autosched.graph.ops.alternatives import VNNI
from autosched.graph.ops.conv import Window
from autosched.graph.ops.window_rows import Row, row_of, row_of_vectors
from autosched.graph.strategies import implementations
from autosched.lowering.lower import lower
from autosched.sketch.default import default_schedule
from autosched.target import Target
from autosched.tir import dtypes
from autosched.tir.interp import run as interpret

HOST = Target("llvm -num-cores=2")
WITH = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids -num-cores=2")
VECTORS = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=icelake-server -num-cores=2")
NAME = "conv_sums.rows"
ORDER = (0, 1, 2, 3)


class Case(NamedTuple):
    """Channels, filters and window, and the row in bytes and in bfloat16, on tiles, and in bytes on
    vectors."""

    depth: int
    filters: int
    window: tuple[int, ...]
    of_bytes: Row | None
    of_bfloat16: Row | None
    size: tuple[int, ...] = (7, 8)
    strides: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (1, 1, 1, 1)
    images: int = 1
    of_vectors: Row | None = None


CASES = (
    Case(3, 40, (7, 7), Row(7, 3, 64), Row(7, 4, 28), (14, 15), (2, 2), pads=(3, 3, 3, 3),
         of_vectors=Row(7, 3, 24)),
    Case(16, 8, (3, 3), Row(3, 16, 64), Row(3, 16, 48), images=2),
    Case(8, 70, (2, 3), Row(3, 8, 64), Row(3, 8, 24), dilations=(2, 1), pads=(0, 2, 3, 1)),
    Case(1, 6, (5, 5), Row(5, 1, 64), Row(5, 2, 10), (2, 4), pads=(2, 2, 2, 2)),
    Case(4, 64, (4, 4), None, Row(4, 4, 16), (8, 16), (4, 4), pads=(0, 0, 0, 0)),
    Case(5, 58, (1, 7), Row(7, 5, 64), Row(7, 8, 56), (1, 8), pads=(0, 3, 0, 3)),
    Case(12, 80, (5,), Row(5, 12, 64), Row(5, 12, 60), (8,), (1,), (1,), (2, 2)),
    Case(6, 17, (2, 3, 4), Row(4, 6, 64), Row(4, 6, 24), (3, 4, 5), (1, 1, 1), (1, 1, 1), (1,) * 6),
    Case(32, 8, (3, 3), Row(3, 32, 128), None),
    Case(3, 96, (8, 8), None, Row(8, 3, 24), (32, 32), (8, 8), pads=(0, 0, 0, 0),
         of_vectors=Row(8, 3, 24)),
    Case(3, 64, (3, 3), None, None, of_vectors=Row(3, 3, 12)),
    Case(2, 20, (3, 3), None, None, (5, 6), dilations=(2, 1), images=2, of_vectors=Row(3, 2, 8)),
    Case(3, 18, (2, 5), None, Row(5, 4, 20), (4, 9), (1, 2), pads=(1, 3, 0, 2),
         of_vectors=Row(5, 3, 16)),
    Case(2, 5, (3,), None, None, (8,), (1,), (1,), (1, 1), of_vectors=Row(3, 2, 8)),
    Case(3, 64, (3, 3), None, None, dilations=(1, 2), pads=(2, 2, 2, 2)),
    Case(8, 64, (3, 3), None, None, dilations=(1, 2), pads=(1, 2, 1, 2)),
    Case(8, 64, (3, 3), None, None, size=(17, 19)),
    Case(48, 64, (3, 3), None, None),
    Case(3, 64, (7, 7), None, None, (20, 1), pads=(3, 3, 3, 3)),
    Case(12, 24, (2, 2), None, None, strides=(2, 2), pads=(0, 0, 0, 0)),
)  # fmt: skip
"""Strides, outer dilations, uneven pads, one and three axes, odd channels; and what stays apart:
rows of few terms, inner dilations, results no tile divides, no fewer products, one column, and
windows that share little of the copy."""
TAKEN = [
    pytest.param(case, dtype, id=f"{dtype}-{n}")
    for n, case in enumerate(CASES)
    for dtype, row in (("uint8", case.of_bytes), ("bfloat16", case.of_bfloat16))
    if row is not None
]
FEW = [pytest.param(*p.values, WITH, id=p.id) for p in TAKEN if p.values[0] in CASES[3:7]]
FEW += [
    pytest.param(case, "uint8", VECTORS, id=f"vectors-{n}")
    for n, case in enumerate(CASES)
    if case.of_vectors is not None and case.filters < 24
]
"""Of so few products that the interpreter takes no time."""


def window_of(case: Case) -> Window:
    return Window(
        case.size,
        kernel_shape=case.window,
        strides=case.strides,
        dilations=case.dilations,
        pads=case.pads,
    )


def sums(case: Case, x: np.ndarray, w: np.ndarray, fill: Any) -> np.ndarray:
    """In int64 or float64."""
    rank = len(case.size)
    around = ((0, 0), (0, 0), *zip(case.pads[:rank], case.pads[rank:], strict=True))
    wide = np.pad(x, around, constant_values=fill)
    out = [int(n) for n in window_of(case).out]
    made = np.zeros((case.images, case.filters, *out), x.dtype)
    for tap in np.ndindex(*case.window):
        moved = tuple(
            slice(a * d, a * d + (n - 1) * s + 1, s)
            for a, d, n, s in zip(tap, case.dilations, out, case.strides, strict=True)
        )
        part, weight = wide[(slice(None), slice(None), *moved)], w[(slice(None), slice(None), *tap)]
        made += np.einsum("nc...,fc->nf...", part, weight)
    return made


def given(case: Case, dtype: str):
    """A module of the sums, with a number added to each; its input, its weight as it is stored, and
    what is wanted."""
    rng = np.random.default_rng(case.depth)
    shape = (case.images, case.depth, *case.size)
    weights = (case.filters, case.depth, *case.window)
    windows = {"strides": case.strides, "dilations": case.dilations, "pads": case.pads}
    if dtype == "bfloat16":
        x, w = (_rounded(rng.standard_normal(n)) for n in (shape, weights))
        var = graph.var("x", shape)
        made = op.add(op.conv(var, graph.const(w), **windows), graph.const(np.float32(1)))
        module = passes.bfloat16(graph.module(main=graph.function([var], made)))
        return module, x, dtypes.from_float32(w), sums(case, x, w, 0) + 1
    x = rng.integers(0, 256, shape).astype("u1")
    w = rng.integers(-128, 128, weights).astype("i1")
    fill = np.array(rng.integers(1, 100), "u1")
    var = graph.var("x", shape, dtype)
    made = op.autosched_conv_sums(var, graph.const(w), graph.const(fill), **windows)
    made = op.add(made, graph.const(np.int32(1)))
    want = sums(case, x.astype("i8"), w.astype("i8"), fill) + 1
    return graph.module(main=graph.function([var], made)), x, w, want


def _rounded(x: np.ndarray) -> np.ndarray:
    return dtypes.to_float32(dtypes.from_float32(x.astype("f4")))


def ways(module, target: Target):
    """The primitive function of the sums, and its implementations by name."""
    ready = passes.layout(passes.fuse(module))
    (function,) = [f for f in ready.graphs.values() if f.is_primitive and "conv_sums" in f.script()]
    return function, {i.name: i for i in implementations(function, target)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_computed_by_rows(case: Case) -> None:
    window = window_of(case)
    assert row_of(case.depth, case.filters, window, 64, 4, finite=True) == case.of_bytes
    assert row_of(case.depth, case.filters, window, 32, 2, finite=False) == case.of_bfloat16
    for dtype, row in (("uint8", case.of_bytes), ("bfloat16", case.of_bfloat16)):
        module = given(case, dtype)[0]
        assert (NAME in ways(module, WITH)[1]) == (row is not None)
        by_vectors = case.of_vectors if dtype == "uint8" else None
        assert (NAME in ways(module, VECTORS)[1]) == (by_vectors is not None)
    assert row_of_vectors(case.depth, window, 4) == case.of_vectors


@pytest.mark.parametrize(("case", "dtype", "target"), FEW)
def test_scheduled_programs_are_exact(case: Case, dtype: str, target: Target) -> None:
    """The program for a processor that need not be here, interpreted."""
    module, x, w, want = given(case, dtype)
    function, found = ways(module, target)
    schedule = default_schedule(lower_group(function, found[NAME]), target)
    layouts = [
        v.type.layout or tuple(range(len(v.type.shape)))
        for v in (function.params[0], *function.body.results)
    ]
    out = np.full([want.shape[n] for n in layouts[1]], -77, "f4" if dtype == "bfloat16" else "i4")
    arrays = [np.ascontiguousarray(x.transpose(layouts[0])), found[NAME].prepare[1](w), out]
    interpret(lower(schedule.func), arrays)
    np.testing.assert_allclose(out, want.transpose(layouts[1]), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiled_programs_are_exact(case: Case, dtype: str) -> None:
    """On this machine, by whatever is taken here."""
    module, x, _, want = given(case, dtype)
    model = graph.build(module, target=HOST, threads=1)
    feature = "amx-bf16" if dtype == "bfloat16" else "amx-int8"
    row = case.of_bfloat16 if dtype == "bfloat16" else case.of_bytes
    wanted = row is not None and feature in HOST.features
    if dtype == "uint8" and "amx-int8" not in HOST.features and VNNI & HOST.features:
        wanted = case.of_vectors is not None
    taken = any(k.implementation.startswith(NAME) for k in model.kernels)
    assert taken == wanted
    np.testing.assert_allclose(model(x)[0], want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("case", [c for c in CASES if c.of_bfloat16], ids=str)
def test_what_is_not_finite_stays_in_its_windows(case: Case) -> None:
    """A row does not read the pixels that follow it."""
    module, x, _, _ = given(case, "bfloat16")
    model = graph.build(module, target=HOST, threads=1)
    before = model(x)[0]
    x[..., -1, :] = np.inf
    changed = np.zeros_like(x)
    changed[..., -1, :] = 1
    weight = np.ones((case.filters, case.depth, *case.window), "f4")
    touched = sums(case, changed, weight, 0) > 0
    after = model(x)[0]
    np.testing.assert_array_equal(after[~touched], before[~touched])
    assert not np.isfinite(after[touched]).any()
