"""Contained child processes: what runs in one may crash, hang or eat memory, and is an outcome.

A `Child` is forked from a warm `Template` (milliseconds), in a session and process group of its
own, with limits, a private folder, and its output captured. A deadline, a crash or a closed
connection ends the whole group; the next call starts a fresh child. Linux only (pidfd, memfd,
prctl).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from autosched.errors import MeasureError
from measure.process import protocol
from measure.process.protocol import Request
from measure.process.seccomp import FROM_OUTSIDE
from measure.process.template_client import (
    START_SECONDS,
    Limits,
    NotStarted,
    Template,
    TemplateLost,
)

RETRIES = 2
"""After the loss of a process for no fault of what it was asked."""
TAIL = 4096
DYING_SECONDS = 1.0
LATE_SECONDS = 0.5
"""After a deadline, at which nobody looked: this process stood still, and the child as well."""
MOST_PAUSES = 3
MOST_BYTES = 64 << 20
"""Of a reply. What is longer is none: code wrote to its own connection."""
GROW_BYTES = 512 << 20
"""Beyond what a child had at its first answer; above that it is replaced."""
R = TypeVar("R")
OutcomeKind = Literal["value", "error", "memory", "timeout", "crash", "lost"]


@dataclass(frozen=True)
class Outcome(Generic[R]):
    """How a request ended.

    `value`: answered as the request promises. `error`: raised. `memory`: MemoryError. `timeout`:
    killed at the deadline. `crash`: the process died or closed its connection. `lost`: it was
    killed or stopped from outside, or its template was, or it could not be started, or not in time.
    `text` is the full story of anything but a value.
    """

    kind: OutcomeKind
    value: R | None = None
    text: str = ""
    wall_seconds: float = 0.0


class Child:
    """One contained process that answers one request at a time."""

    def __init__(self, template: Template, limits: Limits, grow_bytes: int = GROW_BYTES) -> None:
        self.template = template
        self.limits = limits
        self.grow_bytes = grow_bytes
        self.starts = 0
        self.pid: int | None = None
        self._sock: socket.socket | None = None
        self._held = contextlib.ExitStack()
        """What goes with the process: its descriptors, and itself."""
        self._status: int | None = None
        self._pidfd = -1
        self._output = -1
        self._faults = -1
        self._first_resident = 0
        self._buffer = bytearray()
        self._deadline = 0.0
        self._timeout = 0.0
        self._began = 0.0
        self._pauses = 0
        self._ready = False
        self.busy = False
        """Whether a request is under way."""
        self._reply: tuple[type, ...] = ()
        self._resting = False
        self._unborn = ""
        self._ooms = 0

    def start(self) -> None:
        """Start the process if there is none. Raises NotStarted, and MeasureError."""
        if self.pid is not None:
            return
        with contextlib.ExitStack() as made:

            def kept(fd: int) -> int:
                made.callback(os.close, fd)
                return fd

            try:
                ours, theirs = socket.socketpair()
                made.enter_context(ours)
                with theirs:
                    output, faults = (kept(os.memfd_create(n)) for n in ("output", "faults"))
                    pid = self.template.fork((theirs.fileno(), output, faults), self.limits)
                    made.callback(self._reap, pid, self.template.pid)
                    pidfd = kept(os.pidfd_open(pid))
                    self._ooms = _oom_kills()
            except OSError as e:  # no descriptors left, no memory
                raise NotStarted(f"no measuring process can be started: {e}") from e
            self._held = made.pop_all()
        self._sock, self._output, self._faults, self._pidfd = ours, output, faults, pidfd
        self.pid = pid
        self._first_resident = 0
        self._ready = self._resting = False
        self.starts += 1

    def call(self, request: Request[R], timeout: float, fds: Sequence[int] = ()) -> Outcome[R]:
        """Have the child answer and wait; `timeout` in seconds."""
        self.send(request, timeout, fds)
        return wait_any([self])[0][1]

    def ask(self, request: Request[R], timeout: float, fds: Sequence[int] = ()) -> Outcome[R]:
        """A call in which no candidate has a part: it is made again where the process is lost."""
        for _ in range(RETRIES):
            outcome = self.call(request, timeout, fds)
            if outcome.kind != "lost":
                return outcome
        return self.call(request, timeout, fds)

    def send(self, request: Request[Any], timeout: float, fds: Sequence[int] = ()) -> None:
        """Begin a call; `wait_any` gives its outcome. The clock of `timeout` starts when the child
        is ready, and again if this process, or all of the machine, stood still as it ran out."""
        if self.busy:
            raise MeasureError("this child is at work already")
        self._unborn = ""
        try:
            self.start()
        except (NotStarted, TemplateLost) as e:
            # No fault of the call: an outcome like any other, and the next call tries again.
            self.busy, self._unborn = True, str(e)
            self._began = self._deadline = time.monotonic()
            return
        assert self._sock is not None
        if self._resting:
            self._resting = False
            self._signal(signal.SIGCONT)
        os.ftruncate(self._output, 0)
        os.lseek(self._output, 0, os.SEEK_SET)  # the child's too: it writes from the start again
        self._buffer.clear()
        self.busy, self._reply = True, request.reply
        self._began = time.monotonic()
        self._timeout, self._pauses = timeout, 0
        self._deadline = self._began + timeout + (0.0 if self._ready else START_SECONDS)
        self._sock.settimeout(self._deadline - self._began)
        # A child that died meanwhile is seen by wait_any, like one that dies later.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            protocol.send_request(self._sock, request, timeout + LATE_SECONDS, fds)
        self._sock.setblocking(False)

    def rest(self) -> None:
        """Let nothing run in the process until the next call, threads that were left included."""
        if self.pid is not None and not self.busy:
            self._resting = True
            self._signal(signal.SIGSTOP)

    def _signal(self, sent: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has died: the next call sees it
            signal.pidfd_send_signal(self._pidfd, sent)

    def kill(self) -> int | None:
        """End the process and all that it started; its wait status, None if that is not known."""
        self.pid, self.busy, self._unborn, self._status = None, False, "", None
        self._held.close()
        return self._status

    def _reap(self, pid: int, template_pid: int | None) -> None:
        # One that died with the template before is not known to this one.
        if self.template.pid == template_pid:
            with contextlib.suppress(TemplateLost):
                self._status = self.template.reap(pid)

    def _advance(self, readable: bool, died: bool) -> Outcome[Any] | None:
        """The outcome if there is one by now."""
        if self._unborn:
            self.busy = False
            return Outcome("lost", text=self._unborn)
        closed = self._receive() if readable or died else False
        size = protocol.HEADER.size
        if not self._ready and self._buffer.startswith(protocol.READY):
            del self._buffer[:size]
            self._ready = True
            self._began = time.monotonic()
            self._deadline = self._began + self._timeout
        if len(self._buffer) >= size:
            (length,) = protocol.HEADER.unpack(self._buffer[:size])
            if length > MOST_BYTES:
                text = f"a reply of {length} bytes"
                return self._end("crash", f"the child sent {text}; {MOST_BYTES} are the most")
            if len(self._buffer) >= size + length:
                return self._finish(bytes(self._buffer[size : size + length]))
        if died or closed:
            # A dying process closes its descriptors first: give it the time to be seen dead.
            dead = died or wait([self._pidfd], DYING_SECONDS)
            return self._end("crash", "" if dead else "closed its connection")
        late = (now := time.monotonic()) - self._deadline
        if late > LATE_SECONDS and self._pauses < MOST_PAUSES:
            self._pauses += 1
            self._deadline = now + self._timeout
        elif late >= 0:
            if self._is_stopped():
                return self._end("lost", "stopped from outside (SIGSTOP)")
            if not self._ready:  # it has not even read what it was asked
                return self._end("lost", "its process was not ready in time")
            return self._end("timeout", f"not done within {self._timeout:g} s")
        return None

    def _receive(self) -> bool:
        """Take what has arrived; True if the connection is closed."""
        assert self._sock is not None
        while len(self._buffer) <= MOST_BYTES + protocol.HEADER.size:
            try:
                part = self._sock.recv(1 << 20)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True
            if not part:
                return True
            self._buffer += part
        return False

    def _finish(self, body: bytes) -> Outcome[Any]:
        wall = time.monotonic() - self._began
        try:
            kind, value, resident = protocol.decode_reply(body)
        except pickle.UnpicklingError as e:
            return self._end("crash", f"the child sent a reply that cannot be read: {e}")
        if kind in ("value", "last") and not isinstance(value, self._reply):
            found, wanted = type(value).__name__, " or ".join(t.__name__ for t in self._reply)
            return self._end("crash", f"the child answered {found}; expected {wanted}")
        self.busy = False
        self._first_resident = self._first_resident or resident
        if kind == "last" or resident - self._first_resident > self.grow_bytes:
            self.kill()
        if kind in ("value", "last"):
            return Outcome("value", value, wall_seconds=wall)
        return Outcome("error" if kind == "error" else "memory", text=value, wall_seconds=wall)

    def _is_stopped(self) -> bool:
        try:
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it has ended, or there is no descriptor left to look
            return False
        return state in ("T", "t")

    def _end(self, kind: OutcomeKind, text: str) -> Outcome[Any]:
        """Kill the child and tell the whole story."""
        wall = time.monotonic() - self._began
        faults, output = _tail(self._faults, 4 * TAIL), _tail(self._output, TAIL)
        ooms = self._ooms
        status = self.kill()
        if kind == "crash" and not text:
            if status is None:
                kind, text = "lost", "the template process ended, and its children with it"
            elif os.WIFSIGNALED(status):
                name = _signal_name(os.WTERMSIG(status))
                text = f"killed by {name}"
                if name == "SIGKILL" and _oom_kills() > ooms:
                    kind, text = "memory", "killed by the system, which ran out of memory"
                elif name == "SIGPROF":
                    seconds = f"{self._timeout:g} s of processor time of each core"
                    kind, text = "timeout", f"not done within {seconds}"
                elif os.WTERMSIG(status) in FROM_OUTSIDE:
                    kind, text = "lost", f"killed by {name} from outside"
            else:
                text = f"ended with exit code {os.WEXITSTATUS(status)} before it answered"
        parts = [text]
        if faults:
            parts.append(f"--- fault handler\n{faults}")
        if output:
            parts.append(f"--- end of its output\n{output}")
        return Outcome(kind, text="\n".join(parts), wall_seconds=wall)


def wait_any(children: Sequence[Child]) -> list[tuple[Child, Outcome[Any]]]:
    """Wait until at least one of the busy children is done; all that are, with their outcomes.

    If the wait is interrupted, all of `children` that were at work are killed: what they would
    answer later would be taken for the answer to another call.
    """
    try:
        while True:
            busy = [c for c in children if c.busy]
            if not busy:
                raise MeasureError("none of the children is at work")
            ready = _poll(busy)
            found = [(c, c._advance(*ready[id(c)])) for c in busy]
            if done := [(child, outcome) for child, outcome in found if outcome is not None]:
                return done
    except BaseException:
        for child in children:
            if child.busy:
                child.kill()
        raise


def _poll(busy: Sequence[Child]) -> dict[int, tuple[bool, bool]]:
    """(readable, died) of each child, by id, once something happened or a deadline has passed."""
    left = min(c._deadline for c in busy) - time.monotonic()
    begun = [c for c in busy if not c._unborn]
    ends = [what for c in begun for what in (c._sock, c._pidfd) if what is not None]
    ready = wait(ends, max(0.0, left))
    return {id(c): (c._sock in ready, c._pidfd in ready) for c in busy}


def _tail(fd: int, size: int) -> str:
    """The last `size` bytes of a file as text."""
    end = os.fstat(fd).st_size
    data = os.pread(fd, size, max(0, end - size))
    cut = "[...] " if end > size else ""
    return cut + data.decode(errors="replace").strip("\0\n ")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _oom_kills() -> int:
    """Processes that the system has killed for want of memory since boot; 0 if not counted."""
    for line in Path("/proc/vmstat").read_text().splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0
