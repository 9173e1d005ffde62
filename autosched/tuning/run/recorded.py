"""What a job has recorded so far, and what that says: which is best, and since when."""

from __future__ import annotations

import math
from collections.abc import Iterable

from autosched.errors import TuningError
from autosched.tuning.run.finalists import why_nothing
from records import BASELINE, OK, TRIAL, Record


class Recorded(dict[tuple[int, int], Record]):
    """A job's records by round and slot; baselines are of a round below 0."""

    @classmethod
    def of(cls, records: Iterable[Record]) -> Recorded:
        """These records, the last of each slot."""
        return cls(((r.round, r.slot), r) for r in records)

    def count(self, before: int) -> int:
        """Trials of the rounds before this one."""
        return sum(1 for r, _ in self if 0 <= r < before)

    def trials(self) -> list[Record]:
        """The job's trials so far, in any order."""
        return [r for r in self.values() if r.kind == TRIAL]

    def best_trial_seconds(self, before: int) -> float:
        """The fastest trial of the rounds before this one; infinite if none was right."""
        return _least(r for r in self.trials() if r.round < before)

    def baseline_seconds(self) -> float:
        """The faster baseline so far; infinite if none was right."""
        return _least(r for r in self.values() if r.kind == BASELINE)

    def best_seconds(self) -> float | None:
        """The fastest time so far, of a trial or a baseline."""
        best = _least(self.values())
        return None if best == math.inf else best

    def stale(self, start: int) -> int:
        """How many trials there were since the best; those before number `start` do not count."""
        trials = [self[k] for k in sorted(self) if k[0] >= 0]
        best, since = math.inf, 0
        for number, r in enumerate(trials):
            if r.status == OK and r.seconds is not None and r.seconds < best:
                best, since = r.seconds, 0
            elif number >= start:
                since += 1
        return since

    def valid(self, title: str) -> list[Record]:
        """What gave a right result, the fastest first. Raises TuningError if no trial did, or with
        no trial no baseline; `title` is the task's."""
        valid = [r for r in self.values() if r.status == OK and r.seconds is not None]
        trials = self.trials()
        if not valid or (trials and not any(r.status == OK for r in trials)):
            raise TuningError(why_nothing(title, self.values()))
        return sorted(valid, key=lambda r: r.seconds or 0.0)


def _least(records: Iterable[Record]) -> float:
    found = (r.seconds for r in records if r.status == OK and r.seconds is not None)
    return min(found, default=math.inf)
