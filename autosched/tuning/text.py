"""A tuned program as text: Python schedule, script, LLVM IR, assembly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autosched.errors import TuningError
from autosched.tuning.progress import format_seconds
from autosched.tuning.rebuild import task_source

if TYPE_CHECKING:
    from autosched.schedule import Schedule
    from autosched.tuning.task import SearchTask
    from records import Record

MODES = ("schedule", "script", "llvm", "asm")


def check_mode(mode: str) -> None:
    """Raise TuningError if `mode` is none of MODES."""
    if mode not in MODES:
        raise TuningError(f"print_mode is {mode!r}; expected one of {', '.join(MODES)}")


def program_text(task: SearchTask, schedule: Schedule, record: Record, mode: str) -> str:
    """The program in one of MODES. Raises TuningError on another."""
    check_mode(mode)
    if mode == "schedule":
        return schedule_module(task, schedule, record)
    if mode == "script":
        return schedule.func.script()
    from autosched.driver import build

    built = build(schedule, target=task.target, compile_only=True)
    return built.source if mode == "llvm" else built.assembly()


def schedule_module(task: SearchTask, schedule: Schedule, record: Record) -> str:
    """A Python module whose `apply` rebuilds the program; when run it checks and times it."""
    seconds = record.final_seconds
    time = "not measured"
    if seconds is not None:
        speed = float(task.compute_dag.flop_ct) / seconds / 1e9
        time = f"{format_seconds(seconds)} a call, {speed:.4g} GFLOP/s"
    script = "\n".join(f"#     {line}".rstrip() for line in task.prim_func.script().splitlines())
    source = task_source(task, record.target)
    return _MODULE.format(
        title=task.title,
        key=task.workload_key,
        target=record.target,
        device=record.device,
        time=time,
        imports="\n".join(source.imports),
        script=script,
        apply=schedule.trace.as_python().rstrip(),
        task=source.text.rstrip(),
    )


_MODULE = '''"""{title}: the fastest schedule found.

workload {key}
target   {target}
device   {device}
time     {time}

Run this file to build the program, check its result and time it. To use it:

    task = make_task()
    sch = at.Schedule(task.prim_func)
    apply(sch)
    func = at.build(sch, target=task.target)  # called with NumPy arrays, outputs included
"""

{imports}

# The workload, before it is scheduled:
#
{script}


{apply}


{task}


if __name__ == "__main__":
    task = make_task()
    if task.workload_key != "{key}":
        raise SystemExit("make_task gives another workload than the one that was tuned")
    sch = at.Schedule(task.prim_func)
    apply(sch)
    with at.LocalPool(task.target) as pool:
        job = pool.open_job(task.prim_func)
        (result,) = pool.measure(job, [sch.trace])
    if not result.ok:
        raise SystemExit(f"{{result.status}}: {{result.error}}")
    print(f"right result, {{result.seconds * 1e3:.4g}} ms a call")
'''
