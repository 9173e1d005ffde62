"""Symbolic sizes in tensor expressions: shapes, domains, values, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import autosched as at
from autosched import passes, te
from autosched.errors import ArgumentError, TensorExprError, WorkloadError
from autosched.script import parse
from autosched.tir import interp, whole
from autosched.tir.canonical import workload_key
from autosched.tir.equal import same_func
from autosched.tir.nodes import PrimFunc
from autosched.tir.verify import verify


def matmul(names: str = "nmk", dtype: str = "float32") -> PrimFunc:
    n, m, k = (te.var(x) for x in names)
    a, b = te.placeholder((n, k), dtype, "A"), te.placeholder((k, m), dtype, "B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_prim_func([a, b, c])


def run(func: PrimFunc, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-4, 5, s).astype(b.dtype) for s, b in zip(shapes, func.params, strict=True)
    ]
    plain = [a.copy() for a in arrays]
    interp.run(func, arrays)
    whole.reference(func, plain)
    for a, b in zip(arrays, plain, strict=True):
        np.testing.assert_array_equal(a, b)
    return arrays


def test_matmul() -> None:
    func = matmul()
    verify(func)
    assert [v.name for v in func.sizes] == ["n", "k", "m"]
    for n, m, k in ((1, 1, 1), (3, 5, 7), (8, 2, 4)):
        a, b, c = run(func, (n, k), (k, m), (n, m))
        np.testing.assert_array_equal(c, a @ b)


def test_constant_shapes_are_ints() -> None:
    n = te.var("n")
    a = te.placeholder((n, 16), name="A")
    assert type(a.shape[1]) is int
    b = te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="B")
    func = te.create_prim_func([a, b])
    built = at.build(func, [a, b], compile_only=True)
    assert [p.shape for p in built.args] == [("n", 16), ("n", 16)]


def test_expressions_of_sizes() -> None:
    """Shapes, domains, conditions, indices and values may all be made of sizes."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, 2 * m + 1), "int64", "A")
    rows, cols = a.shape
    r = te.reduce_axis((1, m + 1), name="r")
    b = te.compute(
        ((n + 7) // 8, m),
        lambda i, j: te.if_then_else(i * 8 < n, a[i * 8, cols - 1 - j] * n, te.const(-1, "int64")),
        name="B",
    )
    c = te.compute((n + 1,), lambda i: te.sum(a[te.min(i, rows - 1), r * 2], axis=r), name="C")
    func = te.create_prim_func([a, b, c])
    verify(func)
    for x, y in ((1, 1), (8, 3), (17, 5)):
        va, vb, vc = run(func, (x, 2 * y + 1), (-(-x // 8), y), (x + 1,))
        np.testing.assert_array_equal(vb, (va[::8, ::-1] * x)[:, :y])
        np.testing.assert_array_equal(vc[:-1], va[:, 2::2].sum(1))


def test_scan() -> None:
    """m steps of n numbers: of the steps m - 1 are computed, which may be none."""
    m, n = te.var("m"), te.var("n")
    x, state = te.placeholder((m, n), "int64", "X"), te.placeholder((m, n), "int64", "state")
    init = te.compute((1, n), lambda _, i: x[0, i], name="init")
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i], name="update")
    func = te.create_prim_func([x, te.scan(init, update, state)])
    verify(func)
    assert same_func(parse(func.script()), func)  # type: ignore[arg-type]
    for shape in ((1, 1), (1, 5), (4, 3)):
        given = np.arange(shape[0] * shape[1]).reshape(shape)
        out = np.zeros_like(given)
        interp.run(func, [given, out])
        np.testing.assert_array_equal(out, given.cumsum(0))
    first = te.compute((2, n), lambda t, i: x[0, i], name="first")
    with pytest.raises(TensorExprError, match="gives 2 of m steps"):
        te.scan(first, update, state)


def test_specialize() -> None:
    func = matmul()
    half = func.specialize(n=4)
    assert [v.name for v in half.sizes] == ["k", "m"]
    whole = half.specialize({"k": 5, "m": 6})
    assert not whole.sizes
    assert [b.shape for b in whole.params] == [(4, 5), (5, 6), (4, 6)]
    verify(whole)
    constant = te.placeholder((4, 5), name="A"), te.placeholder((5, 6), name="B")
    r = te.reduce_axis((0, 5), name="r")
    c = te.compute(
        (4, 6), lambda i, j: te.sum(constant[0][i, r] * constant[1][r, j], axis=r), name="C"
    )
    assert same_func(whole, te.create_prim_func([*constant, c]))
    for wrong, message in (
        ({"q": 3}, "no symbolic size 'q'; it has n, k, m"),
        ({"n": 0}, "size n is 0; expected an int from 1"),
        ({"n": 2.5}, "size n is 2.5; expected an int from 1"),
    ):
        with pytest.raises(ArgumentError, match=message):
            func.specialize(wrong)  # type: ignore[arg-type]


def test_names_of_sizes_do_not_count() -> None:
    assert workload_key(matmul()) == workload_key(matmul("xyz"))
    assert same_func(matmul(), matmul("xyz"))
    assert workload_key(matmul()) != workload_key(matmul().specialize(n=4))
    assert not same_func(matmul(), matmul().specialize(n=4))


def test_solved_from_derived_shapes() -> None:
    """A size that stands in no shape alone follows from the others."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((2 * n + m,), "int64", "A")
    b = te.compute((m + 3,), lambda i: te.if_then_else(i < m, a[i + 2 * n], n), name="B")
    func = te.create_prim_func([a, b])
    verify(func)
    for x, y in ((1, 1), (3, 5), (2, 1)):
        va, vb = run(func, (2 * x + y,), (y + 3,))
        np.testing.assert_array_equal(vb, [*va[2 * x :], x, x, x])


def unsolved(shape: Callable[[te.Tensor], object]) -> Callable[[], object]:
    def make() -> object:
        n, m = te.var("n"), te.var("m")
        a = te.placeholder((shape((n, m)),), name="A")  # type: ignore[arg-type]
        return te.create_prim_func([a, te.compute(a.shape, lambda i: a[i] + 1.0, name="B")])

    return make


def two_of_one_name() -> object:
    a = te.placeholder((te.var("n"), te.var("n")), name="A")
    return te.create_prim_func([a, te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="B")])


def unknown_in_a_value() -> object:
    a = te.placeholder((4,), "int64", "A")
    n = te.var("n")
    return te.create_prim_func([a, te.compute((4,), lambda i: a[i] + n, name="B")])


def out_of_bounds() -> object:
    a = te.placeholder((te.var("n"),), name="A")
    return te.create_prim_func([a, te.compute(a.shape, lambda i: a[i + 1], name="B")])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (unsolved(lambda s: s[0] * s[1]), "size n does not follow.*A has shape .n . m."),
        (unsolved(lambda s: s[0] + s[1]), "size n does not follow"),
        (unsolved(lambda s: s[0] // 2 + 1), "size n does not follow.*one dimension must be n"),
        (two_of_one_name, "two sizes are named n; pass te.var another name"),
        (unknown_in_a_value, "size n does not follow.* stands in no shape of a parameter"),
        (out_of_bounds, r"reads A\[vi \+ 1\].*not provably in \[0, n\)"),
    ],
)
def test_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(TensorExprError, match=message):
        make()


def test_interpreter_refuses_shapes_that_disagree() -> None:
    arrays = [np.zeros(s, "float32") for s in ((2, 3), (4, 5), (2, 5))]
    with pytest.raises(ArgumentError, match="argument B of main is"):
        interp.run(matmul(), arrays)


def test_tuning_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"symbolic sizes n, k, m.*specialize\(n=1024"):
        at.SearchTask(prim_func=matmul())


def test_stage_view() -> None:
    """Schedules by stages: split, tile, compute_at, caches, for all sizes at once."""
    func = matmul()
    n, m, k = te.var("n"), te.var("m"), te.var("k")
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] * 2.0, name="D")
    s = te.create_schedule(d.op)
    i, j = d.op.axis
    i0, j0, i1, j1 = s[d].tile(i, j, 4, 16)
    s[c].compute_at(s[d], j0)
    s[c].split(c.op.reduce_axis[0], nparts=3)
    s[d].parallel(i0)
    s[d].vectorize(j1)
    s[d].unroll(i1)
    s.cache_read(a, "local", [c])
    low = at.lower(s, [a, b, d])
    assert isinstance(low, PrimFunc)
    verify(low)
    for x, y, z in ((1, 1, 1), (5, 17, 9), (8, 16, 2)):
        sizes = {"n": x, "m": y, "k": z}
        shapes = [tuple(map(int, p.shape)) for p in func.specialize(sizes).params]
        arrays = [np.ones(shape, "float32") for shape in shapes]
        interp.run(low, arrays)
        np.testing.assert_array_equal(arrays[2], np.full((x, y), 2.0 * z))


def test_passes() -> None:
    """Simplification and inlining know that sizes are at least 1, and no more."""
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: te.if_then_else(i < n, a[i], 0.0) + 1.0, name="B")
    c = te.compute((n + 1,), lambda i: te.if_then_else(i < n, b[te.min(i, n - 1)], 2.0), name="C")
    mod = passes.simplify(at.IRModule.of(te.create_prim_func([a, c])))
    text = mod.main.script()
    assert "B[vi] = A[vi] + T.float32(1.0)" in text
    assert "if_then_else(vi_1 < n" in text, "the last element of C is beyond n"
    inlined = passes.inline(mod).main
    assert inlined.script().count("T.block(") == 1
    for program in (mod.main, inlined):
        verify(program)
        for size in (1, 5):
            arrays = [np.arange(size, dtype="float32"), np.zeros(size + 1, "float32")]
            interp.run(program, arrays)
            np.testing.assert_array_equal(arrays[1], [*(np.arange(size) + 1), 2])
