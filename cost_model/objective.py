"""What trees are grown for: the weighted square error of whole candidates within their tasks.

How fast a task's candidates are altogether is nothing to a search, which compares those of one task
only, and says little about another one. So only what an error differs from the mean of its task
counts, which leaves the trees to what ranks candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cost_model.correction import FAILED
from cost_model.dataset import Dataset, Floats

if TYPE_CHECKING:
    import xgboost


@dataclass(frozen=True)
class Pack:
    """Candidates as the objective sees them: one error a candidate, shared by its stores.

    `target` (P,) is the label; of a failure, the worst that succeeded in its task or what the prior
    says less `FAILED`, whichever is lower.
    """

    data: Dataset
    target: Floats
    weight: Floats

    @staticmethod
    def of(data: Dataset, least: float) -> Pack:
        """Weights rise from `least` with the share of the best of the task: the ranking matters at
        the top."""
        ok = np.isfinite(data.label)
        best, worst = np.full(len(data.tasks), -np.inf), np.full(len(data.tasks), np.inf)
        np.maximum.at(best, data.task[ok], data.label[ok])
        np.minimum.at(worst, data.task[ok], data.label[ok])
        target = np.where(ok, data.label, np.minimum(worst[data.task], data.prior - FAILED))
        best = np.where(np.isfinite(best), best, 0.0)
        share = np.where(ok, np.exp(np.minimum(target - best[data.task], 0.0)), 0.0)
        return Pack(data, target, least + (1.0 - least) * share)

    def matrix(self) -> xgboost.DMatrix:
        """The stores' rows."""
        import xgboost

        return xgboost.DMatrix(self.data.rows, nthread=1)

    def excess(self, said: npt.NDArray[Any]) -> Floats:
        """By how much each candidate's score is too high beside the others of its task, given what
        is said of each store."""
        sums = np.add.reduceat(np.asarray(said, dtype=np.float64), self.data.starts[:-1])
        task, tasks = self.data.task, len(self.data.tasks)
        found: Floats = self.data.prior + sums - self.target
        weights = np.bincount(task, self.weight, tasks)
        level = np.bincount(task, self.weight * found, tasks) / np.maximum(weights, 1e-12)
        return found - level[task]

    def gradient(
        self, said: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """First and second derivative of half the weighted square error by what is said of each
        store."""
        counts = np.diff(self.data.starts)
        weight = np.repeat(self.weight, counts)
        first = np.repeat(self.excess(said), counts) * weight
        return first.astype(np.float32), weight.astype(np.float32)

    def error(self, said: npt.NDArray[Any]) -> float:
        """Weighted root mean square error."""
        off = self.excess(said) ** 2 * self.weight
        return float(np.sqrt(off.sum() / self.weight.sum()))
