"""Every misuse of tensor expressions: the message names the operator and the axis."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autosched import te
from autosched.errors import TensorExprError
from autosched.tir.expr import Var

N = 4


def inputs() -> tuple[te.Tensor, te.Tensor, te.IterVar]:
    A = te.placeholder((N, N), name="A")
    B = te.placeholder((N,), name="B", dtype="int32")
    return A, B, te.reduce_axis((0, N), name="k")


def one(f: Callable[..., Any], shape: Any = (N,), **options: Any) -> Any:
    return te.compute(shape, f, name="C", **options)


def foreign_axis() -> Any:
    A, _, _ = inputs()
    kept: list[Any] = []

    def first(i: Any) -> Any:
        kept.append(i)
        return A[i, 0]

    te.compute((N,), first, name="first")
    return one(lambda j: A[kept[0], j])


def shared_name() -> Any:
    A, _, k = inputs()
    other = te.reduce_axis((0, N), name="k")
    return one(lambda i: te.sum(A[i, k] * A[i, other], axis=[k, other]))


def half_a_tuple() -> Any:
    A, _, k = inputs()
    both = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1]), lambda a, b: (te.const(0, a), te.const(0, b))
    )
    return one(lambda i: both((A[i, k], A[i, k]), axis=k)[0])


def reducer(combine: Any, identity: Any, name: str = "mine") -> Any:
    A, _, k = inputs()
    return one(lambda i: te.comm_reducer(combine, identity, name)(A[i, k], axis=k))


A, B, k = inputs()
MISUSES: dict[str, tuple[Callable[[], Any], str]] = {
    "rank of an access": (
        lambda: one(lambda i: A[i]),
        "in compute C: A has rank 2 (shape (4, 4)); found 1 indices",
    ),
    "rank of a call": (lambda: A(0, 1, 2), "A has rank 2 (shape (4, 4)); found 3 indices"),
    "tensor without indices": (
        lambda: one(lambda i: A + B[i]),
        "A has rank 2 (shape (4, 4)) and is used without indices; write A[i, j]",
    ),
    "tensor returned": (
        lambda: one(lambda i: A),
        "the function of compute C returned the tensor A; index it",
    ),
    "nothing returned": (lambda: one(lambda i: None), "the function of compute C returned None"),
    "empty tuple": (lambda: one(lambda i: ()), "compute C returned an empty tuple"),
    "index out of range": (lambda: A[0, 4], "index 1 of A is 4; its extent is 4"),
    "negative index": (lambda: A[-1, 0], "index 0 of A is -1"),
    "float index": (lambda: A[0, 1.5], "index 1 of A is T.float32(1.5) of dtype float32"),
    "bool index": (lambda: one(lambda i: A[i, i < 2]), "index 1 of A is i < 2 of dtype bool"),
    "slice": (lambda: A[0, :], "index 1 of A is slice(None, None, None)"),
    "iteration": (lambda: list(A), "A is a tensor and cannot be iterated over"),
    "whole tensor in an element": (
        lambda: one(lambda i: A + 1),
        "the function of compute C returned the tensor add; index it",
    ),
    "shapes": (
        lambda: A + te.placeholder((3,), name="D"),
        "shapes do not fit together: A (4, 4), D (3,); expected equal extents, or 1",
    ),
    "dtypes": (
        lambda: te.placeholder((), "uint64")() + B[0],
        "operands of + have different dtypes: uint64, int32, and no integer dtype holds both",
    ),
    "power of an integer": (lambda: B[0] ** B[1], "expected a constant exponent from 0 to 64"),
    "init of another dtype": (
        lambda: one(lambda i: te.sum(A[i, k], axis=k, init=B[i].astype("float64"))),
        'init of sum is T.cast(B[i], "float64") of dtype float64; expected float32',
    ),
    "init over the reduced axis": (
        lambda: one(lambda i: te.sum(A[i, k], axis=k, init=A[i, k])),
        "init of sum depends on the reduced axis k",
    ),
    "reduction of bfloat16": (
        lambda: te.sum(te.placeholder((N,), "bfloat16")[k], axis=k),
        "sum reduces bfloat16, which loses a sum's small terms; reduce in float32",
    ),
    "division of ints": (lambda: one(lambda i: B[i] / 2), "in compute C: div is not defined on"),
    "function of ints": (lambda: te.exp(B[0]), "exp is not defined on int32"),
    "condition": (lambda: te.select(B[0], 1, 2), "condition of select has dtype int32"),
    "logic on ints": (lambda: te.all(B[0], B[1]), "operand of and has dtype int32"),
    "one condition": (lambda: te.any(B[0]), "has dtype int32; expected bool"),
    "no condition": (lambda: te.all(), "te.all needs at least one condition"),
    "python if": (
        lambda: one(lambda i: A[i, 0] if i < 2 else A[i, 1]),
        "in compute C: an expression has no truth value",
    ),
    "function of math": (
        lambda: one(lambda i: math.exp(A[i, 0])),
        "in compute C: must be real number, not TensorRead; indices and elements are expressions",
    ),
    "list as a table": (
        lambda: one(lambda i: A[i, 0] * [1.0, 2.0, 3.0, 4.0][i]),
        "a te.placeholder for a table",
    ),
    "array as a table": (
        lambda: one(lambda i: A[i, 0] * np.ones(4)[i]),
        "a te.placeholder for a table",
    ),
    "python if on equality": (
        lambda: one(lambda i: A[i, 0] if i == 0 else A[i, 1]),
        "in compute C: an expression has no truth value",
    ),
    "reduction in an expression": (
        lambda: one(lambda i: te.sum(A[i, k], axis=k) * 2),
        "compute C uses the reduction sum(A[i, k], axis=[k]) inside an expression",
    ),
    "reduction of a reduction": (
        lambda: one(lambda i: te.max(te.sum(A[i, k], axis=k), axis=te.reduce_axis((0, 2)))),
        "in compute C: max reduces sum(A[i, k], axis=[k]), which is a reduction",
    ),
    "axis not reduced": (
        lambda: one(lambda i: A[i, k]),
        "compute C uses reduction axis k without reducing it; its axes are (i)",
    ),
    "second axis not reduced": (
        lambda: one(lambda i: te.sum(A[k, te.reduce_axis((0, 2), name="m")], axis=k)),
        "compute C uses reduction axis m without reducing it; its axes are (i, k)",
    ),
    "axis of another compute": (foreign_axis, "compute C uses axis i of compute first"),
    "unknown variable": (
        lambda: one(lambda i: A[i, Var("n")]),
        "compute C uses the unknown axis n; its axes are (i)",
    ),
    "spatial axis reduced": (
        lambda: one(lambda i: te.sum(A[i, i], axis=i)),
        "axis i of sum is a spatial axis of C",
    ),
    "spatial axis in place": (
        lambda: one(lambda i: te.sum(A[i, i], i)),
        "axis i of sum is a spatial axis of C",
    ),
    "axis reduced twice": (
        lambda: one(lambda i: te.sum(A[i, k], axis=[k, k])),
        "sum reduces axis k twice",
    ),
    "no axis": (lambda: te.sum(A[0, 0], axis=[]), "sum has no axis to reduce"),
    "axis missing": (lambda: te.sum(A[0, 0]), "te.sum needs axis=..."),
    "axis is a number": (lambda: te.sum(A[0, 0], axis=1), "axis of sum is 1"),
    "two reduction axes of one name": (shared_name, "compute C has two axes named k"),
    "reduction axis named as a spatial one": (
        lambda: one(lambda k_: te.sum(A[k_, te_k_], axis=te_k_)),
        "compute C has two axes named k_",
    ),
    "number of parameters": (
        lambda: one(lambda i, j: A[i, j]),
        "compute C has rank 1 and its function takes 2 indices (i, j)",
    ),
    "keyword parameter": (lambda: one(lambda i, *, j: A[i, j]), "compute C needs keyword j"),
    "no function": (lambda: one(3), "compute C expects a function of the indices, found 3"),
    "varargs names": (
        lambda: one(lambda *i: A(*i), (N, N), varargs_names=["x"]),
        "compute C has 2 axes for *i and 1 varargs_names",
    ),
    "varargs names that clash": (
        lambda: one(lambda *i: A(*i), (N, N), varargs_names=["x", "x"]),
        "axes of compute C share a name: x, x",
    ),
    "extent 0": (lambda: one(lambda i: A[i, 0], (0,)), "dimension 0 of compute C is 0"),
    "fractional extent": (
        lambda: te.placeholder((4, 2.5), name="P"),
        "dimension 1 of placeholder P is 2.5; expected a positive int",
    ),
    "symbolic extent that may be 0": (
        lambda: te.placeholder((te.var("n") - 1,), name="P"),
        "dimension 0 of placeholder P is n - 1, which is not positive for all sizes from 1 up",
    ),
    "extent of no size": (
        lambda: te.placeholder((te.max(te.var("n"), 4),), name="P"),
        "dimension 0 of placeholder P is the expression T.max(n, 4); expected an int, or sums",
    ),
    "size of another dtype": (lambda: te.var("n", "int16"), "a symbolic size is int64 or int32"),
    "shape of no kind": (lambda: te.placeholder("4", name="P"), "shape of placeholder P is '4'"),
    "dtype": (
        lambda: te.placeholder((4,), name="P", dtype="complex64"),
        "dtype of placeholder P is 'complex64'; expected one of float16",
    ),
    "empty name": (lambda: te.placeholder((4,), name=""), "name of a placeholder is ''"),
    "unprintable name": (
        lambda: te.placeholder((4,), name="\x1b[2J"),
        "expected non-empty, printable",
    ),
    "empty reduction axis": (
        lambda: te.reduce_axis((3, 3), name="k"),
        "extent of reduction axis k is 0",
    ),
    "no domain": (lambda: te.reduce_axis(4, name="k"), "domain of reduction axis k is 4"),
    "sum of bools": (
        lambda: one(lambda i: te.sum(A[i, k] < 1, axis=k)),
        "in compute C: sum is not defined on bool",
    ),
    "part of a tuple": (half_a_tuple, "compute C must return all 2 elements of the reduction"),
    "identity not neutral": (
        lambda: reducer(lambda x, y: te.max(x, y), lambda t: te.const(3, t)),
        "identity of reducer mine is not neutral: combining 3.0 with 1.5 gives 3.0",
    ),
    "reducer of another dtype": (
        lambda: reducer(lambda x, y: te.cast(x + y, "float64"), lambda t: te.const(0, t)),
        "combination of reducer mine, element 0, has dtype float64; expected float32",
    ),
    "identity of another dtype": (
        lambda: reducer(lambda x, y: x + y, lambda t: te.const(0, "int32")),
        "identity of reducer mine, element 0, has dtype int32; expected float32",
    ),
    "reducer under a known name": (
        lambda: reducer(lambda x, y: te.abs(x) + te.abs(y), lambda t: te.const(0, t), "sum"),
        "a reducer of one's own is called 'sum' but is not that",
    ),
    "reducer that reads elsewhere": (
        lambda: reducer(lambda x, y: x + y + A[0, 0], lambda t: te.const(0, t)),
        "reducer mine uses A[0, 0], which is none of its operands",
    ),
    "layout-free tensor": (
        lambda: one(lambda i: A[i, 0], attrs={"layout_free_placeholders": ["A"]}),
        "layout_free_placeholders of compute C holds 'A'",
    ),
    "FLOP": (lambda: one(lambda i: A[i, 0], attrs={"FLOP": "many"}), "FLOP of compute C is 'many'"),
    "input not listed": (
        lambda: te.create_prim_func([one(lambda i: A[i, 0])]),
        "C reads the placeholder A, which is not a parameter of main; add it to the list",
    ),
    "no output": (
        lambda: te.create_prim_func([A, B]),
        "no output among the listed tensors (A, B): a placeholder is an input",
    ),
    "nothing listed": (lambda: te.create_prim_func([]), "no output among the listed tensors"),
    "listed twice": (lambda: te.create_prim_func([A, A]), "A is listed twice"),
    "not a tensor": (lambda: te.create_prim_func([A, 3]), "item 1 of the list of tensors is 3"),
    "not a list": (lambda: te.create_prim_func(A), "expected a list of tensors"),
    "read outside": (
        lambda: te.create_prim_func([A, one(lambda i: A[i, i + 1])]),
        "block 'C' reads A[vi, vi + 1]: index 1, vi + 1, reaches 1..4 and is not provably in "
        "[0, 4); read it under te.if_then_else with a condition that keeps it inside",
    ),
    "layout of no parameter": (
        lambda: te.create_prim_func(
            [B, one(lambda i: B[i], attrs={"layout_free_placeholders": [A]})]
        ),
        "C declares the layout of A free, which is not a parameter of main",
    ),
}
te_k_ = te.reduce_axis((0, N), name="k_")


@pytest.mark.parametrize("case", list(MISUSES))
def test_misuse(case: str) -> None:
    misuse, message = MISUSES[case]
    with pytest.raises(TensorExprError, match=re.escape(message)):
        misuse()


def test_a_nest_is_no_deeper_than_a_script() -> None:
    many = (1,) * 65
    with pytest.raises(TensorExprError, match="has 65 dimensions; expected at most 64"):
        te.placeholder(many, name="A")
    with pytest.raises(TensorExprError, match="has 65 dimensions; expected at most 64"):
        te.compute(many, lambda *i: te.const(1.0), name="B")
    axes = [te.reduce_axis((0, 1)) for _ in range(37)]
    with pytest.raises(TensorExprError, match="reduces 37 axes; expected at most 36"):
        te.sum(te.const(1.0), axis=axes)


def test_shared_parts_are_counted_as_often_as_they_are_used() -> None:
    """Sixty steps that use the one before three times: the text would have 3 ** 60 parts."""

    def steps(i: te.IterVar) -> Any:
        e = a[i]
        for _ in range(60):
            e = te.select(e > 0.5, e * 0.9, e + 0.3)
        return e

    a = te.placeholder((N,), name="A")
    with pytest.raises(TensorExprError, match=r"C has 2e.29 nodes .* a te.compute of its own"):
        te.create_prim_func([a, one(steps)])


@pytest.mark.parametrize("shape", [(2**40, 2**40), (2**30, 2**30)])
def test_more_elements_than_memory_has_are_refused(shape: tuple[int, int]) -> None:
    a = te.placeholder((4,), name="A")
    c = te.compute(shape, lambda i, j: a[0], name="C")
    with pytest.raises(
        TensorExprError, match=r"with C the buffers have \d+ bytes; at most \d+ are"
    ):
        te.create_prim_func([a, c])
