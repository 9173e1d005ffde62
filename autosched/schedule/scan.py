"""The primitive on recurrences that combine: parallel_scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autosched.schedule.body import Reads, Rewriter
from autosched.schedule.check import refuse, require, show
from autosched.schedule.combining import Combining, check_alone, combining
from autosched.schedule.place import block_names, unique_name
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Int, ceildiv, sometimes
from autosched.tir.expr import Expr, Var
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
)
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
    scan = _Scan(site, combining(site.block, what))
    check_alone(site, what)
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
    """A block in a nest of its own, and what it is known to do."""

    site: Site
    found: Combining

    @property
    def axis(self) -> Iter:
        """The axis over steps."""
        return self.found.axis

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
    body = made.expr(scan.found.term)
    return piece.nest(totals.name, where, body, [chunk, *piece.others, step], scan.found.reducer)


def _carries(scan: _Scan, name: str, totals: Buffer, factor: Int) -> Node:
    """The last row of each whole chunk, from that of the one before."""
    chunk, _ = scan.axes(totals.shape[0], factor, "sequential", "reduce")
    piece = _Piece(scan, chunk)
    before = Affine.of(chunk.var, factor)
    block = scan.site.block
    state = piece.reads.slot(piece.at(before).access(block.reads[scan.found.state]))
    where = Access(totals, tuple(Affine.of(it.var) for it in (chunk, *piece.others)))
    body = ex.call(scan.found.op, state, piece.reads.slot(where))
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
