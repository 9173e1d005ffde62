"""`ApplyHistoryBest`: build what was found, without naming it."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType

from autosched.building.dispatch import choosing
from autosched.checks import instance
from autosched.errors import TuningError
from autosched.target import Target
from autosched.tir.canonical import workload_key
from autosched.tir.nodes import PrimFunc
from autosched.tuning.best import RecordsLike, best_schedule, check_records
from records import RecordError, RecordSource, open_records

_log = logging.getLogger(__name__)


class ApplyHistoryBest:
    """A context in which `at.build` of an unscheduled function builds its best recorded program.

        with at.ApplyHistoryBest("tuning.db") as history:
            func = at.build(task.prim_func, target=task.target)
        history.missing        # workload keys without a record, and why

    `records`: a log file, a SQLite file, a database URL, an open source, or several of them, which
    are asked in their order. Schedules are built as they are: whoever made one has chosen. What has
    no record is built as it stands, and a warning is logged with the reason. Raises TuningError
    for what can hold no records, RecordError on entering if records cannot be read.
    """

    def __init__(self, records: RecordsLike | Sequence[RecordsLike]) -> None:
        several = isinstance(records, (list, tuple))
        self.records: Sequence[RecordsLike] = tuple(records) if several else (records,)  # type: ignore[assignment,arg-type]
        for one in self.records:
            check_records(one)
        self.missing: dict[str, str] = {}
        self._sources: list[RecordSource] = []
        self._stack = ExitStack()

    def __enter__(self) -> ApplyHistoryBest:
        with ExitStack() as stack:
            self._sources = [
                stack.enter_context(open_records(r)) if isinstance(r, (str, os.PathLike)) else r
                for r in self.records
            ]
            stack.enter_context(choosing(self.query))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()
        self._sources = []

    def query(self, func: PrimFunc, target: Target | str) -> PrimFunc | None:
        """The best recorded program of a function on a target; None without one."""
        instance("func", func, PrimFunc, "a PrimFunc", TuningError)
        key, target = workload_key(func), Target(target)
        reasons: list[str] = []
        for source in self._sources:
            try:
                return best_schedule(func, source, key, str(target))[0].func
            except RecordError as e:
                reasons.append(str(e))
        self.missing[key] = "; ".join(reasons)
        _log.warning("%s has no schedule here: %s", func.name, self.missing[key])
        return None
