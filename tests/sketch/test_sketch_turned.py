"""Copies that turn rows into columns: squares stay whole where loops are parallel."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.codegen.build import generate_ir
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_states
from autosched.tir.nodes import PrimFunc

TARGET = at.Target("llvm -num-cores=2")


def channels_first(shape: tuple[int, ...], dtype: str) -> PrimFunc:
    """N, H, W, C to N, C, H, W."""
    n, h, w, c = shape
    x = te.placeholder(shape, name="x", dtype=dtype)
    return te.create_prim_func([x, te.compute((n, c, h, w), lambda b, k, y, z: x[b, y, z, k])])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
@pytest.mark.parametrize(
    ("shape", "piece"),
    [
        ((1, 56, 56, 256), 64),
        ((2, 20, 21, 96), 48),
        ((1, 40, 40, 85), 17),
        ((1, 60, 60, 97), 97),  # a prime: all of it
    ],
)
def test_a_square_is_copied_by_one_thread(shape: tuple[int, ...], piece: int, dtype: str) -> None:
    func = channels_first(shape, dtype)
    scheduled = default_schedule(func, TARGET)
    loops = [scheduled.get(x) for x in scheduled.get_loops(scheduled.get_blocks()[0])]
    serial = [int(x.extent) for x in loops if x.kind == "serial" and int(x.extent) == piece]
    assert serial, scheduled.func.script()
    assert any(x.kind == "parallel" and x.extent != 1 for x in loops)
    x = np.random.default_rng(0).integers(0, 99, shape).astype(dtype)
    out = np.zeros((shape[0], shape[3], *shape[1:3]), dtype)
    at.build(scheduled, target=TARGET)(x, out)
    np.testing.assert_array_equal(out, x.transpose(0, 3, 1, 2))


def test_lanes_change_places_with_threads_as_without() -> None:
    """In place of a gather of single elements."""
    func = channels_first((1, 56, 56, 256), "float32")
    for cores in (1, 2):
        target = at.Target(f"llvm -num-cores={cores} -mcpu=haswell")
        assert "shufflevector" in generate_ir(default_schedule(func, target).func, target).ir


@pytest.mark.parametrize(
    ("shape", "perm", "cores"),
    [((4096, 64), (1, 0), 16), ((512, 4099), (1, 0), 4), ((1, 3000, 64), (0, 2, 1), 8)],
)
def test_cores_have_work(shape: tuple[int, ...], perm: tuple[int, ...], cores: int) -> None:
    """Where all rows are few pieces of the turned axis, vectors are shared out too."""
    x = te.placeholder(shape, name="x")
    turned = tuple(shape[p] for p in perm)
    y = te.compute(turned, lambda *i: x[tuple(i[perm.index(n)] for n in range(len(perm)))])
    func, target = te.create_prim_func([x, y]), at.Target(f"llvm -num-cores={cores}")
    scheduled = default_schedule(func, target)
    loops = [scheduled.get(v) for v in scheduled.get_loops(scheduled.get_blocks()[0])]
    assert np.prod([int(v.extent) for v in loops if v.kind == "parallel"]) >= cores
    given = np.random.default_rng(0).standard_normal(shape, np.float32)
    out = np.zeros(turned, np.float32)
    at.build(scheduled, target=target)(given, out)
    np.testing.assert_array_equal(out, given.transpose(perm))


def test_rows_that_another_operand_crosses_stay_parallel() -> None:
    """What reads one operand along the axis and another across it is no such copy."""
    x = te.placeholder((1, 56, 56, 256), name="x")
    z = te.placeholder((1, 256, 56, 56), name="z")
    s = te.placeholder((), name="s")  # read without an index
    total = te.compute((1, 256, 56, 56), lambda b, k, y, w: s() * z[b, k, y, w] + x[b, y, w, k])
    scheduled = default_schedule(te.create_prim_func([x, z, s, total]), TARGET)
    loops = [scheduled.get(v) for v in scheduled.get_loops(scheduled.get_blocks()[0])]
    assert [x.kind for x in loops[:3]] == ["parallel"] * 3


@pytest.mark.parametrize(
    ("channels", "width", "padding", "columns"),
    [(3, 40, 1, TARGET.vector_bytes < 32), (3, 40, 0, False), (3, 9, 1, False), (8, 40, 1, False),
     (1, 40, 2, True)],
)  # fmt: skip
def test_short_rows_are_filled_along_columns(
    channels: int, width: int, padding: int, columns: bool
) -> None:
    """Where conditions keep lanes from changing places, columns fill vectors, and rows of several
    elements are not put together in long ones."""
    x = te.placeholder((channels, 21, width), name="x")
    high, wide = 21 + 2 * padding, width + 2 * padding

    def value(y, z, k):
        inside = te.all(y >= padding, y < 21 + padding, z >= padding, z < width + padding)
        at = x[k, y - padding, z - padding]
        return te.if_then_else(inside, at, 0.0) if padding else at

    func = te.create_prim_func([x, te.compute((high, wide, channels), value)])
    scheduled = default_schedule(func, TARGET)
    loops = [scheduled.get(v) for v in scheduled.get_loops(scheduled.get_blocks()[0])]
    assert [v.kind for v in loops[-2:]] == ["unrolled", "vectorized"] or not columns
    assert any(v.kind == "unrolled" for v in loops) == columns
    given = np.random.default_rng(0).standard_normal((channels, 21, width), np.float32)
    out = np.zeros((high, wide, channels), np.float32)
    at.build(scheduled, target=TARGET)(given, out)
    around = ((0, 0), (padding, padding), (padding, padding))
    np.testing.assert_array_equal(out, np.pad(given, around).transpose(1, 2, 0))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("channels", [2, 3, 4])
def test_columns_of_short_rows_stay_together(channels: int, flat: bool) -> None:
    """One thread has all of a line, padded or not, and stores vectors of whole rows."""
    x = te.placeholder((channels, 90, 201), name="x")

    def value(y, z, k):
        inside = te.all(y >= 2, y < 92, z >= 2, z < 203)
        return te.if_then_else(inside, x[k, y - 2, z - 2], 0.0)

    y = (
        te.compute((94, 205 * channels), lambda y, j: value(y, j // channels, j % channels))
        if flat
        else te.compute((94, 205, channels), value)
    )
    func, target = te.create_prim_func([x, y]), at.Target("llvm -num-cores=2 -mcpu=x86-64-v3")
    scheduled = default_schedule(func, target)
    loops = [scheduled.get(v) for v in scheduled.get_loops(scheduled.get_blocks()[0])]
    extents = [(v.kind, int(v.extent)) for v in loops if int(v.extent) > 1]
    assert extents == [("parallel", 94), ("serial", 205), ("vectorized", channels)]
    given = np.random.default_rng(0).standard_normal((channels, 90, 201), np.float32)
    out = np.zeros([int(n) for n in y.shape], np.float32)
    at.build(default_schedule(func, TARGET), target=TARGET)(given, out)
    want = np.pad(given, ((0, 0), (2, 2), (2, 2))).transpose(1, 2, 0)
    np.testing.assert_array_equal(out, want.reshape(out.shape))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("length", "taps", "stride", "channels"),
    [(1600, 10, 5, 64), (130, 3, 1, 24), (75, 16, 8, 48), (37, 4, 1, 7)],
)
def test_a_convolution_turns_its_tiles(
    length: int, taps: int, stride: int, channels: int, cores: int
) -> None:
    """Channels are last where they are computed and first in the result: a tile is stored so as
    soon as it is complete, and what it is turned from is no larger than the tile."""
    n = (length - taps) // stride + 1
    x, w = te.placeholder((length,), name="x"), te.placeholder((taps, channels), name="w")
    b = te.placeholder((channels,), name="b")
    r = te.reduce_axis((0, taps), name="r")
    y = te.compute(
        (n, channels), lambda i, c: te.sum(x[i * stride + r] * w[r, c], axis=r), name="y"
    )
    func = te.create_prim_func([x, w, b, te.compute((channels, n), lambda c, i: y[i, c] + b[c])])
    target = at.Target(f"llvm -num-cores={cores}")
    scheduled = default_schedule(func, target)
    last = scheduled.get_blocks()[-1]
    around = scheduled.get_loops("y")
    shared = {id(scheduled.get(v)) for v in around} & {
        id(scheduled.get(v)) for v in scheduled.get_loops(last)
    }
    assert shared, scheduled.func.script()
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(s, np.float32) for s in ((length,), (taps, channels), (channels,))]
    out = np.zeros((channels, n), np.float32)
    at.build(scheduled, target=target)(*given, out)
    windows = np.lib.stride_tricks.sliding_window_view(given[0], taps)[::stride]
    expected = (windows @ given[1]).T + given[2][:, None]
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)


def test_a_write_cache_is_stored_in_vectors_of_the_tile() -> None:
    """Only copies that turn are stored by the whole row."""
    x, y = te.placeholder((64, 64), name="x"), te.placeholder((64, 64), name="y")
    k = te.reduce_axis((0, 64), name="k")
    z = te.compute((64, 64), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k), name="z")
    states = generate_states(te.create_prim_func([x, y, z]), TARGET)
    cached = [s for s in states if any("z.cache" in c for c in s.choices)]
    assert cached
    for state in cached:
        steps = state.schedule.trace.steps
        (moved,) = (n for n, step in enumerate(steps) if step.op == "reverse_compute_at")
        assert [step.op for step in steps[moved + 1 : moved + 3]] == ["get_loops", "split"]
