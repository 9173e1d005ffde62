"""Contained child processes: what runs in one may crash, hang or eat memory, and is an outcome.

A `Child` is forked from a warm `Template` (milliseconds), in a session and process group of its
own, with limits, a private folder, and its output captured. A deadline, a crash or a closed
connection ends the whole group; the next call starts a fresh child. Linux only (pidfd, memfd,
prctl).
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autosched.errors import MeasureError
from measure import protocol

# Of the environment a child gets what programs need to start, and nothing else: no tokens, no keys.
_PASSED = """
PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR LD_LIBRARY_PATH VIRTUAL_ENV XDG_CACHE_HOME
PYTHONHASHSEED PYTHONHOME PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX CUDA_VISIBLE_DEVICES CUDA_HOME
"""
PASSED_ENV = frozenset(_PASSED.split())
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
TAIL = 4096
START_SECONDS = 60.0
DYING_SECONDS = 1.0
OutcomeKind = Literal["value", "error", "memory", "timeout", "crash", "lost"]


@dataclass(frozen=True)
class Limits:
    """What one child may use. `memory_bytes` is address space beyond what it starts with."""

    memory_bytes: int = 8 << 30
    file_bytes: int = 1 << 30


@dataclass(frozen=True)
class Outcome:
    """How a call ended.

    `value`: returned. `error`: raised. `memory`: MemoryError. `timeout`: killed at the deadline.
    `crash`: the process died or closed its connection. `lost`: it was killed from outside, or its
    template was. `text` is the full story of anything but a value; `signal` a name such as
    "SIGSEGV".
    """

    kind: OutcomeKind
    value: Any = None
    text: str = ""
    signal: str = ""
    wall_seconds: float = 0.0


class TemplateLost(MeasureError):
    """The template process is gone; its children died with it."""


class Template:
    """The process that children are forked from; started on first use, and again when lost."""

    def __init__(
        self, preload: Sequence[str] = (), warm: str = "", pass_env: Sequence[str] = ()
    ) -> None:
        self.preload = tuple(preload)
        self.warm = warm
        self.pass_env = tuple(pass_env)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._folder: Path | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the template, None if it was not started."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process if it is not running. Raises MeasureError if it cannot be started."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        if not hasattr(os, "pidfd_open") or not hasattr(os, "memfd_create"):
            raise MeasureError("measuring needs Linux 5.4 or later (pidfd_open, memfd_create)")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._folder = Path(tempfile.mkdtemp(prefix="autosched-measure-"))
        self._process = _spawn(theirs, self._environment())
        self._control = ours
        theirs.close()
        hello = {"folder": str(self._folder), "preload": self.preload, "warm": self.warm}
        ours.settimeout(START_SECONDS)
        try:
            self._request(hello)
        except TemplateLost as e:
            raise MeasureError(f"the measuring process could not start: {e}") from e

    def fork(self, fds: tuple[int, int, int], limits: Limits) -> int:
        """A new child's process id. `fds`: its socket, its output, its fault file."""
        self.start()
        request = {
            "op": "fork",
            "memory_bytes": limits.memory_bytes,
            "file_bytes": limits.file_bytes,
        }
        try:
            return int(self._request(request, fds)["pid"])
        except TemplateLost:
            self.close()
            self.start()
            return int(self._request(request, fds)["pid"])

    def reap(self, pid: int) -> int:
        """End a child with all that it started; its status as of os.wait. Raises TemplateLost."""
        return int(self._request({"op": "reap", "pid": pid})["status"])

    def close(self) -> None:
        """End the process, and with it all children, and remove their folders."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _request(self, message: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        if self._control is None:
            raise TemplateLost("it was closed")
        try:
            socket.send_fds(self._control, [json.dumps(message).encode()], list(fds))
            reply = self._control.recv(1 << 16)
        except OSError as e:
            raise TemplateLost(f"the template process does not answer: {e}") from e
        except BaseException:
            # The answer may still come, and would be taken for that to the next request.
            self.close()
            raise
        if not reply:
            raise TemplateLost("the template process ended")
        return json.loads(reply)  # type: ignore[no-any-return]

    def _environment(self) -> dict[str, str]:
        wanted = PASSED_ENV | set(self.pass_env)
        env = {k: v for k, v in os.environ.items() if k in wanted or k.startswith("LC_")}
        # Whatever this process can import the children can, however it was started.
        env["PYTHONPATH"] = os.pathsep.join(p or os.getcwd() for p in sys.path)
        return {**env, **dict.fromkeys(ONE_THREAD, "1")}


def _spawn(control: socket.socket, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the template, in a session of its own."""
    fd = control.fileno()
    command = [sys.executable, "-P", "-m", "measure.template", str(os.getpid()), str(fd)]
    return subprocess.Popen(
        command,
        pass_fds=(fd,),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # ours may be read by a program
        start_new_session=True,
    )


class Child:
    """One contained process that answers one call at a time."""

    def __init__(self, template: Template, limits: Limits, grow_bytes: int = 512 << 20) -> None:
        self.template = template
        self.limits = limits
        self.grow_bytes = grow_bytes
        self.starts = 0
        self.pid: int | None = None
        self._sock: socket.socket | None = None
        self._template_pid: int | None = None
        self._pidfd = -1
        self._output = -1
        self._faults = -1
        self._first_resident = 0
        self._buffer = bytearray()
        self._deadline = 0.0
        self._timeout = 0.0
        self._began = 0.0
        self._busy = False
        self._ooms = 0

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return self._busy

    def start(self) -> None:
        """Start the process if there is none. Raises MeasureError."""
        if self.pid is not None:
            return
        ours, theirs = socket.socketpair()
        output, faults = os.memfd_create("output"), os.memfd_create("faults")
        try:
            self.pid = self.template.fork((theirs.fileno(), output, faults), self.limits)
            self._template_pid = self.template.pid
            self._pidfd = os.pidfd_open(self.pid)
        except BaseException:
            ours.close()
            os.close(output)
            os.close(faults)
            raise
        finally:
            theirs.close()
        self._sock, self._output, self._faults = ours, output, faults
        self._first_resident = 0
        self._ooms = _oom_kills()
        self.starts += 1

    def call(self, function: str, *args: Any, timeout: float, fds: Sequence[int] = ()) -> Outcome:
        """Run "module:function" on `args` in the child and wait; `timeout` in seconds."""
        self.send(function, *args, timeout=timeout, fds=fds)
        return wait_any([self])[0][1]

    def send(self, function: str, *args: Any, timeout: float, fds: Sequence[int] = ()) -> None:
        """Begin a call; `wait_any` gives its outcome. The clock starts when the child is ready."""
        if self._busy:
            raise MeasureError("this child is at work already")
        self.start()
        assert self._sock is not None
        os.ftruncate(self._output, 0)
        os.lseek(
            self._output, 0, os.SEEK_SET
        )  # shared with the child: it writes from the start again
        self._buffer.clear()
        self._busy = True
        self._began = time.monotonic()
        self._timeout, self._deadline = timeout, self._began + timeout
        self._sock.settimeout(timeout)
        # A child that died meanwhile is seen by wait_any, like one that dies later.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            protocol.send_request(self._sock, function, args, fds)
        self._sock.setblocking(False)

    def kill(self) -> int | None:
        """End the process and all that it started; its wait status, None if that is not known."""
        if self.pid is None:
            return None
        pid, self.pid, self._busy = self.pid, None, False
        try:
            # After a restart the template does not know the child, which died with the one before.
            return self.template.reap(pid) if self.template.pid == self._template_pid else None
        except TemplateLost:
            return None
        finally:
            assert self._sock is not None
            self._sock.close()
            for fd in (self._pidfd, self._output, self._faults):
                os.close(fd)

    def _advance(self, readable: bool, died: bool) -> Outcome | None:
        """The outcome if there is one by now."""
        closed = self._receive() if readable or died else False
        size = protocol.HEADER.size
        if len(self._buffer) >= size:
            (length,) = protocol.HEADER.unpack(self._buffer[:size])
            if len(self._buffer) >= size + length:
                return self._finish(bytes(self._buffer[size : size + length]))
        if died or closed:
            return self._crashed(died or self._dies_soon())
        if time.monotonic() >= self._deadline:
            text = f"not done within {self._timeout:g} s"
            return self._end("timeout", text)
        return None

    def _receive(self) -> bool:
        """Take what has arrived; True if the connection is closed."""
        assert self._sock is not None
        while True:
            try:
                part = self._sock.recv(1 << 20)
            except BlockingIOError:
                return False
            except ConnectionResetError:
                return True
            if not part:
                return True
            self._buffer += part

    def _finish(self, body: bytes) -> Outcome:
        wall = time.monotonic() - self._began
        try:
            kind, value, resident = protocol.decode_reply(body)
        except pickle.UnpicklingError as e:
            return self._end("crash", f"the child sent a reply that cannot be read: {e}")
        self._busy = False
        self._first_resident = self._first_resident or resident
        if resident - self._first_resident > self.grow_bytes:
            self.kill()
        if kind == "value":
            return Outcome("value", value, wall_seconds=wall)
        return Outcome("error" if kind == "error" else "memory", text=value, wall_seconds=wall)

    def _dies_soon(self) -> bool:
        """A dying process closes its descriptors first: give it the time to be seen dead."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(DYING_SECONDS * 1000))

    def _crashed(self, died: bool) -> Outcome:
        if not died:
            return self._end("crash", "closed its connection")
        return self._end("crash", "")

    def _end(self, kind: OutcomeKind, text: str) -> Outcome:
        """Kill the child and tell the whole story."""
        wall = time.monotonic() - self._began
        faults, output = _tail(self._faults, 4 * TAIL), _tail(self._output, TAIL)
        ooms = self._ooms
        status = self.kill()
        name = ""
        if kind == "crash" and not text:
            if status is None:
                kind, text = "lost", "the template process ended, and its children with it"
            elif os.WIFSIGNALED(status):
                name = _signal_name(os.WTERMSIG(status))
                text = f"killed by {name}"
                if name == "SIGKILL" and _oom_kills() > ooms:
                    kind, text = "memory", "killed by the system, which ran out of memory"
                elif name == "SIGKILL":
                    kind, text = "lost", "killed by SIGKILL from outside"
            else:
                text = f"ended with exit code {os.WEXITSTATUS(status)} before it answered"
        parts = [text]
        if faults:
            parts.append(f"--- fault handler\n{faults}")
        if output:
            parts.append(f"--- end of its output\n{output}")
        return Outcome(kind, text="\n".join(parts), signal=name, wall_seconds=wall)


def wait_any(children: Sequence[Child]) -> list[tuple[Child, Outcome]]:
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
            done = []
            for child in busy:
                outcome = child._advance(*ready[id(child)])
                if outcome is not None:
                    done.append((child, outcome))
            if done:
                return done
    except BaseException:
        for child in children:
            if child.busy:
                child.kill()
        raise


def _poll(busy: Sequence[Child]) -> dict[int, tuple[bool, bool]]:
    """(readable, died) of each child, by id, once something happened or a deadline has passed."""
    poll = select.poll()
    for child in busy:
        assert child._sock is not None
        poll.register(child._sock, select.POLLIN)
        poll.register(child._pidfd, select.POLLIN)
    left = min(c._deadline for c in busy) - time.monotonic()
    events = {fd for fd, _ in poll.poll(max(0.0, left) * 1000 + 1)}
    return {
        id(c): (c._sock is not None and c._sock.fileno() in events, c._pidfd in events)
        for c in busy
    }


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
