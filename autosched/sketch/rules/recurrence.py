"""Recurrences: independent axes outside the time loop, or register tiles inside each step.

Nothing here knows an operator by name. What the primitives refuse is no sketch: whether an axis is
independent across steps is their question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from autosched.errors import ScheduleError
from autosched.schedule import BlockRV, Decision, LoopRV, Schedule
from autosched.sketch.analysis import BlockInfo, analyse_blocks
from autosched.sketch.decisions import ChoiceSpec, DecisionSpec
from autosched.sketch.rules.default import PARALLEL_COST, axis_loops
from autosched.sketch.state import State, Verdict
from autosched.tir import dtypes
from autosched.tir.affine import Affine, is_zero
from autosched.tir.nodes import Buffer, Iter, inputs_of, site_of, sites

ROWS = (4, 2, 1, 8)
"""Values for the rows of the axis next to the vector axis that share a register tile."""
COPIES = (1, 2, 4, 8)
"""Values for the copies of a reduction in a register tile."""
TILE_VECTORS, COLUMN_VECTORS = (2, 1, 4), (16, 8, 4, 32, 2, 1)
"""Values for the vectors side by side: in a register tile, in columns without a reduction."""
MEETING_COST = 262144.0
"""Cost (in additions) of a step under which threads meet in each only where the search says so: it
takes some 5 us on one, and a thread that is not running while the others wait costs more."""
MOST_ROWS = 8
"""Of a register tile of a stage that computes all columns."""
MAX_UNROLLED = 16
"""A longer axis is no part of a register tile."""


@dataclass(frozen=True)
class Choice:
    """How the steps are computed.

    `threads`: "apart" (each takes part of the independent axes through all steps), "shared" (each
    takes part of every step) or "one". `packed`: operands whose lanes lie apart in memory are
    copied beforehand to panels as wide as the vectors.
    """

    threads: str
    packed: bool

    @property
    def name(self) -> str:
        """Part of the variant's name."""
        return f"{self.threads}.packed" if self.packed else self.threads


class Recurrence:
    """Schedules all stages that share a time loop."""

    name = "recurrence"

    def condition(self, state: State, block: str) -> Verdict:
        """A block with a sequential axis. The last of its nest is met first and takes all."""
        if block in state.handled or not state.blocks()[block].sequential:
            return Verdict.PASS
        return Verdict.APPLY_AND_SKIP_REST

    def apply(self, state: State, block: str) -> list[State]:
        """A sketch for each choice that is legal; as it stands if none is."""
        schedule = state.fork()
        stages = _inlined(schedule, block)
        state = state.advance(schedule)
        found = [_sketch(state, stages, choice) for choice in self._choices(state, stages)]
        return [s for s in found if s is not None] or [state.advance(schedule, tuple(stages))]

    def _choices(self, state: State, stages: Sequence[str]) -> list[Choice]:
        blocks = state.blocks()
        work = sum(blocks[n].points * max(blocks[n].cost, 1.0) for n in stages)
        steps = max(int(i.extent) for n in stages for i in blocks[n].block.iters[:1])
        threads = ["apart", "shared", "one"]
        if state.target.num_cores == 1 or work < PARALLEL_COST:
            threads = ["one"]
        elif work / steps < PARALLEL_COST:  # meeting in each step costs more than it brings
            threads = ["apart", "one"]
        elif work / steps < MEETING_COST:
            threads = ["apart", "one", "shared"]
        return [Choice(t, p) for t, p in product(threads, (True, False))]


def _inlined(schedule: Schedule, block: str) -> list[str]:
    """The stages in one nest with `block`, in order, once cheap ones are inlined."""
    top = site_of(schedule.func, block).loops[0].var
    names = [s.block.name for s in sites(schedule.func) if s.loops and s.loops[0].var is top]
    for name in names[:-1]:
        info = analyse_blocks(schedule.func)[name]
        if info.sequential and not info.is_output and not info.reduce and info.is_cheap:
            try:
                schedule.compute_inline(schedule.get_block(name))
            except ScheduleError:
                continue  # a state, or a predicate of its own
            names.remove(name)
    return names


def _sketch(state: State, stages: Sequence[str], choice: Choice) -> State | None:
    """One sketch; None where a primitive refuses it or nothing is to be packed."""
    try:
        return _Nest(state, stages, choice).sketch()
    except ScheduleError:
        return None


class _Nest:
    """The stages of one time loop, being scheduled."""

    def __init__(self, state: State, stages: Sequence[str], choice: Choice) -> None:
        self.state, self.stages, self.choice = state, stages, choice
        self.schedule = state.fork()
        self.blocks = analyse_blocks(self.schedule.func)
        self.last = self.blocks[stages[-1]]
        self.reduces = any(self.blocks[n].reduce for n in stages)
        self.specs: list[DecisionSpec] = []
        self.panels: list[BlockRV] = []
        self.unrolled: list[LoopRV] = []
        self.vectors: list[LoopRV] = []
        self.across: list[LoopRV] = []

    def sketch(self) -> State | None:
        vector = self.last.vector_axis
        if vector is None:
            return None
        schedule, last = self.schedule, self.last
        vectors = TILE_VECTORS if self.reduces else COLUMN_VECTORS
        lanes = self.lanes
        wide = [m * lanes for m in vectors if m == 1 or (m - 1) * lanes < int(vector.extent)]
        self.width = self.decide(last, f"{vector.var.name}.width", wide)
        others = [a for a in last.spatial if a is not vector]
        row = others[-1] if self.reduces and others and others[-1].extent != 1 else None
        if self.choice.packed:
            for name in self.stages:
                self.pack(self.blocks[name])
            if not self.panels:
                return None
        loops = axis_loops(schedule, schedule.get_block(last.name))
        time = schedule.get_loops(schedule.get_block(last.name))[0]
        columns, lane = schedule.split(loops[id(vector)], [None, self.width])
        outer = [loops[id(a)] for a in others if a is not row]
        inside: list[LoopRV] = []
        if row is not None:
            few = [r for r in ROWS if r <= int(row.extent)] or [1]
            rows = self.decide(last, f"{row.var.name}.rows", few)
            above, below = schedule.split(loops[id(row)], [None, rows])
            outer.append(above)
            inside.append(below)
        # A step that reduces over the state takes all columns of the one before.
        independent = [*outer] if self.reduces else [*outer, columns]
        if all(a.extent == 1 for a in (others if self.reduces else last.spatial)):
            independent = []
        whole, shared = self.whole(), self.choice.threads == "shared"
        first = self.choice.threads == "apart" or (whole and not shared)
        order = [*outer, columns] if first else [columns, *outer]
        self.tile(last, [loops[id(a)] for a in last.reduce], inside, lane, order)
        around = outer[-1] if first and outer else None
        for name in reversed(self.stages[:-1]):
            if name in whole:
                self.place_whole(self.blocks[name], around)
            else:
                self.place(self.blocks[name], order[-1])
        self.divide(time, columns, independent)
        return self.finish()

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        size = dtypes.itemsize(self.last.block.writes[0].buffer.dtype)
        return max(self.state.target.vector_bytes // size, 1)

    def decide(self, info: BlockInfo, what: str, values: Sequence[int]) -> Decision:
        """A new decision of a block."""
        spec = ChoiceSpec(info.name, f"{info.name}.{what}", tuple(values))
        self.specs.append(spec)
        self.state.declare(self.schedule, tuple(self.specs))
        return Decision(spec.name)

    def pack(self, info: BlockInfo) -> None:
        """Read inputs whose lanes are not neighbours through panels."""
        vector = info.vector_axis
        if not info.reduce or vector is None:
            return
        inputs = {id(b) for b in inputs_of(self.schedule.func)}
        block = self.schedule.get_block(info.name)
        for n, access in enumerate(self.schedule.get(block).reads):
            dims = [
                d
                for d, index in enumerate(access.indices)
                if isinstance(index, Affine) and index.coefficient(vector.var) == 1
            ]
            rank = len(access.indices)
            if id(access.buffer) not in inputs or len(dims) != 1 or dims[0] == rank - 1:
                continue
            layout: list[list[int | Decision]] = [[dims[0], self.width]]
            layout += [[d] for d in range(rank) if d != dims[0]]
            layout.append([dims[0], 1, self.width])
            self.panels.append(self.schedule.cache_read(block, n, "global", layout))

    def whole(self) -> set[str]:
        """Stages of which another one reduces all columns of a step, and those that these read:
        in the tile of the last stage they would be computed for each block of its columns."""
        found: set[str] = set()
        for name in reversed(self.stages[:-1]):
            made = self.blocks[name].block.writes[0].buffer
            readers = (self.blocks[n] for n in self.stages if n != name)
            if any(_reduces(info, made) or (info.name in found and _reads(info, made))
                   for info in readers):  # fmt: skip
                found.add(name)
        return found

    def tile(
        self,
        info: BlockInfo,
        reduces: Sequence[LoopRV],
        inside: Sequence[LoopRV],
        lane: LoopRV,
        outer: Sequence[LoopRV] = (),
    ) -> None:
        """Make the loops of a block a register tile inside `outer`."""
        copies: list[LoopRV] = []
        reduces = list(reduces)
        if reduces:
            extent = int(info.reduce[-1].extent)
            few = [c for c in COPIES if c <= extent]
            number = self.decide(info, f"{info.reduce[-1].var.name}.copies", few)
            rest, copy = self.schedule.split(reduces[-1], [None, number])
            reduces[-1:] = [rest]
            copies.append(copy)
        self.schedule.reorder(*outer, *reduces, *copies, *inside, lane)
        self.unrolled += [*copies, *inside]
        self.vectors.append(lane)

    def placed(self, info: BlockInfo, at: LoopRV | None) -> dict[int, LoopRV]:
        """The loops of a stage's axes, inside `at` or else by itself in the step."""
        schedule = self.schedule
        block = schedule.get_block(info.name)
        try:
            if at is None:
                return axis_loops(schedule, block)
            schedule.compute_at(block, at)
        except ScheduleError:
            return axis_loops(schedule, block)
        axes: list[Iter] = [*info.spatial, *info.reduce]
        found = schedule.get_loops(block)
        return dict(zip(map(id, axes), found[len(found) - len(axes) :], strict=True))

    def place(self, info: BlockInfo, at: LoopRV) -> None:
        """Compute a stage in the tile of the last one, or else by itself in the step."""
        schedule = self.schedule
        loops = self.placed(info, at)
        vector = info.vector_axis
        if vector is None:
            return
        others = [loops[id(a)] for a in info.spatial if a is not vector]
        short = [x for x in others if int(schedule.get(x).extent) <= MAX_UNROLLED]
        lane, outer = loops[id(vector)], [x for x in others if x not in short]
        if int(schedule.get(lane).extent) > MAX_UNROLLED * self.lanes:
            across, lane = schedule.split(lane, [None, self.width])
            outer.append(across)
        reduces = [loops[id(a)] for a in info.reduce]
        self.tile(
            info,
            reduces,
            short if info.reduce else [],
            lane,
            outer if info.reduce else [*outer, *short],
        )

    def place_whole(self, info: BlockInfo, at: LoopRV | None) -> None:
        """Compute all columns of a stage before those of the last one."""
        loops = self.placed(info, at)
        vector = info.vector_axis
        if vector is None:
            return
        across, lane = self.schedule.split(loops[id(vector)], [None, self.width])
        others = [loops[id(a)] for a in info.spatial if a is not vector]
        inside = _few(self.schedule, others) if info.reduce else []
        outer = [across, *(x for x in others if x not in inside)]
        self.tile(info, [loops[id(a)] for a in info.reduce], inside, lane, outer)
        if self.choice.threads == "shared":
            self.across.append(across)

    def divide(self, time: LoopRV, columns: LoopRV, independent: Sequence[LoopRV]) -> None:
        """Say which loops threads divide."""
        self.parallel: list[LoopRV] = []
        if self.choice.threads == "apart":
            if not independent:
                raise ScheduleError("no axis is independent of the others")
            self.schedule.reorder(*independent, time)
            self.parallel = list(independent)
        elif self.choice.threads == "shared":
            self.parallel = [columns, *self.across]

    def finish(self) -> State:
        """Give the loops their kinds."""
        schedule = self.schedule
        for panel in self.panels:
            outer, *_, lane = schedule.get_loops(panel)
            schedule.parallel(outer)
            schedule.vectorize(lane)
        for loop in self.unrolled:
            schedule.unroll(loop)
        for loop in self.vectors:
            schedule.vectorize(loop)
        for loop in self.parallel:
            schedule.parallel(loop)
        handled = [*self.stages, *(schedule.get(p).name for p in self.panels)]
        name = f"{self.last.name}.{self.choice.name}"
        return self.state.advance(schedule, tuple(handled), tuple(self.specs), name)


def _reads(info: BlockInfo, made: Buffer) -> bool:
    """Whether a block reads a buffer."""
    return any(r.buffer is made for r in info.block.reads)


def _reduces(info: BlockInfo, made: Buffer) -> bool:
    """Whether a block reduces along an index of a buffer."""
    indices = [i for r in info.block.reads if r.buffer is made for i in r.indices]
    over = [a.var for a in info.reduce]
    return any(
        not isinstance(i, Affine) or any(not is_zero(i.coefficient(v)) for v in over)
        for i in indices
        if over
    )


def _few(schedule: Schedule, loops: Sequence[LoopRV]) -> list[LoopRV]:
    """The last of some loops that make a register tile together."""
    count, first = 1, len(loops)
    while first and count * int(schedule.get(loops[first - 1]).extent) <= MOST_ROWS:
        first -= 1
        count *= int(schedule.get(loops[first]).extent)
    return list(loops[first:])
