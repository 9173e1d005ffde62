"""A tuned program as text: Python schedule, script, LLVM IR, assembly, CUDA, OpenCL."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from autosched.checks import choice
from autosched.errors import TuningError
from autosched.tuning.best import bounded_depth
from autosched.tuning.report.progress import format_seconds

if TYPE_CHECKING:
    from autosched.schedule import Schedule
    from autosched.target import Target
    from autosched.tuning.task import SearchTask
    from records import Record

CPU_MODES, GPU_MODES = ("llvm", "asm"), ("cuda", "opencl")
MODES = ("schedule", "script", *CPU_MODES, *GPU_MODES)


def source_mode(target: Target) -> str:
    """The mode that gives what the code generator makes for `target`."""
    return target.kind if target.is_gpu else "llvm"


def check_mode(mode: str) -> None:
    """Raise TuningError if `mode` is none of MODES."""
    choice("print_mode", mode, MODES, TuningError)


def program_text(task: SearchTask, schedule: Schedule, record: Record, mode: str) -> str:
    """The program in one of MODES.

    A program for a GPU has the modes "cuda" and "opencl", whichever of them it was tuned for, and
    one for a CPU "llvm" and "asm". Raises TuningError on another.
    """
    check_mode_of(task, mode)
    with bounded_depth(record):
        return _program_text(task, schedule, record, mode)


def check_mode_of(task: SearchTask, mode: str) -> None:
    """Raises TuningError where programs of the task cannot be printed in that mode."""
    check_mode(mode)
    on_gpu = task.target.is_gpu
    if mode in (CPU_MODES if on_gpu else GPU_MODES):
        have = " and ".join(map(repr, GPU_MODES if on_gpu else CPU_MODES))
        why = "runs on a GPU" if on_gpu else "has no loop bound to a GPU's threads"
        raise TuningError(
            f"print_mode {mode!r}: the program is scheduled for {task.target.kind} and {why}; it "
            f"has the modes {have}. Tune the workload for a target of the other kind to see it so"
        )


def _program_text(task: SearchTask, schedule: Schedule, record: Record, mode: str) -> str:
    if mode == "schedule":
        return schedule_module(task, schedule, record)
    if mode == "script":
        return schedule.func.script()
    if task.target.is_gpu:
        from autosched.codegen.gpu.generate import source_in

        return source_in(schedule.func, task.target, mode)
    from autosched.building.build import build

    built = build(schedule, target=task.target, compile_only=True)
    return built.source if mode == "llvm" else built.assembly()


def schedule_module(task: SearchTask, schedule: Schedule, record: Record) -> str:
    """A Python module that stands alone: the workload as script, which is parsed there, and an
    `apply` that makes the program of it; when run it builds, checks and times that."""
    seconds = record.final_seconds
    time = "not measured"
    if seconds is not None:
        speed = float(task.compute_dag.flop_ct) / seconds / 1e9
        time = f"{format_seconds(seconds)} a call, {speed:.4g} GFLOP/s"
    return _MODULE.format(
        title=_inside(task.title),
        key=task.workload_key,
        shown_target=_inside(record.target),
        device=_inside(record.device),
        time=time,
        script=_block(task.prim_func.script()),
        target=_quoted(record.target),
        desc=_quoted(task.desc),
        apply=schedule.trace.as_python().rstrip(),
    )


def _quoted(text: str) -> str:
    """A string literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _inside(text: str) -> str:
    """Text of a record or of a user as it may stand inside the module's docstring."""
    return _quoted(text)[1:-1]


def _block(script: str) -> str:
    """A script as a string literal that shows it line by line."""
    if '"""' in script or "\\" in script:
        return repr(script)
    return f'"""\n{script}"""'


_MODULE = '''"""{title}: the fastest schedule found.

workload {key}
target   {shown_target}
device   {device}
time     {time}

Run this file to build the program, check its result and time it. To use it:

    sch = at.Schedule(workload)
    apply(sch)
    func = at.build(sch, target=task.target)  # called with NumPy arrays, outputs included
"""

import autosched as at
from autosched.script import parse_func

# The workload, before it is scheduled.
workload = parse_func({script})

task = at.SearchTask(
    prim_func=workload,
    target={target},
    desc={desc},
)


{apply}


if __name__ == "__main__":
    sch = at.Schedule(workload)
    apply(sch)
    with at.LocalPool(task.target) as pool:
        job = pool.open_job(workload)
        (result,) = pool.measure(job, [sch.trace])
    if not result.ok:
        raise SystemExit(f"{{result.status}}: {{result.error}}")
    print(f"right result, {{result.seconds * 1e3:.4g}} ms a call")
'''
