"""transform_layout of parameters: callers pass them in the new layout."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched.errors import ScheduleError
from autosched.schedule import Schedule
from autosched.script import parse_func
from autosched.tir import interp
from autosched.tir.verify import verify


def test_arguments_in_another_layout() -> None:
    func = at.SearchTask(func="matmul", args=(8, 12, 10), target="llvm").prim_func
    sch = Schedule(func)
    sch.transform_layout("C", "B", lambda k, j: (j // 4, k, j % 4), parameters=True)
    sch.transform_layout("C", "C", lambda i, j: (j, i), parameters=True)
    assert [b.shape for b in sch.func.params] == [(8, 12), (3, 12, 4), (10, 8)]
    verify(sch.func)
    assert parse_func(sch.func.script()).same(sch.func)
    again = Schedule(func)
    again.replay(sch.trace)
    assert again.func.same(sch.func)
    rng = np.random.default_rng(0)
    a, b = rng.random((8, 12), np.float32), rng.random((12, 10), np.float32)
    panels = np.zeros((3, 12, 4), np.float32)
    for j in range(10):
        panels[j // 4, :, j % 4] = b[:, j]
    for run in (interp.run, lambda f, x: at.build(f, target="llvm")(*x)):
        out = np.zeros((10, 8), np.float32)
        run(sch.func, [a, panels, out])
        np.testing.assert_allclose(out, (a @ b).T, rtol=1e-5)


def test_what_callers_cannot_pass_is_refused() -> None:
    func = at.SearchTask(func="matmul", args=(8, 12, 10), target="llvm").prim_func
    for buffer, kwargs, message in (
        ("B", {}, "with parameters=True callers pass"),
        ("C", {"parameters": True}, "the layout pads C"),
        ("B", {"parameters": True, "pad_value": 0.0}, "callers write the padding"),
        ("B", {"parameters": 1}, "True or False"),
    ):
        with pytest.raises(ScheduleError, match=message):
            Schedule(func).transform_layout("C", buffer, [[1, 4], 0, [1, 1, 4]], **kwargs)
