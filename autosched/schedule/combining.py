"""Recurrences that only combine: recognised by the form of their update."""

from __future__ import annotations

from dataclasses import dataclass

from autosched.errors import ScheduleError, TensorExprError
from autosched.schedule.check import refuse
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, same_int
from autosched.tir.expr import Call, Expr, Slot, walk
from autosched.tir.nodes import Access, Block, Iter, Reducer, Site, sites
from autosched.tir.reducers import KNOWN, known_reducer


@dataclass(frozen=True, eq=False)
class Combining:
    """What a block is known to do: the element of the step before (its read number `state`),
    combined by `op` with `term`. `axis` runs over the steps."""

    axis: Iter
    reducer: Reducer
    op: str
    state: int
    term: Expr


def combining(block: Block, what: str) -> Combining:
    """How a block combines. Raises ScheduleError, with `what` in front, if it does anything else
    than `add`, `mul`, `max` or `min` of the step before, at the same place, and of terms that do
    not read the state."""
    found = [it for it in block.iters if it.kind == "sequential"]
    if len(found) != 1 or any(it.kind == "reduce" for it in block.iters):
        refuse(f"{what}: expected one sequential axis, the steps, and spatial ones", block)
    if block.reducer is not None or len(block.writes) != 1:
        refuse(f"{what}: a block that writes one state, and reduces nothing, is expected", block)
    state = _state(block, found[0], what)
    value = block.body[0]
    op = value.op if isinstance(value, Call) else ""
    terms = _operands(value, op) if op in KNOWN.values() else [value]
    own = [e for e in terms if isinstance(e, Slot) and e.index == state]
    rest = [e for e in terms if not (isinstance(e, Slot) and e.index == state)]
    if len(own) != 1 or not rest or any(_reads(e, state) for e in rest):
        refuse(
            f"{what}: the update of {block.name} is no sum, product, maximum or minimum of the "
            "step before and of terms without it, so steps cannot be combined in another order",
            block,
        )
    try:
        reducer = known_reducer(next(n for n, o in KNOWN.items() if o == op), value.dtype)
    except TensorExprError as e:
        refuse(f"{what}: {e}", block)
    term = rest[0]
    for more in rest[1:]:
        term = ex.call(op, term, more)
    return Combining(found[0], reducer, op, state, term)


def does_combine(block: Block) -> bool:
    """Whether `combining` knows the block."""
    try:
        combining(block, "")
    except ScheduleError:
        return False
    return True


def check_alone(site: Site, what: str) -> None:
    """Raise ScheduleError unless the block stands in a nest of its own, of plain serial loops, one
    an axis."""
    block = site.block
    visited = [v for v in (b.single_var() for b in block.bindings) if v is not None]
    plain = all(x.kind == "serial" and not x.annotations for x in site.loops)
    alone = bool(site.loops) and len(list(sites(site.loops[0]))) == 1
    one_each = {x.var for x in site.loops} == set(visited) and len(block.iters) == len(visited)
    if block.predicates or not plain or not alone or not one_each:
        refuse(
            f"{what}: {block.name} is expected in a nest of its own, of plain serial loops, one "
            "for each axis; do this before loops are split, bound or moved",
            block,
        )


def _state(block: Block, axis: Iter, what: str) -> int:
    """The number of the read that is the element of the step before."""
    write = block.writes[0]
    mine = [n for n, a in enumerate(block.reads) if a.buffer is write.buffer]
    if len(mine) != 1 or not _is_before(block.reads[mine[0]], write, axis):
        refuse(
            f"{what}: {block.name} is expected to read {write.buffer.name} once, at the same place "
            "of the step before",
            block,
        )
    return mine[0]


def _is_before(read: Access, write: Access, axis: Iter) -> bool:
    along = []
    for x, y in zip(write.indices, read.indices, strict=True):
        if not isinstance(x, Affine) or not isinstance(y, Affine):
            return False
        if not x.uses([axis.var]):
            if not x.same(y):
                return False
            continue
        back = x - y
        if x.single_var() is None and len(x.terms) != 1:
            return False
        if not back.is_const() or not same_int(back.const, x.coefficient(axis.var)):
            return False
        along.append(x)
    return len(along) == 1


def _operands(e: Expr, op: str) -> list[Expr]:
    if isinstance(e, Call) and e.op == op:
        return [x for a in e.args for x in _operands(a, op)]
    return [e]


def _reads(e: Expr, slot: int) -> bool:
    return any(isinstance(x, Slot) and x.index == slot for x in walk(e))
