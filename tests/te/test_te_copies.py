"""Copies and pickles of tensors, schedules and built functions."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.errors import ScheduleError


def tensors() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A = te.placeholder((8, 4), name="A")
    B = te.compute((8, 4), lambda i, j: A[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 4), "k")
    attrs = {"layout_free_placeholders": [A]}
    C = te.compute((8,), lambda i: te.sum(B[i, k], axis=k), name="C", attrs=attrs)
    return A, B, C


def recurrence() -> te.Tensor:
    X, S = te.placeholder((6, 4), name="X"), te.placeholder((6, 4), name="S")
    first = te.compute((1, 4), lambda _, i: X[0, i], name="first")
    step = te.compute((6, 4), lambda t, i: S[t - 1, i] + X[t, i], name="step")
    found: te.Tensor = te.scan(first, step, S, inputs=X, name="out")  # one tensor, not in a list
    assert found.op.inputs == (X,)  # type: ignore[union-attr]
    return found


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_what_is_told_by_identity_is_its_own_copy(how: Any) -> None:
    A, B, C = tensors()
    for one in (A, B, C.op, recurrence().op, C.op.reduce_axis[0], B[0, 0] + 1.0, te.var("n")):
        assert how(one) is one


def test_a_pickled_tensor_is_the_same_computation() -> None:
    A, B, C = tensors()
    a, b, c = pickle.loads(pickle.dumps((A, B, C)))
    assert all(t.op.output(0) is t for t in (a, b, c))
    assert c is not C
    assert b.op.input_tensors == [a]
    assert c.op.attrs["layout_free_placeholders"] == [a]
    assert te.create_prim_func([a, c]).same(te.create_prim_func([A, C]))
    out = recurrence()
    again = pickle.loads(pickle.dumps(out))
    func = te.create_prim_func([out.op.inputs[0], out])  # type: ignore[union-attr]
    assert te.create_prim_func([again.op.inputs[0], again]).same(func)


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_a_copied_stage_schedule_goes_its_own_way(how: Any) -> None:
    A, B, C = tensors()
    s = te.create_schedule(C.op)
    outer, _ = s[B].split(B.op.axis[0], 2)
    other = how(s)
    other[B].parallel(outer)
    other[C].split(C.op.axis[0], 4)
    assert "T.parallel" in str(at.lower(other, [A, C]))
    assert "T.parallel" not in str(at.lower(s, [A, C]))
    assert len(s[C].leaf_iter_vars) == 2
    with pytest.raises(ScheduleError, match="cannot be copied alone"):
        copy.copy(s[B])


def test_a_pickled_stage_schedule_does_the_same() -> None:
    A, B, C = tensors()
    s = te.create_schedule(C.op)
    s[B].parallel(s[B].split(B.op.axis[0], 2)[0])
    s[C].unroll(C.op.reduce_axis[0])
    again, a, c = pickle.loads(pickle.dumps((s, A, C)))
    assert str(at.lower(again, [a, c])) == str(at.lower(s, [A, C]))


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy])
def test_a_copied_schedule_goes_its_own_way(how: Any) -> None:
    A, _, C = tensors()
    sch = at.Schedule(te.create_prim_func([A, C]))
    b = sch.get_block("B")
    other = how(sch)
    other.parallel(other.get_loops(b)[0])
    assert len(sch.trace) == 1
    assert "T.parallel" not in sch.func.script()
    assert pickle.loads(pickle.dumps(other)).func.same(other.func)


def test_a_built_function_is_linked_anew() -> None:
    A, _, C = tensors()
    built = at.build(te.create_prim_func([A, C]), target="llvm")
    a = np.ones((8, 4), "float32")
    for other in (pickle.loads(pickle.dumps(built)), copy.deepcopy(built), copy.copy(built)):
        c = np.zeros(8, "float32")
        other(a, c)
        np.testing.assert_array_equal(c, 8)
