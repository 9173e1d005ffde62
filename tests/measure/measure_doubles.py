"""Candidates that do what candidates must not: named for it, and importable by children."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import platform
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

from autosched import te
from autosched.codegen.artifact import Artifact, KernelInfo
from autosched.codegen.llvm.assemble import compile_ir
from autosched.errors import ScheduleError
from autosched.tir.nodes import PrimFunc
from measure.build import params_of

if TYPE_CHECKING:  # children import this module, and have no use for pools
    from measure.local import LocalPool

PATIENT = 60.0
"""Seconds for a candidate whose limit is not what is tested: the machine may stand still."""
SLOW_IMPORT = 2.0
"""Seconds that the import of `measure_slow_builder` takes."""
BUILD_FUNC = "measure_doubles:build_double"
SIZE = 1000


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
    from measure.build import LocalBuilder
    from measure.local import LocalPool
    from measure.slot import LocalRunner

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


def _loop(first: int = 0, end: int = SIZE, value: str = "%s", into: str = "%out") -> str:
    """`into`[i] = a[i] + b[i] for i in [first, end), or another value."""
    return f"""
  br label %loop
loop:
  %i = phi i64 [ {first}, %entry ], [ %i1, %loop ]
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %po = getelementptr float, ptr {into}, i64 %i
  %x = load float, ptr %pa
  %y = load float, ptr %pb
  %s = fadd float %x, %y
  %twice = fadd float %s, %s
  store float {value}, ptr %po
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, {end}
  br i1 %more, label %loop, label %done
done:
"""


_RIGHT = _loop()
_REPEAT = """
  br label %again
again:
  %n = phi i32 [ 0, %entry ], [ %n1, %again ]
  {call}
  %n1 = add i32 %n, 1
  %is_more = icmp slt i32 %n1, {count}
  br i1 %is_more, label %again, label %after
after:
"""
_UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}.get(platform.machine(), 0)
# The declarations that the doubles need, and what stands at the start of the kernel.
KERNELS = {
    "right": _RIGHT,
    "segfault": "  store i32 1, ptr inttoptr (i64 16 to ptr)" + _RIGHT,
    "abort": "  call void @abort()" + _RIGHT,
    "endless_loop": "  br label %spin\nspin:\n  br label %spin\n",
    "stack_overflow": "  %r = call i64 @deep(i64 1)" + _RIGHT,
    "exit_0": "  call void @_exit(i32 0)" + _RIGHT,
    "close_stdout": "  %r = call i32 @close(i32 1)\n  %q = call i32 @close(i32 2)" + _RIGHT,
    "illegal_instruction": "  call void @llvm.trap()" + _RIGHT,
    "killed_from_outside": "  %r = call i32 @raise(i32 9)" + _RIGHT,
    "write_after_end": _loop(end=SIZE + 1),
    "write_before_start": _loop(first=-1),
    "write_past_workspace": _RIGHT
    + "  %w = getelementptr i8, ptr %workspace, i64 128\n  store i8 1, ptr %w\n",
    "wrong_result": _loop(value="%twice"),
    "wrong_at_the_end": _RIGHT
    + "  %l = getelementptr float, ptr %out, i64 999\n  store float 7.0, ptr %l\n",
    "unwritten": _loop(end=SIZE - 3),
    "writes_input": _RIGHT + "  store float 5.0, ptr %a\n",
    "right_once": _RIGHT
    + """
  %n = load i32, ptr @calls
  %n1 = add i32 %n, 1
  store i32 %n1, ptr @calls
  %f = sitofp i32 %n to float
  %o = load float, ptr %out
  %o1 = fadd float %o, %f
  store float %o1, ptr %out
""",
    "grandchild": "  %pid = call i32 @fork()\n  %is = icmp eq i32 %pid, 0\n"
    "  br i1 %is, label %child, label %entry2\nchild:\n  %sid = call i32 @setsid()\n"
    "  %r = call i32 @sleep(i32 1000)\n  call void @_exit(i32 0)\n  unreachable\nentry2:"
    + _RIGHT.replace("%entry ]", "%entry2 ]"),
    "undefined_symbol": "  call void @nobody_has_this()" + _RIGHT,
    "slow": "  %r = call i32 @usleep(i32 5000)" + _RIGHT,
    # Adds what the stack held before, which is 0 where it is fresh.
    "reads_unwritten_stack": """
  %room = alloca [65536 x i8], align 64
  %pv = getelementptr i8, ptr %room, i64 1024
  %v = load volatile float, ptr %pv
  br label %loop0
loop0:
  %i0 = phi i64 [ 0, %entry ], [ %i01, %loop0 ]
  %qa = getelementptr float, ptr %a, i64 %i0
  %qb = getelementptr float, ptr %b, i64 %i0
  %qo = getelementptr float, ptr %out, i64 %i0
  %x0 = load float, ptr %qa
  %y0 = load float, ptr %qb
  %s0 = fadd float %x0, %y0
  %t0 = fadd float %s0, %v
  store float %t0, ptr %qo
  %i01 = add i64 %i0, 1
  %more0 = icmp slt i64 %i01, 1000
  br i1 %more0, label %loop0, label %done0
done0:
""",
    "nan_result": _loop(value="0x7FF8000000000000"),
    "stops_itself": "  %r = call i32 @raise(i32 19)" + _RIGHT,
    "allocates_100_gb": "  %m = call ptr @malloc(i64 107374182400)\n  store i8 1, ptr %m" + _RIGHT,
    # Aborts if a process can be started.
    "forks": """
  %pid = call i32 @fork()
  %started = icmp ne i32 %pid, -1
  br i1 %started, label %bad, label %entry2
bad:
  call void @abort()
  unreachable
entry2:"""
    + _RIGHT.replace("%entry ]", "%entry2 ]"),
    "closes_descriptors": _REPEAT.format(count=21, call="%r = call i32 @close(i32 %n)")
    + _RIGHT.replace("%entry ]", "%after ]"),
    "opens_descriptors": _REPEAT.format(count=1 << 17, call="%r = call i32 @dup(i32 2)")
    + _RIGHT.replace("%entry ]", "%after ]"),
    # 100 MB.
    "writes_a_lot": _REPEAT.format(
        count=100, call="%r = call i64 @write(i32 2, ptr @megabyte, i64 1048576)"
    )
    + _RIGHT.replace("%entry ]", "%after ]"),
    # 64 MB at a time, all of it written to; what is refused is written to as well.
    "takes_all_memory": _REPEAT.format(
        count=4096,
        call="%m = call ptr @malloc(i64 67108864)\n"
        "  call void @llvm.memset.p0.i64(ptr %m, i8 1, i64 67108864, i1 false)",
    )
    + _RIGHT.replace("%entry ]", "%after ]"),
    "ignores_signals": _REPEAT.format(
        count=65, call="%r = call ptr @signal(i32 %n, ptr inttoptr (i64 1 to ptr))"
    )
    + "  br label %spin\nspin:\n  br label %spin\n",
    "survives_its_crash": "  %h = call ptr @signal(i32 11, ptr @hang)\n"
    "  store i32 1, ptr inttoptr (i64 16 to ptr)" + _RIGHT,
    # Right itself; ends whatever runs in its process a tenth of a second later.
    "leaves_a_bomb": "  %r = call i32 @ualarm(i32 100000, i32 0)" + _RIGHT,
    "slow_right": "  %r = call i32 @usleep(i32 50000)" + _RIGHT,
    # What follows is right, too, and would be felt by whoever runs there next.
    "rounds_up": f"  %r = call i32 @fesetround(i32 {_UPWARD})" + _RIGHT,
    "steps_back": "  %r = call i32 @nice(i32 1)" + _RIGHT,
    "binds_itself": "  %r = call i32 @sched_setaffinity(i32 0, i64 8, ptr @one)" + _RIGHT,
    "blocks_signals": "  %r = call i32 @pthread_sigmask(i32 0, ptr @ones, ptr null)" + _RIGHT,
    "handles_signals": "  %h = call ptr @signal(i32 10, ptr @hang)" + _RIGHT,
    "changes_folder": "  %r = call i32 @chdir(ptr @root)" + _RIGHT,
    "locks_its_memory": "  %r = call i32 @mlock(ptr @megabyte, i64 4096)" + _RIGHT,
    "keeps_a_descriptor": "  %r = call i32 @dup(i32 2)" + _RIGHT,
    "leaves_a_thread_at_work": "  %t = alloca i64\n"
    "  %r = call i32 @pthread_create(ptr %t, ptr null, ptr @hang, ptr null)" + _RIGHT,
    # From its second call on the input is another one once it is through.
    "spoils_input": """
  %n = load i32, ptr @calls
  %n1 = add i32 %n, 1
  store i32 %n1, ptr @calls
  %is_first = icmp eq i32 %n, 0
  %found = load float, ptr %a
  %kept = load float, ptr @saved
  %true = select i1 %is_first, float %found, float %kept
  store float %true, ptr @saved
  store float %true, ptr %a
"""
    + _RIGHT
    + "  %spoiled = select i1 %is_first, float %true, float 5.0\n"
    "  store float %spoiled, ptr %a\n",
    # To whatever is open, without end.
    "floods_its_connection": """
  br label %again
again:
  %n = phi i32 [ 3, %entry ], [ %n2, %again ]
  %r = call i64 @write(i32 %n, ptr @megabyte, i64 1048576)
  %n1 = add i32 %n, 1
  %n2 = and i32 %n1, 31
  br label %again
""",
    "claims_a_long_answer": _REPEAT.format(
        count=32, call="%r = call i64 @write(i32 %n, ptr @ones, i64 8)"
    )
    + _RIGHT.replace("%entry ]", "%after ]"),
}
_MODULE = """
@calls = internal global i32 0
@saved = internal global float 0.0
@one = internal constant i64 1
@root = internal constant [2 x i8] c"/\\00"
@ones = internal constant [128 x i8] [@ONES@]
declare i32 @fesetround(i32)
declare i32 @nice(i32)
declare i32 @mlock(ptr, i64)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @chdir(ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare void @llvm.trap()
declare void @abort()
declare void @_exit(i32)
declare i32 @close(i32)
declare i32 @raise(i32)
declare i32 @fork()
declare i32 @setsid()
declare i32 @sleep(i32)
declare i32 @usleep(i32)
declare i32 @ualarm(i32, i32)
declare ptr @malloc(i64)
declare i32 @dup(i32)
declare i64 @write(i32, ptr, i64)
declare ptr @signal(i32, ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
@megabyte = internal constant [1048576 x i8] zeroinitializer
define void @hang(i32 %signal) {
  br label %spin
spin:
  br label %spin
}
declare i32 @open(ptr, i32, i32)
declare i32 @unlink(ptr)
declare void @nobody_has_this()
define i64 @deep(i64 %n) noinline {
  %room = alloca [4096 x i8]
  store volatile i8 1, ptr %room
  %m = add i64 %n, 1
  %r = call i64 @deep(i64 %m)
  %v = load volatile i8, ptr %room
  %w = zext i8 %v to i64
  %s = add i64 %r, %w
  ret i64 %s
}
define void @kernel(ptr %args, ptr %workspace, i32 %threads) {
entry0:
  %pout = getelementptr ptr, ptr %args, i64 2
  %pb0 = getelementptr ptr, ptr %args, i64 1
  %a = load ptr, ptr %args
  %b = load ptr, ptr %pb0
  %out = load ptr, ptr %pout
  br label %entry
entry:
""".replace("@ONES@", ", ".join(["i8 -1"] * 128))


# Aborts if the file is there: with O_CREAT | O_EXCL two that run at once see each other.
_ALONE = """
  %fd = call i32 @open(ptr @path, i32 193, i32 384)
  %taken = icmp slt i32 %fd, 0
  br i1 %taken, label %bad, label %entry2
bad:
  call void @abort()
  unreachable
entry2:
  %c = call i32 @close(i32 %fd)
  %r = call i32 @usleep(i32 2000)
  %u = call i32 @unlink(ptr @path)
""" + _RIGHT.replace("%entry ]", "%entry2 ]")


def kernel_code(name: str, target: object) -> bytes:
    """Object code of a double; "alone:PATH" must be the only one to run on the whole machine."""
    kind, _, path = name.partition(":")
    body = _ALONE if kind == "alone" else KERNELS[kind]
    data = path.encode()
    text = "".join(f"\\{n:02x}" for n in data + b"\0")
    endless = body.rstrip().endswith(("br label %spin", "br label %again"))
    end = "" if endless else "  ret void\n"
    constant = f'@path = private constant [{len(data) + 1} x i8] c"{text}"\n'
    return compile_ir(f"{constant}{_MODULE}{body}{end}}}\n", target)


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
    if name.startswith("alone:") and os.path.exists(name.partition(":")[2]):
        raise RuntimeError("built while another program was timed")
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
    from measure.threads import Threads

    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    threads, stop = Threads(), threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    threads.follow()
    cores = [sorted(os.sched_getaffinity(n or 0)) for n in (0, other.native_id)]
    stop.set()
    other.join()
    return os.getpriority(os.PRIO_PROCESS, 0), cores


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
        "fds": sorted(int(n) for n in os.listdir("/proc/self/fd")),
    }


HOARD: list[bytes] = []
