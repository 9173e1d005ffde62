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
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(TESTS), *(str(TESTS / x) for x in ("schedule", "codegen", "script", "gpu"))]

import codegen_fuzz
import schedule_fuzz
import schedule_rare
from bounded import at_most
from program_changes import smaller, spoiled
from program_checks import (
    MUST_REFUSE,
    Arrays,
    FindingError,
    Shares,
    Tally,
    by_whole_arrays,
    compiled,
    interpreted,
    on_gpu,
    parsed,
    round_trip,
    stays_inside,
    summary,
    truth,
)
from program_maker import random_program
from schedule_fuzz import Choices
from schedule_outcome import concurrent
from script_programs import Program

from autosched.errors import AutoschedError, ScheduleError
from autosched.schedule import Schedule
from autosched.tir.nodes import THREADS, PrimFunc, loops_of
from autosched.tir.opaque import has_opaque

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
    schedule_rare.pad_read,
    schedule_rare.roll,
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
            raise ScheduledError(FindingError(where, summary(e)), sch, trial) from e
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
    if what == "out of range" and stays_inside(func, arrays):
        tally.counts["out of range, but folded away"] += 1
    elif what in MUST_REFUSE:
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
        raise ScheduledError(FindingError(where, summary(e)), first, maker.sch) from e
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
