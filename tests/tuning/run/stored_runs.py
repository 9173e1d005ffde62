"""Tuning runs of doubles with a database, and what they leave there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuning_doubles import FakePool

import autosched as at
from autosched.tuning import TuningResult
from autosched.tuning.callbacks import MeasureCallback
from records import Record, Store


def tune(task: at.SearchTask, pool: FakePool, trials: int, *to: Any, **more: Any) -> TuningResult:
    callbacks: list[MeasureCallback] = [
        at.RecordToStore(t) if isinstance(t, Path) else t for t in to
    ]
    options = at.TuningOptions(
        num_measure_trials=trials, measure_callbacks=callbacks, pool=pool, verbose=0, **more
    )
    return task.tune(options)


def stored(path: Path) -> list[Record]:
    with Store(path) as store:
        return list(store.records())


def trials_of(path: Path) -> list[Record]:
    return [r for r in stored(path) if r.kind == "trial"]
