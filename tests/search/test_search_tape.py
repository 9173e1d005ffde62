"""Tapes: what is recorded runs as NumPy would, and tells of rows that break what it relied on."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.search.evaluate import Evaluator, evaluate_columns
from autosched.search.recorder import NotRecordable
from autosched.search.tape import record
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.tir.affine import always, ceildiv, imax, imin, sometimes
from autosched.workloads import prim_func_of
from cost_model.evaluation import evaluator_of

Columns = Mapping[str, Any]
BOUNDS = {"a": (1.0, 100.0), "b": (1.0, 100.0)}


def draw(n: int, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return {k: rng.integers(1, 101, n) for k in BOUNDS}


def run(
    function: Callable[[Columns], Sequence[Any]],
    known: Columns,
    columns: Columns,
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(results, rows, kept) of the tape recorded on `known`, run on `columns`."""
    tape = record(lambda c: (function(c), function(c)), known, BOUNDS)
    inputs = np.stack([columns[k] for k in known]).astype(np.float64)
    results = np.empty((1 + tape.results, inputs.shape[1]))
    rows = np.empty((inputs.shape[1], tape.width), dtype=np.float32)
    kept = tape.run(inputs, results, rows)
    return results[1:], rows, kept


BINARY: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x // imax(abs(y), 1),
    lambda x, y: x % imax(abs(y), 1),
    lambda x, y: ceildiv(x, imax(abs(y), 1)),
    imin,
    imax,
    lambda x, y: np.where(x < y, x, y * 2),
    lambda x, y: np.where((x >= y) | (x == 3), 1, y),
    lambda x, y: np.clip(x, 0, 50) - abs(y),
    lambda x, y: np.where(np.logical_not(x <= 7) & (y != 5), np.gcd(abs(x), 4096), y),
]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(BINARY) - 1), st.integers(0, 30), st.integers(0, 30)),
        min_size=1,
        max_size=14,
    ),
    st.sampled_from([1, 5, 127, 128, 129, 700]),
)
def test_random_programs_run_as_numpy_runs_them(steps: list[tuple[int, int, int]], n: int) -> None:
    """Integer programs over two columns and small constants, in blocks, tails and single rows."""

    def program(columns: Columns) -> list[Any]:
        values: list[Any] = [columns["a"], columns["b"], 0, 1, 2, 7]
        for op, x, y in steps:
            a, b = values[x % len(values)], values[y % len(values)]
            if isinstance(a, int) and isinstance(b, int):
                a = columns["a"]
            found = BINARY[op](a, b)
            values.append(np.clip(found, -(10**4), 10**4))
        return values[6:]

    columns = draw(n, 1)
    results, rows, kept = run(program, draw(20), columns)
    expected = [np.broadcast_to(x, (n,)).astype(np.float64) for x in program(columns)]
    assert kept.all()
    np.testing.assert_array_equal(results, np.stack(expected))
    np.testing.assert_array_equal(rows, np.stack(expected).T.astype(np.float32))


def test_what_held_for_all_is_checked_on_other_rows() -> None:
    def program(columns: Columns) -> list[Any]:
        exact = always(columns["a"] * 2 <= columns["b"])
        return [columns["b"] if exact else columns["a"]]

    known = {"a": np.array([1, 2]), "b": np.array([4, 8])}
    _, _, kept = run(program, known, {"a": np.array([1, 5, 2]), "b": np.array([2, 9, 9])})
    assert kept.tolist() == [True, False, True]


def test_what_held_for_none_is_checked_too_and_what_held_for_some_needs_no_check() -> None:
    def none(columns: Columns) -> list[Any]:
        return [0 if sometimes(columns["a"] > columns["b"]) else columns["a"]]

    def some(columns: Columns) -> list[Any]:
        return [0 if always(columns["a"] > columns["b"]) else columns["a"]]

    known = {"a": np.array([1, 2]), "b": np.array([4, 2])}
    other = {"a": np.array([1, 5]), "b": np.array([2, 4])}
    assert run(none, known, other)[2].tolist() == [True, False]
    mixed = {"a": np.array([1, 5]), "b": np.array([4, 2])}
    assert run(some, mixed, other)[2].all()


@pytest.mark.parametrize(
    "program",
    [
        lambda c: [c["a"][0]],
        lambda c: [np.sort(c["a"])],
        lambda c: [c["a"] + np.arange(4)],
        lambda c: [np.sin(c["a"])],
        lambda c: [c["a"][:, None] + 1],
        lambda c: [c["a"].max()],
        lambda c: [c["a"].reshape(2, 2) + 1],
    ],
)
def test_what_a_tape_cannot_repeat_is_refused(program: Callable[[Columns], list[Any]]) -> None:
    with pytest.raises((NotRecordable, TypeError)):
        record(lambda c: (program(c), []), draw(4), BOUNDS)


def test_rows_that_break_a_guard_have_the_variant_recorded_again() -> None:
    """A space recorded on one candidate, whose tiles divide: others get a wider tape."""
    target = Target("llvm -mcpu=znver4 -num-cores=2")
    space = generate_space(prim_func_of("matmul", (64, 64, 64)), target)
    population = space.sample(np.random.default_rng(3), 300, np.array([1]))
    factors = {"C.vi.1": 2, "C.vi.2": 2, "C.vi.3": 4, "C.vj.1": 1, "C.vj.2": 2, "C.vj.3": 16}
    values = {name: factors.get(name, 4) for name in space.variants[1].decision_names}
    divides = space.population([(1, values), (1, values)])

    def figures(analysis: Any) -> tuple[list[Any], list[Any]]:
        found = list(analysis.figures().values())
        return found, found

    evaluator = Evaluator(space, figures)
    evaluator._explore = lambda _: divides  # type: ignore[method-assign]
    parts = evaluator.parts(population)
    recordings = evaluator._recordings[1]
    assert recordings > 1
    assert sorted(np.concatenate([p.rows for p in parts]).tolist()) == list(range(300))
    columns = space.decisions(1, population, np.arange(300))
    ((rows, results, table),) = evaluate_columns(
        space.func, target, space.variants[1].trace, columns, 300, figures
    )
    for part in parts:
        np.testing.assert_array_equal(part.results, results[:, part.rows])
        np.testing.assert_array_equal(part.table, table[part.rows])
    assert rows.tolist() == list(range(300))
    again = evaluator.parts(population)
    assert evaluator._recordings[1] == recordings
    assert len(again) == 1


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("matmul", (1024, 1024, 1024)),
        ("conv2d", (28, 28, 32, 64, 3, 2, 1)),
        ("conv2d", (28, 28, 32, 64, 3, 1, 1, 1, 8)),
        ("softmax", (64, 100)),
        ("norm", (256, 256)),
    ],
)
def test_every_variant_of_the_usual_workloads_has_a_tape(name: str, args: tuple[int, ...]) -> None:
    """What is not recorded is still right, but a hundred times slower: nothing else would tell."""
    space = generate_space(prim_func_of(name, args), Target("llvm -mcpu=znver4 -num-cores=2"))
    evaluator = evaluator_of(space)
    without = [v.name for n, v in enumerate(space.variants) if evaluator._tape(n) is None]
    assert without == []


def test_a_forked_child_evaluates_with_threads_of_its_own() -> None:
    """Those of its parent do not survive: a child that waited for them would never end."""
    space = generate_space(prim_func_of("matmul", (64, 64, 64)), Target("llvm -num-cores=2"))
    evaluator = evaluator_of(space)
    population = space.sample(np.random.default_rng(0), 64)
    expected = evaluator.parts(population)
    assert len(expected) > 1  # one piece needs no threads
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which are the matter
        child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        status = 1
        try:
            found = evaluator.parts(population)
            pairs = zip(found, expected, strict=True)
            status = 0 if all(np.array_equal(a.results, b.results) for a, b in pairs) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
