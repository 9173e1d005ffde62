"""Convolutions of bytes in 16 bits and by Winograd's transform in integers: exactly NumPy's."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched import graph
from autosched.graph import op, passes
from autosched.graph.ops.quantised import LARGEST_SUM, NARROW, bits_of_sums
from autosched.graph.ops.winograd import F2, F4, Whole
from autosched.graph.strategies import implementations
from autosched.target import Target

PAIRS = Target("llvm -mcpu=haswell")
"""Products of pairs of 16 bits, and none of bytes."""
BYTES = Target("llvm -mcpu=cascadelake")
HOST = Target("llvm")


def exact(x: np.ndarray, w: np.ndarray, fill: int, pad: int, stride: int = 1) -> np.ndarray:
    """The sums in int64."""
    around = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    wide = np.pad(x.astype(np.int64), around, constant_values=fill)
    out = [(n - k) // stride + 1 for n, k in zip(wide.shape[2:], w.shape[2:], strict=True)]
    sums = np.zeros((x.shape[0], w.shape[0], *out), np.int64)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            ys, xs = (
                slice(a, a + (n - 1) * stride + 1, stride) for a, n in zip((i, j), out, strict=True)
            )
            sums += np.einsum("nchw,oc->nohw", wide[:, :, ys, xs], w[:, :, i, j].astype(np.int64))
    return sums


def compiled(x: np.ndarray, w: np.ndarray, fill: int, target: Target = PAIRS, **attrs):
    """A model of one ConvSums for x of this shape."""
    var = graph.var("x", x.shape, x.dtype.name)
    sums = op.autosched_conv_sums(var, w, graph.const(np.array(fill, x.dtype)), **attrs)
    return graph.build(graph.module(main=graph.function([var], sums)), target=target, threads=1)


@pytest.mark.parametrize("transform", [F2, F4], ids=["2x2", "4x4"])
def test_tiles_are_windows_in_whole_numbers(transform):
    """One tile of the largest numbers, in Python's integers and modulo 2^32."""
    whole = Whole(transform)
    rng = np.random.default_rng(0)
    for low, high in ((0, 255), (255, 255), (-128, 127)):
        d = rng.integers(low, high + 1, (transform.reach,) * 2)
        g = rng.choice([-128, 127], (1, 1, 3, 3)).astype(np.int8)
        data, output = np.array(transform.data), np.array(whole.output)
        tile = data @ d @ data.T
        assert np.abs(tile).max() < 1 << 15, "data must fit into 16 bits"
        wide = whole.weights(g)[:, :, 0, 0].astype(np.int64)
        sums = (output @ (tile * wide) @ output.T * whole.inverse).astype(np.int32) >> whole.shift
        assert np.array_equal(sums, exact(d[None, None], g, 0, 0)[0, 0])


def implementation(model) -> str:
    """That of the convolution; copies stand beside it."""
    (found,) = [k.implementation for k in model.kernels if "conv" in k.implementation]
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("channels", "filters", "size", "name"),
    [(114, 40, 13, "winograd4"), (128, 32, 14, "winograd2"), (48, 32, 27, "winograd4")],
)
def test_equal_to_numpy_at_the_largest_values(channels, filters, size, name, dtype):
    """All of x at one end of its range, weights at theirs, and in between."""
    rng = np.random.default_rng(channels)
    info = np.iinfo(dtype)
    w = rng.integers(-128, 128, (filters, channels, 3, 3)).astype("int8")
    w[0], w[1] = -128, 127
    model = compiled(np.zeros((1, channels, size, size), dtype), w, 3, pads=(1, 1, 1, 1))
    how = implementation(model)
    assert f"conv_sums.{name if dtype == 'uint8' else 'winograd4'}" in how
    for low, high in ((info.min, info.min), (info.max, info.max), (info.min, info.max)):
        x = rng.integers(low, high + 1, (1, channels, size, size)).astype(dtype)
        assert np.array_equal(model(x)[0], exact(x, w, 3, 1))


@pytest.mark.parametrize(
    ("shape", "kernel", "attrs"),
    [
        ((1, 3, 33, 31), (32, 3, 7, 7), {"strides": (2, 2), "pads": (3, 3, 3, 3)}),
        ((2, 17, 9, 9), (24, 17, 1, 1), {}),
        ((1, 64, 14, 14), (64, 64, 3, 3), {"strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ],
)
def test_copies_in_16_bits_equal_numpy(shape, kernel, attrs):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, shape).astype("uint8")
    w = rng.integers(-128, 128, kernel).astype("int8")
    model = compiled(x, w, 9, **attrs)
    assert "conv_sums.wide" in implementation(model)
    stride = attrs.get("strides", (1, 1))[0]
    assert np.array_equal(model(x)[0], exact(x, w, 9, attrs.get("pads", (0,))[0], stride))


@pytest.mark.parametrize(
    ("target", "shape", "first"),
    [
        (BYTES, (64, 64, 28), "winograd4"),
        (BYTES, (32, 32, 28), "direct"),
        (BYTES, (256, 256, 14), "direct"),  # needs more than 26 bits
        (PAIRS, (256, 256, 14), "winograd2"),
        (Target("llvm -mcpu=sapphirerapids"), (64, 64, 28), "direct"),
    ],
    ids=str,
)
def test_the_target_decides(target, shape, first):
    channels, filters, size = shape
    x = graph.var("x", (1, channels, size, size), "uint8")
    w = np.ones((filters, channels, 3, 3), "int8")
    module = graph.module(main=graph.function([x], op.autosched_conv_sums(x, w, pads=(1,) * 4)))
    ready = passes.layout(passes.fuse(module))
    (group,) = [f for f in ready.graphs.values() if f.is_primitive and f.attr("spatial")]
    names = [i.name for i in implementations(group, target)]
    assert names[0] == f"conv_sums.{first}"
    assert ("conv_sums.wide" in names) == (target is PAIRS)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("channels", "size"), [(64, 56), (131, 28), (256, 27)])
def test_narrow_weights_are_exact_with_any_number_of_channels(channels, size):
    """Sums of 26 bits at their largest, on this machine's target; the first by rows of tiles."""
    rng = np.random.default_rng(channels)
    terms = channels * 9
    w = np.zeros((32, terms), "int8")
    for row in w:
        each = (LARGEST_SUM - 1) // terms
        row[...] = rng.choice([-1, 1]) * min(each, 127)
    w[8:] = rng.integers(-30, 31, (24, terms))
    w = w.reshape(32, channels, 3, 3)
    assert bits_of_sums(w) == NARROW
    for dtype in ("uint8", "int8"):
        info = np.iinfo(dtype)
        zeros = np.zeros((1, channels, size, size), dtype)
        model = compiled(zeros, w, 3, HOST, pads=(1,) * 4, bits=NARROW)
        for low, high in ((info.min, info.min), (info.max, info.max), (info.min, info.max)):
            x = rng.integers(low, high + 1, zeros.shape).astype(dtype)
            assert np.array_equal(model(x)[0], exact(x, w, 3, 1))


@given(st.integers(0, 1 << 30), st.integers(1, 1600), st.sampled_from([1, 7, 90, 127, 255]))
def test_bits_hold_all_sums(seed, terms, top):
    """Against the largest sum of each filter, with the worst bytes beside it."""
    rng = np.random.default_rng(seed)
    w = rng.integers(-top, top + 1, (3, terms)).astype("int16")
    w[0] = top
    whole = w.astype(np.int64)
    unsigned = 255 * np.maximum(whole.clip(0).sum(1), -whole.clip(None, 0).sum(1)).max()
    signed = 128 * np.abs(whole).sum(1).max()
    bits = bits_of_sums(w)
    assert bits in (NARROW, 32)
    assert bits == 32 or max(unsigned, signed) < 1 << NARROW - 1


def test_weights_prepared_in_another_type_are_saved_and_loaded(tmp_path: Path):
    """A prepared weight is stored in the type that it is prepared in."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 256, (1, 32, 20, 20)).astype("uint8")
    w = rng.integers(-128, 128, (32, 32, 3, 3)).astype("int8")
    var = graph.var("x", x.shape, "uint8")
    module = graph.module(main=graph.function([var], op.autosched_conv_sums(var, w)))
    graph.build(module, target=PAIRS, threads=1).save(tmp_path)
    assert np.array_equal(graph.load(tmp_path)(x)[0], exact(x, w, 0, 0))
