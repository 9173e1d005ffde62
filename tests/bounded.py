"""Long fuzzes that end: after a budget of seconds, and with a message where one example hangs."""

from __future__ import annotations

import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis.errors import UnsatisfiedAssumption

capture: Any = None
"""pytest's own holder of the standard streams; set by conftest.py."""


class Budget:
    """Seconds that all examples of one test share; those that come later are passed over.

    A faster machine comes further: the examples end by a number, too, and whoever changes them or
    what they test runs all of them once, with FUZZ_WHOLE=1 in the environment, which lifts the
    budgets. So no machine meets an example that nobody has seen, but for `make fuzz`, which is for
    that.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = math.inf if "FUZZ_WHOLE" in os.environ else seconds
        self._end: float | None = None

    def over(self) -> bool:
        """Whether the time is over; it starts with the first call."""
        now = time.monotonic()
        if self._end is None:
            self._end = now + self.seconds
        return now > self._end

    def run(self, check: Callable[..., object], *args: Any) -> None:
        """`check(*args)` while there is time.

        What has failed is made small and tried again, however late it is: examples passed over
        then would hide the failure behind "flaky".
        """
        if self.over():
            return
        try:
            check(*args)
        except UnsatisfiedAssumption:
            raise  # no example after all
        except BaseException:
            self._end = math.inf
            raise


@contextmanager
def at_most(seconds: float, story: Callable[[], str]) -> Iterator[None]:
    """End the whole process, printing `story()` and every stack, if the body takes longer.

    A compiler or a kernel that hangs in C cannot be interrupted from Python, and a test run that
    never ends tells nobody why.
    """

    def give_up() -> None:
        if capture is not None:
            capture.suspend_global_capture(in_=True)
        print(f"\none example took more than {seconds} s:\n{story()}", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
