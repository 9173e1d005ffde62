"""What is known of this machine beyond one process, in files beside the slot's lock: the best time
of a barrier, by which cores under different caches are known, and the fewest cycles of the
interference probe, by which shared cores are."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from math import inf
from pathlib import Path

from measure.devices import this_device

AGE = 3600.0
"""Seconds after which what nothing has come near is forgotten."""
FRESH = 60.0
"""Seconds for which no other process has to be told that the best was seen again."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Known:
    """The least that was found, the Unix time at which about as much was found last, and where."""

    least: float
    seen: float
    machine: str


class Best:
    """The least of what any process has found on this machine, noted in the file `path`; what is up
    to `near` times as much is as good.

    What was found before the machine was started, or on another one, does not count. Nor does what
    nothing has come near for an `AGE`: a guest may be moved to another host as it runs.
    """

    def __init__(
        self,
        path: Path,
        near: float,
        machine: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path, self._near = path, near
        self._machine = this_machine() if machine is None else machine
        self._clock = clock
        self._known: Known | None = None

    def note(self, found: float) -> float:
        """Take in what was `found`; gives the least, by which to judge it."""
        now = self._clock()
        old = self._known = self._known or self._read()
        # A clock that was set back makes nothing younger than now.
        age = 0.0 if old is None else now - min(old.seen, now)
        if old is None or found <= old.least or age > AGE:
            self._tell(Known(found, now, self._machine))
        elif found <= self._near * old.least and age > FRESH:
            self._tell(Known(old.least, now, self._machine))
        assert self._known is not None
        return self._known.least

    @property
    def least(self) -> float:
        """The least that was found here before; infinity where nothing was, or not lately."""
        known = self._known or self._read()
        return inf if known is None or self._clock() - known.seen > AGE else known.least

    def _tell(self, new: Known) -> None:
        """Keep and write down what is known now, unless another process knows better."""
        other = self._read()
        valid = other is not None and other.seen >= new.seen - AGE
        if other is not None and valid and other.least < new.least:
            new = other
        self._known = new
        # The folder goes with the user's session, on many systems; a search may outlive that.
        with contextlib.suppress(OSError):
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, delete=False) as file:
                file.write(json.dumps(asdict(new)))
            os.replace(file.name, self.path)

    def _read(self) -> Known | None:
        try:
            raw = json.loads(self.path.read_text())
            found = Known(float(raw["least"]), float(raw["seen"]), str(raw["machine"]))
        except (OSError, ValueError, KeyError, TypeError):  # never written, or not to its end
            return None
        return found if found.machine == self._machine and found.least > 0 else None


@cache
def this_machine() -> str:
    """This machine since it was started, and the cores that this process may run on."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return f"{this_device().fingerprint} {boot} {cores}"


def probe_name(threads: int) -> str:
    """What the file about the interference probe on so many threads is called."""
    return f"probe-{threads}"
