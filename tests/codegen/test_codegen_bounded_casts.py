"""Casts of floats that constants bound: those of vectors give what those of scalars give."""

from __future__ import annotations

import re

import numpy as np
import pytest
from guarded import TARGETS, arguments, compiled

from autosched import te
from autosched.codegen.build import generate_ir
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tir import dtypes

KINDS = ["uint8", "int8", "int16", "uint16", "int32", "uint32", "int64"]
FLOATS = ["float32", "float64", "float16", "bfloat16"]
ENDS = [0, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2147483647, 2147483648, 4294967295]
FORMS = {
    "max of min": lambda x, low, high: te.max(te.min(x, high), low),
    "min of max": lambda x, low, high: te.min(te.max(x, low), high),
    "constants first": lambda x, low, high: te.max(low, te.min(high, x)),
}


def values(dtype: str) -> np.ndarray:
    """Bounds and their neighbours on either side, large numbers, infinities and NaN."""
    made = [n + d for n in ENDS for d in (-1, -0.5, 0, 0.5, 1)]
    made += [-n for n in made] + [1e10, -1e10, 9.3e18, -9.3e18, 3e38, -3e38]
    made += [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan]
    with np.errstate(over="ignore"):
        if dtype == "bfloat16":
            return dtypes.from_float32(np.array(made, "f4"))
        return np.array(made, "f8").astype(dtype)


def cast_both(source: str, kind: str, low: float, high: float, form: str, target: str = "llvm"):
    """The results of scalars and of vectors."""
    x = values(source)
    a = te.placeholder(x.shape, name="a", dtype=source)

    def element(i):
        bounds = te.const(low, source), te.const(high, source)
        return te.cast(FORMS[form](a[i], *bounds), kind)

    outs = [te.compute(x.shape, element, name=n) for n in ("one", "many")]
    func = te.create_prim_func([a, *outs])
    schedule = Schedule(func)
    schedule.vectorize(schedule.get_loops(schedule.get_block("many"))[0])
    return compiled(schedule, arguments(func, [x]), target)[1:], x


def wanted(x: np.ndarray, kind: str, low: float, high: float) -> list[int]:
    """Bounded, in Python's numbers: NaN is 0, others saturate."""
    info = np.iinfo(kind)
    real = dtypes.to_float32(x) if x.dtype == dtypes.array_dtype("bfloat16") else x
    out = []
    for v in real.astype("f8").tolist():
        bounded = 0.0 if np.isnan(v) else min(max(v, low), high)
        out.append(min(max(int(bounded), info.min), info.max))
    return out


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("source", FLOATS)
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_of_the_type(kind: str, source: str, form: str) -> None:
    """The least and the largest number of the type; a float may hold the next one only."""
    info = np.iinfo(kind)
    (one, many), x = cast_both(source, kind, float(info.min), float(info.max), form)
    np.testing.assert_array_equal(many, one)
    assert one.tolist() == wanted(x, kind, float(info.min), float(info.max))


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_within_and_beyond_the_type(kind: str, source: str) -> None:
    """Narrower ones hold; wider ones, and one on a single side, still saturate."""
    info = np.iinfo(kind)
    low, high = float(info.min), float(info.max)
    for ends in ((low / 2, high / 2), (2 * low - 300, 2 * high), (low, 2 * high),
                 (low - 300, high), (0.0, 0.0), (low - 0.5, high), (low, high + 0.5)):  # fmt: skip
        (one, many), x = cast_both(source, kind, *ends, "max of min")
        np.testing.assert_array_equal(many, one, err_msg=str(ends))
        exact = float(np.dtype(source).type(ends[0])), float(np.dtype(source).type(ends[1]))
        assert one.tolist() == wanted(x, kind, *exact), ends


@pytest.mark.parametrize("target", TARGETS)
def test_each_target(target: str) -> None:
    for kind in ("uint8", "int8", "int16"):
        info = np.iinfo(kind)
        (one, many), x = cast_both("float32", kind, info.min, info.max, "max of min", target)
        np.testing.assert_array_equal(many, one)
        assert many.tolist() == wanted(x, kind, info.min, info.max)


ROUNDINGS = [
    ("uint8", 0, 0, 255), ("uint8", 128, 0, 255), ("uint8", 7, 3, 200), ("uint8", 255, 0, 255),
    ("int8", 0, -128, 127), ("int8", -128, -128, 127), ("int8", -3, -127, 127),
    ("int8", 5, -90, -4), ("uint16", 40001, 0, 65535), ("int16", -77, -32768, 32767),
    ("int16", 0, 0, 0), ("uint8", 300, 0, 255), ("uint8", 1 << 24, 0, 255), ("uint8", 0.5, 0, 255),
    ("int8", 0, -3.5, 90), ("uint8", np.inf, 0, 255), ("int8", -np.inf, -128, 127),
]  # fmt: skip
"""A type, a zero point, and bounds; some zero points are too large, or no whole numbers."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", FORMS)
def test_roundings(form: str, target: str) -> None:
    """What is rounded, moved by a zero point and bounded is as it is written: halves to even,
    before they are moved."""
    halves = np.arange(-330, 330, 0.5)
    near = np.nextafter(halves.astype("f4"), np.float32(np.inf))
    x = np.concatenate([values("float32"), halves.astype("f4"), near, -near, near * 200])
    for kind, zero, low, high in ROUNDINGS:
        a = te.placeholder(x.shape, name="a")

        def element(i, a=a, zero=zero, low=low, high=high, kind=kind):
            moved = te.round(a[i]) + te.const(zero, "float32") if zero else te.round(a[i])
            bounds = te.const(low, "float32"), te.const(high, "float32")
            return te.cast(FORMS[form](moved, *bounds), kind)

        def wide(i, element=element):
            return te.cast(element(i), "int32") - te.const(9, "int32")

        outs = [te.compute(x.shape, element, name=n) for n in ("one", "many")]
        outs += [te.compute(x.shape, wide, name=n) for n in ("one_wide", "many_wide")]
        func = te.create_prim_func([a, *outs])
        schedule = Schedule(func)
        for name in ("many", "many_wide"):
            schedule.vectorize(schedule.get_loops(schedule.get_block(name))[0])
        one, many, *wides = compiled(schedule, arguments(func, [x]), target)[1:]
        with np.errstate(invalid="ignore"):
            moved = np.rint(x) + np.float32(zero)
            bounded = np.minimum(np.maximum(moved, np.float32(low)), np.float32(high))
        want = np.where(np.isnan(moved), 0, bounded).astype("i8").astype(kind)
        for out in (one, many, *(n + 9 for n in wides)):
            np.testing.assert_array_equal(out, want, err_msg=str((kind, zero, low, high)))


def test_a_rounding_is_a_conversion() -> None:
    """x86 rounds as it converts, for whole zero points and bounds; NaN asks for no test where it
    may become the lower bound."""
    made = {}
    for kind, zero, low in (("uint8", 3, 0), ("int8", 3, -128), ("uint8", 0.5, 0)):
        a = te.placeholder((64,), name="a")
        out = te.compute(
            (64,),
            lambda i, a=a, zero=zero, low=low, kind=kind: te.cast(
                te.max(te.min(te.round(a[i]) + zero, 127.0), float(low)), kind
            ),
            name="out",
        )
        schedule = Schedule(te.create_prim_func([a, out]))
        schedule.vectorize(schedule.get_loops(schedule.get_block("out"))[0])
        made[kind, zero] = generate_ir(schedule.func, Target("llvm -mcpu=znver5")).ir
    assert [("lrint" in ir, "roundeven" in ir) for ir in made.values()] == [
        (True, False),
        (True, False),
        (False, True),
    ]
    assert ["fcmp uno" in ir for ir in made.values()] == [False, True, True]


def test_what_is_bounded_is_not_bounded_again() -> None:
    """Bounds of the type leave fewer comparisons than others do."""
    compared = []
    for high in (255.0, 300.0):
        a = te.placeholder((64,), name="a")
        out = te.compute(
            (64,), lambda i, a=a, n=high: te.cast(te.max(te.min(a[i], n), 0.0), "uint8"), name="out"
        )
        schedule = Schedule(te.create_prim_func([a, out]))
        schedule.vectorize(schedule.get_loops(schedule.get_block("out"))[0])
        ir = generate_ir(schedule.func, Target("llvm")).ir
        assert re.search(r"fptoui <\d+ x float>", ir)
        compared.append(ir.count("fcmp"))
    assert compared[0] < compared[1]
