"""Simplification of programs: the one place that knows when a loop, a predicate or part of an
expression is not needed.

Lowering uses the two cheap steps on every candidate (`drop_unit_loops`, `simplify_forms`); the pass
`autosched.passes.simplify` does everything (`simplify`). None changes a result, not by a bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Int, always, same_int, sometimes
from autosched.tir.expr import Expr, Slot, Var
from autosched.tir.fold import fold
from autosched.tir.from_expr import from_expr
from autosched.tir.nodes import Access, Block, For, Index, Node, Predicate, PrimFunc, map_blocks
from autosched.tir.prove import Facts


def simplify(func: PrimFunc) -> PrimFunc:
    """`func` without unit loops, needless predicates, and what constants and ranges decide.

    Loops bound to a GPU axis stay; an annotation of a unit loop goes with it. Extents are no
    arrays (a population has none).
    """
    func = simplify_forms(drop_unit_loops(func))
    return replace(func, body=tuple(_simplify_blocks(node, {}) for node in func.body))


def drop_unit_loops(func: PrimFunc) -> PrimFunc:
    """`func` without the loops of one iteration, whose variables become 0."""
    zeros: dict[Var, Affine] = {}

    def visit(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Block):
            return (node,)
        body = tuple(x for child in node.body for x in visit(child))
        if same_int(node.extent, 1) and not node.allocs and node.kind != "thread":
            zeros[node.var] = Affine(0)
            return body
        return (replace(node, body=body),)

    body = tuple(x for node in func.body for x in visit(node))
    if zeros:
        body = tuple(map_blocks(node, lambda b: substitute_loops(b, zeros)) for node in body)
    return replace(func, body=body)


def substitute_loops(block: Block, values: Mapping[Var, Affine]) -> Block:
    """`block` with loop variables replaced in bindings, predicates and accesses."""
    exprs: dict[Var, Expr] = {v: f.to_expr() for v, f in values.items()}

    def access(a: Access) -> Access:
        return Access(
            a.buffer,
            tuple(
                i.substitute(values) if isinstance(i, Affine) else ex.substitute(i, exprs)
                for i in a.indices
            ),
        )

    return replace(
        block,
        bindings=tuple(b.substitute(values) for b in block.bindings),
        predicates=tuple(Predicate(p.form.substitute(values), p.bound) for p in block.predicates),
        reads=tuple(access(a) for a in block.reads),
        writes=tuple(access(a) for a in block.writes),
    )


def simplify_forms(func: PrimFunc) -> PrimFunc:
    """`func` with digits resolved where the extents of the loops allow it, and without predicates
    that always hold and blocks whose predicates never do."""
    return replace(func, body=tuple(x for node in func.body for x in _forms(node, {})))


def _forms(node: Node, extents: Mapping[Var, Int]) -> tuple[Node, ...]:
    if isinstance(node, For):
        inside = {**extents, node.var: node.extent}
        body = tuple(x for child in node.body for x in _forms(child, inside))
        return (replace(node, body=body),) if body else ()
    bindings = tuple(b.substitute({}, extents) for b in node.bindings)
    predicates: list[Predicate] = []
    for p in node.predicates:
        form = p.form.substitute({}, extents)
        low, high = form.span(extents)
        if always(low >= p.bound):
            return ()
        if sometimes(high >= p.bound) and not any(
            same_int(p.bound, q.bound) and form.same(q.form) for q in predicates
        ):
            predicates.append(Predicate(form, p.bound))
    return (replace(node, bindings=bindings, predicates=tuple(predicates)),)


def _simplify_blocks(node: Node, extents: Mapping[Var, Int]) -> Node:
    if isinstance(node, For):
        inside = {**extents, node.var: node.extent}
        return replace(node, body=tuple(_simplify_blocks(child, inside) for child in node.body))
    known = {**extents, **{it.var: it.extent for it in node.iters}}
    facts = Facts(known, reads=node.reads)

    def access(a: Access) -> Access:
        return Access(a.buffer, tuple(_index(i, facts, known) for i in a.indices))

    return prune_reads(
        replace(
            node,
            body=tuple(fold(e, facts) for e in node.body),
            reads=tuple(access(a) for a in node.reads),
            writes=tuple(access(a) for a in node.writes),
        )
    )


def _index(index: Index, facts: Facts, extents: Mapping[Var, Int]) -> Index:
    if isinstance(index, Affine):
        return index.substitute({}, extents)
    folded = fold(index, facts)
    form = from_expr(folded, lambda v: v in extents)
    return folded if form is None else form.substitute({}, extents)


def prune_reads(block: Block) -> Block:
    """`block` without the reads that neither its values nor its indices use."""
    used: set[int] = set()
    writes = [i for a in block.writes for i in a.indices if isinstance(i, Expr)]
    waiting: list[Expr] = [*block.body, *writes]
    while waiting:
        for e in ex.walk(waiting.pop()):
            if isinstance(e, Slot) and e.index not in used:
                used.add(e.index)
                indices = block.reads[e.index].indices
                waiting += [i for i in indices if isinstance(i, Expr)]
    if len(used) == len(block.reads):
        return block
    number = {old: new for new, old in enumerate(sorted(used))}

    def renumber(e: Expr) -> Expr:
        return ex.rewrite(
            e, lambda x: Slot(number[x.index], x.dtype) if isinstance(x, Slot) else None
        )

    def access(a: Access) -> Access:
        indices = tuple(renumber(i) if isinstance(i, Expr) else i for i in a.indices)
        return Access(a.buffer, indices)

    return replace(
        block,
        reads=tuple(access(block.reads[n]) for n in sorted(used)),
        writes=tuple(access(a) for a in block.writes),
        body=tuple(renumber(e) for e in block.body),
    )
