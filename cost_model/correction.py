"""Learning the errors of a model from a few dozen measurements: Gaussian-process regression.

The kernel is linear plus squared-exponential in the features, so that it generalises along them and
interpolates near what was measured (Rasmussen and Williams, Gaussian Processes for Machine
Learning, algorithm 2.1). Deterministic, closed form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from autosched.errors import AutoschedError

Matrix = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float64]
LIMIT = 128
"""Measurements kept: every candidate that is scored is compared with each of them."""
PIECE = 64
"""Candidates compared at a time: below the size at which a BLAS starts threads of its own, which
would get in the way of those that score."""
NOISE = 0.05
"""Standard deviation of log seconds from one timing to the next, and of what the features do not
tell. It and the next three are those that found the best candidates of five measured spaces soonest
(`benchmarks/search_replay.py`)."""
LINEAR = 0.1
LOCAL = 0.3
LENGTH = 2.0
"""Distance in feature space at which measurements stop telling of each other."""
FAILED = 1.5
"""Log of how much slower than predicted a failed candidate counts as."""


@dataclass(frozen=True)
class Correction:
    """By how much scores are too high, as a function of features."""

    points: Matrix
    weights: Vector
    offset: float
    precision: Matrix
    """The inverse of the covariance of the errors at the points, noise included."""

    def excess(self, features: Matrix) -> Vector:
        """Expected score less the truth, shape (N,)."""
        found = np.full(len(features), self.offset)
        for low in range(0, len(features), PIECE):
            part = slice(low, low + PIECE)
            found[part] += kernel(features[part], self.points) @ self.weights
        return found

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that it holds, by names of its own."""
        return {
            "correction_points": self.points,
            "correction_weights": self.weights,
            "correction_offset": np.array(self.offset),
        }

    @staticmethod
    def from_arrays(data: Mapping[str, npt.NDArray[Any]]) -> Correction:
        """What `arrays` gave. Raises AutoschedError where the shapes do not go together."""
        points, weights = data["correction_points"], data["correction_weights"]
        if points.ndim != 2 or weights.shape != points.shape[:1]:
            raise AutoschedError(
                f"a correction has points (N, features) and weights (N,); found {points.shape} and "
                f"{weights.shape}"
            )
        offset = float(data["correction_offset"])
        return Correction(points, weights, offset, _precision(points))


class Expected:
    """How far the scores of candidates with `features` (N, features) may be off: the standard
    deviations of the process, which fall with each candidate that is going to be measured, since
    they depend on where it is and not on what will be found (GP-BUCB: Desautels, Krause and
    Burdick, JMLR 2014). Without a correction nothing has been measured yet."""

    def __init__(self, features: Matrix, correction: Correction | None) -> None:
        points = features[:0] if correction is None else correction.points
        self._features = features
        self._precision = np.zeros((0, 0)) if correction is None else correction.precision
        self._shared = np.zeros((len(features), len(points)))
        self._variance = LOCAL**2 + LINEAR**2 * (features * features).sum(axis=1)
        for low in range(0, len(features), PIECE):
            part = slice(low, low + PIECE)
            shared = kernel(features[part], points)
            self._shared[part] = shared
            self._variance[part] -= ((shared @ self._precision) * shared).sum(axis=1)
        self._explained: list[Vector] = []

    @property
    def deviations(self) -> Vector:
        """Shape (N,)."""
        found: Vector = np.sqrt(np.maximum(self._variance, 0.0))
        return found

    def expect(self, row: int) -> None:
        """Take the measurement of a candidate into account that is not known yet."""
        found = kernel(self._features, self._features[row : row + 1])[:, 0]
        found = found - self._shared @ (self._precision @ self._shared[row])
        for explained in self._explained:
            found = found - explained[row] * explained
        found = found / np.sqrt(max(float(found[row]), 0.0) + NOISE**2)
        self._explained.append(found)
        self._variance = self._variance - found * found


def kernel(a: Matrix, b: Matrix) -> Matrix:
    """Covariances (len(a), len(b)) of the errors at two sets of features."""
    squares = (a * a).sum(axis=1)[:, None] + (b * b).sum(axis=1)[None, :] - 2.0 * (a @ b.T)
    local = LOCAL**2 * np.exp(-np.maximum(squares, 0.0) / (2.0 * LENGTH**2))
    found: Matrix = local + LINEAR**2 * (a @ b.T)
    return found


def fit_correction(
    features: Matrix, scores: npt.NDArray[np.float64], truth: npt.NDArray[np.float64]
) -> Correction | None:
    """The correction that explains measurements: scores and truth (N,) in natural logarithms, the
    truth minus infinity where a candidate failed; None if N is 0.

    Beyond the limit the best half and the latest half of it are kept.
    """
    if len(features) > LIMIT:
        best = np.argsort(-truth, kind="stable")[: LIMIT // 2]
        latest = np.arange(len(features) - LIMIT // 2, len(features))
        keep = np.unique(np.concatenate([best, latest]))
        features, scores, truth = features[keep], scores[keep], truth[keep]
    if not len(features):
        return None
    ok = np.isfinite(truth)
    errors = np.zeros(len(features))
    errors[ok] = scores[ok] - truth[ok]
    offset = float(np.median(errors[ok])) if ok.any() else 0.0
    errors[~ok] = offset + FAILED
    precision = _precision(features)
    return Correction(features, precision @ (errors - offset), offset, precision)


def _precision(points: Matrix) -> Matrix:
    covariance = kernel(points, points)
    covariance[np.diag_indices_from(covariance)] += NOISE**2
    return np.asarray(np.linalg.inv(covariance), dtype=np.float64)
