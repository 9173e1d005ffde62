"""The code generator alone: schedules written by hand, primitives of `Schedule` only.

Weights come at run time on both sides, so packing them is part of what is timed.

    python benchmarks/codegen.py [--case NAME ...] [--threads 1 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import common
import numpy as np
import peer_client

import autosched as at
from autosched import ops, te
from autosched.building.build import BuiltFunction
from autosched.runtime.arrays import empty
from autosched.schedule import LoopRV
from autosched.target import Target
from autosched.target.machine import FmaPeak

PEAK_BAR = 0.92


@dataclass(frozen=True)
class MatmulTiles:
    """How a matmul is cut.

    The register tile is `mr` rows by `nr` vectors. `pack`: B is copied to panels of nr vectors by
    each thread for the panels that it works on ("panel"), once for all threads before ("root"), or
    not at all. A block is `rows` by `panels` register tiles; `order` "ji" goes down the blocks of
    a column before it takes the next column, "ij" the reverse. Threads divide the outer of these
    two loops, or, with `both`, all blocks. `depth` cuts the reduction (0: not cut).
    """

    mr: int = 8
    nr: int = 2
    pack: Literal["panel", "root", "no"] = "panel"
    order: Literal["ji", "ij"] = "ji"
    rows: int = 8
    panels: int = 1
    both: bool = False
    depth: int = 0


def matmul_schedule(
    sch: at.Schedule, lanes: int, tiles: MatmulTiles, block: str = "C", epilogue: str | None = None
) -> None:
    """Cut, pack, unroll and vectorise the matmul `block` of `sch`.

    `epilogue` names an elementwise consumer to be computed on each register tile as it is done.
    """
    width = tiles.nr * lanes
    product = sch.get_block(block)
    i, j, k = sch.get_loops(product)
    i0, i1, i2 = sch.split(i, [None, tiles.rows, tiles.mr])
    j0, j1, j2 = sch.split(j, [None, tiles.panels, width])
    if tiles.depth:
        k0, k1 = sch.split(k, [None, tiles.depth])
        deep: tuple[LoopRV, ...] = (k0, i1, j1, k1)
    else:
        deep = (i1, j1, k)
    outer, inner = (j0, i0) if tiles.order == "ji" else (i0, j0)
    sch.reorder(outer, inner, *deep, i2, j2)
    if tiles.pack != "no":
        panel = sch.cache_read(
            product,
            "B",
            "global" if tiles.pack == "root" else "local",
            layout=[[1, width], [0], [1, 1, width]],
        )
        if tiles.pack == "panel":
            sch.compute_at(panel, j0)
        around = sch.get_loops(panel)
        sch.vectorize(around[-1])
        if tiles.pack == "root":
            sch.parallel(around[0])
    if epilogue is not None:
        # Below the last loop that holds whole register tiles.
        consumer = sch.get_block(epilogue)
        sch.reverse_compute_at(consumer, deep[-2])
        *_, row, column = sch.get_loops(consumer)
        sch.unroll(row)
        sch.vectorize(column)
    sch.unroll(i2)
    sch.vectorize(j2)
    sch.parallel(outer)
    if tiles.both:
        sch.parallel(inner)


@dataclass(frozen=True)
class ConvTiles:
    """How a convolution (y, x, co; ry, rx, rc) is cut: `rows` of output a parallel piece, a
    register tile of `mr` positions along x by `nr` vectors of channels."""

    rows: int = 4
    mr: int = 14
    nr: int = 2


def conv2d_schedule(sch: at.Schedule, lanes: int, tiles: ConvTiles, block: str = "conv2d") -> None:
    """Cut the convolution `block`; each piece of rows pads its own input."""
    conv = sch.get_block(block)
    y, x, co, ry, rx, rc = sch.get_loops(conv)
    y0, y1 = sch.split(y, [None, tiles.rows])
    x0, x1 = sch.split(x, [None, tiles.mr])
    c0, c1 = sch.split(co, [None, tiles.nr * lanes])
    sch.reorder(y0, c0, y1, x0, ry, rx, rc, x1, c1)
    pad = sch.get_block("pad")
    sch.compute_at(pad, y0)
    sch.vectorize(sch.get_loops(pad)[-1])
    sch.unroll(x1)
    sch.vectorize(c1)
    sch.parallel(y0)


@dataclass(frozen=True)
class Case:
    """One comparison: a workload of the library, its peers, and the schedule by thread count."""

    name: str
    operator: Callable[..., Any]
    args: tuple[int, ...]
    peer: str
    engines: tuple[str, ...]
    bar: float
    schedule: Callable[[at.Schedule, int, int], None]
    peak_bar: float | None = None


def _matmul(
    n: int, depth: int, m: int, bar: float, *tiles: MatmulTiles, peak_bar: float | None = None
) -> Case:
    """A case of matmul; `tiles` for 1 thread and for more (one for both if only one is given)."""

    def schedule(sch: at.Schedule, lanes: int, threads: int) -> None:
        matmul_schedule(sch, lanes, tiles[0] if threads == 1 else tiles[-1])

    sizes = (n, depth, m)
    text = ",".join(str(x) for x in sizes)
    name = f"matmul {'x'.join(str(x) for x in sizes)}"
    return Case(
        name, ops.matmul, sizes, f"matmul:{text}", common.MATMUL_ENGINES, bar, schedule, peak_bar
    )


def _conv2d(sch: at.Schedule, lanes: int, threads: int) -> None:
    conv2d_schedule(sch, lanes, ConvTiles())


CASES = (
    _matmul(1024, 1024, 1024, 1.0, MatmulTiles(rows=16), peak_bar=PEAK_BAR),
    _matmul(128, 128, 128, 1.1, MatmulTiles(pack="no", order="ij", rows=4, panels=4)),
    _matmul(512, 32, 512, 1.1, MatmulTiles(pack="no", order="ij", rows=2, panels=2)),
    _matmul(
        384,
        1000,
        520,
        1.0,
        MatmulTiles(mr=8, nr=3, pack="no", order="ji", rows=1),
        MatmulTiles(mr=6, nr=3, pack="no", order="ji", rows=16, both=True),
    ),
    Case(
        "conv2d 56x56 64->64 k3 p1 (C2D-R50)",
        ops.conv2d,
        (56, 56, 64, 64, 3, 1, 1),
        "conv2d:56,56,64,64,3,1,1",
        common.CONV_ENGINES,
        1.0,
        _conv2d,
    ),
)


def build(case: Case, target: Target, threads: int) -> BuiltFunction:
    """The case's schedule, built."""
    sch = at.Schedule(te.create_prim_func(case.operator(*case.args)))
    case.schedule(sch, target.vector_bytes // 4, threads)
    return at.build(sch, target=target)


def arrays(case: Case, built: BuiltFunction) -> list[np.ndarray[Any, Any]]:
    """Random inputs and an output; the first call is checked against NumPy in float64."""
    rng = np.random.default_rng(0)
    made = [empty(p.shape, p.dtype) for p in built.args]
    for array in made[:-1]:
        array[:] = rng.standard_normal(array.shape)
    built(*made)
    expected = _expected(case, made[:-1])
    error = float(np.abs(made[-1] - expected).max() / np.abs(expected).max())
    if not error < 1e-5:
        raise ArithmeticError(f"{case.name}: the result is wrong, relative error {error:.1e}")
    return made


def _expected(case: Case, inputs: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    a, b = (x.astype(np.float64) for x in inputs)
    if case.operator is ops.matmul:
        product: np.ndarray[Any, Any] = a @ b
        return product
    _, _, _, _, k, stride, pad = case.args
    padded = np.pad(a, ((pad, pad), (pad, pad), (0, 0)))
    h, w = ((n + 2 * pad - k) // stride + 1 for n in a.shape[:2])
    out = np.zeros((h, w, b.shape[-1]))
    for y in range(k):
        for x in range(k):
            part = padded[y : y + h * stride : stride, x : x + w * stride : stride]
            out += part @ b[y, x]
    return out


def flop(case: Case) -> int:
    """Multiplications and additions of the case."""
    if case.operator is ops.matmul:
        n, depth, m = case.args
        return 2 * n * depth * m
    h, w, ci, co, k, stride, pad = case.args
    rows, columns = ((n + 2 * pad - k) // stride + 1 for n in (h, w))
    return 2 * rows * columns * ci * co * k * k


def run(case: Case, target: Target, threads: int) -> dict[str, Any]:
    """One case at one number of threads."""
    built = build(case, target, threads)
    data = arrays(case, built)
    ours = common.Side.of("autosched", built.with_threads(threads), data)
    peers = peer_client.open_peers(case.engines, case.peer, threads)
    try:
        return common.compare(
            case.name,
            ours,
            peers,
            flop=flop(case),
            bar=case.bar,
            peak=FmaPeak(target, threads, ours.native()),
        )
    finally:
        peer_client.close(peers)


def main() -> None:
    """Print every comparison and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    target = Target("llvm")
    rows, bars = [], []
    for case in CASES:
        if not any(part in case.name for part in options.case):
            continue
        for threads in options.threads:
            figures = run(case, target, threads)
            rows.append(figures)
            bars.append(common.ratio_bar(figures))
            if case.peak_bar is not None:
                share = figures["peak_share"]
                bars.append(
                    common.bar(
                        f"{case.name}, {threads} threads",
                        f">= {case.peak_bar} of FMA peak",
                        f"{share:.3f}",
                        share >= case.peak_bar,
                    )
                )
    common.finish("codegen", {"rows": rows, "bars": bars})


if __name__ == "__main__":
    main()
