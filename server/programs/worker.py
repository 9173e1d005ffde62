"""Examining a workload that a client sent: what it is, and whether it is within limits.

Runs in a child process (`server.subprocesses`), which `server.programs.pool` gives one question at
a time and which ends by SIGPROF when one takes too long: parsing and proving are Python code that
would hold up every other request, and what exhausts memory, a stack or its time takes only the
child with it.

Frames on stdin and stdout: four bytes of length, then JSON.
"""

from __future__ import annotations

import inspect
import json
import os
import resource
import signal
import struct
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO

from autosched.errors import AutoschedError, WorkloadError
from autosched.ops import registry
from autosched.script import parse
from autosched.script.limits import LIMITS as SCRIPT_LIMITS
from autosched.tir import dtypes
from autosched.tir.nodes import PrimFunc, buffers_of, sites
from autosched.tuning import SearchTask
from autosched.tuning.stored import checked
from records import RecordError, Workload
from server.programs import rendering

HEADER = struct.Struct("!I")
LONGEST_FRAME = 64 << 20


@dataclass(frozen=True)
class WorkloadLimits:
    """Bounds on a workload: operations of one run, bytes of all its buffers, loops around a block
    and dimensions of a buffer, blocks; characters of script text; seconds of processor time and
    bytes of memory to find that out."""

    operations: float = 1e14
    bytes: int = 8 << 30
    depth: int = 32
    blocks: int = 256
    characters: int = 1 << 20
    seconds: float = 10.0
    memory: int = 4 << 30


class TooLarge(AutoschedError):
    """A workload beyond the limits of the service."""


def task_of(question: dict[str, Any], limits: WorkloadLimits) -> SearchTask:
    """The task of `{"script"}` or `{"name", "args"}`, with `"target"`, within limits.

    Raises AutoschedError: for a workload or target that is none, TooLarge beyond limits.
    """
    if (text := question.get("script")) is not None:
        read = replace(SCRIPT_LIMITS, characters=limits.characters, seconds=limits.seconds)
        found = parse(text, limits=read)
        if not isinstance(found, PrimFunc):
            raise WorkloadError("expected a script of one function, found a module of several")
        task = SearchTask(prim_func=found, target=question["target"])
    else:
        # Of the library only: `get_workload` also runs files and what was registered.
        function = registry.get(question["name"])
        _check_args(question["name"], inspect.signature(function), question["args"])
        task = SearchTask(function, question["args"], target=question["target"])
    check(task, limits)
    return task


def _check_args(name: str, signature: inspect.Signature, args: Sequence[Any]) -> None:
    """Raise WorkloadError unless there are as many arguments as are wanted, of the types stated,
    and sizes fit 48 bits."""
    try:
        bound = signature.bind(*args)
    except TypeError as e:
        plain = ", ".join(map(str, signature.parameters.values()))
        raise WorkloadError(f"{name}({plain}) does not fit {len(args)} arguments: {e}") from e
    for argument, value in bound.arguments.items():
        wanted, known = _TYPES[signature.parameters[argument].annotation]
        if type(value) not in known or (type(value) is int and abs(value) >= 1 << 48):
            raise WorkloadError(
                f"argument {argument} of {name} is {str(value)[:80]!r}; expected {wanted}"
            )


_TYPES: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "int": ("an int of at most 48 bits", (int,)),
    "float": ("a number", (int, float)),
    "str": ("text such as float32", (str,)),
}
"""Annotation of an operator's argument -> what is expected, the types that are taken."""


def check(task: SearchTask, limits: WorkloadLimits) -> None:
    """Raises TooLarge for a workload that is beyond `limits`."""
    func = task.prim_func
    blocks = [task.compute_dag.info(site.block.name) for site in sites(func)]
    # A task has no symbolic sizes.
    operations = sum(max(b.flop, float(int(b.points))) for b in blocks)
    buffers = {id(b): b for b in (*func.params, *buffers_of(func))}.values()
    size = sum(_bytes(b.shape, b.dtype) for b in buffers)
    depth = max((max(len(s.loops), len(s.block.iters)) for s in sites(func)), default=0)
    rank = max(len(b.shape) for b in buffers)
    for what, found, most in (
        ("operations", operations, limits.operations),
        ("bytes of buffers", size, limits.bytes),
        ("loops around a block", depth, limits.depth),
        ("dimensions of a buffer", rank, limits.depth),
        ("blocks", len(blocks), limits.blocks),
    ):
        if found > most:
            raise TooLarge(f"{task.title}: expected at most {most:g} {what}, found {found:g}")


def _bytes(shape: Sequence[Any], dtype: str) -> int:
    size = dtypes.itemsize(dtype)
    for extent in shape:
        size *= int(extent)
    return size


def answer(question: dict[str, Any], limits: WorkloadLimits) -> dict[str, Any]:
    """What is told of a question: a workload with its resolved target, the text of a record's
    program (`rendering.py`), a workload of a log as it may be stored, the tasks of a model
    (`model_worker.py`), or a problem."""
    try:
        if "form" in question:
            return rendering.answer(question)
        if "stored" in question:
            return {"workload": asdict(checked(Workload(**question["stored"])))}
        if "skeleton" in question:
            from server.programs import model_worker  # which imports this module

            return model_worker.answer(question, limits)
        task = task_of(question, limits)
        return {"workload": asdict(task.workload), "target": str(task.target)}
    except TooLarge as e:
        return {"problem": "workload-too-large", "detail": str(e)}
    except (AutoschedError, RecordError) as e:
        return {"problem": "invalid-workload", "detail": str(e)}
    except Exception as e:  # the server logs it; whatever it is, this workload cannot be tuned
        detail = f"the workload cannot be examined: {type(e).__name__}: {e}"
        return {"problem": "invalid-workload", "detail": detail, "mistake": traceback.format_exc()}


def read_frame(stream: BinaryIO) -> Any:
    """The next frame; None at the end."""
    head = stream.read(HEADER.size)
    if len(head) < HEADER.size:
        return None
    return json.loads(stream.read(HEADER.unpack(head)[0]))


def frame(value: Any) -> bytes:
    """`value` as a frame."""
    body = json.dumps(value).encode()
    return HEADER.pack(len(body)) + body


def main() -> None:
    """Answer questions until the server closes the pipe."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not get between the frames
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which closes the pipe
    questions = sys.stdin.buffer
    limits = WorkloadLimits(**read_frame(questions))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (question := read_frame(questions)) is not None:
        # Processor time: how long it takes besides is a matter of what else the machine does.
        signal.setitimer(signal.ITIMER_PROF, limits.seconds)
        answered = frame(answer(question, limits))
        signal.setitimer(signal.ITIMER_PROF, 0.0)  # who has the answer may ask the next question
        out.write(answered)
        out.flush()


if __name__ == "__main__":
    main()
