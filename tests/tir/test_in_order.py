"""Recurrences whose loops are fused and split, or whose rows are laid out in digits: what reads
earlier steps is taken in every form, and what reads its own step in none."""

from __future__ import annotations

import pytest

import autosched as at
from autosched import te
from autosched.errors import VerifyError
from autosched.script import parse_func
from autosched.tir import in_order
from autosched.tir.nodes import PrimFunc


def sums(steps: int, rows: int, back: int = 1) -> PrimFunc:
    x, s = te.placeholder((steps + back, rows), name="X"), te.placeholder((steps + back, rows))
    first = te.compute((back, rows), lambda i, j: x[i, j], name="first")
    step = te.compute(
        (steps + back, rows), lambda i, j: s[i - 1, j] + s[i - back, j] + x[i, j], name="step"
    )
    return te.create_prim_func([x, te.scan(first, step, s, name="out")])


def products(steps: int, n: int) -> PrimFunc:
    shapes = {"W": (n, n), "X": (1, n), "s": (steps, n)}
    w, x, s = (te.placeholder(shape, name=name) for name, shape in shapes.items())
    k = te.reduce_axis((0, n), name="k")
    step = te.compute((steps, n), lambda i, j: te.sum(w[j, k] * s[i - 1, k], axis=k), name="step")
    return te.create_prim_func([w, x, te.scan(x, step, s, name="out")])


def fused(func: PrimFunc, factors: tuple[int, ...], count: int, swap: bool = False) -> PrimFunc:
    sch = at.Schedule(func)
    loops = sch.get_loops(sch.get_block("step"))
    if swap:
        loops = [loops[1], loops[0], *loops[2:]]
        sch.reorder(*loops[:2])
    loop = sch.fuse(*loops[:count])
    for factor in factors:
        loop, _ = sch.split(loop, [None, factor])
    return sch.func


@pytest.mark.parametrize("factors", [(16,), (7,), (24, 4)])
@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("back", [1, 2])
def test_fused_and_split(factors: tuple[int, ...], swap: bool, back: int) -> None:
    for steps, rows in ((6, 5), (700, 300)):
        func = fused(sums(steps, rows, back), factors, 2, swap)
        assert parse_func(func.script()).same(func)


@pytest.mark.parametrize("factors", [(24, 4), (5, 3)])
def test_fused_with_the_loop_of_a_reduction(factors: tuple[int, ...]) -> None:
    func = fused(products(100, 60), factors, 3)
    assert parse_func(func.script()).same(func)


def recurrence(written: str, read: str, loops: str = "i, j in T.grid(3, 6)") -> str:
    step, row = ("i", "j") if "," in loops else ("n // 6", "n % 6")
    return f"""
@T.prim_func
def main(A: T.Buffer((6,)), B: T.Buffer((2, 4, 3))):
    for i, j, k in T.grid(2, 4, 3):
        with T.block("zero"):
            a, b, c = T.axis.remap("SSS", [i, j, k])
            B[a, b, c] = T.float32(0)
    for {loops}:
        with T.block("step"):
            v = T.axis.sequential(3, {step})
            w = T.axis.spatial(6, {row})
            B[{written}] = B[{read}] + A[w]
""".lstrip()


FORMS = ["i, j in T.grid(3, 6)", "n in T.serial(18)"]


@pytest.mark.parametrize("loops", FORMS)
@pytest.mark.parametrize("by_points", [False, True])
def test_digits_of_a_layout_are_no_ring(
    loops: str, by_points: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_points:
        monkeypatch.setattr(in_order.Pair, "written_before", lambda self: False)
    else:
        monkeypatch.setattr(in_order, "MAX_POINTS", 0)
    parse_func(recurrence("w // 3, v + 1, w % 3", "w // 3, v, w % 3", loops))
    parse_func(recurrence("w // 3, v + 1, w % 3", "w % 2, v, w // 2", loops))


@pytest.mark.parametrize("loops", FORMS)
@pytest.mark.parametrize(
    "read", ["1 - w // 3, v + 1, w % 3", "0, v + 1, 0", "w // 3, v + 1, w % 3", "w // 3, 3 - v, 0"]
)
def test_what_the_own_step_writes_is_not_read(loops: str, read: str) -> None:
    """Nor where one loop is over steps and rows, and goes through the rows in an order."""
    with pytest.raises(VerifyError, match="a sequential axis reads steps before its own"):
        parse_func(recurrence("w // 3, v + 1, w % 3", read, loops))


def test_conditions_that_no_proof_foresees_end_in_an_answer() -> None:
    """Of loops whose conditions skip every iteration, and of one that other loops bound."""
    never = parse_func("""
@T.prim_func
def main(C: T.Buffer((4,), "int32")):
    for i, j in T.grid(4, 4):
        with T.block("C"):
            vi = T.axis.sequential(4, i)
            vj = T.axis.sequential(4, j)
            T.where(i % 2 > 0 and j % 2 < 1 and i - j < 1 and j - i < 1)
            C[(vi * 3 + vj) % 4] = C[(vi + vj * 2) % 4] + 1
""")
    assert never.admitted  # nothing runs, so nothing is out of order
    with pytest.raises(VerifyError, match="not provably of an earlier step"):
        parse_func("""
@T.prim_func
def main(C: T.Buffer((36,), "int32")):
    for a, i, j in T.grid(6, 6, 6):
        with T.block("C"):
            va = T.axis.sequential(6, a)
            vi = T.axis.sequential(6, (i * 6 + j) // 6)
            vj = T.axis.sequential(6, (i * 6 + j) % 6)
            T.where(i * 6 + j < a)
            C[vi * 6 + vj] = C[(vi * 6 + vj + va) % 36] + 1
""")
