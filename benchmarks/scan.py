"""Recurrences with schedules written by hand: cumulative sum, Elman RNN and LSTM.

The engines have their weights as constants, prepared beforehand; ours come at run time, and packing
them is part of what is timed.

    python benchmarks/scan.py [--case NAME ...] [--threads 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import common
import numpy as np
import peer_client

import autosched as at
from autosched import ops, te
from autosched.runtime.arrays import empty
from autosched.schedule import BlockRV
from autosched.target import Target

ENGINES = ("numpy", "torch", "ort", "openvino")
TOLERANCE = 1e-5


@dataclass(frozen=True)
class ColumnTiles:
    """Columns of a running sum that one task carries through all steps."""

    columns: int = 256


def cumsum_schedule(sch: at.Schedule, tiles: ColumnTiles) -> None:
    """Columns are independent: they go outside the time loop and run in parallel."""
    t, j = sch.get_loops(sch.get_block("step"))
    outer, lanes = sch.split(j, [None, tiles.columns])
    sch.reorder(outer, t, lanes)
    sch.vectorize(sch.get_loops(sch.get_block("first"))[-1])
    sch.vectorize(lanes)
    sch.parallel(outer)


@dataclass(frozen=True)
class CellTiles:
    """How a cell is cut.

    The projection of the inputs, beforehand for all steps: register tiles of `rows` steps (or
    batch rows) by `width` columns of a gate. A step: register tiles of `batch` rows by `columns`
    of every gate, divided over threads within each step; with `apart`, threads take rows of the
    batch instead, each through all steps by itself. `copies` of the reduction share a tile; with
    `gate_by_gate` a tile is of one gate, so that it has room for more rows.
    """

    rows: int = 8
    width: int = 32
    batch: int = 1
    columns: int = 32
    copies: int = 1
    apart: bool = False
    gate_by_gate: bool = False


def cell_schedule(sch: at.Schedule, tiles: CellTiles) -> None:
    """Schedule `ops.rnn` or `ops.lstm`."""
    _project(sch, tiles)
    product, step = sch.get_block("recurrent"), sch.get_block("step")
    _pack(sch, product, tiles.columns)
    t, b, h = sch.get_loops(step)
    b0, b1 = sch.split(b, [None, tiles.batch])
    h0, h1 = sch.split(h, [None, tiles.columns])
    outer, inner = (b0, h0) if tiles.apart else (h0, b0)
    sch.reorder(outer, inner, b1, h1)
    sch.compute_at(product, inner)
    row, gate, column, r = sch.get_loops(product)[-4:]
    r0, r1 = sch.split(r, [None, tiles.copies])
    order = (gate, r0, r1, row) if tiles.gate_by_gate else (r0, r1, row, gate)
    sch.reorder(*order, column)
    for loop in (r1, row) if tiles.gate_by_gate else (r1, row, gate):
        sch.unroll(loop)
    for loop in (column, h1):
        sch.vectorize(loop)
    if tiles.apart:
        sch.reorder(b0, t)
    sch.parallel(outer)


def _project(sch: at.Schedule, tiles: CellTiles) -> None:
    """The product of the inputs of all steps, and its bias, in register tiles."""
    product, known = sch.get_block("projected"), sch.get_block("known")
    _pack(sch, product, tiles.width)
    t, b, g, h, k = sch.get_loops(product)
    # A batch of one has no rows for a tile: it takes those of neighbouring steps.
    whole, cut = (t, b) if sch.get(b).extent > 1 else (b, t)
    outer, rows = sch.split(cut, [None, tiles.rows])
    h0, h1 = sch.split(h, [None, tiles.width])
    sch.reorder(g, h0, whole, outer, k, rows, h1)
    sch.reverse_compute_at(known, outer)
    sch.vectorize(sch.get_loops(known)[-1])
    sch.unroll(rows)
    sch.vectorize(h1)
    for loop in (g, h0):
        sch.parallel(loop)


def _pack(sch: at.Schedule, product: BlockRV, width: int) -> None:
    """Read the weight through panels of `width` rows, which stand side by side."""
    panel = sch.cache_read(product, 1, "global", [[0, width], [1], [0, 1, width]])
    outer, _, lanes = sch.get_loops(panel)
    sch.parallel(outer)
    sch.vectorize(lanes)


@dataclass(frozen=True)
class Case:
    """One comparison: a workload of the library, its schedule, and what it is held against."""

    operator: str
    args: tuple[int, ...]
    bar: float
    schedule: Callable[[at.Schedule], None]
    flop: int

    @property
    def name(self) -> str:
        """The operator with its arguments, as peers are told."""
        return f"{self.operator}:{','.join(str(n) for n in self.args)}"


def _case(operator: str, args: tuple[int, ...], bar: float, tiles: CellTiles) -> Case:
    t, b, i, h = args
    gates = {"rnn": 1, "lstm": 4}[operator]
    return Case(
        operator, args, bar, lambda sch: cell_schedule(sch, tiles), 2 * t * b * gates * h * (i + h)
    )


CASES = (
    Case("cumsum", (1024, 1024), 0.9, lambda s: cumsum_schedule(s, ColumnTiles()), 1024 * 1024),
    _case("rnn", (128, 1, 256, 256), 1.5, CellTiles(columns=16, copies=8)),
    _case("rnn", (128, 16, 256, 256), 1.0, CellTiles(batch=8, columns=32, apart=True)),
    _case("lstm", (128, 1, 256, 256), 1.0, CellTiles(columns=16, copies=2)),
    _case(
        "lstm",
        (128, 16, 256, 256),
        1.0,
        CellTiles(batch=16, columns=16, copies=4, gate_by_gate=True),
    ),
)


def reference(name: str, arrays: list[Any]) -> Any:
    """The result in float64, step by step."""
    x, *weights = (a.astype(np.float64) for a in arrays)
    if name == "cumsum":
        return np.cumsum(x, axis=0)
    w_ih, w_hh, b_ih, b_hh = weights
    h = c = np.zeros((x.shape[1], w_hh.shape[1]))
    out = []
    for row in x:
        gates = row @ w_ih.T + b_ih + h @ w_hh.T + b_hh
        if name == "rnn":
            h = np.tanh(gates)
        else:
            i, f, g, o = np.split(gates, 4, axis=1)
            i, f, o = (1 / (1 + np.exp(-v)) for v in (i, f, o))
            c = f * c + i * np.tanh(g)
            h = o * np.tanh(c)
        out.append(h)
    return np.stack(out)


def run(case: Case, target: Target, threads: int) -> dict[str, Any]:
    """One comparison."""
    sch = at.Schedule(te.create_prim_func(ops.get(case.operator)(*case.args)))
    case.schedule(sch)
    built = at.build(sch, target=target)
    rng = np.random.default_rng(0)
    arrays = [empty(p.shape, p.dtype) for p in built.args]
    for n, array in enumerate(arrays[:-1]):
        array[:] = rng.standard_normal(array.shape) * (1.0 if n == 0 else 0.05)
    built(*arrays)
    expected = reference(case.operator, arrays[:-1])
    error = float(np.abs(arrays[-1] - expected).max() / np.abs(expected).max())
    if not error < TOLERANCE:
        raise ArithmeticError(f"{case.name}: the result is wrong, relative error {error:.1e}")
    ours = common.Side.of("autosched", built.with_threads(threads), arrays)
    peers = peer_client.open_peers(ENGINES, case.name, threads, "constant")
    try:
        figures = common.compare(case.name, ours, peers, flop=case.flop, bar=case.bar)
    finally:
        peer_client.close(peers)
    print(f"  relative error {error:.1e}")
    return {**figures, "relative_error": error, "our_weights": "run-time"}


def main() -> None:
    """Print every comparison and end with one JSON line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--case", nargs="+", help="only cases whose name holds one of these")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    target = Target("llvm")
    chosen = [c for c in CASES if not options.case or any(n in c.name for n in options.case)]
    rows = [run(case, target, options.threads) for case in chosen]
    common.finish("scan", {"rows": rows, "bars": [common.ratio_bar(row) for row in rows]})


if __name__ == "__main__":
    main()
