"""Cost models as tuning uses them: learning from stores and logs of records."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from autosched.checks import instance
from autosched.errors import AutoschedError, TuningError
from autosched.search.model import CostModel
from autosched.tir.canonical import workload_key
from autosched.tuning.best import RecordsLike, opened
from cost_model.dataset import Dataset, dataset_of
from cost_model.xgb import BoostedModel
from records import TRIAL, RecordSource, Workload

if TYPE_CHECKING:
    from autosched.tir.nodes import PrimFunc
    from autosched.tuning.task import SearchTask

_log = logging.getLogger(__name__)


class XGBModel(BoostedModel):
    """Gradient-boosted trees that learn from each round, and from whatever was measured before."""

    def update_from_file(self, records: RecordsLike) -> Self:
        """Learn from all trials of a log, a SQLite file, a database URL or an open source."""
        return self.pretrain(records)

    def pretrain(self, records: RecordsLike, exclude: SearchTask | None = None) -> Self:
        """Learn from all trials of `records`, of any workload and target, but those of `exclude`.

        Trials whose workload cannot be built again (a function that is not registered here) or
        whose trace no longer applies are left out, and their number is logged.
        """
        from autosched.tuning.task import SearchTask

        instance("exclude", exclude, (SearchTask, type(None)), "a SearchTask", TuningError)
        data, lost = load_dataset(records, exclude)
        if lost:
            _log.warning("%d trials not learned from: not replayable here, cancelled or lost", lost)
        return self.train(data)


def load_dataset(records: RecordsLike, exclude: SearchTask | None = None) -> tuple[Dataset, int]:
    """(all trials of `records` but those of the task `exclude`, how many could not be used)."""
    left_out = None if exclude is None else exclude.workload_key
    with opened(records) as source:
        trials = [r for r in source.records(kind=TRIAL) if r.workload_key != left_out]
        return dataset_of(_workloads(source, {r.workload_key for r in trials}), trials)


def _workloads(source: RecordSource, keys: set[str]) -> dict[str, PrimFunc]:
    """Programs by key, of those workloads that can be made here."""
    found: dict[str, PrimFunc] = {}
    for workload in source.workloads():
        func = _rebuilt(workload) if workload.key in keys else None
        if func is not None:
            found[workload.key] = func
    return found


def _rebuilt(workload: Workload) -> PrimFunc | None:
    """The workload's program; None if it cannot be made here or is another now."""
    from autosched.tuning.stored import program_of
    from autosched.workloads import check_args, prim_func_of

    try:
        return program_of(workload)
    except AutoschedError:
        if workload.args is None:
            return None
    try:
        func = prim_func_of(workload.name, check_args(list(workload.args)))
    except AutoschedError:
        return None
    return func if workload_key(func) == workload.key else None


def default_model(seed: int = 0) -> CostModel:
    """What guides a search that names no model."""
    return XGBModel(seed)
