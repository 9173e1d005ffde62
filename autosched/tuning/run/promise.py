"""What further rounds of a task may bring, where a bound of its time is known.

A round brings at most what lies above the bound, less with every round measured, half as much with
every round that brought nothing; so tasks at their bounds get no rounds, and a run converges.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from autosched.tuning.run.task_state import TaskState

CONVERGED = 5e-4
"""Of the objective: a round that promises less is not measured."""
DOUBT = 0.07
"""Of a task's time, which its finalists may take off when they are measured again."""
GAIN = 0.002
"""Of a task's time: a round that brought less brought nothing."""
REACHED = 0.97
"""Of the bound's speed: a task that has it is through."""


@dataclass(frozen=True)
class Promises:
    """`bounds`: seconds that no program of each task goes below; `objective` is what falls."""

    bounds: Sequence[float]
    objective: Callable[[Sequence[float]], float]

    def all(self, states: Sequence[TaskState]) -> list[float]:
        """By how much of itself the objective may fall with the next round of each task. It is
        nothing for an implementation that cannot become faster than another of its kernel."""
        times = [s.seconds for s in states]
        now = self.objective(times)
        out: list[float] = []
        for n, (state, bound) in enumerate(zip(states, self.bounds, strict=True)):
            hoped = times.copy()
            hoped[n] -= hope(state, bound)
            out.append((now - self.objective(hoped)) / now if state.dead is None else 0.0)
        return out

    def next(self, states: Sequence[TaskState], left: int, all_begin: bool) -> int | None:
        """The task whose round promises most, if that is enough and trials are `left`; before that
        one that has not begun and promises enough, or any if none has begun, or with `all_begin`.
        """
        promised = self.all(states)
        order = sorted(range(len(states)), key=lambda n: (-promised[n], n))
        alive = [n for n in order if states[n].dead is None]
        new = [n for n in alive if states[n].session is None]
        if new and (all_begin or promised[new[0]] >= CONVERGED or len(new) == len(states)):
            return new[0]
        begun = [n for n in alive if states[n].session is not None]
        return begun[0] if begun and left > 0 and promised[begun[0]] >= CONVERGED else None

    def counts(self, n: int, states: Sequence[TaskState]) -> bool:
        """Whether the objective may depend on task `n`: it does not where another implementation of
        its kernel is clearly faster."""
        times = [s.seconds for s in states]
        hoped = times.copy()
        hoped[n] *= 1 - DOUBT
        return self.objective(hoped) != self.objective(times)

    def pass_over(self, states: Sequence[TaskState]) -> None:
        """Say of the tasks that have not begun, and promise nothing, that they get no rounds."""
        promised = self.all(states)
        for state, bound, part in zip(states, self.bounds, promised, strict=True):
            if state.session is None and part < CONVERGED and state.dead is None:
                share = min(bound / state.seconds, 1.0)
                state.dead = f"left at {share:.0%} of what the machine's peak allows"


def hope(state: TaskState, bound: float) -> float:
    """Seconds that a task's next round may save."""
    known = state.seconds
    room = known - bound
    if room <= (1 - REACHED) * known:
        return 0.0
    if state.session is None or not state.rounds:
        return room
    past = [min(t, state.baseline) for t in state.history]
    idle = 0
    for before, after in zip(past[-2::-1], past[:0:-1], strict=True):
        if math.isfinite(before) and before - after > GAIN * after:
            break
        idle += 1
    return room / (state.rounds + 1) * math.ldexp(1.0, -idle)
