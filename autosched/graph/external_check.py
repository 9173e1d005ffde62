"""Whether what a code generator made computes its function: random inputs, the evaluator's
results, how far apart results may be, and a first call that may end its process."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from select import select
from signal import SIGKILL
from typing import Any
from zlib import crc32

import numpy as np

from autosched.graph.evaluator import evaluate
from autosched.graph.ir import Array, Call, Function, tensor_type
from autosched.graph.ops.index import INDICES
from autosched.tir.module import IRModule

TOLERANCE = {"float16": 1e-2, "float32": 1e-3, "float64": 1e-8}
"""Of a result, relative to it and to the largest element: sums are taken in any order."""

SECONDS = 120
"""That the first call of a function may take."""

POLL = 0.002
"""Seconds between two looks at whether a process has ended."""


def first_call(call: Callable[..., Any], inputs: Sequence[Array]) -> str:
    """What is wrong with a call in a process of its own, which is a copy of this one: that it ends
    the process, or does not return. Empty where it returns or raises, as it then does here, too.
    What it started is ended with it."""
    told, tell = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads, which the copy lacks
        child = os.fork()
    if child == 0:
        try:
            os.setsid()
            call(*inputs)
        finally:
            os.write(tell, b"!")
            os._exit(0)
    os.close(tell)
    with open(told, "rb") as end:
        status = end_session(child, SECONDS)
        # Not up to the end of the pipe, which a process that left the session may hold.
        came = select([end], [], [], 0)[0] and os.read(told, 1)
    if status is None:
        return f"did not return within {SECONDS} seconds"
    if status < 0:
        return f"crashed: it ended its process with signal {-status}"
    return "" if came else f"ended its process with status {status}"


def end_session(leader: int, seconds: float) -> int | None:
    """The exit status of a child that leads a session, minus the signal that ended it; None if it
    takes longer than `seconds`. Processes that it left behind are ended."""
    until = time.monotonic() + seconds
    # The child is left to be waited for, so that no other group can have its number.
    seen = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while (done := os.waitid(os.P_PID, leader, seen)) is None and time.monotonic() < until:
        time.sleep(POLL)  # waitid has no time limit
    os.kill(leader, SIGKILL)
    with suppress(ProcessLookupError):  # it does not lead its session yet
        os.killpg(leader, SIGKILL)
    _, status = os.waitpid(leader, 0)
    return None if done is None else os.waitstatus_to_exitcode(status)


def random_inputs(function: Function, known: Mapping[int, Array]) -> list[Array]:
    """Inputs of a function, the same every time: floats of a normal distribution, integers of
    [0, 8), or 0 and 1 where they may be indices; `known` are those that have a value, by number."""
    rng = np.random.default_rng(crc32(function.name.encode()))
    calls = [b.value for b in function.body.bindings if isinstance(b.value, Call)]
    most = 2 if any(c.callee in INDICES for c in calls) else 8
    out: list[Array] = []
    for n, p in enumerate(function.params):
        t = tensor_type(p)
        shape = tuple(int(m) for m in t.known)
        if n in known:
            out.append(known[n])
        elif t.dtype.startswith("float"):
            out.append(rng.standard_normal(shape).astype(t.dtype))
        else:
            out.append(rng.integers(0, 2 if t.dtype == "bool" else most, shape).astype(t.dtype))
    return out


def expected(function: Function, inputs: Sequence[Array]) -> list[Array]:
    """The results of a function by the evaluator."""
    plain = Function(function.name, function.params, function.body)
    module = IRModule({}, {function.name: plain})
    made = evaluate(module, function.name, *inputs)
    return list(made) if isinstance(made, tuple) else [made]


def agree(found: Array, wanted: Array) -> str:
    """What is wrong with a result; empty if nothing is."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return (
            f"shape {found.shape} and dtype {found.dtype}; expected {wanted.shape} and "
            f"{wanted.dtype}"
        )
    if not found.size:
        return ""
    if found.dtype.kind != "f":
        different = found != wanted
    else:
        with np.errstate(all="ignore"):
            finite = np.isfinite(wanted)
            size = float(np.max(np.abs(wanted[finite]), initial=0.0))
            near = TOLERANCE[found.dtype.name]
            same = np.isclose(found, wanted, rtol=near, atol=near * size, equal_nan=True)
        different = ~same
    if not np.any(different):
        return ""
    at = tuple(int(i[0]) for i in np.nonzero(different)) if found.ndim else ()
    return (
        f"{int(np.count_nonzero(different))} of {found.size} elements differ, the one at {at} is "
        f"{found[at]!s} where the evaluator has {wanted[at]!s}"
    )
