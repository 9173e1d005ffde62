"""Programs whose written element moves while they reduce, and what NumPy makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched.script import parse_func
from autosched.tir.nodes import PrimFunc

Arrays = list[Any]


@dataclass(frozen=True)
class Scatter:
    """`text` computes what `oracle` returns for the inputs; `block` is the one that scatters."""

    text: str
    block: str
    oracle: Callable[..., Any]
    bins: int = 5

    def func(self) -> PrimFunc:
        return parse_func(self.text)

    def arrays(self, seed: int = 0) -> Arrays:
        """Inputs and a poisoned output; integers may lie outside the bins, on both sides."""
        rng = np.random.default_rng(seed)
        out: Arrays = []
        for b in self.func().params:
            shape = tuple(int(n) for n in b.shape)
            low, high = (-2, self.bins + 2) if b.dtype == "int64" else (-4, 5)
            out.append(rng.integers(low, high, shape).astype(b.dtype))
        out[-1][...] = 77
        return out


def zeroed(name: str, shape: tuple[int, ...], value: str = "0.0") -> str:
    """The nest that sets all elements of a buffer."""
    axes = [f"z{n}" for n in range(len(shape))]
    own = [f"w{n}" for n in range(len(shape))]
    lines = [
        f"for {', '.join(axes)} in T.grid({', '.join(map(str, shape))}):",
        '    with T.block("zero"):',
        *(
            f"        {w} = T.axis.spatial({n}, {z})"
            for w, n, z in zip(own, shape, axes, strict=True)
        ),
        f"        {name}[{', '.join(own)}] = {value}",
    ]
    return "\n".join("    " + line for line in lines)


HISTOGRAM = Scatter(
    f"""
@T.prim_func
def histogram(A: T.Buffer((40,), "int64"), H: T.Buffer((5,), "int64")):
{zeroed("H", (5,), "0")}
    for v in T.serial(40):
        with T.block("count"):
            vv = T.axis.reduce(40, v)
            H[T.max(T.min(A[vv], 4), 0)] += 1
""",
    "count",
    lambda a, h: np.bincount(np.clip(a, 0, 4), minlength=5),
)
BATCH = Scatter(
    f"""
@T.prim_func
def histograms(A: T.Buffer((6, 40), "int64"), W: T.Buffer((6, 40)), H: T.Buffer((6, 5))):
{zeroed("H", (6, 5))}
    for b, v in T.grid(6, 40):
        with T.block("count"):
            vb, vv = T.axis.remap("SR", [b, v])
            H[vb, T.max(T.min(A[vb, vv], 4), 0)] += W[vb, vv]
""",
    "count",
    lambda a, w, h: np.stack(
        [np.bincount(np.clip(x, 0, 4), y, 5) for x, y in zip(a, w, strict=True)]
    ),
)
ROWS = Scatter(
    f"""
@T.prim_func
def scatter_add(I: T.Buffer((12,), "int64"), X: T.Buffer((12, 20)), Y: T.Buffer((7, 20))):
{zeroed("Y", (7, 20))}
    for v, j in T.grid(12, 20):
        with T.block("add"):
            vv, vj = T.axis.remap("RS", [v, j])
            Y[T.max(T.min(I[vv], 6), 0), vj] += X[vv, vj]
""",
    "add",
    lambda i, x, y: np.stack([x[np.clip(i, 0, 6) == n].sum(0) for n in range(7)]),
    7,
)
HIGHEST = Scatter(
    f"""
@T.prim_func
def highest(I: T.Buffer((30,), "int64"), X: T.Buffer((30,)), Y: T.Buffer((5,))):
{zeroed("Y", (5,), 'T.float32("-inf")')}
    for v in T.serial(30):
        with T.block("top"):
            vv = T.axis.reduce(30, v)
            Y[T.max(T.min(I[vv], 4), 0)] = T.max(Y[T.max(T.min(I[vv], 4), 0)], X[vv])
""",
    "top",
    lambda i, x, y: np.array([max(x[np.clip(i, 0, 4) == n], default=-np.inf) for n in range(5)]),
)
COL2IM = Scatter(
    f"""
@T.prim_func
def col2im(X: T.Buffer((4, 5, 3, 3)), Y: T.Buffer((10, 12))):
{zeroed("Y", (10, 12))}
    for i, j, p, q in T.grid(4, 5, 3, 3):
        with T.block("add"):
            vi, vj, vp, vq = T.axis.remap("RRRR", [i, j, p, q])
            Y[vi * 2 + vp, vj * 2 + vq] += X[vi, vj, vp, vq]
""",
    "add",
    lambda x, y: sum(
        np.pad(x[i, j], ((2 * i, 7 - 2 * i), (2 * j, 9 - 2 * j)))
        for i in range(4)
        for j in range(5)
    ),
)
PAIRS = Scatter(
    f"""
@T.prim_func
def pairs(A: T.Buffer((6, 16)), B: T.Buffer((6, 8))):
{zeroed("B", (6, 8))}
    for i, k in T.grid(6, 16):
        with T.block("add"):
            vi, vk = T.axis.remap("SR", [i, k])
            B[vi, vk // 2] += A[vi, vk]
""",
    "add",
    lambda a, b: a.reshape(6, 8, 2).sum(2),
)
OUTER = Scatter(
    f"""
@T.prim_func
def full(X: T.Buffer((6,)), W: T.Buffer((4,)), Y: T.Buffer((9,))):
{zeroed("Y", (9,))}
    for i, k in T.grid(6, 4):
        with T.block("add"):
            vi, vk = T.axis.remap("RR", [i, k])
            Y[vi + vk] += X[vi] * W[vk]
""",
    "add",
    lambda x, w, y: np.convolve(x, w),
)
COLUMNS = Scatter(
    f"""
@T.prim_func
def columns(A: T.Buffer((6, 24)), B: T.Buffer((24,))):
{zeroed("B", (24,))}
    for i, k in T.grid(6, 24):
        with T.block("add"):
            vi, vk = T.axis.remap("RR", [i, k])
            B[vk] += A[vi, vk]
""",
    "add",
    lambda a, b: a.sum(0),
)
STRIDED = Scatter(
    f"""
@T.prim_func
def strided(A: T.Buffer((30,)), B: T.Buffer((7,))):
{zeroed("B", (7,), "1.0")}
    for k in T.serial(30):
        with T.block("add"):
            vk = T.axis.reduce(30, k)
            B[6 - vk % 7] += A[vk] * 2.0
""",
    "add",
    lambda a, b: np.array([1 + 2 * a[n::7].sum() for n in range(7)])[::-1],
)
THROUGH = Scatter(
    f"""
@T.prim_func
def through(A: T.Buffer((24,), "int64"), Y: T.Buffer((5,), "int64")):
    C = T.alloc_buffer((24,), "int64")
    H = T.alloc_buffer((5,), "int64")
    for v in T.serial(24):
        with T.block("C"):
            vv = T.axis.spatial(24, v)
            C[vv] = A[vv] + 1
{zeroed("H", (5,), "0")}
    for v in T.serial(24):
        with T.block("count"):
            vv = T.axis.reduce(24, v)
            H[T.max(T.min(C[vv], 4), 0)] += C[vv]
    for v in T.serial(5):
        with T.block("Y"):
            vv = T.axis.spatial(5, v)
            Y[vv] = H[4 - vv] * 2
""",
    "count",
    lambda a, y: 2 * np.array([(a + 1)[np.clip(a + 1, 0, 4) == n].sum() for n in range(5)])[::-1],
)
LATEST = Scatter(
    """
@T.prim_func
def best(
    I: T.Buffer((30,), "int64"),
    X: T.Buffer((30,)),
    T0: T.Buffer((5,)),
    Y: T.Buffer((5,), "int64"),
):
    for v in T.serial(5):
        with T.block("zero"):
            vv = T.axis.spatial(5, v)
            T0[vv] = T.float32("-inf")
            Y[vv] = 9223372036854775807
    for v in T.serial(30):
        with T.block("best"):
            vv = T.axis.reduce(30, v)
            with T.identity():
                Y[T.max(T.min(I[vv], 4), 0)] = 9223372036854775807
                T0[T.max(T.min(I[vv], 4), 0)] = T.float32("-inf")
            old_at = Y[T.max(T.min(I[vv], 4), 0)]
            old = T0[T.max(T.min(I[vv], 4), 0)]
            new_at = vv
            new = X[vv]
            first = old > new or old == new and old_at < new_at
            Y[T.max(T.min(I[vv], 4), 0)] = T.select(first, old_at, new_at)
            T0[T.max(T.min(I[vv], 4), 0)] = T.select(first, old, new)
""",
    "best",
    lambda i, x, t, y: np.array(
        [
            int(np.argmax(np.where(np.clip(i, 0, 4) == n, x, -np.inf)))
            if (np.clip(i, 0, 4) == n).any()
            else np.iinfo(np.int64).max
            for n in range(5)
        ]
    ),
)
PROGRAMS = {name.lower(): value for name, value in globals().items() if isinstance(value, Scatter)}
