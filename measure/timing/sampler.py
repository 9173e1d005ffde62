"""The sampler: which candidate gets the next block of samples, and what all its blocks say.

A state machine that is told blocks and does nothing else: it knows no process, no clock, and no
code. Every candidate starts with one block. After that only contenders get more, those that may be
among the fastest: the one with the fewest blocks first, so that the blocks of different candidates
are interleaved, and what slows the machine for a while slows all of them. A candidate that is
slower than the contenders by more than its block's noise gets no second one: what it was measured
for is known.

The pool uses it twice with different stop rules: for the candidates of a round (`SEARCH`), which
one or two blocks rank, and for the final re-measurement (`final`), which tells the fastest apart.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf, sqrt
from statistics import median

from measure.timing.plan import StopRule
from measure.timing.timing import DISTURBED, Timing, combine

MOST_DOUBT = 0.6
"""Share by which a disturbed block may have been too slow, at most: two threads on one core."""
BETWEEN_RUN_INFLATION = 1.6
"""How much further apart two runs of a pool are than the blocks of one: 1.2 to 2.2 times in nine
sets of three to seven repetitions of convolution, product and softmax, 4 times in one."""
EQUAL = 1.645 * sqrt(2.0) * BETWEEN_RUN_INFLATION
"""Standard errors by which two times of equal programs differ at most, nine times in ten."""
UNSURE = 0.5
"""The noise of a time after which the candidate failed in a later block."""
ERRORS_KEPT = 32


@dataclass(eq=False)
class _Sampled:
    blocks: list[Timing] = field(default_factory=list)
    ended: bool = False

    @property
    def clean(self) -> list[float]:
        """Seconds by each undisturbed block."""
        return [b.seconds for b in self.blocks if b.noise <= DISTURBED]

    @property
    def least_seconds(self) -> float:
        """What the candidate takes in the best case, by its blocks so far."""
        doubts = (b.seconds / (1.0 + min(b.noise, MOST_DOUBT)) for b in self.blocks)
        return min(self.clean or doubts)


class Sampler:
    """See the module. `best_seconds`: of the fastest so far that is not sampled here."""

    def __init__(self, rule: StopRule, best_seconds: float = inf) -> None:
        self._rule, self._before = rule, best_seconds
        self._sampled: dict[int, _Sampled] = {}

    def add(self, candidate: int, block: Timing) -> None:
        """Another block of a candidate."""
        self._sampled.setdefault(candidate, _Sampled()).blocks.append(block)

    def end(self, candidate: int) -> None:
        """No further block of this candidate; what it has counts, if it has any."""
        if candidate in self._sampled:
            self._sampled[candidate].ended = True

    def drop(self, candidate: int) -> None:
        """The candidate failed: nothing that it took counts."""
        self._sampled.pop(candidate, None)

    @property
    def best_seconds(self) -> float:
        """The time of the fastest so far."""
        return min([self._before, *(combine(s.blocks).seconds for s in self._sampled.values())])

    def next(self) -> int | None:
        """The candidate that gets the next block, or None: all that is wanted is known."""
        contenders = {n: s for n, s in self._sampled.items() if not self.is_settled(n)}
        compare = self._rule.compare and self._contenders() > 1
        wanting = {n: s for n, s in contenders.items() if compare or self._short(s)}
        return min(wanting, key=lambda n: (len(wanting[n].blocks), n), default=None)

    def is_settled(self, candidate: int) -> bool:
        """Whether no further block of this candidate is wanted. It may be again, as long as it was
        not ended: the best may prove slower by its later blocks."""
        sampled = self._sampled.get(candidate)
        if sampled is None or sampled.ended or len(sampled.blocks) >= self._rule.most:
            return True
        if not self._rule.compare and not self._short(sampled):
            return True
        return sampled.least_seconds > self._rule.margin * self.best_seconds

    def timing(self, candidate: int) -> Timing:
        """What all blocks of a candidate say."""
        return combine(self._sampled[candidate].blocks)

    def _short(self, sampled: _Sampled) -> bool:
        return len(sampled.clean) < self._rule.least

    def _contenders(self) -> int:
        limit = self._rule.margin * self.best_seconds
        return sum(s.least_seconds <= limit for s in self._sampled.values())


class Noise:
    """The noise figure: how far two times of equal programs lie apart at most, nine times in ten,
    by the errors of the candidates last sampled."""

    def __init__(self) -> None:
        self._errors: deque[float] = deque(maxlen=ERRORS_KEPT)

    def note(self, timing: Timing) -> None:
        """Count the error of a candidate in."""
        if timing.error is not None:
            self._errors.append(timing.error)

    def figure(self) -> float:
        """As a fraction; 0 where no candidate had two blocks yet."""
        return EQUAL * median(self._errors) if self._errors else 0.0
