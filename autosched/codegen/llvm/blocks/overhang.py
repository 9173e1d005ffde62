"""Elements that no point of a program writes: what hangs over the end of a padded copy.

They hold no defined value, but vectors read them beside others. What other kernels have left there,
read as float32, may be a subnormal number, and a multiplication by one takes a hundred times as
long as by another.
"""

from __future__ import annotations

from collections.abc import Iterable

from autosched.tir.affine import Affine
from autosched.tir.expr import Var
from autosched.tir.nodes import Block, Predicate


def may_fill(block: Block, blocks: Iterable[Block], params: Iterable[object]) -> bool:
    """Whether a point at which the predicates do not hold may write its element all the same, if
    that exists: nothing else writes it."""
    if block.reducer is not None or len(block.writes) != 1 or not block.predicates:
        return False
    (written,) = block.writes
    buffer = written.buffer
    if any(p is buffer for p in params) or any(a.buffer is buffer for a in block.reads):
        return False
    writers = [b for b in blocks if any(a.buffer is buffer for a in b.writes)]
    if len(writers) != 1 or any(it.kind != "spatial" for it in block.iters):
        return False
    named = [i.single_var() if isinstance(i, Affine) else None for i in written.indices]
    # An axis of one point that the write does not name may still follow a loop: each iteration of
    # it then writes the same elements.
    bound = zip(block.iters, block.bindings, strict=True)
    axes = [it.var for it, binding in bound if it.extent != 1 or not binding.is_const()]
    if not all(sum(v is axis for v in named) == 1 for axis in axes):
        return False
    return all(_of_axes(p, block) for p in block.predicates)


def _of_axes(p: Predicate, block: Block) -> bool:
    """Whether a predicate is a condition on the axes, and so the same at all points of an
    element."""
    rest = p.form
    for number, binding in enumerate(block.bindings):
        var = _own(binding, [b for n, b in enumerate(block.bindings) if n != number])
        if var is None:
            continue
        theirs, mine = rest.coefficient(var), binding.coefficient(var)
        if not isinstance(theirs, int) or not isinstance(mine, int) or theirs % mine:
            return False
        rest = rest - binding * (theirs // mine)
    return not rest.terms


def _own(binding: Affine, others: list[Affine]) -> Var | None:
    """A loop that this axis alone follows."""
    found = (v for v in binding.variables() if not any(o.uses([v]) for o in others))
    return next((v for v in found if binding.single_var() is v or binding.coefficient(v)), None)
