"""Random programs that tensor cores can do, with what NumPy makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gpu_run import Array

from autosched import te
from autosched.schedule import Schedule
from autosched.tir import dtypes
from autosched.tir.expr import Expr
from autosched.tir.nodes import PrimFunc, inputs_of

Rng = random.Random
PAIRS = (
    ("float16", "float16"),
    ("bfloat16", "bfloat16"),
    ("int8", "int8"),
    ("uint8", "int8"),
    ("int8", "uint8"),
    ("uint8", "uint8"),
)


@dataclass(frozen=True)
class Case:
    """A program, in words, and what it computes of operands and of what is added, in float64."""

    words: str
    func: PrimFunc
    expected: Callable[..., Array]

    def wanted(self, inputs: Sequence[Array]) -> Array:
        """The output, in float64."""
        return self.expected(*(wide(a) for a in inputs))

    def arrays(self, seed: int) -> list[Array]:
        """Operands: bytes of all values, halves in (-1, 1)."""
        rng = np.random.default_rng(seed)
        found: list[Array] = []
        for b in inputs_of(self.func):
            if b.dtype in ("int8", "uint8"):
                kind = np.iinfo(b.dtype)
                found.append(rng.integers(kind.min, kind.max, b.shape, b.dtype, endpoint=True))
            elif b.dtype == "int32":
                found.append(rng.integers(-1000, 1000, b.shape).astype(b.dtype))
            elif b.dtype == "bfloat16":
                found.append(dtypes.from_float32(rng.uniform(-1, 1, b.shape)))
            else:
                found.append(rng.uniform(-1, 1, b.shape).astype(b.dtype))
        return found

    def check(self, found: Array, wanted: Array, note: object = "") -> None:
        """Hold an output equal to the wanted one: integers are the same."""
        kind = self.func.params[-1].dtype
        tolerance = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5, "int32": 0.0}[kind]
        # Rounded to a half the sum errs in proportion to itself; each term may, before.
        largest = max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(
            wide(found), wanted, rtol=0, atol=tolerance * largest, err_msg=f"{self.words} {note}"
        )


def wide(a: Array) -> Array:
    """Elements in float64; bfloat16 are the only bits that are no values."""
    return (dtypes.to_float32(a) if a.dtype == np.uint16 else a).astype(np.float64)


def sums(*factors: Expr, dtype: str, axis: Any) -> Expr:
    left, right = (x.astype(dtype) for x in factors)
    return te.sum(left * right, axis=axis)


def product(rng: Rng, low: int = 1, high: int = 70) -> Case:
    """A product of matrices, either operand perhaps transposed, perhaps batched."""
    kind = rng.choice(["plain", "A transposed", "B transposed", "batched", "grouped"])
    left, right = rng.choice(PAIRS)
    n, m, k = (rng.randint(low, high) for _ in range(3))
    if rng.random() < 0.4:
        n, m, k = (max(x // 8 * 8, 1) for x in (n, m, k))
    total, z = total_of(left), rng.randint(1, 3)
    r0 = te.reduce_axis((0, k), name="k")
    shapes, terms, out = {
        "plain": (((n, k), (k, m)), "ik,kj->ij", (n, m)),
        "A transposed": (((k, n), (k, m)), "ki,kj->ij", (n, m)),
        "B transposed": (((n, k), (m, k)), "ik,jk->ij", (n, m)),
        "batched": (((z, n, k), (z, k, m)), "zik,zkj->zij", (z, n, m)),
        "grouped": (((n, z, k), (z, k, m)), "izk,zkj->izj", (n, z, m)),
    }[kind]
    a = te.placeholder(shapes[0], name="A", dtype=left)
    b = te.placeholder(shapes[1], name="B", dtype=right)
    operands, letters = terms.split("->")
    first, second = operands.split(",")

    def element(*at: Expr) -> Expr:
        place = {**dict(zip(letters, at, strict=True)), "k": r0}
        pair = a(*(place[x] for x in first)), b(*(place[x] for x in second))
        return sums(*pair, dtype=total, axis=r0)

    c = te.compute(out, element, name="C")
    words = f"{kind} {left} {right} {shapes}"
    return stored(rng, words, (a, b, c), lambda x, y: np.einsum(terms, x, y))


def plain(
    n: int, m: int, depth: int, left: str = "float16", right: str = "", turned: bool = False
) -> Case:
    """A product of matrices, B perhaps (m, depth)."""
    total, k = total_of(left), te.reduce_axis((0, depth), name="k")
    a = te.placeholder((n, depth), name="A", dtype=left)
    b = te.placeholder((m, depth) if turned else (depth, m), name="B", dtype=right or left)
    c = te.compute(
        (n, m),
        lambda i, j: sums(a(i, k), b(j, k) if turned else b(k, j), dtype=total, axis=k),
        name="C",
    )
    words = f"{left} {right} {n} x {depth} x {m}"
    return Case(words, te.create_prim_func([a, b, c]), lambda x, y: x @ (y.T if turned else y))


def with_itself(n: int, depth: int, turned: bool = False) -> Case:
    """A matrix by its transpose, or by itself."""
    a = te.placeholder((n, depth), name="A", dtype="float16")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute(
        (n, n if turned else depth),
        lambda i, j: sums(a(i, k), a(j, k) if turned else a(k, j), dtype="float32", axis=k),
        name="C",
    )
    words = f"a matrix of {n} x {depth} by {'its transpose' if turned else 'itself'}"
    return Case(words, te.create_prim_func([a, c]), lambda x: x @ (x.T if turned else x))


def convolution(rng: Rng, low: int = 1, high: int = 70) -> Case:
    """A convolution, of windows of 1 or 3 elements, padded so that it keeps its size."""
    left, right = rng.choice(PAIRS)
    size, step = rng.choice([1, 3]), rng.choice([1, 1, 2])
    h, w = rng.randint(1, 4), rng.randint(low, min(high, 34))
    ci, co = (rng.choice([rng.randint(low, high), max(low, 16), 32, 64]) for _ in range(2))
    pad, total = size // 2, total_of(left)
    a = te.placeholder((h * step, w * step, ci), name="A", dtype=left)
    b = te.placeholder((size, size, ci, co), name="B", dtype=right)
    padded = te.compute(
        (h * step + 2 * pad, w * step + 2 * pad, ci),
        lambda y, x, c: te.if_then_else(
            te.all(y >= pad, y < h * step + pad, x >= pad, x < w * step + pad),
            a(y - pad, x - pad, c),
            te.const(0, left),
        ),
        name="P",
    )
    source = padded if pad else a
    rh, rw = (te.reduce_axis((0, size), name=x) for x in ("rh", "rw"))
    rc = te.reduce_axis((0, ci), name="rc")
    c = te.compute(
        (h, w, co),
        lambda y, x, o: sums(
            source(y * step + rh, x * step + rw, rc),
            b(rh, rw, rc, o),
            dtype=total,
            axis=[rh, rw, rc],
        ),
        name="C",
    )

    def expected(x: Array, f: Array) -> Array:
        whole = np.pad(x, ((pad, pad), (pad, pad), (0, 0)))
        return sum(
            whole[i : i + h * step : step, j : j + w * step : step] @ f[i, j]
            for i in range(size)
            for j in range(size)
        )

    words = f"conv {left} {right} {a.shape} {b.shape} step {step}"
    return stored(rng, words, (a, b, c), expected)


def stored(
    rng: Rng, words: str, tensors: Sequence[Any], expected: Callable[[Array, Array], Array]
) -> Case:
    """With what may follow the sums: something added, rectified, rounded."""
    a, b, c = tensors
    total = c.dtype
    if rng.random() < 0.4:
        return Case(words, te.create_prim_func([a, b, c]), expected)
    d = te.placeholder((c.shape[-1],), name="D", dtype=total)
    out = rng.choice([total, "float16" if total == "float32" else total])
    zero, relu = te.const(0, total), rng.random() < 0.5

    def element(*at: Expr) -> Expr:
        value = c(*at) + d(at[-1])
        return (te.max(value, zero) if relu else value).astype(out)

    def with_more(x: Array, y: Array, added: Array) -> Array:
        value = expected(x, y) + added
        return np.maximum(value, 0) if relu else value

    e = te.compute(c.shape, element, name="E")
    return Case(f"{words} + D{' relu' * relu} {out}", te.create_prim_func([a, b, d, e]), with_more)


def in_context(what: str, n: int) -> Case:
    """A product of (n, 32) and (32, 24) halves among other computations."""
    m, depth = 24, 32
    a = te.placeholder((n, depth), name="A", dtype="float16")
    b = te.placeholder((depth, m), name="B", dtype="float16" if what != "scaled" else "int8")

    def product_of(x: te.Tensor, y: te.Tensor, name: str) -> te.Tensor:
        k = te.reduce_axis((0, y.shape[0]), name=f"k_{name}")
        shape = (x.shape[0], y.shape[1])
        return te.compute(
            shape, lambda i, j: sums(x(i, k), y(k, j), dtype="float32", axis=k), name=name
        )

    scaled = te.compute(
        (depth, m), lambda i, j: b(i, j).astype("float16") * te.const(0.5, "float16"), name="S"
    )
    c = product_of(a, scaled if what == "scaled" else b, "C")
    if what == "scaled":
        return Case(what, te.create_prim_func([a, b, c]), lambda x, y: x @ y / 2)
    if what == "turned":
        d = te.compute((m, n), lambda j, i: c(i, j), name="D")
        return Case(what, te.create_prim_func([a, b, d]), lambda x, y: (x @ y).T)
    if what == "cut":
        d = te.compute((n - 3, 20), lambda i, j: c(i + 3, j + 1), name="D")
        return Case(what, te.create_prim_func([a, b, d]), lambda x, y: (x @ y)[3:, 1:21])
    if what == "flat":
        d = te.compute((n * m,), lambda i: c(i // m, i % m), name="D")
        return Case(what, te.create_prim_func([a, b, d]), lambda x, y: (x @ y).reshape(-1))
    half = te.compute((n, m), lambda i, j: c(i, j).astype("float16"), name="H")
    e = te.placeholder((m, n), name="E", dtype="float16")
    second = product_of(half, e, "D")
    out = te.compute((n, n), lambda i, j: second(i, j).astype("float16"), name="F")
    return Case(what, te.create_prim_func([a, b, e, out]), lambda x, y, z: (x @ y) @ z)


def total_of(dtype: str) -> str:
    return "int32" if "int" in dtype else "float32"


def case(seed: int, low: int = 1, high: int = 70) -> Case:
    """A random program of sizes from `low` to `high`."""
    rng = random.Random(seed)
    return rng.choice([product, product, convolution])(rng, low, high)


def by_hand(
    shape: tuple[int, int, int] = (32, 24, 64),
    *,
    lanes: str = "rows, columns",
    thread: str = "threadIdx.x",
    shared: bool = True,
    scope: str = "local",
    turned: bool = True,
    bound: bool = True,
    copies: int = 2,
) -> tuple[PrimFunc, PrimFunc]:
    """(plain, scheduled): a product of halves, a warp of which computes 16 by 8 results; with what
    a user may do wrong."""
    n, m, depth = shape
    a = te.placeholder((n, depth), name="A", dtype="float16")
    b = te.placeholder((depth, m), name="B", dtype="float16")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((n, m), lambda i, j: sums(a[i, k], b[k, j], dtype="float32", axis=k), name="C")
    d = te.compute((n, m), lambda i, j: c[i, j] * 2, name="D")
    plain = te.create_prim_func([a, b, d])
    sch = Schedule(plain)
    block, out = sch.get_block("C"), sch.get_block("D")
    fetches = [sch.cache_read(block, number, "shared") for number in (0, 1)] if shared else []
    sch.set_scope(block, 0, scope)
    i, j = sch.get_loops(out)
    i0, row, g = sch.split(i, [None, 2, 8])
    j0, t, column = sch.split(j, [None, 4, 2])
    sch.reorder(i0, j0, *((g, t) if lanes == "rows, columns" else (t, g)), row, column)
    for loop, name in ((i0, "blockIdx.y"), (j0, "blockIdx.x"), (g, thread), (t, thread)):
        if bound:
            sch.bind(loop, name)
    for axis, factor in ((2, 16), (1, 8), (2, 2), (0, 16), (1, 8)):
        sch.split_axis(block, axis, factor)
    layout = [[0, 16], [0, 8, 2], [0, 1, 8], [1, 8], [1, 2, 4], [1, 1, 2]]
    if turned:
        sch.transform_layout(block, ("write", 0), layout)
    sch.compute_at(block, t if lanes == "rows, columns" else g)
    tile, rows, mine, across, pair, columns, steps, terms = sch.get_loops(block)[-8:]
    sch.reorder(steps, tile, mine, across, pair, rows, columns, terms)
    for loop in (tile, mine, across, pair):
        sch.unroll(loop)
    sch.tensorize(rows, "mma_m16n8k16_f16f16f32")
    for copy in fetches:
        sch.compute_at(copy, steps)
        sch.annotate(copy, "cooperative", 8)
        sch.double_buffer(copy, copies)
    return plain, sch.func
