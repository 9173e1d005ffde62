"""Figures of whole populations: tapes for what has an array form, one by one what has none.

`Evaluator` runs a function of the analysis (`Figures`) over the candidates of a space. Replay,
analysis and figures of each variant are recorded once, on candidates drawn as differently as they
come; rows that break a fact that the recording relied on have it recorded again with them added,
which gives a more general tape. `evaluate_columns` is the direct way, without a tape: it serves
what cannot be recorded, what is asked for once only, and the tests as an oracle.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

from autosched.errors import NotBatchable, ScheduleError, TuningError
from autosched.schedule import Trace
from autosched.search.analysis import Analysis, analyse
from autosched.search.footprint import Floats, floats
from autosched.search.recorder import NotRecordable
from autosched.search.tape import Rows, Tape, record
from autosched.sketch.decisions import Mask, TileSpec
from autosched.sketch.space import Population, Space
from autosched.target import Target
from autosched.tir.affine import IntArray
from autosched.tir.nodes import PrimFunc

Figures = Callable[[Analysis], tuple[Sequence[Floats], Sequence[Floats]]]
"""What is wanted of a candidate: result columns, and the elements of its row of float32."""
T = TypeVar("T")
PIECE = 2048
"""Candidates that one thread evaluates at a time."""
EXPLORED = 96
"""Candidates drawn for a recording from the space, and as many evenly."""
RECORDINGS = 6
"""Times that a variant is recorded; what still breaks a guard then goes the direct way."""


@dataclass(frozen=True)
class Part:
    """Candidates of one variant: `rows` index the population, `results` is (K, n), `table` float32
    (n, width), as wide as the variant's figures."""

    variant: int
    rows: IntArray
    results: Floats
    table: Rows


class Evaluator:
    """`figures` of the candidates of one space. `width` results a candidate."""

    def __init__(self, space: Space, figures: Figures) -> None:
        self.space = space
        self.figures = figures
        self.bounds = {
            name: (1.0, float(s.extent))
            if isinstance(s, TileSpec)
            else (float(min(s.values)), float(max(s.values)))
            for s in space.specs
            for name in s.names
        }
        self._tapes: dict[int, Tape | None] = {}
        self._recordings: dict[int, int] = {}
        self._odd: dict[int, Population] = {}
        self._lock = threading.Lock()

    def parts(self, population: Population) -> list[Part]:
        """All candidates that replay, in parts of one variant and at most PIECE rows."""
        return self.map(population, lambda part: part)

    def map(self, population: Population, then: Callable[[Part], T]) -> list[T]:
        """`then` of every part, computed on all cores; the order is always the same. Raises
        TuningError for candidates of another space."""
        if population.names != self.space.names:
            raise TuningError(
                f"a population with the decisions {', '.join(population.names) or 'none'} is not "
                f"of the space of {self.space.func.name}, which has "
                f"{', '.join(self.space.names) or 'none'}; expected one that this task's policy "
                "or space sampled"
            )
        pieces = [
            (v, rows[k : k + PIECE])
            for v, rows in population.groups()
            for k in range(0, len(rows), PIECE)
        ]

        def work(piece: tuple[int, IntArray]) -> list[T]:
            return [then(part) for part in self._piece(population, *piece)]

        if len(pieces) == 1 or self.space.target.num_cores == 1:
            found = [work(piece) for piece in pieces]
        else:
            for v, _ in pieces:
                self._tape(v)  # recording is Python: it gains nothing from threads
            threads = _threads(self.space.target.num_cores, os.getpid())
            found = list(threads.map(work, pieces))
        return [x for part in found for x in part]

    def _piece(self, population: Population, variant: int, rows: IntArray) -> Iterator[Part]:
        while len(rows):
            tape = self._tape(variant)
            if tape is None:
                yield from self._direct(population, variant, rows)
                return
            part, kept = self._run(tape, population, variant, rows)
            if kept.all():
                yield part
                return
            if kept.any():
                yield Part(variant, rows[kept], part.results[:, kept], part.table[kept])
            rows = rows[~kept]
            if not self._generalise(tape, variant, population.take(rows)):
                yield from self._direct(population, variant, rows)
                return

    def _run(
        self, tape: Tape, population: Population, variant: int, rows: IntArray
    ) -> tuple[Part, Mask]:
        names = self.space.variants[variant].decision_names
        columns = np.array([self.space.column[n] for n in names], dtype=np.int64)
        inputs = population.values[np.ix_(rows, columns)].T.astype(np.float64, order="C")
        inputs = inputs.reshape(len(names), len(rows))
        results = np.empty((1 + tape.results, len(rows)))
        table = np.empty((len(rows), tape.width), dtype=np.float32)
        kept = tape.run(inputs, results, table)
        return Part(variant, rows, results[1:], table), kept

    def _direct(self, population: Population, variant: int, rows: IntArray) -> Iterator[Part]:
        space = self.space
        columns = space.decisions(variant, population, rows)
        trace = space.variants[variant].trace
        for mine, results, table in evaluate_columns(
            space.func, space.target, trace, columns, len(rows), self.figures
        ):
            yield Part(variant, rows[mine], results, table)

    # Recording -------------------------------------------------------------------------------

    def _tape(self, variant: int) -> Tape | None:
        with self._lock:
            if variant not in self._tapes:
                self._tapes[variant] = self._record(variant, self._explore(variant))
            return self._tapes[variant]

    def _generalise(self, tape: Tape, variant: int, odd: Population) -> bool:
        """Whether there is another tape to try on the rows that broke a guard of `tape`."""
        with self._lock:
            if self._tapes[variant] is not tape:
                return True
            if self._recordings[variant] >= RECORDINGS:
                return False
            sample = Population.concat([self._odd[variant], odd.take(np.arange(min(len(odd), 64)))])
            wider = self._record(variant, sample)
            if wider is not None:
                self._tapes[variant] = wider
            return wider is not None

    def _record(self, variant: int, sample: Population) -> Tape | None:
        """A tape recorded on `sample`; None where a step has no array form for all of it."""
        self._recordings[variant] = self._recordings.get(variant, 0) + 1
        self._odd[variant] = sample
        space, n = self.space, len(sample)
        columns = space.decisions(variant, sample, np.arange(n))
        bounds = {name: self.bounds[name] for name in columns}
        if not columns:
            return None

        def function(inputs: Mapping[str, IntArray]) -> tuple[Sequence[Floats], Sequence[Floats]]:
            return self.figures(analyse(space.replay(variant, inputs), space.target, n))

        try:
            return record(function, columns, bounds)
        except (NotBatchable, NotRecordable, ScheduleError):
            return None

    def _explore(self, variant: int) -> Population:
        """Candidates of one variant, half of them as the space draws them, half evenly."""
        space, rng = self.space, np.random.default_rng(variant)
        drawn = space.sample(rng, EXPLORED, np.array([variant]))
        even = np.zeros((EXPLORED, len(space.names)), dtype=np.int64)
        for name, (low, high) in self.bounds.items():
            even[:, space.column[name]] = np.floor(
                np.exp(rng.uniform(np.log(max(low, 1.0)), np.log(high + 1.0), EXPLORED))
            )
        chosen = np.full(EXPLORED, variant, dtype=np.int64)
        return Population.concat([drawn, space.repaired(chosen, even)])


@cache
def _threads(count: int, process: int) -> ThreadPoolExecutor:
    """Threads of one process: those of its parent do not survive a fork."""
    return ThreadPoolExecutor(count, thread_name_prefix="autosched-evaluate")


def evaluate_columns(
    func: PrimFunc,
    target: Target,
    trace: Trace,
    columns: Mapping[str, IntArray],
    size: int,
    figures: Figures,
) -> Iterator[tuple[IntArray, Floats, Rows]]:
    """(rows, results (K, n), table (n, width)) of `size` candidates of one trace, without a tape.

    Rows that no primitive accepts are left out. Where candidates differ in what a primitive sees,
    halves that agree stay batches; single ones are replayed with ints.
    """
    yield from _halves(func, target, trace, columns, np.arange(size), figures)


def _halves(
    func: PrimFunc,
    target: Target,
    trace: Trace,
    columns: Mapping[str, IntArray],
    rows: IntArray,
    figures: Figures,
) -> Iterator[tuple[IntArray, Floats, Rows]]:
    single = len(rows) == 1
    values = {k: int(c[rows[0]]) if single else c[rows] for k, c in columns.items()}
    try:
        analysis = analyse(trace.apply(func, values=values).func, target, len(rows))
    except NotBatchable:
        if single:
            return
        order = rows[np.lexsort([c[rows] for c in columns.values()])]
        middle = len(rows) // 2
        for half in (order[:middle], order[middle:]):
            yield from _halves(func, target, trace, columns, half, figures)
        return
    except ScheduleError:
        return
    results, row = figures(analysis)
    yield rows, _matrix(results, len(rows)), _matrix(row, len(rows)).T.astype(np.float32, order="C")


def _matrix(columns: Sequence[Floats], size: int) -> Floats:
    found = np.empty((len(columns), size))
    for n, column in enumerate(columns):
        found[n] = column
    return found


def legal(space: Space, population: Population) -> Mask:
    """Which candidates replay and are worth building, found without a tape."""
    found: Mask = np.zeros(len(population), dtype=np.bool_)
    for variant, rows in population.groups():
        for mine, results, _ in evaluate_columns(
            space.func,
            space.target,
            space.variants[variant].trace,
            space.decisions(variant, population, rows),
            len(rows),
            lambda a: ([floats(a.valid)], []),
        ):
            found[rows[mine]] = results[0] > 0.0
    return found
