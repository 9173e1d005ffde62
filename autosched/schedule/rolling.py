"""The primitive that keeps what iterations of a loop share: rolling_buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autosched.errors import NotBatchable
from autosched.schedule.annotate import written_intermediate
from autosched.schedule.body import rewrite_block
from autosched.schedule.cache import unused_name
from autosched.schedule.check import bare_axes, extents_of, is_array, loop_vars, refuse, show
from autosched.schedule.compute import check_inputs, needed_ranges
from autosched.schedule.kinds import check_kinds
from autosched.schedule.place import child_with, children, guards_of, insert, nest
from autosched.tir.affine import Affine
from autosched.tir.expr import Var, walk
from autosched.tir.nodes import (
    Block,
    Buffer,
    For,
    Iter,
    IterKind,
    PrimFunc,
    Site,
    buffers_of,
    kind_vars,
    path_to,
    readers_of,
    replace_node,
    site_of,
    writers_of,
)
from autosched.tir.region import Interval, common_loops
from autosched.tir.verify import faults


@dataclass(frozen=True, eq=False, slots=True)
class _Window:
    """What one iteration of a loop reads along an axis: `width` elements, `step` further on than
    the iteration before."""

    axis: Var
    step: int
    width: int

    @property
    def kept(self) -> int:
        """Elements that the iteration before has computed."""
        return self.width - self.step


def rolling_buffer(func: PrimFunc, block: str, index: int) -> tuple[PrimFunc, str]:
    """Compute at each iteration of a loop only what the iterations before have not: the buffer
    keeps the rest, and is circular along the axis that moves. (TVM rolling_buffer, Halide sliding
    window with fold_storage.)

    Args:
        block: a producer, computed at a loop of its consumer.
        index: which write of the block.

    Returns the new program and the name of the block that computes, before the loop, what the first
    iteration shares with the second. Both blocks get loops anew: split and vectorize them
    afterwards. Lowering makes the buffer as small as one iteration's window where it proves that
    nothing is overwritten too early.

    Legality: the block writes its own spatial axes, one a dimension, of one intermediate that is
    not shared by threads, and no one else writes it; one block reads it, in the innermost loop
    around both; that loop is serial, and neither block reduces over it or any loop outside it. What
    an iteration reads moves along one axis, forward, by a constant less than its width. What the
    block reads is written before the loop, or is itself rolled along it, earlier. The steps of the
    loop then go in order: it stays serial.

    rewrite:
                                                    for ax0 in T.serial(2):
                                                        with T.block("B_first"):
        for i in T.serial(8):                               B[v0] = A[v0] + 1
            for ax0 in T.serial(3):                 for i in T.serial(8):
                with T.block("B"):                      for ax0 in T.serial(1):
                    vi = spatial(10, i + ax0)             with T.block("B"):
                    B[vi] = A[vi] + 1          ->             vi = spatial(10, i + 2 + ax0)
            for k in T.serial(3):                             B[vi] = A[vi] + 1
                with T.block("C"):                      for k in T.serial(3):
                    C[vi] += B[vi + vk]                     with T.block("C"): …
    """
    what = f"rolling_buffer({block})"
    _check_numbers(func, what)
    site = site_of(func, block)
    buffer = written_intermediate(func, block, index, what)
    reader = _reader(func, site, buffer, what)
    loop = _loop(site, reader, what)
    _check_reduction(site, reader, what)
    _check_steps(site, loop, what)
    _check_steps(reader, loop, what)
    check_inputs(func, site, what)
    bare = replace_node(func, site.block, ())
    path = path_to(bare, loop.var)
    ranges = _ranges(bare, site.block, reader, path, what)
    window = _window(ranges, loop, what)
    name = unused_name(func, f"{block}_first")
    result = _rolled(bare, site.block, reader, path, ranges, window, name)
    check_kinds(result, func)
    found = faults(result)
    if found:
        refuse(f"{what}: {found[0][1].message}")
    return result, name


def _check_numbers(func: PrimFunc, what: str) -> None:
    """Raise NotBatchable for a population: what is right is verified, of one program."""
    shapes = [n for b in buffers_of(func) for n in (*b.shape, *(x for a in b.align for x in a))]
    if is_array(*extents_of(func).values(), *shapes):
        raise NotBatchable(f"{what}: what iterations share is found for one candidate at a time")


def _reader(func: PrimFunc, site: Site, buffer: Buffer, what: str) -> Site:
    """The one block that reads the buffer; refused where others access it."""
    block = site.block
    if len(block.writes) != 1:
        refuse(f"{what}: the block writes {len(block.writes)} buffers; expected one", block)
    if buffer.scope == "shared":
        refuse(f"{what}: {buffer.name} is shared by threads, which take no turns")
    others = [s.block.name for s in writers_of(func, buffer) if s.block is not block]
    if others:
        refuse(f"{what}: {buffer.name} is also written by {', '.join(others)}")
    readers = readers_of(func, buffer)
    if len(readers) != 1:
        found = ", ".join(s.block.name for s in readers) or "none"
        refuse(f"{what}: expected one block that reads {buffer.name}; found {found}")
    return readers[0]


def _loop(site: Site, reader: Site, what: str) -> For:
    """The loop that the block is computed at: the innermost around it and its reader."""
    shared = common_loops([site, reader])
    if not shared:
        refuse(
            f"{what}: no loop is around the block and its consumer {reader.block.name}; compute it "
            "at a loop of the consumer first"
        )
    for loop in shared:
        if loop.kind == "thread":
            refuse(f"{what}: loop {loop.var.name} is bound to a thread; expected loops of a CPU")
    loop = shared[-1]
    if loop.kind != "serial" or loop.annotations:
        refuse(f"{what}: expected loop {loop.var.name} to be serial and without annotations", loop)
    inner = site.loops[len(shared) :]
    plain = all(x.kind == "serial" and not x.annotations for x in inner)
    if not plain or guards_of(site):
        refuse(
            f"{what}: the loops of the block are made anew; expected serial ones, as compute_at "
            "makes them: vectorize, unroll and annotate afterwards",
            site.block,
        )
    return loop


def _check_reduction(site: Site, reader: Site, what: str) -> None:
    """Neither block reduces over a loop around both."""
    shared = set(loop_vars(common_loops([site, reader])))
    for s in (site, reader):
        over = kind_vars(s.block, "reduce") & shared
        if over:
            refuse(
                f"{what}: {s.block.name} reduces over {min(v.name for v in over)}, which is around "
                "the block and its consumer; choose a loop outside the reduction"
            )


def _check_steps(site: Site, loop: For, what: str) -> None:
    """A block has no sequential axis but that of this loop, by which it was rolled before."""
    block = site.block
    used = {x for e in block.body for x in walk(e) if isinstance(x, Var)}
    for access in (*block.reads, *block.writes):
        for i in access.indices:
            used |= (
                set(i.variables())
                if isinstance(i, Affine)
                else {x for x in walk(i) if isinstance(x, Var)}
            )
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "sequential" and (it.var in used or binding.single_var() is not loop.var):
            refuse(
                f"{what}: {block.name} is a stage of a recurrence, or rolled along another loop "
                f"than {loop.var.name}",
                block,
            )


def _ranges(
    bare: PrimFunc, block: Block, reader: Site, path: Sequence[For], what: str
) -> dict[Var, Interval]:
    """What one iteration of the innermost loop of `path` needs, along each axis of the block."""
    (write,) = block.writes
    axes = bare_axes(block, write)
    spatial = {it.var for it in block.iters if it.kind == "spatial"}
    if axes is None or set(axes) != spatial:
        refuse(
            f"{what}: the block must write its own spatial axes, one for each dimension of "
            f"{write.buffer.name}",
            block,
        )
    return needed_ranges(bare, block, [axes], [reader], len(path))


def _window(ranges: Mapping[Var, Interval], loop: For, what: str) -> _Window:
    """The axis along which what is read moves with the loop."""
    name = loop.var.name
    moving = {v: x for v, x in ranges.items() if x.start.uses([loop.var])}
    if len(moving) != 1:
        found = ", ".join(v.name for v in moving) or "none"
        refuse(
            f"{what}: expected that one iteration of loop {name} reads further on than the one "
            f"before along one axis; axes along which it does: {found}"
        )
    ((axis, interval),) = moving.items()
    step, rest = interval.start.coefficient(loop.var), interval.start.split([loop.var])[1]
    if not isinstance(step, int) or not isinstance(interval.width, int) or not _is_plain(rest):
        refuse(f"{what}: the step along {axis.name} and its width are no constants")
    if not 0 < step < interval.width:
        refuse(
            f"{what}: an iteration of loop {name} reads {interval.width} elements along "
            f"{axis.name}, {step} further on than the one before; iterations share elements where "
            "that is more than 0 and less than what they read"
        )
    if not isinstance(loop.extent, int) or loop.extent < 2:
        refuse(f"{what}: loop {name} has {show(loop.extent)} iterations; expected at least 2")
    return _Window(axis, step, interval.width)


def _is_plain(form: Affine) -> bool:
    """Whether the form has no digits."""
    return all(isinstance(atom, Var) for atom, _ in form.terms)


def _rolled(
    bare: PrimFunc,
    block: Block,
    reader: Site,
    path: Sequence[For],
    ranges: Mapping[Var, Interval],
    window: _Window,
    name: str,
) -> PrimFunc:
    """The program with the block's two parts in place of it."""
    loop = path[-1]
    outer = {x.var: x.extent for x in path}
    (position,) = child_with(loop.body, [reader.block])
    start = ranges[window.axis].start
    step = _stepwise(block, loop)
    new = dict(ranges)
    new[window.axis] = Interval(start + window.kept, window.step)
    new |= {it.var: Interval(Affine.of(loop.var), 1) for it in step.iters if it.kind == _STEP}
    result = insert(bare, loop.var, position, nest(step, new, (), outer))
    changed = site_of(result, reader.block.name).block
    result = replace_node(result, changed, (_stepwise(changed, loop),))
    first, axes = _first(block, name)
    early = dict(ranges)
    early[window.axis] = Interval(start.substitute({loop.var: Affine(0)}), window.kept)
    early = {axes[v]: x for v, x in early.items() if v in axes}
    parent = path[-2].var if len(path) > 1 else None
    around = {x.var: x.extent for x in path[:-1]}
    node = path_to(result, loop.var)[-1]
    at = next(n for n, x in enumerate(children(result, parent)) if x is node)
    return insert(result, parent, at, nest(first, early, (), around))


_STEP: IterKind = "sequential"


def _stepwise(block: Block, loop: For) -> Block:
    """The block with an axis for the steps of `loop`, which keeps their order."""
    if any(it.kind == _STEP for it in block.iters):
        return block
    axis = Iter(Var("step"), loop.extent, _STEP)
    return replace(
        block, iters=(axis, *block.iters), bindings=(Affine.of(loop.var), *block.bindings)
    )


def _first(block: Block, name: str) -> tuple[Block, dict[Var, Var]]:
    """A copy of the block without an axis of steps, and its axes by the old ones."""
    axes = {it.var: Var(it.var.name) for it in block.iters if it.kind != _STEP}
    reads, writes, body = rewrite_block(block, {v: Affine.of(w) for v, w in axes.items()}, {})
    iters = tuple(replace(it, var=axes[it.var]) for it in block.iters if it.var in axes)
    first = replace(
        block,
        name=name,
        iters=iters,
        bindings=(),
        predicates=(),
        reads=reads,
        writes=writes,
        body=body,
    )
    return first, axes
