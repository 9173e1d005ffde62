"""Integers of NumPy's, and of any type that is a whole number, stand wherever an int does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import ops, te
from autosched.errors import AutoschedError
from autosched.runtime.arrays import empty
from autosched.search.evolution import SearchParams
from autosched.tir.nodes import PrimFunc


class Whole:
    """A whole number of someone else's."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


MAKERS: list[Callable[[int], Any]] = [np.int64, np.uint8, np.array, Whole]


@pytest.mark.parametrize("n", MAKERS)
def test_options(n: Callable[[int], Any]) -> None:
    options = at.TuningOptions(
        num_measure_trials=n(8), early_stopping=n(4), num_measures_per_round=n(2), seed=n(3)
    )
    assert options == at.TuningOptions(
        num_measure_trials=8, early_stopping=4, num_measures_per_round=2, seed=3
    )
    assert all(type(x) is int for x in (options.num_measure_trials, options.seed))
    assert SearchParams(population=n(64)) == SearchParams(population=64)
    assert at.LocalBuilder(n_parallel=n(2)) == at.LocalBuilder(n_parallel=2)
    assert at.LocalRunner(repeat=n(5), threads=n(1)) == at.LocalRunner(repeat=5, threads=1)
    assert type(at.XGBModel(seed=n(3)).seed) is type(at.RandomModel(seed=n(3)).seed) is int
    assert type(at.LocalPool(seed=n(3)).seed) is int
    assert empty(n(4)).shape == empty((n(4),)).shape == (4,)


def test_seconds_and_shares_of_numpy() -> None:
    assert at.TuningOptions(time_budget_s=np.float32(2)).time_budget_s == 2
    assert SearchParams(crossover=np.float64(0.25)).crossover == 0.25


@pytest.mark.parametrize("n", MAKERS)
def test_operators_and_tensors(n: Callable[[int], Any]) -> None:
    def text(made: list[te.Tensor]) -> str:
        return te.create_prim_func(made).script()

    assert text(ops.matmul(n(200), L=n(200), M=n(8))) == text(ops.matmul(200, 200, 8))
    assert text(ops.conv1d(n(200), 4, 4, n(3), n(1), n(100))) == text(
        ops.conv1d(200, 4, 4, 3, 1, 100)
    )
    a = te.placeholder(n(200), name="A")
    k = te.reduce_axis((n(0), n(200)), name="k")
    out = te.compute((n(2),), lambda i: te.sum(a[k], axis=k), name="out")
    assert a.shape == (200,)
    assert type(k.extent) is type(out.shape[0]) is int


def _program() -> PrimFunc:
    a = te.placeholder((16, 16), name="A")
    b = te.compute((16, 16), lambda i, j: a[i, j] + 1.0, name="B")
    c = te.compute((16, 16), lambda i, j: b[i, j] * 2.0, name="C")
    return te.create_prim_func([a, c])


def _scheduled(n: Callable[[int], Any]) -> at.Schedule:
    sch = at.Schedule(_program())
    b, c = sch.get_block("B"), sch.get_block("C")
    sch.transform_layout(b, ("write", n(0)), [[n(0), n(4)], n(1), [n(0), n(1), n(4)]])
    sch.storage_align(b, n(0), n(0), n(16), n(4))
    sch.set_scope(b, n(0), "local")
    sch.cache_read(c, n(0), "local")
    sch.cache_write(c, n(0), "local")
    outer, _ = sch.split(sch.get_loops(c)[0], factors=[None, n(4)])
    sch.parallel(outer)
    sch.annotate(outer, "chunk", n(2))
    return sch


@pytest.mark.parametrize("n", [np.int64, np.uint8, np.array])
def test_steps_of_a_schedule(n: Callable[[int], Any]) -> None:
    assert _scheduled(n).trace.to_json() == _scheduled(int).trace.to_json()
    assert _scheduled(n).func.script() == _scheduled(int).func.script()


def test_what_is_no_integer_is_refused_with_its_name() -> None:
    bad: list[tuple[str, Callable[[], object]]] = [
        ("seed", lambda: at.TuningOptions(seed=np.float64(3))),  # type: ignore[arg-type]
        ("num_measure_trials", lambda: at.TuningOptions(num_measure_trials=None)),  # type: ignore[arg-type]
        ("num_measure_trials", lambda: at.TuningOptions(num_measure_trials=np.bool_(True))),  # type: ignore[arg-type]
        ("finalists", lambda: at.TuningOptions(finalists=np.array([1, 2]))),  # type: ignore[arg-type]
        ("n_parallel", lambda: at.LocalBuilder(n_parallel=2.5)),  # type: ignore[arg-type]
        ("repeat", lambda: at.LocalRunner(repeat=True)),
        ("N", lambda: ops.matmul(np.float32(8), 8, 8)),  # type: ignore[arg-type]
        ("dimension 0", lambda: te.placeholder((np.bool_(True),), name="A")),
        ("end of reduction axis k", lambda: te.reduce_axis((0, "n"), name="k")),  # type: ignore[arg-type]
        ("seed", lambda: at.RandomModel(seed="3")),  # type: ignore[arg-type]
    ]
    for name, call in bad:
        with pytest.raises(AutoschedError, match=f"^(number of )?{name} "):
            call()
