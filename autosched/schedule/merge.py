"""The primitive that makes one loop of several that follow each other: merge."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.schedule.check import extents_of, loop_vars, names, refuse
from autosched.schedule.conflicts import conflicts, together
from autosched.schedule.kinds import check_kinds
from autosched.schedule.loops import substitute_loops
from autosched.tir.affine import Affine, same_int
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    For,
    Node,
    PrimFunc,
    Site,
    buffers_of,
    kind_vars,
    path_to,
    replace_node,
    sites,
)


def merge(func: PrimFunc, *loops: Var) -> tuple[PrimFunc, Var]:
    """Make one nest of nests that follow each other. (TVM merge; Halide compute_with.)

    Args:
        loops: two or more loops, in program order; each is the innermost of a chain of loops that
            are the only child of the one before, the outermost of which stand side by side.

    Returns the new program and the variable of the merged innermost loop.

    Legality: the loops are serial and without annotations, and the chains have the same extents;
    nothing stands between the nests; what blocks of two nests access in common, and one of them
    writes, they access in the same iteration of the merged loops.

    rewrite:
        for i in T.serial(8):           for i in T.serial(8):
            with T.block("a"):  ->          with T.block("a"):
        for i in T.serial(8):               with T.block("b"):
            with T.block("b"):
    """
    if len(loops) < 2 or len({id(v) for v in loops}) != len(loops):
        refuse(f"merge takes two or more loops; found {names(loops)}")
    paths = [path_to(func, v) for v in loops]
    depth = 0
    while all(len(p) > depth + 1 for p in paths) and len({id(p[depth]) for p in paths}) == 1:
        depth += 1
    chains = [p[depth:] for p in paths]
    what = f"merge of {names(loops)}"
    _check_chains(chains, what)
    around = paths[0][depth - 1] if depth else None
    row = func.body if around is None else around.body
    first = next((n for n, node in enumerate(row) if node is chains[0][0]), -1)
    if [id(x) for x in row[first : first + len(chains)]] != [id(c[0]) for c in chains]:
        refuse(f"{what}: the nests stand one after the other, in this order", around)
    model, extents = chains[0], extents_of(func)
    parts = [model[-1].body]
    for chain in chains[1:]:
        values = {mine.var: Affine.of(loop.var) for mine, loop in zip(chain, model, strict=True)}
        parts.append(substitute_loops(chain[-1].body, values, extents))
    body: tuple[Node, ...] = tuple(node for part in parts for node in part)
    for loop in reversed(model):
        body = (For(loop.var, loop.extent, body, loop.kind),)
    result = replace_node(func, chains[0][0], body)
    for chain in chains[1:]:
        result = replace_node(result, chain[0], ())
    _check_meetings(result, model, parts, loop_vars(paths[0][:depth]), what)
    check_kinds(result, func)
    return result, model[-1].var


def _check_chains(chains: Sequence[tuple[For, ...]], what: str) -> None:
    for chain in chains:
        if len(chain) != len(chains[0]):
            refuse(f"{what}: the loops stand at different depths below the loop around them all")
        for n, loop in enumerate(chain):
            if loop.kind != "serial" or loop.annotations or loop.allocs:
                refuse(f"{what}: loop {loop.var.name} is not plain and serial", loop)
            if n + 1 < len(chain) and len(loop.body) != 1:
                refuse(f"{what}: loop {loop.var.name} has more than one child", loop)
            if not same_int(loop.extent, chains[0][n].extent):
                refuse(
                    f"{what}: loop {loop.var.name} has extent {loop.extent}, expected "
                    f"{chains[0][n].extent} as {chains[0][n].var.name}"
                )


def _check_meetings(
    func: PrimFunc,
    model: Sequence[For],
    parts: Sequence[tuple[Node, ...]],
    fixed: list[Var],
    what: str,
) -> None:
    """Raise ScheduleError if blocks of two parts may meet at an element in different iterations of
    the merged loops."""
    place = {id(s.block): n for n, part in enumerate(parts) for x in part for s in sites(x)}
    merged = path_to(func, model[0].var)[-1]
    below: list[Site] = [s for s in sites(func) if any(x is merged for x in s.loops)]
    for buffer in buffers_of(merged):
        for a, b in conflicts(below, buffer):
            if place[id(a[0].block)] == place[id(b[0].block)]:
                continue
            for n, loop in enumerate(model):
                outer = [*fixed, *loop_vars(model[:n])]
                early = kind_vars(a[0].block, "reduce") | kind_vars(a[0].block, "sequential")
                if loop.var in early or not together(a, b, (loop.var,), outer):
                    refuse(
                        f"{what}: {a[0].block.name} and {b[0].block.name} may access the same "
                        f"elements of {buffer.name} in different iterations of {loop.var.name}"
                    )
