"""Every primitive on programs with symbolic sizes: the result stays at all sizes, or it is refused
with the reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.errors import ScheduleError
from autosched.lowering.lower import lower
from autosched.schedule import Decision, Schedule, Trace
from autosched.script import parse
from autosched.tir import interp, whole
from autosched.tir.equal import first_difference
from autosched.tir.nodes import PrimFunc, inputs_of
from autosched.tir.verify import verify

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13)


def matmul_add(rows: Any = None, depth: Any = None) -> PrimFunc:
    n, m, k = te.var("n"), te.var("m"), te.var("k")
    rows, depth = n if rows is None else rows(n), k if depth is None else depth(k)
    a = te.placeholder((rows, depth), "int64", "A")
    b = te.placeholder((depth, m), "int64", "B")
    r = te.reduce_axis((0, depth), name="k")
    c = te.compute((rows, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((rows, m), lambda i, j: c[i, j] * 2 + i, name="D")
    return te.create_prim_func([a, b, d])


def chain() -> PrimFunc:
    """Pad, then a sum over a window, then twice that."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), "int64", "A")
    p = te.compute(
        (n + 2, m),
        lambda i, j: te.if_then_else(te.all(i >= 1, i < n + 1), a[i - 1, j], te.const(0, "int64")),
        name="P",
    )
    r = te.reduce_axis((0, 3), name="r")
    w = te.compute((n, m), lambda i, j: te.sum(p[i + r, j], axis=r), name="W")
    out = te.compute((n, m), lambda i, j: w[i, j] * 2 + a[i, j], name="O")
    return te.create_prim_func([a, out])


def outputs(func: PrimFunc, like: PrimFunc, reference: bool = False) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    inputs = {b.name for b in inputs_of(like)}
    arrays = []
    for b in func.params:
        shape = tuple(int(n) for n in b.shape)
        full = rng.integers(-4, 5, shape) if b.name in inputs else np.full(shape, 10**15)
        arrays.append(full.astype(b.dtype))
    (whole.reference if reference else interp.run)(func, arrays)
    return arrays


def check(sch: Schedule, original: PrimFunc, sizes: Sequence[int] = SIZES) -> None:
    """The program and its lowered form are well-formed and compute what the original does; trace
    and script give the same program again."""
    verify(sch.func)
    low = lower(sch.func)
    verify(low)
    text = sch.func.script()
    assert first_difference(parse(text), sch.func) is None  # type: ignore[arg-type]
    again = Trace.from_json(sch.trace.to_json()).apply(original, sch.decisions)
    assert again.func.script() == text
    names = [v.name for v in original.sizes]
    for k, size in enumerate(sizes):
        at = {x: sizes[(k + n * (2 + k)) % len(sizes)] if n else size for n, x in enumerate(names)}
        instance = original.specialize(at)
        expected = outputs(instance, original, reference=True)
        for program in (sch.func, low):
            found = outputs(program.specialize(at), original)
            for x, y in zip(found, expected, strict=True):
                np.testing.assert_array_equal(x, y, err_msg=f"{at}\n{text}")


def loops(sch: Schedule, name: str) -> tuple[Any, ...]:
    return sch.get_loops(sch.get_block(name))


def split_tails(sch: Schedule) -> None:
    i, j, k = loops(sch, "C")
    i0, i1 = sch.split(i, [None, 4])
    j0, j1, j2 = sch.split(j, [None, 2, 3])
    k0, k1 = sch.split(k, [None, 2])
    sch.reorder(i0, j0, k0, j1, k1, i1, j2)
    sch.unroll(i1)
    sch.vectorize(j2)
    sch.parallel(i0)
    sch.parallel(j0)


def split_parts(sch: Schedule) -> None:
    """A number of parts: the inner extent is the symbolic one."""
    i, j, k = loops(sch, "C")
    i0, i1 = sch.split(i, [4, None])
    k0, k1 = sch.split(k, [3, None])
    sch.reorder(i0, k0, i1, j, k1)
    sch.parallel(i0)
    sch.vectorize(k1)


def split_middle(sch: Schedule) -> None:
    i, j, _ = loops(sch, "C")
    sch.split(i, [2, None, 3])
    sch.vectorize(loops(sch, "D")[1])
    sch.split(j, [5, None])


def split_again(sch: Schedule) -> None:
    i = loops(sch, "D")[0]
    i0, _ = sch.split(i, [None, 4])
    i00, _ = sch.split(i0, [None, 2])
    sch.parallel(i00)


def fused(sch: Schedule) -> None:
    i, j = loops(sch, "D")
    i0, i1 = sch.split(i, [None, 4])
    f = sch.fuse(i0, i1)
    a, b = sch.split(f, [None, 3])
    sch.parallel(a)
    sch.unroll(b)
    sch.vectorize(j)


def fused_under_constant(sch: Schedule) -> None:
    i, j, _ = loops(sch, "C")
    j0, j1 = sch.split(j, [None, 4])
    sch.reorder(i, j1, j0)
    sch.parallel(sch.fuse(j1, j0))
    assert i is not None


def located(sch: Schedule) -> None:
    i, j = loops(sch, "D")
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(i0, j0, i1, j1)
    sch.compute_at(sch.get_block("C"), j0)
    sch.vectorize(j1)
    sch.parallel(i0)


def located_in_row(sch: Schedule) -> None:
    sch.compute_at(sch.get_block("C"), loops(sch, "D")[0])
    sch.vectorize(loops(sch, "C")[-1])


def located_reversed(sch: Schedule) -> None:
    i, j, k = loops(sch, "C")
    i0, i1 = sch.split(i, [None, 4])
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(i0, j0, k, i1, j1)
    sch.reverse_compute_at(sch.get_block("D"), j0)
    sch.vectorize(loops(sch, "D")[-1])
    sch.unroll(i1)
    sch.parallel(i0)


def packed(sch: Schedule) -> None:
    block = sch.get_block("C")
    i, j, k = loops(sch, "C")
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(j0, i, k, j1)
    panel = sch.cache_read(block, "B", "local", [[1, 8], [0], [1, 1, 8]])
    sch.compute_at(panel, j0)
    whole = sch.cache_read(block, "A", "global", [[0, 4], [1], [0, 1, 4]])
    sch.parallel(sch.get_loops(whole)[0])
    sch.vectorize(j1)


def written_apart(sch: Schedule) -> None:
    copy = sch.cache_write(sch.get_block("D"))
    i, j = loops(sch, "D")
    i0, i1 = sch.split(i, [None, 4])
    sch.reverse_compute_at(copy, i0)
    sch.parallel(i0)
    assert i1 is not None
    assert j is not None


def decomposed(sch: Schedule) -> None:
    i, j, k = loops(sch, "C")
    i0, i1 = sch.split(i, [None, 4])
    sch.reorder(i0, k, i1, j)
    init = sch.decompose_reduction(sch.get_block("C"), k)
    sch.vectorize(sch.get_loops(init)[-1])
    sch.vectorize(j)


def factored_outer(sch: Schedule) -> None:
    """Each partial sum is over a block of terms, of which there is at least one."""
    k = loops(sch, "C")[2]
    k0, _ = sch.split(k, [None, 4])
    partial = sch.rfactor(k0)
    sch.parallel(sch.get_loops(partial)[0])


def factored_inner(sch: Schedule) -> None:
    """Each partial sum is over every fourth term, of which there may be none."""
    k = loops(sch, "C")[2]
    _, k1 = sch.split(k, [None, 4])
    partial = sch.rfactor(k1)
    sch.vectorize(sch.get_loops(partial)[-1])


def relaid(sch: Schedule) -> None:
    """Another layout of an intermediate, and rows of an aligned stride."""
    block = sch.get_block("C")
    sch.transform_layout(block, ("write", 0), [[1, 4], [0], [1, 1, 4]])
    copy = sch.cache_read(block, "A", "global")
    sch.storage_align(copy, 0, 0, 16, 3)
    sch.parallel(sch.get_loops(copy)[0])


def fused_and_split(sch: Schedule) -> None:
    i, j = loops(sch, "D")
    i0, i1 = sch.split(i, [None, 5])
    sch.reorder(i0, i1, j)
    a, _ = sch.split(sch.fuse(i1, j), [None, 2])
    sch.parallel(a)


MATMULS: dict[str, Callable[[Schedule], None]] = {
    f.__name__: f
    for f in (
        split_tails,
        split_parts,
        split_middle,
        split_again,
        fused,
        fused_and_split,
        fused_under_constant,
        located,
        located_in_row,
        located_reversed,
        packed,
        relaid,
        written_apart,
        decomposed,
        factored_outer,
        factored_inner,
    )
}


@pytest.mark.parametrize("name", MATMULS)
def test_matmul(name: str) -> None:
    func = matmul_add()
    sch = Schedule(func)
    MATMULS[name](sch)
    check(sch, func)


def test_rfactor_by_a_constant() -> None:
    """With 4 terms for each of the partial sums, whatever the size is."""
    func = matmul_add(depth=lambda k: 4 * k)
    sch = Schedule(func)
    k = loops(sch, "C")[2]
    k0, k1 = sch.split(k, [None, 4])
    sch.vectorize(sch.get_loops(sch.rfactor(k1))[-1])
    assert k0 is not None
    check(sch, func)


def test_exact_split_has_no_predicate() -> None:
    func = matmul_add(rows=lambda n: 8 * n)
    sch = Schedule(func)
    sch.split(loops(sch, "D")[0], [None, 4])
    assert "T.where" not in sch.func.script()
    assert "T.grid(n * 2, 4, m)" in sch.func.script()
    check(sch, func)


def test_parts_of_a_symbolic_number_fused_again_read_back() -> None:
    """Of `l // s * s + l % s` each part is no larger than l, however large s may be."""
    sch = Schedule(matmul_add())
    for factors in ([4, None], [8, None]):
        i0, i1 = sch.split(loops(sch, "D")[0], factors)
        sch.fuse(i0, i1)
    assert parse(sch.func.script()).script() == sch.func.script()
    check(sch, matmul_add())


@pytest.mark.parametrize("place", ["inline", "row", "tile"])
def test_windows(place: str) -> None:
    """Overlapping regions of a padded intermediate, computed where they are used."""
    func = chain()
    sch = Schedule(func)
    o = sch.get_block("O")
    i, j = sch.get_loops(o)
    i0, i1 = sch.split(i, [None, 4])
    if place == "inline":
        sch.compute_inline(sch.get_block("P"))
    sch.compute_at(sch.get_block("W"), i0 if place == "tile" else i1)
    if place != "inline":
        sch.compute_at(sch.get_block("P"), i0)
    sch.parallel(i0)
    sch.vectorize(j)
    check(sch, func)
    low = lower(sch.func).script()
    if place != "inline":
        assert "P = T.alloc_buffer((6, m)" in low, "the intermediate keeps four rows and two"


def test_reverse_inline() -> None:
    n = te.var("n")
    a = te.placeholder((n,), "int64", "A")
    b = te.compute((n,), lambda i: a[i] + n, name="B")
    c = te.compute((n,), lambda i: b[i] * 2, name="C")
    func = te.create_prim_func([a, c])
    sch = Schedule(func)
    sch.reverse_compute_inline(sch.get_block("C"))
    assert sch.func.script().count("T.block(") == 1
    check(sch, func)


def refuse_unroll(sch: Schedule) -> None:
    sch.unroll(loops(sch, "D")[0])


def refuse_unroll_of_parts(sch: Schedule) -> None:
    sch.unroll(sch.split(loops(sch, "D")[0], [4, None])[1])


def refuse_cover(sch: Schedule) -> None:
    sch.split(loops(sch, "D")[0], [4, 4])


def refuse_fuse(sch: Schedule) -> None:
    sch.fuse(*loops(sch, "D"))


def refuse_arrays(sch: Schedule) -> None:
    sch.split(loops(sch, "D")[0], [None, np.array([2, 3])])


def refuse_decisions(sch: Schedule) -> None:
    sch.decisions["f"] = np.array([2, 3])
    sch.split(loops(sch, "D")[0], [None, Decision("f")])


def refuse_inline_of_part(sch: Schedule) -> None:
    sch.parallel(loops(sch, "C")[2])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (refuse_unroll, "loop i has the symbolic extent n, of which there are no copies"),
        (refuse_unroll_of_parts, r"symbolic extent \(n \+ 3\) // 4"),
        (refuse_cover, "cover 16 iterations; make one of them None .for some of the symbolic"),
        (refuse_fuse, "the extents n, m are all symbolic, and at most one may be"),
        (refuse_arrays, "symbolic sizes has no population.*specialize"),
        (refuse_decisions, "symbolic sizes has no population.*specialize"),
        (refuse_inline_of_part, "runs over a reduction axis of C; it cannot be parallel"),
    ],
)
def test_refused(step: Callable[[Schedule], None], message: str) -> None:
    sch = Schedule(matmul_add())
    with pytest.raises(ScheduleError, match=message):
        step(sch)


def test_a_predicate_bounds_what_it_says_times_a_size() -> None:
    """Of a tile that is split beyond its end: l < 2 keeps l * (8 * n) + x below 16 * n."""
    n = te.var("n")
    a = te.placeholder((n, 16), "int32", "A")
    sch = Schedule(te.create_prim_func([a, te.compute((n, 16), lambda i, j: a[i, j] + 1, "Y")]))
    outer, _ = sch.split(sch.fuse(*sch.get_loops("Y")), [2, None])
    sch.split(outer, [None, 4, 4])
    assert parse(sch.func.script()).same(sch.func)
    for size in (1, 3, 8):
        x = np.arange(size * 16, dtype="int32").reshape(size, 16)
        y = np.zeros_like(x)
        interp.run(sch.func, [x, y])
        np.testing.assert_array_equal(y, x + 1)
