"""Candidates that do what candidates must not: named for it, and importable by children."""

from __future__ import annotations

import ctypes
import dataclasses
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from measure_kernels import KERNELS, SIZE, kernel_code

from autosched import te
from autosched.codegen.artifact import Artifact, KernelInfo
from autosched.codegen.llvm.assemble import compile_ir
from autosched.errors import ScheduleError
from autosched.tir.nodes import PrimFunc
from measure.local.build import params_of

if TYPE_CHECKING:  # children import this module, and have no use for pools
    from measure.local.pool import LocalPool

PATIENT = 60.0
"""Seconds for a candidate whose limit is not what is tested: the machine may stand still."""
SLOW_IMPORT = 2.0
"""Seconds that the import of `measure_slow_builder` takes."""
BUILD_FUNC = "measure_doubles:build_double"


@dataclass(frozen=True)
class Double:
    """Stands for a trace; its name says what happens."""

    name: str

    def apply(self, func: PrimFunc) -> SimpleNamespace:
        if self.name == "unschedulable":
            raise ScheduleError("this trace fits no program")
        return SimpleNamespace(func=func)


def make_pool(lock: Path, n_parallel: int = 1) -> LocalPool:
    """A pool of doubles; `lock` is a folder of its own for the lock, since other work on this
    machine must not hold up the tests."""
    from measure.local.build import LocalBuilder
    from measure.local.pool import LocalPool
    from measure.local.slot import LocalRunner

    builder = LocalBuilder(
        timeout=PATIENT, n_parallel=n_parallel, build_func=BUILD_FUNC, memory_bytes=4 << 30
    )
    runner = LocalRunner(
        timeout=PATIENT,
        baseline_timeout=PATIENT,
        budget_ms=2,
        memory_bytes=4 << 30,
        lock_folder=lock,
    )
    return LocalPool(builder=builder, runner=runner)


@contextmanager
def limited(pool: LocalPool, seconds: float) -> Iterator[None]:
    """Meanwhile a candidate's calls may take so long."""
    slot = pool._slot
    before = slot.options
    slot.options = dataclasses.replace(before, timeout=seconds)
    try:
        yield
    finally:
        slot.options = before


def vector_add(dtype: str = "float32") -> PrimFunc:
    """out[i] = a[i] + b[i], 1,000 elements."""
    a = te.placeholder((SIZE,), name="a", dtype=dtype)
    b = te.placeholder((SIZE,), name="b", dtype=dtype)
    return te.create_prim_func([a, b, te.compute((SIZE,), lambda i: a[i] + b[i], name="out")])


def build_double(func: PrimFunc, trace: Double, target: object) -> object:
    """A builder; what it does depends on the double's name."""
    name = trace.name
    if name in BUILDERS:
        return BUILDERS[name]()
    if name == "pair":
        return kernel_code("right", target), "kernel"
    if name == "huge_workspace":
        info = KernelInfo("kernel", params_of(func), workspace_bytes=100 << 30)
    else:
        info = KernelInfo("kernel", params_of(func), workspace_bytes=128)
    if name.startswith("alone:"):
        with open(name.partition(":")[2]) as file:  # BlockingIOError where a program runs
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    known = name if name in KERNELS or name.startswith("alone:") else "right"
    if name == "other_params":
        info = KernelInfo("kernel", params_of(func)[:2])
    return Artifact(kernel_code(known, target), info, str(target))


class Unpicklable(Exception):
    def __reduce__(self) -> object:
        raise TypeError("this exception does not pickle")


def _raise_unpicklable() -> None:
    raise Unpicklable("from the builder")


def _fill_the_disk() -> None:
    with open("big", "wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 20))


def _fork_sleeper() -> None:
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    raise ValueError("left a grandchild")


def _leave_busy_grandchild() -> None:
    busy = "import os\nif os.fork() == 0:\n    os.setsid()\n    while True:\n        pass"
    subprocess.run([sys.executable, "-c", busy], check=True)


def _leave_busy_thread() -> None:
    threading.Thread(target=lambda: all(iter(int, 1)), daemon=True).start()


BUILDERS = {
    "build_sleeps": lambda: time.sleep(1000),
    "build_raises": lambda: compile_ir("this is no IR", None),
    "build_exits": lambda: sys.exit(3),
    "build_dies": lambda: os._exit(0),
    "build_segfaults": lambda: ctypes.string_at(0),
    "build_eats_memory": lambda: len(bytearray(100 << 30)),
    "build_unpicklable": _raise_unpicklable,
    "build_returns_nonsense": lambda: 42,
    "build_returns_lambda": lambda: lambda: None,
    "build_leaves_grandchild": _fork_sleeper,
    "build_fills_the_disk": _fill_the_disk,
    "build_leaves_it_busy": _leave_busy_grandchild,
    "build_leaves_a_busy_thread": _leave_busy_thread,
    "build_removes_all_folders": lambda: shutil.rmtree(os.path.dirname(os.getcwd())),
}


# Functions for children themselves.


def add(a: int, b: int) -> int:
    return a + b


def add_in_a_thread(a: int, b: int) -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(a + b))
    thread.start()
    thread.join()
    return found[0]


def echo(value: object) -> object:
    return value


def sleep() -> None:
    time.sleep(1000)


def compute() -> None:
    while True:
        pass


def crash() -> None:
    print("last words")
    ctypes.string_at(0)


def raise_unpicklable() -> None:
    _raise_unpicklable()


def leave_grandchild() -> int:
    return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid


def leave_grandchild_and_die() -> None:
    leave_grandchild()
    os.kill(os.getpid(), signal.SIGSEGV)


def close_everything() -> None:
    os.closerange(0, 100)
    time.sleep(1000)


def fake_reply() -> None:
    """What overwritten memory might send: a pickle that would run a command in the parent."""
    import struct

    body = b"cos\nsystem\n(S'touch /tmp/owned'\ntR."
    for fd in range(3, 30):
        try:
            os.write(fd, struct.pack("<Q", len(body)) + body)
        except OSError:
            continue
    time.sleep(1000)


def grow() -> int:
    HOARD.append(os.urandom(64 << 20))
    return len(HOARD)


def fork_until_refused(most: int) -> str:
    """The error of the first process that may not be started, as a user who is not root."""
    if os.getuid() == 0:
        os.setuid(65534)
    for _ in range(most):
        try:
            if os.fork() == 0:
                time.sleep(1000)
        except OSError as e:
            return os.strerror(e.errno or 0)
    return f"{most} processes were started"


def write_file(nbytes: int) -> str:
    try:
        with open("big", "wb") as file:
            for _ in range(nbytes >> 20):
                file.write(bytes(1 << 20))
    except OSError as e:
        return os.strerror(e.errno or 0)
    return "written"


def cores_of_threads() -> tuple[int, list[list[int]]]:
    """The priority of a process, and the cores of its main thread and of another one, which are all
    that it has."""
    from measure.machine.threads import Threads

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    threads, stop = Threads(), threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    threads.follow()
    cores = [sorted(os.sched_getaffinity(n or 0)) for n in (0, other.native_id)]
    stop.set()
    other.join()
    return os.getpriority(os.PRIO_PROCESS, 0), cores


def opened(fd: str) -> str:
    """What a descriptor is of; "" of one that is closed by now. libffi (3.5) keeps its own file."""
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except FileNotFoundError:
        return ""


def surroundings() -> dict[str, object]:
    import resource
    import tempfile

    return {
        "environ": dict(os.environ),
        "folder": os.getcwd(),
        "temp": tempfile.gettempdir(),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "first_for_memory": Path("/proc/self/oom_score_adj").read_text().strip(),
        "memory": resource.getrlimit(resource.RLIMIT_AS)[0],
        "group": os.getpgid(0) == os.getpid(),
        "fds": [name for name in map(opened, os.listdir("/proc/self/fd")) if ".so" not in name],
    }


HOARD: list[bytes] = []
