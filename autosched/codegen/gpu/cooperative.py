"""Copies that the threads of a block share out: nests whose block is annotated "cooperative".

As scheduled such a nest is serial, and every thread's iteration does all of it. Here its loops are
numbered through, and each thread takes every n-th vector of neighbours, n being the threads of a
block: so neighbouring threads load neighbouring elements (coalesced accesses), whatever the shape.
A schedule need not say so with a fuse and splits, which have no array form for a population.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from autosched.codegen.gpu.double import AHEAD
from autosched.errors import CodegenError
from autosched.schedule.loops import substitute_loops
from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Var
from autosched.tir.nodes import Block, For, Predicate, kind_vars

KEY = "cooperative"


def share_out(node: For, threads: Sequence[For]) -> For:
    """`node`, or what each of the `threads` (the axes x, y, z of a block) does of it if it is a
    nest of one cooperative block. Raises CodegenError for a block that cannot be shared out."""
    chain: list[For] = [node]
    while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], For):
        chain.append(chain[-1].body[0])
    block = chain[-1].body[0]
    if len(chain[-1].body) > 1 or not isinstance(block, Block) or block.annotation(KEY) is None:
        return node
    odd = [x.var.name for x in chain if x.kind != "serial"]
    if odd or block.reducer is not None or kind_vars(block, "sequential"):
        why = f"loop {odd[0]} is not serial" if odd else "its iterations depend on each other"
        raise CodegenError(
            f"{block.name} is cooperative, which takes serial loops over independent elements; "
            f"{why}: leave the annotation out, or the loops as they are"
        )
    extents = [int(x.extent) for x in chain]
    total, lanes = prod(extents), int(block.annotation(KEY))
    # Vectors that lie across rows are loaded by element: not worth having.
    while lanes > 1 and extents[-1] % lanes:
        lanes -= 1
    step, vector = Var("step"), Var("lane")
    count = prod(int(x.extent) for x in threads)
    steps = -(-total // (count * lanes))
    number, stride = Affine.of(vector), lanes
    for x in threads:
        number = number + Affine.of(x.var) * stride
        stride *= int(x.extent)
    number = number + Affine.of(step) * stride
    values: dict[Var, Affine] = {}
    below = 1
    for x, extent in zip(reversed(chain), reversed(extents), strict=True):
        mod = None if x is chain[0] else extent
        values[x.var] = number if total == extent else Affine.of(Digit(number, below, mod))
        below *= extent
    sizes = {step: steps, vector: lanes, **{x.var: x.extent for x in threads}}
    # Vectors do not lie across the end: the first of their elements decides.
    extra = (Predicate(number - Affine.of(vector), total),) if steps * stride != total else ()
    body = substitute_loops((block,), values, sizes, extra)
    (inner,) = body
    assert isinstance(inner, Block)
    left = tuple((k, v) for k, v in inner.annotations if k != KEY)
    ahead = tuple(a for a in node.annotations if a[0] == AHEAD)
    mine = (replace(inner, annotations=left),)
    lane = For(vector, lanes, mine, "vectorized", annotations=ahead)
    return For(step, steps, (lane,), annotations=ahead, allocs=node.allocs)
