"""The warm template process, as its parent sees it: started, asked to fork, restarted when lost."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autosched.errors import MeasureError
from measure.process.folders import own_folder, sweep
from measure.process.seccomp import FROM_OUTSIDE

# Of the environment a child gets what programs need to start, and nothing else: no tokens, no keys.
_PASSED = """
PATH HOME USER LOGNAME LANG LANGUAGE TZ TMPDIR LD_LIBRARY_PATH VIRTUAL_ENV XDG_CACHE_HOME
PYTHONHASHSEED PYTHONHOME PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX CUDA_VISIBLE_DEVICES CUDA_HOME
CUDA_DEVICE_ORDER OCL_ICD_VENDORS OCL_ICD_FILENAMES
"""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
START_SECONDS = 60.0
REQUEST_SECONDS = 15.0
END_SECONDS = 5.0


@dataclass(frozen=True)
class Limits:
    """What one child may use. `memory_bytes` is address space beyond what it starts with, 0 for
    any: drivers of GPUs reserve more than they ever use.

    `processes`: tasks that it may start (with 0 threads only); see `containment` for what
    systems enforce. `urgent`: it goes before all other work on the machine, where we may. `env`:
    environment variables that it gets. `imports`: modules that it imports before it is ready, and
    before the time of what it is asked begins.
    """

    memory_bytes: int = 8 << 30
    file_bytes: int = 1 << 30
    processes: int = 256
    urgent: bool = False
    env: tuple[tuple[str, str], ...] = ()
    imports: tuple[str, ...] = ()


class TemplateLost(MeasureError):
    """The template process is gone; its children died with it."""


class NotStarted(MeasureError):
    """The system has no room for another process: no space for its folder, no process to be had."""


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
        self._held = ExitStack()
        """What goes with the process: its folder, itself, and the socket."""
        self._ready = False
        # Builders and the runner may be asked for by two threads.
        self._lock = threading.RLock()

    @property
    def pid(self) -> int | None:
        """Process id of the template, None if it was not started."""
        return None if self._process is None else self._process.pid

    def begin(self) -> None:
        """Have the process start if it is not running, and do not wait for it. Raises NotStarted,
        and MeasureError where there can be none."""
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            self.close()
            if not hasattr(os, "pidfd_open") or not hasattr(os, "memfd_create"):
                raise MeasureError("measuring needs Linux 5.4 or later (pidfd_open, memfd_create)")
            sweep()
            try:
                self._folder, owner = own_folder()
                self._held.callback(os.close, owner)
                self._held.callback(shutil.rmtree, self._folder, ignore_errors=True)
                self._held.callback(self._end)
                hello = {"folder": str(self._folder), "preload": self.preload, "warm": self.warm}
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._control = self._held.enter_context(ours)
                ours.send(json.dumps(hello).encode())
                with theirs:
                    self._process = _spawn(theirs, owner, environment(self.pass_env) | ONE_THREAD)
            except OSError as e:
                self.close()
                raise NotStarted(f"no measuring process can be started: {e}") from e

    def start(self) -> None:
        """Start the process if it is not running, and wait until it can fork.

        Raises NotStarted, and MeasureError if it cannot do its work.
        """
        with self._lock:
            self.begin()
            if self._ready:
                return
            assert self._control is not None
            assert self._process is not None
            control, starting = self._control, self._process
            control.settimeout(START_SECONDS)
            try:
                self._answer(control)
            except TemplateLost as e:
                if -starting.returncode in FROM_OUTSIDE:
                    raise NotStarted(f"the measuring process was ended as it started: {e}") from e
                raise MeasureError(f"the measuring process could not start: {e}") from e
            control.settimeout(REQUEST_SECONDS)
            self._ready = True

    def fork(self, fds: tuple[int, int, int], limits: Limits) -> int:
        """A new child's process id. `fds`: its socket, its output, its fault file.

        Raises NotStarted if the system has no room for one, TemplateLost, MeasureError.
        """
        with self._lock:
            self.start()
            request = {"op": "fork", **asdict(limits)}
            try:
                reply = self._request(request, fds)
            except TemplateLost:
                self.start()
                reply = self._request(request, fds)
        if "error" in reply:
            raise NotStarted(f"no measuring process can be started: {reply['error']}")
        return int(reply["pid"])

    def reap(self, pid: int) -> int:
        """End a child with all that it started; its status as of os.wait. Raises TemplateLost."""
        with self._lock:
            return int(self._request({"op": "reap", "pid": pid})["status"])

    def close(self) -> None:
        """End the process, and with it all children, and remove their folders."""
        self._ready, self._control, self._folder = False, None, None
        self._held.close()

    def _end(self) -> None:
        """Wait for the process, which ends when its socket is closed."""
        process, self._process = self._process, None
        if process is not None:
            wait_or_kill(process, END_SECONDS)

    def _request(self, message: dict[str, Any], fds: Sequence[int] = ()) -> dict[str, Any]:
        if self._control is None:
            raise TemplateLost("it was closed")
        return self._answer(self._control, json.dumps(message).encode(), fds)

    def _answer(
        self, control: socket.socket, request: bytes = b"", fds: Sequence[int] = ()
    ) -> dict[str, Any]:
        """The answer to a request, or to what was sent before."""
        try:
            if request:
                socket.send_fds(control, [request], list(fds))
            reply = control.recv(1 << 16)
        except BaseException as e:
            # The answer may still come, and would be taken for that to the next request.
            self.close()
            if isinstance(e, OSError):
                raise TemplateLost(f"the template process does not answer: {e}") from e
            raise
        if not reply:
            self.close()
            raise TemplateLost("the template process ended")
        return json.loads(reply)  # type: ignore[no-any-return]


def environment(more: Sequence[str] = ()) -> dict[str, str]:
    """Of a process that we start; `more`: what it is passed beyond the usual."""
    wanted = {*_PASSED.split(), *more}
    env = {k: v for k, v in os.environ.items() if k in wanted or k.startswith("LC_")}
    # Whatever this process can import the children can, however it was started.
    return env | {"PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)}


def wait_or_kill(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a process that was told to end; one that does not within `seconds` is killed."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _spawn(control: socket.socket, owner: int, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the template, in a session of its own; it holds the mark on its folder as well."""
    fd = control.fileno()
    command = [sys.executable, "-P", "-m", "measure.process.template"]
    return subprocess.Popen(
        [*command, str(os.getpid()), str(fd), str(owner)],
        pass_fds=(fd, owner),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # ours may be read by a program
        start_new_session=True,
    )
