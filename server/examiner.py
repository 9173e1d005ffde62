"""The processes that examine workloads (`server.examine`), and the one way to ask them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from server.examine import HEADER, WorkloadLimits, frame
from server.problems import refused, unavailable

_log = logging.getLogger(__name__)

START_SECONDS = 60.0
"""A child that has not answered its first question after these, on top of its own, is lost."""

KEPT, KEPT_CHARACTERS = 256, 4096
"""What was examined last is not examined again: so many questions of so many characters."""


@dataclass(frozen=True)
class Examined:
    """A workload that may be tuned: the fields of `records.Workload`, and the target in full."""

    workload: Mapping[str, Any]
    target: str


class Examiner:
    """Up to `processes` children; `waiting` questions may wait for one."""

    def __init__(self, limits: WorkloadLimits, processes: int = 2, waiting: int = 32) -> None:
        self.limits = limits
        self._turns = asyncio.Semaphore(processes)
        self._idle: list[Process] = []
        self._known: dict[str, Examined] = {}
        self._asked = 0
        self._most = processes + waiting
        self._closed = False

    async def examine(self, question: Mapping[str, Any]) -> Examined:
        """The workload of `{"script"}` or `{"name", "args"}`, with `"target"`.

        Raises ProblemError: 422 for what is none, beyond limits, or takes too long to tell; 503
        where too many questions wait.
        """
        asked = json.dumps(question)
        known = self._known.get(asked)
        if known is None:
            found = await self.ask(question)
            known = Examined(found["workload"], found["target"])
            if len(asked) <= KEPT_CHARACTERS:
                self._known[asked] = known
                if len(self._known) > KEPT:
                    del self._known[next(iter(self._known))]
        return known

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to any question that `server.examine.answer` knows. Raises ProblemError."""
        if self._asked >= self._most or self._closed:
            raise unavailable(f"{self._asked} workloads are being examined; try again")
        self._asked += 1
        try:
            async with self._turns:
                found = await self._ask(question)
        finally:
            self._asked -= 1
        if "problem" in found:
            if "mistake" in found:
                _log.error("examining a workload failed", extra={"traceback": found["mistake"]})
            raise refused(found["problem"], found["detail"])
        return found

    async def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        fresh = not self._idle
        child = await self._start() if fresh else self._idle.pop()
        seconds = self.limits.seconds + (START_SECONDS if fresh else 0.0)
        answered = False
        try:
            async with asyncio.timeout(seconds):
                found = await _exchange(child, question)
            answered = True
            return found
        except TimeoutError:
            return _lost(f"examining it took more than {self.limits.seconds:g} seconds")
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError):
            _log.warning("a process that examined a workload ended")
            return _lost("examining it exhausted the memory or the stack of a process")
        finally:
            if answered and not self._closed:
                self._idle.append(child)
            else:
                await _end(child)

    async def _start(self) -> Process:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "server.examine", stdin=PIPE, stdout=PIPE
        )
        assert child.stdin is not None
        child.stdin.write(frame(asdict(self.limits)))
        return child

    async def close(self) -> None:
        """End all children."""
        self._closed = True
        while self._idle:
            await _end(self._idle.pop())


async def _exchange(child: Process, question: Mapping[str, Any]) -> dict[str, Any]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(frame(question))
    await child.stdin.drain()
    (length,) = HEADER.unpack(await child.stdout.readexactly(HEADER.size))
    found: dict[str, Any] = json.loads(await child.stdout.readexactly(length))
    return found


async def _end(child: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        child.kill()
    await child.wait()
    # asyncio closes the pipes of a child only when it is collected.
    child._transport.close()  # type: ignore[attr-defined]


def _lost(why: str) -> dict[str, Any]:
    return {"problem": "workload-too-large", "detail": f"the workload is beyond limits: {why}"}
