"""The primitive on recurrences that combine: parallel_scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autosched.errors import TensorExprError
from autosched.schedule.body import Reads, Rewriter
from autosched.schedule.check import refuse, require, show
from autosched.schedule.place import block_names, unique_name
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Int, ceildiv, same_int, sometimes
from autosched.tir.expr import Call, Expr, Slot, Var, walk
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Index,
    Iter,
    IterKind,
    Node,
    Predicate,
    PrimFunc,
    Reducer,
    Site,
    buffers_of,
    replace_node,
    site_of,
    sites,
)
from autosched.tir.reducers import KNOWN, known_reducer
from autosched.tir.size import Size


def parallel_scan(func: PrimFunc, block: str, factor: Int) -> tuple[PrimFunc, str, str]:
    """Compute a recurrence that only combines (a cumulative sum, product, maximum or minimum) in
    chunks of `factor` steps that do not wait for each other. (A reduce-then-scan; Halide rfactor of
    an associative update.)

    First every chunk's terms are combined, chunks in parallel; then a recurrence over the chunks,
    `factor` times shorter, fills the last row of each; then every chunk goes through its steps from
    the row before it, chunks in parallel again. It takes about twice the operations, and reads the
    terms twice. Floats are added in another order, as by rfactor.

    Args:
        factor: steps of a chunk, from 2 to one less than there are.

    Returns the new program and the names of the blocks that combine chunks and that carry from
    chunk to chunk. The block keeps its name; its steps become two axes: chunk and step of it. The
    block that carries is such a recurrence again.

    Legality: the block stands in a nest of its own, of plain serial loops, one an axis; its update
    is `add`, `mul`, `max` or `min` of the step before, at the same place, and of terms that do not
    read the state.

    rewrite: (chunks of 4 of 16 steps)
        for t in T.serial(16):             for t_0, t_1 in T.grid(3, 4):
            with T.block("S"):                 with T.block("S_total"):
                S[v + 1] = S[v] + A[v]             S_total[v0] += A[v0 * 4 + v1]
                                           for t_0 in T.serial(3):
                                     ->        with T.block("S_carry"):
                                                   S[v0 * 4 + 4] = S[v0 * 4] + S_total[v0]
                                           for t_0, t_1 in T.grid(4, 3):
                                               with T.block("S"):
                                                   S[v0 * 4 + v1 + 1] = S[v0 * 4 + v1] + A[…]
    """
    what = f"parallel_scan({block})"
    site = site_of(func, block)
    scan = _recognised(site, what)
    steps = scan.axis.extent
    if isinstance(steps, Size):
        refuse(f"{what}: it has the symbolic number of steps {steps}; specialize the function")
    require(factor >= 2, f"{what}: a chunk has at least 2 steps; found {show(factor)}")
    require(
        factor < steps,
        f"{what}: a chunk has fewer than all {show(steps)} steps; found {show(factor)}",
    )
    taken = block_names(func) | {b.name for b in (*func.params, *buffers_of(func))}
    name, carry = (unique_name(taken, f"{block}_{part}") for part in ("total", "carry"))
    # The last chunk, where it is short, hands nothing on.
    shape = (steps // factor, *(it.extent for it in scan.others))
    totals = Buffer(name, shape, site.block.writes[0].buffer.dtype)
    nests = (_totals(scan, totals, factor), _carries(scan, carry, totals, factor))
    changed = replace_node(func, site.loops[0], (*nests, _steps(scan, factor)))
    return changed, name, carry


@dataclass(frozen=True, eq=False)
class _Scan:
    """What a block is known to do: `state` of the step before, combined with `term`."""

    site: Site
    axis: Iter
    reducer: Reducer
    op: str
    state: int
    term: Expr

    @property
    def others(self) -> list[Iter]:
        """The axes that are not the one over steps."""
        return [it for it in self.site.block.iters if it is not self.axis]

    def axes(self, chunks: Int, steps: Int, outer: IterKind, inner: IterKind) -> tuple[Iter, Iter]:
        """An axis over chunks and one over the steps of a chunk."""
        name = self.axis.var.name
        return Iter(Var(f"{name}_0"), chunks, outer), Iter(Var(f"{name}_1"), steps, inner)

    def loop_name(self, axis: Iter) -> str:
        """What the loop over an axis of the block is called."""
        (form,) = (
            b
            for it, b in zip(self.site.block.iters, self.site.block.bindings, strict=True)
            if it is axis
        )
        return next(form.variables()).name


def _recognised(site: Site, what: str) -> _Scan:
    block = site.block
    axis = _axis(site, what)
    if block.reducer is not None or len(block.writes) != 1:
        refuse(f"{what}: a block that writes one state, and reduces nothing, is expected", block)
    state = _state(block, axis, what)
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
    return _Scan(site, axis, reducer, op, state, term)


def _axis(site: Site, what: str) -> Iter:
    """The axis of the steps; all is refused but a nest of plain loops, one an axis."""
    block = site.block
    found = [it for it in block.iters if it.kind == "sequential"]
    if len(found) != 1 or any(it.kind == "reduce" for it in block.iters):
        refuse(f"{what}: expected one sequential axis, the steps, and spatial ones", block)
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
    return found[0]


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


# The three nests


class _Piece:
    """A block in the making: `steps` in place of the axis of steps, and copies of the others."""

    def __init__(self, scan: _Scan, *steps: Iter) -> None:
        self.scan, self.steps = scan, steps
        self.others = [replace(it, var=Var(it.var.name)) for it in scan.others]
        self.reads = Reads()
        first = scan.loop_name(scan.axis)
        self.names = {it.var: f"{first}_{n}" for n, it in enumerate(steps)}
        for old, new in zip(scan.others, self.others, strict=True):
            self.names[new.var] = scan.loop_name(old)

    def at(self, step: Affine) -> Rewriter:
        """What makes accesses and expressions of the old block those of one step."""
        pairs = zip(self.scan.others, self.others, strict=True)
        axes: dict[Var, Index] = {old.var: Affine.of(new.var) for old, new in pairs}
        axes[self.scan.axis.var] = step
        extents = {it.var: it.extent for it in (*self.steps, *self.others)}
        return Rewriter(self.scan.site.block, self.reads, axes, extents)

    def nest(
        self,
        name: str,
        write: Access,
        body: Expr,
        order: Sequence[Iter],
        reducer: Reducer | None = None,
        ends: Predicate | None = None,
    ) -> Node:
        """The block in a loop an axis, in `order`; `ends` is a condition on the axes."""
        loops = {it.var: Var(self.names[it.var]) for it in order}
        forms = {v: Affine.of(x) for v, x in loops.items()}
        predicates = () if ends is None else (Predicate(ends.form.substitute(forms), ends.bound),)
        old = self.scan.site.block
        node: Node = Block(
            name,
            tuple(order),
            tuple(forms[it.var] for it in order),
            predicates,
            tuple(self.reads.accesses),
            (write,),
            (body,),
            reducer,
            annotations=() if name != old.name else old.annotations,
        )
        for it in reversed(order):
            node = For(loops[it.var], it.extent, (node,))
        return node


def _totals(scan: _Scan, totals: Buffer, factor: Int) -> Node:
    """What the steps of each whole chunk come to."""
    chunk, step = scan.axes(totals.shape[0], factor, "spatial", "reduce")
    piece = _Piece(scan, chunk, step)
    made = piece.at(Affine.of(chunk.var, factor) + Affine.of(step.var))
    where = Access(totals, tuple(Affine.of(it.var) for it in (chunk, *piece.others)))
    body = made.expr(scan.term)
    return piece.nest(totals.name, where, body, [chunk, *piece.others, step], scan.reducer)


def _carries(scan: _Scan, name: str, totals: Buffer, factor: Int) -> Node:
    """The last row of each whole chunk, from that of the one before."""
    chunk, _ = scan.axes(totals.shape[0], factor, "sequential", "reduce")
    piece = _Piece(scan, chunk)
    before = Affine.of(chunk.var, factor)
    block = scan.site.block
    state = piece.reads.slot(piece.at(before).access(block.reads[scan.state]))
    where = Access(totals, tuple(Affine.of(it.var) for it in (chunk, *piece.others)))
    body = ex.call(scan.op, state, piece.reads.slot(where))
    last = piece.at(before + (factor - 1)).access(block.writes[0])
    return piece.nest(name, last, body, [chunk, *piece.others])


def _steps(scan: _Scan, factor: Int) -> Node:
    """The other rows of every chunk, each from the one before it."""
    steps = scan.axis.extent
    chunk, step = scan.axes(ceildiv(steps, factor), factor - 1, "spatial", "sequential")
    piece = _Piece(scan, chunk, step)
    at = Affine.of(chunk.var, factor) + Affine.of(step.var)
    made, block = piece.at(at), scan.site.block
    body, write = made.expr(block.body[0]), made.access(block.writes[0])
    ends = Predicate(at, steps) if sometimes(steps % factor != 0) else None
    return piece.nest(block.name, write, body, [chunk, step, *piece.others], ends=ends)
