"""bfloat16 as values: the evaluator takes, computes, folds and gives it as compiled models do."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from autosched import graph
from autosched.graph import op, passes
from autosched.graph.errors import Unsupported
from autosched.script import parse

GIVEN = np.random.default_rng(7).standard_normal((3, 4)).astype(ml_dtypes.bfloat16)
SINGLE = GIVEN.astype(np.float32)
WEIGHT = np.random.default_rng(8).standard_normal((3, 4)).astype(ml_dtypes.bfloat16)


def main(dtype, body):
    x = graph.var("x", (3, 4), dtype)
    return graph.module(main=graph.function([x], body(x)))


def as_float(x):
    return op.cast(x, to="float32")


def as_bfloat16(x):
    return op.cast(x, to="bfloat16")


@pytest.mark.parametrize(
    ("dtype", "given"),
    [("float32", GIVEN), ("bfloat16", GIVEN), ("bfloat16", GIVEN.view(np.uint16))],
    ids=["as float32", "as bfloat16", "as patterns"],
)
def test_arguments(dtype, given):
    mod = main(dtype, lambda x: op.mul(as_float(x), 3.0))
    np.testing.assert_array_equal(graph.evaluate(mod, "main", given), SINGLE * np.float32(3))
    np.testing.assert_array_equal(graph.build(mod)(given)[0], SINGLE * np.float32(3))


PROGRAMS = {
    "rounds": (as_bfloat16, GIVEN),
    "adds": (lambda x: op.add(as_bfloat16(x), graph.const(WEIGHT)), GIVEN + WEIGHT),
    "a number": (lambda x: op.mul(as_bfloat16(x), graph.const(1.5, "bfloat16")),
                 (SINGLE * np.float32(1.5)).astype(ml_dtypes.bfloat16)),
    "moves": (lambda x: op.transpose(as_bfloat16(x), perm=(1, 0)), GIVEN.T),
    "folds": (lambda x: op.add(as_bfloat16(x), as_bfloat16(graph.const(WEIGHT.astype("f4")))),
              GIVEN + WEIGHT),
    "relu": (lambda x: op.relu(as_bfloat16(x)), np.maximum(GIVEN, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_patterns(name):
    body, want = PROGRAMS[name]
    mod = main("float32", body)
    want = np.asarray(want, ml_dtypes.bfloat16).view(np.uint16)
    (built,) = graph.build(mod)(SINGLE)
    np.testing.assert_array_equal(built, want)
    for one in (mod, passes.simplify(mod), parse(mod.script())):
        found = graph.evaluate(one, "main", SINGLE)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, want)


def test_large_constants_come_back_by_their_digest():
    weight = np.arange(64).astype(ml_dtypes.bfloat16)
    mod = graph.module(main=graph.function([], as_float(graph.const(weight))))
    constants = {c.digest: c.array for c in graph.constants(mod)}
    again = parse(mod.script(), constants=constants)
    assert again.same(mod)
    np.testing.assert_array_equal(graph.evaluate(again), np.arange(64))


def test_one_call_of_both_types_of_two_bytes():
    """Patterns are no numbers of uint16, though NumPy calls both so."""
    mod = parse("""
@G.module
class M:
    @G.function("d: BaseType")
    def single(x: G.Tensor((3, 4), d)):
        return op.cast(x, to="float32")

    @G.function
    def main(x: G.Tensor((3, 4), "bfloat16"), y: G.Tensor((3, 4), "uint16")):
        return (single(x), single(y))
""")
    bits = GIVEN.view(np.uint16)
    single, number = graph.evaluate(mod, "main", bits, bits)
    np.testing.assert_array_equal(single, SINGLE)
    np.testing.assert_array_equal(number, bits.astype("f4"))


def test_host_operators_refuse_it():
    mod = main("bfloat16", lambda x: op.top_k(x, [2], outputs=2)[0])
    with pytest.raises(Unsupported, match="TopK takes no bfloat16; cast"):
        graph.evaluate(mod, "main", GIVEN)
