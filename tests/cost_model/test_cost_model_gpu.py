"""The roofline of GPUs against the kernels that the code generator makes."""

from __future__ import annotations

import pytest

import autosched as at
from autosched.codegen.gpu.lower import kernels_of
from autosched.lowering.lower import lower
from autosched.search.analysis import analyse
from autosched.sketch.generate import generate_space
from autosched.target.gpu import device_of, limits_of
from autosched.workloads import prim_func_of
from cost_model.roofline import roofline

CUDA = at.Target("cuda -arch=sm_90")


@pytest.mark.parametrize("variant", range(3))
def test_every_launch_is_counted(variant: int) -> None:
    """A recurrence by steps, in chunks, and in a single pass, which has its marks reset before."""
    space = generate_space(prim_func_of("cumsum", (4096, 64)), CUDA)
    values = {n: x for s in space.specs for n, x in zip(s.names, s.default, strict=True)}
    names = space.variants[variant].decision_names
    func = space.schedule(variant, {n: values[n] for n in names}).func
    launches = len(kernels_of(lower(func), limits_of(CUDA)).kernels)
    *_, seconds = roofline(analyse(func, CUDA), CUDA).parts
    assert float(seconds) == pytest.approx(launches * device_of(CUDA).launch)
