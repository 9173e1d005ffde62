"""One tuning run: propose, measure, record, learn, and measure the finalists again."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autosched.codegen.build import toolchain
from autosched.schedule import Trace
from autosched.schedule.portable import decode_trace, encode_trace
from autosched.search.evolution import EvolutionarySearch, Measured
from autosched.search.model import CheckedModel
from autosched.sketch.default import default_schedule
from autosched.sketch.space import Space
from autosched.tuning.callbacks import JobInfo, MeasureCallback, close_at_end
from autosched.tuning.policy import SketchPolicy
from autosched.tuning.report.progress import Progress
from autosched.tuning.report.result import (
    BASELINES,
    DEFAULT,
    UNTRANSFORMED,
    TuningResult,
    decided,
    result_of,
)
from autosched.tuning.run.finalists import best_of_lost, remeasure
from autosched.tuning.run.history import Reading
from autosched.tuning.run.interrupt import interrupts_deferred
from autosched.tuning.run.recorded import Recorded
from autosched.tuning.run.resume import SUCCEEDED, start_of
from measure.phases import PhaseClock
from measure.pool import measures_elsewhere, prepare
from records import BASELINE, BASELINE_ROUND, OK, TRIAL, Measurement, Record

if TYPE_CHECKING:
    from autosched.sketch.space import Candidate
    from autosched.tuning.options import TuningOptions
    from autosched.tuning.task import SearchTask
    from measure.pool import JobHandle, Pool
    from measure.status import MeasureResult

AHEAD = "autosched-propose"
"""Name of the thread that proposes while other machines measure."""


class Session:
    """One task's share of a tuning run on a pool: started, a round at a time, and finished.

    Every `start` is followed by one `stop`, however the run ends; `run` does all of it. A function
    for `policy` is asked when the search begins. Raises TuningError if `policy` is for another
    workload.
    """

    def __init__(
        self,
        task: SearchTask,
        options: TuningOptions,
        pool: Pool,
        policy: SketchPolicy | Callable[[], SketchPolicy] | None = None,
    ) -> None:
        self.task, self.options, self.pool = task, options, pool
        self._given = policy
        if isinstance(policy, SketchPolicy):
            policy.check_is_for(self.task)
        self.policy: SketchPolicy
        self.callbacks: list[MeasureCallback] = list(options.measure_callbacks)
        self.records = Recorded()
        self.measured: dict[tuple[int, int], Measured] = {}
        """What the search may learn from, by round and slot."""
        # A pool that has a clock counts on it what it builds, runs and waits for.
        found = getattr(pool, "clock", None)
        self.clock = found if isinstance(found, PhaseClock) else PhaseClock()
        self._spent_before = self.clock.spent()
        self.device_seconds: defaultdict[str, float] = defaultdict(float)
        self.started = time.perf_counter()
        self.early_stopping_from = 0
        """Trials before it do not count for early stopping: the job had ended, and was resumed."""
        self.round = 0
        self.notice: str | None = None
        self.over: str | None = None
        """Why there are no more rounds though trials are left."""
        self.job: JobInfo
        self.space: Space
        self.reading: Reading
        self.progress: Progress
        self.search: EvolutionarySearch
        self.preloaded: list[Measured] = []
        self._handle: JobHandle | None = None
        self._told: list[MeasureCallback] = []
        self._thread: ThreadPoolExecutor | None = None
        self._next: tuple[int, Future[list[Candidate]]] | None = None

    def run(self, search: bool = True) -> TuningResult:
        """The whole run; without `search` the baselines alone."""
        state, error = "failed", None
        try:
            known = self.start(search)
            if known is not None:
                return known
            while search and self.step(self.job.round_size):
                pass
            result = self.finish(again=search)
            state = SUCCEEDED
            return result
        except (KeyboardInterrupt, SystemExit, BrokenPipeError):
            state, error = "cancelled", "interrupted"
            raise
        except Exception as e:
            error = str(e) or type(e).__name__
            raise
        finally:
            with ExitStack() as stack:
                close_at_end(stack, self.options.measure_callbacks)
                self.stop(state, error)

    def start(self, search: bool = True) -> TuningResult | None:
        """Take over what is recorded, tell the callbacks, and measure the baselines. Without
        `search` the space is made when the first round needs it.

        Returns the recorded result of a job that is complete already.
        """
        begin = start_of(
            self.options,
            self.callbacks,
            self.task.workload_key,
            str(self.task.target),
            str(self.pool.device.fingerprint),
        )
        self.job = begin.job
        self.early_stopping_from = max(self.early_stopping_from, begin.early_stopping_from)
        self.records = Recorded.of(begin.records)
        best = decided(self.records.values())
        # A run that was killed among its finalists has measured some of them again, and not all.
        if best is not None and begin.ended and len(self.records.trials()) >= self.job.trials:
            return self._result(best)
        prepare(self.pool)
        if search or self.records.trials():
            self._make_space()
        self.progress = Progress(self.task, self.job, self.options.verbose)
        self.progress.known(self.records.values())
        self.notice = begin.note
        if begin.note is not None:
            self.progress.note(begin.note)
        self._note_strangers()
        self.callbacks.append(self.progress)
        for callback in self.callbacks:
            # Whoever was told of the start is told of the end, however it came.
            with interrupts_deferred():
                callback.on_start(self.task.workload, self.job)
                self._told.append(callback)
        if search or self.records.trials():
            self._make_search()
            if not self.records.trials():
                # While the pool's processes start; the search keeps what it has proposed.
                with self.clock.phase("proposing"):
                    self._propose(0, self._known(0))
        self._enter("reference")
        with self.clock.phase("starting", whole=True):
            self._handle = self.pool.open_job(self.task.prim_func, self.options.seed)
        self._enter("baselines")
        self._baselines(self.pool, self._handle)
        if hasattr(self, "search"):
            self._enter("searching")
        return None

    def _make_space(self) -> None:
        self._enter("space")
        with self.clock.phase("proposing"):
            given = self._given() if callable(self._given) else self._given
            self.policy = given or SketchPolicy(self.task, seed=self.options.seed)
            self.policy.check_is_for(self.task)
            self.space = self.policy.space
            self.reading = Reading(self.space)
            self.records = Recorded.of(map(self.reading.shared, self.records.values()))
            self._learn(self.records.values())

    def _make_search(self) -> None:
        model = CheckedModel(self.policy.cost_model, self._clock_training)
        self.search = self.policy.search(self.options.seed, self.job.round_size, model)
        self.preloaded = self.policy.preloaded(self.job.id, self.job.device)

    def step(self, limit: int) -> bool:
        """Propose and measure one round of at most `limit` candidates; False if there is none."""
        left = self.job.trials - self.records.count(before=self.round)
        if left <= 0:
            return False
        if self._out_of_time():
            return self._over("time budget reached")
        stop_after = self.options.early_stopping
        if stop_after is not None and self.records.stale(self.early_stopping_from) >= stop_after:
            return self._over(f"no better program in {stop_after} trials")
        if self.round_is_known():
            self.round += 1
            return True
        if not hasattr(self, "search"):
            self._make_space()
            self._make_search()
            self._enter("searching")
        size = min(left, limit, self.job.round_size)
        proposed = self._proposals()[:size]
        if not proposed:
            return self._over(self.search.why_none)
        assert self._handle is not None
        if left > size and measures_elsewhere(self.pool):
            self._propose_ahead()
        self._measure(self.pool, self._handle, self.round, proposed)
        self.round += 1
        return True

    def _over(self, why: str) -> bool:
        self.over = why
        self.progress.note(why)
        trials = self.records.count(before=self.round)
        self._notice(f"{why}: {trials} of {self.job.trials} trials were measured")
        return False

    def _notice(self, text: str) -> None:
        self._tell(lambda callback: callback.on_notice(self.job, text))

    def _enter(self, phase: str) -> None:
        self._tell(lambda callback: callback.on_phase(phase))

    def _proposals(self) -> list[Candidate]:
        """The open round's candidates: made while the round before was measured, or now."""
        with self.clock.phase("proposing"):
            made, self._next = self._next, None
            if made is not None and made[0] == self.round:
                return made[1].result()
            return self._propose(self.round, self._known(self.round))

    def _propose_ahead(self) -> None:
        """Begin with the next round: what it may know is known before this one is measured."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix=AHEAD)
        coming = self.round + 1
        made = self._thread.submit(self._propose, coming, self._known(coming))
        self._next = coming, made

    def _propose(self, round_: int, known: list[Measured]) -> list[Candidate]:
        return self.search.propose(round_, self.job.round_size, known)

    def _known(self, round_: int) -> list[Measured]:
        return [*self.preloaded, *self._history(round_)]

    def best_trial_seconds(self) -> float:
        """The fastest trial of the rounds gone through; infinite if none was right."""
        return self.records.best_trial_seconds(before=self.round)

    def round_is_known(self) -> bool:
        """Whether every candidate of the next round has been measured before."""
        return all((self.round, slot) in self.records for slot in range(self.job.round_size))

    def finish(self, again: bool = True) -> TuningResult:
        """Measure the finalists again and decide; not `again`, or without a trial, decide by what
        is known. Raises TuningError if there are none."""
        assert self._handle is not None
        valid = self.records.valid(self.task.title)
        if again and self.records.trials():
            self._enter("finalists")
            result = self._finish(self.pool, self._handle, valid)
        else:
            result = self._result(valid[0])
        if result.best.kind == BASELINE:
            self._notice(f"no gain over the {BASELINES[result.best.slot]}")
        self.progress.result(result)
        return result

    def stop(self, state: str, error: str | None = None) -> None:
        """Give up the job's memory and tell the callbacks how it ended."""
        with ExitStack() as stack:
            for callback in self._told:
                stack.callback(callback.on_finish, self.job, state, error)
            self._told = []
            if self._thread is not None:
                stack.callback(self._thread.shutdown)
            if self._handle is not None:
                handle, self._handle = self._handle, None
                handle.close()

    def _out_of_time(self) -> bool:
        budget = self.options.time_budget_s
        return budget is not None and time.perf_counter() - self.started >= budget

    def _history(self, round_: int) -> list[Measured]:
        """The rounds before `round_`, in slot order. The search learns from those up to the last
        but one; of the last one it takes what has been proposed."""
        return [self.measured[k] for k in sorted(self.measured) if k[0] < round_]

    def _learn(self, records: Iterable[Record]) -> None:
        trials = [r for r in records if r.kind == TRIAL]
        if trials:
            found = self.reading.measured(trials)
            self.measured.update(((m.round, m.slot), m) for m in found)

    def _note_strangers(self) -> None:
        """Say so where a resumed job has trials that this version of the space does not have."""
        outside = len(self.records.trials()) - len(self.measured)
        if outside:
            self.progress.note(
                f"{outside} recorded trials are not in the space of this version; "
                "the search learns nothing from them"
            )

    def _baselines(self, pool: Pool, handle: JobHandle) -> None:
        """Measure the baselines that are not recorded yet."""
        default = default_schedule(self.task.prim_func, self.task.target).trace
        if (BASELINE_ROUND, UNTRANSFORMED) not in self.records:
            trace = encode_trace(self.task.prim_func, handle.baseline_trace)
            self._keep([self._record(BASELINE_ROUND, UNTRANSFORMED, trace, {}, handle.baseline)])
        if (BASELINE_ROUND, DEFAULT) not in self.records:
            with self.clock.phase("measuring"):
                (result,) = pool.measure(handle, [default])
            self._clock(result)
            trace = encode_trace(self.task.prim_func, default)
            self._keep([self._record(BASELINE_ROUND, DEFAULT, trace, {}, result)])

    def _measure(
        self, pool: Pool, handle: JobHandle, round_: int, proposed: Sequence[Candidate]
    ) -> None:
        """Measure the slots of a round that are not recorded yet."""
        slots = [n for n in range(len(proposed)) if (round_, n) not in self.records]
        if not slots:
            return
        traces = [self.space.trace(*proposed[n]) for n in slots]

        def on_results(found: Sequence[tuple[int, MeasureResult]]) -> None:
            records = []
            with self.clock.phase("recording"):
                for place, result in found:
                    self._clock(result)
                    slot = slots[place]
                    variant, values = proposed[slot]
                    trace = self.reading.traces[variant]
                    records.append(self._record(round_, slot, trace, values, result))
                self._keep(records)

        with self.clock.phase("measuring"):
            pool.measure(handle, traces, self.records.best_seconds(), on_results)

    def _record(
        self,
        round_: int,
        slot: int,
        trace: Sequence[Any],
        values: dict[str, int],
        result: MeasureResult,
    ) -> Record:
        return Record(
            job_id=self.job.id,
            kind=BASELINE if round_ == BASELINE_ROUND else TRIAL,
            round=round_,
            slot=slot,
            workload_key=self.task.workload_key,
            target=self.job.target,
            device=self.job.device,
            toolchain=toolchain(),
            trace=trace,
            decisions=values,
            program_hash=result.program_hash,
            status=str(result.status),
            error=result.error or None,
            seconds=result.seconds,
            spread=_seconds_of(result.spread, result.raw_seconds),
            noise=result.noise,
            runs=result.runs,
            build_seconds=result.build_seconds,
        )

    def _clock(self, result: MeasureResult) -> None:
        """Where the time of a measurement went, by the clocks of its builder and its device."""
        self.device_seconds["building"] += result.build_seconds
        self.device_seconds["running"] += result.run_wall_seconds - result.verify_seconds
        self.device_seconds["verifying"] += result.verify_seconds
        self.device_seconds["waiting"] += result.queue_seconds

    def _keep(self, records: Sequence[Record]) -> None:
        """Hand over what came together: a store commits it as one."""
        self.records |= Recorded.of(records)
        self._learn(records)
        self._tell(lambda callback: callback.on_records(records))

    def _tell(self, event: Callable[[MeasureCallback], None]) -> None:
        """Hand an event to all receivers: none loses it by an interrupt or another's failure."""
        errors: list[BaseException] = []
        with interrupts_deferred():
            for callback in self.callbacks:
                try:
                    event(callback)
                except BaseException as e:
                    errors.append(e)
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"then also: {type(other).__name__}: {other}")
            raise errors[0]

    def _finish(self, pool: Pool, handle: JobHandle, valid: list[Record]) -> TuningResult:
        finalists = valid[: self.options.finalists]
        baseline = self.records[BASELINE_ROUND, DEFAULT]
        if baseline.status == OK and baseline not in finalists:
            finalists.append(baseline)
        self.progress.note(f"measuring {len(finalists)} finalists again, in interleaved blocks")
        traces = [self._trace_of(r) for r in finalists]
        with self.clock.phase("finalists", whole=True):
            timings = remeasure(pool, handle, traces, finalists)
        final: list[Record] = []
        for record, timing in zip(finalists, timings, strict=True):
            if timing.status == OK and timing.seconds is not None:
                self._remeasured(record, timing)
                final.append(replace(record, remeasured_seconds=timing.seconds))
        if not final:
            best, why = best_of_lost(finalists, timings)
            self.progress.note(f"{why}\nwhat was best as a trial is taken, with the trial's time")
            return self._result(best)
        self.records |= Recorded.of(final)
        return self._result(min(final, key=lambda r: r.remeasured_seconds or 0.0))

    def _result(self, best: Record) -> TuningResult:
        flop = float(self.task.compute_dag.flop_ct)
        phases = self.clock.since(self._spent_before)
        devices = dict(self.device_seconds)
        return result_of(self.records.values(), best, phases, devices, flop)

    def _trace_of(self, record: Record) -> Trace:
        return decode_trace(self.task.prim_func, record.trace, record.decisions, record.dialect)

    def _remeasured(self, record: Record, timing: MeasureResult) -> None:
        assert timing.seconds is not None
        measurement = Measurement(
            seconds=timing.seconds,
            spread=_seconds_of(timing.spread, timing.raw_seconds),
            noise=timing.noise,
            runs=timing.runs,
        )
        self._tell(lambda callback: callback.on_measurements(record, [measurement]))

    def _clock_training(self, seconds: float) -> None:
        if threading.current_thread().name.startswith(AHEAD):
            return  # it overlaps the measuring, so it takes no wall time of its own
        self.clock.move(seconds, "training")


def _seconds_of(fraction: float | None, seconds: float | None) -> float | None:
    return None if fraction is None or seconds is None else fraction * seconds
