"""The primitive that scans in a single pass on a GPU: single_pass_scan."""

from __future__ import annotations

from dataclasses import replace

from autosched.schedule.annotate import with_annotations
from autosched.schedule.check import refuse, require, show
from autosched.schedule.combining import check_alone, combining
from autosched.tir.affine import Affine, Int, ceildiv, sometimes
from autosched.tir.annotations import SINGLE_PASS
from autosched.tir.expr import Var
from autosched.tir.nodes import Block, For, Iter, Node, Predicate, PrimFunc, replace_node, site_of
from autosched.tir.size import Size


def single_pass_scan(
    func: PrimFunc, block: str, rows: Int, groups: Int, columns: Int
) -> tuple[PrimFunc, list[Var]]:
    """Compute a recurrence that only combines (a cumulative sum, product, maximum or minimum) in
    one pass over memory, on a GPU. (Decoupled look-back: Merrill and Garland, Single-pass Parallel
    Prefix Scan with Decoupled Look-back, 2016.)

    Blocks of threads take tiles of `rows * groups` steps and `columns` elements of the last other
    axis, in order; a thread has `rows` steps of one column in registers. What a tile comes to is
    handed from block to block through global memory, while the tiles themselves are computed in
    parallel. As the program is written, the tiles still come one after the other.
    Floats are added in another order, as by rfactor.

    Args:
        rows: steps of a thread, one register each.
        groups: threads that share the steps of a tile.
        columns: threads along the last other axis; 1 if there is none.

    Returns the new program and its loops, from the outside: tiles of steps, the other axes (the
    last one in tiles), groups, columns of a tile (both of the latter where there is another axis),
    rows.

    Legality: as for `parallel_scan`. The loops that it binds stay bound as they are.

    rewrite: (rows 2, groups 3, columns 32)
        for t, j in T.grid(24, 64):      for t_0 in T.thread_binding(4, thread="blockIdx.x"):
            with T.block("S"):            for j_0 in T.thread_binding(2, thread="blockIdx.x"):
                S[v + 1, j] = S[v, j]  ->  for t_1 in T.thread_binding(3, thread="threadIdx.y"):
                    + A[v, j]               for j_1 in T.thread_binding(32, thread="threadIdx.x"):
                                             for t_2 in T.unroll(2):
                                                 with T.block("S"):
                                                     T.block_attr({'single_pass': True})
    """
    what = f"single_pass_scan({block})"
    site = site_of(func, block)
    found = combining(site.block, what)
    check_alone(site, what)
    steps = found.axis.extent
    if isinstance(steps, Size):
        refuse(f"{what}: it has the symbolic number of steps {steps}; specialize the function")
    for name, value in (("rows", rows), ("groups", groups), ("columns", columns)):
        require(value >= 1, f"{what}: {name} is at least 1; found {show(value)}")
    others = [it for it in site.block.iters if it is not found.axis]
    if not others:
        require(columns == 1, f"{what}: there is no other axis, so columns is 1")
    nest = _Nest(site.block)
    tile = rows * groups
    step = nest.bound(found.axis, "_0", ceildiv(steps, tile), "blockIdx.x") * tile
    for it in others[:-1]:
        nest.forms[it.var] = nest.bound(it, "", it.extent, "blockIdx.x")
    column = Affine(0)
    if others:
        wide = ceildiv(others[-1].extent, columns)
        column = nest.bound(others[-1], "_0", wide, "blockIdx.x") * columns
    group = nest.bound(found.axis, "_1", groups, "threadIdx.y" if others else "threadIdx.x")
    if others:
        column = column + nest.bound(others[-1], "_1", columns, "threadIdx.x")
        nest.ending(others[-1], column, columns)
    nest.ending(found.axis, step + group * rows + nest.rows(found.axis, rows), tile)
    return replace_node(func, site.loops[0], (nest.node(),)), [x.var for x in nest.loops]


class _Nest:
    """A block, its loops in the making, and what they make of its axes."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.loops: list[For] = []
        self.forms: dict[Var, Affine] = {}
        self.ends: list[Predicate] = []

    def bound(self, axis: Iter, suffix: str, extent: Int, thread: str) -> Affine:
        """A loop bound to a GPU axis, named after the one there is over `axis`."""
        var = Var(self._name(axis) + suffix)
        self.loops.append(For(var, extent, (), "thread", thread))
        return Affine.of(var)

    def rows(self, axis: Iter, extent: Int) -> Affine:
        """The unrolled loop over the steps of a thread."""
        var = Var(f"{self._name(axis)}_2")
        self.loops.append(For(var, extent, (), "unrolled"))
        return Affine.of(var)

    def ending(self, axis: Iter, form: Affine, tile: Int) -> None:
        """`axis` is `form`, which ends with it where tiles overhang."""
        self.forms[axis.var] = form
        if sometimes(axis.extent % tile != 0):
            self.ends.append(Predicate(form, axis.extent))

    def node(self) -> Node:
        """The nest."""
        forms = tuple(self.forms[it.var] for it in self.block.iters)
        block = replace(self.block, bindings=forms, predicates=tuple(self.ends))
        node: Node = with_annotations(block, {SINGLE_PASS: True})
        for loop in reversed(self.loops):
            node = replace(loop, body=(node,))
        return node

    def _name(self, axis: Iter) -> str:
        pairs = zip(self.block.iters, self.block.bindings, strict=True)
        return next(v.name for it, form in pairs if it is axis for v in form.variables())
