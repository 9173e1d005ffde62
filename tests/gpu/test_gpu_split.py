"""Split-k: which products have it, and that pieces of a reduction add up to it."""

from __future__ import annotations

import numpy as np
import pytest
from gpu_run import cuda, opencl, program, random_inputs, reference, run

from autosched.search.evaluate import legal
from autosched.sketch.generate import generate_space
from autosched.workloads import prim_func_of


@pytest.mark.parametrize(
    ("size", "split"),
    [
        ((128, 1024, 128), True),
        ((128, 128, 128), False),  # too few terms for pieces
        ((128, 1021, 128), False),  # nor do these divide
        ((8, 1024, 8), False),  # the threads of a block reduce each
        ((1024, 1024, 1024), False),  # tiles enough
    ],
)
def test_where_elements_are_few(size: tuple[int, int, int], split: bool) -> None:
    names = [v.name for v in generate_space(prim_func_of("matmul", size), cuda()).variants]
    assert any("C.split" in name for name in names) == split
    assert any("C.split" not in name for name in names)


def test_pieces_add_up() -> None:
    func = prim_func_of("matmul", (30, 512, 20))
    space = generate_space(func, opencl())
    split = [n for n, v in enumerate(space.variants) if "C.split" in v.name]
    drawn = space.sample(np.random.default_rng(0), 64)
    found = (space.candidate(drawn, int(k)) for k in np.flatnonzero(legal(space, drawn)))
    mine = [c for c in found if c[0] in split][:2]
    assert len(mine) == 2
    inputs = random_inputs(func)
    (wanted,) = reference(func, inputs)
    for candidate in mine:
        scheduled = space.schedule(*candidate).func
        assert len(program(scheduled).kernels) == 2
        (out,) = run(scheduled, inputs)
        np.testing.assert_allclose(out, wanted, rtol=1e-3, atol=1e-4)
