"""The sketches of the workloads that the predecessor's tests count, beside its counts.

Its counts are those of `llvm` with 4 cores in the tests of TVM 0.12. What differs everywhere:

- One cache-write (or fusion) sketch in place of two. Its two differ in where the copy is computed,
  after S0 or after S1; ours computes it after S1, where a tile is complete and still in cache.
- Sketches of packed operands, which it does not have: `X.root` once for all, `X.thread` by each
  task.
- No rfactor where a reduction is too little work for threads, and none for vectors of one of
  the known reducers (sum, max, min).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest
from sketch_workloads import (
    conv2d_bn_relu,
    double_matmul,
    matmul,
    max_pool2d,
    row_min,
    softmax,
    zero_rank,
)

from autosched.sketch.generate import generate_space
from autosched.target import Target
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of

TARGET = Target("llvm -num-cores=4")


def tiled(block: str, streamed: str, other: str) -> list[str]:
    """A tiled product: every packing of its operands, and a write cache with two of them."""
    packings = [
        f"{block}{o}{s}"
        for o, s in product(
            ("", f"+{other}.thread"), ("", f"+{streamed}.root", f"+{streamed}.thread")
        )
    ]
    return [*packings, f"{block}.cache", f"{block}.cache+{streamed}.root"]


def both(first: list[str], second: list[str]) -> list[str]:
    return [f"{a}+{b}" for a, b in product(first, second)]


PAD = ["pad.inline", "pad.thread", "pad.root"]


@dataclass(frozen=True)
class Row:
    func: Callable[[], PrimFunc]
    theirs: int
    """How many the predecessor makes."""
    ours: list[str]
    """Ours, by name, the most usual first."""
    why: str
    """Why these are not as many, or not the same."""


TABLE = {
    "matmul 512": Row(
        lambda: matmul(512, 512, 512),
        3,
        tiled("C", "B", "A"),
        "plain and cache write, at one place for two; 6 packings of A and B with the first, 2 of B "
        "with the second",
    ),
    "matmul 8 x 8 x 512": Row(
        lambda: matmul(8, 8, 512),
        5,
        ["C.rfactor.outer+C_rf", "C.rfactor.outer+C_rf.cache", *tiled("C", "B", "A")],
        "rfactor outside, its partial products tiled in turn (theirs are not); no rfactor inside: "
        "the vectors run over the 8 columns",
    ),
    "two matmuls 512": Row(
        lambda: double_matmul(512),
        9,
        both(tiled("E", "C", "D"), tiled("D", "B", "A")),
        "8 x 8 in place of 3 x 3, as for one",
    ),
    "conv2d + bn + relu": Row(
        lambda: conv2d_bn_relu(1, 56, 512, 512, 3, 1),
        3,
        both(["conv.fused", "conv.fused+kernel.thread"], ["pad.thread", "pad.inline", "pad.root"]),
        "always fused, at one place for two: without it the result goes to memory and back; packed "
        "weights; the place of the padding is a sketch, with them a decision of each candidate",
    ),
    "max_pool2d": Row(lambda: max_pool2d(1, 56, 512, 1), 1, ["default"], "the same"),
    "min of 10 x 1024": Row(
        lambda: row_min(10, 1024),
        3,
        ["default"],
        "10,240 comparisons are less than starting threads; min has lanes of its own",
    ),
    "softmax 1 x 1024": Row(
        lambda: softmax(1, 1024),
        9,
        ["default"],
        "both reductions as for min",
    ),
    "softmax 1 x 12 x 128 x 128": Row(
        lambda: softmax(1, 12, 128, 128),
        9,
        ["default"],
        "1,536 rows are parallel already; theirs cuts any reduction that is longer than the cores "
        "are many",
    ),
    "winograd nhwc": Row(
        lambda: prim_func_of("winograd_conv2d", (28, 28, 128, 128, 1)),
        3,
        both(
            both(["inverse.constant"], tiled("bgemm", "weight", "data_pack")),
            both(["data_pack.constant"], PAD),
        ),
        "the product as in matmul; the transforms have one sketch each, as theirs; the padding's "
        "place is a sketch",
    ),
    "zero rank 128": Row(
        lambda: zero_rank(128), 3, ["default"], "128 additions are one thread's; sum has lanes"
    ),
}


@pytest.mark.parametrize("workload", TABLE)
def test_the_sketches_by_name(workload: str) -> None:
    row = TABLE[workload]
    found = [v.name for v in generate_space(row.func(), TARGET).variants]
    assert found == row.ours, f"the predecessor has {row.theirs}: {row.why}"


@pytest.mark.parametrize(
    ("small", "large", "block"),
    [
        (lambda: row_min(10, 1024), lambda: row_min(10, 1 << 16), "B"),
        (lambda: softmax(1, 1024), lambda: softmax(1, 1 << 16), "top"),
        (lambda: zero_rank(128), lambda: zero_rank(1 << 16), "B"),
    ],
    ids=["min", "softmax", "zero rank"],
)
def test_what_is_too_little_for_threads_is_cut_once_it_is_enough(
    small: Callable[[], PrimFunc], large: Callable[[], PrimFunc], block: str
) -> None:
    def names(func: PrimFunc) -> str:
        return " ".join(v.name for v in generate_space(func, TARGET).variants)

    assert f"{block}.rfactor.outer" in names(large())
    assert "rfactor" not in names(small())
