"""exp of what is not below a number, 0 of the rest, as a softmax has it."""

from __future__ import annotations

import numpy as np
import pytest

import autosched as at
from autosched import te
from autosched.codegen.build import generate_ir
from autosched.sketch.default import default_schedule
from autosched.target import Target

LEAST = {"float32": -80.0, "float64": -700.0}


def program(dtype: str, least: float, count: int = 203):
    x = te.placeholder((count,), name="x", dtype=dtype)

    def element(i):
        return te.select(x[i] < least, te.const(0, dtype), te.exp(x[i]))

    return te.create_prim_func([x, te.compute((count,), element, name="out")])


@pytest.mark.parametrize("target", ["llvm", "llvm -mcpu=haswell", "llvm -mcpu=x86-64"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("share", [1.0, 0.25, 1.2, -0.01])
def test_results_are_those_of_numpy(target, dtype, share):
    """At the bound and around it, far below, above the range, infinities and NaN; with a bound
    whose exp is subnormal, or above 1, as well."""
    least = LEAST[dtype] * share
    near = np.nextafter(np.array(least, dtype), np.array([-np.inf, np.inf], dtype))
    edges = [least, *near, -np.inf, np.inf, np.nan, 0.0, -0.0, 1e4, -1e4, 88.8, 709.9]
    drawn = np.random.default_rng(0).uniform(1.3 * LEAST[dtype], 5, 203 - len(edges))
    x = np.concatenate([edges, drawn]).astype(dtype)
    func, out = program(dtype, least), np.empty_like(x)
    at.build(default_schedule(func, Target(target)), target=target)(x, out)
    with np.errstate(over="ignore", under="ignore"):
        want = np.where(x < np.array(least, dtype), 0, np.exp(x.astype("f8"))).astype(dtype)
    np.testing.assert_allclose(out, want, rtol=4 * np.finfo(dtype).eps, atol=1e-44)


def test_no_subnormal_result_is_counted():
    """But where the bound is below what has a normal exp."""
    target = Target("llvm -mcpu=skylake-avx512")
    for least, counted in ((-80.0, False), (-100.0, True)):
        text = generate_ir(default_schedule(program("float32", least), target).func, target).ir
        assert ("lrint" in text) == counted
