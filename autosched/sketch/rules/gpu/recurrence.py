"""Recurrences on GPUs: independent axes on threads and blocks, or one block that shares out steps.

The structure is that of the default schedule; the threads of a block are a decision. A long
recurrence that only combines (a cumulative sum) may also be cut into chunks that do not wait for
each other: what they come to, and then their steps, are computed in parallel. Or it is scanned in
one pass, whose tiles hand on what they come to.
"""

from __future__ import annotations

from autosched.errors import ScheduleError
from autosched.schedule import Decision, Schedule
from autosched.schedule.combining import does_combine
from autosched.sketch.decisions import ChoiceSpec
from autosched.sketch.gpu_default import MIN_TILES, schedule_nest
from autosched.sketch.state import State, Verdict
from autosched.target.gpu import limits_of
from autosched.tir.nodes import kind_vars, sites

CHUNKS = (32, 64, 16, 128)
"""Values for the steps of a chunk."""
MIN_CHUNKS = 4
"""Chunks below which cutting is not worth reading everything twice."""
THREADS = (128, 64, 32, 256, 512, 1024)
"""Values for the threads of a block."""
ROWS, GROUPS = (16, 32, 8, 64, 4), (8, 16, 4, 32, 2, 1, 64, 128, 256)
"""Values for the steps of a thread, and for the threads along the steps of a tile."""
COLUMNS = (32, 64, 128, 16, 256)
"""Values for the threads along the last other axis: rows of 64 bytes or more, a shorter axis
whole."""


class Recurrence:
    """Schedules all stages that share a time loop."""

    name = "recurrence"

    def condition(self, state: State, block: str) -> Verdict:
        """A block with a sequential axis. The last of its nest is met first and takes all."""
        if block in state.handled or not state.blocks()[block].sequential:
            return Verdict.PASS
        return Verdict.APPLY_AND_SKIP_REST

    def apply(self, state: State, block: str) -> list[State]:
        """One sketch; one in chunks and one in a single pass, where the recurrence has that form
        and is long."""
        others = (self._chunked(state, block), self._single_pass(state, block))
        return [self._steps(state, block), *(x for x in others if x is not None)]

    def _single_pass(self, state: State, block: str) -> State | None:
        """The state with the recurrence scanned in one pass, tiles of steps on blocks."""
        (site,) = (s for s in sites(state.schedule.func) if s.block.name == block)
        if block in state.factored or not does_combine(site.block):
            return None
        steps = next(int(a.extent) for a in site.block.iters if a.kind == "sequential")
        others = [int(a.extent) for a in site.block.iters if a.kind != "sequential"]
        width = others[-1] if others else 1
        limit = limits_of(state.target).max_threads
        columns = tuple(c for c in COLUMNS if c <= min(width, limit)) or (width,)
        groups = tuple(g for g in GROUPS if g * min(columns) <= limit)
        groups = tuple(g for g in groups if g * ROWS[0] * MIN_TILES <= steps)
        if not groups:
            return None
        schedule = state.fork()
        values = {"rows": ROWS, "groups": groups, "columns": columns}
        specs = tuple(ChoiceSpec(block, f"{block}.{n}", v) for n, v in values.items())
        state.declare(schedule, specs)
        try:
            schedule.single_pass_scan(
                schedule.get_block(block), *(Decision(spec.name) for spec in specs)
            )
        except ScheduleError:
            return None  # in a nest with others
        # First rows decide nothing: decisions of theirs would make many candidates of one.
        first = tuple(
            s.block.name
            for root in schedule.func.body
            for s in sites(root)
            if len(list(sites(root))) == 1
            and s.block.name not in (block, *state.handled)
            and s.block.writes[0].buffer is site.block.writes[0].buffer
        )
        for name in first:
            schedule_nest(schedule, (name,), min(THREADS[0], limit))
        return state.advance(schedule, (block, *first), specs, f"{block}.single_pass")

    def _chunked(self, state: State, block: str) -> State | None:
        """The state with the recurrence cut into chunks, its blocks still to be bound."""
        info = state.blocks()[block]
        steps = next(int(a.extent) for a in info.block.iters if a.kind == "sequential")
        sizes = tuple(c for c in CHUNKS if c * MIN_CHUNKS <= steps)
        if block in state.factored or not sizes:
            return None
        schedule = state.fork()
        spec = ChoiceSpec(block, f"{block}.chunk", sizes)
        state.declare(schedule, (spec,))
        try:
            total, carry = schedule.parallel_scan(schedule.get_block(block), Decision(spec.name))
        except ScheduleError:
            return None  # of another form, or in a nest with others
        names = frozenset({block, schedule.get(total).name, schedule.get(carry).name})
        after = state.advance(schedule, specs=(spec,), choice=f"{block}.chunks")
        return after.with_factored(names)

    def _steps(self, state: State, block: str) -> State:
        schedule = state.fork()
        root = next(
            node for node in schedule.func.body if any(s.block.name == block for s in sites(node))
        )
        names = tuple(s.block.name for s in sites(root))
        limit = limits_of(state.target).max_threads
        spec = ChoiceSpec(block, f"{block}.threads", tuple(t for t in THREADS if t <= limit))
        state.declare(schedule, (spec,))
        if block in state.factored:
            _bind_apart(schedule, block, Decision(spec.name))
        else:
            schedule_nest(schedule, names, Decision(spec.name))
        return state.advance(schedule, names, (spec,), f"{block}.steps")


def _bind_apart(schedule: Schedule, name: str, threads: Decision) -> None:
    """Bind the independent loops of one block, chunks among them: the last one to threads."""
    rv = schedule.get_block(name)
    steps = kind_vars(schedule.get(rv), "sequential")
    loops = schedule.get_loops(rv)
    apart = [x for x in loops if schedule.get(x).var not in steps]
    if not apart:
        return
    schedule.reorder(*apart, *(x for x in loops if x not in apart))
    outer, inner = schedule.split(apart[-1], [None, threads])
    for loop in (*apart[:-1], outer):
        schedule.bind(loop, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
