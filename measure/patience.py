"""How long a job waits for a machine that others disturb."""

from __future__ import annotations

MOST_SECONDS = 10.0
AGAIN = 0.5
"""Of `MOST_SECONDS`: what has to be earned until a job that lost its patience waits again, since
candidates that are timed one after the other are to find the machine in one state."""


class Patience:
    """What a job may still wait: ten seconds at first, and as long as it has worked since. So a
    machine that is always disturbed makes a search at most twice as long, and ten seconds."""

    def __init__(self) -> None:
        self._left, self._lost = MOST_SECONDS, False

    @property
    def seconds(self) -> float:
        """How long it may wait now; 0 once it was lost: the machine is taken as it is."""
        return 0.0 if self._lost else self._left

    def note(self, waited: float, worked: float) -> None:
        """Seconds that passed without and with work."""
        self._left -= waited
        self._lost = self._lost or self._left <= 0.0
        self._left = min(MOST_SECONDS, max(0.0, self._left) + worked)
        if self._left >= AGAIN * MOST_SECONDS:
            self._lost = False
