"""The primitive that keeps what iterations of a loop share: rolling_buffer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autosched.errors import ScheduleError
from autosched.schedule.annotate import written_intermediate
from autosched.schedule.body import rewrite_block
from autosched.schedule.cache import unused_name
from autosched.schedule.check import bare_axes, check_one_program, loop_vars, refuse, show
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
    kind_vars,
    path_to,
    readers_of,
    replace_node,
    site_of,
    writers_of,
)
from autosched.tir.region import Interval, common_loops
from autosched.tir.scope import SHARED
from autosched.tir.verify import faults


@dataclass(frozen=True, eq=False, slots=True)
class _Window:
    """What one iteration of the loop at `depth` reads along an axis: `width` elements from `start`,
    `step` further on than the iteration before."""

    depth: int
    loop: For
    axis: Var
    start: Affine
    step: int
    width: int

    @property
    def kept(self) -> int:
        """Elements that the iteration before has computed."""
        return self.width - self.step

    @property
    def new(self) -> Interval:
        """What it has not."""
        return Interval(self.start + self.kept, self.step)

    @property
    def first(self) -> Interval:
        """What the first iteration shares with the second."""
        return Interval(self.start.substitute({self.loop.var: Affine(0)}), self.kept)


_Ranges = dict[Var, Interval]


def rolling_buffer(
    func: PrimFunc, block: str, index: int, loops: Sequence[Var] = ()
) -> tuple[PrimFunc, str]:
    """Compute at each iteration of a loop only what the iterations before have not: the buffer
    keeps the rest, and is circular along the axis that moves. (TVM rolling_buffer, Halide sliding
    window with fold_storage.)

    Args:
        block: a producer, computed at a loop of its consumer.
        index: which write of the block.
        loops: along which it rolls; without, along the innermost one that can be. Each moves what
            is read along an axis of its own.

    Returns the new program and the name of the block that computes, before the loop, what the first
    iteration shares with the second; of several loops, that of the outermost one. All blocks get
    loops anew: split and vectorize them afterwards. Lowering makes the buffer as small as one
    iteration's window where it proves that nothing is overwritten too early.

    Legality: the block writes its own spatial axes, one a dimension, of one intermediate that is
    not shared by threads, and no one else writes it; all that read it stand in the loop at which
    the block is computed; the loop is serial, and none of them reduces over it or any loop outside
    it. What an iteration reads moves along one axis, forward, by a constant less than its width,
    and no loop inside moves it along that axis. What the block reads is written before the loop, or
    is itself rolled along it, earlier. The steps of the loop then go in order: it stays serial.

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
    check_one_program(func, what)
    site = site_of(func, block)
    buffer = written_intermediate(func, block, index, what)
    readers = _readers(func, site, buffer, what)
    shared = _shared(site, readers, what)
    _check_reduction([site, *readers], shared, what)
    check_inputs(func, site, what)
    bare = replace_node(func, site.block, ())
    path = path_to(bare, shared[-1].var)
    every = [_ranges(bare, site.block, readers, path[: n + 1], what) for n in range(len(path))]
    windows = _windows(every, path, loops, what)
    for s in (site, *readers):
        _check_steps(s, [w.loop for w in windows], what)
    result, names = _rolled(func, bare, site.block, readers, path, every, windows)
    check_kinds(result, func)
    found = faults(result)
    if found:
        refuse(f"{what}: {found[0][1].message}")
    return result, names[0]


def _readers(func: PrimFunc, site: Site, buffer: Buffer, what: str) -> list[Site]:
    """The blocks that read the buffer; refused where others write it."""
    block = site.block
    if len(block.writes) != 1:
        refuse(f"{what}: the block writes {len(block.writes)} buffers; expected one", block)
    if buffer.scope in SHARED:
        refuse(f"{what}: {buffer.name} is shared by threads, which take no turns")
    others = [s.block.name for s in writers_of(func, buffer) if s.block is not block]
    if others:
        refuse(f"{what}: {buffer.name} is also written by {', '.join(others)}")
    readers = readers_of(func, buffer)
    if not readers:
        refuse(f"{what}: nothing reads {buffer.name}")
    return readers


def _shared(site: Site, readers: Sequence[Site], what: str) -> tuple[For, ...]:
    """The loops around the block and all that reads it, of which it is computed at the last."""
    shared = common_loops([site, *readers])
    names = ", ".join(s.block.name for s in readers)
    if not shared:
        refuse(
            f"{what}: no loop is around the block and its consumers, {names}; compute it at a loop "
            "of theirs first"
        )
    for loop in shared:
        if loop.kind == "thread":
            refuse(f"{what}: loop {loop.var.name} is bound to a thread; expected loops of a CPU")
    inner = site.loops[len(shared) :]
    plain = all(x.kind == "serial" and not x.annotations for x in inner)
    if not plain or guards_of(site):
        refuse(
            f"{what}: the loops of the block are made anew; expected serial ones, as compute_at "
            "makes them: vectorize, unroll and annotate afterwards",
            site.block,
        )
    return shared


def _windows(
    every: Sequence[_Ranges], path: Sequence[For], loops: Sequence[Var], what: str
) -> list[_Window]:
    """The windows of the loops to roll along, outermost first."""
    known = [x.var for x in path]
    for v in loops:
        if v not in known:
            have = ", ".join(x.name for x in known)
            refuse(f"{what}: loop {v.name} is not around the block and its consumers; {have} are")
    if loops:
        found = [_window(every, path, n, what) for n, v in enumerate(known) if v in loops]
    else:
        found = [_innermost(every, path, what)]
    for n, w in enumerate(found):
        if any(w.axis is x.axis for x in found[:n]):
            refuse(f"{what}: two of the loops move along {w.axis.name}; roll along one of them")
    return found


def _innermost(every: Sequence[_Ranges], path: Sequence[For], what: str) -> _Window:
    """The window of the innermost loop that has one; refused as the last one is."""
    refusal: ScheduleError | None = None
    for n in reversed(range(len(path))):
        try:
            return _window(every, path, n, what)
        except ScheduleError as e:
            refusal = refusal or e
    assert refusal is not None
    raise refusal


def _check_reduction(both: Sequence[Site], around: Sequence[For], what: str) -> None:
    """No block reduces over a loop around all of them."""
    shared = set(loop_vars(around))
    for s in both:
        over = kind_vars(s.block, "reduce") & shared
        if over:
            refuse(
                f"{what}: {s.block.name} reduces over {min(v.name for v in over)}, which is around "
                "the block and its consumer; choose a loop outside the reduction"
            )


def _check_steps(site: Site, loops: Sequence[For], what: str) -> None:
    """A block has no sequential axis but those of these loops, by which it was rolled before."""
    block = site.block
    rolled = {id(x.var) for x in loops}
    used = {x for e in block.body for x in walk(e) if isinstance(x, Var)}
    for access in (*block.reads, *block.writes):
        for i in access.indices:
            used |= (
                set(i.variables())
                if isinstance(i, Affine)
                else {x for x in walk(i) if isinstance(x, Var)}
            )
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if it.kind == "sequential" and (it.var in used or id(binding.single_var()) not in rolled):
            names = ", ".join(x.var.name for x in loops)
            refuse(
                f"{what}: {block.name} is a stage of a recurrence, or rolled along another loop "
                f"than {names}",
                block,
            )


def _ranges(
    bare: PrimFunc, block: Block, readers: Sequence[Site], path: Sequence[For], what: str
) -> _Ranges:
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
    return needed_ranges(bare, block, [axes], readers, len(path))


def _window(every: Sequence[_Ranges], path: Sequence[For], depth: int, what: str) -> _Window:
    """The axis along which what is read moves with the loop at `depth`."""
    loop, ranges = path[depth], every[-1]
    name = loop.var.name
    if loop.kind != "serial" or loop.annotations:
        refuse(f"{what}: expected loop {name} to be serial and without annotations", loop)
    moving = {v: x for v, x in ranges.items() if x.start.uses([loop.var])}
    if len(moving) != 1:
        found = ", ".join(v.name for v in moving) or "none"
        refuse(
            f"{what}: expected that one iteration of loop {name} reads further on than the one "
            f"before along one axis; axes along which it does: {found}"
        )
    ((axis, interval),) = moving.items()
    inside = [x.var.name for x in path[depth + 1 :] if interval.start.uses([x.var])]
    if inside:
        refuse(f"{what}: loop {inside[0]}, inside loop {name}, moves along {axis.name}, too")
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
    return _Window(depth, loop, axis, interval.start, step, interval.width)


def _is_plain(form: Affine) -> bool:
    """Whether the form has no digits."""
    return all(isinstance(atom, Var) for atom, _ in form.terms)


def _rolled(
    func: PrimFunc,
    bare: PrimFunc,
    block: Block,
    readers: Sequence[Site],
    path: Sequence[For],
    every: Sequence[_Ranges],
    windows: Sequence[_Window],
) -> tuple[PrimFunc, list[str]]:
    """The program with the block's parts in place of it, and the names of those before loops."""
    steps = [w.loop for w in windows]
    (position, *_) = child_with(path[-1].body, [s.block for s in readers])
    step = _stepwise(block, steps)
    new = {**every[-1], **{w.axis: w.new for w in windows}, **_of_steps(step)}
    outer = {x.var: x.extent for x in path}
    result = insert(bare, path[-1].var, position, nest(step, new, (), outer))
    for s in readers:
        changed = site_of(result, s.block.name).block
        result = replace_node(result, changed, (_stepwise(changed, steps),))
    names: list[str] = []
    for n, w in enumerate(windows):
        before = {id(x.loop.var) for x in windows[:n]}
        names.append(unused_name(replace(func, body=result.body), f"{block.name}_first"))
        first, axes = _first(step, names[-1], before)
        early = {**every[w.depth], **{x.axis: x.new for x in windows[:n]}, w.axis: w.first}
        early |= _of_steps(step)
        ranges = {axes[v]: x for v, x in early.items() if v in axes}
        parent = path[w.depth - 1].var if w.depth else None
        around = {x.var: x.extent for x in path[: w.depth]}
        node = path_to(result, w.loop.var)[-1]
        at = next(n for n, x in enumerate(children(result, parent)) if x is node)
        result = insert(result, parent, at, nest(first, ranges, (), around))
    return result, names


def _of_steps(block: Block) -> _Ranges:
    """One step of each axis of a block that is a loop's."""
    return {
        it.var: Interval(b, 1)
        for it, b in zip(block.iters, block.bindings, strict=True)
        if it.kind == _STEP
    }


_STEP: IterKind = "sequential"


def _stepwise(block: Block, loops: Sequence[For]) -> Block:
    """The block with an axis for the steps of each of `loops`, which keeps their order."""
    have = {
        id(b.single_var())
        for it, b in zip(block.iters, block.bindings, strict=True)
        if it.kind == _STEP
    }
    missing = [x for x in loops if id(x.var) not in have]
    return replace(
        block,
        iters=(*(Iter(Var("step"), x.extent, _STEP) for x in missing), *block.iters),
        bindings=(*(Affine.of(x.var) for x in missing), *block.bindings),
    )


def _first(block: Block, name: str, kept: set[int]) -> tuple[Block, dict[Var, Var]]:
    """A copy of the block without axes of steps, but for those of the loops `kept`, and its axes
    by the old ones."""
    pairs = zip(block.iters, block.bindings, strict=True)
    old = [it for it, b in pairs if it.kind != _STEP or id(b.single_var()) in kept]
    axes = {it.var: Var(it.var.name) for it in old}
    reads, writes, body = rewrite_block(block, {v: Affine.of(w) for v, w in axes.items()}, {})
    first = replace(
        block,
        name=name,
        iters=tuple(replace(it, var=axes[it.var]) for it in old),
        bindings=(),
        predicates=(),
        reads=reads,
        writes=writes,
        body=body,
    )
    return first, axes
