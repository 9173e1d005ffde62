"""How a job's process is left before its end, from whatever it is doing."""

from __future__ import annotations

import os
import signal
from enum import Enum
from types import FrameType

LEAVE_SECONDS = 5.0
"""What a run may take to be left in order; then its process ends as it is."""

DONE, CRASHED, UNAVAILABLE = 0, 1, 75
"""Exit statuses: the job is ended, parked or somebody else's; the database is away, and whoever
finds the lease over puts the job back. Any other, as CRASHED: the process has crashed."""


class Why(Enum):
    """Why a run is left before its end."""

    PARKED = "parked"
    CANCELLED = "cancelled"
    LOST = "lost"
    OVERRUN = "overrun"


class Leave(SystemExit):
    """Raised in the main thread to leave the run."""


class Exit:
    """How a run is left: `ask`, from any thread, raises `Leave` in the main one, once."""

    def __init__(self) -> None:
        self.why: Why | None = None
        self.reason = ""
        """With OVERRUN: what it took more of than it may."""
        self.asked = False  # no event: a handler must not wait for the lock of one
        self._raised = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._leave)

    def ask(self, why: Why, reason: str = "") -> None:
        """Leave; of several reasons the first one holds, but a lease that is lost goes first."""
        if self.why is None or why is Why.LOST:
            self.why, self.reason = why, reason
        if not self.asked:
            self.asked = True
            # The main thread holds this signal back while it does what must be done whole.
            os.kill(os.getpid(), signal.SIGINT)

    def _leave(self, number: int, frame: FrameType | None) -> None:
        if self.why is None:
            self.why = Why.PARKED
        self.asked = True
        if not self._raised:
            self._raised = True
            raise Leave(DONE)
