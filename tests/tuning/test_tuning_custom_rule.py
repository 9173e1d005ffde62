"""Sketch rules of the user's own, tuned from end to end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tuning_doubles import FakePool, Recorder

import autosched as at
from autosched.errors import TuningError
from autosched.schedule import Decision
from autosched.sketch.decisions import ChoiceSpec
from autosched.sketch.state import State
from records import TRIAL

Rule = at.PreloadCustomSketchRule
TARGET = "llvm -num-cores=2"


def is_product(policy: at.SketchPolicy, state: State, block: str) -> Any:
    assert isinstance(policy, at.SketchPolicy)
    return Rule.APPLY_AND_SKIP_REST if block == "C" else Rule.PASS


def strips(policy: at.SketchPolicy, state: State, block: str) -> list[State]:
    """Rows in parallel, strips of columns in vectors, the reduction between them."""
    schedule = state.fork()
    spec = ChoiceSpec(block, f"{block}.strip", (8, 16, 24))
    state.declare(schedule, (spec,))
    rv = schedule.get_block(block)
    i, j, k = schedule.get_loops(rv)
    outer, strip = schedule.split(j, [None, Decision(spec.name)])
    schedule.reorder(i, outer, k, strip)
    schedule.parallel(i)
    schedule.vectorize(strip)
    return [state.advance(schedule, handled=(block,), specs=(spec,))]


def policy_of(
    *rules: at.PreloadCustomSketchRule, n: int = 32, name: str = "matmul"
) -> at.SketchPolicy:
    task = at.SearchTask(name, (n, n + 1, n + 2), target=TARGET)
    return at.SketchPolicy(task, at.RandomModel(), init_search_callbacks=rules)


def test_a_rule_that_skips_the_rest_is_the_whole_space() -> None:
    policy = policy_of(Rule(is_product, strips, "strips"))
    (sketch,) = policy.generate_sketches()
    assert sketch.name == "C.strips"
    assert sketch.decision_names == ("C.strip",)
    assert len(policy.task.space.variants) > 1  # the task itself is left as it was


def test_a_rule_that_applies_stands_beside_the_others() -> None:
    def also(policy: at.SketchPolicy, state: State, block: str) -> Any:
        return 1 if block == "C" else 0  # the predecessor's numbers

    policy = policy_of(Rule(also, strips, "strips"))
    built_in = [v.name for v in policy.task.space.variants]
    assert [v.name for v in policy.generate_sketches()] == ["C.strips", *built_in]


def test_the_built_in_rules_finish_what_a_rule_leaves() -> None:
    def scoped(policy: at.SketchPolicy, state: State, block: str) -> list[State]:
        schedule = state.fork()
        schedule.annotate(schedule.get_block(block), "streaming", True)
        return [state.advance(schedule)]

    policy = policy_of(Rule(is_product, scoped, "mark"))
    built_in = [v.name for v in policy.task.space.variants]
    assert [v.name for v in policy.generate_sketches()] == [f"C.mark+{n}" for n in built_in]


def test_a_rule_comes_before_inlining() -> None:
    seen: list[str] = []

    def look(policy: at.SketchPolicy, state: State, block: str) -> Any:
        seen.append(block)
        return Rule.PASS

    task = at.SearchTask("conv2d", (8, 8, 4, 8, 3, 1, 1), target=TARGET)
    at.SketchPolicy(task, init_search_callbacks=[Rule(look, strips)]).generate_sketches()
    assert seen == [info.name for info in reversed(task.compute_dag.blocks)]


def test_tuning_with_a_rule_measures_its_candidates_and_resumes_from_them(
    tmp_path: Path,
) -> None:
    recorder, log = Recorder(), tmp_path / "log.jsonl"
    policy = policy_of(Rule(is_product, strips, "strips"))
    options = at.TuningOptions(
        num_measure_trials=8,
        pool=FakePool(),
        measure_callbacks=[recorder, at.RecordToFile(log)],
        verbose=0,
    )
    result = policy.task.tune(options, policy)
    trials = [r for r in recorder.records if r.kind == TRIAL]
    assert sorted(r.decisions["C.strip"] for r in trials) == [8, 16, 24]  # all there are
    assert {r.status for r in trials} == {"ok"}
    assert result.trials == 3
    loaded = at.SketchPolicy(
        policy.task,
        at.RandomModel(),
        init_search_callbacks=[Rule(is_product, strips, "strips"), at.PreloadMeasuredStates(log)],
    )
    assert [m.values for m in loaded.preloaded()] == [dict(r.decisions) for r in trials]
    assert loaded.evolutionary_search() == []


@pytest.mark.parametrize("strip", [8, 16, 24])
def test_a_custom_sketch_computes_the_product(strip: int) -> None:
    policy = policy_of(Rule(is_product, strips), n=13)
    built = at.build(policy.space.schedule(0, {"C.strip": strip}), target=TARGET)
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((13, 14), (14, 15)))
    out = np.full((13, 15), np.nan, dtype=np.float32)
    built(a, b, out)
    np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)


def yes(policy: at.SketchPolicy, state: State, block: str) -> Any:
    return Rule.APPLY


BAD: list[tuple[Callable[..., Any], Callable[..., Any], str]] = [
    (lambda p, s, b: 3, strips, "condition of the sketch rule odd returned 3 for block C"),
    (lambda p, s, b: None, strips, "returned None.*expected PASS, APPLY or APPLY_AND_SKIP_REST"),
    (yes, lambda p, s, b: None, "sketch rule odd returned None for block C; expected a list"),
    (yes, lambda p, s, b: [[s, 1]], re.escape("such as [state.advance(schedule, handled=")),
    (lambda p, s, b: Rule.APPLY_AND_SKIP_REST, lambda p, s, b: [], "leave no schedule for main"),
]


@pytest.mark.parametrize(("condition", "apply", "text"), BAD, ids=[t for *_, t in BAD])
def test_what_a_rule_may_not_return(
    condition: Callable[..., Any], apply: Callable[..., Any], text: str
) -> None:
    with pytest.raises(TuningError, match=text):
        policy_of(Rule(condition, apply, "odd")).generate_sketches()


def test_a_rule_that_raises_is_named() -> None:
    def refuses(policy: at.SketchPolicy, state: State, block: str) -> list[State]:
        schedule = state.fork()
        loop = schedule.get_loops(schedule.get_block(block))[0]
        schedule.vectorize(loop)
        schedule.parallel(loop)
        return [state.advance(schedule, handled=(block,))]

    def forgets(policy: at.SketchPolicy, state: State, block: str) -> list[State]:
        return [replace(s, specs=()) for s in strips(policy, state, block)]

    with pytest.raises(TuningError, match=r"has the decisions C.strip, and no specification"):
        policy_of(Rule(is_product, forgets, "odd")).generate_sketches()
    for rule, text in (
        (Rule(lambda p, s, b: {}[b], strips, "odd"), "sketch rule odd raised KeyError for block C"),
        (
            Rule(is_product, refuses, "odd"),
            "raised ScheduleError for block C: vectorize: loop i has",
        ),
    ):
        with pytest.raises(TuningError, match=text):
            policy_of(rule).generate_sketches()
    with pytest.raises(TuningError, match="the apply function of the sketch rule odd is 4"):
        Rule(is_product, 4, "odd")  # type: ignore[arg-type]


def test_a_rule_that_applies_to_its_own_results_comes_to_an_end() -> None:
    def again(policy: at.SketchPolicy, state: State, block: str) -> list[State]:
        schedule = state.fork()
        schedule.cache_write(schedule.get_block(block), 0, "global")
        return [state.advance(schedule)]

    with pytest.raises(TuningError, match=r"have made 37 blocks and do not come to an end; the"):
        policy_of(Rule(is_product, again, "again")).generate_sketches()
