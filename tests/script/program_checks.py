"""What must hold of a random script: how it is read, what it computes, on which processors."""

from __future__ import annotations

import random
import tempfile
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from guarded import HOST, Child
from script_programs import DuplicateError, OutOfRangeError, Program

from autosched.codegen.build import generate_ir
from autosched.errors import AutoschedError, CodegenError, ScriptError, VerifyError
from autosched.schedule import Schedule
from autosched.script import parse
from autosched.tir import interp, whole
from autosched.tir.equal import first_difference
from autosched.tir.nodes import PrimFunc

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Shares:
    """Of how many programs one is taken: spoiled, scheduled, and, of those, compiled and so on."""

    spoiled: int = 8
    scheduled: int = 8
    compiled: int = 2
    bound: int = 12
    opencl: int = 4
    cuda: int = 40
    nested: int = 10
    steps: int = 7
    """Primitives tried on a program at most."""


@dataclass
class Tally:
    """What was seen, and the findings: (kind, text)."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.counts.update(other.counts)
        self.findings += other.findings


class FindingError(Exception):
    """Something is wrong: `kind` for counts, and what was found."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


# What a program is


def truth(program: Program, arrays: Arrays, twice: bool = True) -> tuple[str, Arrays]:
    """("right", its results), or what is wrong with it on these arrays. `twice`: whether the order
    of its points is tried as well."""
    try:
        results = program.evaluate(arrays)
    except OutOfRangeError:
        return "out of range", []
    except DuplicateError:
        return "duplicate", []
    except TypeError:
        return "unwritten", []
    try:
        other = program.evaluate(arrays, backwards=True) if twice else results
    except TypeError:
        return "order", []  # which decides whether an element is read that nothing has written
    # Of two zeros the order may decide which one is the least: they are equal.
    pairs = zip(results, other, strict=True)
    if not all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs):
        return "order", []
    return "right", results


MUST_REFUSE = ("out of range", "duplicate", "order")


def parsed(text: str, what: str, tally: Tally) -> PrimFunc | None:
    """The program, if the parser takes it; what refuses it is counted."""
    try:
        return parse(text)
    except VerifyError as e:
        lines = str(e).splitlines()
        rule = lines[1].rpartition("column")[2].split(": ")[1] if len(lines) > 1 else "?"
        tally.counts[f"{what}, refused by {rule}"] += 1
    except ScriptError:
        tally.counts[f"{what}, refused by its text"] += 1
    except AutoschedError as e:
        raise FindingError("parse", f"{type(e).__name__}: {e}") from e
    return None


def stays_inside(func: PrimFunc, arrays: Arrays) -> bool:
    """Whether no access that is left of a program leaves its buffer: the parser folds `x * 0`."""
    try:
        interp.run(func, [a.copy() for a in arrays])
    except VerifyError:
        return False
    return True


def same(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], by: str) -> None:
    for n, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
            raise FindingError(f"{by} differs", f"argument {n}:\n{a}\nexpected\n{b}")


def round_trip(func: PrimFunc) -> None:
    """`func` is what its text says, and the text of a verified program is verified."""
    text = func.script()
    try:
        found = parse(text)
    except (VerifyError, ScriptError) as e:
        raise FindingError("round trip refused", summary(e)) from e
    different = first_difference(func, found)
    if different is not None:
        raise FindingError("round trip differs", str(different))
    if found.script() != text:
        raise FindingError("round trip prints another text", found.script())


def summary(e: BaseException) -> str:
    return "\n".join(str(e).splitlines()[:12])


def interpreted(func: PrimFunc, arrays: Arrays, wanted: Arrays, by: str) -> None:
    memory = [a.copy() for a in arrays]
    try:
        interp.run(func, memory)
    except Exception as e:
        raise FindingError(f"{by}: {type(e).__name__}", summary(e)) from e
    same(memory, wanted, by)


CHILD = Child(30)


def compiled(
    func: PrimFunc, arrays: Arrays, wanted: Arrays, rng: random.Random, tally: Tally
) -> None:
    """What the code for this processor computes."""
    try:
        generated = generate_ir(func, HOST)
    except CodegenError as e:
        tally.counts["refused by the code generator"] += 1
        tally.counts[f"  {str(e)[:60]}"] += 1
        return
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        where = f"{type(e).__name__} in {Path(last.filename).name}:{last.name}"
        raise FindingError(where, summary(e)) from e
    tally.counts["compiled"] += 1
    try:
        found = CHILD.run(generated, HOST, "search", arrays, 1 + rng.randrange(3))
    except AssertionError as e:
        raise FindingError("compiled code fails", summary(e)) from e
    same(found, wanted, "compiled code")


def on_gpu(
    sch: Schedule, arrays: Arrays, wanted: Arrays, shares: Shares, rng: random.Random, tally: Tally
) -> None:
    """What the kernels of a bound schedule compute, on OpenCL or as CUDA on the host."""
    import cuda_on_host
    import gpu_run

    func = sch.func
    try:
        gpu_run.source(func, gpu_run.cuda())
        gpu_run.source(func)
    except CodegenError as e:
        tally.counts["kernels refused"] += 1
        tally.counts[f"  {str(e)[:60]}"] += 1
        return
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        where = f"{type(e).__name__} in {Path(last.filename).name}:{last.name}"
        raise FindingError(where, summary(e)) from e
    tally.counts["kernels"] += 1
    from autosched.tir.nodes import inputs_of, outputs_of

    by_id = {id(b): n for n, b in enumerate(func.params)}
    inputs = [arrays[by_id[id(b)]] for b in inputs_of(func)]
    outputs = [wanted[by_id[id(b)]] for b in outputs_of(func)]
    if rng.randrange(shares.opencl) == 0:
        tally.counts["on OpenCL"] += 1
        same(gpu_run.run(func, inputs), outputs, "OpenCL")
    kinds = {str(a.dtype) for a in arrays}
    if cuda_on_host.CXX and rng.randrange(shares.cuda) == 0 and kinds <= {"float32", "int32"}:
        tally.counts["as CUDA on the host"] += 1
        with tempfile.TemporaryDirectory() as folder:
            try:
                for found in cuda_on_host.run_on_host(func, inputs, Path(folder)):
                    same(found, outputs, "CUDA on the host")
            except AssertionError as e:
                raise FindingError("CUDA on the host fails", summary(e)) from e


def by_whole_arrays(func: PrimFunc, arrays: Arrays, wanted: Arrays, tally: Tally) -> bool:
    """What `whole.reference` computes; False of a program that it does not take."""
    memory = [a.copy() for a in arrays]
    try:
        whole.reference(func, memory)
    except VerifyError:
        return False
    except Exception as e:
        raise FindingError(f"whole: {type(e).__name__}", summary(e)) from e
    tally.counts["by whole arrays"] += 1
    same(memory, wanted, "whole")
    return True
