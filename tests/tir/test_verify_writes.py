"""Rules on what points of a block write: proofs held against every point counted one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autosched as at
from autosched.errors import VerifyError
from autosched.script import parse_func
from autosched.tir.affine import Affine
from autosched.tir.interp import run
from autosched.tir.nodes import PrimFunc, Site, sites
from autosched.tir.verify_writes import covered, distinct, overwritten

TWO = """@T.prim_func
def main(X: T.Buffer((4, 4), "float32"), Y: T.Buffer(({size},), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("Y"):
            vi, vj = T.axis.remap("{kinds}", [i, j])
            Y[{index}] = {value}
"""


def two(index: str, kinds: str = "SS", value: str = "X[vi, vj]", size: int = 7) -> PrimFunc:
    text = TWO.format(index=index, kinds=kinds, value=value, size=size)
    return parse_func(text)


@pytest.mark.parametrize(
    ("index", "size"),
    [("vi + vj", 7), ("vi * 3 + vj", 13), ("vi", 4), ("(vi * 4 + vj) // 2", 8), ("vi * vj", 10)],
)
def test_points_that_write_one_element(index: str, size: int) -> None:
    with pytest.raises(VerifyError, match="distinct: block 'Y' writes Y") as caught:
        two(index, size=size)
    assert "T.axis.reduce" in str(caught.value)
    assert "T.axis.sequential" in str(caught.value)


@pytest.mark.parametrize(
    "index", ["vi * 4 + vj", "15 - vj * 4 - vi", "(vi * 4 + vj + 3) % 8 + vi // 2 * 8"]
)
def test_points_that_write_elements_of_their_own(index: str) -> None:
    two(index, size=16)


def test_one_value_may_be_written_often() -> None:
    two("vi + vj", value="1.0")
    two("vj", value="X[0, vj]", size=4)
    with pytest.raises(VerifyError, match="distinct: "):
        two("vi + vj", value="T.float32(vi)")
    with pytest.raises(VerifyError, match="distinct: "):
        two("vj", value="X[0, vj] + T.float32(vi)", size=4)


def test_an_order_may_decide() -> None:
    """Sequential axes stay in order, all of them; a spatial one beside them does not."""
    func = two("vi + vj", "QQ")
    sch = at.Schedule(func)
    i, j = sch.get_loops(sch.get_block("Y"))
    with pytest.raises(at.AutoschedError, match="sequential axis"):
        sch.reorder(j, i)
    with pytest.raises(VerifyError, match="distinct: "):
        two("vi + vj", "QS")
    x, y = np.arange(16, dtype="float32").reshape(4, 4), np.empty(7, "float32")
    at.build(func)(x, y)
    np.testing.assert_array_equal(y, [0, 4, 8, 12, 13, 14, 15])


def test_a_reduction_sets_each_element_once() -> None:
    text = """@T.prim_func
def main(X: T.Buffer((4, 4, 3)), Y: T.Buffer((7,))):
    for i, j, k in T.grid(4, 4, 3):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi + vj] = 0.0
            Y[vi + vj] += X[vi, vj, vk]
"""
    with pytest.raises(VerifyError, match=r"distinct: .* each would set the element anew"):
        parse_func(text)
    start = """    for z in range(7):
        with T.block("start"):
            vz = T.axis.spatial(7, z)
            Y[vz] = 0.0
    for i"""
    func = parse_func(
        text.replace("            with T.init():\n                Y[vi + vj] = 0.0\n", "").replace(
            "    for i", start
        )
    )
    x, y = (
        np.random.default_rng(0).integers(0, 9, (4, 4, 3)).astype("float32"),
        np.empty(7, "float32"),
    )
    at.build(func)(x, y)
    expected = [sum(x[i, d - i].sum() for i in range(4) if 0 <= d - i < 4) for d in range(7)]
    np.testing.assert_array_equal(y, expected)


def test_data_decide_where_only_in_order() -> None:
    text = """@T.prim_func
def main(A: T.Buffer((8,), "int64"), X: T.Buffer((8,)), H: T.Buffer((5,))):
    for i in range(5):
        with T.block("start"):
            vi = T.axis.spatial(5, i)
            H[vi] = 0.0
    for k in range(8):
        with T.block("H"):
            v = T.axis.{kind}(8, k)
            H[T.clamp_index(A[v], 5)] {op} X[v]
"""
    a, x = np.array([1, 2, 1, 0, 4, 3, 1, 0]), np.arange(8, dtype="float32")
    h = np.empty(5, "float32")
    with pytest.raises(VerifyError, match="distinct: block 'H'"):
        parse_func(text.format(kind="spatial", op="="))
    at.build(parse_func(text.format(kind="sequential", op="=")))(a, x, h)
    np.testing.assert_array_equal(h, [7, 6, 1, 5, 4])
    run(parse_func(text.format(kind="reduce", op="+=")), [a, x, h])
    np.testing.assert_array_equal(h, np.bincount(a, x, 5))


# -- blocks of one loop


BOTH = """@T.prim_func
def main(X: T.Buffer((4, 4)), Y: T.Buffer((4, {size}))):
    for i, j in T.grid(4, 4):
        with T.block("a"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = X[vi, vj]
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[{index}] = X[vi, vj] + 10.0
"""


@pytest.mark.parametrize("index", ["vj, vi", "3 - vi, vj", "vi, (vj + 1) % 4"])
def test_blocks_that_overwrite_each_other(index: str) -> None:
    with pytest.raises(VerifyError, match="overwritten: blocks 'a' and 'b' may write one element"):
        parse_func(BOTH.format(index=index, size=4))


@pytest.mark.parametrize(("index", "size"), [("vi, vj", 4), ("vi, vj + 4", 8), ("vi, 7 - vj", 8)])
def test_blocks_that_do_not(index: str, size: int) -> None:
    func = parse_func(BOTH.format(index=index, size=size))
    x = np.random.default_rng(0).normal(size=(4, 4)).astype("float32")
    expected, found = np.empty((4, size), "float32"), np.empty((4, size), "float32")
    run(func, [x, expected])
    sch = at.Schedule(func)
    i, j = sch.get_loops(sch.get_block("a"))
    sch.reorder(j, i)
    at.build(sch)(x, found)
    np.testing.assert_array_equal(found, expected)


# -- reductions over all their points, the first first


SUM = """@T.prim_func
def main(A: T.Buffer((4, 8)), B: T.Buffer((4,))):
    for {names} in T.grid({grid}):
        with T.block("B"):
            vi = T.axis.spatial(4, {vi})
            vk = T.axis.reduce(8, {vk})
            {where}
            with T.init():
                B[vi] = 0.0
            B[vi] += A[vi, vk]
"""


def total(names: str, grid: str, vi: str, vk: str, where: str = "pass") -> PrimFunc:
    return parse_func(SUM.format(names=names, grid=grid, vi=vi, vk=vk, where=where))


@pytest.mark.parametrize(
    ("names", "grid", "vi", "vk", "where", "message"),
    [
        ("i, z", "4, 1", "i", "i", "pass", "another axis is bound to i too"),
        ("i, z", "4, 1", "i", "i * 2", "pass", "another axis is bound to i too"),
        ("i, k", "4, 4", "i", "k", "pass", "takes 4 of its 8 values"),
        ("i, z", "4, 1", "i", "0", "pass", "takes 1 of its 8 values"),
        ("i, k", "4, 8", "i", "7 - k", "pass", "does not provably count up from 0"),
        ("i, k", "4, 7", "i", "k + 1", "pass", "begins at 1"),
        ("i, k", "4, 8", "i", "(k + 3) % 8", "pass", "does not provably count up from 0"),
        ("i, k", "4, 8", "i", "(k + i) % 8", "pass", "another axis is bound to i too"),
        ("i, k", "4, 4", "i", "k * 2", "pass", "leaves out values"),
        ("i, k", "4, 8", "i", "k", "T.where(k > 0)", "may skip the first point"),
        ("i, k", "4, 8", "i", "k", "T.where(k > i)", "may skip the first point"),
        ("f, z", "32, 1", "f // 8", "f // 4", "pass", "."),
        ("k, i", "8, 4", "(k * 4 + i) % 4", "(k * 4 + i + 1) // 4", "pass", "."),
    ],
)
def test_reductions_that_leave_points_out(
    names: str, grid: str, vi: str, vk: str, where: str, message: str
) -> None:
    with pytest.raises(VerifyError, match=message):
        total(names, grid, vi, vk, where)


@pytest.mark.parametrize(
    ("names", "grid", "vi", "vk", "where"),
    [
        ("i, k", "4, 8", "i", "k", "pass"),
        ("k, i", "8, 4", "i", "k", "pass"),
        ("f, z", "32, 1", "f // 8", "f % 8", "pass"),
        ("f, g", "8, 4", "(f * 4 + g) // 8", "(f * 4 + g) % 8", "pass"),
        ("f, g", "7, 5", "(f * 5 + g) // 8", "(f * 5 + g) % 8", "T.where(f * 5 + g < 32)"),
        ("i, j, k", "4, 2, 4", "i", "j * 4 + k", "pass"),
        ("i, j, k", "4, 4, 2", "i", "k * 4 + j", "pass"),
        ("i, j, k", "4, 3, 3", "i", "j * 3 + k", "T.where(j * 3 + k < 8)"),
        ("i, k", "4, 8", "i", "k", "T.where(k < i + 1)"),
    ],
)
def test_reductions_over_all_points(names: str, grid: str, vi: str, vk: str, where: str) -> None:
    total(names, grid, vi, vk, where)


def points(site: Site) -> Iterator[dict[Any, int]]:
    """The loops' values at every iteration that the predicates let pass."""
    for values in product(*(range(int(x.extent)) for x in site.loops)):
        at = {x.var: n for x, n in zip(site.loops, values, strict=True)}
        if all(p.form.evaluate(at) < p.bound for p in site.block.predicates):
            yield at


_BASES = ("a * 4 + b * 2 + c", "a * 2 + b", "b * 2 + c", "c * 2 + b", "a", "b", "c")
_DIGITS = [f"({base}) {op} {n}" for base in _BASES for op in ("//", "%") for n in (2, 3, 4)]
FORMS = st.sampled_from([*_BASES, *_DIGITS, "a + b", "b + c * 2", "a * 3 + c", "1 - b", "a + 1"])


@settings(max_examples=400, deadline=None)
@given(FORMS, FORMS, st.sampled_from(["", "a < 2", "b < 1", "a * 2 + b < 5", "c > 0", "b < c"]))
def test_no_proof_is_wrong_that_a_reduction_is_whole(vi: str, vk: str, where: str) -> None:
    text = f"""@T.prim_func
def main(A: T.Buffer((64, 64)), B: T.Buffer((64,))):
    for a, b, c in T.grid(4, 2, 2):
        with T.block("B"):
            vi = T.axis.spatial(64, {vi})
            vk = T.axis.reduce(64, {vk})
            {f"T.where({where})" if where else "pass"}
            with T.init():
                B[vi] = 0.0
            B[vi] += A[vi, vk]
"""
    (site,) = sites(parse_func(text, check=False))
    spatial, reduced = site.block.bindings
    found: dict[int, list[int]] = {}
    for at_ in points(site):
        found.setdefault(int(spatial.evaluate(at_)), []).append(int(reduced.evaluate(at_)))
    size = max((max(v) for v in found.values()), default=0) + 1
    func = parse_func(text.replace("reduce(64", f"reduce({size}"), check=False)
    if not list(covered(func)):
        for seen in found.values():
            assert seen[0] == 0
            assert where or set(seen) == set(range(size))


@settings(max_examples=400, deadline=None)
@given(FORMS, FORMS, st.integers(0, 3))
def test_no_proof_is_wrong_that_points_write_elements_of_their_own(
    first: str, second: str, kind: int
) -> None:
    value = ("X[va, vb, vc]", "X[va, 0, vc]", "X[va // 2, vb, 0]", "T.float32(va + vb)")[kind]
    names = {"a": "va", "b": "vb", "c": "vc"}
    index = ["".join(names.get(ch, ch) for ch in form) for form in (first, second)]
    func = parse_func(
        f"""@T.prim_func
def main(X: T.Buffer((4, 2, 2)), Y: T.Buffer((64, 64))):
    for a, b, c in T.grid(4, 2, 2):
        with T.block("Y"):
            va, vb, vc = T.axis.remap("SSS", [a, b, c])
            Y[{index[0]}, {index[1]}] = {value}
""",
        check=False,
    )
    if list(distinct(func)):
        return
    (site,) = sites(func)
    bindings = [binding.single_var() for binding in site.block.bindings]
    seen: dict[tuple[int, ...], Any] = {}
    for at_ in points(site):
        axes = {it.var: at_[v] for it, v in zip(site.block.iters, bindings, strict=True)}
        element = tuple(
            int(i.evaluate(axes)) for i in site.block.writes[0].indices if isinstance(i, Affine)
        )
        a, b, c = axes.values()
        what = ((a, b, c), (a, c), (a // 2, b), a + b)[kind]
        assert seen.setdefault(element, what) == what


@settings(max_examples=200, deadline=None)
@given(FORMS, FORMS)
def test_no_proof_is_wrong_that_blocks_keep_apart(first: str, second: str) -> None:
    text = f"""@T.prim_func
def main(X: T.Buffer((64,)), Y: T.Buffer((64,))):
    for a, b in T.grid(4, 2):
        for c in range(2):
            with T.block("p"):
                v = T.axis.spatial(64, {first})
                Y[v] = X[v]
        for c in range(2):
            with T.block("q"):
                v = T.axis.spatial(64, {second})
                Y[v] = X[v] + 1.0
"""
    func = parse_func(text, check=False)
    if list(overwritten(func)):
        return
    where: list[dict[int, set[tuple[int, ...]]]] = []
    for site in sites(func):
        (form,) = site.block.bindings
        mine: dict[int, set[tuple[int, ...]]] = {}
        for at_ in points(site):
            mine.setdefault(int(form.evaluate(at_)), set()).add(tuple(at_.values())[:2])
        where.append(mine)
    for element in where[0].keys() & where[1].keys():
        assert len(where[0][element] | where[1][element]) == 1


SWIZZLED_SUM = """
@T.prim_func
def main(A: T.Buffer((8,), "int64"), B: T.Buffer((2, 4), "int64")):
    for i1, i0, k in T.grid(2, 4, 4):
        with T.block("B"):
            va = T.axis.spatial(8, i1 * 4 + i0)
            ka = T.axis.reduce(4, k)
            with T.init():
                B[va // 4, (va % 4 + STEP) % 4] = 0
            B[va // 4, (va % 4 + STEP) % 4] = B[va // 4, (va % 4 + STEP) % 4] + A[(va + ka) % 8]
"""


def test_sums_in_a_swizzled_row():
    """Points of the reduction axis write one element; those of the other one have their own."""
    parse_func(SWIZZLED_SUM.replace("STEP", "va // 4"))
    for step in ("va % 4", "va // 2", "ka"):
        with pytest.raises(VerifyError):
            parse_func(SWIZZLED_SUM.replace("STEP", step))
