"""How well scores rank measured candidates.

All are means over tasks; `truth` is the share of the bound that was reached (0 for a failure),
higher is better, like a score. A task needs two candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Report:
    """RMSE of the score as a prediction of the truth; the share of pairs in the right order; how
    many of the 30 best are among the 30 that score best; truth of the best among the 1 and the 5
    that score best, over that of the best."""

    rmse: float
    pairwise: float
    recall_30: float
    peak_1: float
    peak_5: float

    def __str__(self) -> str:
        return (
            f"RMSE {self.rmse:.3f}, pairwise {self.pairwise:.3f}, recall@30 {self.recall_30:.3f}, "
            f"peak@1 {self.peak_1:.3f}, peak@5 {self.peak_5:.3f}"
        )


def report(tasks: Sequence[tuple[Floats, Floats]]) -> Report:
    """Means over tasks of (scores, truth), arrays of shape (N,)."""
    rows = [
        (
            rmse(scores, truth),
            pairwise(scores, truth),
            recall(scores, truth, 30),
            peak(scores, truth, 1),
            peak(scores, truth, 5),
        )
        for scores, truth in tasks
        if len(truth) > 1
    ]
    return Report(*np.array(rows).mean(axis=0).tolist())


def rmse(scores: Floats, truth: Floats) -> float:
    """Root of the mean square of what a score is off."""
    return float(np.sqrt(np.mean((scores - truth) ** 2)))


def pairwise(scores: Floats, truth: Floats) -> float:
    """Share of pairs of different truth whose scores are in the same order; ties count half."""
    a, b = np.triu_indices(len(truth), 1)
    order = np.sign(truth[a] - truth[b])
    guess = np.sign(scores[a] - scores[b])
    pairs = order != 0
    if not pairs.any():
        return 1.0
    return float(np.mean(0.5 + 0.5 * (order * guess)[pairs]))


def recall(scores: Floats, truth: Floats, k: int) -> float:
    """Share of the best k, or of half of all where there are fewer than 2 k, that are among as many
    with the best scores."""
    k = max(min(k, len(truth) // 2), 1)
    best = set(np.argsort(-truth, kind="stable")[:k].tolist())
    return len(best & set(np.argsort(-scores, kind="stable")[:k].tolist())) / k


def peak(scores: Floats, truth: Floats, k: int) -> float:
    """Truth of the best among the k with the best scores, over that of the best of all."""
    top = np.argsort(-scores, kind="stable")[:k]
    best = float(truth.max())
    return float(truth[top].max()) / best if best > 0.0 else 1.0
