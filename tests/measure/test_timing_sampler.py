"""The sampler: which candidate gets the next block, and what its blocks say together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autosched.codegen.artifact import Artifact, KernelInfo
from autosched.errors import DeviceError
from measure.local import runner
from measure.local.runner import Probes
from measure.local.slot import LocalRunner, Slot
from measure.process.child import Outcome, OutcomeKind
from measure.process.template_client import Template
from measure.status import MeasureResult, Status
from measure.timing.block import estimate
from measure.timing.plan import SEARCH, StopRule, TimingPlan, final
from measure.timing.sampler import BETWEEN_RUN_INFLATION, Noise, Sampler
from measure.timing.timing import Timing, combine

CODE = Artifact(b"", KernelInfo("kernel", (), parallel=True), "llvm")
FINAL = final(6)


def block(seconds: float, noise: float = 0.0) -> Timing:
    return replace(estimate([seconds, 1.1 * seconds], [1.0], 1.0, 2), noise=noise)


def run(
    rule: StopRule, times: dict[int, Callable[[int], Timing]], best: float = inf
) -> tuple[Sampler, list[int]]:
    """A race to its end; `times[n](k)` is block number k of candidate n. Also who was sampled."""
    sampler, order = Sampler(rule, best), []
    for n, taken in times.items():
        sampler.add(n, taken(0))
    counts = dict.fromkeys(times, 1)
    while (n := sampler.next()) is not None:
        sampler.add(n, times[n](counts[n]))
        counts[n] += 1
        order.append(n)
    return sampler, order


def steady(seconds: float) -> Callable[[int], Timing]:
    return lambda k: block(seconds)


def test_sampler_confirms_what_is_near_the_best_and_nothing_else() -> None:
    _, order = run(SEARCH, {0: steady(1.0), 1: steady(1.09), 2: steady(1.2), 3: steady(9.0)})
    assert order == [0, 1]
    _, order = run(SEARCH, {0: steady(1.0), 1: steady(1.05)}, best=0.5)
    assert order == [], "the best of earlier rounds is what they are held against"


def test_sampler_wants_nothing_more_of_the_ended_though_the_best_turns_out_slower() -> None:
    sampler = Sampler(StopRule(margin=1.1, least=2, most=4))
    sampler.add(0, block(1.0, noise=0.5))
    sampler.add(1, block(1.2))
    assert sampler.is_settled(1)
    sampler.end(1)
    sampler.end(2)  # never had a block
    sampler.add(0, block(1.5))
    assert sampler.best_seconds == 1.2
    assert sampler.next() is None, "1 would be wanted again: 0 is not the best any more"


def test_sampler_gives_disturbed_candidates_another_block_where_it_matters() -> None:
    def late(k: int) -> Timing:
        return block(1.4, noise=0.5) if k == 0 else block(0.98)

    sampler, order = run(SEARCH, {0: steady(1.0), 1: late})
    assert order.count(1) == 2
    assert sampler.timing(1).seconds == pytest.approx(0.98)
    assert sampler.timing(1).noise == 0.0
    _, order = run(SEARCH, {0: steady(1.0), 1: lambda k: block(2.0, noise=5.0)})
    assert order == [0], "two threads on one core do not make it twice as slow"
    _, order = run(SEARCH, {0: lambda k: block(1.0, noise=0.9)})
    assert len(order) == SEARCH.most - 1, "a machine that is never undisturbed ends it as well"


def test_sampler_interleaves_the_final_contenders_and_drops_who_is_behind() -> None:
    times = {0: steady(1.0), 1: steady(1.02), 2: steady(1.2)}
    sampler, order = run(FINAL, times)
    assert order == [0, 1] * 5
    assert [len(sampler.timing(n).blocks) for n in times] == [6, 6, 1]
    _, order = run(FINAL, {0: steady(1.0), 1: steady(1.2)})
    assert order == [0, 0], "alone it only needs its own blocks"
    assert run(final(1), times)[1] == []


def test_sampler_believes_the_lower_quartile_of_undisturbed_blocks() -> None:
    found = combine([block(1.2), block(1.0), block(1.1), block(0.5, noise=0.3)])
    assert found.seconds == pytest.approx(1.05)
    assert found.blocks == (1.2, 1.0, 1.1, 0.5)
    assert (found.runs, len(found.samples), found.raw_seconds) == (8, 8, 0.5)
    assert found.error == pytest.approx(0.1 / 1.1 / 3**0.5)
    alone = combine([block(2.0, noise=0.4)])
    assert (alone.seconds, alone.noise, alone.error) == (2.0, 0.4, None)


def test_sampler_forgets_who_failed_and_keeps_who_ended() -> None:
    sampler = Sampler(SEARCH)
    for n, seconds in enumerate((1.0, 1.05, 1.5)):
        sampler.add(n, block(seconds))
    assert not sampler.is_settled(1)
    assert sampler.is_settled(2)
    sampler.drop(0)
    assert sampler.best_seconds == 1.05
    assert sampler.is_settled(0)
    sampler.end(1)
    assert (sampler.best_seconds, sampler.next()) == (1.05, None)


def test_sampler_ends_whatever_the_blocks_say() -> None:
    random = np.random.default_rng(0)
    for rule in (SEARCH, FINAL, final(1), StopRule(1.0, 1, 1), StopRule(9.0, 4, 4, compare=True)):
        for _ in range(50):
            seconds = random.lognormal(0, 0.3, (8, rule.most))
            noise = random.exponential(0.05, 8)
            blocks = [
                [block(float(s), float(d)) for s in row]
                for row, d in zip(seconds, noise, strict=True)
            ]
            times = {n: row.__getitem__ for n, row in enumerate(blocks)}
            sampler, order = run(rule, times)
            assert len(order) <= 8 * (rule.most - 1)
            assert all(sampler.is_settled(n) for n in times) or rule.compare


def test_noise_is_how_far_times_of_equal_programs_lie_apart() -> None:
    noise = Noise()
    assert noise.figure() == 0.0
    noise.note(combine([block(1.0)]))
    assert noise.figure() == 0.0, "one block says nothing"
    random = np.random.default_rng(0)
    for _ in range(64):
        noise.note(combine([block(1 + 0.01 * e) for e in random.standard_normal(5)]))
    apart = [abs(np.mean(a) - np.mean(b)) for a, b in 0.01 * random.standard_normal((1000, 2, 5))]
    expected = BETWEEN_RUN_INFLATION * np.quantile(apart, 0.9)
    assert noise.figure() == pytest.approx(expected, rel=0.3)


class Shared:
    """A runner child in which calls end as told; a crash ends the process."""

    def __init__(self, *kinds: OutcomeKind) -> None:
        self.kinds = list(kinds)
        self.pid: int | None = 1
        self.starts = 1

    def call(self, *args: Any, **options: Any) -> Outcome:
        if self.pid is None:
            self.pid, self.starts = 1, self.starts + 1
        kind = self.kinds.pop(0)
        if kind == "crash":
            self.pid = None
        reply = MeasureResult(Status.OK, timing=block(1.0)) if kind == "value" else None
        return Outcome(kind, reply, kind, wall_seconds=0.25)

    def kill(self) -> None:
        self.pid = None


VERIFIED = MeasureResult(Status.OK, timing=block(1.0), run_wall_seconds=1.0)


def job() -> Any:
    spec = SimpleNamespace(where=None, size=0, places=1)
    return SimpleNamespace(handling_seconds=0.0, spec=spec, fd=0)


@pytest.mark.parametrize(
    ("kinds", "used", "status", "timed", "noted", "left"),
    [
        (("crash", "value"), True, Status.OK, True, "", 0),
        (("memory", "value"), True, Status.OK, True, "", 0),
        (("crash", "crash"), True, Status.RUNTIME_ERROR, False, "when it ran again:\ncrash", 0),
        (("crash", "value"), False, Status.OK, True, "ended in runtime_error: crash", 0),
        (("error", "error"), False, Status.RUNTIME_ERROR, False, "when it ran again:\nerror", 0),
        (("memory", "memory"), True, Status.OK, False, "ended in out_of_memory: memory", 0),
        (("timeout", "value"), True, Status.OK, False, "ended in run_timeout: timeout", 1),
        (("lost", "value"), True, Status.OK, False, "", 1),
        (("crash", "lost"), False, Status.OK, False, "ended in runtime_error: crash", 0),
    ],
)
def test_blocks_that_may_fail_for_others_are_believed_of_a_fresh_process(
    kinds: tuple[OutcomeKind, ...],
    used: bool,
    status: Status,
    timed: bool,
    noted: str,
    left: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slot = Slot(Template([]), LocalRunner(lock_folder=tmp_path), 1, lambda: CODE)
    child = Shared(*kinds)
    monkeypatch.setattr(slot, "child", child)
    slot._probes = Probes(CODE, 1, {1: 1.0})
    slot._used_start = child.starts if used else 0
    made = slot.sample(job(), CODE, VERIFIED, 1.0)
    assert made.run_wall_seconds == 1.0 + 0.25 * (len(kinds) - left)
    assert len(child.kinds) == left
    assert (made.status, made.timing is not None) == (status, timed)
    assert noted in made.error
    assert bool(noted) == bool(made.error)
    assert not (slot._is_fresh and child.pid is not None), "a candidate has run there"


@pytest.mark.parametrize("lost", [True, False])
def test_blocks_on_a_device_that_goes_away_are_not_the_candidates_fault(
    lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(where: object) -> object:
        raise DeviceError("the GPU fell off the bus", lost)

    monkeypatch.setattr(runner, "_runner", gone)
    probes = Probes(CODE, 1, {1: 1.0})
    slot = Slot(Template([]), LocalRunner(lock_folder=tmp_path), 1, lambda: CODE)
    slot._probes = probes
    child = Shared("value")
    reply = runner.Sample(job().spec, CODE, 1.0, TimingPlan(), probes).answer([0])
    monkeypatch.setattr(child, "call", lambda *args, **options: Outcome("value", reply))
    monkeypatch.setattr(slot, "child", child)
    made = slot.sample(job(), CODE, VERIFIED, 1.0)
    assert made.status is (Status.OK if lost else Status.RUNTIME_ERROR)
    assert made.timing is None
