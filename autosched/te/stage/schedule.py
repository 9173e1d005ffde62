"""te.create_schedule: the stages of a computation, and the copies and partial results added."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Union

from autosched.checks import instance, shown
from autosched.errors import ScheduleError
from autosched.integers import as_int, integer
from autosched.schedule import Schedule
from autosched.schedule.place import unique_name
from autosched.te.prim_func import topological
from autosched.te.stage import dataflow
from autosched.te.stage.nest import LoopCall, Reorder
from autosched.te.stage.stage import Stage, check_scope
from autosched.te.tensor import (
    ComputeOp,
    ExternOp,
    IterVar,
    Operation,
    PlaceholderOp,
    ScanOp,
    Tensor,
)


@dataclass(frozen=True, eq=False, slots=True)
class CacheRead:
    """Stage `copy` copies output `index` of `source` for `readers`."""

    source: Stage
    index: int
    scope: str
    readers: tuple[Stage, ...]
    copy: Stage


@dataclass(frozen=True, eq=False, slots=True)
class CacheWrite:
    """Stage `cache` took over what `stage` computed, which copies it now."""

    stage: Stage
    scope: str
    cache: Stage


@dataclass(frozen=True, eq=False, slots=True)
class RFactor:
    """Stage `partial` computes what `stage` reduced, once for each iteration of the loop `axis`;
    `stage` reduces that. `axis` is one of `leaves`, which `calls` had made of the axes
    `reduced`."""

    stage: Stage
    reduced: tuple[IterVar, ...]
    calls: tuple[LoopCall, ...]
    leaves: tuple[IterVar, ...]
    axis: IterVar
    factor_axis: int
    partial: Stage


class StageMap(Mapping[Operation, Stage]):
    """Operation -> its stage, for every operation that a schedule knows, those that caching has
    replaced among them; a tensor stands for its operation."""

    def __init__(self, stages: Mapping[Hashable, Stage]) -> None:
        self._stages = stages

    def __getitem__(self, key: Operation | Tensor) -> Stage:
        return self._stages[key.op if isinstance(key, Tensor) else key]

    def __iter__(self) -> Iterator[Operation]:
        return (op for op in self._stages if isinstance(op, _OPERATIONS))

    def __len__(self) -> int:
        return len(self._stages)


Edit = Union[CacheRead, CacheWrite, RFactor]
_OPERATIONS = (PlaceholderOp, ComputeOp, ScanOp, ExternOp)


class StageSchedule:
    """How to compute some tensors, stage by stage. `s[T]` is the stage of a tensor or operation.

    Calls are collected; `replay` makes the program and does them, consumers first, on one
    `Schedule`. `at.lower(s, [A, B, C])` and `at.build(s, [A, B, C])` do that by themselves.
    `stages` are in an order in which producers come first.
    """

    def __init__(self, outputs: Sequence[Operation]) -> None:
        self.stages: list[Stage] = []
        self.edits: list[Edit] = []
        self._of: dict[Hashable, Stage] = {}
        self._tensors: dict[tuple[Operation, int], Tensor] = {}
        needed = topological(outputs)
        scans = [op for op in needed if isinstance(op, ScanOp)]
        unread = [t.op for op in scans for t in op.state if t.op not in needed]
        for op in [*unread, *needed]:
            self._add(Stage(self, self._fresh(op.name), op), len(self.stages))
            for t in op.input_tensors:
                self._tensors.setdefault((t.op, t.value_index), t)
        self._states: set[Stage] = set()
        for stage in self.stages:
            if isinstance(stage.op, ScanOp):
                self._states |= {self._of[t.op] for t in stage.op.state}
                for part in stage.op.stages:
                    self._of[part].nest.give_to_scan(part.axis[0], stage.name)
        self.originals: tuple[Operation, ...] = tuple(s.op for s in self.stages)
        self._outputs = [self._of[op] for op in outputs]

    def __getitem__(self, key: Tensor | Operation) -> Stage:
        """The stage of a tensor or of an operation. Raises ScheduleError if it has none."""
        op = key.op if isinstance(key, Tensor) else key
        stage = self._of.get(op) if isinstance(op, _OPERATIONS) else None
        if stage is None:
            have = ", ".join(s.name for s in self.stages)
            found = key.name if isinstance(key, Tensor) else shown(key)
            raise ScheduleError(f"{found} is not part of this schedule; its stages are {have}")
        return stage

    def __copy__(self) -> StageSchedule:
        """A schedule of its own in the same state, of the same tensors and axes."""
        return deepcopy(self)

    def __repr__(self) -> str:
        return f"StageSchedule({', '.join(map(repr, self.stages))})"

    @property
    def stage_map(self) -> StageMap:
        """The stages, by tensor or operation: `s.stage_map[T]` is `s[T]`."""
        return StageMap(self._of)

    @property
    def outputs(self) -> list[Operation]:
        """The operations whose results are wanted."""
        return [s.op for s in self._outputs]

    def tensor(self, op: Operation, index: int = 0) -> Tensor:
        """The tensor that is output `index` of an operation of the computation."""
        stage = self[op]
        number = integer("index", index, 0, ScheduleError)
        if number >= (1 if isinstance(op, PlaceholderOp) else op.num_outputs):
            raise ScheduleError(f"stage {stage.name} has no output {number}")
        index = number
        if (op, index) not in self._tensors:
            if isinstance(op, PlaceholderOp):
                made = Tensor(op.name, op.shape, op.dtype, op)
            elif isinstance(op, ScanOp):
                state = op.state[index]
                name = op.name if len(op.state) == 1 else f"{op.name}_v{index}"
                made = Tensor(name, state.shape, state.dtype, op, index)
            else:
                name = op.name if op.num_outputs == 1 else f"{op.name}_v{index}"
                made = Tensor(name, *op.result(index), op, index)
            self._tensors[op, index] = made
        return self._tensors[op, index]

    # Questions that stages ask

    def is_state(self, op: Operation) -> bool:
        """Whether `op` is the placeholder of a scan's state, which is no input."""
        return self[op] in self._states

    def is_output(self, stage: Stage) -> bool:
        """Whether the stage's result is wanted by the caller."""
        self._known(stage)
        return any(s is stage for s in self._outputs)

    def owners(self, axis: IterVar) -> list[Stage]:
        """The stage that an axis is, or was, a loop of."""
        instance("axis", axis, IterVar, "an axis", ScheduleError)
        return [s for s in self.stages if s.nest.owns(axis)]

    def readers(self, stage: Stage) -> list[Stage]:
        """The stages that read a stage's results, producers first."""
        self._known(stage)
        return [s for s in self.stages if stage in self._inputs(s)]

    def consumers(self, stage: Stage) -> list[Stage]:
        """The stages that read a stage's results, directly or not, producers first."""
        self._known(stage)
        found = [stage]
        for s in self.stages:
            if any(p in found for p in self._inputs(s)):
                found.append(s)
        return found[1:]

    # Copies and partial results

    def cache_read(self, tensor: Tensor, scope: str, readers: Any) -> Tensor:
        """Let `readers` (operations or tensors, or one of them) read a tensor through a copy.

        Returns the copy, to be computed at a loop of its readers. `scope`: "global", "local",
        "shared", "shared.dyn" or "warp". Raises ScheduleError if a reader does not read the tensor.
        """
        source = self._stage(tensor, "cache_read")
        what = f"s.cache_read({tensor.name}, {shown(scope)})"
        scope = check_scope(scope, what)
        listed = readers if isinstance(readers, (list, tuple)) else [readers]
        stages = list(dict.fromkeys(self[r] for r in listed))
        if not stages:
            raise ScheduleError(f"{what}: expected the operations that shall read the copy")
        if source in self._states:
            raise ScheduleError(
                f"{what}: {tensor.name} is a state, whose steps are written while they are read"
            )
        for s in stages:
            if isinstance(s.op, ExternOp):
                raise ScheduleError(f"{what}: {s.name} is an extern, which runs as it is written")
            if not self._reads(s, source, tensor.value_index):
                have = ", ".join(r.name for r in self.readers(source)) or "nothing"
                raise ScheduleError(
                    f"{what}: stage {s.name} does not read {tensor.name}; {have} does"
                )
        name = self._fresh(_cached(tensor.name, scope))
        copy = Stage(self, name, dataflow.copy_of(tensor, name))
        self._add(copy, min(self.stages.index(s) for s in stages))
        made = Tensor(name, tensor.shape, tensor.dtype, copy.op)
        for s in stages:
            assert isinstance(s.op, ComputeOp)
            old = self._reads(s, source, tensor.value_index)
            s.op = dataflow.reading(s.op, old, made)
            self._of[s.op] = s
        self.edits.append(CacheRead(source, tensor.value_index, scope, tuple(stages), copy))
        return made

    def cache_write(self, tensor: Tensor | Sequence[Tensor], scope: str) -> Any:
        """Let a stage write to a buffer of its own, which the stage of `tensor` then copies.

        Returns the tensor of the new stage, which does the computation: it has new spatial axes
        and the old reduction axes. For a list of all tensors that one stage computes, the list of
        theirs. Comes before splits of the stage.
        Raises ScheduleError on inputs, and on some of the tensors of a stage.
        """
        together = isinstance(tensor, (list, tuple))
        tensors: list[Any] = list(tensor) if together else [tensor]
        stages = [self._computed(t, "cache_write") for t in tensors]
        listed = ", ".join(t.name for t in tensors)
        what = f"s.cache_write({f'[{listed}]' if together else listed}, {shown(scope)})"
        scope = check_scope(scope, what)
        if not stages or any(s is not stages[0] for s in stages):
            raise ScheduleError(
                f"{what}: expected the tensors that one stage computes; cache those of others by "
                "calls of their own"
            )
        stage = stages[0]
        op = stage.op
        assert isinstance(op, ComputeOp)
        if sorted(t.value_index for t in tensors) != list(range(op.num_outputs)):
            raise ScheduleError(
                f"{what}: stage {stage.name} computes {op.num_outputs} tensors at once; pass each "
                "of them once, s.cache_write([X, Y], scope)"
            )
        stage.require_untouched(what)
        name = self._fresh(_cached(op.name if op.num_outputs > 1 else listed, scope))
        cache = Stage(self, name, dataflow.moved(op, name))
        self._add(cache, self.stages.index(stage))
        made = [self.tensor(cache.op, n) for n in range(op.num_outputs)]
        self._restart(stage, dataflow.copying(op, made))
        self.edits.append(CacheWrite(stage, scope, cache))
        return [made[t.value_index] for t in tensors] if together else made[0]

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Any:
        """Make a reduction loop of a stage an axis of partial results.

        Returns their tensor (a tuple of them for a computation of several): dimension `factor_axis`
        (negative: from the end) is the loop, and its stage keeps the other reduction loops as its
        reduction axes. The stage of `tensor` reduces them over `s[tensor].op.reduce_axis[0]`.
        Comes after the splits that make the loop and before anything else.
        """
        stage = self._computed(tensor, "rfactor")
        label = getattr(axis, "name", repr(axis))
        what = f"s.rfactor({tensor.name}, {label})"
        op = stage.op
        assert isinstance(op, ComputeOp)
        leaf = stage.reduction_loop(axis, what)
        stage.require_untouched(what, op.axis)
        if any(isinstance(c, Reorder) for c in stage.nest.calls):
            raise ScheduleError(
                f"{what}: the loops of stage {stage.name} are reordered already; rfactor makes "
                "them anew, so reorder afterwards"
            )
        rank = len(op.axis)
        given = as_int(factor_axis)
        if given is None:
            raise ScheduleError(f"{what}: factor_axis is {shown(factor_axis)}; expected an int")
        place = given + rank + 1 if given < 0 else given
        if not 0 <= place <= rank:
            raise ScheduleError(
                f"{what}: factor_axis is between {-rank - 1} and {rank}; found {factor_axis}"
            )
        spatial = set(op.axis)
        leaves = tuple(a for a in stage.nest.leaves if a not in spatial)
        calls = tuple(stage.nest.calls)
        name = self._fresh(f"{stage.name}_rf")
        parts = dataflow.factored(op, calls, leaves, leaf, place, name)
        partial = Stage(self, name, parts.partial)
        self._add(partial, self.stages.index(stage))
        self._restart(stage, parts.final)
        self.edits.append(RFactor(stage, op.reduce_axis, calls, leaves, leaf, place, partial))
        return parts.tensors if len(parts.tensors) > 1 else parts.tensors[0]

    def replay(self, args: Sequence[Tensor] | None = None, name: str = "main") -> Schedule:
        """The function over `args` (by default the inputs, then the outputs), and every call done
        on it. Raises ScheduleError, naming the stage's call, where one is not legal."""
        from autosched.te.stage.replay import replay

        return replay(self, args, name)

    def normalize(self) -> StageSchedule:
        """The schedule itself: loops begin at 0 here, which is what TVM's makes them do."""
        return self

    def _known(self, stage: Stage) -> None:
        if not isinstance(stage, Stage) or stage._schedule is not self:
            raise ScheduleError(
                f"expected a stage of this schedule, such as s[C]; found {shown(stage)}"
            )

    def _add(self, stage: Stage, place: int) -> None:
        self.stages.insert(place, stage)
        self._of[stage.op] = stage

    def _restart(self, stage: Stage, op: ComputeOp) -> None:
        stage._restart(op)
        self._of[op] = stage

    def _fresh(self, base: str) -> str:
        return unique_name({s.name for s in self.stages}, base)

    def _inputs(self, stage: Stage) -> list[Stage]:
        return [self._of[t.op] for t in stage.op.input_tensors]

    def _reads(self, reader: Stage, source: Stage, index: int) -> list[Tensor]:
        """The tensors by which `reader` reads output `index` of `source`."""
        return [
            t
            for t in reader.op.input_tensors
            if self._of[t.op] is source and t.value_index == index
        ]

    def _stage(self, tensor: Any, method: str) -> Stage:
        if not isinstance(tensor, Tensor):
            raise ScheduleError(f"s.{method}: expected a tensor, found {tensor!r}")
        return self[tensor]

    def _computed(self, tensor: Any, method: str) -> Stage:
        stage = self._stage(tensor, method)
        if isinstance(stage.op, PlaceholderOp):
            raise ScheduleError(f"s.{method}({stage.name}): {stage.name} is an input")
        if isinstance(stage.op, ScanOp):
            raise ScheduleError(
                f"s.{method}({stage.name}): {stage.name} is a scan, whose update computes it"
            )
        if isinstance(stage.op, ExternOp):
            raise ScheduleError(
                f"s.{method}({stage.name}): {stage.name} is an extern, which runs as it is written"
            )
        return stage


def _cached(name: str, scope: str) -> str:
    """What a copy of `name` in a scope is called."""
    return f"{name}_{scope.replace('.', '_')}"


def create_schedule(
    ops: Operation | Tensor | Sequence[Operation | Tensor],
) -> StageSchedule:
    """The stage view of all that operations or tensors, one or several, need:
    `te.create_schedule(C.op)`, or `te.create_schedule(C)`.

    Raises ScheduleError on anything but what is computed.
    """
    given: list[Any] = list(ops) if isinstance(ops, (list, tuple)) else [ops]
    if not given:
        raise ScheduleError("create_schedule: expected at least one operation")
    given = [t.op if isinstance(t, Tensor) else t for t in given]
    for op in given:
        if not isinstance(op, (ComputeOp, ScanOp, ExternOp)):
            found = f"the input {op.name}" if isinstance(op, PlaceholderOp) else repr(op)
            raise ScheduleError(
                f"create_schedule: expected an operation that computes, found {found}"
            )
    return StageSchedule(list(dict.fromkeys(given)))
