"""How long a job waits for a machine that others disturb, and how a turn does."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

FIRST_SECONDS = 5.0
"""What a job may wait before it has worked; and what it has to earn once it has lost its patience,
since candidates that are timed one after the other are to find the machine in one state."""
MOST_SECONDS = 10.0
PAUSE_SECONDS = 0.005
SPARSE = 10.0
"""Times what a look takes that is waited for the next, so that looking costs little."""


class Patience:
    """What a job may still wait: `FIRST_SECONDS` at first, and then as long as it has worked. So a
    machine that is always disturbed makes a search at most twice as long, and five seconds."""

    def __init__(self) -> None:
        self._left, self._lost = FIRST_SECONDS, False

    @property
    def seconds(self) -> float:
        """How long it may wait now; 0 once it was lost: the machine is taken as it is."""
        return 0.0 if self._lost else self._left

    def note(self, waited: float, worked: float) -> None:
        """Seconds that passed without and with work."""
        self._left -= waited
        self._lost = self._lost or self._left <= 0.0
        self._left = min(MOST_SECONDS, max(0.0, self._left) + worked)
        if self._left >= FIRST_SECONDS:
            self._lost = False


@dataclass
class Moment:
    """When a turn may begin: `disturbed()` says whether somebody has a part in the cores, and
    `calm_seconds` is what the yardstick takes at most where nobody wears out caches and memory, 0
    if that is not known. After `patience` seconds, all is taken as it is.

    Most of what disturbs a turn ends soon, and waiting costs the device nothing. `waited` are the
    seconds of that, without what the yardstick took.
    """

    disturbed: Callable[[], bool]
    patience: float
    calm_seconds: float = 0.0
    waited: float = field(default=0.0, init=False)

    def wait(self) -> bool:
        """Until nobody has a part in the cores; whether that was to be waited for."""
        before, began = self.waited, time.monotonic()
        while self.waited < self.patience and self.disturbed():
            time.sleep(PAUSE_SECONDS)
            self.waited = before + time.monotonic() - began
        return self.waited > before

    def postponed(self, own: float, spent: float) -> bool:
        """Whether the yardstick, which took `own` seconds a call, is to be asked again, as it is by
        now: it took so long because others use the memory. To find that out took `spent` seconds.
        """
        if own <= (self.calm_seconds or inf) or self.waited >= self.patience:
            return False
        pause = min(max(PAUSE_SECONDS, SPARSE * spent), self.patience - self.waited)
        time.sleep(pause)
        self.waited += pause
        self.wait()
        return True
