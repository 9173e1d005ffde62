"""Scans in a single pass: what a nest that `single_pass_scan` has made becomes on a device.

A kernel's blocks take tiles of steps in the order of a ticket, which the first thread of each draws
from a counter in global memory: whoever a block waits for has drawn before it, and so runs already
or has ended, however the device orders its blocks. Of a tile's last row a workspace holds two
values: what the tile comes to by itself, and with all tiles before it. A block hands on the first
as soon as it knows it, walks back over tiles that have handed on theirs, up to one of which the
second is known, and hands on that of its own (Merrill and Garland 2016). A kernel before this one
sets counter and marks to 0, so a launch depends on no other.

What blocks read of others here no barrier orders; the marks do. All else that the kernel touches is
checked for races like in any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from autosched.codegen.gpu.kernel import THREADS
from autosched.errors import CodegenError, ScheduleError
from autosched.schedule.combining import Combining, combining
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, ceildiv
from autosched.tir.annotations import SINGLE_PASS
from autosched.tir.dtypes import INDEX, itemsize
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Iter,
    Node,
    Predicate,
    kind_vars,
    map_blocks,
    sites,
)

WINDOW = 8
"""Tiles before its own whose marks a thread asks for at a time."""
PACKED_BYTES = 4
"""Values of at most so many bytes are one word of 8 bytes with their mark."""


@dataclass(frozen=True, eq=False)
class Lookback:
    """How a kernel scans: `tiles` of `groups` times `rows` steps, each by `across` blocks.

    `words` is the workspace, of int64: the counter, a mark for each tile and column, and, where
    values do not fit beside their marks, two values for each. `of_rows` are numbers of the block's
    predicates that steps decide; the others decide whether there is such a column.
    """

    found: Combining
    tiles: int
    across: int
    group: str
    """The axis of threads that groups are bound to."""
    groups: int
    rows: int
    lanes: tuple[str, ...]
    """The axes of threads along columns."""
    of_rows: tuple[int, ...]
    columns: int
    words: Buffer

    @property
    def packed(self) -> bool:
        """Whether values stand beside their marks."""
        return itemsize(self.found.reducer.combine[0].dtype) <= PACKED_BYTES

    @property
    def marks(self) -> int:
        """Words that have to be 0 in the beginning."""
        return 1 + self.tiles * self.columns


def is_single_pass(root: Node) -> bool:
    """Whether a nest holds a block that is to be scanned in a single pass."""
    return any(s.block.annotation(SINGLE_PASS) for s in sites(root))


def lookback_of(root: Node) -> Lookback:
    """How the nest is scanned. Raises CodegenError where it is not as `single_pass_scan` makes
    it."""
    (site, *others) = sites(root)
    block, loops = site.block, [x for x in site.loops if x.extent != 1]
    what = f"{block.name} is to be scanned in a single pass"
    if others:
        raise CodegenError(f"{what}, but other blocks stand in its nest: give it one of its own")
    try:
        found = combining(block, what)
    except ScheduleError as e:
        raise CodegenError(str(e)) from e
    steps = kind_vars(block, "sequential")
    tile = [x for x in loops if x.var in steps and x.thread == "blockIdx.x"]
    group = [x for x in loops if x.var in steps and x.thread in THREADS]
    rows = [x for x in loops if x.var in steps and x.thread is None]
    rest = [x for x in loops if x.var not in steps]
    extents = [prod(int(x.extent) for x in some) for some in (tile, group, rows)]
    tiles, groups, row = extents
    zeros = {x.var: Affine(0) for x in site.loops if x.extent == 1}
    form = block.values()[found.axis.var].substitute(zeros)
    wanted = Affine(0)
    for some, step in ((tile, groups * row), (group, row), (rows, 1)):
        wanted = wanted + sum((Affine.of(x.var, step) for x in some), Affine(0))
    if (
        max(len(tile), len(group), len(rows)) > 1
        or not form.same(wanted)
        or (tile and loops[0] is not tile[0])
        or (rows and loops[-1] is not rows[0])
        or any(x.allocs for x in site.loops)
        or not all(x.thread == "blockIdx.x" or x.thread in THREADS for x in rest)
        or any(x.thread == g.thread for x in rest for g in group)
    ):
        raise CodegenError(
            f"{what}, but its loops are not those that single_pass_scan makes: tiles of steps and "
            "the other axes on blockIdx.x, groups of steps and columns on threadIdx, and the rows "
            "of a thread innermost"
        )
    columns = prod(int(it.extent) for it in block.iters if it is not found.axis)
    count = tiles * columns
    dtype = block.writes[0].buffer.dtype
    words = 1 + count * (1 if itemsize(dtype) <= PACKED_BYTES else 3)
    return Lookback(
        found,
        tiles,
        prod(int(x.extent) for x in rest if x.thread == "blockIdx.x"),
        str(group[0].thread) if group else "",
        groups,
        row,
        tuple(n for n in THREADS if any(x.thread == n for x in rest)),
        tuple(n for n, p in enumerate(block.predicates) if p.form.uses(steps)),
        columns,
        Buffer(f"{block.name}_tiles", (words,), INDEX),
    )


def resetting(look: Lookback, threads: int) -> Node:
    """The nest that sets the counter and the marks to 0."""
    axis = Iter(Var("v"), look.marks)
    outer = For(Var("block"), ceildiv(look.marks, threads), (), "thread", "blockIdx.x")
    inner = For(Var("thread"), threads, (), "thread", "threadIdx.x")
    form = Affine.of(outer.var, threads) + Affine.of(inner.var)
    ends = () if look.marks % threads == 0 else (Predicate(form, look.marks),)
    write = Access(look.words, (Affine.of(axis.var),))
    name = f"{look.words.name}_reset"
    node: Node = Block(name, (axis,), (form,), ends, (), (write,), (ex.const(0, INDEX),))
    for loop in (inner, outer):
        node = For(loop.var, loop.extent, (node,), loop.kind, loop.thread)
    return node


def parts(body: Sequence[Node]) -> tuple[For | None, Block]:
    """(the loop over a thread's steps, None where it has one; the block) of what threads do."""
    (node,) = body
    if isinstance(node, Block):
        return None, node
    (block,) = node.body
    assert isinstance(block, Block)
    return node, block


def column(look: Lookback, block: Block) -> Affine:
    """The number of the column that a thread is in."""
    out, step = Affine(0), 1
    for it, form in reversed(list(zip(block.iters, block.bindings, strict=True))):
        if it.var is look.found.axis.var or it.kind == "sequential":
            continue
        out = out + form * step
        step *= int(it.extent)
    return out


def shared_bytes(look: Lookback, threads: int) -> int:
    """Shared memory of a block: the ticket, what groups come to, and what stands before them."""
    size = max(4, itemsize(look.found.reducer.combine[0].dtype))
    return 8 + (threads + threads // look.groups) * size if look.groups > 1 else 8


def without_state(body: Sequence[Node], look: Lookback) -> tuple[Node, ...]:
    """`body` as far as the checker of races has to know it: without what blocks hand on."""
    state = look.found.state

    def change(block: Block) -> Block:
        return replace(block, reads=block.reads[:state] + block.reads[state + 1 :])

    return tuple(map_blocks(node, change) for node in body)
