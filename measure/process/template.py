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
    watch = os.pidfd_open(parent) if os.getppid() == parent else None
    control, owner = socket.socket(fileno=int(sys.argv[2])), int(sys.argv[3])
    hello = json.loads(control.recv(1 << 20))
    session = Path(hello["folder"])
    children: dict[int, Path] = {}
    try:
        # Orphaned grandchildren come to the template, where they can be found and killed.
        prctl(containment.PR_SET_CHILD_SUBREAPER, 1)
        for module in hello["preload"]:
            importlib.import_module(module)
        if hello["warm"]:
            protocol.resolve(hello["warm"])()
        gc.freeze()
        gc.set_threshold(YOUNG)  # of children: what they make for a request is gone after it
        if watch is not None and _answer(control, {"ready": os.getpid()}):
            _serve(control, watch, session, children, (control.fileno(), watch, owner))
    finally:
        for pid in list(children):
            _reap(pid, children)
        shutil.rmtree(session, ignore_errors=True)


def _serve(
    control: socket.socket,
    watch: int,
    session: Path,
    children: dict[int, Path],
    own: tuple[int, ...],
) -> None:
    """Answer requests; `own` are the descriptors that no child may have."""
    while watch not in wait([control, watch]):
        packet, fds, _, _ = socket.recv_fds(control, 1 << 20, 8)
        if not packet:
            return
        request = json.loads(packet)
        if request["op"] == "fork":
            try:
                reply: dict[str, Any] = _fork(request, fds, own, session, children)
            except OSError as e:  # no space for a folder, no room for a process
                reply = {"error": str(e)}
            finally:
                for fd in fds:
                    os.close(fd)
        else:
            reply = _reap(request["pid"], children)
        if not _answer(control, reply):
            return


def _answer(control: socket.socket, reply: dict[str, Any]) -> bool:
    """Send a reply; False if the parent has hung up."""
    try:
        control.send(json.dumps(reply).encode())
    except BrokenPipeError:
        return False
    return True


def _fork(
    request: dict[str, Any],
    fds: list[int],
    own: tuple[int, ...],
    session: Path,
    children: dict[int, Path],
) -> dict[str, Any]:
    try:
        folder = Path(tempfile.mkdtemp(prefix="child-", dir=session))
    except FileNotFoundError:  # a child has removed more than was its own
        session.mkdir(mode=0o700)
        folder = Path(tempfile.mkdtemp(prefix="child-", dir=session))
    template = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        folder.rmdir()
        raise
    if pid == 0:
        status = 70
        try:
            for fd in own:
                os.close(fd)
            _become_child(request, fds, folder, template)
            protocol.serve(socket.socket(fileno=fds[0]))
            status = 0
        except BaseException:
            faulthandler.dump_traceback()
            raise
        finally:
            os._exit(status)
    children[pid] = folder
    return {"pid": pid}


def _become_child(request: dict[str, Any], fds: list[int], folder: Path, template: int) -> None:
    """Leave the template's session and give up what a child must not have."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no exception of what it happens to hit
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


def _reap(pid: int, children: dict[int, Path]) -> dict[str, Any]:
    """Kill what is left of a child and everything that it started; the status is as of os.wait."""
    if pid not in children:
        return {"status": None}
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # not yet its own group
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    folder = children.pop(pid)
    _kill_strays(children)
    shutil.rmtree(folder, ignore_errors=True)
    return {"status": status}


def _kill_strays(children: dict[int, Path]) -> None:
    """End grandchildren that left their group; those of living children are not ours yet."""
    listing = Path(f"/proc/self/task/{os.getpid()}/children")
    while listing.exists():  # not in every kernel; without it only the process group is killed
        text = listing.read_text()
        strays = [int(word) for word in text.split() if int(word) not in children]
        if not strays:
            return
        for pid in strays:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
