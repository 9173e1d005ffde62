"""Building and running kernels in a child that dies of any access outside their arrays.

LLVM works in the child too, so that whatever hangs, hangs there: its alarm ends it, and if that
should fail, the parent does.
"""

from __future__ import annotations

import atexit
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union

import numpy as np
import numpy.typing as npt
import pytest

from autosched.codegen.build import Level, generate_ir
from autosched.codegen.llvm.generate import Generated
from autosched.errors import AutoschedError
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tir import dtypes, interp, whole
from autosched.tir.nodes import PrimFunc, outputs_of

Array = npt.NDArray[Any]
Program = Union[PrimFunc, Schedule]
HOST = Target("llvm")
TARGETS = ["llvm"]
"""This machine, and older ones whose code runs here: AVX2, and SSE2 without fused operations."""
if HOST.arch == "x86_64":
    for _cpu in ("x86-64-v3", "x86-64"):
        if not Target(f"llvm -mcpu={_cpu}").missing_here():
            TARGETS.append(f"llvm -mcpu={_cpu}")
MANY = pytest.mark.parametrize(
    "target",
    [pytest.param(t, marks=[pytest.mark.long] if t in TARGETS[1:] else []) for t in TARGETS],
)
"""For a test of many cases: those of older processors are for the long suite."""
GRACE = 15
"""Seconds after which the parent ends a child that its alarm did not end."""


class Child:
    """The process; started when first needed and again after it died."""

    def __init__(self, seconds: int = 60) -> None:
        self.seconds = seconds
        self.process: subprocess.Popen[bytes] | None = None

    def run(
        self,
        generated: Generated,
        target: Target,
        level: Level,
        arrays: Sequence[Array],
        threads: int,
    ) -> list[Array]:
        """The arrays after the kernel was built and ran on copies of them. AssertionError if it
        misbehaves or takes more than `seconds`."""
        if self.process is None:
            script = Path(__file__).with_name("guarded_child.py")
            self.process = subprocess.Popen(
                [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        request = (self.seconds, generated, str(target), level, list(arrays), threads)
        # Later than the child's own alarm, which it may have blocked, or be too broken to take.
        last_resort = threading.Timer(self.seconds + GRACE, process.kill)
        last_resort.start()
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            status, value = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as e:
            code = self.stop()
            raise AssertionError(f"the kernel's process {self._end(code)}") from e
        except BaseException:  # a timeout of the test, say: the answer would meet the next request
            self.stop()
            raise
        finally:
            last_resort.cancel()
        assert status == "ok", value
        return list(value)

    def _end(self, code: int) -> str:
        if code >= 0:
            return f"ended with status {code}"
        if -code in (signal.SIGALRM, signal.SIGKILL):
            return f"took more than {self.seconds} s and was ended"
        return f"died of {signal.Signals(-code).name}: it left its arrays"

    def stop(self) -> int:
        """End the process, by force if it does not go; returns its exit status."""
        process, self.process = self.process, None
        if process is None:
            return 0
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.close()
        except BrokenPipeError:  # it died with a request on the way
            process.stdin = None
        process.stdout.close()
        try:
            return process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


child = Child()
atexit.register(child.stop)


def need_halves(target: str, *used: str) -> None:
    """Skip what a processor without conversions of float16 refuses; see its CodegenError."""
    if "float16" in used and "f16c" not in Target(target).features and HOST.arch == "x86_64":
        pytest.skip("no float16 there")


def func_of(program: Program) -> PrimFunc:
    return program.func if isinstance(program, Schedule) else program


def random_array(
    rng: np.random.Generator, shape: Sequence[int], dtype: str, low: int = -4, high: int = 5
) -> Array:
    """Small whole numbers in [low, high): sums and products of them are exact in every dtype."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == "bfloat16":
        return dtypes.from_float32(rng.integers(low, high, shape))
    if dtype in dtypes.UNSIGNED:
        low, high = 0, high - low
    return rng.integers(low, high, shape).astype(dtype)


def arguments(func: PrimFunc, inputs: Sequence[Array] | None = None, seed: int = 0) -> list[Array]:
    """One array a parameter: `inputs` (random if not given) and poisoned outputs."""
    rng = np.random.default_rng(seed)
    written = {id(b) for b in outputs_of(func)}
    given = iter(inputs or ())
    out = []
    for b in func.params:
        shape = tuple(int(n) for n in b.shape)
        if id(b) in written:
            out.append(np.full(shape, interp.poison(b.dtype), dtypes.array_dtype(b.dtype)))
        elif inputs is not None:
            out.append(np.ascontiguousarray(next(given)))
        else:
            out.append(random_array(rng, shape, b.dtype))
    return out


def compiled(
    program: Program,
    arrays: Sequence[Array],
    target: str | Target = "llvm",
    level: Level = "search",
    threads: int = 2,
) -> list[Array]:
    """The arrays after the compiled program ran on them."""
    on = Target(target)
    return child.run(generate_ir(func_of(program), on), on, level, arrays, threads)


def expected(program: PrimFunc, arrays: Sequence[Array]) -> list[Array]:
    """The arrays after the interpreter ran the unscheduled `program` on copies of them."""
    out = [a.copy() for a in arrays]
    whole.reference(program, out)
    return out


def same(found: Array, wanted: Array, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Equal (NaN to NaN); floats within a tolerance, if one is given."""
    if dtypes.is_float(wanted.dtype.name) and (rtol or atol):
        np.testing.assert_allclose(
            found.astype("float64"), wanted.astype("float64"), rtol=rtol, atol=atol
        )
    else:
        np.testing.assert_array_equal(found, wanted)


def check(
    program: Program,
    original: PrimFunc | None = None,
    inputs: Sequence[Array] | None = None,
    *,
    target: str | Target = "llvm",
    level: Level = "search",
    threads: int = 2,
    rtol: float = 0.0,
    atol: float = 0.0,
    seed: int = 0,
) -> list[Array]:
    """Compile `program`, run it guarded, and compare with the interpreted `original` (by default
    the program itself, unscheduled). Returns the outputs. A failure prints how to repeat it."""
    if original is None:
        assert isinstance(program, PrimFunc)
        original = program
    arrays = arguments(original, inputs, seed)
    want = expected(original, arrays)
    try:
        found = compiled(program, arrays, target, level, threads)
        for a, b in zip(found, want, strict=True):
            same(a, b, rtol, atol)
    except (AssertionError, AutoschedError) as e:
        raise AssertionError(f"{e}\n{story(program, original, target)}") from e
    written = {id(b) for b in outputs_of(original)}
    return [a for a, b in zip(found, original.params, strict=True) if id(b) in written]


def story(program: Program, original: PrimFunc, target: str | Target) -> str:
    """The program as script and its schedule as Python."""
    parts = [f"target: {target}", original.script()]
    if isinstance(program, Schedule):
        values = {n: int(v) for n, v in program.decisions.items()}
        parts += [program.trace.bind(values).as_python(), "# scheduled:", program.func.script()]
    return "\n".join(parts)
