"""Questions about a program that schedules ask: who stands where, who feeds whom."""

from __future__ import annotations

from autosched.tir.expr import Var
from autosched.tir.nodes import PrimFunc, path_to, site_of, sites

ROOT = "root"
"""What TVM calls the block that holds the whole function."""


def block_names(func: PrimFunc) -> list[str]:
    """Names of all blocks, in program order."""
    return [s.block.name for s in sites(func)]


def output_blocks(func: PrimFunc) -> list[str]:
    """Names of the blocks that write parameters, in program order."""
    params = {id(b) for b in func.params}
    return [
        s.block.name for s in sites(func) if any(id(a.buffer) in params for a in s.block.writes)
    ]


def child_blocks(func: PrimFunc, loop: Var) -> list[str]:
    """Names of the blocks below a loop, in program order."""
    return [s.block.name for s in sites(path_to(func, loop)[-1])]


def producers(func: PrimFunc, block: str) -> list[str]:
    """Names of the other blocks that write what `block` reads, in program order."""
    here = site_of(func, block).block
    read = {id(a.buffer) for a in here.reads}
    return [
        s.block.name
        for s in sites(func)
        if s.block is not here and any(id(a.buffer) in read for a in s.block.writes)
    ]


def consumers(func: PrimFunc, block: str) -> list[str]:
    """Names of the other blocks that read what `block` writes, in program order."""
    here = site_of(func, block).block
    written = {id(a.buffer) for a in here.writes}
    return [
        s.block.name
        for s in sites(func)
        if s.block is not here and any(id(a.buffer) in written for a in s.block.reads)
    ]
