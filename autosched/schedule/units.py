"""Primitives that change how a block is written and not what runs: add_unit_loop,
reorder_block_iter_var."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autosched.schedule.check import refuse
from autosched.schedule.kinds import check_kinds
from autosched.tir.expr import Var
from autosched.tir.nodes import For, Node, PrimFunc, path_to, replace_node, site_of


def add_unit_loop(func: PrimFunc, place: str | Var) -> tuple[PrimFunc, Var]:
    """Put a loop of one iteration around a block (by name) or a loop. (TVM add_unit_loop.)

    A block without loops gets one to be bound or annotated. Lowering leaves it out.

    Returns the new program and the loop's variable.

    Legality: no vectorised loop is around, and no intrinsic does the nest.

    rewrite:
        with T.block("b"):      ->      for u in T.serial(1):
                                            with T.block("b"):
    """
    node: Node = site_of(func, place).block if isinstance(place, str) else path_to(func, place)[-1]
    var = Var("u")
    result = replace_node(func, node, (For(var, 1, (node,)),))
    for outer in path_to(result, var)[:-1]:
        if outer.kind == "vectorized":
            refuse(f"add_unit_loop: loop {outer.var.name} around is vectorized", outer)
    check_kinds(result, func)
    return result, var


def reorder_block_iter_var(func: PrimFunc, block: str, new_order: Sequence[int]) -> PrimFunc:
    """List the axes of a block in another order. (TVM reorder_block_iter_var.)

    Args:
        new_order: for each place the number of the axis that comes there.

    Legality: the numbers are a permutation. Loops and results stay.

    rewrite: ([1, 0])
        vi = T.axis.spatial(4, i)       vj = T.axis.spatial(5, j)
        vj = T.axis.spatial(5, j)   ->  vi = T.axis.spatial(4, i)
    """
    old = site_of(func, block).block
    if sorted(new_order) != list(range(len(old.iters))):
        refuse(
            f"reorder_block_iter_var({block}): expected a permutation of 0 to "
            f"{len(old.iters) - 1}; found {list(new_order)}",
            old,
        )
    changed = replace(
        old,
        iters=tuple(old.iters[n] for n in new_order),
        bindings=tuple(old.bindings[n] for n in new_order),
    )
    return replace_node(func, old, (changed,))
