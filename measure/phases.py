"""Where the wall time of a run goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OTHER = "other"
WAITING = "waiting"
"""For a device that others use; counted wherever it happens."""


class PhaseClock:
    """Counts all time to exactly one phase, so that all phases add up to the wall time.

    The innermost phase counts, but inside of a `whole` one only `WAITING` does by itself; outside
    of all phases it is `OTHER`. For one thread. `clock` gives seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._since = clock()
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._phase, self._whole = OTHER, False

    @contextmanager
    def phase(self, name: str, whole: bool = False) -> Iterator[None]:
        """Count the body to this phase."""
        before = self._phase, self._whole
        self._count()
        if not self._whole or name == WAITING:
            self._phase, self._whole = name, whole or name == WAITING
        try:
            yield
        finally:
            self._count()
            self._phase, self._whole = before

    def move(self, seconds: float, name: str) -> None:
        """Count so many of the last `seconds` to another phase, unless a whole one is going on."""
        self._count()
        if not self._whole:
            self._spent[self._phase] -= seconds
            self._spent[name] += seconds

    def spent(self) -> dict[str, float]:
        """Seconds by phase, up to now; they add up to the time since this clock was made."""
        self._count()
        return dict(self._spent)

    def since(self, before: dict[str, float]) -> dict[str, float]:
        """What was spent after `spent` gave `before`."""
        return {name: s - before.get(name, 0.0) for name, s in self.spent().items()}

    def _count(self) -> None:
        now = self._clock()
        self._spent[self._phase] += now - self._since
        self._since = now
