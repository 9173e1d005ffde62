"""The template: a process that has imported everything and does nothing but fork children.

`python -m measure.process.template PARENT FD OWNER` gets its parent's process id, one end of a
socket, and the descriptor that marks its folder as in use. It takes two requests, packets of
JSON: `fork` (with descriptors: the child's socket, its output, its fault file) and `reap` (kill the
child's process group, wait for it, remove its folder). A child that has died stays a zombie until
it is reaped, so that a process id is never that of another process. The template ends, with all
children and the session's folder, when the process that started it ends.

It must never run parallel code: a fork takes one thread along and a pool's locks as they stand.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from measure.process import containment, protocol
from measure.process.containment import prctl
from measure.process.seccomp import confine

YOUNG = 50_000
"""Objects after which a child looks for cycles."""


def main() -> None:
    """Serve until the control socket is closed or the parent is gone."""
    parent = int(sys.argv[1])
    control, owner = socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])
    hello = json.loads(control.recv(1 << 20))
    children = _Children(Path(hello["folder"]))
    try:
        if os.getppid() != parent:
            return
        watch = os.pidfd_open(parent)
        children.withheld = (control.fileno(), watch, owner)
        # Orphaned grandchildren come to the template, where they can be found and killed.
        prctl(containment.PR_SET_CHILD_SUBREAPER, 1)
        for module in hello["preload"]:
            importlib.import_module(module)
        if hello["warm"]:
            protocol.resolve(hello["warm"])()
        gc.freeze()
        gc.set_threshold(YOUNG)  # of children: what they make for a request is gone after it
        with contextlib.suppress(ConnectionError):  # the owner has hung up
            _answer(control, {"ready": os.getpid()})
            _serve(control, watch, children)
    finally:
        children.close()


def _serve(control: socket.socket, watch: int, children: _Children) -> None:
    """Answer requests. Raises ConnectionError."""
    while watch not in wait([control, watch]):
        packet, fds, _, _ = socket.recv_fds(control, 1 << 20, 8)
        if not packet:
            return
        request = json.loads(packet)
        if request["op"] == "fork":
            try:
                reply: dict[str, Any] = {"pid": children.fork(request, fds)}
            except OSError as e:  # no space for a folder, no room for a process
                reply = {"error": str(e)}
            finally:
                for fd in fds:
                    os.close(fd)
        else:
            reply = {"status": children.reap(request["pid"])}
        _answer(control, reply)


def _answer(control: socket.socket, reply: dict[str, Any]) -> None:
    control.send(json.dumps(reply).encode())


class _Children:
    """Those that are not reaped yet, and their folders in that of the session; `withheld` are
    descriptors of the template, which no child may have."""

    def __init__(self, session: Path) -> None:
        self.withheld: tuple[int, ...] = ()
        self._session = session
        self._folders: dict[int, Path] = {}

    def fork(self, request: dict[str, Any], fds: list[int]) -> int:
        """A new child's process id. Raises OSError."""
        self._session.mkdir(mode=0o700, exist_ok=True)  # a child may remove more than is its own
        folder = Path(tempfile.mkdtemp(prefix="child-", dir=self._session))
        template = os.getpid()
        try:
            pid = os.fork()
        except OSError:
            folder.rmdir()
            raise
        if pid == 0:
            status = 70
            try:
                for fd in self.withheld:
                    os.close(fd)
                _become_child(request, fds, folder, template)
                protocol.serve(socket.socket(fileno=fds[0]))
                status = 0
            except BaseException:
                faulthandler.dump_traceback()
                raise
            finally:
                os._exit(status)
        self._folders[pid] = folder
        return pid

    def reap(self, pid: int) -> int | None:
        """Kill what is left of a child and everything that it started; the status is as of os.wait,
        None if it is not known."""
        if pid not in self._folders:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # not yet its own group
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        folder = self._folders.pop(pid)
        # What left its group has come to us; what living children started is not ours yet.
        containment.end_children(spared=self._folders)
        shutil.rmtree(folder, ignore_errors=True)
        return status

    def close(self) -> None:
        """Reap all, and remove the session's folder."""
        for pid in list(self._folders):
            self.reap(pid)
        shutil.rmtree(self._session, ignore_errors=True)


def _become_child(request: dict[str, Any], fds: list[int], folder: Path, template: int) -> None:
    """Leave the template's session and give up what a child must not have."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no exception of what it happens to hit
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the process that started this one may ignore it
    prctl(containment.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != template:  # it died before the line above
        os._exit(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(fds[1], 1)
    os.dup2(fds[1], 2)
    os.close(null)
    os.close(fds[1])
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    faulthandler.enable(open(fds[2], "wb", buffering=0), all_threads=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ["TMPDIR"] = str(folder)
    # PoCL writes what it compiles to files: here, so that they go with the process.
    os.environ |= {"POCL_CACHE_DIR": str(folder), "POCL_KERNEL_CACHE": "0", **dict(request["env"])}
    tempfile.tempdir = str(folder)
    if request["urgent"]:
        containment.take_priority()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    containment.limit(resource.RLIMIT_CORE, 0)
    containment.limit(resource.RLIMIT_FSIZE, request["file_bytes"])
    if request["memory_bytes"]:
        most = pages * resource.getpagesize() + request["memory_bytes"]
        containment.limit(resource.RLIMIT_AS, most)
    containment.go_first_for_memory()
    if request["processes"]:
        containment.limit_processes(request["processes"])
    else:
        confine()
    for module in request["imports"]:
        with contextlib.suppress(BaseException):  # it is raised again where something is called
            importlib.import_module(module)


if __name__ == "__main__":
    main()
