"""What a tuning run found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from records import OK, TRIAL, Record

UNTRANSFORMED, DEFAULT = 0, 1
"""Slots of the baselines: the program as written, and the one generic default schedule."""
BASELINES: Mapping[int, str] = {
    UNTRANSFORMED: "untransformed program",
    DEFAULT: "default schedule",
}
"""The slot of a baseline -> its name."""


@dataclass(frozen=True)
class TuningResult:
    """What a run found.

    `best` is the record of the fastest verified program, `best_seconds` its re-measured time for
    one call; `baseline_seconds` that of the generic default schedule, which is itself handed out
    where no trial beat it. `trials` counts the job's candidates, failed ones included; `statuses`
    how they ended. `phases` is the wall time of this call in seconds, each second in one phase, so
    that they add up to `elapsed_s`: `starting` (inputs, reference, the untransformed program),
    `proposing`, `training`, `measuring` (all rounds), `recording`, `finalists` (built and timed
    again), `waiting` (for a device that other processes used), `other`. A local pool takes out of
    `measuring` what it did then: `building`, `running` (linking, timing) and `verifying`.
    `device_seconds` are sums over all builders and devices of `building`, `running`, `verifying`
    and `waiting`; several work at a time.
    """

    best: Record
    best_seconds: float
    baseline_seconds: float | None
    untransformed_seconds: float | None
    trials: int
    statuses: dict[str, int]
    elapsed_s: float
    phases: dict[str, float]
    device_seconds: dict[str, float]
    flop: float

    @property
    def gflops(self) -> float:
        """GFLOP/s of the best program."""
        return self.flop / self.best_seconds / 1e9


def result_of(
    records: Iterable[Record],
    best: Record,
    phases: dict[str, float],
    device_seconds: dict[str, float],
    flop: float,
) -> TuningResult:
    """The result of a job with these records, of which `best` was decided on."""
    found = list(records)
    baselines = {r.slot: r.final_seconds for r in found if r.kind != TRIAL}
    statuses = Counter(r.status for r in found if r.kind == TRIAL)
    seconds = best.final_seconds
    assert seconds is not None
    return TuningResult(
        best=best,
        best_seconds=seconds,
        baseline_seconds=baselines.get(DEFAULT),
        untransformed_seconds=baselines.get(UNTRANSFORMED),
        trials=statuses.total(),
        statuses=dict(statuses),
        elapsed_s=sum(phases.values()),
        phases=phases,
        device_seconds=device_seconds,
        flop=flop,
    )


def decided(records: Iterable[Record]) -> Record | None:
    """The best of a job that came to its end: of those measured again; None if none was."""
    again = [r for r in records if r.status == OK and r.remeasured_seconds is not None]
    return min(again, key=lambda r: r.remeasured_seconds or 0.0, default=None)
