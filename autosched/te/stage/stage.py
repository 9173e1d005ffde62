"""`Stage`: the loops of one operation, and where it is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autosched.checks import instance, shown
from autosched.errors import ScheduleError
from autosched.schedule.handles import as_data, index_of
from autosched.schedule.index_map import IndexMap
from autosched.schedule.layout import Layout
from autosched.schedule.tensorize import intrin_name
from autosched.te.stage.nest import Nest, names, root_axes
from autosched.te.stage.thread import FirstThread, ThreadAxis
from autosched.te.tensor import IterVar, Operation, PlaceholderOp, ScanOp
from autosched.tir.intrin import TensorIntrin
from autosched.tir.scope import SCOPES

if TYPE_CHECKING:
    from autosched.te.stage.schedule import StageSchedule


@dataclass(frozen=True, eq=False, slots=True)
class Mark:
    """How a loop runs: a kind that is a primitive's name; `thread` where that is `bind`, `intrin`
    where it is `tensorize`."""

    kind: str
    thread: ThreadAxis | None = None
    intrin: str | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Attach:
    """Computed inside the loop `axis` of another stage."""

    stage: Stage
    axis: IterVar


@dataclass(frozen=True, eq=False, slots=True)
class Relayout:
    """What a stage computes, or an input, stored in another layout."""

    index_map: Layout | IndexMap
    parameters: bool


class Stage:
    """One operation of a schedule.

    `op` is the operation now: caching and rfactor replace it. The calls below only say what is
    wanted, in the order of the program text; `StageSchedule.replay` does it. What cannot be meant
    raises ScheduleError at once, naming the stage and the axis: an axis of another stage, one that
    is no loop any more, a loop that runs in some way already, a place that is no consumer's. What
    only the program shows (dependences, iterations that are not independent) raises when it is
    replayed, naming the call.
    """

    def __init__(self, schedule: StageSchedule, name: str, op: Operation) -> None:
        self._schedule = schedule
        self.name = name
        self._restart(op)
        self.marks: dict[IterVar, Mark] = {}
        self.pragmas: list[tuple[IterVar, str, Any]] = []
        self.attach: Attach | None = None
        self.inlined = False
        self.scope: str | None = None
        self.doubled = False
        self.copies: int | None = None
        self.aligned: list[tuple[int, int, int]] = []
        self.layouts: list[Relayout] = []
        self.rolls = False
        self.stored_by: list[FirstThread] = []

    def _restart(self, op: Operation) -> None:
        """Make this the stage of `op`, with the loops that it begins with."""
        self.op = op
        self.nest = Nest(self.name, root_axes(op))

    def __copy__(self) -> Stage:
        raise ScheduleError(
            f"stage {self.name} is part of its schedule and cannot be copied alone; "
            "copy.copy(schedule) copies all stages"
        )

    def __repr__(self) -> str:
        return f"stage({self.name}: {names(self.nest.leaves)})"

    @property
    def leaf_iter_vars(self) -> list[IterVar]:
        """The axes that are loops now, outermost first."""
        return list(self.nest.leaves)

    # Loops

    def split(
        self, parent: IterVar, factor: int | None = None, nparts: int | None = None
    ) -> tuple[IterVar, IterVar]:
        """Make one loop two: `factor` iterations inside, or `nparts` outside. Returns (outer,
        inner). What does not divide leaves a tail, which is not executed."""
        what = self._call("split", parent)
        return self.nest.split(self._leaf(parent, what, plain=True), factor, nparts, what)

    def fuse(self, *axes: IterVar) -> IterVar:
        """Make loops that follow one another, outermost first, one."""
        what = self._call("fuse", *axes)
        if not axes:
            raise ScheduleError(f"{what}: fuse needs at least one axis")
        parts = [self._leaf(a, what, plain=True) for a in axes]
        return self.nest.fuse(parts, what)

    def reorder(self, *axes: IterVar) -> None:
        """Permute loops among the places that they have; the others stay."""
        what = self._call("reorder", *axes)
        self.nest.reorder([self._leaf(a, what) for a in axes], what)

    def tile(
        self, x_parent: IterVar, y_parent: IterVar, x_factor: int, y_factor: int
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two loops and put both inner ones inside. Returns (x outer, y outer, x inner,
        y inner)."""
        x_outer, x_inner = self.split(x_parent, factor=x_factor)
        y_outer, y_inner = self.split(y_parent, factor=y_factor)
        self.reorder(x_outer, y_outer, x_inner, y_inner)
        return x_outer, y_outer, x_inner, y_inner

    # How loops run

    def parallel(self, axis: IterVar) -> None:
        """Divide the iterations over threads."""
        self._mark("parallel", axis)

    def vectorize(self, axis: IterVar) -> None:
        """Run the iterations as lanes of vectors, whatever their number."""
        self._mark("vectorize", axis)

    def unroll(self, axis: IterVar) -> None:
        """Copy the body for each iteration."""
        self._mark("unroll", axis)

    def bind(self, axis: IterVar, thread: ThreadAxis) -> None:
        """Bind to a GPU axis made by te.thread_axis."""
        if not isinstance(thread, ThreadAxis):
            raise ScheduleError(
                f"{self._call('bind', axis)}: expected an axis made by te.thread_axis, found "
                f"{shown(thread)}"
            )
        self._mark("bind", axis, thread)

    def tensorize(self, axis: IterVar, intrin: TensorIntrin | str) -> None:
        """Let an intrinsic, as `TensorIntrin.register` returned it or by name, do the loops from
        `axis` inwards; see `Schedule.tensorize`. For one that is implemented by a function, what is
        accumulated in is initialised before, in loops of its own."""
        name = intrin_name(intrin, self._call("tensorize", axis))
        self._mark("tensorize", axis, intrin=name)

    def pragma(self, axis: IterVar, key: str, value: Any = None) -> None:
        """Attach a key and a value (True where left out) to a loop, as `Schedule.annotate` does.
        The loop may be parallel, vectorized or unrolled already.

        Keys that this compiler has no use for, such as TVM's "auto_unroll_max_step", are kept as
        hints, "auto_scheduler_auto_unroll_max_step".
        """
        what = self._call("pragma", axis)
        if not isinstance(key, str) or not key:
            raise ScheduleError(f"{what}: the name of a pragma is a text; found {shown(key)}")
        try:
            as_data(value)
        except ScheduleError as e:
            raise ScheduleError(f"s[{self.name}].pragma({_name(axis)}, {key!r}): {e}") from e
        mark = self.marks.get(axis) if isinstance(axis, IterVar) else None
        tensorized = mark is not None and mark.intrin is not None  # then there is no such loop
        self.pragmas.append(
            (self._leaf(axis, what, plain=tensorized), str(key), True if value is None else value)
        )

    # Where it is computed

    def compute_at(self, parent: Stage, axis: IterVar) -> None:
        """Compute inside the loop `axis` of a consumer's stage, as much as one iteration of it
        needs."""
        self._movable("compute_at")
        if not isinstance(parent, Stage) or parent._schedule is not self._schedule:
            raise ScheduleError(
                f"s[{self.name}].compute_at: expected a stage of this schedule, such as s[C], "
                f"found {shown(parent)}"
            )
        what = f"s[{self.name}].compute_at(s[{parent.name}], {_name(axis)})"
        if parent not in self._schedule.consumers(self):
            have = ", ".join(s.name for s in self._schedule.consumers(self))
            raise ScheduleError(
                f"{what}: stage {parent.name} does not consume {self.name}; its consumers are "
                f"{have}"
            )
        self.attach, self.inlined = Attach(parent, parent._leaf(axis, what)), False

    def compute_inline(self) -> None:
        """Put the expression in place of every read of it; there will be no loops."""
        self._movable("compute_inline")
        if self.op.reduce_axis:
            raise ScheduleError(
                f"s[{self.name}].compute_inline(): {self.name} reduces over "
                f"{names(self.op.reduce_axis)} and has no expression to inline; use compute_at"
            )
        self.attach, self.inlined = None, True

    def compute_root(self) -> None:
        """Compute outside all loops of others, which is the default."""
        self.attach, self.inlined, self.rolls = None, False, False

    def set_scope(self, scope: str) -> None:
        """Say where the result lives: "global", "local" (one a thread), "shared" or "shared.dyn"
        (one a block of threads), or "warp" (one of the threads along threadIdx.x)."""
        self._movable("set_scope")
        self.scope = check_scope(scope, f"s[{self.name}].set_scope")

    def set_store_predicate(self, condition: FirstThread) -> None:
        """Let the first of the threads that a reduction runs over store its result:
        `tx.var.equal(0)`, which is what happens without as well. Refused for other conditions, and
        at the replay for an axis that no reduction loop of the stage is bound to."""
        what = f"s[{self.name}].set_store_predicate"
        if not isinstance(condition, FirstThread):
            raise ScheduleError(
                f"{what}: expected tx.var.equal(0), tx being the thread axis that a reduction loop "
                f"is bound to; found {shown(condition)}"
            )
        self.stored_by.append(condition)

    # Checks

    def double_buffer(self, copies: int | None = None) -> None:
        """Let what the stage shares alternate between buffers, two if no number is given, step by
        step of the loop that it is computed at, which saves a barrier a step; see
        `Schedule.double_buffer`."""
        self._movable("double_buffer")
        self.doubled, self.copies = True, copies

    def rolling_buffer(self) -> None:
        """Compute at each iteration of the loop that the stage is computed at only what the
        iterations before have not, and keep the rest in a circular buffer; see
        `Schedule.rolling_buffer`. The stage's loops are those of the new part; what the first
        iteration needs besides is computed before the loop."""
        self._movable("rolling_buffer")
        if self.attach is None:
            raise ScheduleError(
                f"s[{self.name}].rolling_buffer: stage {self.name} is computed at no loop; "
                "compute_at a loop of its consumer first"
            )
        self.rolls = True

    def storage_align(self, axis: IterVar, factor: int, offset: int = 0) -> None:
        """Give the dimension that `axis`, one of the result's, indexes a stride that is `offset`
        more than a multiple of `factor`, in elements; see `Schedule.storage_align`."""
        what = self._call("storage_align", axis)
        self._movable("storage_align")
        axes = list(root_axes(self.op))
        place = next((n for n, a in enumerate(axes) if a is axis and a.kind != "reduce"), None)
        if place is None:
            raise ScheduleError(
                f"{what}: expected an axis of {self.name} as it was computed, one of "
                f"{names([a for a in axes if a.kind != 'reduce'])}"
            )
        named = f"{what}: factor, offset"
        self.aligned.append((place, index_of(factor, named), index_of(offset, named)))

    def transform_layout(self, index_map: Layout | IndexMap, parameters: bool = False) -> None:
        """Store what the stage computes in another layout, `lambda i, j: (i // 4, j, i % 4)`; see
        `Schedule.transform_layout`. The loops stay. Of a stage that is computed at a loop, the
        layout is that of the part that is kept; inputs and outputs need `parameters=True`, and
        callers pass them so. Several calls are done one after another."""
        what = f"s[{self.name}].transform_layout"
        instance(f"{what}: parameters", parameters, bool, "True or False", ScheduleError)
        if not callable(index_map) and not isinstance(index_map, (list, tuple)):
            raise ScheduleError(
                f"{what}: expected a function of the indices, such as lambda i, j: (j, i); found "
                f"{shown(index_map)}"
            )
        self.layouts.append(Relayout(index_map, parameters))

    def _call(self, method: str, *axes: Any) -> str:
        return f"s[{self.name}].{method}({', '.join(map(_name, axes))})"

    def _leaf(self, axis: Any, what: str, plain: bool = False) -> IterVar:
        """`axis` if it is a loop of this stage now, and with `plain` an ordinary one."""
        if not isinstance(axis, IterVar):
            raise ScheduleError(
                f"{what}: expected an axis of stage {self.name} ({names(self.nest.leaves)}); found "
                f"{shown(axis)}"
            )
        if not self.nest.owns(axis):
            owners = self._schedule.owners(axis)
            whose = f"an axis of stage {owners[0].name}" if owners else "an axis of no stage here"
            now = (
                f"; the axes of {self.name} are {names(self.nest.leaves)}"
                if self.nest.leaves
                else f"; {self.name} is an input and has no loops"
            )
            raise ScheduleError(f"{what}: {axis.name} is {whose}{now}")
        self.nest.require_leaf(axis, what)
        if plain and axis in self.marks:
            done = self.marks[axis].kind
            raise ScheduleError(
                f"{what}: loop {axis.name} of stage {self.name} has its {done} already; expected "
                f"an ordinary loop: call {done} last"
            )
        return axis

    def _mark(
        self,
        kind: str,
        axis: IterVar,
        thread: ThreadAxis | None = None,
        intrin: str | None = None,
    ) -> None:
        leaf = self._leaf(axis, self._call(kind, axis), plain=True)
        self.marks[leaf] = Mark(kind, thread, intrin)

    def _movable(self, method: str) -> None:
        what = f"s[{self.name}].{method}"
        if isinstance(self.op, PlaceholderOp):
            raise ScheduleError(f"{what}: {self.name} is an input, which nothing computes")
        if isinstance(self.op, ScanOp):
            raise ScheduleError(
                f"{what}: {self.name} is a scan, whose steps stay where they are; move its stages"
            )
        if self._schedule.is_output(self):
            raise ScheduleError(
                f"{what}: {self.name} is an output of the schedule and must be written in full; "
                f"use s.cache_write({self.name}, scope) and move what that returns"
            )

    def reduction_loop(self, axis: Any, what: str) -> IterVar:
        """`axis` if it is an ordinary loop over reduction axes of this stage."""
        leaf = self._leaf(axis, what, plain=True)
        if leaf.kind != "reduce":
            raise ScheduleError(
                f"{what}: {leaf.name} is a spatial loop of stage {self.name}; its reduction loops "
                f"are {names([a for a in self.nest.leaves if a.kind == 'reduce'])}"
            )
        return leaf

    def require_untouched(self, what: str, axes: Sequence[IterVar] | None = None) -> None:
        """Raise ScheduleError if a call has changed or marked loops (of `axes`, or at all)."""
        mine = self.nest.roots if axes is None else axes
        changed = [a for a in mine if a in self.nest.gone]
        marked = [a for a in self.nest.leaves if a in self.marks or self._has_pragma(a)]
        if changed:
            raise ScheduleError(
                f"{what}: axis {changed[0].name} of stage {self.name} was "
                f"{self.nest.gone[changed[0]]} before; call this first"
            )
        if marked:
            raise ScheduleError(
                f"{what}: loop {marked[0].name} of stage {self.name} has its kind or a pragma "
                "already; call this first"
            )

    def _has_pragma(self, axis: IterVar) -> bool:
        return any(a is axis for a, _, _ in self.pragmas)


def _name(axis: Any) -> str:
    return axis.name if isinstance(axis, IterVar) else shown(axis)


def check_scope(scope: Any, what: str) -> str:
    """`scope` if buffers may live there."""
    if not isinstance(scope, str) or scope not in SCOPES:
        raise ScheduleError(f"{what}: no scope {shown(scope)}; expected one of {', '.join(SCOPES)}")
    return str(scope)
