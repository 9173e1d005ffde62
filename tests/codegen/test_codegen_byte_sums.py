"""Sums of products of bytes whose terms are lanes, as code for processors with VNNI.

Of halves that are added LLVM 22 makes vpdpbusd, and then reads one of its four sums.
"""

from __future__ import annotations

import numpy as np
import pytest

from autosched import graph
from autosched.graph import op
from autosched.target import Target

HOST = Target("llvm")
TARGETS = [
    t
    for t in ("llvm", "llvm -mcpu=cascadelake", "llvm -mcpu=icelake-server", "llvm -mcpu=znver4")
    if t == "llvm" or (HOST.arch == "x86_64" and not Target(t).missing_here())
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", [(11, 16, 3), (5, 16, 1), (3, 32, 5), (7, 64, 2), (2, 8, 3)])
def test_sums_of_few_terms(target, case):
    """A convolution by a window of one, in groups with fewer filters than a vector has lanes."""
    groups, depth, each = case
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (1, groups * depth, 5, 5)).astype("u1")
    w = rng.integers(-128, 128, (groups * each, depth, 1, 1)).astype("i1")
    v = graph.var("x", x.shape, "uint8")
    main = graph.function([v], op.autosched_conv_sums(v, w, group=groups))
    found = graph.build(graph.module(main=main), target=target, threads=1)(x)[0]
    parts = x.astype("i8").reshape(groups, depth, -1), w.astype("i8").reshape(groups, each, depth)
    want = np.einsum("gds,ged->ges", *parts)
    np.testing.assert_array_equal(found, want.reshape(found.shape))
