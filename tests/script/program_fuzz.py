"""Random scripts under random schedules, held to an evaluation of their own.

For each program of `script_programs`:

- the parser takes it if it is right, and refuses it if it leaves a buffer or depends on the order
  of its points (proofs are incomplete: right programs that are refused are counted);
- the interpreter computes what the program's own evaluation in plain Python does;
- a share is scheduled by random primitives: a step is refused with an AutoschedError, or makes
  a program that its own text gives back, and that still passes the verifier; at the end it computes
  the same in the interpreter, also with its parallel iterations interleaved, and, of shares, as
  compiled code between forbidden pages, on OpenCL, and as CUDA on the host.

By hand:  python tests/script/program_fuzz.py --programs 100000 --seed 1 --jobs 2
prints what was found, as scripts that can be pasted, and counts by kind.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(TESTS), *(str(TESTS / x) for x in ("schedule", "codegen", "script", "gpu"))]

import codegen_fuzz
import numpy as np
import schedule_fuzz
from bounded import at_most
from guarded import HOST, Child
from program_changes import smaller, spoiled
from program_maker import random_program
from schedule_fuzz import Choices
from schedule_outcome import concurrent
from script_programs import DuplicateError, OutOfRangeError, Program

from autosched.codegen.build import generate_ir
from autosched.errors import AutoschedError, CodegenError, ScheduleError, ScriptError, VerifyError
from autosched.schedule import Schedule
from autosched.script import parse
from autosched.tir import interp, whole
from autosched.tir.equal import first_difference
from autosched.tir.nodes import THREADS, PrimFunc, loops_of
from autosched.tir.opaque import has_opaque

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
        raise FindingError("round trip refused", _summary(e)) from e
    different = first_difference(func, found)
    if different is not None:
        raise FindingError("round trip differs", str(different))
    if found.script() != text:
        raise FindingError("round trip prints another text", found.script())


def _summary(e: BaseException) -> str:
    return "\n".join(str(e).splitlines()[:12])


# Schedules


def _fuse_all(sch: Schedule, c: Choices) -> None:
    """The usual schedule of a plain nest: one loop, in parallel, the innermost part in vectors."""
    block = schedule_fuzz.drawn_block(sch, c)
    loops = sch.get_loops(block)
    if not loops:
        raise ScheduleError("no loops")
    loop = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    outer, inner = sch.split(loop, [None, c.of((2, 3, 4, 5, 8, 10, 16))])
    codegen_fuzz._try(lambda: sch.parallel(outer))
    codegen_fuzz._try(lambda: sch.vectorize(inner))


def _set_scope(sch: Schedule, c: Choices) -> None:
    sch.set_scope(schedule_fuzz.drawn_block(sch, c), c.next(2), c.of(("local", "shared", "global")))


def _cache_write(sch: Schedule, c: Choices) -> None:
    sch.cache_write(
        schedule_fuzz.drawn_block(sch, c), c.next(2), c.of(("local", "shared", "global"))
    )


def _bind(sch: Schedule, c: Choices) -> None:
    sch.bind(schedule_fuzz.drawn_loop(sch, c), c.of(THREADS))


def _annotate(sch: Schedule, c: Choices) -> None:
    block = schedule_fuzz.drawn_block(sch, c)
    key, value = c.of((("streaming", True), ("FLOP", 12), ("double_buffer", True)))
    sch.annotate(block, key, value)
    if c.next(2):
        sch.unannotate(block, key)


ACTIONS: tuple[schedule_fuzz.Action, ...] = (
    *schedule_fuzz.ACTIONS,
    *codegen_fuzz.ACTIONS,
    _fuse_all,
    _fuse_all,
    _set_scope,
    _cache_write,
    _annotate,
    lambda s, c: s.blockize(schedule_fuzz.drawn_loop(s, c)),
    lambda s, c: s.double_buffer(schedule_fuzz.drawn_block(s, c)),
    lambda s, c: s.single_pass_scan(schedule_fuzz.drawn_block(s, c), 2, 2, 2),
)
BOUND: tuple[schedule_fuzz.Action, ...] = (_bind, _bind, *ACTIONS[: len(schedule_fuzz.ACTIONS)])


def _names(actions: Sequence[schedule_fuzz.Action]) -> list[str]:
    return [a.__name__.strip("_") for a in actions]


def scheduled(
    func: PrimFunc, rng: random.Random, steps: int, actions: Sequence[Any], tally: Tally
) -> Schedule:
    """`func` after random primitives. Each state comes back from its text."""
    sch = Schedule(func)
    for _ in range(steps):
        c = Choices([rng.randrange(1000) for _ in range(codegen_fuzz.STEP)])
        action = actions[rng.randrange(len(actions))]
        trial = sch.copy()
        try:
            action(trial, c)
        except AutoschedError:
            tally.counts["primitives refused"] += 1
            continue
        except Exception as e:
            last = traceback.extract_tb(e.__traceback__)[-1]
            where = f"{type(e).__name__} in {Path(last.filename).name}:{last.name}"
            raise ScheduledError(FindingError(where, _summary(e)), sch, trial) from e
        if trial.func is sch.func:
            sch = trial
            continue
        tally.counts["primitives applied"] += 1
        try:
            round_trip(trial.func)
        except FindingError as e:
            raise ScheduledError(e, sch, trial) from e
        sch = trial
    return sch


class ScheduledError(Exception):
    """A finding in a schedule: what it was before, and with the last step."""

    def __init__(self, finding: FindingError, before: Schedule, after: Schedule) -> None:
        super().__init__(str(finding))
        self.finding, self.before, self.after = finding, before, after


def check_scheduled(
    sch: Schedule, arrays: Arrays, wanted: Arrays, shares: Shares, rng: random.Random, tally: Tally
) -> None:
    """What a schedule computes in the interpreter and as compiled code."""
    interpreted(sch.func, arrays, wanted, "scheduled, interpreter")
    if any(x.kind in ("parallel", "vectorized") for x in loops_of(sch.func)):
        tally.counts["interleaved"] += 1
        interpreted(concurrent(sch.func), arrays, wanted, "interleaved")
    if rng.randrange(shares.compiled) == 0:
        compiled(sch.func, arrays, wanted, rng, tally)


def interpreted(func: PrimFunc, arrays: Arrays, wanted: Arrays, by: str) -> None:
    memory = [a.copy() for a in arrays]
    try:
        interp.run(func, memory)
    except Exception as e:
        raise FindingError(f"{by}: {type(e).__name__}", _summary(e)) from e
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
        raise FindingError(where, _summary(e)) from e
    tally.counts["compiled"] += 1
    try:
        found = CHILD.run(generated, HOST, "search", arrays, 1 + rng.randrange(3))
    except AssertionError as e:
        raise FindingError("compiled code fails", _summary(e)) from e
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
        raise FindingError(where, _summary(e)) from e
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
                raise FindingError("CUDA on the host fails", _summary(e)) from e


# One program


def examine(program: Program, seed: int, shares: Shares, tally: Tally) -> None:
    """Raises FindingError or ScheduledError. Everything follows from the program and the seed."""
    rng = random.Random(seed)
    tally.counts["programs"] += 1
    for kind in dict.fromkeys(program.kinds):
        tally.counts[f"of kind {kind}"] += 1
    arrays = program.arrays(seed)
    what, wanted = truth(program, arrays, twice=rng.randrange(4) == 0 or program.is_spoiled)
    tally.counts[what] += 1
    text = program.script()
    func = parsed(text, what, tally)
    if func is None:
        return
    tally.counts[f"{what}, accepted"] += 1
    if what in MUST_REFUSE:
        raise FindingError(f"accepted, but {what}", "")
    if what != "right":
        return
    if seed % shares.nested == 0:
        as_nests(text, arrays, wanted, rng, tally)
    if rng.randrange(2) or not by_whole_arrays(func, arrays, wanted, tally):
        interpreted(func, arrays, wanted, "interpreter")
    if rng.randrange(shares.scheduled):
        return
    round_trip(func)
    bound = rng.randrange(shares.bound) == 0
    tally.counts["scheduled for GPUs" if bound else "scheduled"] += 1
    if bound:
        sch = bound_schedule(func, rng, tally)
    else:
        sch = scheduled(func, rng, rng.randrange(shares.steps + 1), ACTIONS, tally)
    try:
        if bound:
            interpreted(sch.func, arrays, wanted, "bound, interpreter")
            on_gpu(sch, arrays, wanted, shares, rng, tally)
        else:
            check_scheduled(sch, arrays, wanted, shares, rng, tally)
    except FindingError as e:
        raise ScheduledError(e, sch, sch) from e


def bound_schedule(func: PrimFunc, rng: random.Random, tally: Tally) -> Schedule:
    """Some primitives, then the tiles of a GPU."""
    from test_gpu_fuzz import Scheduler

    first = scheduled(func, rng, rng.randrange(3), ACTIONS[: len(schedule_fuzz.ACTIONS)], tally)
    maker = Scheduler(rng, func)
    maker.sch = first.copy()
    try:
        sch = maker.run()
    except AutoschedError:
        sch = first
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        where = f"{type(e).__name__} in {Path(last.filename).name}:{last.name}"
        raise ScheduledError(FindingError(where, _summary(e)), first, maker.sch) from e
    try:
        round_trip(sch.func)
    except FindingError as e:
        raise ScheduledError(e, first, sch) from e
    return sch


def nested(text: str, rng: random.Random) -> str:
    """A program with blocks in blocks of no axes of their own, about half of its blocks."""
    out: list[str] = []
    deeper = -1
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        if depth <= deeper and line.strip():
            deeper = -1
        if line.lstrip().startswith("with T.block(") and rng.randrange(2):
            out.append(f'{line.partition("with")[0]}with T.block("around_{len(out)}"):')
            deeper = depth
        out.append("    " + line if deeper >= 0 else line)
    return "\n".join(out) + "\n"


def as_nests(text: str, arrays: Arrays, wanted: Arrays, rng: random.Random, tally: Tally) -> None:
    """What the program computes with some of its nests in order, as opaque blocks."""
    func = parsed(nested(text, rng), "nested", tally)
    if func is None or not has_opaque(func):
        return
    tally.counts["nested"] += 1
    round_trip(func)
    interpreted(func, arrays, wanted, "nested, interpreter")
    if rng.randrange(2) == 0:
        compiled(func, arrays, wanted, rng, tally)


def by_whole_arrays(func: PrimFunc, arrays: Arrays, wanted: Arrays, tally: Tally) -> bool:
    """What `whole.reference` computes; False of a program that it does not take."""
    memory = [a.copy() for a in arrays]
    try:
        whole.reference(func, memory)
    except VerifyError:
        return False
    except Exception as e:
        raise FindingError(f"whole: {type(e).__name__}", _summary(e)) from e
    tally.counts["by whole arrays"] += 1
    same(memory, wanted, "whole")
    return True


def made(seed: int, shares: Shares) -> Program:
    """Program number `seed`."""
    rng = random.Random(seed)
    program = random_program(rng)
    if rng.randrange(shares.spoiled) == 0:
        program = spoiled(program, rng)
    return program


def one(seed: int, shares: Shares, tally: Tally, small: bool = True) -> None:
    """Examine program number `seed`; a finding is kept, with a program as small as may be."""
    program = made(seed, shares)
    kind, text = failure(program, seed, shares, tally)
    if kind is None:
        return
    if small:
        program, text = shrunk(program, seed, shares, kind, text)
    tally.findings.append((kind, f"# seed {seed}: {kind}\n{text}"))


def failure(program: Program, seed: int, shares: Shares, tally: Tally) -> tuple[str | None, str]:
    """(kind, story) of what is wrong; (None, "") if nothing is."""
    try:
        examine(program, seed, shares, tally)
    except FindingError as e:
        return f"{e.kind}{_note(program)}", f"{program.script()}\n{e}"
    except ScheduledError as e:
        trace = e.after.trace.bind({k: int(v) for k, v in e.after.decisions.items()})
        parts = [program.script(), trace.as_python(), e.after.func.script(), str(e.finding)]
        return f"{e.finding.kind}{_note(program)}", "\n".join(parts)
    return None, ""


def _note(program: Program) -> str:
    return ", of a scatter" if program.scatters() else ""


def shrunk(
    program: Program, seed: int, shares: Shares, kind: str, text: str
) -> tuple[Program, str]:
    """The program with parts left out as long as some seed near shows a failure of the same kind.

    Schedules follow from seeds, so a smaller program may need another one.
    """
    end = time.monotonic() + 20
    again = True
    while again and time.monotonic() < end:
        again = False
        for other in smaller(program):
            if time.monotonic() > end or not other.stages:
                break
            try:
                found, story = failure(other, seed, shares, Tally())
            except Exception:  # not every smaller one is a program
                continue
            if found == kind:
                program, text, again = other, story, True
                break
    return program, text


BATCH = 50
"""Programs under one timer: a timer is a thread, which costs as much as a small program."""


def fuzz(first: int, count: int, shares: Shares, small: bool = True) -> Tally:
    tally = Tally()
    for start in range(first, first + count, BATCH):
        _batch(range(start, min(start + BATCH, first + count)), shares, small, tally)
    return tally


def _batch(seeds: range, shares: Shares, small: bool, tally: Tally) -> None:
    now = seeds.start
    with at_most(300, lambda: f"seed {now}:\n{made(now, shares).script()}"):
        for now in seeds:
            one(now, shares, tally, small)


# By hand


def _chunks(first: int, count: int, size: int = 250) -> Iterator[tuple[int, int]]:
    for start in range(first, first + count, size):
        yield start, min(size, first + count - start)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    args.add_argument("--programs", type=int, default=10_000)
    args.add_argument("--seed", type=int, default=0, help="number of the first program")
    args.add_argument("--jobs", type=int, default=2)
    for share in fields(Shares):
        args.add_argument(f"--{share.name}", type=int, default=share.default)
    args.add_argument("--large", action="store_true", help="do not look for small examples")
    args.add_argument("--show", type=int, default=2, help="findings of each kind that are printed")
    given = args.parse_args()
    shares = Shares(**{x.name: getattr(given, x.name) for x in fields(Shares)})
    total, begin = Tally(), time.monotonic()
    shown: Counter[str] = Counter()
    with ProcessPoolExecutor(given.jobs) as pool:
        jobs = [
            pool.submit(fuzz, a, n, shares, not given.large)
            for a, n in _chunks(given.seed, given.programs)
        ]
        for n, job in enumerate(jobs, 1):
            found = job.result()
            total.add(found)
            for kind, text in found.findings:
                shown[kind] += 1
                if shown[kind] <= given.show:
                    print(f"\n{'=' * 80}\n{text}", flush=True)
            if n % 40 == 0:
                spent = time.monotonic() - begin
                print(f"{total.counts['programs']} programs in {spent:.0f} s", flush=True)
    last = given.seed + given.programs - 1
    print(f"\nprograms number {given.seed} to {last}, {time.monotonic() - begin:.0f} s")
    for what, n in sorted(total.counts.items(), key=lambda x: -x[1]):
        print(f"{n:9} {what}")
    print(f"{len(total.findings)} findings")
    for kind, n in shown.most_common():
        print(f"{n:9} {kind}")


if __name__ == "__main__":
    main()
