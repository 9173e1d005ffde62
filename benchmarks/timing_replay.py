"""What each constant of the timing protocol is worth, by recorded calls.

    python benchmarks/timing_replay.py [--records benchmarks/timing_records.npz] [--draws 100]
        [--constant least=3 ...]

Runs the real sampler and the real sample blocks (`measure.timing`) over what `timing_record.py` has
recorded: a candidate's block begins at one of its stretches, in the order in which they were taken,
and goes on in the next one. Each draw is a run of a pool: candidates in random order, groups as in
`LocalPool.measure`, then the final re-measurement of the best five. Two figures, each the mean over
draws and records:

    quality  the true time of the best candidate over that of the winner; the true time is the
             median over all rounds of a stretch's fastest sample, over which clock and placement
             average out
    wall     seconds of blocks for a candidate: calls, probes, and what a request costs beyond them

Printed for the constants as they are, then for each at other values, and by condition.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import inf
from pathlib import Path
from typing import Any

import common
import numpy as np
from interference_probe import shared_by

from measure.timing.block import take_block
from measure.timing.plan import SEARCH, StopRule, TimingPlan, final
from measure.timing.sampler import Sampler
from measure.timing.timing import Timing

RECORDS = Path(__file__).with_name("timing_records.npz")
GROUP, FINALISTS = 8, 5
PLAN, FINAL = TimingPlan(), final(10)


@dataclass(frozen=True)
class Protocol:
    """All constants: of a block, of a round, of the final re-measurement. `probe`: whether samples
    on shared cores count as disturbed, by the interference probe.
    `places`: whether the blocks of a finalist find the arguments in one placement after the other,
    as in the pool; all others have one placement."""

    plan: TimingPlan = PLAN
    search: StopRule = SEARCH
    final: StopRule = FINAL
    probe: bool = False
    places: bool = True

    def with_constant(self, name: str, value: Any) -> Protocol:
        """With one constant changed: "plan.repeats", "search.least", "final.margin", "probe"."""
        part, _, field = name.partition(".")
        if not field:
            return replace(self, **{part: value})
        return replace(self, **{part: replace(getattr(self, part), **{field: value})})


@dataclass(frozen=True)
class Record:
    """One record: (rounds, candidates, samples, columns) and what its head says."""

    head: dict[str, Any]
    samples: np.ndarray[Any, Any]
    first: np.ndarray[Any, Any]

    @property
    def truth(self) -> np.ndarray[Any, Any]:
        """Seconds of each candidate."""
        found: np.ndarray[Any, Any] = np.median(self.samples[..., 0].min(axis=2), axis=0)
        return found

    @property
    def nominal(self) -> float:
        """The clock probe's time, as a pool learns it."""
        return float(self.samples[..., 2].min())


class Player:
    """A candidate's recorded calls from a round on, as a kernel, a clock and two probes."""

    def __init__(self, record: Record, candidate: int, start: int, probe: bool) -> None:
        self._record, self._rows = record, record.samples[:, candidate].reshape(-1, 4)
        self._each = record.samples.shape[2]
        self._next = start * self._each
        self.first = float(record.first[start, candidate])
        self._row = self._rows[self._next]
        self._waited, self._probe = 0.0, probe
        self.seconds = self.first + record.head["stretch_seconds"]

    def call(self, number: int) -> float:
        """As `Runnable.call`."""
        self._row = self._rows[self._next % len(self._rows)]
        self._next += 1
        total = float(self._row[0]) * number
        alone = self._record.head["alone_cycles"]
        shared = shared_by(float(self._row[3]), alone) if self._probe and alone else 0.0
        self._waited += max(float(self._row[1]), shared) * total
        self.seconds += total
        return total

    def clock(self) -> float:
        """The clock probe, beside the sample before."""
        self.seconds += 2 * float(self._row[2])
        return float(self._row[2])

    def waited(self) -> float:
        """Seconds without a core so far."""
        return self._waited


def replayed(record: Record, protocol: Protocol, rng: np.random.Generator) -> tuple[float, float]:
    """(quality, seconds a candidate) of one run."""
    rounds, count = record.samples.shape[:2]
    start, spent = int(rng.integers(rounds)), 0.0
    taken = np.zeros(count, int)

    def block(
        candidate: int, known: float | None, best: float | None, places: bool = False
    ) -> Timing:
        nonlocal spent
        step = 1 if places else record.head["places"]
        at = (start + step * taken[candidate]) % rounds
        taken[candidate] += 1
        player = Player(record, candidate, at, protocol.probe)
        found = take_block(
            player.call, player.clock, known or player.first, protocol.plan, record.nominal,
            best, player.waited,
        )  # fmt: skip
        spent += player.seconds
        return found

    best, seconds = inf, {}
    order = rng.permutation(count)
    for begin in range(0, count, GROUP):
        group = [int(n) for n in order[begin : begin + GROUP]]
        sampler = Sampler(protocol.search, best)
        for n in group:
            limit = sampler.best_seconds
            sampler.add(n, block(n, None, None if limit == inf else limit))
        while (wanted := sampler.next()) is not None:
            sampler.add(wanted, block(wanted, sampler.timing(wanted).seconds, None))
        best = sampler.best_seconds
        seconds |= {n: sampler.timing(n).seconds for n in group}
    finalists = sorted(seconds, key=seconds.__getitem__)[:FINALISTS]
    sampler = Sampler(protocol.final)
    for n in finalists:
        sampler.add(n, block(n, None, None))
    while (wanted := sampler.next()) is not None:
        known = sampler.timing(wanted).seconds
        sampler.add(wanted, block(wanted, known, None, protocol.places))
    winner = min(finalists, key=lambda n: sampler.timing(n).seconds)
    truth = record.truth
    return float(truth.min() / truth[winner]), spent / count


def judged(
    records: Sequence[Record], protocol: Protocol, draws: int
) -> tuple[float, float, list[tuple[float, float]]]:
    """(quality, seconds a candidate) over all records, geometric means, and of each record. The
    same draws for every protocol."""
    each = []
    for record in records:
        found = [replayed(record, protocol, np.random.default_rng(n)) for n in range(draws)]
        each.append(tuple(float(np.exp(np.mean(np.log(x)))) for x in zip(*found, strict=True)))
    quality, wall = (math.exp(np.mean(np.log(x))) for x in zip(*each, strict=True))
    return quality, wall, each  # type: ignore[return-value]


def load(path: Path) -> list[Record]:
    """The records of a file."""
    with np.load(path) as file:
        heads = json.loads(str(file["heads"]))
        return [
            Record(head, file[f"r{n}_samples"].astype(float), file[f"r{n}_first"].astype(float))
            for n, head in enumerate(heads)
        ]


def variants() -> Iterator[tuple[str, Any]]:
    """Each constant of the protocol at other values."""
    now = Protocol()
    yield "probe", True
    yield "places", False
    for part in ("plan", "search", "final"):
        rule = getattr(now, part)
        for field in fields(rule):
            value = getattr(rule, field.name)
            if field.name in ("number", "cooldown_ms", "flush_cache", "wall_ms"):
                continue  # what a user asks for, and a clock that records do not have
            for other in _others(field.name, value):
                yield f"{part}.{field.name}", other


def _others(name: str, value: Any) -> Sequence[Any]:
    if isinstance(value, bool):
        return (not value,)
    if name == "margin":
        return (1.0, 1.03, 1.05, 1.1, 1.2)
    if isinstance(value, int):
        return sorted({max(1, value // 2), value - 1 or 1, value + 1, 2 * value} - {value})
    return (value / 2, value * 2)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--constant", nargs="*", default=[], help="only these, as NAME=VALUE,…")
    options = parser.parse_args()
    records = load(options.records)
    base = judged(records, Protocol(), options.draws)
    print(f"{'as it is':32} quality {base[0]:.4f}, wall {base[1] * 1e3:.2f} ms a candidate")
    for record, (quality, wall) in zip(records, base[2], strict=True):
        head = record.head
        name = f"{head['workload']}, {head['threads']} threads, {head['condition']}"
        loads = " to ".join(f"{x:.1f}" for x in head["load_average"])
        print(f"  {name:52} (load {loads}) quality {quality:.4f}, wall {wall * 1e3:.2f} ms")
    rows = [{"constant": "", "quality": base[0], "wall_s": base[1]}]
    for name, protocol in chosen(options.constant):
        quality, wall, _ = judged(records, protocol, options.draws)
        print(
            f"{name:32} quality {quality:.4f} ({quality - base[0]:+.4f}), "
            f"wall {wall * 1e3:.2f} ms ({wall / base[1] - 1:+.1%})",
            flush=True,
        )
        rows.append({"constant": name, "quality": quality, "wall_s": wall})
    common.finish("timing_replay", {"rows": rows})


def chosen(texts: Sequence[str]) -> Iterator[tuple[str, Protocol]]:
    """The protocols to be compared with the one that is: as asked for, or each constant in turn."""
    parse: Callable[[str], Any] = json.loads
    if texts:
        for text in texts:
            protocol = Protocol()
            for one in text.split(","):
                name, _, value = one.partition("=")
                protocol = protocol.with_constant(name, parse(value))
            yield text, protocol
        return
    for name, value in variants():
        yield f"{name} = {value}", Protocol().with_constant(name, value)


if __name__ == "__main__":
    main()
