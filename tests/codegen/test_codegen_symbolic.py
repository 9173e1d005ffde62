"""Code for all sizes: built once for each target, run guarded at size 1, at primes and around every
tile, compared with NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from guarded import HOST, TARGETS, Array, arguments, child, same

from autosched import te
from autosched.codegen.artifact import KernelInfo
from autosched.codegen.build import generate_ir
from autosched.codegen.formula import evaluate
from autosched.errors import ArgumentError
from autosched.schedule import LoopRV, Schedule
from autosched.target import Target
from autosched.tir.nodes import PrimFunc, inputs_of
from autosched.tir.verify import verify

F32 = "float32"
Oracle = Callable[..., Array]


def check(
    sch: Schedule | PrimFunc,
    original: PrimFunc,
    oracle: Oracle,
    sizes: Iterable[dict[str, int]],
    target: str,
    rtol: float = 0.0,
) -> None:
    """One build, all `sizes`; the last parameter is what `oracle` makes of the others."""
    func = sch.func if isinstance(sch, Schedule) else sch
    where = Target(target)
    generated = generate_ir(func, where)
    for k, at in enumerate(sizes):
        arrays = arguments(original.specialize(at), seed=k)
        want = oracle(*arrays[:-1])
        found = child.run(generated, where, "search", arrays, 1 + k % 3)[-1]
        try:
            same(found, want.astype(found.dtype), rtol, rtol)
        except AssertionError as e:
            raise AssertionError(f"{at} on {target}: {e}\n{func.script()}") from e


def around(*tiles: int) -> list[int]:
    """1, a prime, and what lies around the tiles."""
    return sorted({1, 2, 7, *(t + d for t in tiles for d in (-1, 0, 1))} - {0})


def matmul(dtype: str = F32) -> PrimFunc:
    n, m, k = te.var("n"), te.var("m"), te.var("k")
    a, b = te.placeholder((n, k), dtype, "A"), te.placeholder((k, m), dtype, "B")
    r = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.create_prim_func([a, b, c])


def fast_matmul(sch: Schedule, lanes: int, pack: str, depth: int = 0) -> None:
    """A register tile of 4 rows by 2 vectors; B in panels ("panel": each thread its own, "root":
    once for all)."""
    width = 2 * lanes
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1, i2 = sch.split(i, [None, 2, 4])
    j0, j1 = sch.split(j, [None, width])
    deep: tuple[LoopRV, ...] = (i1, k)
    if depth:
        k0, k1 = sch.split(k, [None, depth])
        deep = (k0, i1, k1)
    sch.reorder(j0, i0, *deep, i2, j1)
    if pack:
        layout = [[1, width], [0], [1, 1, width]]
        panel = sch.cache_read(block, "B", "global" if pack == "root" else "local", layout)
        if pack == "panel":
            sch.compute_at(panel, j0)
        around = sch.get_loops(panel)
        sch.vectorize(around[-1])
        if pack == "root":
            sch.parallel(around[0])
    sch.unroll(i2)
    sch.vectorize(j1)
    sch.parallel(j0)
    if depth:
        sch.unroll(deep[-1])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("pack", "depth"), [("panel", 0), ("root", 4), ("", 3)])
def test_matmul(target: str, pack: str, depth: int) -> None:
    func = matmul()
    sch = Schedule(func)
    lanes = Target(target).vector_bytes // 4
    fast_matmul(sch, lanes, pack, depth)
    rows, cols, deep = around(4, 8), around(lanes, 2 * lanes), around(3, 4)
    every = list(itertools.product(rows, cols, deep))
    chosen = [every[(7 * k) % len(every)] for k in range(40)] + [(37, 41, 53), (1, 1, 1)]
    sizes = ({"n": n, "m": m, "k": k} for n, m, k in chosen)
    check(sch, func, lambda a, b: a @ b, sizes, target)


@pytest.mark.parametrize("target", TARGETS)
def test_matmul_as_it_stands(target: str) -> None:
    func = matmul("int32")
    sizes = [{"n": n, "m": m, "k": k} for n, m, k in ((1, 1, 1), (3, 5, 7), (8, 16, 1))]
    check(func, func, lambda a, b: a @ b, sizes, target)


def elementwise(extent: Callable[[Any], Any] = lambda m: m) -> PrimFunc:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, extent(m)), F32, "A")
    b = te.compute(a.shape, lambda i, j: a[i, j] * 2 + 1, name="B")
    return te.create_prim_func([a, b])


def whole_row(sch: Schedule, i: LoopRV, j: LoopRV) -> None:
    sch.parallel(i)
    sch.vectorize(j)


def split_row(sch: Schedule, i: LoopRV, j: LoopRV) -> None:
    _, j1 = sch.split(j, [None, 16])
    sch.vectorize(j1)
    sch.parallel(i)


def odd_split(sch: Schedule, i: LoopRV, j: LoopRV) -> None:
    j0, j1 = sch.split(j, [None, 40])
    i0, i1 = sch.split(i, [None, 3])
    sch.reorder(i0, j0, i1, j1)
    sch.unroll(i1)
    sch.vectorize(j1)


def parts(sch: Schedule, i: LoopRV, j: LoopRV) -> None:
    i0, _ = sch.split(i, [3, None])
    _, j1 = sch.split(j, [2, None])
    sch.parallel(i0)
    sch.vectorize(j1)


def columns(sch: Schedule, i: LoopRV, j: LoopRV) -> None:
    """Lanes go down a column, whose elements lie a symbolic stride apart."""
    sch.reorder(j, i)
    sch.vectorize(i)


def streamed(sch: Schedule, i: LoopRV, j: LoopRV) -> None:
    sch.vectorize(j)
    sch.parallel(i)
    sch.annotate(sch.get_block("B"), "streaming", True)


def fused_tail(sch: Schedule, i: LoopRV, j: LoopRV) -> None:
    j0, j1 = sch.split(j, [None, 8])
    sch.reorder(j0, j1, i)
    sch.vectorize(sch.fuse(j1, i))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "schedule", [whole_row, split_row, odd_split, parts, columns, streamed, fused_tail]
)
def test_elementwise(target: str, schedule: Callable[..., None]) -> None:
    func = elementwise()
    sch = Schedule(func)
    schedule(sch, *sch.get_loops(sch.get_block("B")))
    rows = itertools.cycle((1, 2, 3, 7, 4))
    sizes = [{"n": next(rows), "m": m} for m in [*around(4, 8, 16, 40), 101]]
    check(sch, func, lambda a: a * 2 + 1, sizes, target)


@pytest.mark.parametrize("target", TARGETS)
def test_whole_vectors(target: str) -> None:
    """A multiple of the vector needs no tail: the extent says so."""
    func = elementwise(lambda m: 16 * m)
    sch = Schedule(func)
    i, j = sch.get_loops(sch.get_block("B"))
    _, j1 = sch.split(j, [None, 16])
    sch.vectorize(j1)
    sch.parallel(i)
    assert "masked" not in generate_ir(sch.func, Target(target)).ir
    check(sch, func, lambda a: a * 2 + 1, [{"n": 3, "m": m} for m in (1, 2, 5)], target)


def softmax() -> PrimFunc:
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((n, m), F32, "A")
    k, q = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "q")
    top = te.compute((n,), lambda i: te.max(a[i, k], axis=k), name="M")
    e = te.compute((n, m), lambda i, j: te.exp(a[i, j] - top[i]), name="E")
    s = te.compute((n,), lambda i: te.sum(e[i, q], axis=q), name="S")
    out = te.compute((n, m), lambda i, j: e[i, j] / s[i], name="O")
    return te.create_prim_func([a, out])


def numpy_softmax(a: Array) -> Array:
    e = np.exp(a - a.max(axis=1, keepdims=True))
    result: Array = e / e.sum(axis=1, keepdims=True)
    return result


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", ["rows", "split", "root"])
def test_softmax(target: str, form: str) -> None:
    func = softmax()
    sch = Schedule(func)
    if form != "root":
        i, _ = sch.get_loops(sch.get_block("O"))
        for name in "SEM":
            sch.compute_at(sch.get_block(name), i)
        sch.parallel(i)
    for name in "MESO":
        last = sch.get_loops(sch.get_block(name))[-1]
        if form == "split":
            _, last = sch.split(last, [None, 32])
        sch.vectorize(last)
    lanes = Target(target).vector_bytes // 4
    rows = itertools.cycle((1, 2, 5))
    sizes = [{"n": next(rows), "m": m} for m in [*around(lanes, 32, 8 * lanes), 257]]
    check(sch, func, numpy_softmax, sizes, target, rtol=1e-5)
    info = generate_ir(sch.func, Target(target)).info
    each, shared = evaluate_at(info, n=5, m=257)
    # A row's exponentials, or those of all rows and both row vectors.
    row = -(-257 * 4 // 64) * 64
    assert (each, shared) == ((row, 0) if form != "root" else (0, -(-257 * 5 * 4 // 64) * 64 + 128))


def evaluate_at(info: KernelInfo, **sizes: int) -> tuple[int, int]:
    return evaluate(info.thread_bytes, sizes), evaluate(info.workspace_bytes, sizes)


def conv1d() -> PrimFunc:
    """Padded by one on both sides, windows of 3, channels last."""
    length, ci, co = te.var("L"), 5, te.var("CO")
    a = te.placeholder((length, ci), F32, "A")
    w = te.placeholder((3, ci, co), F32, "W")
    zero = te.const(0, F32)
    p = te.compute(
        (length + 2, ci),
        lambda x, c: te.if_then_else(te.all(x >= 1, x < length + 1), a[x - 1, c], zero),
        name="P",
    )
    r, rc = te.reduce_axis((0, 3), "r"), te.reduce_axis((0, ci), "rc")
    out = te.compute(
        (length, co), lambda x, c: te.sum(p[x + r, rc] * w[r, rc, c], axis=[r, rc]), name="O"
    )
    return te.create_prim_func([a, w, out])


def numpy_conv1d(a: Array, w: Array) -> Array:
    padded = np.pad(a, ((1, 1), (0, 0)))
    result: Array = sum(padded[r : r + len(a)] @ w[r] for r in range(3))
    return result


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("inline", [False, True])
def test_conv1d(target: str, inline: bool) -> None:
    func = conv1d()
    sch = Schedule(func)
    lanes = Target(target).vector_bytes // 4
    x, c, r, rc = sch.get_loops(sch.get_block("O"))
    x0, x1 = sch.split(x, [None, 4])
    c0, c1 = sch.split(c, [None, lanes])
    sch.reorder(x0, c0, r, rc, x1, c1)
    if inline:
        sch.compute_inline(sch.get_block("P"))
    else:
        sch.compute_at(sch.get_block("P"), x0)
    sch.unroll(x1)
    sch.vectorize(c1)
    sch.parallel(x0)
    lengths, channels = around(4, 8), itertools.cycle(around(lanes))
    sizes = [{"L": n, "CO": next(channels)} for n in [*lengths, 31, 32, 33]]
    check(sch, func, numpy_conv1d, sizes, target)
    if not inline:
        info = generate_ir(sch.func, Target(target)).info
        assert (info.workspace_bytes, info.thread_bytes) == (0, 0), "six rows, on the stack"


@pytest.mark.parametrize("target", TARGETS)
def test_derived_sizes(target: str) -> None:
    """Shapes, strides, divisors and values made of sizes that no shape gives alone."""
    n, m = te.var("n"), te.var("m")
    a = te.placeholder((2 * n + m, m), "int64", "A")
    rows = a.shape[0]
    b = te.compute(
        ((m + 3) // 4, rows, n + 1),
        lambda i, j, k: te.if_then_else(
            k < n, a[rows - 1 - j, te.min(i * 4, m - 1)] * n + (j + i) % 3, m - k // 2
        ),
        name="B",
    )
    func = te.create_prim_func([a, b])
    sch = Schedule(func)
    i, j, k = sch.get_loops(sch.get_block("B"))
    sch.parallel(j)
    sch.vectorize(k)
    assert i is not None

    def oracle(a: Array) -> Array:
        full, m = a.shape
        n = (full - m) // 2
        i, j, k = np.ix_(range((m + 3) // 4), range(full), range(n + 1))
        inside = a[full - 1 - j, np.minimum(i * 4, m - 1)] * n + (j + i) % 3
        return np.where(k < n, inside, m - k // 2)

    sizes = [{"n": x, "m": y} for x, y in ((1, 1), (7, 5), (8, 4), (3, 17), (16, 2))]
    check(sch, func, oracle, sizes, target)


def test_the_code_of_constants_has_no_sizes() -> None:
    """What is known stays known: nothing is passed, and numbers stand in the code."""
    func = matmul().specialize(n=8, m=16, k=4)
    generated = generate_ir(func, HOST)
    assert generated.info.sizes == ()
    assert "%shared" not in generated.ir
    assert [p.shape for p in generated.info.params] == [(8, 4), (4, 16), (8, 16)]


def test_description() -> None:
    info = generate_ir(elementwise(lambda m: 2 * m + 1), HOST).info
    (a, b), (n, m) = info.params, info.sizes
    assert a.shape == b.shape == ("n", "m * 2 + 1")
    assert (n.name, n.param, n.dim, n.scale, n.offset) == ("n", 0, 0, 1, 0)
    assert (m.name, m.param, m.dim, m.scale, m.offset) == ("m", 0, 1, 2, 1)
    assert info.solve([(3, 9), (3, 9)]) == {"n": 3, "m": 4}
    assert info.at({"n": 3, "m": 4}).params[0].shape == (3, 9)
    with pytest.raises(ValueError, match="m from A"):
        info.solve([(3, 8), (3, 8)])


@pytest.mark.parametrize(
    ("formula", "value"),
    [(5, 5), ("n", 9), ("(n + 7) // 8 * 64", 128), ("m - -n * 2", 21), ("n * m", 27)],
)
def test_formula(formula: int | str, value: int) -> None:
    assert evaluate(formula, {"n": 9, "m": 3}) == value


@pytest.mark.parametrize(
    "formula", ["q", "n ** 2", "f(n)", "n +", "n.real", "True", "1.5", "n if n else m"]
)
def test_formula_refused(formula: str) -> None:
    with pytest.raises(ArgumentError, match=r"formula|needs the size q"):
        evaluate(formula, {"n": 9, "m": 3})


def test_inputs_of_oracles() -> None:
    """The oracles above take the inputs alone, in order."""
    programs: Sequence[PrimFunc] = (matmul(), softmax(), conv1d())
    assert [len(inputs_of(f)) for f in programs] == [2, 1, 2]


def scan() -> PrimFunc:
    """Each row is the one before times the weights, plus the input: m steps, of which m - 1 are
    computed and may be none."""
    m, n = te.var("m"), te.var("n")
    x, w = te.placeholder((m, n), "int32", "X"), te.placeholder((n, n), "int32", "W")
    state = te.placeholder((m, n), "int32", "state")
    k = te.reduce_axis((0, n), "k")
    init = te.compute((1, n), lambda _, i: x[0, i], name="init")
    mixed = te.compute((m, n), lambda t, i: te.sum(state[t - 1, k] * w[k, i], axis=k), name="mixed")
    update = te.compute((m, n), lambda t, i: mixed[t, i] % 8 + x[t, i], name="update")
    return te.create_prim_func([x, w, te.scan(init, update, state, inputs=[x, w])])


def numpy_scan(x: Array, w: Array) -> Array:
    rows = [x[0]]
    for t in range(1, len(x)):
        rows.append((rows[-1] @ w) % 8 + x[t])
    return np.array(rows)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", ["plain", "lanes", "team"])
def test_scan(target: str, form: str) -> None:
    """A recurrence over a symbolic number of steps; its parallel loops make a team of threads."""
    func = scan()
    verify(func)
    sch = Schedule(func)
    for name in ("mixed", "update"):
        i = sch.get_loops(sch.get_block(name))[1]
        if form != "plain":
            i0, i1 = sch.split(i, [None, 8])
            if name == "mixed":
                sch.reorder(i0, sch.get_loops(sch.get_block(name))[-1], i1)
            sch.vectorize(i1)
            if form == "team":
                sch.parallel(i0)
    verify(sch.func)
    sizes = [{"m": m, "n": n} for m, n in ((1, 1), (1, 9), (2, 8), (5, 7), (7, 17), (3, 33))]
    check(sch, func, numpy_scan, sizes, target)
