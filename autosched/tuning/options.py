"""What a tuning run may spend and where its results go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosched.checks import instance, listed, shown
from autosched.errors import TuningError
from autosched.integers import as_int, plain, settle
from autosched.target import available_cores
from autosched.tuning.pools import LOCAL, PoolAddress

if TYPE_CHECKING:
    from autosched.tuning.callbacks import MeasureCallback
    from measure.local.build import LocalBuilder
    from measure.local.pool import LocalRunner
    from measure.pool import Pool


ROUND = 8
"""Candidates a round, at least: after 256 trials a search in rounds of 8, 16, 32 held 0.98, 0.97,
0.93 of the best speed that was measured (`benchmarks/search_replay.py --guess`)."""


@dataclass(frozen=True)
class TuningOptions:
    """Options of one `SearchTask.tune` call.

    - `num_measure_trials`: candidates to measure in this call; with `resume` the total of the job.
      Baselines are measured besides and are not trials. 0 measures nothing, for `auto_schedule`.
    - `early_stopping`: stop when this many trials in a row brought no better program. In a job
      that had ended and is resumed, trials count from there; one that was killed counts on.
    - `num_measures_per_round`: candidates proposed and measured at a time; the search learns
      between rounds. Default: an eighth of the trials, at least 8 and at most as many as are
      built at a time; 64 of a cluster.
    - `time_budget_s`: seconds of wall time after which no new round starts.
    - `measure_callbacks`: receivers of the records, `RecordToFile` and `RecordToStore` among them.
    - `builder`, `runner`: options of the local pool; `pool`: an open pool to use instead, or the
      address of one (`autosched.tuning.pools`), which is opened for the run and closed after it.
    - `resume`: go on with the newest job of the same workload, target, seed and device in the first
      `RecordToStore`; none there starts one and says so, and at its total the recorded result is
      returned.
    - `seed`: governs proposals and input data; the same seed, round size and records give the same
      proposals.
    - `finalists`: how many of the best are measured again, in interleaved blocks, before one wins.
    - `verbose`: 0 silent, 1 progress.
    """

    num_measure_trials: int = 64
    early_stopping: int | None = None
    num_measures_per_round: int | None = None
    time_budget_s: float | None = None
    measure_callbacks: Sequence[MeasureCallback] = field(default_factory=tuple)
    builder: LocalBuilder | None = None
    runner: LocalRunner | None = None
    pool: Pool | str | None = None
    resume: bool = False
    seed: int = 0
    finalists: int = 4
    verbose: int = 1

    def __post_init__(self) -> None:
        settle(
            self,
            TuningError,
            num_measure_trials=0,
            early_stopping=1,
            num_measures_per_round=1,
            finalists=1,
            seed=0,
        )
        if as_int(self.verbose) is None:
            instance("verbose", self.verbose, bool, "0 or 1", TuningError)
        instance("resume", self.resume, bool, "True or False", TuningError)
        budget = plain(self.time_budget_s)
        known = isinstance(budget, (int, float)) and not isinstance(budget, bool)
        if budget is not None and not (known and budget > 0):
            raise TuningError(f"time_budget_s is {budget!r}; expected seconds > 0 or None")
        self._check_receivers_and_pool()

    def _check_receivers_and_pool(self) -> None:
        from autosched.tuning.callbacks import MeasureCallback
        from measure.local.build import LocalBuilder
        from measure.local.pool import LocalRunner
        from measure.pool import is_pool

        listed(
            "measure_callbacks",
            self.measure_callbacks,
            MeasureCallback,
            "MeasureCallback",
            TuningError,
        )
        if isinstance(self.pool, str):
            PoolAddress.parse(self.pool)
        local = self.pool is None or (isinstance(self.pool, str) and self.pool == LOCAL)
        if not local and (self.builder is not None or self.runner is not None):
            raise TuningError(
                "builder and runner are options of the local pool; give them or a pool, not both"
            )
        none = type(None)
        instance("builder", self.builder, (LocalBuilder, none), "a LocalBuilder", TuningError)
        instance("runner", self.runner, (LocalRunner, none), "a LocalRunner", TuningError)
        if not isinstance(self.pool, str | None) and not is_pool(self.pool):
            raise TuningError(
                f"pool is {shown(self.pool)}; expected an open pool, such as LocalPool(target), or "
                "the address of one"
            )

    @property
    def round_size(self) -> int:
        """Candidates a round."""
        return self.round_size_of(1)

    def round_size_of(self, tasks: int) -> int:
        """Candidates a round, where the trials are those of so many tasks: each gets several
        rounds."""
        if self.num_measures_per_round is not None:
            return self.num_measures_per_round
        if isinstance(self.pool, str):
            several = PoolAddress.parse(self.pool).is_cluster
        else:
            several = getattr(self.pool, "several", False)
        built = (self.builder and self.builder.n_parallel) or available_cores()
        least = ROUND if tasks == 1 else ROUND // 2
        most = 64 if several else min(64, max(ROUND, built))
        return max(least, min(most, self.num_measure_trials // (8 * tasks)))


def checked(options: TuningOptions | None) -> TuningOptions:
    """The options of a run, the default ones for None. Raises TuningError for what is none."""
    expected = "TuningOptions, such as TuningOptions(num_measure_trials=64)"
    instance("tune_option", options, (TuningOptions, type(None)), expected, TuningError)
    if options is not None and options.num_measure_trials == 0:
        raise TuningError(
            "num_measure_trials is 0: nothing would be measured; expected at least 1. For what the "
            "cost model ranks first, unmeasured: autosched.auto_scheduler.auto_schedule(task)"
        )
    return options or TuningOptions()
