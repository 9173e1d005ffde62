"""The machine code of doubles: right, wrong, and worse; each adds two arrays of 1,000 elements."""

from __future__ import annotations

import platform

from autosched.codegen.llvm.assemble import compile_ir

SIZE = 1000


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


def _refused(call: str) -> str:
    """Right if a call of the C library gives -1."""
    right = _RIGHT.replace("%entry ]", "%entry2 ]")
    return f"""
  %got = call i32 {call}
  %done_it = icmp ne i32 %got, -1
  br i1 %done_it, label %bad, label %entry2
bad:
  call void @abort()
  unreachable
entry2:{right}"""


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
    "write_after_end": _loop(end=SIZE + 1),
    "write_before_start": _loop(first=-1),
    "write_far_after_end": _RIGHT
    + "  %far = getelementptr i8, ptr %out, i64 1048576\n  store i8 1, ptr %far\n",
    "write_far_before_start": _RIGHT
    + "  %far = getelementptr i8, ptr %a, i64 -65536\n  store i8 1, ptr %far\n",
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
    "allocates_100_gb": "  %m = call ptr @malloc(i64 107374182400)\n  store i8 1, ptr %m" + _RIGHT,
    # These abort if what they ask for is not refused.
    "forks": _refused("@fork()"),
    "becomes_another": _refused("@execl(ptr @true, ptr @true, ptr null)"),
    "ends_itself": _refused("@raise(i32 15)"),
    "stops_itself": _refused("@raise(i32 19)"),
    "signals_all_its_group": _refused("@kill(i32 0, i32 9)"),
    "leaves_a_file": _refused("@open(ptr @left, i32 65, i32 384)"),
    "leaves_shared_memory": _refused("@shm_open(ptr @left, i32 66, i32 384)"),
    "leaves_a_segment": _refused("@shmget(i32 4711, i64 4096, i32 896)"),
    "removes_its_folder": _refused("@rename(ptr @here, ptr @left)"),
    "renices_its_parent": _refused("@setpriority(i32 0, i32 1, i32 19)"),
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
declare i32 @kill(i32, i32)
declare i32 @execl(ptr, ptr, ptr)
declare i32 @shm_open(ptr, i32, i32)
declare i32 @shmget(i32, i64, i32)
declare i32 @rename(ptr, ptr)
declare i32 @setpriority(i32, i32, i32)
@true = internal constant [10 x i8] c"/bin/true\\00"
@left = internal constant [16 x i8] c"/autosched-left\\00"
@here = internal constant [2 x i8] c".\\00"
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
declare i32 @flock(i32, i32)
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


# Aborts if the file is locked: two that run at once see each other.
_ALONE = """
  %fd = call i32 @open(ptr @path, i32 0, i32 0)
  %held = call i32 @flock(i32 %fd, i32 6)
  %taken = icmp ne i32 %held, 0
  br i1 %taken, label %bad, label %entry2
bad:
  call void @abort()
  unreachable
entry2:
  %r = call i32 @usleep(i32 2000)
  %c = call i32 @close(i32 %fd)
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
