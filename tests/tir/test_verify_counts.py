"""Rules that count: elements that nobody writes, points that are combined more than once."""

from __future__ import annotations

import pytest

from autosched.errors import VerifyError
from autosched.script import parse

COPY = """@T.prim_func
def main(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
    C = T.alloc_buffer((64,), "float32")
    for i in range({written}):
        with T.block("C"):
            vi = T.axis.spatial({written}, i)
            C[{index}] = A[vi]
    for i, j in T.grid({grid}):
        with T.block("B"):
            vi = T.axis.spatial(64, {read})
            B[vi] = C[vi]
"""


@pytest.mark.parametrize(
    ("written", "index", "count"),
    [(2, "vi * 63", 2), (64, "vi // 63 * 63", 2), (32, "vi * 2 + vi // 31", 32)],
)
@pytest.mark.parametrize(("grid", "read"), [("64, 1", "i"), ("8, 8", "i * 8 + j")])
def test_elements_left_out_are_not_read(
    written: int, index: str, count: int, grid: str, read: str
) -> None:
    with pytest.raises(VerifyError, match=f"reads 64 elements of C, of which only {count} are"):
        parse(COPY.format(written=written, index=index, grid=grid, read=read))


@pytest.mark.parametrize("index", ["vi", "63 - vi", "vi // 8 * 8 + vi % 8", "vi % 8 * 8 + vi // 8"])
def test_elements_in_any_order_are_read(index: str) -> None:
    parse(COPY.format(written=64, index=index, grid="64, 1", read="i"))


SUM = """@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((2,), "float32")):
    for {names} in T.grid({grid}):
        with T.block("B"):
            v = T.axis.spatial(2, i)
            vk = T.axis.reduce({extent}, {binding})
            {where}
            with T.init():
                B[v] = 0.0
            B[v] += A[vk]
"""


def total(names: str, grid: str, binding: str, extent: int = 8, where: str = "pass") -> None:
    parse(SUM.format(names=names, grid=grid, binding=binding, extent=extent, where=where))


@pytest.mark.parametrize(
    ("names", "grid", "binding", "extent", "loop"),
    [
        ("i, k, z", "2, 8, 3", "k", 8, "z"),
        ("i, k, j", "2, 8, 1", "k // 2", 4, "k"),
        ("i, k, j", "2, 8, 1", "k % 4", 4, "k"),
        ("i, k, j", "2, 2, 8", "k * 4 + j // 2", 8, "j"),
    ],
)
def test_points_combined_twice(names: str, grid: str, binding: str, extent: int, loop: str) -> None:
    with pytest.raises(VerifyError, match=f"combined: .*several iterations of the loop '{loop}'"):
        total(names, grid, binding, extent)


@pytest.mark.parametrize(
    ("names", "grid", "binding"),
    [
        ("i, k, z", "2, 8, 1", "k"),
        ("i, z, k", "2, 3, 8", "k"),  # computed again as a whole
        ("i, k, j", "2, 2, 4", "k * 4 + j"),
        ("i, k, j", "2, 8, 1", "k // 2 * 2 + k % 2"),
    ],
)
def test_points_combined_once(names: str, grid: str, binding: str) -> None:
    total(names, grid, binding)


def test_a_predicate_may_skip_the_repetitions() -> None:
    total("i, k, z", "2, 8, 3", "k", where="T.where(z < 1)")


TAIL = """@T.prim_func
def main(A: T.Buffer((9,), "float32"), B: T.Buffer((9,), "float32")):
    for i_0 in T.parallel(3):
        for i_1, i_2 in T.grid(2, 2):
            with T.block("B"):
                vi = T.axis.spatial(9, i_0 * {step} + i_1 * 2 + i_2)
                T.where(i_1 * 2 + i_2 < {bound})
                B[vi] = A[vi]
"""


def test_predicates_keep_iterations_apart() -> None:
    parse(TAIL.format(step=3, bound=3))
    with pytest.raises(VerifyError, match="'i_0' may write the same element of B"):
        parse(TAIL.format(step=2, bound=3))
