"""The process that keeps a worker's slots."""

from __future__ import annotations

import subprocess
import sys

SIGNALLED = """
import queue, signal
from measure.cluster.supervisor import Supervisor

over = queue.SimpleQueue()
signal.signal(signal.SIGALRM, lambda number, _: over.put(number))
for n in range(3000):
    signal.setitimer(signal.ITIMER_REAL, (1 + n % 60) * 1e-6)
    Supervisor([], print).run(over)
print("ended")
"""


def test_a_signal_ends_it_whatever_it_is_doing() -> None:
    """With an event, whose lock its wait holds for moments, the handler waited for itself."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
