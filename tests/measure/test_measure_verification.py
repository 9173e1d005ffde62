"""Guarded buffers, tolerances, comparisons, inputs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.codegen.artifact import Param
from autosched.tir.nodes import PrimFunc
from measure.local.runner import JobSpec
from measure.machine.protocol import GPU
from measure.status import Status
from measure.verify import verification
from measure.verify.inputs import RECIPES, InputSpec, fill, input_specs, quality
from measure.verify.tolerance import Tolerance, tolerance_of
from measure.verify.verification import GUARD_BYTES, Buffers, Expected, Guarded

EXACT = Tolerance(1, False)


def reduction(n: int, reducer: str = "sum", dtype: str = "float32") -> PrimFunc:
    a = te.placeholder((4, n), name="a", dtype=dtype)
    k = te.reduce_axis((0, n), name="k")
    combine = getattr(te, reducer)
    return te.create_prim_func([a, te.compute((4,), lambda i: combine(a[i, k], axis=k), name="o")])


def softmax(n: int) -> PrimFunc:
    a = te.placeholder((4, n), name="a")
    k = te.reduce_axis((0, n), name="k")
    top = te.compute((4,), lambda i: te.max(a[i, k], axis=k), name="top")
    e = te.compute((4, n), lambda i, j: te.exp(a[i, j] - top[i]), name="e")
    k2 = te.reduce_axis((0, n), name="k2")
    total = te.compute((4,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    return te.create_prim_func([a, te.compute((4, n), lambda i, j: e[i, j] / total[i], name="o")])


def test_tolerance_counts_terms_that_round() -> None:
    for func, wanted in (
        (reduction(100), Tolerance(101, False)),
        (reduction(100, "max"), Tolerance(1, False)),
        (softmax(64), Tolerance(65, True)),
    ):
        made = tolerance_of(func)
        assert (made.terms, made.transcendental) == (wanted.terms, wanted.transcendental)
        assert made.relative("float32") == wanted.relative("float32")
        assert made.relative("int32") == 0


def cast_of(dtype: str, to: str, function: Callable[[Any], Any], reduced: bool = True) -> PrimFunc:
    """`function` of sums of 64 elements, or of elements, in `dtype`, stored as `to`."""
    a = te.placeholder((4, 64), name="a", dtype=dtype)
    k = te.reduce_axis((0, 64), name="k")
    t = te.compute((4,), lambda i: te.sum(a[i, k], axis=k) if reduced else a[i, 0], name="t")
    return te.create_prim_func([a, te.compute((4,), lambda i: function(t[i]).astype(to), name="o")])


def test_tolerance_of_what_is_computed_in_a_narrower_type() -> None:
    """No nearer than that type allows; a cast alone takes a few units of it."""
    for dtype, to in (("float32", "float64"), ("float16", "float32")):
        found = tolerance_of(cast_of(dtype, to, te.exp)).relative(to)
        assert found == Tolerance(65, True).relative(dtype)
    rounded = cast_of("float32", "float32", lambda x: x.astype("float16").astype("float32"))
    assert tolerance_of(rounded).relative("float32") == 8 * 2.0**-10
    plain = cast_of("float16", "float64", lambda x: x, reduced=False)
    assert tolerance_of(plain).relative("float64") == Tolerance(1, False).relative("float64")


@pytest.mark.parametrize("to", ["int8", "uint8", "int32", "int64"])
def test_integers_cut_from_sums_of_floats_may_be_a_step_apart(to: str) -> None:
    cut = tolerance_of(cast_of("float32", to, lambda x: te.floor(x * 8.0)))
    reference = np.array([0, 1, 100, np.iinfo(to).max], to)
    expected = Expected(Param("o", (4,), to, True), reference[:3], cut)
    assert expected.mismatch(reference[:3] + np.array([0, 1, 0], to)) == ""
    assert "o[2] is 98" in expected.mismatch(reference[:3] - np.array([0, 1, 2], to))
    widest = Tolerance(1, True, 0.25, frozenset("o"))
    for tolerance, values in ((cut, reference[:3]), (widest, reference), (widest, reference[3:])):
        expected = Expected(Param("o", values.shape, to, True), values, tolerance)
        unwritten = values.copy()
        expected.poison(unwritten)
        assert f"{len(values)} of {len(values)} elements" in expected.mismatch(unwritten)
    exact = tolerance_of(cast_of("float32", to, lambda x: te.floor(x * 8.0), reduced=False))
    assert exact.relative(to, "o") == 0


def test_integers_read_at_a_place_that_is_cut_from_floats_are_equal() -> None:
    x, d = te.placeholder((8,), name="x"), te.placeholder((9,), "int32", "d")
    j = te.compute((8,), lambda i: te.floor(te.exp(x[i])).astype("int64"), name="j")
    o = te.compute((8,), lambda i: d[te.clamp_index(j[i], 9)], name="o")
    n = te.compute((8,), lambda i: j[i] + 1, name="n")
    found = tolerance_of(te.create_prim_func([x, d, o, n]))
    assert found.relative("int32", "o") == 0 < found.relative("int64", "n")


def test_tolerance_grows_and_is_bounded() -> None:
    few, many = Tolerance(1, False), Tolerance(4096, False)
    assert few.relative("float32") < many.relative("float32") < 1e-4
    assert few.relative("float64") < 1e-13
    assert Tolerance(10**8, True).relative("float16") == 0.25


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("terms", [16, 1000, 30_000])
def test_tolerance_admits_every_order_and_no_missing_term(dtype: str, terms: int) -> None:
    rng = np.random.default_rng(terms)
    a = rng.standard_normal((100, terms)).astype(dtype)
    b = rng.standard_normal((100, terms)).astype(dtype)
    products = a * b
    # One after the other, as the untransformed program does, and pairwise as fast code nearly does.
    reference = np.cumsum(products, axis=1, dtype=dtype)[:, -1]
    expected = Expected(Param("o", (100,), dtype, True), reference, Tolerance(terms + 1, False))
    assert expected.mismatch(products.sum(axis=1, dtype=dtype)) == ""
    assert expected.mismatch(products[:, ::-1].cumsum(axis=1, dtype=dtype)[:, -1]) == ""
    missing = products[:, 1:].sum(axis=1, dtype=dtype)
    assert "elements are wrong" in expected.mismatch(missing)


def test_expected_names_the_first_mismatch() -> None:
    reference = np.arange(12, dtype="float32").reshape(3, 4)
    out = reference.copy()
    out[1, 2] += 1
    out[2, 3] = np.nan
    text = Expected(Param("o", (3, 4), "float32", True), reference, EXACT).mismatch(out)
    assert text.startswith("o[1, 2] is 7.0, expected 6.0")
    assert text.endswith(
        "1 are NaN: never written, or made from what was not; 2 of 12 elements are wrong"
    )


def test_expected_infinities_and_nan_stand_where_they_stand() -> None:
    reference = np.array([1, np.inf, -np.inf, np.nan], "float32")
    expected = Expected(Param("o", (4,), "float32", True), reference, EXACT)
    assert expected.mismatch(reference.copy()) == ""
    for place, value in ((0, np.inf), (1, 1e30), (2, np.inf), (3, 0.0), (0, np.nan)):
        out = reference.copy()
        out[place] = value
        assert expected.mismatch(out).startswith(f"o[{place}] is")


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "bool"])
def test_expected_integers_are_exact_and_poison_is_wrong_everywhere(dtype: str) -> None:
    reference = np.array([0, 1, 0, 1], dtype)
    expected = Expected(Param("o", (4,), dtype, True), reference, EXACT)
    out = reference.copy()
    assert expected.mismatch(out) == ""
    expected.poison(out)
    assert "4 of 4 elements are wrong" in expected.mismatch(out)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_expected_poison_of_floats_is_wrong_everywhere(dtype: str) -> None:
    reference = np.array([0, np.nan, np.inf, -1], dtype)
    expected = Expected(Param("o", (4,), dtype, True), reference, EXACT)
    out = reference.copy()
    expected.poison(out)
    assert "4 of 4 elements are wrong" in expected.mismatch(out)


def test_expected_bool_that_is_neither() -> None:
    reference = np.array([True, False])
    out = np.array([2, 0], "uint8").view("bool")
    text = Expected(Param("o", (2,), "bool", True), reference, EXACT).mismatch(out)
    assert text.startswith("o[0] is 2, expected True")


@pytest.mark.parametrize("shift", [0, 16])
def test_guarded_memory_sees_neighbours_written(shift: int) -> None:
    memory = Guarded("a", 100, shift)
    assert memory.address == memory.bytes.ctypes.data
    assert memory.address % 64 == shift
    assert memory.broken() == ""
    for place in (-1, -GUARD_BYTES, 100, 99 + GUARD_BYTES):
        ctypes.c_uint8.from_address(memory.address + place).value ^= 1
        assert "were overwritten" in memory.broken()
        memory.arm()
        assert memory.broken() == ""


def test_guarded_zones_differ_between_buffers() -> None:
    a, b = Guarded("a", 64), Guarded("b", 64)
    b._zones[1][:] = a._zones[1]
    assert "bytes after its end" in b.broken()


def test_buffers_are_restored_after_a_fault() -> None:
    params = (Param("a", (8,), "float32", False), Param("o", (8,), "float32", True))
    values = [np.arange(8, dtype="float32"), np.arange(8, dtype="float32") * 2]
    buffers = Buffers(params, values, EXACT)
    scratch = Guarded("scratch", 0)
    buffers.reset()
    assert buffers.check(scratch)[0] is Status.WRONG_RESULT
    buffers.reset()
    buffers.array(1)[:] = buffers.array(0) * 2
    assert buffers.check(scratch) == (Status.OK, "")
    buffers.array(0)[3] = -1
    assert buffers.check(scratch) == (Status.WRONG_RESULT, "input a was changed")
    buffers.reset()
    assert buffers.array(0)[3] == 3
    assert np.isnan(buffers.array(1)).all()


def test_buffers_lie_in_more_than_one_place() -> None:
    params = (Param("a", (8,), "float32", False), Param("o", (8,), "float32", True))
    values = [np.arange(8, dtype="float32"), np.arange(8, dtype="float32") * 2]
    buffers = Buffers(params, values, EXACT, 16)
    assert buffers.at(0) is buffers.memory
    there = buffers.at(3)
    assert {m.address % 64 for m in (*buffers.memory, *there)} == {16}
    assert there is buffers.at(3)
    addresses = {m.address for place in range(4) for m in buffers.at(place)}
    assert len(addresses) == 4 * len(params)
    for memory, param, value in zip(there, params, values, strict=True):
        assert (memory.array(param.shape, param.dtype) == value).all()
        assert memory.broken() == ""


def test_buffers_lie_where_they_were_without_room_for_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = [np.arange(8, dtype="float32")]
    buffers = Buffers((Param("a", (8,), "float32", False),), values, EXACT)

    def full(name: str, nbytes: int, shift: int) -> Guarded:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(verification, "Guarded", full)
        assert buffers.at(1) is buffers.memory
    assert buffers.at(1) is not buffers.memory


@pytest.mark.parametrize(
    ("megabytes", "places"), [(0, 8), (4, 8), (5, 6), (16, 2), (17, 1), (999, 1)]
)
def test_large_arguments_lie_in_fewer_places(megabytes: int, places: int) -> None:
    params = (Param("a", (megabytes, 1 << 20), "int8", False),)
    spec = JobSpec("job", "", 0, params, (), EXACT, 1)
    assert spec.places == places
    assert replace(spec, where=GPU("cuda")).places == 1


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: r.name)
@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool"]
)
def test_inputs_are_random_and_repeatable(dtype: str, recipe: object) -> None:
    spec = InputSpec(Param("a", (50, 20), dtype, False))
    one, two, other = (np.zeros((50, 20), dtype) for _ in range(3))
    fill(one, spec, recipe, "key", 1, 0)
    fill(two, spec, recipe, "key", 1, 0)
    fill(other, spec, recipe, "key", 2, 0)
    assert (one == two).all()
    assert (one != other).any()
    assert len(np.unique(one)) > 1
    if recipe.name == "positive" and dtype != "bool":
        assert (one > 0).all()


def test_inputs_used_as_indices_are_in_bounds() -> None:
    table = te.placeholder((7, 3), name="table")
    index = te.placeholder((50,), name="index", dtype="int64")
    out = te.compute((50, 3), lambda i, j: table[te.wrap_index(index[i], 7), j], name="out")
    func = te.create_prim_func([table, index, out])
    params = [
        Param("table", (7, 3), "float32", False),
        Param("index", (50,), "int64", False),
        Param("out", (50, 3), "float32", True),
    ]
    specs = input_specs(func, params)
    assert [s.limit for s in specs] == [None, 7]
    values = np.zeros(50, "int64")
    fill(values, specs[1], RECIPES[0], "key", 0, 1)
    assert set(values) == set(range(7))


def test_quality_of_a_reference() -> None:
    good = np.array([1.0, 2.0])
    assert quality([good, np.array([1, 2])]) == (1.0, 1.0)
    assert quality([np.array([np.nan, 1.0])]) == (0.5, 1.0)
    assert quality([good, np.zeros(3)]) == (1.0, 0.5)
