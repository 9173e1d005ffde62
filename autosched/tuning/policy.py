"""`SketchPolicy`: how candidates are found: sketches, a cost model, and evolutionary search."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Union

from autosched.checks import instance, listed, shown
from autosched.errors import TuningError
from autosched.integers import integer
from autosched.search.evolution import EvolutionarySearch, Measured, SearchParams
from autosched.search.model import CheckedModel, CostModel, is_model
from autosched.sketch.generate import generate_space
from autosched.sketch.space import Candidate, Population, Space, Variant
from autosched.sketch.state import State, Verdict
from autosched.tuning.best import RecordsLike, check_records, opened
from autosched.tuning.run.history import Reading
from records import TRIAL

if TYPE_CHECKING:
    from autosched.tuning.task import SearchTask

_log = logging.getLogger(__name__)

PRELOADED_ROUND = -2
"""The round of what was measured before the search began: all rounds may use it."""


@dataclass(frozen=True)
class EmptyPolicy:
    """A policy that searches nothing: `auto_schedule` gives the program as it is written, and
    `task.tune` times it, beside the generic schedule that every job is compared with."""

    task: SearchTask

    def check_is_for(self, task: SearchTask) -> None:
        """Raise TuningError unless `task` has the workload of the policy's own."""
        _check_is_for(self, task)


def _check_is_for(policy: EmptyPolicy | SketchPolicy, task: SearchTask) -> None:
    if policy.task.workload_key != task.workload_key:
        raise TuningError(
            f"the search policy is for {policy.task.title}, and the task is {task.title}; "
            f"make one for this task: {type(policy).__name__}(task, ...)"
        )


class PreloadMeasuredStates:
    """What `records` (a log, a SQLite file, a database URL, an open source) holds of a task: its
    search starts from the best of them, learns from all, and measures none again but those that
    were imported or are of another device: here they are handed out only once they are measured."""

    def __init__(self, records: RecordsLike) -> None:
        check_records(records)
        self.records = records

    def measured(
        self, task: SearchTask, space: Space, job: str | None = None, device: str | None = None
    ) -> list[Measured]:
        """The task's trials that are candidates of `space`, in the order of their ids, but those
        of `job`: a run that is resumed has its own in rounds. `device`: the one searched for."""
        from autosched.tuning.task import SearchTask

        instance("task", task, SearchTask, "a SearchTask", TuningError)
        instance("space", space, Space, "a task's space", TuningError)
        for name, value in (("job", job), ("device", device)):
            instance(name, value, (str, type(None)), "a text or None", TuningError)
        with opened(self.records) as source:
            found = source.records(
                workload_key=task.workload_key, target=str(task.target), kind=TRIAL
            )
            others = [r for r in found if job is None or r.job_id != job]
        known = Reading(space).preloaded(others, PRELOADED_ROUND, device)
        if len(known) < len(others):
            _log.warning(
                "%d of %d records of %s not preloaded: not in the space of this version",
                len(others) - len(known),
                len(others),
                task.title,
            )
        return known


class PreloadCustomSketchRule:
    """A sketch rule of the user's own, asked of every block before the built-in rules.

    `meet_condition_func(policy, state, block)` returns PASS, APPLY (the sketches of the rule beside
    those of the built-in ones) or APPLY_AND_SKIP_REST (the rule's alone). `apply_func(policy,
    state, block)` returns a list of states, the most usual first. `block` is a block's name, and
    blocks come from the last to the first, the rule's new ones too. A state is never changed:

        schedule = state.fork()
        spec = ChoiceSpec(block, f"{block}.width", (8, 16))        # a free integer
        state.declare(schedule, (spec,))
        ...                                                        # primitives, Decision(spec.name)
        return [state.advance(schedule, handled=(block,), specs=(spec,))]

    The built-in rules leave `handled` blocks alone and finish the others. `rule_name` becomes part
    of the sketches' names.
    """

    PASS = Verdict.PASS
    APPLY = Verdict.APPLY
    APPLY_AND_SKIP_REST = Verdict.APPLY_AND_SKIP_REST

    def __init__(
        self,
        meet_condition_func: Callable[[SketchPolicy, State, str], Verdict | int],
        apply_func: Callable[[SketchPolicy, State, str], Sequence[State]],
        rule_name: str = "custom-rule",
    ) -> None:
        for name, given in (("condition", meet_condition_func), ("apply", apply_func)):
            if not callable(given):
                raise TuningError(
                    f"the {name} function of the sketch rule {rule_name} is {given!r}; expected a "
                    "function of (policy, state, block)"
                )
        self.meet_condition_func, self.apply_func = meet_condition_func, apply_func
        self.rule_name = rule_name


class CustomRule:
    """A user's rule as the walk over the blocks asks it, with what it returns checked."""

    def __init__(self, policy: SketchPolicy, given: PreloadCustomSketchRule) -> None:
        self.policy, self.given = policy, given
        self.name = given.rule_name

    def condition(self, state: State, block: str) -> Verdict:
        """What the user's condition says. Raises TuningError if that is no verdict."""
        with self._told(block):
            found = self.given.meet_condition_func(self.policy, state, block)
        try:
            return Verdict(found)
        except ValueError as e:
            raise TuningError(
                f"the condition of the sketch rule {self.name} returned {found!r} for block "
                f"{block}; expected PASS, APPLY or APPLY_AND_SKIP_REST"
            ) from e

    def apply(self, state: State, block: str) -> list[State]:
        """The user's sketches, named by the rule. Raises TuningError if they are no states."""
        with self._told(block):
            found = self.given.apply_func(self.policy, state, block)
        if not isinstance(found, (list, tuple)) or not all(isinstance(s, State) for s in found):
            raise TuningError(
                f"the sketch rule {self.name} returned {found!r} for block {block}; expected a "
                "list of states, such as [state.advance(schedule, handled=(block,))]"
            )
        label = f"{block}.{self.name}"
        return [
            replace(s, choices=(*s.choices, label)) if s.choices == state.choices else s
            for s in found
        ]

    @contextmanager
    def _told(self, block: str) -> Iterator[None]:
        """What the user's functions raise, as the error of a rule, which has a name."""
        try:
            yield
        except Exception as e:
            raise TuningError(
                f"the sketch rule {self.name} raised {type(e).__name__} for block {block}: {e}"
            ) from e


InitSearchCallback = Union[PreloadMeasuredStates, PreloadCustomSketchRule]


class SketchPolicy:
    """Evolutionary search over the sketches of a task, guided by a cost model.

    `cost_model` is the default model where left out. `seed` governs everything random; tuning
    takes the seed of its options instead. `init_search_callbacks`: what is known beforehand, and
    rules of the user's own. Raises TuningError for arguments of another type, and if a rule returns
    what it may not.
    """

    def __init__(
        self,
        task: SearchTask,
        cost_model: CostModel | None = None,
        params: SearchParams | None = None,
        seed: int = 0,
        init_search_callbacks: Sequence[InitSearchCallback] = (),
    ) -> None:
        from autosched.tuning.models import default_model
        from autosched.tuning.task import SearchTask

        instance("task", task, SearchTask, "a SearchTask", TuningError)
        if cost_model is not None and not is_model(cost_model):
            raise TuningError(
                f"cost_model is {shown(cost_model)}; expected a model with predict and fit, such "
                "as at.XGBModel()"
            )
        instance("params", params, (SearchParams, type(None)), "SearchParams", TuningError)
        seed = integer("seed", seed, 0, TuningError)
        kinds = (PreloadMeasuredStates, PreloadCustomSketchRule)
        listed(
            "init_search_callbacks",
            init_search_callbacks,
            kinds,
            "PreloadMeasuredStates",
            TuningError,
        )
        self.task = task
        self.cost_model = default_model(seed) if cost_model is None else cost_model
        self.params = params or SearchParams()
        self.seed = seed
        self.init_search_callbacks = tuple(init_search_callbacks)

    def check_is_for(self, task: SearchTask) -> None:
        """Raise TuningError unless `task` has the workload of the policy's own."""
        _check_is_for(self, task)

    @cached_property
    def space(self) -> Space:
        """The task's space, with the sketches of the user's rules where there are some."""
        given = [c for c in self.init_search_callbacks if isinstance(c, PreloadCustomSketchRule)]
        if not given:
            return self.task.space
        rules = [CustomRule(self, rule) for rule in given]
        return generate_space(self.task.prim_func, self.task.target, rules)

    def generate_sketches(self) -> tuple[Variant, ...]:
        """The sketches: structures whose integers are still free, by name and as traces."""
        return self.space.variants

    def sample_initial_population(self, n: int) -> Population:
        """`n` random candidates; fewer where the space is small and they would repeat."""
        n = integer("n", n, 1, TuningError)
        return self.search(self.seed, self.params.round_size).sample(n)

    def evolutionary_search(self, n: int | None = None) -> list[Candidate]:
        """The `n` candidates (default: a round) that would be measured first: of the untried
        structures and of all candidates in turns, best first."""
        size = self.params.round_size if n is None else integer("n", n, 1, TuningError)
        return self.search(self.seed, size).propose(0, size, self.preloaded())

    def search(
        self, seed: int, round_size: int, model: CostModel | CheckedModel | None = None
    ) -> EvolutionarySearch:
        """The search of a run with rounds of `round_size` candidates, by `model` in place of the
        policy's where given."""
        params = replace(self.params, round_size=round_size)
        chosen = self.cost_model if model is None else model
        return EvolutionarySearch(self.space, chosen, seed, params)

    def preloaded(self, job: str | None = None, device: str | None = None) -> list[Measured]:
        """What is known on `device` before the first round, but what `job` has measured itself."""
        return [
            m
            for c in self.init_search_callbacks
            if isinstance(c, PreloadMeasuredStates)
            for m in c.measured(self.task, self.space, job, device)
        ]
