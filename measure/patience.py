"""How long a job waits for a machine that others disturb."""

from __future__ import annotations

FIRST_SECONDS = 5.0
"""What a job may wait before it has worked; and what it has to earn once it has lost its patience,
since candidates that are timed one after the other are to find the machine in one state."""
MOST_SECONDS = 10.0


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
