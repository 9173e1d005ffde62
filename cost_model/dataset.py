"""Data sets: features of measured candidates and how fast they ran, of one task or of many.

A candidate's label is its task's roofline bound over its seconds: a share of what the machine could
do, kept as its logarithm, which is minus infinity for a candidate that failed. The bound depends on
the task alone, so a label stays what it is when a better candidate is found, and labels of
different tasks compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Protocol, Union

import numpy as np
import numpy.typing as npt

from autosched.errors import AutoschedError, TargetError
from autosched.schedule.portable import decode_trace, trace_text
from autosched.search.evaluate import evaluate_columns
from autosched.search.evolution import UNTOLD
from autosched.search.model import HasSpace, Seconds
from autosched.sketch.space import Population
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from cost_model.evaluation import evaluator_of, figures
from cost_model.features import WIDTH
from cost_model.roofline import bound_seconds

Path = Union[str, "PathLike[str]"]
Floats = npt.NDArray[np.float64]


class MeasuredRecord(Protocol):
    """What is read of a record; `records.Record` is one."""

    @property
    def workload_key(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def trace(self) -> Sequence[Any]: ...
    @property
    def decisions(self) -> Mapping[str, int]: ...
    @property
    def dialect(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Dataset:
    """P candidates of T tasks, their stores' features in R rows.

    `rows` float32 (R, WIDTH); candidate p has rows `starts[p]` to `starts[p + 1]`. `prior` and
    `label` float64 (P,): natural logarithms of the share of the bound that the roofline predicts,
    and of the one that was reached. `task` (P,) indexes `tasks`, which are workload keys.
    """

    rows: npt.NDArray[np.float32]
    starts: npt.NDArray[np.int64]
    prior: Floats
    label: Floats
    task: npt.NDArray[np.int64]
    tasks: tuple[str, ...]

    def __post_init__(self) -> None:
        size = len(self.label)
        right = (
            self.rows.ndim == 2
            and self.rows.shape[1] == WIDTH
            and self.starts.shape == (size + 1,)
            and int(self.starts[-1]) == len(self.rows)
            and self.prior.shape == self.task.shape == (size,)
        )
        if not right:
            raise AutoschedError(
                f"a data set of {size} candidates with {WIDTH} features: rows have shape "
                f"{self.rows.shape}, starts {self.starts.shape}, prior {self.prior.shape}, task "
                f"{self.task.shape}"
            )

    def __len__(self) -> int:
        return len(self.label)

    @staticmethod
    def empty() -> Dataset:
        """No candidates."""
        none = np.zeros(0)
        rows = np.zeros((0, WIDTH), dtype=np.float32)
        zero = np.zeros(1, dtype=np.int64)
        return Dataset(rows, zero, none, none, none.astype(np.int64), ())

    @staticmethod
    def of(task: HasSpace, population: Population, seconds: Seconds, key: str = "") -> Dataset:
        """Candidates of one task and their seconds (N,), infinite for those that failed."""
        space = task.space
        bound = bound_seconds(space.func, space.target)
        parts = [
            _Found(part.results[0], part.table, seconds[part.rows], part.rows)
            for part in evaluator_of(space).parts(population)
        ]
        return _assembled(parts, bound, key)

    @staticmethod
    def concat(parts: Iterable[Dataset]) -> Dataset:
        """All candidates of some data sets; tasks of the same key become one."""
        found = list(parts)
        if not found:
            return Dataset.empty()
        keys = tuple(dict.fromkeys(k for d in found for k in d.tasks))
        index = {k: n for n, k in enumerate(keys)}
        counts = np.concatenate([np.diff(d.starts) for d in found])
        renamed = [np.array([index[k] for k in d.tasks], dtype=np.int64) for d in found]
        return Dataset(
            np.concatenate([d.rows for d in found]),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            np.concatenate([d.prior for d in found]),
            np.concatenate([d.label for d in found]),
            np.concatenate([r[d.task] for r, d in zip(renamed, found, strict=True)]),
            keys,
        )

    def take(self, mask: npt.NDArray[np.bool_]) -> Dataset:
        """The candidates of a mask (P,)."""
        counts = np.diff(self.starts)
        return Dataset(
            self.rows[np.repeat(mask, counts)],
            np.concatenate([[0], np.cumsum(counts[mask])]).astype(np.int64),
            self.prior[mask],
            self.label[mask],
            self.task[mask],
            self.tasks,
        )

    def by_task(self) -> Iterator[tuple[str, Dataset]]:
        """(key, candidates) of each task that has any."""
        for n, key in enumerate(self.tasks):
            mask = self.task == n
            if mask.any():
                yield key, self.take(mask)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that it holds, as arrays of numbers and text."""
        return {
            "rows": self.rows,
            "starts": self.starts,
            "prior": self.prior,
            "label": self.label,
            "task": self.task,
            "tasks": np.array(self.tasks, dtype=np.str_),
        }

    @staticmethod
    def from_arrays(data: Mapping[str, npt.NDArray[Any]]) -> Dataset:
        """What `arrays` gave. Raises AutoschedError where the features are others."""
        tasks = tuple(str(k) for k in data["tasks"])
        return Dataset(
            data["rows"], data["starts"], data["prior"], data["label"], data["task"], tasks
        )


@dataclass(frozen=True)
class _Found:
    """Candidates of one structure: seconds that the roofline predicts, features (n, S * WIDTH),
    seconds measured, and where they stood."""

    predicted: Floats
    table: npt.NDArray[np.float32]
    seconds: Seconds
    order: npt.NDArray[np.int64]


def _assembled(parts: Sequence[_Found], bound: float, key: str) -> Dataset:
    """The candidates of one task in their order."""
    if not parts:
        return Dataset.empty()
    stores = [p.table.shape[1] // WIDTH for p in parts]
    counts = np.concatenate([np.full(len(p.order), s) for p, s in zip(parts, stores, strict=True)])
    rows = np.concatenate([p.table.reshape(-1, WIDTH) for p in parts])
    order = np.argsort(np.concatenate([p.order for p in parts]), kind="stable")
    starts = np.concatenate([[0], np.cumsum(counts)])
    places = [np.arange(starts[p], starts[p + 1]) for p in order]
    seconds = np.concatenate([p.seconds for p in parts])[order]
    predicted = np.concatenate([p.predicted for p in parts])[order]
    return Dataset(
        rows[np.concatenate(places)],
        np.concatenate([[0], np.cumsum(counts[order])]).astype(np.int64),
        log_share(bound, predicted),
        log_share(bound, seconds),
        np.zeros(len(order), dtype=np.int64),
        (key,),
    )


def log_share(bound: float, seconds: Seconds) -> Floats:
    """Logarithm of bound over seconds; minus infinity where they are infinite."""
    with np.errstate(divide="ignore"):
        found: Floats = np.log(bound / seconds)
    return found


def dataset_of(
    workloads: Mapping[str, PrimFunc], records: Iterable[MeasuredRecord]
) -> tuple[Dataset, int]:
    """(the data set of records, how many of them could not be used). `workloads` by their keys.

    Left out are records of other workloads and dialects, of targets that are none here, of what
    was cancelled or lost, traces that do not apply any more, and decisions so large that nothing
    can be computed of them.
    """
    groups: dict[tuple[str, str], list[MeasuredRecord]] = {}
    lost = 0
    for r in records:
        if r.workload_key in workloads and r.status not in UNTOLD:
            groups.setdefault((r.workload_key, r.target), []).append(r)
        else:
            lost += 1
    parts: list[Dataset] = []
    for (key, text), mine in groups.items():
        try:
            func, target = workloads[key], Target(text)
        except TargetError:
            lost += len(mine)
            continue
        found = list(_replayed(func, target, mine))
        lost += len(mine) - sum(len(f.order) for f in found)
        parts.append(_assembled(found, bound_seconds(func, target), key))
    return Dataset.concat(parts), lost


def _replayed(func: PrimFunc, target: Target, records: list[MeasuredRecord]) -> Iterator[_Found]:
    """The records of one task that replay, a structure at a time."""
    structures: dict[tuple[str, int], list[int]] = {}
    for n, r in enumerate(records):
        structures.setdefault((trace_text(r.trace), r.dialect), []).append(n)
    for places in structures.values():
        first = records[places[0]]
        try:
            trace = decode_trace(func, first.trace, {}, first.dialect)
        except AutoschedError:
            continue
        names = trace.decisions()
        places = [n for n in places if set(names) <= set(records[n].decisions)]
        if not places:
            continue
        columns = {
            name: np.array([records[n].decisions[name] for n in places], dtype=np.int64)
            for name in names
        }
        with np.errstate(all="ignore"):  # of numbers that no program has
            parts = list(
                evaluate_columns(
                    func, target, trace, columns, len(places), lambda a: figures(a, target)
                )
            )
        for rows, results, table in parts:
            sound = np.isfinite(table).all(axis=1) & np.isfinite(results[0]) & (results[0] > 0.0)
            order = np.array(places, dtype=np.int64)[rows[sound]]
            mine = [records[n] for n in order.tolist()]
            seconds = [r.seconds if r.status == "ok" and r.seconds else np.inf for r in mine]
            if len(order):
                yield _Found(results[0][sound], table[sound], np.array(seconds), order)
