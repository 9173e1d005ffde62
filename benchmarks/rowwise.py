"""Softmax and layer norm on 4096 rows of 1024, with the default schedule: nothing tuned or written
by hand. Also the error of the vectorised exp, in units in the last place.

    python benchmarks/rowwise.py [--threads 1 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import common
import numpy as np
import numpy.typing as npt
import peer_client

import autosched as at
from autosched import ops, te
from autosched.runtime.arrays import empty
from autosched.sketch.default import default_schedule
from autosched.target import Target

ROWS, COLUMNS = 4096, 1024
EXP_SAMPLES = 1 << 20
Array = npt.NDArray[Any]


def softmax(data: Array) -> Array:
    """The reference, in the precision of `data`."""
    e = np.exp(data - data.max(axis=1, keepdims=True))
    result: Array = e / e.sum(axis=1, keepdims=True)
    return result


def layer_norm(data: Array, gamma: Array, beta: Array) -> Array:
    """The reference, in the precision of `data`."""
    centred = data - data.mean(axis=1, keepdims=True)
    scale = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5)
    result: Array = centred / scale * gamma + beta
    return result


CASES: dict[str, tuple[ops.Operator, Callable[..., Array], int]] = {
    "softmax": (ops.softmax, softmax, 4),
    "layer_norm": (ops.layer_norm, layer_norm, 7),
}
"""Name -> operator, reference, FLOP an element."""


def run(name: str, target: Target, threads: int) -> dict[str, Any]:
    """One operator at one number of threads."""
    operator, reference, per_element = CASES[name]
    func = te.create_prim_func(operator(ROWS, COLUMNS))
    built = at.build(default_schedule(func, target), target=target)
    rng = np.random.default_rng(0)
    arrays = [empty(p.shape, p.dtype) for p in built.args]
    for array in arrays[:-1]:
        array[:] = rng.standard_normal(array.shape)
    built(*arrays)
    expected = reference(*(a.astype(np.float64) for a in arrays[:-1]))
    error = float(np.abs(arrays[-1] - expected).max() / np.abs(expected).max())
    if not error < 1e-5:
        raise ArithmeticError(f"{name}: the result is wrong, relative error {error:.1e}")
    ours = common.Side.of("autosched", built.with_threads(threads), arrays)
    workload = f"{name}:{ROWS},{COLUMNS}"
    peers = peer_client.open_peers(common.ROW_ENGINES, workload, threads)
    try:
        figures = common.compare(
            f"{name} {ROWS}x{COLUMNS}, default schedule",
            ours,
            peers,
            flop=per_element * ROWS * COLUMNS,
            bar=1.0,
        )
    finally:
        peer_client.close(peers)
    moved = sum(a.nbytes for a in arrays)
    figures["gbytes_s"] = moved / figures["native_s"]["autosched"] / 1e9
    print(f"  {figures['gbytes_s']:.1f} GB/s of arguments read and written once")
    return figures


def exp_error(target: Target) -> dict[str, Any]:
    """Largest error of exp in ulp on 2^20 float32 bit patterns, and its special values.

    The reference is NumPy's exp in float64, rounded; a result is off by k ulp if k floats
    lie between it and the reference.
    """
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, EXP_SAMPLES, dtype=np.uint32)
    drawn = bits.view(np.float32)
    # Most bit patterns overflow or round to 1; so half of the sample is where exp is interesting.
    x = empty(EXP_SAMPLES)
    x[:] = np.where(np.isnan(drawn), 0, drawn)
    x[::2] = rng.uniform(-104, 89, EXP_SAMPLES // 2)
    special = [
        np.inf,
        -np.inf,
        np.nan,
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        88.72284,
        -87.33655,
        -103.97,
        -150,
    ]
    x[: len(special)] = special
    source = te.placeholder((EXP_SAMPLES,), name="x")
    result = te.compute((EXP_SAMPLES,), lambda i: te.exp(source[i]), name="y")
    func = te.create_prim_func([source, result])
    built = at.build(default_schedule(func, target), target=target)
    y = empty(EXP_SAMPLES)
    built(x, y)
    with np.errstate(over="ignore", under="ignore"):
        expected = np.exp(x.astype(np.float64)).astype(np.float32)
    finite = np.isfinite(expected)
    same_class = bool(
        ((np.isnan(y) == np.isnan(expected)) & (np.isinf(y) == np.isinf(expected))).all()
    )
    # Non-negative floats are ordered as their bit patterns are.
    distance = np.abs(
        y[finite].view(np.int32).astype(np.int64) - expected[finite].view(np.int32).astype(np.int64)
    )
    worst = int(distance.argmax())
    return {
        "samples": EXP_SAMPLES,
        "max_ulp": int(distance[worst]),
        "worst_at": float(x[finite][worst]),
        "special_values": same_class,
    }


def main() -> None:
    """Print every comparison and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[2])
    options = parser.parse_args()
    target = Target("llvm")
    rows = [run(name, target, threads) for name in CASES for threads in options.threads]
    error = exp_error(target)
    print(
        f"\nexp: at most {error['max_ulp']} ulp on {error['samples']} float32 inputs "
        f"(worst at {error['worst_at']:.6g}); infinities and NaN "
        f"{'as they should be' if error['special_values'] else 'WRONG'}"
    )
    bars = [common.ratio_bar(row) for row in rows]
    met = error["max_ulp"] <= 1 and error["special_values"]
    bars.append(common.bar("exp on 2^20 float32", "<= 1 ulp", f"{error['max_ulp']} ulp", met))
    common.finish("rowwise", {"rows": rows, "exp": error, "bars": bars})


if __name__ == "__main__":
    main()
