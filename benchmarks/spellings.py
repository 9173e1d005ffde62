"""Two spellings of one computation tune to programs of one speed: twenty pairs, in turns.

    python benchmarks/spellings.py [--trials 64] [--seeds 0 1] [--only "matmul" ...]

The second spelling has its factors, conditions and reduction axes the other way round, padding
inside the sum, a product in a stage of its own, or elementwise operations on whole tensors. Both
are tuned from no records, with each seed. Then the programs found are timed in turns in several
fresh processes; a spelling's time is the least of its seeds' medians. `apart` is how much longer
the slower one takes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import common
import numpy as np
from search_budget import relative
from tuning_speed import PROCESSES, geometric_mean

import autosched as at
from autosched import te

APART = 1.05
Make = Callable[[bool], list[te.Tensor]]


def P(name: str, *shape: int) -> te.Tensor:
    """A float32 input."""
    return te.placeholder(shape, name=name)


def R(*extents: int) -> list[te.IterVar]:
    """Reduction axes."""
    return [te.reduce_axis((0, n), name=f"r{k}") for k, n in enumerate(extents)]


def product(spec: str, **extents: int) -> Make:
    """A contraction in einsum's words; turned: the other factor and the last reduction first."""
    (left, right), result = spec.split("->")[0].split(","), spec.split("->")[1]
    summed = [c for c in dict.fromkeys(left + right) if c not in result]

    def make(turned: bool) -> list[te.Tensor]:
        A, B = (P(n, *(extents[c] for c in word)) for n, word in (("A", left), ("B", right)))
        axes = {c: te.reduce_axis((0, extents[c]), name=c) for c in summed}

        def element(*at: Any) -> Any:
            of = dict(zip(result, at, strict=True)) | axes
            x, y = A(*(of[c] for c in left)), B(*(of[c] for c in right))
            order = [axes[c] for c in (summed[::-1] if turned else summed)]
            return te.sum(y * x if turned else x * y, axis=order)

        return [A, B, te.compute(tuple(extents[c] for c in result), element, name="C")]

    return make


def conv(size: tuple[int, ...], c: int, o: int, k: int, pad: int = 0) -> Make:
    """A convolution, channels last; turned: padding inside the sum, channels before the window."""

    def make(turned: bool) -> list[te.Tensor]:
        X, W = P("X", 1, *size, c), P("W", *(k for _ in size), c, o)
        taps, (rc,) = R(*(k for _ in size)), [te.reduce_axis((0, c), name="rc")]

        def read(n: Any, at: Sequence[Any], channel: Any) -> Any:
            inside = [t for i, s in zip(at, size, strict=True) for t in (i >= pad, i < s + pad)]
            x = X(n, *(i - pad for i in at), channel)
            return te.if_then_else(te.all(*inside), x, 0.0) if pad else x

        padded = tuple(s + 2 * pad for s in size)
        data: Callable[..., Any] = lambda n, *at: read(n, at[:-1], at[-1])  # noqa: E731
        if pad and not turned:
            data = te.compute((1, *padded, c), data, name="X_pad")  # as sketches name it

        def element(n: Any, *at: Any) -> Any:
            moved = [i + r for i, r in zip(at[:-1], taps, strict=True)]
            x, w = data(n, *moved, rc), W(*taps, rc, at[-1])
            return te.sum(w * x if turned else x * w, axis=[rc, *taps] if turned else [*taps, rc])

        return [X, W, te.compute((1, *(s - k + 1 for s in padded), o), element, name="C")]

    return make


def channels_first(turned: bool) -> list[te.Tensor]:
    """A convolution of channels by rows by columns."""
    X, W, (rc, rh, rw) = P("X", 1, 64, 30, 30), P("W", 64, 64, 3, 3), R(64, 3, 3)

    def element(n: Any, o: Any, h: Any, w: Any) -> Any:
        x, y = X[n, rc, h + rh, w + rw], W[o, rc, rh, rw]
        return te.sum(y * x if turned else x * y, axis=[rw, rh, rc] if turned else [rc, rh, rw])

    return [X, W, te.compute((1, 64, 28, 28), element, name="C")]


def depthwise(turned: bool) -> list[te.Tensor]:
    """One filter a channel."""
    X, W, (rh, rw) = P("X", 1, 58, 58, 128), P("W", 3, 3, 128), R(3, 3)

    def element(n: Any, h: Any, w: Any, c: Any) -> Any:
        x, y = X[n, h + rh, w + rw, c], W[rh, rw, c]
        return te.sum(y * x if turned else x * y, axis=[rw, rh] if turned else [rh, rw])

    return [X, W, te.compute((1, 56, 56, 128), element, name="C")]


def pool(turned: bool) -> list[te.Tensor]:
    """The largest of windows of 2x2."""
    X, (rh, rw) = P("X", 1, 112, 112, 64), R(2, 2)

    def element(n: Any, h: Any, w: Any, c: Any) -> Any:
        row = 2 * h if turned else h * 2
        return te.max(X[n, row + rh, w * 2 + rw, c], axis=[rw, rh] if turned else [rh, rw])

    return [X, te.compute((1, 56, 56, 64), element, name="C")]


def reduced(extents: tuple[int, ...], count: int, reducer: Any) -> Make:
    """A reduction of the first `count` axes."""

    def make(turned: bool) -> list[te.Tensor]:
        A, axes = P("A", *extents), R(*extents[:count])

        def element(*at: Any) -> Any:
            inner = at if len(extents) > count else ()
            return reducer(A(*axes, *inner), axis=axes[::-1] if turned else axes)

        return [A, te.compute(extents[count:] or (1,), element, name="C")]

    return make


def staged(turned: bool) -> list[te.Tensor]:
    """A product of matrices; turned: its terms are a stage, its sums another one."""
    if not turned:
        return product("ik,kj->ij", i=256, k=256, j=256)(False)
    A, B, (k,) = P("A", 256, 256), P("B", 256, 256), R(256)
    T = te.compute((256, 256, 256), lambda i, j, k: A[i, k] * B[k, j], name="T")
    return [A, B, te.compute((256, 256), lambda y, x: te.sum(T[y, x, k], axis=k), name="C")]


def epilogue(turned: bool) -> list[te.Tensor]:
    """A product, a bias and a maximum with zero."""
    A, B, C = product("ik,kj->ij", i=256, k=512, j=512)(turned)
    b = P("b", 512)
    if turned:
        D = te.compute((256, 512), lambda y, x: te.max(0.0, b[x] + C[y, x]), name="D")
    else:
        D = te.compute((256, 512), lambda i, j: te.max(C[i, j] + b[j], 0.0), name="D")
    return [A, B, b, D]


def whole(turned: bool) -> list[te.Tensor]:
    """A product and what follows it, element by element or on whole tensors."""
    A, B, C = product("ik,kj->ij", i=256, k=256, j=512)(False)
    if turned:
        return [A, B, te.tanh(0.5 * C)]
    return [A, B, te.compute((256, 512), lambda i, j: te.tanh(C[i, j] * 0.5), name="tanh")]


def softmax(turned: bool) -> list[te.Tensor]:
    """Of rows."""
    X, (k, r) = P("X", 512, 512), R(512, 512)
    m = te.compute((512,), lambda i: te.max(X[i, k], axis=k), name="m")
    e = te.compute((512, 512), lambda i, j: te.exp(X[i, j] - m[i]), name="e")
    s = te.compute((512,), lambda i: te.sum(e[i, r], axis=r), name="s")
    if turned:
        return [X, te.compute((512, 512), lambda y, x: (1.0 / s[y]) * e[y, x], name="o")]
    return [X, te.compute((512, 512), lambda i, j: e[i, j] * (1.0 / s[i]), name="o")]


PAIRS: dict[str, Make] = {
    "matmul": product("ik,kj->ij", i=512, k=512, j=512),
    "transposed matmul": product("ik,jk->ij", i=256, k=512, j=384),
    "batch matmul": product("bik,bkj->bij", b=12, i=128, k=64, j=128),
    "contraction of two": product("ikl,klj->ij", i=128, k=32, l=24, j=256),
    "attention": product("ihd,jhd->hij", i=128, j=128, h=12, d=64),
    "matrix and vector": product("ik,k->i", i=2048, k=2048),
    "whole tensors": whole,
    "product in a stage": staged,
    "epilogue": epilogue,
    "conv1d": conv((258,), 64, 128, 3),
    "conv2d": conv((30, 30), 64, 128, 3),
    "conv2d channels first": channels_first,
    "conv3d": conv((10, 18, 18), 16, 32, 3),
    "padded conv2d": conv((28, 28), 64, 128, 3, 1),
    "depthwise": depthwise,
    "max pool": pool,
    "norm": reduced((512, 1024), 2, te.sum),
    "sums of columns": reduced((64, 32, 512), 2, te.sum),
    "minimum of a cube": reduced((64, 64, 128), 3, te.min),
    "softmax": softmax,
}


def main() -> int:
    """Tune and time the pairs, and print the bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", nargs="+", choices=list(PAIRS), default=list(PAIRS))
    options = parser.parse_args()
    rows = []
    for name in options.only:
        rows.append(row := compare(name, options.seeds, options.trials))
        print(f"{name}: apart {row['apart']:.3f}; {row['times']}", flush=True)
    worst = max(rows, key=lambda r: r["apart"])
    mean = geometric_mean([r["apart"] for r in rows])
    text = f"{worst['apart']:.3f} ({worst['case']}), mean {mean:.3f}"
    bars = [common.bar("the slower spelling", f"<= {APART}", text, worst["apart"] <= APART)]
    common.finish("spellings", {"rows": rows, "bars": bars})
    return 0


def compare(name: str, seeds: Sequence[int], trials: int) -> dict[str, Any]:
    """Both spellings of one pair."""
    texts = [found(name, turned, seed, trials) for turned in (False, True) for seed in seeds]
    each = []
    for _ in range(PROCESSES):
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            each.append(fresh.apply(relative, (texts,)))
    times = [statistics.median(t) for t in zip(*each, strict=True)]
    first, second = min(times[: len(seeds)]), min(times[len(seeds) :])
    apart = max(first, second) / min(first, second)
    return {"case": name, "apart": apart, "times": np.round(times, 3).tolist()}


def found(name: str, turned: bool, seed: int, trials: int) -> str:
    """The schedule that a run finds, as Python."""
    task = at.SearchTask(prim_func=te.create_prim_func(PAIRS[name](turned)))
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "records.db"
        task.tune(
            at.TuningOptions(
                num_measure_trials=trials,
                measure_callbacks=[at.RecordToStore(str(log))],
                seed=seed,
                verbose=0,
            )
        )
        return task.print_best(str(log))


if __name__ == "__main__":
    sys.exit(main())
