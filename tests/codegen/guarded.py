"""Running kernels in a child that dies of any access outside their arrays."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Union

import numpy as np
import numpy.typing as npt
import pytest

from autosched.codegen.artifact import Artifact
from autosched.codegen.build import Level, build_artifact
from autosched.errors import AutoschedError
from autosched.schedule import Schedule
from autosched.target import Target
from autosched.tir import dtypes, interp
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


class Child:
    """The process; started when first needed and again after it died."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, artifact: Artifact, arrays: Sequence[Array], threads: int = 2) -> list[Array]:
        """The arrays after the kernel ran on copies. AssertionError if it misbehaves."""
        if self.process is None:
            script = Path(__file__).with_name("guarded_child.py")
            self.process = subprocess.Popen(
                [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump((artifact, list(arrays), threads), process.stdin)
            process.stdin.flush()
            status, value = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError) as e:
            code = self.stop()
            how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            raise AssertionError(f"the kernel died of {how}: it left its arrays or hung") from e
        assert status == "ok", value
        return list(value)

    def stop(self) -> int:
        """End the process; returns its exit status."""
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
        return process.wait()


child = Child()


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
    artifact = build_artifact(func_of(program), Target(target), level)
    return child.run(artifact, arrays, threads)


def expected(program: PrimFunc, arrays: Sequence[Array]) -> list[Array]:
    """The arrays after the interpreter ran the unscheduled `program` on copies of them."""
    out = [a.copy() for a in arrays]
    interp.reference(program, out)
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
