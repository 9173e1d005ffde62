"""Scalars that feed tiled blocks: they have no loop of their own to vectorise or to unroll."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gpu_run import check_kernels

from autosched import te
from autosched.codegen.build import build_artifact
from autosched.runtime.function import Function
from autosched.schedule.body import MAX_NODES
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.tir.interp import run as interpret
from autosched.tir.nodes import CONSTANT_AXES, PrimFunc, site_of

CPU, GPU = Target("llvm -num-cores=2"), Target("cuda -arch=sm_90")
Scalar = Callable[[te.Tensor], te.Tensor]


def cheap(s: te.Tensor) -> te.Tensor:
    return te.compute((), lambda: s[0] + 1.0, name="scalar")


def expensive(s: te.Tensor) -> te.Tensor:
    return te.compute((), lambda: te.exp(s[0]), name="scalar")


def twice(s: te.Tensor) -> te.Tensor:
    e = te.compute((), lambda: te.exp(s[0]), name="before")
    return te.compute((), lambda: te.tanh(e[()]) * e[()], name="scalar")


def large(s: te.Tensor) -> te.Tensor:
    """An expression that no other one can take in."""
    terms = [s[n % 4] * float(n % 7 - 3) for n in range(MAX_NODES // 4)]
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [a + b for a, b in pairs] + terms[len(terms) // 2 * 2 :]
    return te.compute((), lambda: terms[0], name="scalar")


def column_sum(scalar: Scalar) -> PrimFunc:
    s, x = te.placeholder((4,), name="S"), te.placeholder((19, 37), name="X")
    c, k = scalar(s), te.reduce_axis((0, 19), name="k")
    made = te.compute((37,), lambda j: te.sum(te.abs(x[k, j] * c[()]), axis=k), name="Y")
    return create_prim_func([s, x, made])


def row_sum(scalar: Scalar) -> PrimFunc:
    s, x = te.placeholder((4,), name="S"), te.placeholder((19, 37), name="X")
    c, k = scalar(s), te.reduce_axis((0, 37), name="k")
    made = te.compute((19,), lambda i: te.max(x[i, k] + c[()], axis=k), name="Y")
    return create_prim_func([s, x, made])


def product(scalar: Scalar) -> PrimFunc:
    s, x, w = (te.placeholder(n, name=m) for n, m in (((4,), "S"), ((9, 7), "X"), ((7, 21), "W")))
    c, k = scalar(s), te.reduce_axis((0, 7), name="k")
    made = te.compute((9, 21), lambda i, j: te.sum(x[i, k] * c[()] * w[k, j], axis=k), name="Y")
    return create_prim_func([s, x, w, made])


def constant_matrix(scalar: Scalar) -> PrimFunc:
    """Of a transform, such as that of a Winograd convolution."""
    s, x = te.placeholder((4,), name="S"), te.placeholder((4, 20), name="X")
    c, k = scalar(s), te.reduce_axis((0, 4), name="k")
    m = te.compute((3, 4), lambda i, j: te.select(i == j, te.const(2, "float32"), 0.5), name="M")
    made = te.compute(
        (3, 20),
        lambda i, j: te.sum(x[k, j] * c[()] * m[i, k], axis=k),
        name="Y",
        attrs={CONSTANT_AXES: ("i", "k")},
    )
    return create_prim_func([s, x, made])


CONSUMERS = [column_sum, row_sum, product, constant_matrix]
SCALARS = [cheap, expensive, twice, large]


def arrays_of(func: PrimFunc) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(b.shape).astype("float32") for b in func.params]


def interpreted(func: PrimFunc) -> np.ndarray:
    arrays = arrays_of(func)
    interpret(func, arrays)
    return arrays[-1]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_every_structure_computes_the_program(
    consumer: Callable[[Scalar], PrimFunc], scalar: Scalar
) -> None:
    func = consumer(scalar)
    want = interpreted(func)
    space = generate_space(func, CPU)
    assert not any("scalar.thread" in v.name for v in space.variants)
    drawn = space.sample(np.random.default_rng(0), 32)
    firsts = [int(np.flatnonzero(drawn.variant == v)[0]) for v, _ in drawn.groups()]
    schedules = [default_schedule(func, CPU)]
    schedules += [space.schedule(*space.candidate(drawn, row)) for row in firsts[:6]]
    for schedule in schedules:
        arrays = arrays_of(func)
        arrays[-1][...] = np.nan
        Function(build_artifact(schedule.func, CPU))(*arrays)
        np.testing.assert_allclose(
            arrays[-1], want, rtol=1e-4, atol=1e-4, err_msg=str(schedule.trace)
        )


@pytest.mark.parametrize("scalar", SCALARS)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_on_gpus_too(consumer: Callable[[Scalar], PrimFunc], scalar: Scalar) -> None:
    func = consumer(scalar)
    space = generate_space(func, GPU)
    done = space.schedule(*space.default()).func
    assert check_kernels(done, GPU)
    np.testing.assert_allclose(interpreted(done), interpreted(func), rtol=1e-4, atol=1e-4)


def test_threads_keep_a_large_scalar_in_a_register() -> None:
    space = generate_space(constant_matrix(large), GPU)
    assert [v.name for v in space.variants] == ["Y.constant+scalar.thread"]
    site = site_of(space.schedule(*space.default()).func, "scalar")
    assert [x.kind for x in site.loops] == ["thread"] * len(site.loops)
    assert site.block.writes[0].buffer.scope == "local"
