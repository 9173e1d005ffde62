"""What benchmarks share: comparisons in turns, and one line of JSON at the end.

A ratio is only worth something if both sides met the same machine. So the sides of a comparison
take turns, many times over, in one run; each side's time is its minimum over all turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from peer_client import OtherLoad, Peer

from autosched.runtime.function import Function
from autosched.target.machine import FmaPeak

MATMUL_ENGINES = ("numpy-skx", "torch", "ort", "openvino")
CONV_ENGINES = ("torch", "torch-cl", "ort", "openvino", "openvino-nhwc")
ROW_ENGINES = ("numpy", "torch", "torch-alloc", "ort", "openvino")

DISTURBED = 0.1
"""Cores that others may use before a comparison says that it was disturbed."""
# Long enough for an idle worker of our own pool to stop spinning and sleep.
SETTLE_SECONDS = 0.005


@dataclass(frozen=True)
class Side:
    """One of our own programs: `call()` from Python, and `native()`: seconds without Python."""

    name: str
    call: Callable[[], object]
    native: Callable[[], float]

    @staticmethod
    def of(name: str, function: Function, arrays: Sequence[Any]) -> Side:
        """A built function on fixed arrays."""
        arguments = tuple(arrays)
        function(*arguments)
        once = function.time_evaluator(number=1, repeat=5)(*arguments).min
        # One reading of the clock should not be part of what is measured.
        number = max(1, int(20e-6 / once))
        evaluate = function.time_evaluator(
            number=number, repeat=max(5, int(0.01 / (once * number)))
        )
        return Side(name, lambda: function(*arguments), lambda: evaluate(*arguments).min)


@dataclass
class Times:
    """Minimum of each turn of one side, in seconds: called from Python, and either the kernel's own
    or, for a peer, what a call costs."""

    python: list[float] = field(default_factory=list)
    native: list[float] = field(default_factory=list)
    overhead: list[float] = field(default_factory=list)

    def take(self, rounds: Sequence[int]) -> Times:
        """These rounds only."""
        columns = (self.python, self.native, self.overhead)
        return Times(*([column[n] for n in rounds if column] for column in columns))

    @property
    def best(self) -> float:
        """Minimum from Python."""
        return min(self.python)

    @property
    def best_native(self) -> float:
        """Minimum without Python."""
        return min(self.native) if self.native else self.best - min(self.overhead)


def measure(call: Callable[[], object], calls: int, seconds: float) -> float:
    """Minimum in seconds over at least `calls` calls that together take at least `seconds`."""
    clock = time.perf_counter
    best = float("inf")
    end = clock() + seconds
    done = 0
    while done < calls or clock() < end:
        start = clock()
        call()
        took = clock() - start
        best = took if took < best else best
        done += 1
    return best


def compare(
    case: str,
    ours: Side,
    peers: Sequence[Peer],
    *,
    flop: int,
    bar: float,
    others: Sequence[Side] = (),
    peak: FmaPeak | None = None,
    rounds: int = 12,
    seconds: float = 0.03,
) -> dict[str, Any]:
    """Time all sides in turns; print and return the figures.

    A ratio is the time of the fastest engine over ours: above 1, ours is faster. `python` calls
    both from Python, which is what `bar` is for; `native` is our kernel in a native loop, and the
    engine's time less what a call costs it on the smallest workload. `others` are further
    programs of our own, that `ours` is to be held against. `peak` is measured in turns too.

    A round during which other processes had more than `DISTURBED` cores does not count for any
    side and is repeated; where hardly a round is quiet all count, and the figures say so.
    """
    sides = [ours, *others]
    times = {side.name: Times() for side in sides} | {peer.engine: Times() for peer in peers}
    peaks: list[float] = []
    loads: list[float] = []
    while sum(load <= DISTURBED for load in loads) < rounds and len(loads) < 3 * rounds:
        load = OtherLoad(peers)
        for side in sides:
            times[side.name].python.append(measure(side.call, 5, seconds))
            times[side.name].native.append(side.native())
        if peak is not None:
            peaks.append(peak.rate(10))
        time.sleep(SETTLE_SECONDS)  # our idle workers stop spinning before the peers run
        for peer in peers:
            least, call = peer.turn(5, seconds)
            times[peer.engine].python.append(least)
            times[peer.engine].overhead.append(call)
        loads.append(load.cores())
    quiet = [n for n, load in enumerate(loads) if load <= DISTURBED]
    if len(quiet) >= rounds // 2:
        times = {name: t.take(quiet) for name, t in times.items()}
        peaks = [peaks[n] for n in quiet] if peaks else []
        loads = [loads[n] for n in quiet]
    load_cores = statistics.fmean(loads)
    return _figures(case, ours, peers, times, flop, bar, max(peaks, default=0.0), load_cores)


def _figures(
    case: str,
    ours: Side,
    peers: Sequence[Peer],
    times: dict[str, Times],
    flop: int,
    bar: float,
    peak: float,
    load: float,
) -> dict[str, Any]:
    python = {name: t.best for name, t in times.items()}
    native = {name: t.best_native for name, t in times.items()}
    engines = [peer.engine for peer in peers]
    fastest = min(engines, key=python.__getitem__)
    fastest_native = min(engines, key=native.__getitem__)
    pairs = zip(times[fastest].python, times[ours.name].python, strict=True)
    figures: dict[str, Any] = {
        "case": case,
        "threads": peers[0].threads,
        "weights": peers[0].weights,
        "python_s": python,
        "native_s": native,
        "fastest": fastest,
        "ratio": python[fastest] / python[ours.name],
        "ratio_native": native[fastest_native] / native[ours.name],
        "ratio_median": statistics.median(theirs / mine for theirs, mine in pairs),
        "gflops": flop / native[ours.name] / 1e9,
        "bar": bar,
        "other_load_cores": load,
    }
    figures["met"] = figures["ratio"] >= bar
    if peak:
        figures["peak_gflops"] = peak / 1e9
        figures["peak_share"] = flop / native[ours.name] / peak
    _print(figures, ours.name, flop)
    return figures


def _print(figures: dict[str, Any], ours: str, flop: int) -> None:
    threads = figures["threads"]
    print(
        f"\n{figures['case']}: float32, {threads} thread{'s' if threads > 1 else ''}, "
        f"weights {figures['weights']} on both sides"
    )
    width = max(len(name) for name in figures["python_s"])
    print(f"  {'':<{width}}  from Python, ms  native, ms   GFLOP/s")
    for name, seconds in sorted(figures["python_s"].items(), key=lambda item: item[1]):
        native = figures["native_s"][name]
        rate = flop / native / 1e9
        mark = " <-" if name == ours else ""
        print(f"  {name:<{width}}  {seconds * 1e3:15.4f}  {native * 1e3:10.4f}  {rate:8.1f}{mark}")
    print(
        f"  {ours} against the fastest engine ({figures['fastest']}): {figures['ratio']:.3f} from "
        f"Python (bar {figures['bar']:.2f}, {'met' if figures['met'] else 'NOT met'}), "
        f"{figures['ratio_native']:.3f} native, {figures['ratio_median']:.3f} in the median round"
    )
    if figures["other_load_cores"] > DISTURBED:
        cores = figures["other_load_cores"]
        print(f"  DISTURBED: other processes kept {cores:.2f} cores busy meanwhile")
    if "peak_share" in figures:
        print(
            f"  {figures['peak_share']:.3f} of the FMA peak of the same run "
            f"({figures['peak_gflops']:.0f} GFLOP/s)"
        )
    sys.stdout.flush()


def bar(case: str, bar: str, measured: str, met: bool) -> dict[str, Any]:
    """One row of the table of bars."""
    return {"case": case, "bar": bar, "measured": measured, "met": met}


def ratio_bar(figures: dict[str, Any]) -> dict[str, Any]:
    """The row of a comparison made by `compare`."""
    return bar(
        f"{figures['case']}, {figures['threads']} threads",
        f">= {figures['bar']:.2f} of {figures['fastest']}",
        f"{figures['ratio']:.3f} (native {figures['ratio_native']:.3f})",
        figures["met"],
    )


def finish(benchmark: str, figures: dict[str, Any]) -> None:
    """The last line of a benchmark: all of its figures as one JSON object."""
    print(json.dumps({"benchmark": benchmark, **figures}), flush=True)
