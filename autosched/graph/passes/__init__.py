"""Passes of the graph level, from module to module, each an `at.Pass`."""

from __future__ import annotations

from autosched.graph.passes.attention16 import bfloat16_attention
from autosched.graph.passes.branches import branches
from autosched.graph.passes.clean import common_subexpressions, dead_code, fold
from autosched.graph.passes.counted import counted
from autosched.graph.passes.fuse import fuse
from autosched.graph.passes.halves import halves
from autosched.graph.passes.int8 import int8
from autosched.graph.passes.integers import integers
from autosched.graph.passes.layout import layout
from autosched.graph.passes.lift import lambda_lift
from autosched.graph.passes.partial_eval import partial_eval
from autosched.graph.passes.precision import bfloat16
from autosched.graph.passes.quantised_moves import quantised_moves
from autosched.graph.passes.reciprocals import reciprocals
from autosched.graph.passes.rescaled import rescaled
from autosched.graph.passes.simplify import simplify
from autosched.graph.passes.tables import tables
from autosched.graph.passes.unsigned import unsigned
from autosched.target import Target
from autosched.tir.module import IRModule

__all__ = [
    "PIPELINE",
    "bfloat16",
    "bfloat16_attention",
    "branches",
    "common_subexpressions",
    "counted",
    "dead_code",
    "fold",
    "fuse",
    "halves",
    "int8",
    "integers",
    "lambda_lift",
    "layout",
    "optimise",
    "partial_eval",
    "quantised_moves",
    "reciprocals",
    "rescaled",
    "simplify",
    "tables",
    "unsigned",
]

PIPELINE = (
    fold,
    unsigned,
    quantised_moves,
    integers,
    dead_code,
    fold,
    rescaled,
    tables,
    dead_code,
    simplify,
    reciprocals,
    branches,
    common_subexpressions,
    counted,
    dead_code,
    fuse,
    layout,
)
"""What a build does, in this order."""


def optimise(
    module: IRModule, precision: str = "float32", target: Target | None = None
) -> IRModule:
    """The module as its kernels are compiled; with the precision "bfloat16" products are those of
    the pass `bfloat16`, on a target with intrinsics for them those of attention too; with "int8"
    those of weights of 8 bits are those of the pass `int8`. On a CPU the pass `halves` runs."""
    if precision == "int8":  # before constants are folded: what the file stores is still there
        module = int8(module)
    for one in PIPELINE:
        if one is unsigned and not (target is not None and target.is_gpu):
            module = halves(module)
        if one is fuse and precision == "bfloat16":
            module = bfloat16(module)
            tiles = target is not None and "amx-bf16" in target.features
            if tiles or (target is not None and "avx512bf16" in target.features):
                module = bfloat16_attention(module, whole_rows=tiles)
        module = one(module)
    return module
