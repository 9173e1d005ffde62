"""bfloat16: stored, loaded and converted as NumPy does it through bit patterns."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import check

from autosched import te
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir import dtypes, interp, whole
from autosched.tir.nodes import PrimFunc

PATTERNS = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
"""Every bfloat16."""


def widen(n: int) -> PrimFunc:
    a = te.placeholder((n,), name="A", dtype="bfloat16")
    b = te.compute((n,), lambda i: a[i].astype("float32"), name="B")
    return te.create_prim_func([a, b])


def narrow(n: int) -> PrimFunc:
    """Padded in front, so that there is a constant and a choice too."""
    a = te.placeholder((n,), name="A")
    b = te.compute(
        (n + 3,),
        lambda i: te.if_then_else(i >= 3, a[i - 3].astype("bfloat16"), te.const(1.1, "bfloat16")),
        name="B",
    )
    return te.create_prim_func([a, b])


def hard_floats() -> np.ndarray:
    """Ties, their neighbours, subnormals, the largest, infinities, NaN of both kinds."""
    upper = np.arange(0, 1 << 16, 7, dtype=np.uint32) << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return (upper[:, None] | lower).ravel().view(np.float32)


def rounded(values: np.ndarray) -> np.ndarray:
    """By exact comparison with the two neighbours, in float64; NaN made quiet."""
    bits = values.view(np.uint32)
    low = (bits >> 16).astype(np.uint16)
    nan = np.isnan(values)
    up = np.where(nan, low, low + 1).astype(np.uint16)
    with np.errstate(all="ignore"):
        exact, a, b = (x.astype(np.float64) for x in (values, *map(dtypes.to_float32, (low, up))))
        # The largest finite value rounds to infinity where a step further would.
        b = np.where(np.isinf(b), np.copysign(2.0**128, b), b)
        down, rise = np.abs(exact - a), np.abs(b - exact)
    take = (rise < down) | ((rise == down) & (low & 1 == 1))
    result = np.where(take & np.isfinite(values), up, low)
    return np.where(nan, low | 0x40, result).astype(np.uint16)


def test_conversions_of_arrays() -> None:
    values = hard_floats()
    np.testing.assert_array_equal(dtypes.from_float32(values), rounded(values))
    back = dtypes.from_float32(dtypes.to_float32(PATTERNS))
    nan = np.isnan(dtypes.to_float32(PATTERNS))
    np.testing.assert_array_equal(back, np.where(nan, PATTERNS | 0x40, PATTERNS))


@pytest.mark.parametrize("vectorized", [False, True])
def test_kernels(vectorized: bool) -> None:
    for func, values in ((widen(1 << 16), PATTERNS), (narrow(hard_floats().size), hard_floats())):
        schedule = Schedule(func)
        if vectorized:
            schedule.vectorize(schedule.get_loops(schedule.get_block("B"))[0])
        (out,) = check(schedule, func, [values])
        if out.dtype == np.uint16:
            wanted = np.concatenate([np.full(3, 0x3F8D, np.uint16), rounded(values)])
            np.testing.assert_array_equal(out, wanted)
        else:
            np.testing.assert_array_equal(out.view(np.uint32) >> 16, PATTERNS)


def test_interpreter() -> None:
    values = hard_floats()[::37]
    func = narrow(values.size)
    for run in (interp.run, whole.reference):
        out = np.empty(values.size + 3, np.uint16)
        run(func, [values, out])
        np.testing.assert_array_equal(out[3:], rounded(values))
        assert out[0] == 0x3F8D


def test_script() -> None:
    func = narrow(4)
    assert "T.bfloat16(1.1)" in func.script()
    assert parse_func(func.script()).script() == func.script()
