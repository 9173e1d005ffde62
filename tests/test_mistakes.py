"""Ordinary mistakes raise the project's errors, which say what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.checks import path_text
from autosched.errors import ArgumentError, ScheduleError, TensorExprError, TuningError
from autosched.tir.nodes import PrimFunc

wrong: Any = at
"""The package, without types: what a checker would find."""
A = te.placeholder((4, 4), name="A")


def program() -> PrimFunc:
    B = te.compute((4, 4), lambda i, j: A[i, j] + 1.0, name="B")
    C = te.compute((4, 4), lambda i, j: B[i, j] * 2.0, name="C")
    return te.create_prim_func([A, C])


def split_by_an_int() -> None:
    sch: Any = at.Schedule(program())
    sch.split(sch.get_loops(sch.get_block("B"))[0], 4)


def an_index_map_that_raises() -> None:
    sch = at.Schedule(program())
    sch.transform_layout(sch.get_block("B"), ("write", 0), lambda i, j: (1 // 0, i, j))


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (split_by_an_int, r"split: expected a list of factors, such as \[None, 4\], found 4"),
        (lambda: wrong.Schedule(program(), 3), "decisions of a Schedule is 3; expected a mapping"),
        (lambda: wrong.IRModule({"a": 3}), "expected a PrimFunc for 'a', found int"),
        (lambda: wrong.IRModule([program()]), r"expected a mapping .* IRModule.of\(f, g\)"),
        (lambda: wrong.IRModule.of(3), "expected functions, found int"),
        (lambda: at.IRModule({"class": program()}), "no function can be named 'class'"),
        (lambda: at.IRModule({"b c": program()}), "no function can be named 'b c'"),
        (lambda: wrong.IRModule({3: program()}), "no function can be named 3"),
        (lambda: wrong.passes.Sequential([3]), "expected a list of passes, found 3"),
        (lambda: wrong.passes.Sequential(3), "expected a list of passes, found 3"),
        (an_index_map_that_raises, "the index map raised ZeroDivisionError on 2 indices"),
    ],
)
def test_schedules_modules_and_passes(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        mistake()


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (lambda i, j: np.exp(A[i, j]), "np.exp does not take an expression; use te.exp"),
        (lambda i, j: np.arctan(A[i, j]), "np.arctan does not take an expression; use te.atan"),
        (lambda i, j: np.cbrt(A[i, j]), "use the functions of autosched.te"),
    ],
)
def test_functions_of_numpy(element: Callable[..., Any], message: str) -> None:
    with pytest.raises(TensorExprError, match=message):
        te.compute((4, 4), element, name="D")


def test_a_scalar_of_numpy_may_stand_at_the_left() -> None:
    D = te.compute((4, 4), lambda i, j: np.float64(2) * A[i, j] + np.float32(1), name="D")
    a, d = np.ones((4, 4), "float32"), np.zeros((4, 4), "float32")
    at.build(te.create_prim_func([A, D]), target="llvm")(a, d)
    np.testing.assert_array_equal(d, 3)


def test_same_compares_structure() -> None:
    one, two = program(), program()
    assert one != two
    assert one.same(two)
    renamed = at.IRModule({"first": one, "second": two})
    assert renamed.same(at.IRModule({"second": one, "first": two}))
    assert not renamed.same(at.IRModule({"first": one}))
    sch = at.Schedule(one)
    sch.split(sch.get_loops(sch.get_block("B"))[0], [None, 2])
    assert not sch.func.same(two)


def test_loops_of_two_nests_are_named_with_their_blocks() -> None:
    sch = at.Schedule(program())
    (b, *_), (c, *_) = (sch.get_loops(sch.get_block(n)) for n in "BC")
    with pytest.raises(ScheduleError, match=r"loop i \(around [BC]\) is not around loop i \("):
        sch.fuse(b, c)


def recurrence() -> Any:
    """s[t] = s[t - 1] + the sum of row t, as a schedule with the loops of its blocks."""
    k = te.reduce_axis((0, 4), name="k")
    S = te.placeholder((4, 4), name="S")
    first = te.compute((1, 4), lambda _, i: A[0, i], name="first")
    g = te.compute((4, 4), lambda t, i: te.sum(A[t, k] * S[t - 1, i], axis=k), name="g")
    step = te.compute((4, 4), lambda t, i: g[t, i] + A[t, i], name="step")
    return at.Schedule(te.create_prim_func([A, te.scan(first, step, S, name="out")]))


def test_a_stage_of_a_recurrence_stays_one_block() -> None:
    sch = recurrence()
    g = sch.get_block("g")
    t, _, k = sch.get_loops(g)
    with pytest.raises(ScheduleError, match="stage of a recurrence, which stays one block"):
        sch.cache_write(g, 0, "local")
    with pytest.raises(ScheduleError, match="stage of a recurrence, which stays one block"):
        sch.rfactor(k)
    with pytest.raises(ScheduleError, match="stage of a recurrence, which stays one block"):
        sch.decompose_reduction(g, k)
    with pytest.raises(ScheduleError, match=r"cannot be bound to a thread: .* bound to a thread"):
        sch.bind(t, "threadIdx.x")


@pytest.mark.parametrize("identity", [0, 1, -100, 2, 1e6])
def test_an_identity_that_is_neutral_for_some_numbers_only_is_refused(identity: float) -> None:
    largest = te.comm_reducer(lambda x, y: te.if_then_else(x > y, x, y), lambda t: identity)
    k = te.reduce_axis((0, 4), name="k")
    with pytest.raises(TensorExprError, match="identity of reducer reduce is not neutral"):
        largest(A[0, k], axis=k)


def test_an_identity_of_integers_is_neutral_to_the_largest() -> None:
    k, n = te.reduce_axis((0, 4), name="k"), te.placeholder((4,), "int32", name="n")
    for value, good in ((1 << 20, False), (2**31 - 1, True)):
        least = te.comm_reducer(
            lambda x, y: te.if_then_else(x < y, x, y), lambda t, v=value: te.const(v, t)
        )
        if good:
            least(n[k], axis=k)
        else:
            with pytest.raises(TensorExprError, match="is not neutral: combining 1048576 with"):
                least(n[k], axis=k)


def test_identities_of_partial_combinations_are_neutral() -> None:
    k = te.reduce_axis((0, 4), name="k")
    lowest = te.min_value("float32")
    first = te.comm_reducer(
        lambda x, y: (te.if_then_else(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
        lambda i, v: (te.const(-1, i), te.min_value(v)),
    )
    added = te.comm_reducer(  # mean and count: a mean of no values is 0
        lambda x, y: (
            te.select(x[1] + y[1] == 0.0, 0.0, (x[0] * x[1] + y[0] * y[1]) / (x[1] + y[1])),
            x[1] + y[1],
        ),
        lambda a, b: (te.const(0, a), te.const(0, b)),
    )
    logs = te.comm_reducer(lambda x, y: te.log(te.exp(x) + te.exp(y)), lambda t: lowest)
    for made in (first((k, A[0, k]), k), added((A[0, k], A[1, k]), k), (logs(A[0, k], k),)):
        assert made[0].dtype in ("int64", "float32")


def test_an_identity_that_combines_with_itself_to_nan_is_refused() -> None:
    k = te.reduce_axis((0, 4), name="k")
    mean = te.comm_reducer(  # 0 / 0 where both counts are 0, as in lanes beyond the last element
        lambda x, y: ((x[0] * x[1] + y[0] * y[1]) / (x[1] + y[1]), x[1] + y[1]),
        lambda a, b: (te.const(0, a), te.const(0, b)),
        name="mean",
    )
    with pytest.raises(TensorExprError, match=r"mean combines its identity \(0.0, 0.0\) with its"):
        mean((A[0, k], A[1, k]), axis=k)


def test_errors_of_calls_name_the_function() -> None:
    B = te.compute((4, 4), lambda i, j: A[i, j] + 1.0, name="B")
    built = at.build(te.create_prim_func([A, B], name="plus_one"), target="llvm")
    for arrays in ((np.zeros(3),), (np.zeros((4, 4)), np.zeros((4, 4)))):
        with pytest.raises(ArgumentError, match="plus_one") as found:
            built(*arrays)
        assert "autosched_kernel" not in str(found.value)


def test_buffers_are_given_by_name_where_they_are_numbered() -> None:
    C = te.compute((4, 4), lambda i, j: A[i, j] * 2.0, name="C")
    func = te.create_prim_func([A, te.compute((4, 4), lambda i, j: C[i, j] + 1.0, name="D")])
    texts = []
    for buffer in ("C", 0):
        sch: Any = at.Schedule(func)
        c = sch.get_block("C")
        sch.storage_align(c, buffer, 0, 32, 8)
        sch.cache_write(c, buffer, "local")
        sch.set_scope(c, "C_local" if buffer else 0, "shared")
        texts.append(sch.func.script())
        again = at.Schedule(func)
        again.replay(sch.trace)
        assert again.func.script() == texts[-1]
        with pytest.raises(ScheduleError, match="the block writes C_local; expected one of these"):
            sch.set_scope(c, "nothing", "local")
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["a\udcff.onnx"])
def test_a_file_name_that_is_not_utf8_is_told_as_such(name: str) -> None:
    with pytest.raises(TuningError, match="file names that are not UTF-8 are not supported"):
        path_text("the model", name, TuningError)
