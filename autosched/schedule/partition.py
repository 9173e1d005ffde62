"""The primitive that cuts a loop into consecutive ones: loop_partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autosched.schedule.body import rewrite_block
from autosched.schedule.check import extents_of, ordered_vars, refuse
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import block_names, unique_name
from autosched.schedule.recurrence import is_step
from autosched.tir.affine import Affine, Extents
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Iter,
    Node,
    Predicate,
    PrimFunc,
    buffers_of,
    map_blocks,
    path_to,
    readers_of,
    replace_node,
    sites,
    writers_of,
)


def loop_partition(
    func: PrimFunc, loop: Var, factors: Sequence[int]
) -> tuple[PrimFunc, tuple[Var, ...]]:
    """Cut a loop into consecutive ones, each with blocks of its own. (TVM loop_partition; Halide
    specialisation of the edges of a loop.)

    Args:
        factors: the iterations of each part but the last, which has the rest.

    Returns the new program and the loops' variables. Blocks of later parts have new names, `b_1`.

    Legality: the loop is serial and without annotations, of a constant extent larger than all
    factors together; it runs over spatial axes only, of blocks without sequential ones; no loop
    below is done by an intrinsic. What is written and read below it is not accessed elsewhere: each
    part has a buffer of its own for it.

    rewrite: ([2])
        for i in T.serial(8):               for i_0 in T.serial(2):
            with T.block("b"):                  with T.block("b"):
                vi = spatial(8, i)      ->          vi = spatial(8, i_0)
                                            for i_1 in T.serial(6):
                                                with T.block("b_1"):
                                                    vi = spatial(8, i_1 + 2)
    """
    node = path_to(func, loop)[-1]
    what = f"loop_partition({loop.name})"
    if node.kind != "serial" or node.annotations or node.allocs:
        refuse(f"{what}: expected a plain serial loop", node)
    extent = node.extent
    if not isinstance(extent, int):
        refuse(f"{what}: the extent is {extent}; expected a constant")
    if not factors or any(f < 1 for f in factors) or sum(factors) >= extent:
        refuse(
            f"{what}: expected numbers from 1 up, together less than {extent}; found "
            f"{list(factors)}"
        )
    for s in sites(node):
        if loop in ordered_vars(s.block) or is_step(s.block):
            refuse(
                f"{what}: the loop runs over a reduction axis or stands inside the steps of "
                f"{s.block.name}, which is one block from its first point to its last",
                node,
            )
    extents = extents_of(func)
    taken = block_names(func)
    counts = [*factors, extent - sum(factors)]
    variables = tuple(Var(f"{loop.name}_{n}") for n in range(len(counts)))
    inner = _inner_buffers(func, node, what)
    named = {b.name for b in (*func.params, *buffers_of(func))}
    made: list[Node] = []
    start = 0
    for n, (var, count) in enumerate(zip(variables, counts, strict=True)):
        values = {loop: Affine.of(var) + start}
        extents[var] = count
        body = tuple(_copied(child, values, extents, taken, n > 0) for child in node.body)
        part = For(var, count, body)
        made.append(part if n == 0 else _with_buffers(part, inner, named))
        start += count
    result = replace_node(func, node, tuple(made))
    check_kinds(result, func)
    return result, variables


def _inner_buffers(func: PrimFunc, node: For, what: str) -> list[Buffer]:
    """The intermediates that are written and read below the loop, and nowhere else."""
    inside = {id(s.block) for s in sites(node)}
    out: list[Buffer] = []
    for b in buffers_of(node):
        readers, writers = readers_of(func, b), writers_of(func, b)
        if not all(any(id(s.block) in inside for s in users) for users in (readers, writers)):
            continue
        others = [s.block.name for s in (*readers, *writers) if id(s.block) not in inside]
        if others or any(b is p for p in func.params):
            elsewhere = f"by {others[0]}" if others else "by the caller"
            refuse(
                f"{what}: {b.name} is written and read below the loop, and accessed {elsewhere} "
                "as well: a later part would write it after an earlier one read it",
                node,
            )
        out.append(b)
    return out


def _with_buffers(node: Node, buffers: Sequence[Buffer], taken: set[str]) -> Node:
    """The nest with buffers of its own in the place of `buffers`."""
    new: dict[int, Buffer] = {}
    for b in buffers:
        new[id(b)] = replace(b, name=unique_name(taken, b.name))
        taken.add(new[id(b)].name)

    def change(a: Access) -> Access:
        return replace(a, buffer=new[id(a.buffer)]) if id(a.buffer) in new else a

    def visit(b: Block) -> Block:
        return replace(b, reads=tuple(map(change, b.reads)), writes=tuple(map(change, b.writes)))

    return map_blocks(node, visit) if new else node


def _copied(
    node: Node, values: Mapping[Var, Affine], extents: Extents, taken: set[str], is_new: bool
) -> Node:
    """A copy with loops replaced; `is_new`: with variables and names of its own."""
    values = dict(values)
    if isinstance(node, For):
        var = Var(node.var.name) if is_new else node.var
        if is_new:
            values[node.var] = Affine.of(var)
        extents = {**extents, var: node.extent}
        body = tuple(_copied(x, values, extents, taken, is_new) for x in node.body)
        return replace(node, var=var, body=body)
    bindings = tuple(b.substitute(values, extents) for b in node.bindings)
    predicates = tuple(
        Predicate(p.form.substitute(values, extents), p.bound) for p in node.predicates
    )
    changed: Block = replace(node, bindings=bindings, predicates=predicates)
    if not is_new:
        return changed
    fresh = {it.var: Var(it.var.name) for it in node.iters}
    reads, writes, body_ = rewrite_block(
        changed, {old: Affine.of(new) for old, new in fresh.items()}, {}
    )
    name = unique_name(taken, node.name)
    taken.add(name)
    iters = tuple(Iter(fresh[it.var], it.extent, it.kind) for it in node.iters)
    return replace(changed, name=name, iters=iters, reads=reads, writes=writes, body=body_)
