"""Records of strangers: whatever a trace says, replaying it refuses or gives a program."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

import autosched as at
from autosched.errors import AutoschedError
from autosched.schedule.portable import encode_trace
from autosched.tuning.best import schedule_of
from records import Record

VALUES: list[Any] = [
    None, True, -1, 0, 1, 2, 64, 10**30, 0.5, "", "l0", "b0", "#0", [], {}, [[]], {"x": 1},
    {"ref": "l0"}, {"ref": 5}, {"decision": "t"}, ["l0", "l1"], "global", {"array": [1, 2]},
]  # fmt: skip
NUMBERS = [0, -1, 1, 3, 7, 2**62, -(2**63)]


@pytest.fixture(scope="module")
def good() -> tuple[Any, list[Any], dict[str, int]]:
    """A workload's program, and a candidate of it as records hold it."""
    task = at.SearchTask("matmul_add", (64, 64, 64), target="llvm")
    policy = at.SketchPolicy(task, at.RandomModel(), seed=0)
    population = policy.sample_initial_population(1)
    trace = encode_trace(policy.space.func, policy.space.variants[population.variant[0]].trace)
    decisions = dict(zip(population.names, map(int, population.values[0]), strict=True))
    return task.prim_func, trace, decisions


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside."""
    if path:
        yield path
    if isinstance(value, list | dict):
        for key in range(len(value)) if isinstance(value, list) else value:
            yield from places(value[key], (*path, key))


def damage(trace: list[Any], decisions: dict[str, int], rng: random.Random) -> None:
    """Changes one thing."""
    match rng.randrange(8):
        case 0:
            decisions[rng.choice(sorted(decisions))] = rng.choice(NUMBERS)
        case 1:
            trace.insert(rng.randrange(len(trace)), rng.choice(trace + VALUES))
        case 2:
            del trace[rng.randrange(len(trace))]
        case _:
            *path, last = rng.choice(list(places(trace)))
            inner: Any = trace
            for key in path:
                inner = inner[key]
            inner[last] = rng.choice(VALUES)


@pytest.mark.parametrize("count", [100, pytest.param(2500, marks=pytest.mark.long)])
def test_a_damaged_trace_is_refused_or_replayed(good, count):
    func, trace, decisions = good
    refused = 0
    for seed in range(count):
        rng = random.Random(seed)
        bad, numbers = json.loads(json.dumps(trace)), dict(decisions)
        for _ in range(rng.randrange(1, 3)):
            damage(bad, numbers, rng)
        record = Record(
            job_id="1", kind="trial", round=0, slot=0, workload_key="w", target="llvm", device="d",
            status="ok", seconds=1.0, trace=bad, decisions=numbers, program_hash="",
        )  # fmt: skip
        try:
            schedule_of(func, record)
        except AutoschedError as e:
            refused += 1
            assert str(e)  # noqa: PT017 (either outcome is right)
    assert count / 2 < refused < count
