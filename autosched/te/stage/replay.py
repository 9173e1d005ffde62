"""The calls of a stage view, done on one `Schedule`.

Copies and partial results first, in the order in which they were asked for, while every
computation stands in a loop nest of its own; then what is inlined; then the loops, consumers
first, so that a producer finds the loop that it is computed at, and which threads run it; then what
is rolled, producers first; last how the other loops run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from autosched.checks import shown
from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, LoopRV, Schedule
from autosched.schedule.tensorize import accumulates_in_init
from autosched.te.prim_func import translate
from autosched.te.stage.nest import Fuse, LoopCall, Split, names
from autosched.te.stage.schedule import CacheRead, CacheWrite, RFactor, StageSchedule
from autosched.te.stage.stage import Stage
from autosched.te.stage.thread import ThreadAxis
from autosched.te.tensor import ComputeOp, IterVar, PlaceholderOp, ScanOp, Tensor
from autosched.tir.annotations import HINTS, KEYS
from autosched.tir.intrin import TensorIntrin
from autosched.tir.nodes import sites

_ORDER = {"tensorize": 0, "unroll": 1, "parallel": 2, "vectorize": 2}
"""A vectorised loop may only have unrolled loops below it, so those come first."""


def replay(view: StageSchedule, args: Sequence[Tensor] | None, name: str) -> Schedule:
    """See `StageSchedule.replay`."""
    params = _params(view, args)
    func, blocks = translate(params, name)
    run = _Replay(view, Schedule(func), {view[op]: b for op, b in blocks.items()}, params)
    run.edits()
    for stage in view.stages:
        if stage.inlined:
            run.inline(stage)
    for stage in reversed(view.stages):
        if not stage.inlined and not isinstance(stage.op, PlaceholderOp):
            run.place(stage)
    for stage in view.stages:
        if stage.rolls:
            run.roll(stage)
    for stage in view.stages:
        run.finish(stage)
    return run.sch


def _params(view: StageSchedule, args: Sequence[Tensor] | None) -> list[Tensor]:
    if args is None:
        inputs = [
            view.tensor(op)
            for op in view.originals
            if isinstance(op, PlaceholderOp) and not view.is_state(op)
        ]
        return inputs + [
            view.tensor(op, n)
            for op in view.originals
            if not isinstance(op, PlaceholderOp) and view.is_output(view[op])
            for n in range(op.num_outputs)
        ]
    if not isinstance(args, (list, tuple)):
        raise ScheduleError(f"args is {shown(args)}; expected a list of tensors")
    for t in args:
        if not isinstance(t, Tensor):
            raise ScheduleError(f"args: expected tensors, found {t!r}")
        if not isinstance(t.op, PlaceholderOp) and all(t.op is not op for op in view.originals):
            known = ", ".join(op.name for op in view.originals)
            raise ScheduleError(
                f"args: {t.name} is none of the tensors that the schedule was created for "
                f"({known}); copies and partial results are no parameters"
            )
    for op in view.originals:
        if view.is_output(view[op]) and all(t.op is not op for t in args):
            listed = ", ".join(t.name for t in args) or "nothing"
            raise ScheduleError(
                f"args: the output {op.name} of the schedule is not among {listed}; add its tensor"
            )
    return list(args)


class _Replay:
    """One run over the calls.

    A block's axes are those of its stage's operation, in their order; so are its loops until a call
    changes them.
    """

    def __init__(
        self,
        view: StageSchedule,
        sch: Schedule,
        blocks: dict[Stage, str],
        params: Sequence[Tensor],
    ) -> None:
        self.view, self.sch = view, sch
        self.blocks: dict[Stage, BlockRV] = {s: sch.get_block(b) for s, b in blocks.items()}
        self.inputs = {
            view[t]: b.name
            for t, b in zip(params, sch.func.params, strict=True)
            if isinstance(t.op, PlaceholderOp) and t.op in view.originals
        }
        self.loops: dict[Stage, dict[IterVar, LoopRV]] = {}
        self.virtual: list[ThreadAxis] = []

    # Copies and partial results

    def edits(self) -> None:
        """All of them."""
        for edit in self.view.edits:
            if isinstance(edit, CacheRead):
                self._cache_read(edit)
            elif isinstance(edit, CacheWrite):
                self._cache_write(edit)
            else:
                self._rfactor(edit)

    def _cache_read(self, edit: CacheRead) -> None:
        with _blame(f"s.cache_read({edit.source.name}, {edit.scope!r})"):
            first, *others = (self.blocks[s] for s in edit.readers)
            buffer = self._buffer(edit.source, edit.index)
            self.blocks[edit.copy] = self.sch.cache_read(
                first, buffer, edit.scope, consumers=others
            )

    def _buffer(self, stage: Stage, index: int) -> str:
        if stage in self.inputs:
            return self.inputs[stage]
        if isinstance(stage.op, ScanOp):
            update = stage.op.update[index]
            stage, index = self.view[update], update.value_index
        return self.sch.get(self.blocks[stage]).writes[index].buffer.name

    def _cache_write(self, edit: CacheWrite) -> None:
        stage, cache = edit.stage, edit.cache
        with _blame(f"s.cache_write({stage.name}, {edit.scope!r})"):
            outputs = cache.op.num_outputs if isinstance(cache.op, ComputeOp) else 1
            every = 0 if outputs == 1 else list(range(outputs))
            made = self.sch.cache_write(self.blocks[stage], every, edit.scope)
        # The block that computes keeps its name; the new one copies.
        self.blocks[cache], self.blocks[stage] = self.blocks[stage], made

    def _rfactor(self, edit: RFactor) -> None:
        stage, partial = edit.stage, edit.partial
        with _blame(f"s.rfactor({stage.name}, {edit.axis.name})"):
            spatial = list(stage.op.axis)
            rest = [a for a in edit.leaves if a is not edit.axis]
            loops = self._around(stage, [*spatial, *edit.reduced])
            self._apply(edit.calls, loops)
            # With the reduction loops outermost the two computations share no loop.
            self._order(loops, [*edit.leaves, *spatial])
            self.blocks[partial] = self.sch.rfactor(loops[edit.axis], edit.factor_axis)
            spatial.insert(edit.factor_axis, edit.axis)
            self._order(loops, [*spatial, *rest])

    # Places and loops

    def inline(self, stage: Stage) -> None:
        """Put the stage's expression into its readers."""
        what = f"s[{stage.name}].compute_inline()"
        if (
            stage.nest.calls
            or stage.marks
            or stage.pragmas
            or stage.scope is not None
            or stage.doubled
            or stage.aligned
            or stage.layouts
            or stage.rolls
        ):
            raise ScheduleError(
                f"{what}: other calls schedule the loops of stage {stage.name}, which has none "
                "when it is inlined; drop one or the other"
            )
        with _blame(what):
            self.sch.compute_inline(self.blocks[stage])

    def place(self, stage: Stage) -> None:
        """Move the stage to where it is computed and make its loops."""
        if stage.attach is not None:
            parent, axis = stage.attach.stage, stage.attach.axis
            what = f"s[{stage.name}].compute_at(s[{parent.name}], {axis.name})"
            if parent.inlined:
                raise ScheduleError(f"{what}: stage {parent.name} is inlined and has no loops")
            if not parent.nest.owns(axis):
                raise ScheduleError(
                    f"{what}: the loops of stage {parent.name} were made anew; they are "
                    f"{names(parent.nest.leaves)}"
                )
            parent.nest.require_leaf(axis, what)
            if parent.rolls:
                raise ScheduleError(
                    f"{what}: stage {parent.name} is rolled, so that its loops are made last; "
                    "compute at the loop that it is computed at"
                )
            with _blame(what):
                self.sch.compute_at(self.blocks[stage], self._loops(parent)[axis])
        if isinstance(stage.op, ScanOp):
            self._loops(stage)
        if stage.nest.calls and not stage.rolls:
            self._apply(stage.nest.calls, self._loops(stage), f"s[{stage.name}].")
        # What is shared by threads is computed for all of them: producers must know the threads.
        if stage.scope is not None:
            with _blame(f"s[{stage.name}].set_scope({stage.scope!r})"):
                block = self.blocks[stage]
                for n in range(len(self.sch.get(block).writes)):
                    self.sch.set_scope(block, n, stage.scope)
        if not stage.rolls:
            self._threads(stage)

    def _threads(self, stage: Stage) -> None:
        for axis, mark in stage.marks.items():
            if mark.thread is not None:
                self._bind(stage, axis, mark.thread, self._loops(stage)[axis])
        across = {m.thread.tag for a, m in stage.marks.items() if m.thread and a.kind == "reduce"}
        for condition in stage.stored_by:
            if condition.axis.tag not in across:
                raise ScheduleError(
                    f"s[{stage.name}].set_store_predicate: no reduction loop of the stage is bound "
                    f"to {condition.axis.tag}; expected one, of whose threads the first stores"
                )

    def roll(self, stage: Stage) -> None:
        """Roll the stage along the loop that it is computed at, and make its loops: of stages that
        are rolled along one loop, producers first."""
        with _blame(f"s[{stage.name}].rolling_buffer()"):
            self.sch.rolling_buffer(self.blocks[stage])
        self._apply(stage.nest.calls, self._loops(stage), f"s[{stage.name}].")
        self._threads(stage)

    def finish(self, stage: Stage) -> None:
        """Say how the stage's other loops run."""
        if stage.inlined:
            return
        self._initialise(stage)
        self._relayout(stage)
        if stage.doubled:
            with _blame(f"s[{stage.name}].double_buffer()"):
                self.sch.double_buffer(self.blocks[stage], stage.copies)
        for dim, factor, offset in stage.aligned:
            with _blame(f"s[{stage.name}].storage_align(…, {factor}, {offset})"):
                block = self.blocks[stage]
                for n in range(len(self.sch.get(block).writes)):
                    self.sch.storage_align(block, n, dim, factor, offset)
        if stage.marks or stage.pragmas:
            loops = self._loops(stage)
        marks = [(axis, mark) for axis, mark in stage.marks.items() if mark.thread is None]
        for axis, mark in sorted(marks, key=lambda item: _ORDER[item[1].kind]):
            with _blame(f"s[{stage.name}].{mark.kind}({axis.name})"):
                if mark.intrin is not None:
                    self.sch.tensorize(loops[axis], mark.intrin)
                else:
                    getattr(self.sch, mark.kind)(loops[axis])
        for axis, key, value in stage.pragmas:
            with _blame(f"s[{stage.name}].pragma({axis.name}, {key!r})"):
                # What only TVM's passes read stays in the program as a hint.
                known = key in KEYS or key.startswith(HINTS)
                self.sch.annotate(loops[axis], key if known else f"{HINTS}{key}", value)

    def _initialise(self, stage: Stage) -> None:
        """Write what an intrinsic's function accumulates in, before the first loop that reduces:
        it finds that there. Comes before layouts, in which no axis is a dimension."""
        for axis, mark in stage.marks.items():
            if mark.intrin is None:
                continue
            block = self.sch.get(self.blocks[stage])
            if accumulates_in_init(block, TensorIntrin.get(mark.intrin)):
                leaves = stage.nest.leaves
                first = next(a for a in leaves if a is axis or a.kind == "reduce")
                with _blame(f"s[{stage.name}].tensorize({axis.name})"):
                    self.sch.decompose_reduction(self.blocks[stage], self._loops(stage)[first])

    def _relayout(self, stage: Stage) -> None:
        """Store what the stage computes in other layouts, one after another."""
        if stage.layouts and stage.aligned:
            raise ScheduleError(
                f"s[{stage.name}].transform_layout: stage {stage.name} has strides of its own by "
                "storage_align, of the dimensions as computed; drop one or the other"
            )
        outputs = 1 if isinstance(stage.op, PlaceholderOp) else stage.op.num_outputs
        for layout in stage.layouts:
            with _blame(f"s[{stage.name}].transform_layout"):
                for n in range(outputs):
                    buffer = self._buffer(stage, n)
                    block = self._accessing(buffer)
                    self.sch.transform_layout(
                        block, buffer, layout.index_map, parameters=layout.parameters
                    )

    def _accessing(self, buffer: str) -> str:
        """The first block that writes or reads a buffer: an input has no stage with a block."""
        for block in (site.block for site in sites(self.sch.func)):
            if any(a.buffer.name == buffer for a in (*block.reads, *block.writes)):
                return block.name
        raise ScheduleError(f"no block accesses {buffer}")

    def _bind(self, stage: Stage, axis: IterVar, thread: ThreadAxis, loop: LoopRV) -> None:
        with _blame(f"s[{stage.name}].bind({axis.name}, {thread.tag})"):
            extent = self.sch.get(loop).extent
            if thread.extent is not None and extent != thread.extent:
                raise ScheduleError(
                    f"the loop has {extent} iterations, the thread axis {thread.extent}"
                )
            self.sch.bind(loop, self._tag(thread))

    def _tag(self, thread: ThreadAxis) -> str:
        if thread.tag != "vthread":
            return thread.tag
        if all(t is not thread for t in self.virtual):
            self.virtual.append(thread)
        number = next(n for n, t in enumerate(self.virtual) if t is thread)
        if number > 2:
            raise ScheduleError("there are three virtual thread axes; found a fourth")
        return f"vthread.{'xyz'[number]}"

    def _apply(
        self, calls: Sequence[LoopCall], loops: dict[IterVar, LoopRV], where: str = ""
    ) -> None:
        """Do split, fuse and reorder on the loops, of which `loops` keeps the account."""
        for call in calls:
            if isinstance(call, Split):
                with _blame(f"{where}split({call.parent.name})"):
                    pair = self.sch.split(loops[call.parent], [call.nparts, call.factor])
                loops[call.outer], loops[call.inner] = pair
            elif isinstance(call, Fuse):
                with _blame(f"{where}fuse({names(call.parts)})"):
                    loops[call.fused] = self.sch.fuse(*(loops[a] for a in call.parts))
            else:
                with _blame(f"{where}reorder({names(call.order)})"):
                    self._order(loops, call.order)

    def _order(self, loops: dict[IterVar, LoopRV], order: Sequence[IterVar]) -> None:
        if len(order) > 1:
            self.sch.reorder(*(loops[a] for a in order))

    def _loops(self, stage: Stage) -> dict[IterVar, LoopRV]:
        """The loops of a stage that has its place; of a scan, the one over its steps."""
        if stage not in self.loops and isinstance(stage.op, ScanOp):
            # Asked for before anything else changes the nest: consumers come first.
            around = self.sch.get_loops(self.blocks[self.view[stage.op.update[0]]])
            self.loops[stage] = {stage.op.scan_axis: around[0]}
        if stage not in self.loops:
            self.loops[stage] = self._around(stage, stage.nest.roots)
        return self.loops[stage]

    def _around(self, stage: Stage, axes: Sequence[IterVar]) -> dict[IterVar, LoopRV]:
        """The innermost loops around a block that no call has changed, by the axes they run
        over."""
        around = self.sch.get_loops(self.blocks[stage])
        return dict(zip(axes, around[len(around) - len(axes) :], strict=True))


@contextmanager
def _blame(call: str) -> Iterator[None]:
    """Name the call of the stage view in a refusal."""
    try:
        yield
    except ScheduleError as e:
        raise type(e)(f"{call}: {e}") from e
