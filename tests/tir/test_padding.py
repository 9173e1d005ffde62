"""The share of a reduction's terms that are no padding, against counting them."""

import itertools

import pytest

import autosched as at
from autosched import te
from autosched.tir.nodes import sites
from autosched.tir.padding import share_present


def _share(*tensors: te.Tensor) -> float:
    """Of the reduction of the last tensor, its padding written inside it."""
    func = te.create_prim_func(list(tensors))
    sch = at.Schedule(func)
    for name in [s.block.name for s in sites(func)][:-1]:
        sch.compute_inline(sch.get_block(name))
    (site,) = sites(sch.func)
    return share_present(site.block)


def _counted(size: int, kernel: int, stride: int, dilation: int, pad: int) -> float:
    places = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    at_ = [y * stride + k * dilation - pad for y in range(places) for k in range(kernel)]
    return sum(0 <= p < size for p in at_) / len(at_)


CASES = [
    (size, kernel, stride, dilation, pad)
    for size, kernel, stride, dilation, pad in itertools.product(
        (7, 14, 30), (1, 3, 5), (1, 2), (1, 2), (0, 1, 2)
    )
    if pad <= dilation * (kernel - 1) < size + 2 * pad
]


@pytest.mark.parametrize(("size", "kernel", "stride", "dilation", "pad"), CASES)
def test_a_convolutions_terms_are_counted(
    size: int, kernel: int, stride: int, dilation: int, pad: int
) -> None:
    data = te.placeholder((size, size, 4), name="data")
    weight = te.placeholder((kernel, kernel, 4, 8), name="weight")
    places = (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
    padded = te.compute(
        (size + 2 * pad, size + 2 * pad, 4),
        lambda y, x, c: te.if_then_else(
            te.all(y >= pad, y < size + pad, x >= pad, x < size + pad),
            data[y - pad, x - pad, c],
            0.0,
        ),
        name="padded",
    )
    ry, rx, rc = (te.reduce_axis((0, n)) for n in (kernel, kernel, 4))
    out = te.compute(
        (places, places, 8),
        lambda y, x, o: te.sum(
            padded[y * stride + ry * dilation, x * stride + rx * dilation, rc]
            * weight[ry, rx, rc, o],
            axis=[ry, rx, rc],
        ),
        name="out",
    )
    want = _counted(size, kernel, stride, dilation, pad) ** 2
    assert _share(data, weight, out) == pytest.approx(want)


@pytest.mark.parametrize(("otherwise", "want"), [(0.0, 0.5), (1.0, 1.0)])
def test_only_what_adds_nothing_is_left_out(otherwise: float, want: float) -> None:
    a = te.placeholder((64,), name="a")
    k = te.reduce_axis((0, 64))
    out = te.compute(
        (1,), lambda _: te.sum(te.if_then_else(k < 32, a[k], otherwise), axis=k), name="out"
    )
    assert _share(a, out) == want


def test_a_condition_on_data_says_nothing() -> None:
    a = te.placeholder((64,), name="a")
    k = te.reduce_axis((0, 64))
    out = te.compute(
        (1,), lambda _: te.sum(te.if_then_else(a[k] > 0.0, a[k], 0.0), axis=k), name="out"
    )
    assert _share(a, out) == 1.0


def test_the_identity_of_a_maximum_is_left_out() -> None:
    a = te.placeholder((64,), name="a")
    k = te.reduce_axis((0, 64))
    least = float("-inf")
    out = te.compute(
        (1,), lambda _: te.max(te.if_then_else(k < 16, a[k], least), axis=k), name="out"
    )
    assert _share(a, out) == 0.25
