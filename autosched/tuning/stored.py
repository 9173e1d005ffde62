"""From a stored workload back to its program and task."""

from __future__ import annotations

from dataclasses import replace

from autosched.errors import AutoschedError, WorkloadError
from autosched.ops import OPERATORS
from autosched.target import Target
from autosched.tir.canonical import workload_key
from autosched.tir.nodes import PrimFunc
from autosched.tuning.task import SearchTask
from records import RecordError, Workload


def program_of(workload: Workload) -> PrimFunc:
    """The program of a stored workload: of its text, which is parsed and not executed.

    Without a text (stored by an older version) it is made anew if it is an operator of the library;
    no function of a user is called, and no file is opened.

    Raises WorkloadError, ScriptError or VerifyError if there is no way to make it, or if what is
    made is not the workload of that key.
    """
    from autosched.script import parse_func
    from autosched.workloads import check_args, prim_func_of

    if workload.text is not None:
        func = parse_func(workload.text)
    elif workload.args is not None and workload.name in OPERATORS:
        func = prim_func_of(OPERATORS[workload.name], check_args(list(workload.args)))
    else:
        raise WorkloadError(
            f"{title_of(workload)} was stored without its text, and is no operator of the library: "
            "tune it here, which stores it with its text"
        )
    if (found := workload_key(func)) != workload.key:
        raise WorkloadError(
            f"{title_of(workload)} is workload {found} here, and is stored as {workload.key}: "
            "changed by hand, or stored by another version of autosched; tune it here"
        )
    return func


def checked(workload: Workload) -> Workload:
    """A workload of somebody else's as it may be stored: what it is called and what it costs follow
    from its text. Raises RecordError for a text, or arguments of an operator, of another key."""
    operator = workload.args is not None and workload.name in OPERATORS
    if workload.text is None and not operator:
        return workload
    try:
        task = stored_task(workload)
        if operator and workload.text is not None:
            program_of(replace(workload, text=None))
    except AutoschedError as e:
        raise RecordError(f"workload {workload.key} is not what its line says: {e}") from e
    return replace(workload, flop=float(task.compute_dag.flop_ct))


def stored_task(workload: Workload, target: Target | str = "llvm") -> SearchTask:
    """The task of a stored workload, with its name and arguments; see `program_of`."""
    task = SearchTask(prim_func=program_of(workload), target=target, desc=workload.name)
    task.name = workload.name
    task.args = None if workload.args is None else tuple(workload.args)
    return task


def title_of(workload: Workload) -> str:
    """A stored workload as people write it."""
    if workload.args is None:
        return workload.name
    return f"{workload.name}({', '.join(map(str, workload.args))})"
