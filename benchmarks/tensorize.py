"""What `tensorize` gains: a matrix product of bytes and one of bfloat16 by AVX-512 dot products,
against the best schedules by hand without them, on int32 and float32, and against the same tiles
without them. One thread; every result is compared with NumPy.

The dot products take B in panels that are made beforehand (weights); the int32 and float32 sides
pack B within the call, as in `codegen.py`, which is a few percent of it.

    python benchmarks/tensorize.py [--size 1024]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import codegen
import common
import numpy as np
import numpy.typing as npt

import autosched as at
from autosched import ops, te
from autosched.codegen.intrinsics import BF16, VNNI
from autosched.runtime.arrays import empty
from autosched.tir import dtypes
from autosched.tir.intrin import TensorIntrin

ROWS, PANELS, LANES = 8, 2, 16
TURNS = 15
Array = npt.NDArray[Any]


def program(size: int, left: str, right: str, total: str, group: int) -> te.Tensor:
    """C = A @ B, with B in panels of 16 columns, and in them groups of `group` rows."""
    a = te.placeholder((size, size), name="A", dtype=left)
    b = te.placeholder((size // LANES, size // group, LANES, group), name="B", dtype=right)
    k = te.reduce_axis((0, size), name="k")

    def value(i: Any, j: Any) -> Any:
        x, y = a[i, k], b[j // LANES, k // group, j % LANES, k % group]
        return te.sum(x.astype(total) * y.astype(total), axis=k)

    return te.create_prim_func([a, b, te.compute((size, size), value, name="C")])


def schedule(size: int, left: str, right: str, total: str, group: int, intrin: str) -> at.Schedule:
    """One register tile for all: 14 rows of 2 vectors; `intrin` empty is without tensorize."""
    sch = at.Schedule(program(size, left, right, total, group))
    i, j, k = sch.get_loops(sch.get_block("C"))
    i0, i1 = sch.split(i, [None, ROWS])
    j0, j1, j2 = sch.split(j, [None, PANELS, LANES])
    k0, k1 = sch.split(k, [None, group])
    if intrin:
        sch.reorder(j0, i0, k0, i1, j1, j2, k1)
        sch.tensorize(j2, intrin)
    else:
        sch.reorder(j0, i0, k0, k1, i1, j1, j2)
        sch.unroll(k1)
        sch.vectorize(j2)
    sch.unroll(i1)
    sch.unroll(j1)
    return sch


def packed(b: Array, group: int) -> Array:
    """B in the layout of `program`."""
    k, m = b.shape
    out: Array = b.reshape(k // group, group, m // LANES, LANES).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(out)


def by_hand(size: int, dtype: str) -> at.Schedule:
    """The schedule of `codegen.py` for a matrix product of one dtype."""
    sch = at.Schedule(te.create_prim_func(ops.matmul(size, size, size, dtype)))
    codegen.matmul_schedule(sch, LANES, codegen.MatmulTiles(rows=16))
    return sch


SIDES: dict[str, tuple[str, str, str, int, str]] = {
    "int8 dot": ("uint8", "int8", "int32", 4, VNNI),
    "int8 plain": ("uint8", "int8", "int32", 1, ""),
    "int32 by hand": ("int32", "int32", "int32", 0, ""),
    "bfloat16 dot": ("bfloat16", "bfloat16", "float32", 2, BF16),
    "bfloat16 plain": ("bfloat16", "bfloat16", "float32", 1, ""),
    "float32 by hand": ("float32", "float32", "float32", 0, ""),
}
"""dtypes of A, B and C, rows of B in a group (0: B as it is), intrinsic."""
PAIRS = (("int8 dot", "int32 by hand", 2.0), ("bfloat16 dot", "float32 by hand", 1.2))
"""Bars: the first at least so many times as fast as the second."""


def prepared(name: str, size: int) -> Callable[[], float]:
    """Build one side, check its result, and give what times it."""
    left, right, total, group, _ = SIDES[name]
    rng = np.random.default_rng(0)

    def stored(b: Array) -> Array:
        return packed(b, group) if group else b

    if "int" in total:
        a, b = rng.integers(0, 256, (size, size)), rng.integers(-128, 128, (size, size))
        arrays = [a.astype(left), stored(b.astype(right))]
        wide = a.astype(np.float64) @ b
    else:
        a, b = (rng.standard_normal((size, size)).astype(np.float32) for _ in range(2))
        if left == "bfloat16":
            a, b = dtypes.from_float32(a), dtypes.from_float32(b)
            wide = dtypes.to_float32(a).astype(np.float64) @ dtypes.to_float32(b)
        else:
            wide = a.astype(np.float64) @ b
        arrays = [a, stored(b)]
    sch = schedule(size, *SIDES[name]) if group else by_hand(size, total)
    built = at.build(sch, target=at.Target("llvm -num-cores=1"))
    out = empty((size, size), total)
    built(*arrays, out)
    error = float(np.abs(out - wide).max() / np.abs(wide).max())
    if error > (0 if "int" in total else 1e-5):
        raise ArithmeticError(f"{name}: the result is wrong, relative error {error:.1e}")
    evaluate = built.time_evaluator(number=1)
    return lambda: float(evaluate(*arrays, out).min)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1024)
    size = parser.parse_args().size
    features = at.Target("llvm").features
    names = [n for n, s in SIDES.items() if not s[4] or TensorIntrin.get(s[4]).features <= features]
    for name in SIDES.keys() - set(names):
        print(f"{name}: this machine lacks {', '.join(TensorIntrin.get(SIDES[name][4]).features)}")
    timers = {name: prepared(name, size) for name in names}
    seconds: dict[str, float] = dict.fromkeys(names, float("inf"))
    for _ in range(TURNS):
        for name, timer in timers.items():
            seconds[name] = min(seconds[name], timer())
    for name, took in seconds.items():
        rate = 2 * size**3 / took / 1e9
        print(f"{name:15} {took * 1e3:8.3f} ms  {rate:8.1f} G operations/s")
    bars = []
    for fast, slow, bar in PAIRS:
        if fast in seconds:
            ratio = seconds[slow] / seconds[fast]
            print(f"{fast} over {slow}: {ratio:.2f}")
            case = f"matmul {size}: {fast} against {slow}"
            bars.append(common.bar(case, f">= {bar:.1f}", f"{ratio:.2f}", ratio >= bar))
    common.finish("tensorize", {"size": size, "seconds": seconds, "bars": bars})


if __name__ == "__main__":
    main()
