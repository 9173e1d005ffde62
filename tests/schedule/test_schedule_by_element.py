"""reverse_compute_at and reverse_compute_inline of consumers whose points are no runs in a tile."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autosched as at
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir import interp
from autosched.tir.nodes import PrimFunc

SIZE = 24


def program(index: str, shape: tuple[int, ...], size: int = SIZE, value: str = "") -> PrimFunc:
    """B = A * 2, and C of some shape, which reads B[index]; axes are v0, v1, …"""
    n = range(len(shape))
    names, loops = ", ".join(f"v{d}" for d in n), ", ".join(f"i{d}" for d in n)
    dims = ", ".join(map(str, shape))
    return parse_func(f"""
@T.prim_func
def main(A: T.Buffer(({size},)), C: T.Buffer(({dims},))):
    B = T.alloc_buffer(({size},))
    for i in range({size}):
        with T.block("B"):
            vi = T.axis.spatial({size}, i)
            B[vi] = A[vi] * 2.0
    for {loops} in T.grid({dims}):
        with T.block("C"):
            {names} = T.axis.remap("{"S" * len(shape)}", [{loops}])
            C[{names}] = B[{index}] + {value or "1.0"}
""")


def check(sch: Schedule, func: PrimFunc) -> None:
    shapes = [tuple(map(int, b.shape)) for b in func.params]
    x = np.arange(prod(shapes[0]), dtype=np.float32).reshape(shapes[0])
    expected, ours, built = (np.full(shapes[1], -1, np.float32) for _ in range(3))
    interp.run(func, [x, expected])
    interp.run(sch.func, [x, ours])
    at.build(sch.func, target="llvm")(x, built)
    np.testing.assert_array_equal(ours, expected)
    np.testing.assert_array_equal(built, expected)
    assert parse_func(sch.func.script()).same(sch.func)
    assert sch.trace.apply(func).func.same(sch.func)


CASES = {
    "a step that goes into no tile": ("v0 * 3 + 1", (7,), 8),
    "a step that is more than a tile": ("v0 * 7", (4,), 4),
    "an offset and a tile that is no divisor": ("v0 * 2 + 1", (11,), 7),
    "packed from an offset": ("v0 * 4 + v1 + 3", (5, 4), 8),
    "packed in tiles that hold parts of rows": ("v0 * 4 + v1", (6, 4), 6),
    "packed twice": ("v0 * 6 + v1 * 2 + v2 + 1", (3, 3, 2), 5),
    "backwards": ("23 - v0", (24,), 8),
    "backwards, in steps": ("21 - v0 * 2", (10,), 8),
    "packed backwards": ("23 - v0 * 4 - v1", (6, 4), 8),
}


@pytest.mark.parametrize("name", CASES)
def test_the_consumer_is_computed_in_the_tile(name: str) -> None:
    index, shape, tile = CASES[name]
    func = program(index, shape)
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops("B")[0], [None, tile])
    sch.reverse_compute_at("C", outer)
    check(sch, func)
    sch = Schedule(func)
    sch.reverse_compute_inline("C")
    check(sch, func)


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 30),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_random_slices_and_packings(
    shape: list[int], step: int, offset: int, tile: int, backwards: bool
) -> None:
    terms, below = [], step
    for d, n in reversed(list(enumerate(shape))):
        terms.append(f"v{d} * {below}")
        below *= n
    size = below + offset
    index = " + ".join([*terms, str(offset)])
    func = program(f"{size - 1} - ({index})" if backwards else index, tuple(shape), size)
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops("B")[0], [None, tile])
    sch.reverse_compute_at("C", outer)
    check(sch, func)
    sch = Schedule(func)
    sch.reverse_compute_inline("C")
    check(sch, func)


def test_tiles_of_two_dimensions() -> None:
    func = parse_func("""
@T.prim_func
def main(A: T.Buffer((12, 16)), C: T.Buffer((3, 7, 5))):
    B = T.alloc_buffer((12, 16))
    for i, j in T.grid(12, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for a, b, c in T.grid(3, 7, 5):
        with T.block("C"):
            va, vb, vc = T.axis.remap("SSS", [a, b, c])
            C[va, vb, vc] = B[va * 4 + 1, vb * 2 + 2] + 1.0
""")
    for loop in range(2):
        sch = Schedule(func)
        i, j = sch.get_loops("B")
        i_0, i_1 = sch.split(i, [None, 3])
        j_0, j_1 = sch.split(j, [None, 5])
        sch.reorder(i_0, j_0, i_1, j_1)
        sch.reverse_compute_at("C", (i_0, j_0)[loop])
        check(sch, func)


def test_axes_that_tell_nothing_visit_their_domain() -> None:
    func = program("v1 * 3 + 1", (2, 7))
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops("B")[0], [None, 8])
    sch.reverse_compute_at("C", outer)
    check(sch, func)


@pytest.mark.parametrize(
    ("index", "shape", "value"),
    [
        ("v0 * 3 + 1", (7,), "B[v0 * 3 + 2]"),  # the tile may lack the second element
        ("v0 * 5 % 24", (24,), "1.0"),
        ("v0 + v1 * 3", (4, 4), "1.0"),  # two points read one element
    ],
)
def test_what_is_not_known_to_be_visited_once_is_refused(
    index: str, shape: tuple[int, ...], value: str
) -> None:
    sch = Schedule(program(index, shape, value=value))
    before = sch.func
    outer, _ = sch.split(sch.get_loops("B")[0], [None, 7])
    split = sch.func
    with pytest.raises(ScheduleError, match="reverse_compute_at"):
        sch.reverse_compute_at("C", outer)
    assert sch.func is split is not before


def test_points_that_read_no_element_are_not_left_out() -> None:
    """Zeros beside what is padded belong to no element."""
    choice = "T.if_then_else(v0 * 3 >= 3 and v0 * 3 < 27, B[v0 * 3 - 3], 0.0)"
    text = program("0", (10,)).script().replace("T.reads(B[0])", "")
    func = parse_func(text.replace("B[0] + T.float32(1.0)", choice))
    sch = Schedule(func)
    outer, _ = sch.split(sch.get_loops("B")[0], [None, 8])
    with pytest.raises(ScheduleError, match="reverse_compute_at"):
        sch.reverse_compute_at("C", outer)
