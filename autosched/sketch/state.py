"""States: sketches in the making, as rules pass them on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Protocol

from autosched.schedule import LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, analyse_blocks
from autosched.sketch.decisions import DecisionSpec
from autosched.target import Target
from autosched.tir.affine import Int


@dataclass(frozen=True)
class TiledNest:
    """Loops of a tiled block that later rules place things at. `outer`: the innermost loop of the
    parallel level, which all operands of one thread's tile share. `fixed`: an intrinsic does the
    block, whose body nothing may be inlined into."""

    block: str
    outer: LoopRV
    fixed: bool = False


@dataclass(frozen=True)
class State:
    """A schedule with decisions so far, never changed in place: `fork` before applying primitives.

    `choices` are the structural choices made (they name the variant), `handled` the blocks that
    have their final place and loops, `factored` those that make or reduce partial results.
    """

    schedule: Schedule
    target: Target
    specs: tuple[DecisionSpec, ...] = ()
    choices: tuple[str, ...] = ()
    handled: frozenset[str] = frozenset()
    nests: tuple[TiledNest, ...] = field(default=())
    factored: frozenset[str] = frozenset()

    def fork(self) -> Schedule:
        """A copy of the schedule to work on."""
        return self.schedule.copy()

    def blocks(self) -> dict[str, BlockInfo]:
        """The blocks as they are now, in program order."""
        return self._blocks

    @cached_property
    def _blocks(self) -> dict[str, BlockInfo]:
        # Every rule asks for them, and a state does not change.
        return analyse_blocks(self.schedule.func)

    def nest_of(self, block: str) -> TiledNest | None:
        """The nest of a block that has been tiled."""
        return next((n for n in self.nests if n.block == block), None)

    def advance(
        self,
        schedule: Schedule,
        handled: tuple[str, ...] = (),
        specs: tuple[DecisionSpec, ...] = (),
        choice: str | None = None,
        nests: tuple[TiledNest, ...] = (),
    ) -> State:
        """The state after a rule."""
        return replace(
            self,
            schedule=schedule,
            specs=(*self.specs, *specs),
            choices=(*self.choices, choice) if choice else self.choices,
            handled=self.handled | frozenset(handled),
            nests=(*self.nests, *nests),
        )

    def with_factored(self, names: frozenset[str]) -> State:
        """The state with more blocks of partial results."""
        return replace(self, factored=self.factored | names)

    def declare(self, schedule: Schedule, specs: tuple[DecisionSpec, ...]) -> None:
        """Give new decisions their default values in a forked schedule, so that they can be
        used."""
        values: dict[str, Int] = dict(schedule.decisions)
        for spec in specs:
            values.update(zip(spec.names, spec.default, strict=True))
        schedule.decisions = values


class Verdict(Enum):
    """What a rule says about a block (Ansor's PASS, APPLY, APPLY_AND_SKIP_REST)."""

    PASS = 0
    APPLY = 1
    APPLY_AND_SKIP_REST = 2


class Rule(Protocol):
    """One sketch rule. Blocks are visited from the last to the first."""

    name: str

    def condition(self, state: State, block: str) -> Verdict:
        """Whether the rule applies to a block."""
        ...

    def apply(self, state: State, block: str) -> Iterable[State]:
        """The sketches that it makes of one, the most usual first; best each when it is asked for:
        the default schedule takes the first only."""
        ...
