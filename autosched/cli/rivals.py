"""The tuned program beside the machine's peak and, for matrix products, NumPy's BLAS."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from autosched.building.build import build
from autosched.ops import OPERATORS
from autosched.runtime.arrays import empty
from autosched.target.machine import fma_peak
from measure.local.lock import SlotLock

if TYPE_CHECKING:
    from autosched.schedule import Schedule
    from autosched.tuning import SearchTask

Array = npt.NDArray[Any]

NUMPY_PROGRAMS = {
    "matmul": "np.matmul(a[0], a[1], out=a[2])",
    "matmul_add": "np.matmul(a[0], a[1], out=a[3]); np.add(a[3], a[2], out=a[3])",
}
"""What a NumPy user would write for an operator; shown beside the result, never used by the search.
"""

_CHILD = """
import sys, time
import numpy as np
rng = np.random.default_rng(0)
a = [rng.standard_normal(s).astype(d) for s, d in {arrays!r}]
def call():
    {call}
def least(call, seconds):
    call()
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter(); call(); now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best
for line in sys.stdin:
    print(least(call, float(line)), flush=True)
"""
ROUNDS = 4
TURN_S = 0.03


@dataclass(frozen=True)
class Beside:
    """What was timed beside a program; None where there is nothing to compare with.

    `peak`: float32 multiply-adds of all cores, in FLOP/s. `numpy_ratio`: NumPy's time over ours.
    """

    peak: float | None
    numpy_ratio: float | None
    numpy_name: str


def measure_beside(task: SearchTask, schedule: Schedule) -> Beside:
    """Time the peak (for float32 workloads) and what NumPy has for the operator, if it has.

    Ours and NumPy's run in alternation, NumPy in a process of its own; minimum over rounds. Nothing
    else of ours is timed on this host meanwhile.
    """
    peak = ratio = None
    forced = "avx512f" in task.target.features
    with SlotLock().timing():
        if all(b.dtype == "float32" for b in task.prim_func.params):
            peak = fma_peak(task.target, task.target.num_cores)
        program = NUMPY_PROGRAMS.get(task.name)
        floats = all(b.dtype in ("float32", "float64") for b in task.prim_func.params)
        if program is not None and floats and task.func is OPERATORS[task.name]:
            ratio = _numpy_ratio(task, schedule, program, forced)
    kernel = " with its AVX-512 kernel forced" if forced else ""
    return Beside(peak, ratio, f"NumPy's BLAS{kernel}")


def _numpy_ratio(task: SearchTask, schedule: Schedule, program: str, forced: bool) -> float:
    built = build(schedule, target=task.target)
    rng = np.random.default_rng(0)
    arrays = []
    for b in task.prim_func.params:
        shape = tuple(int(n) for n in b.shape)
        array = empty(shape, b.dtype)
        array[...] = rng.standard_normal(shape)
        arrays.append(array)
    env = {**os.environ, "OPENBLAS_NUM_THREADS": str(task.target.num_cores)}
    if forced:
        # Left alone, OpenBLAS takes a slower kernel for processors that it does not know.
        env["OPENBLAS_CORETYPE"] = "SKYLAKEX"
    return numpy_over(built, arrays, program, env)


def numpy_over(
    function: Callable[..., object], arrays: list[Array], program: str, env: dict[str, str]
) -> float:
    """NumPy's time for `program`, run in the environment `env`, over `function`'s on `arrays`."""
    described = [(a.shape, a.dtype.name) for a in arrays]
    command = [sys.executable, "-c", _CHILD.format(arrays=described, call=program)]
    ours = theirs = float("inf")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(ROUNDS):
            child.stdin.write(f"{TURN_S}\n")
            child.stdin.flush()
            theirs = min(theirs, float(child.stdout.readline()))
            # Its BLAS threads go on spinning, for 25 to 100 ms, on the cores that ours need.
            child.send_signal(signal.SIGSTOP)
            try:
                ours = min(ours, _least(lambda: function(*arrays)))
            finally:
                child.send_signal(signal.SIGCONT)
        child.stdin.close()
    return theirs / ours


def _least(call: Callable[[], object]) -> float:
    """The least seconds of a call over a turn, after one call that is not timed."""
    call()
    best, end = float("inf"), time.perf_counter() + TURN_S
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best
