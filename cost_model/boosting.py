"""How much trees may learn, and of which measurements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from autosched.search.model import Seconds
from autosched.tir.affine import IntArray
from cost_model.dataset import Dataset

MANY_TASKS = 5


@dataclass(frozen=True)
class Forest:
    """How trees are grown: at most so many, each so deep, `rate` of what they say, leaves of at
    least the weight `smallest`."""

    trees: int
    depth: int
    rate: float
    smallest: float


@dataclass(frozen=True)
class Boosting:
    """How a model learns: `shared` trees from data sets, `own` ones from a task's measurements.

    Fewer are grown where the part `held_out`, of data sets of `split` candidates and more, stopped
    improving for `early_stopping_rounds` trees. `weight` is that of a candidate with a share of
    nothing; the best of a task weighs 1. Of a task's own measurements no more than `kept` count
    (see `telling`).
    """

    shared: Forest = Forest(96, 4, 0.05, 24.0)
    own: Forest = Forest(32, 3, 0.15, 8.0)
    bins: int = 64
    enough: int = 32
    kept: int = 512
    split: int = 128
    held_out: float = 0.2
    early_stopping_rounds: int = 16
    weight: float = 0.25


def telling(seconds: Seconds, most: int) -> IntArray:
    """Rows, in order, of the measurements that say most of a task, all of them up to `most`: the
    best quarter, the latest quarter, and an even choice of the others. So learning costs no more
    in a long run than in a short one."""
    n = len(seconds)
    if n <= most:
        return np.arange(n)
    best = np.argsort(seconds, kind="stable")[: most // 4]
    kept = np.union1d(best, np.arange(n - most // 4, n))
    rest = np.setdiff1d(np.arange(n), kept)
    even = rest[np.linspace(0, len(rest) - 1, most - len(kept)).astype(np.int64)]
    return np.union1d(kept, even)


def held_out_of(
    data: Dataset, boosting: Boosting, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Which candidates (P,) are held out: whole tasks where there are many, since what is learned
    of some is for others; none of small data sets."""
    if len(data) < boosting.split:
        return np.zeros(len(data), dtype=np.bool_)
    if len(data.tasks) < MANY_TASKS:
        return rng.random(len(data)) < boosting.held_out
    count = max(1, round(len(data.tasks) * boosting.held_out))
    return np.isin(data.task, rng.permutation(len(data.tasks))[:count])
