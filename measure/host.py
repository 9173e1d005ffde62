"""What is known of this machine beyond one process, in files beside the slot's lock: the best time
of a barrier, by which cores that lie apart are known, and whether the witness can be believed."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from measure.devices import this_device

AGE = 3600.0
"""Seconds after which a time that nothing has come near is forgotten."""
NEAR = 1.5
FRESH = 60.0
"""Seconds for which nobody has to be told that the best was seen again, nor asks in vain twice."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Known:
    """A barrier's seconds, the Unix time at which it last took about as long, and where."""

    seconds: float
    seen: float
    machine: str


class BestBarrier:
    """The best of what any process has found on this machine, noted in the file `path`.

    What was found before the machine was started, or on another one, does not count. Nor does what
    nothing has come near for an `AGE`: a guest may be moved to another host as it runs.
    """

    def __init__(
        self, path: Path, machine: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = path
        self._machine = this_machine() if machine is None else machine
        self._clock = clock
        self._known: Known | None = None

    def note(self, found: float) -> float:
        """Take in a barrier of `found` seconds; gives the best, by which to judge it."""
        now = self._clock()
        old = self._known = self._known or self._read()
        # A clock that was set back makes nothing younger than now.
        age = 0.0 if old is None else now - min(old.seen, now)
        if old is None or found <= old.seconds or age > AGE:
            self._tell(Known(found, now, self._machine))
        elif found <= NEAR * old.seconds and age > FRESH:
            self._tell(Known(old.seconds, now, self._machine))
        assert self._known is not None
        return self._known.seconds

    def _tell(self, new: Known) -> None:
        """Keep and write down what is known now, unless another process knows better."""
        other = self._read()
        valid = other is not None and other.seen >= new.seen - AGE
        if other is not None and valid and other.seconds < new.seconds:
            new = other
        self._known = new
        # The folder goes with the user's session, on many systems; a search may outlive that.
        with contextlib.suppress(OSError):
            self.path.write_text(json.dumps(asdict(new)))

    def _read(self) -> Known | None:
        try:
            raw = json.loads(self.path.read_text())
            found = Known(float(raw["seconds"]), float(raw["seen"]), str(raw["machine"]))
        except (OSError, ValueError, KeyError, TypeError):  # never written, or not to its end
            return None
        return found if found.machine == self._machine and found.seconds > 0 else None


@cache
def this_machine() -> str:
    """This machine since it was started."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return f"{this_device().fingerprint} {boot}"


def is_watchable(
    path: Path,
    ask: Callable[[], bool],
    machine: str | None = None,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Whether the witness says anything on this processor, noted in the file `path`.

    `ask()` tries it, which takes seconds where it fails, and fails as long as somebody else uses
    the cores. So a yes is for ever, and a no for `FRESH` seconds.
    """
    machine = this_device().fingerprint if machine is None else machine
    known = {}
    with contextlib.suppress(OSError, ValueError):  # never written, or not to its end
        known = json.loads(path.read_text())
    if isinstance(known, dict) and known.get("machine") == machine:
        if known.get("right"):
            return True
        asked = known.get("asked")
        if isinstance(asked, float) and 0 <= clock() - asked < FRESH:
            return False
    right = ask()
    with contextlib.suppress(OSError):
        path.write_text(json.dumps({"machine": machine, "right": right, "asked": clock()}))
    return right
