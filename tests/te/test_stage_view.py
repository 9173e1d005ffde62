"""Stage schedules: the replayed program means what NumPy means, interpreted and compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import guarded
import numpy as np
import pytest
from stage_cases import CASES, Case

from autosched import te
from autosched.schedule import Schedule
from autosched.tir import interp
from autosched.tir.equal import same_func
from autosched.tir.nodes import PrimFunc, inputs_of, loops_of, outputs_of
from autosched.tir.verify import verify


@pytest.fixture(autouse=True, scope="module")
def _child() -> Iterator[None]:
    yield
    guarded.child.stop()


def meaning(case: Case, func: PrimFunc, arrays: list[Any]) -> list[Any]:
    """What NumPy makes of the inputs among `arrays`: the outputs, in order."""
    inputs = inputs_of(func)
    given = [a for a, b in zip(arrays, func.params, strict=True) if b in inputs]
    found = case.meaning(*given)
    return list(found) if isinstance(found, tuple) else [np.asarray(found)]


@pytest.mark.parametrize("make", CASES, ids=lambda f: f.__name__)
def test_replayed_schedule_equals_numpy(make: Callable[[], Case]) -> None:
    case = make()
    sch = case.schedule.replay(case.args)
    func = sch.func
    verify(func)
    assert [b.name for b in func.params] == [t.name for t in case.args]
    arrays = guarded.arguments(func, seed=1)
    wanted = meaning(case, func, arrays)
    interpreted = [a.copy() for a in arrays]
    interp.run(func, interpreted)
    written = outputs_of(func)
    for found in (interpreted, guarded.compiled(sch, arrays)):
        outputs = [a for a, b in zip(found, func.params, strict=True) if b in written]
        for array, w in zip(outputs, wanted, strict=True):
            # Sums of small whole numbers are exact; only softmax is not made of them.
            rtol = 1e-5 if make.__name__ == "softmax" else 0.0
            guarded.same(array, w.astype(array.dtype), rtol=rtol)


@pytest.mark.parametrize("make", CASES, ids=lambda f: f.__name__)
def test_trace_of_a_replay_is_a_schedule_of_the_plain_program(make: Callable[[], Case]) -> None:
    case = make()
    sch = case.schedule.replay(case.args)
    names: dict[str, Any] = {}
    exec(sch.trace.as_python(), names)
    again = Schedule(te.create_prim_func(list(case.args)))
    names["apply"](again)
    assert same_func(again.func, sch.func)


def test_a_loop_takes_pragmas_after_its_kind() -> None:
    """As tutorials of the predecessor have it: parallel, then pragma."""
    a = te.placeholder((8, 8), name="A")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=4)
    s[b].parallel(outer)
    s[b].pragma(outer, "auto_unroll_max_step", 16)
    s[b].unroll(inner)
    s[b].pragma(inner, "parallel_stride_pattern")
    func = s.replay([a, b]).func
    loops = {x.var.name: x for x in loops_of(func)}
    assert [x.kind for x in loops.values()][:2] == ["parallel", "unrolled"]
    assert all(x.annotations for x in list(loops.values())[:2])
