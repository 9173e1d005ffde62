"""The processes that examine workloads (`server.programs.worker`), and the one way to ask them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
from asyncio.subprocess import PIPE, Process
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from server import subprocesses
from server.http.problems import RETRY_SECONDS, ProblemError, refused, retry_after, unavailable
from server.programs.worker import HEADER, WorkloadLimits, frame

_log = logging.getLogger("server.examiner")

START_SECONDS = 60.0
"""A child that has not answered its first question after these, on top of its own, is lost."""

PATIENCE = 2.5
"""How many times the seconds that a question may take of a processor it may take in all: a machine
that has much else to do is slower."""

KEPT, KEPT_CHARACTERS = 256, 4096
"""What was examined last is not examined again: so many questions of so many characters."""


_OF_CLIENT = (429,)
"""Statuses of refusals that are about who asks."""
_FIRST = {"name": "matmul", "args": [8, 8, 8], "target": "llvm"}


@dataclass(frozen=True)
class Examined:
    """A workload that may be tuned: the fields of `records.Workload`, and the target in full."""

    workload: Mapping[str, Any]
    target: str


class _Ended(Exception):
    """A child ended by itself, or was killed, before it answered."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Turns:
    """So many at a time; where more would, clients take turns, whoever of them asks more often."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def of(self, client: str) -> AsyncIterator[None]:
        """A turn of `client`, as long as the block."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(client)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, client: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was given just then
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            client, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[client] = turns
            if not turn.done():  # one that nobody waits for any more
                turn.set_result(None)
                return
        self._free += 1


class Examiner:
    """Up to `processes` children; `waiting` questions may wait for one.

    A client may have as many questions as there are places left: one alone half of all places, and
    whoever comes next finds some.
    """

    def __init__(self, limits: WorkloadLimits, processes: int = 2, waiting: int = 64) -> None:
        self.limits = limits
        self._turns = Turns(processes)
        self._idle: list[Process] = []
        self._known: dict[str, Examined] = {}
        self._asked: Counter[str] = Counter()
        self._most = processes + waiting
        self._closed = False
        self._flying: dict[str, asyncio.Task[Examined]] = {}
        """By question, those that are being examined."""
        self._warming: asyncio.Task[None] | None = None

    async def examine(self, question: Mapping[str, Any], client: str = "") -> Examined:
        """The workload of `{"script"}` or `{"name", "args"}`, with `"target"`, asked by `client`.

        Raises ProblemError: 422 for what is none, beyond limits, or takes too long to tell; 429
        where too many of the client's questions wait, 503 where too many of all do, or where this
        machine is too busy.
        """
        if (known := self.known(question)) is not None:
            return known
        asked = json.dumps(question)
        flight = self._flying.get(asked)
        if flight is None:
            return await self._examine(asked, question, client)
        try:
            return await asyncio.shield(flight)
        except ProblemError as e:
            if e.status not in _OF_CLIENT:
                raise
        return await self._examine(asked, question, client)  # it was another client's bound

    def known(self, question: Mapping[str, Any]) -> Examined | None:
        """What a question was answered with lately; None where it has to be asked."""
        return self._known.get(json.dumps(question))

    async def _examine(self, asked: str, question: Mapping[str, Any], client: str) -> Examined:
        """Ask, for all who ask the same meanwhile: they share the answer, and one place."""
        flight = asyncio.get_running_loop().create_task(self._fly(asked, question, client))
        self._flying.setdefault(asked, flight)
        flight.add_done_callback(partial(self._land, asked))
        return await asyncio.shield(flight)

    async def _fly(self, asked: str, question: Mapping[str, Any], client: str) -> Examined:
        found = await self.ask(question, client)
        known = Examined(found["workload"], found["target"])
        if len(asked) <= KEPT_CHARACTERS:
            self._known[asked] = known
            if len(self._known) > KEPT:
                del self._known[next(iter(self._known))]
        return known

    def _land(self, asked: str, flight: asyncio.Task[Examined]) -> None:
        if self._flying.get(asked) is flight:
            del self._flying[asked]
        if not flight.cancelled():
            flight.exception()  # whoever asked has it, or has gone

    def start(self) -> None:
        """Have a child ready for the first question: what it imports takes seconds."""
        self._warming = asyncio.get_running_loop().create_task(self._warm())

    async def _warm(self) -> None:
        async with self._turns.of(""):
            try:
                await self._put(_FIRST, await self._start(), START_SECONDS)
            except (_Ended, ProblemError) as e:
                _log.warning("no process to examine workloads could be made ready: %s", e)

    async def ask(self, question: Mapping[str, Any], client: str = "") -> dict[str, Any]:
        """The answer to any question that `worker.answer` knows. Raises ProblemError."""
        asked, mine = self._asked.total(), self._asked[client]
        if asked >= self._most or self._closed:
            raise unavailable(f"{asked} workloads are being examined; try again")
        if mine > self._most - asked:
            raise refused(
                "rate-limited",
                f"{mine} of your workloads are being examined, and {self._most - asked} places are "
                "left for all clients; try again when some of yours are done",
                headers=retry_after(RETRY_SECONDS),
            )
        self._asked[client] += 1
        try:
            async with self._turns.of(client):
                found = await self._ask(question)
        finally:
            self._asked[client] -= 1
            if not self._asked[client]:
                del self._asked[client]
        if "problem" in found:
            if "mistake" in found:
                _log.error("examining a workload failed", extra={"traceback": found["mistake"]})
            raise refused(found["problem"], found["detail"])
        return found

    async def _ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        if self._idle:
            try:
                return await self._put(question, self._idle.pop())
            except _Ended as e:
                # By anything: by what it answered before, or by a machine without memory, which
                # ends first who is idle. Only its time is counted for this question alone.
                if e.status == -signal.SIGPROF:
                    return self._lost(e)
        try:
            return await self._put(question, await self._start(), START_SECONDS)
        except _Ended as e:
            if e.status == -signal.SIGKILL:  # its own bound on memory ends it otherwise
                raise unavailable(
                    "this machine killed the process that examined the workload, as it does when "
                    "its memory runs out; try again later"
                ) from e
            return self._lost(e)

    async def _put(
        self, question: Mapping[str, Any], child: Process, more_seconds: float = 0.0
    ) -> dict[str, Any]:
        """The child's answer. Raises _Ended where it has none."""
        seconds = PATIENCE * self.limits.seconds + more_seconds
        answered = False
        try:
            async with asyncio.timeout(seconds):
                found = await _exchange(child, question)
            answered = True
            return found
        except TimeoutError as e:
            raise unavailable(
                f"this machine is too busy: examining the workload took more than {seconds:g} "
                "seconds, most of which it waited for a processor; try again later"
            ) from e
        except (asyncio.IncompleteReadError, BrokenPipeError, ConnectionResetError) as e:
            _log.warning("a process that examined a workload ended")
            raise _Ended(await child.wait()) from e
        finally:
            if answered and not self._closed:
                self._idle.append(child)
            else:
                await _end(child)

    def _lost(self, ended: _Ended) -> dict[str, Any]:
        why = "examining it exhausted the memory or the stack of a process"
        if ended.status == -signal.SIGPROF:
            why = f"examining it took more than {self.limits.seconds:g} seconds of processor time"
        detail = f"the workload is beyond limits: {why}"
        return {"problem": "workload-too-large", "detail": detail}

    async def _start(self) -> Process:
        child = await asyncio.create_subprocess_exec(
            *subprocesses.command("server.programs.worker"),
            env=subprocesses.environment(),
            stdin=PIPE,
            stdout=PIPE,
        )
        assert child.stdin is not None
        child.stdin.write(frame(asdict(self.limits)))
        return child

    async def close(self) -> None:
        """End all children."""
        self._closed = True
        if self._warming is not None:
            self._warming.cancel()
            await asyncio.gather(self._warming, return_exceptions=True)
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
