"""Loops fused, split by any factors and run in any way: the text of each state is parsed again."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace
from math import prod

import pytest
from bounded import Budget

from autosched import te
from autosched.errors import ScheduleError, VerifyError
from autosched.schedule import LoopRV, Schedule
from autosched.script import parse
from autosched.tir.counted import MAX_POINTS
from autosched.tir.nodes import Block, PrimFunc, Site, sites
from autosched.tir.points import within
from autosched.tir.verify import verify

CASES: dict[str, tuple[tuple[int, ...], list[int | None]]] = {
    "2x6x8 by 16": ((2, 6, 8), [None, 16]),
    "2x6x8 by 24": ((2, 6, 8), [None, 24]),
    "3x4x5 by 10": ((3, 4, 5), [None, 10]),
    "1x8x56x56x32 by 128": ((1, 8, 56, 56, 32), [None, 128]),
    "1x8x56x56x32 by 7 and 100": ((1, 8, 56, 56, 32), [None, 7, 100]),
}


def pointwise(shape: tuple[int, ...]) -> PrimFunc:
    a = te.placeholder(shape, name="A")
    return te.create_prim_func([a, te.compute(shape, lambda *i: a[i] + 1.0, name="B")])


def check(schedule: Schedule) -> None:
    text = schedule.mod.script()
    assert parse(text).script() == text, schedule.trace


@pytest.mark.parametrize("name", CASES)
def test_fuse_all_split_parallel_vectorize(name: str) -> None:
    shape, factors = CASES[name]
    schedule = Schedule(pointwise(shape))
    block = schedule.get_block("B")
    outer, *_, inner = schedule.split(schedule.fuse(*schedule.get_loops(block)), factors)
    check(schedule)
    schedule.parallel(outer)
    check(schedule)
    schedule.vectorize(inner)
    check(schedule)


def states(shape: tuple[int, ...], *steps: tuple[str, int, list[int | None]]) -> Schedule:
    """`fuse` of the loops from a place to a place, `split` of a loop by factors."""
    schedule = Schedule(pointwise(shape))
    block = schedule.get_block("B")
    for op, at, numbers in steps:
        loops = schedule.get_loops(block)
        if op == "fuse":
            schedule.fuse(*loops[at : numbers[0]])
        else:
            schedule.split(loops[at], numbers)
    return schedule


FUSED_AGAIN = {
    "a bound of a quotient": states(
        (3, 32, 32), ("fuse", 0, [2]), ("split", 0, [85, None]), ("fuse", 0, [3])
    ),
    "a bound of an upper digit": states(
        (6, 3, 48, 7),
        ("split", 0, [None, 10]),
        ("split", 4, [None, 7]),
        ("split", 4, [None, 4, 1]),
        ("fuse", 0, [8]),
    ),
    "one predicate makes another simpler": states(
        (8,), ("split", 0, [None, 8]), ("split", 1, [None, 5]), ("fuse", 0, [3]),
        ("split", 0, [None, 13]),
    ),
    "what does not show in a quotient": states(
        (6,), ("split", 0, [None, 6, 1]), ("fuse", 0, [3]), ("split", 0, [7, None]),
        ("split", 0, [None, 3]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED_AGAIN)
def test_fused_again(name: str) -> None:
    check(FUSED_AGAIN[name])


def test_points_tell_what_proofs_leave_open() -> None:
    """Right where the axis stays inside; a predicate left out is noticed."""
    schedule = states((6,), ("split", 0, [None, 4]), ("fuse", 0, [2]), ("split", 0, [3, None]))
    (site,) = sites(schedule.func)
    (binding,) = site.block.bindings
    assert within(site, binding, 6)
    assert not within(site, binding, 5)
    assert not within(Site(_bare(site), site.loops), binding, 6)
    text = schedule.func.script()
    where = next(x for x in text.splitlines() if "T.where" in x)
    with pytest.raises(VerifyError, match=r"not provably in \[0, 6\)"):
        parse(text.replace(where + "\n", ""))


def _bare(site: Site) -> Block:

    return replace(site.block, predicates=())


# Random


def random_func(rng: random.Random) -> PrimFunc:
    """A pointwise stage or a sum, and perhaps a stage after it."""
    shape = tuple(
        rng.choice([rng.randint(1, 60), rng.randint(1, 8), rng.choice([8, 16, 32, 56])])
        for _ in range(rng.randint(1, 5))
    )
    if rng.random() < 0.25:
        a = te.placeholder((*shape, 3), name="A")
        r = te.reduce_axis((0, 3), name="r")
        b = te.compute(shape, lambda *i: te.sum(a[(*i, r)], axis=r), name="B")
    else:
        a = te.placeholder(shape, name="A")
        b = te.compute(shape, lambda *i: a[i] + 1.0, name="B")
    if rng.random() < 0.3:
        b = te.compute(shape, lambda *i: b[i] * 2.0, name="C")
    return te.create_prim_func([a, b])


def random_factor(rng: random.Random, extent: int) -> int:
    kind = rng.random()
    if kind < 0.3:
        return rng.choice([1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 128])
    if kind < 0.6 and extent < 5000:
        return rng.choice([x for x in range(1, extent + 1) if extent % x == 0])
    return rng.randint(1, min(extent + 3, 200))


def shape_loops(rng: random.Random, schedule: Schedule, loops: list[LoopRV]) -> None:
    """One fuse, split or reorder."""
    kind = rng.random()
    at = rng.randrange(len(loops))
    if kind < 0.45 and len(loops) > 1:
        first = 0 if rng.random() < 0.5 else at
        last = rng.randint(first + 1, len(loops)) if rng.random() < 0.5 else len(loops)
        schedule.fuse(*loops[first:last])
    elif kind < 0.9:
        extent = int(schedule.get(loops[at]).extent)
        factors: list[int | None] = [None]
        factors += [random_factor(rng, extent) for _ in range(rng.choice([1, 1, 2]))]
        schedule.split(loops[at], factors[:: rng.choice([1, -1])])
    else:
        rng.shuffle(loops)
        schedule.reorder(*loops)


def run_loop(rng: random.Random, schedule: Schedule, loop: LoopRV, gpu: bool) -> None:
    kinds: list[Callable[[LoopRV], None]] = [
        schedule.parallel,
        schedule.parallel,
        schedule.vectorize,
        schedule.unroll,
    ]
    if gpu:
        axes = ("blockIdx.x", "threadIdx.x", "vthread", "blockIdx.y", "threadIdx.y")
        kinds = [lambda x: schedule.bind(x, rng.choice(axes))]
    if rng.random() < 0.75:
        rng.choice(kinds)(loop)


def fuzz(seed: int) -> None:
    rng = random.Random(seed)
    schedule = Schedule(random_func(rng))
    gpu = rng.random() < 0.4
    for block in schedule.get_blocks():
        for _ in range(rng.randint(1, 4)):
            try:
                shape_loops(rng, schedule, list(schedule.get_loops(block)))
            except ScheduleError:
                continue
            check(schedule)
        for loop in reversed(schedule.get_loops(block)):
            try:
                run_loop(rng, schedule, loop, gpu)
            except ScheduleError:
                continue
            check(schedule)


def test_random_loops() -> None:
    for seed in range(40):
        fuzz(seed)


@pytest.mark.parametrize("seed", [1021, 1110, 1802, 1890, 2020, 2284, 3274, 4291, 7966])
def test_found(seed: int) -> None:
    """Reductions over too many points to go through, whose axes are sums of digits, or digits that
    a condition bounds."""
    fuzz(seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_random_loops_long() -> None:
    """Of spaces that are too large to enumerate, the rules on domains and reductions may fail to
    prove one in a thousand; every other text is read again."""
    budget, tried, undecided = Budget(75), [], []

    def one(seed: int) -> None:
        tried.append(seed)
        try:
            fuzz(seed)
        except VerifyError as e:
            undecided.append(str(e))

    for seed in range(1000, 9000):
        budget.run(one, seed)
    for text in undecided:
        extents = re.findall(r" in T\.\w+\(([\d, ]+)\):", text)
        assert prod(int(n) for e in extents for n in e.split(",")) > MAX_POINTS, text
    assert len(undecided) <= max(3, len(tried) // 1000)


def test_the_verifier_refuses_what_parallel_does() -> None:
    """A missing digit: two iterations meet."""
    schedule = states((2, 6, 8), ("fuse", 0, [3]), ("split", 0, [None, 16]))
    outer, _ = schedule.get_loops(schedule.get_block("B"))
    schedule.parallel(outer)
    verify(schedule.func)
    text = schedule.func.script()
    line = next(x for x in text.splitlines() if "vi1 =" in x)
    head = line.split("=")[0]
    with pytest.raises(VerifyError, match="may write the same element of B"):
        parse(text.replace(line, f"{head}= T.axis.spatial(6, 0)"))
