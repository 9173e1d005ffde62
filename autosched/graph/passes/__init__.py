"""Passes of the graph level, from module to module, each an `at.Pass`."""

from __future__ import annotations

from autosched.graph.passes.branches import branches
from autosched.graph.passes.clean import common_subexpressions, dead_code, fold
from autosched.graph.passes.fuse import fuse
from autosched.graph.passes.integers import integers
from autosched.graph.passes.layout import layout
from autosched.graph.passes.simplify import simplify
from autosched.tir.module import IRModule

__all__ = [
    "PIPELINE",
    "branches",
    "common_subexpressions",
    "dead_code",
    "fold",
    "fuse",
    "integers",
    "layout",
    "optimise",
    "simplify",
]

PIPELINE = (
    fold,
    integers,
    dead_code,
    fold,
    simplify,
    branches,
    common_subexpressions,
    dead_code,
    fuse,
    layout,
)
"""What a build does, in this order."""


def optimise(module: IRModule) -> IRModule:
    """The module as its kernels are compiled."""
    for one in PIPELINE:
        module = one(module)
    return module
