"""How far stages are computed inside others: as far as it pays, and expressions may grow."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autosched import te
from autosched.sketch.default import default_schedule
from autosched.sketch.generate import generate_states
from autosched.target import Target
from autosched.te import create_prim_func
from autosched.tir.expr import Expr
from autosched.tir.nodes import sites

TARGET = Target("llvm -num-cores=2")


def test_steps_of_a_stencil_are_not_all_computed_again() -> None:
    """Each inlined step multiplies the reads of the next: four of them read 41 elements, by way of
    256 terms."""
    steps = [te.placeholder((64, 64), name="A")]
    for n in range(4):
        x, last = steps[-1], 63
        steps.append(
            te.compute(
                (64, 64),
                lambda i, j, x=x, last=last: te.if_then_else(
                    te.all(i >= 1, i < last, j >= 1, j < last),
                    0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]),
                    x[i, j],
                ),
                name=f"step{n}",
            )
        )
    func = default_schedule(create_prim_func([steps[0], steps[-1]]), TARGET).func
    assert max(len(s.block.reads) for s in sites(func)) <= 13


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", [TARGET, Target("cuda -arch=sm_90")], ids=["cpu", "gpu"])
@pytest.mark.parametrize(
    ("stages", "step"),
    [(120, lambda x: x * 2.0 + 1.0), (24, lambda x: x * te.sigmoid(x))],
    ids=["high", "doubling"],
)
def test_a_long_chain_is_inlined_as_far_as_expressions_may_grow(
    stages: int, step: Callable[[Expr], Expr], target: Target
) -> None:
    """Taken in altogether one would nest deeper than is taken, the other have 2**24 reads."""
    tensors = [te.placeholder((8,), name="A")]
    for n in range(stages):
        tensors.append(te.compute((8,), lambda i, t=tensors[-1]: step(t[i]), name=f"t{n}"))
    func = create_prim_func([tensors[0], tensors[-1]])
    state = generate_states(func, target)[0]
    left = [s.block for s in sites(state.schedule.func)]
    assert 2 <= len(left) < stages / 2
