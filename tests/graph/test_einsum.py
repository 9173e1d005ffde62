"""Einsum: random equations beside NumPy's, and how many products are computed."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from autosched import graph, te
from autosched.dag import ComputeDAG
from autosched.graph.infer import evaluate_operator
from autosched.graph.ops.einsum import einsum


def _random(rng):
    """An equation and its operands: repeated letters, ellipses, extents of one."""
    letters = list("abcde"[: rng.integers(1, 6)])
    extents = dict(zip(letters, rng.integers(1, 4, 5), strict=False))
    outer = rng.integers(1, 4, 2) if rng.random() < 0.3 else None
    terms, operands = [], []
    for _ in range(rng.integers(1, 5)):
        term = list(rng.choice(letters, rng.integers(0, 4)))
        shape = [1 if rng.random() < 0.15 and term.count(n) == 1 else extents[n] for n in term]
        if outer is not None:
            at, wide = rng.integers(0, len(term) + 1), rng.integers(0, 3)
            term.insert(at, "...")
            shape[at:at] = [n if rng.random() < 0.8 else 1 for n in outer[2 - wide :]]
        terms.append("".join(term))
        operands.append(rng.standard_normal(shape))
    if rng.random() < 0.2:
        return ",".join(terms), operands
    kept = [n for n in rng.permutation(letters) if rng.random() < 0.5 and n in "".join(terms)]
    kept[:0] = ["..."] if outer is not None else []
    return f"{','.join(terms)}->{''.join(kept)}", operands


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2, 3))])
def test_random_equations(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(150):
        equation, operands = _random(rng)
        want = np.einsum(equation, *operands)
        (got,) = evaluate_operator("Einsum", operands, {"equation": equation}, 1)
        assert got.shape == want.shape, equation
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=equation)


@pytest.mark.parametrize(
    ("equation", "shapes", "most"),
    [
        ("ij,kl->il", [(32, 32), (32, 32)], 3 * 32**2),
        ("ij,jk,kl->il", [(32, 32)] * 3, 2 * 32**3),
        ("bsi,ir,ro->bso", [(2, 8, 32), (32, 4), (4, 32)], 2 * 16 * 32 * 4),
        ("ijk,jr,kr->ir", [(16, 16, 16), (16, 4), (16, 4)], 16**3 * 4 + 16**2 * 4),
        ("ij,ij,jk->ik", [(32, 32)] * 3, 32**3 + 32**2),
        ("ijk,ijk,ijk->", [(8, 8, 8)] * 3, 8**3),
        ("ijk,k->i", [(8, 8, 8), (8,)], 8**3),
    ],
)
def test_few_products(equation, shapes, most) -> None:
    """Places of all loops together, and the numbers."""
    parts = [te.placeholder(shape, "float32", f"x{n}") for n, shape in enumerate(shapes)]
    func = te.create_prim_func([*parts, einsum(*parts, equation=equation)], "main")
    blocks = ComputeDAG(func).blocks
    assert sum(prod(i.extent for i in b.iters) for b in blocks) <= most
    values = [np.random.default_rng(n).standard_normal(s).astype("f4") for n, s in
              enumerate(shapes)]  # fmt: skip
    inputs = [graph.var(f"x{n}", shape) for n, shape in enumerate(shapes)]
    result = graph.op.einsum(*inputs, equation=equation)
    (got,) = graph.build(graph.module(main=graph.function(inputs, result)))(*values)
    np.testing.assert_allclose(got, np.einsum(equation, *values), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ij,jk,kl->il", "ij,kl->il", "ij->i"])
def test_nothing_summed(equation: str) -> None:
    terms = equation.partition("->")[0].split(",")
    sizes = {"i": 2, "j": 0, "k": 3, "l": 2}
    operands = [np.ones([sizes[n] for n in term], "f2") for term in terms]
    (got,) = evaluate_operator("Einsum", operands, {"equation": equation}, 1)
    assert (got.dtype, got.tolist()) == ("float16", np.einsum(equation, *operands).tolist())
