"""Single elements traced back to the inputs: the same values as the interpreter by whole arrays."""

from __future__ import annotations

import numpy as np
import pytest
from scatter_programs import PROGRAMS

from autosched.script import parse_func
from autosched.sketch.default import default_schedule
from autosched.target import Target
from autosched.tir import whole
from autosched.tir.nodes import PrimFunc, outputs_of
from autosched.tir.sample import Beyond, Sample
from autosched.workloads import prim_func_of

OPERATORS = {
    "matmul": (12, 9, 20),
    "softmax": (5, 12),
    "layer_norm": (4, 10),
    "conv2d": (1, 6, 6, 4, 5, 3, 3, 1, 1),
    "conv2d_transpose": (5, 5, 4, 3, 4, 2, 1),
    "batch_matmul": (2, 5, 6, 7),
    "winograd_conv2d": (1, 6, 6, 4, 4),
    "argmax": (6, 11),
    "cumsum": (3, 9),
    "norm": (3, 20),
    "lstm": (2, 3, 4, 5),
}


def evaluated(func: PrimFunc) -> list[np.ndarray]:
    """All arguments after a run of the interpreter by whole arrays."""
    rng = np.random.default_rng(3)
    arrays = []
    for b in func.params:
        shape = tuple(int(n) for n in b.shape)
        if "int" in b.dtype:
            arrays.append(rng.integers(-2, 7, shape).astype(b.dtype))
        else:
            arrays.append(rng.uniform(0.5, 1.5, shape).astype(b.dtype))
    whole.reference(func, arrays)
    return arrays


def compare(func: PrimFunc, arrays: list[np.ndarray]) -> None:
    """Every third element of every output."""
    for b, found in zip(func.params, arrays, strict=True):
        if b not in outputs_of(func):
            continue
        given = [
            np.full_like(a, 55) if p in outputs_of(func) else a
            for p, a in zip(func.params, arrays, strict=True)
        ]
        flat = np.arange(0, found.size, 3)
        at = tuple(np.unravel_index(flat, found.shape)) if found.shape else ()
        sample = Sample(func, given, 10**9)
        values = sample.values(b, at)
        wanted = found.reshape(-1)[flat]
        if found.dtype.kind == "f":
            np.testing.assert_allclose(values, wanted, 1e-4, 1e-6)
        else:
            np.testing.assert_array_equal(values, wanted)
        assert not sample.unwritten


@pytest.mark.parametrize("name", PROGRAMS)
def test_scatter(name: str) -> None:
    func = PROGRAMS[name].func()
    compare(func, evaluated(func))


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_as_written_and_scheduled(name: str) -> None:
    func = prim_func_of(name, OPERATORS[name])
    arrays = evaluated(func)
    compare(func, arrays)
    compare(default_schedule(func, Target("llvm")).func, arrays)


def test_work_that_is_not_allowed() -> None:
    func = prim_func_of("matmul", (12, 9, 20))
    arrays = evaluated(func)
    sample = Sample(func, arrays, 31_000)
    at = (np.arange(9), np.arange(9))
    with pytest.raises(Beyond):
        sample.values(func.params[2], at)
    assert Sample(func, arrays, 100_000).values(func.params[2], at).shape == (9,)


def test_what_nothing_writes_is_noticed() -> None:
    func = parse_func(
        """
@T.prim_func
def main(A: T.Buffer((4,)), B: T.Buffer((8,))):
    for v in T.serial(4):
        with T.block("B"):
            vv = T.axis.spatial(4, v)
            B[vv * 2] = A[vv]
""",
        check=False,
    )
    arrays = [np.arange(4, dtype="float32"), np.empty(8, "float32")]
    sample = Sample(func, arrays, 100_000)
    assert list(sample.values(func.params[1], (np.array([0, 2, 6]),))) == [0, 1, 3]
    assert not sample.unwritten
    assert np.isnan(sample.values(func.params[1], (np.array([1]),))).all()
    assert sample.unwritten
