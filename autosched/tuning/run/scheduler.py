"""`TaskScheduler`: many tasks, one budget, spent where the objective falls fastest.

The gradient of Ansor (Zheng et al., OSDI 2020, section 6): what a further round of task i brings
is estimated from its own past (backward) and from an optimistic future (forward), times the
derivative of the objective by the task's time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

from autosched.checks import choice, listed, number, shown
from autosched.errors import AutoschedError, TuningError
from autosched.integers import integer
from autosched.tuning.callbacks import close_at_end
from autosched.tuning.options import TuningOptions, checked
from autosched.tuning.policies import PolicyFor, SearchPolicies, policies_of
from autosched.tuning.pools import pool_of
from autosched.tuning.report.result import TuningResult
from autosched.tuning.report.table import Table
from autosched.tuning.run.promise import CONVERGED, Promises
from autosched.tuning.run.resume import SUCCEEDED
from autosched.tuning.run.scheduler_callbacks import TaskSchedulerCallback
from autosched.tuning.run.session import Session
from autosched.tuning.run.task_state import TaskState, similarity_group
from autosched.tuning.task import SearchTask

Strategy = Literal["gradient", "round-robin"]
Objective = Callable[[Sequence[float]], float]
"""Seconds of each task -> what is to be made small."""
STEP = 1e-4
"""Relative step of the numerical derivative of an objective."""
LISTED = 3
"""Tasks named of those that were never begun."""
PATIENCE = 5
"""Rounds more than the others of its group that a task gets before it may be found dissimilar."""


@dataclass(frozen=True)
class SchedulerResult:
    """What a scheduler's run found.

    `results[i]` is task i's result, None where no program of it was right; `dead[i]` says why a
    task got no more rounds before the budget was spent. `objective` is the value reached (seconds,
    for the default objective), where a task without a result counts with its faster baseline, or
    without one with the shortest time of the others; `trials` counts all tasks'.
    """

    results: tuple[TuningResult | None, ...]
    dead: tuple[str | None, ...]
    objective: float
    trials: int
    elapsed_s: float


class TaskScheduler:
    """Tunes several tasks under one budget of trials.

    Args:
        tasks: all for one target.
        task_weights: how often each is called; 1 if left out.
        strategy: "gradient", or "round-robin": every task in turn.
        objective_func: from the seconds of the tasks to what is to be minimised. Default: their sum
            weighted by `task_weights`.
        alpha, beta, backward_window_size: of the gradient: weight of the past against the future,
            how much faster a similar task may promise to be, rounds of past that count.
        early_stopping_task: a task without gain in so many trials gets no more.
        estimates: seconds that each task is taken to need until it is measured, so that the
            objective is known from the start.
        bounds: seconds that no program of each task goes below, beside measured estimates: rounds
            are given by `autosched.tuning.run.promise`, until none promises a gain.
        callbacks: are told before and after each round.

    Raises TuningError on wrong arguments.
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        task_weights: Sequence[float] | None = None,
        strategy: Strategy = "gradient",
        *,
        objective_func: Objective | None = None,
        alpha: float = 0.2,
        beta: float = 2.0,
        backward_window_size: int = 3,
        early_stopping_task: int | None = None,
        estimates: Sequence[float] | None = None,
        bounds: Sequence[float] | None = None,
        callbacks: Sequence[TaskSchedulerCallback] = (),
    ) -> None:
        listed("tasks", tasks, SearchTask, "SearchTask", TuningError)
        if not tasks:
            raise TuningError("a TaskScheduler needs at least one task")
        keys = [t.workload_key for t in tasks]
        for n, key in enumerate(keys):
            if key in keys[:n]:
                raise TuningError(
                    f"tasks {keys.index(key)} and {n} are the same workload, {tasks[n].title}; "
                    "give it once, with the sum of the weights"
                )
        targets = {str(t.target) for t in tasks}
        if len(targets) > 1:
            raise TuningError(f"tasks have different targets: {', '.join(sorted(targets))}")
        given = [1.0] * len(tasks) if task_weights is None else task_weights
        weights = (
            [number("a task's weight", w, TuningError) for w in given]
            if isinstance(given, Iterable)
            else []
        )
        if len(weights) != len(tasks) or not all(w > 0 and math.isfinite(w) for w in weights):
            raise TuningError(
                f"expected {len(tasks)} task_weights > 0, one a task; found {shown(task_weights)}"
            )
        choice("strategy", strategy, get_args(Strategy), TuningError)
        alpha, beta = number("alpha", alpha, TuningError), number("beta", beta, TuningError)
        window = integer("backward_window_size", backward_window_size, 1, TuningError)
        if early_stopping_task is not None:
            name = "early_stopping_task"
            early_stopping_task = integer(name, early_stopping_task, 1, TuningError)
        guessed = _positive("estimates", estimates, len(tasks))
        if not 0 <= alpha <= 1 or beta <= 0:
            raise TuningError(f"expected 0 <= alpha <= 1 and beta > 0; found {alpha} and {beta}")
        expected = "TaskSchedulerCallback (receivers of records are measure_callbacks)"
        listed("callbacks", callbacks, TaskSchedulerCallback, expected, TuningError)
        if objective_func is not None and not callable(objective_func):
            raise TuningError(
                f"objective_func is {objective_func!r}; expected a function from the seconds of "
                "the tasks to what is to be made small"
            )
        self.callbacks = tuple(callbacks)
        self._policy_for: PolicyFor
        self._resumed = False
        self.strategy, self.alpha, self.beta = strategy, alpha, beta
        self.window, self.early_stopping_task = window, early_stopping_task
        self.states = [
            TaskState(t, w, similarity_group(t), estimate=e)
            for t, w, e in zip(tasks, weights, guessed, strict=True)
        ]
        self._objective: Objective = objective_func or (
            lambda seconds: sum(w * s for w, s in zip(weights, seconds, strict=True))
        )
        if bounds is not None and estimates is None:
            raise TuningError("bounds are given without estimates, which they are held against")
        least = _positive("bounds", bounds, len(tasks))
        self.promises = None if bounds is None else Promises(least, self.objective)

    def objective(self, seconds: Sequence[float]) -> float:
        """The objective's value. Raises TuningError where that is no number, or there is none."""
        listed("seconds", seconds, (int, float), "number", TuningError)
        try:
            found = self._objective(seconds)
        except Exception as e:
            times = ", ".join(f"{x:.4g}" for x in seconds)
            raise TuningError(
                f"objective_func raised {type(e).__name__}: {e}; it was given the seconds of the "
                f"{len(seconds)} tasks, [{times}], and is expected to return a number"
            ) from e
        return number("what objective_func returns", found, TuningError)

    def tune(
        self, options: TuningOptions | None = None, search_policy: SearchPolicies = None
    ) -> SchedulerResult:
        """Spend `num_measure_trials` over all tasks; with `resume`, the total of their jobs.

        `search_policy` is a name ("default", "sketch.xgb", "sketch.random"), a list with a
        SketchPolicy for each task, or a function that makes them, such as `lambda task:
        SketchPolicy(task, model)`; a task's is made when its first round begins. Every call is a
        run of its own.

        `early_stopping` and `time_budget_s` hold for the whole; a task that fails takes no other
        with it, and what it leaves of the budget goes to the others. Raises TuningError if no task
        has a right program, and KeyboardInterrupt, everything recorded, on Ctrl-C.
        """
        options = checked(options)
        tasks = [s.task for s in self.states]
        self.states = [
            TaskState(s.task, s.weight, s.group, estimate=s.estimate) for s in self.states
        ]
        self._policy_for = policies_of(search_policy, tasks, options.seed)
        self._resumed = options.resume
        started = time.perf_counter()
        table = Table(self.states, options.verbose, self.shares)
        with pool_of(options, self.states[0].task.target) as pool:
            own = replace(
                options,
                pool=pool,
                builder=None,
                runner=None,
                early_stopping=self.early_stopping_task,
                time_budget_s=None,
                num_measures_per_round=options.round_size_of(len(self.states)),
                verbose=0,
            )
            state, error = "failed", None
            try:
                with table:
                    self._spend(own, options, started, table)
                    self._finish(table)
                state = SUCCEEDED
            except (KeyboardInterrupt, SystemExit, BrokenPipeError):
                state, error = "cancelled", "interrupted"
                table.interrupted()
                raise
            except Exception as e:
                error = str(e) or type(e).__name__
                raise
            finally:
                with ExitStack() as stack:
                    close_at_end(stack, options.measure_callbacks)
                    self._stop(state, error)
        return self._result(time.perf_counter() - started)

    def _spend(
        self, own: TuningOptions, options: TuningOptions, started: float, table: Table
    ) -> None:
        budget, limit = options.time_budget_s, options.early_stopping
        best, since = math.inf, 0
        while self._behind() or self.trials() < options.num_measure_trials:
            left = options.num_measure_trials - self.trials()
            chosen = self._next(left)
            if chosen is None:
                if left > 0:
                    table.note(self._why_over())
                return
            before = self.trials()
            for callback in self.callbacks:
                callback.pre_tune(self, chosen)
            self._round(self.states[chosen], own, left, table)
            for callback in self.callbacks:
                callback.post_tune(self, chosen)
            value = self.value()
            since = since + self.trials() - before if value >= best else 0
            best = min(best, value)
            table.show(self.trials(), options.num_measure_trials, value)
            if budget is not None and time.perf_counter() - started >= budget:
                table.note("time budget reached")
                return
            if limit is not None and math.isfinite(best) and since >= limit:
                table.note(f"no better objective in {since} trials")
                return

    def _round(self, state: TaskState, own: TuningOptions, left: int, table: Table) -> None:
        """One more round of a task; whatever is wrong with it stays its own."""
        assert own.pool is not None and not isinstance(own.pool, str)  # noqa: PT018
        begins = self.promises is not None and state.session is None
        try:
            if state.session is None:
                policy = partial(self._policy_for, state.task)
                state.session = Session(state.task, own, own.pool, policy)
                known = state.session.start(search=self.promises is None)
                if state.session.notice is not None:
                    table.note(f"{state.task.title}: {state.session.notice}")
                state.history.append(math.inf)
                if known is not None:
                    state.result, state.dead = known, "its job is complete"
                    state.history.append(known.best_seconds)
                    return
            if (begins or left <= 0) and not state.session.round_is_known():
                return  # a resumed task whose share is spent, or others' baselines come first
            if not state.session.step(left):
                state.dead = state.session.over or "its job has all its trials"
        except AutoschedError as e:
            state.dead = str(e).splitlines()[0]
            table.note(f"{state.task.title}: {state.dead}")
            return
        best = state.session.best_trial_seconds()
        state.history.append(best)
        if not math.isfinite(best) and state.rounds >= 2:
            state.dead = "no candidate of its first rounds gave a right result"

    def _next(self, left: int) -> int | None:
        """The task that gets the next round: a pure function of what has been measured. With no
        trials left one that has not begun, so that every task has baselines."""
        alive = [n for n, s in enumerate(self.states) if s.dead is None]
        if not alive:
            return None
        behind = [n for n in alive if self._is_behind(self.states[n])]
        if behind:
            return behind[0]
        if self.promises is not None:
            return self.promises.next(self.states, left, self._resumed)
        if left <= 0:
            return next((n for n in alive if self.states[n].session is None), None)
        fewest = min(alive, key=lambda n: (self.states[n].rounds, n))
        if self.strategy == "round-robin" or self.states[fewest].rounds == 0:
            return fewest
        gradients = self.gradients()
        return min(alive, key=lambda n: (gradients[n], n))

    def _why_over(self) -> str:
        if self.promises is None or all(s.dead is not None for s in self.states):
            return "no task has anything left to measure"
        return f"no further round promises {CONVERGED:.2%} of the objective"

    def _is_behind(self, state: TaskState) -> bool:
        """Whether a resumed task has rounds that were measured before and not yet gone through."""
        return state.session is not None and state.session.round_is_known()

    def _behind(self) -> bool:
        return any(
            s.dead is None and (s.session is None or self._is_behind(s)) for s in self.states
        )

    def gradients(self) -> list[float]:
        """Of the objective by a further round of each task; the most negative promises most."""
        finite = self._times([s.best for s in self.states])
        out: list[float] = []
        for n, state in enumerate(self.states):
            if not math.isfinite(state.best):
                out.append(-math.inf if state.dead is None else 0.0)
                continue
            out.append(self._slope(finite, n) * self._promise(state))
        return out

    def _slope(self, seconds: Sequence[float], n: int) -> float:
        """The objective's derivative by the time of task n."""
        moved = list(seconds)
        moved[n] -= STEP * seconds[n]
        return (self.objective(seconds) - self.objective(moved)) / (STEP * seconds[n])

    def shares(self) -> list[float] | None:
        """The part of the objective that each task's time makes up: none where another way to do
        the same is faster. None while times are unknown."""
        times = [s.seconds for s in self.states]
        if not all(map(math.isfinite, times)):
            return None
        value = self.objective(times)
        return [self._slope(times, n) * t / value if value else 0.0 for n, t in enumerate(times)]

    def _promise(self, state: TaskState) -> float:
        """Change of the task's time, in seconds, expected from one more round; at most 0."""
        t, best = state.rounds, state.best
        past = state.history[t - self.window] if t > self.window else math.inf
        backward = (best - past) / self.window if math.isfinite(past) else 0.0
        forward = best - best / t
        rates = [s.flop / s.best for s in self.states if self._similar(s, state)]
        if rates:
            forward = min(forward, self.beta * state.flop / max(rates))
        return self.alpha * backward + (1.0 - self.alpha) * min(forward - best, 0.0)

    def _similar(self, other: TaskState, state: TaskState) -> bool:
        """Whether the other's speed says what this one can reach: the same operator at about the
        same size, unless this one has stayed far behind for long."""
        if other is state or other.group != state.group or not math.isfinite(other.best):
            return False
        slow = state.flop / state.best < other.flop / other.best / self.beta
        return not (slow and state.rounds > other.rounds + PATIENCE)

    def trials(self) -> int:
        """Candidates measured so far, of all tasks."""
        return sum(s.trials for s in self.states)

    def value(self) -> float:
        """The objective now; infinite while a task that may still be measured has no time, and no
        estimate."""
        if all(math.isfinite(s.estimate) for s in self.states):
            return self.objective([s.seconds for s in self.states])
        if any(not math.isfinite(s.best) and s.dead is None for s in self.states):
            return math.inf
        times = self._times([s.best for s in self.states])
        return self.objective(times) if all(map(math.isfinite, times)) else math.inf

    def _times(self, seconds: Sequence[float]) -> list[float]:
        """What an objective is given: a task without a right program has its baseline's time, or
        without that the shortest of all, since an objective may divide by it; infinite where
        nothing was measured."""
        known = [
            x if math.isfinite(x) else min(s.baseline, s.estimate)
            for x, s in zip(seconds, self.states, strict=True)
        ]
        least = min((x for x in known if math.isfinite(x)), default=math.inf)
        return [x if math.isfinite(x) else least for x in known]

    def _finish(self, table: Table) -> None:
        """Every task's finalists are measured again."""
        if self.promises is not None:
            self.promises.pass_over(self.states)
        waiting = [
            s for s in self.states if (not s.history if s.session is not None else s.dead is None)
        ]
        for n, state in enumerate(waiting):
            state.dead = state.dead or "its turn never came"
            if n < LISTED:
                table.finished(state)
        if len(waiting) > LISTED:
            table.note(f"{len(waiting) - LISTED} more tasks of which nothing was measured")
        for n, state in enumerate(self.states):
            if state.result is not None or state.session is None or not state.history:
                continue  # complete before, or never begun
            try:
                again = self.promises is None or self.promises.counts(n, self.states)
                state.result = state.session.finish(again)
            except AutoschedError as e:
                state.dead = str(e).splitlines()[0]
            table.finished(state)
        if all(s.result is None for s in self.states):
            reasons = "\n".join(f"  {s.task.title}: {s.dead}" for s in self.states)
            raise TuningError(f"no task has a right program:\n{reasons}")

    def _stop(self, state: str, error: str | None) -> None:
        """End every job, whatever a receiver raises at the end of one. What has its result has
        succeeded, whatever became of the others."""
        with ExitStack() as stack:
            for s in reversed(self.states):
                if s.session is None:
                    continue
                own = (state, error) if state != SUCCEEDED else ("failed", s.dead)
                if s.result is not None:
                    own = SUCCEEDED, None
                stack.callback(s.session.stop, *own)

    def _result(self, elapsed: float) -> SchedulerResult:
        times = self._times(
            [s.result.best_seconds if s.result is not None else math.inf for s in self.states]
        )
        return SchedulerResult(
            results=tuple(s.result for s in self.states),
            dead=tuple(s.dead for s in self.states),
            objective=self.objective(times),
            trials=self.trials(),
            elapsed_s=elapsed,
        )


def _positive(name: str, given: Sequence[float] | None, n: int) -> list[float]:
    """`n` seconds > 0, infinite where none are given."""
    known = [math.inf] * n if given is None else given
    found = (
        [number(f"each of {name}", x, TuningError) for x in known]
        if isinstance(known, Iterable)
        else []
    )
    if len(found) != n or not all(x > 0 for x in found):
        raise TuningError(f"expected {n} {name} > 0 in seconds, one a task; found {shown(given)}")
    return found
