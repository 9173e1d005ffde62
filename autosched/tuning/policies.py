"""Search policies as they may be given: a name, an object, one a task, or a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Union

from autosched.errors import AutoschedError, TuningError
from autosched.search.model import CostModel
from autosched.tuning.models import default_model
from autosched.tuning.policy import EmptyPolicy, SketchPolicy
from cost_model.random import RandomModel

if TYPE_CHECKING:
    from autosched.tuning.task import SearchTask

PolicyFor = Callable[["SearchTask"], SketchPolicy]
"""How a task is to be searched."""
SearchPolicy = Union[str, SketchPolicy, None]
"""A task's: a name of `MODELS`, or an object; None is the default."""
AnyPolicy = Union[SearchPolicy, EmptyPolicy]
SearchPolicies = Union[SearchPolicy, Sequence[SketchPolicy], PolicyFor]
"""Several tasks': one name or function for all, or one object a task, in any order."""
MODELS: dict[str, Callable[[int], CostModel]] = {
    "default": default_model,
    "sketch.xgb": default_model,
    "sketch.random": RandomModel,
}
"""Cost models by the names that auto_scheduler has for its search policies."""


def policy_of(given: SearchPolicy, task: SearchTask, seed: int) -> SketchPolicy:
    """The policy of one task. Raises TuningError if it is none, or another task's."""
    return policies_of(given, [task], seed)(task)


def searching(given: AnyPolicy, task: SearchTask, seed: int) -> SketchPolicy | None:
    """The policy of one task; None where it is one that searches nothing. Raises TuningError if it
    is none, or another task's."""
    if isinstance(given, EmptyPolicy):
        given.check_is_for(task)
        return None
    return policy_of(given, task, seed)


def policies_of(given: SearchPolicies, tasks: Sequence[SearchTask], seed: int) -> PolicyFor:
    """How each of `tasks` is searched. Raises TuningError if `given` is no policy, or tasks have
    none or two; a function's answer is looked at when it is asked."""
    if given is None or isinstance(given, str):
        if given is not None and given not in MODELS:
            raise TuningError(f"no search policy {given!r}; expected one of {', '.join(MODELS)}")
        make = MODELS[given or "default"]
        return lambda task: SketchPolicy(task, make(seed), seed=seed)
    if callable(given):
        return _checked(given)
    if isinstance(given, EmptyPolicy):
        raise TuningError(
            "an EmptyPolicy searches nothing, so that there is nothing to tune; "
            "auto_scheduler.auto_schedule(task, policy) gives the program as it is written"
        )
    mine = [given] if isinstance(given, SketchPolicy) else given
    if not isinstance(mine, Sequence) or not all(isinstance(p, SketchPolicy) for p in mine):
        raise TuningError(
            f"search_policy is {given!r}; expected a name ({', '.join(MODELS)}), a SketchPolicy "
            "for each task, or a function from a task to its SketchPolicy"
        )
    by_key = {p.task.workload_key: p for p in mine}
    missing = [t.title for t in tasks if t.workload_key not in by_key]
    if missing or len(mine) != len(tasks):
        raise TuningError(
            f"{len(mine)} search policies, for {', '.join(p.task.title for p in mine)}; expected "
            f"one for each task: {', '.join(t.title for t in tasks)}"
        )
    return lambda task: by_key[task.workload_key]


def _checked(given: PolicyFor) -> PolicyFor:
    def make(task: SearchTask) -> SketchPolicy:
        try:
            found = given(task)
        except AutoschedError:
            raise
        except Exception as e:
            raise TuningError(
                f"search_policy raised {type(e).__name__} for {task.title}: {e}; expected a "
                "function from a task to its SketchPolicy"
            ) from e
        if not isinstance(found, SketchPolicy):
            raise TuningError(
                f"search_policy gave {found!r} for {task.title}; expected its SketchPolicy"
            )
        return found

    return make
