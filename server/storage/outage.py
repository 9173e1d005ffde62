"""What a loop that asks the database again and again says while it gets no answer."""

from __future__ import annotations

import logging
from time import monotonic

FIRST_SECONDS = 10.0
"""After the first warning, to the next; then twice as long each time."""
MOST_SECONDS = 3600.0


class Outage:
    """Warns that `what` cannot be done once, then at growing intervals, and tells once that it can
    again. For one thread, or one event loop."""

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log, self._what = log, what
        self._error: Exception | None = None
        self._since = self._due = self._pause = 0.0

    def failed(self, error: Exception) -> None:
        """Warn, if this kind of error is new, or lasts for long since the last warning."""
        now = monotonic()
        if self._error is None:
            self._since = now
        if type(error) is not type(self._error):
            self._due, self._pause = now, FIRST_SECONDS
        self._error = error
        if now < self._due:
            return
        self._log.warning("%s: %s", self._what, error)
        self._due = now + self._pause
        self._pause = min(2 * self._pause, MOST_SECONDS)

    def over(self) -> None:
        """Tell that it worked, if it did not before."""
        if self._error is not None:
            self._log.info("%s: no longer, after %.0f s", self._what, monotonic() - self._since)
            self._error = None
