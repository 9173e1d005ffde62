"""Deriving a workload's search space: rules walked over the blocks from the last to the first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autosched.errors import TuningError
from autosched.lowering.layout_rewrite import LayoutRewriteOption, option_of, transforms
from autosched.schedule import Schedule
from autosched.sketch.analysis import elementwise_consumer, turned_consumer
from autosched.sketch.digits import separate_digits
from autosched.sketch.rules import CPU_RULES, INLINE_RULES
from autosched.sketch.rules.gpu import GPU_INLINE_RULES, GPU_RULES
from autosched.sketch.rules.gpu.cache_write import prepared
from autosched.sketch.rules.gpu.tiling import storing
from autosched.sketch.space import Space, Variant
from autosched.sketch.spelling import canonicalise
from autosched.sketch.state import Rule, State, Verdict
from autosched.target import Target
from autosched.tir.nodes import PrimFunc

MAX_VARIANTS = 256
"""Structures kept a workload; the walk keeps the most usual choices first."""
MAX_GROWTH, MAX_NEW = 4, 32
"""A rule is taken to apply to its own results for ever once a sketch has more blocks than so many
times those that there were, and so many more: each costs more than the one before it."""


def generate_space(func: PrimFunc, target: Target, custom_rules: Sequence[Rule] = ()) -> Space:
    """All sketches of `func` as a space. Rules of the user's own go before the built-in ones.

    They see every block once, before anything is inlined; what they leave out of `State.handled`
    the built-in rules finish. Raises TuningError if the rules leave no sketch.
    """
    return Space(func, target, variants_of(generate_states(func, target, custom_rules)))


def generate_states(
    func: PrimFunc, target: Target, custom_rules: Sequence[Rule] = (), limit: int = MAX_VARIANTS
) -> list[State]:
    """The finished sketches, the most usual first; at most `limit`."""
    if target.is_gpu:
        schedule = prepared(func)
    else:
        schedule = Schedule(func)
        separate_digits(schedule, target.vector_bytes)
    canonicalise(schedule)
    states = [State(schedule, target)]
    inline, main = (GPU_INLINE_RULES, GPU_RULES) if target.is_gpu else (INLINE_RULES, CPU_RULES)
    for rules in (custom_rules, inline, main):
        states = _walk(states, rules, limit) if states else []
    if not states:
        raise TuningError(f"the sketch rules leave no schedule for {func.name}")
    return states


def variants_of(states: Sequence[State]) -> list[Variant]:
    """Finished states as variants, named by their choices. Raises TuningError for a decision of
    which no state says what it may be."""
    found: list[Variant] = []
    names: dict[str, int] = {}
    for state in states:
        name = "+".join(state.choices) or "default"
        count = names.get(name, 0)
        names[name] = count + 1
        used = set(state.schedule.trace.decisions())
        specs = tuple(s for s in state.specs if used & set(s.names))
        unknown = used - {n for s in specs for n in s.names}
        if unknown:
            raise TuningError(
                f"sketch {name} has the decisions {', '.join(sorted(unknown))}, and no "
                "specification of them; a rule gives them to state.advance(schedule, specs=...)"
            )
        found.append(Variant(f"{name}#{count}" if count else name, state.schedule.trace, specs))
    return found


def _walk(states: list[State], rules: Sequence[Rule], limit: int) -> list[State]:
    """Depth first. A sketch is made when it is its turn: the default schedule needs the first."""
    finished: list[State] = []
    as_it_is = option_of(states[0].schedule.func) is LayoutRewriteOption.NO_REWRITE
    most = MAX_GROWTH * max(len(s.blocks()) for s in states) + MAX_NEW
    pending: list[Iterator[tuple[State, frozenset[str]]]] = [
        iter([(s, frozenset()) for s in states])
    ]
    while pending and len(finished) < limit:
        state, done = next(pending[-1], (None, frozenset()))
        if state is None:
            pending.pop()
            continue
        block = _next_block(state, done, rules)
        if block is None:
            finished.append(state)
            continue
        if len(state.blocks()) > most:
            raise TuningError(
                f"the sketch rules have made {len(state.blocks())} blocks and do not come to an "
                f"end; the last choices were {', '.join(state.choices[-3:])}"
            )
        pending.append(_after(state, block, done, rules, as_it_is))
    return finished


def _after(
    state: State, block: str, done: frozenset[str], rules: Sequence[Rule], as_it_is: bool
) -> Iterator[tuple[State, frozenset[str]]]:
    """What the rules make of one block, each with the blocks that have been visited."""
    known = frozenset(state.blocks())
    for after in _apply(state, block, rules):
        if as_it_is and _stages(after) > _stages(state):
            continue  # at once: what is ruled out would take places up to the limit
        # A rule that makes new blocks of one leaves all of them to be visited.
        grown = frozenset(after.blocks()) - known
        yield after, done if grown else done | {block}


def _stages(state: State) -> int:
    """How many stages there are that could leave the kernel, a program's own among them."""
    return len(transforms(state.schedule.func))


def _next_block(state: State, done: frozenset[str], rules: Sequence[Rule]) -> str | None:
    """The last block that is left to visit."""
    for block in reversed(state.blocks()):
        if block in state.handled or block in done or _taken_along(state, block, rules):
            continue
        return block
    return None


def _apply(state: State, block: str, rules: Sequence[Rule]) -> Iterator[State]:
    """Every sketch that the rules make of one block, and last the state itself, unless a rule skips
    the rest."""
    for rule in rules:
        verdict = rule.condition(state, block)
        if verdict is Verdict.PASS:
            continue
        yield from rule.apply(state, block)
        if verdict is Verdict.APPLY_AND_SKIP_REST:
            return
    yield state


def _taken_along(state: State, block: str, rules: Sequence[Rule]) -> bool:
    """Whether a producer still to be tiled fuses this block as its consumer."""
    blocks = state.blocks()
    for name in blocks[block].producers:
        if name in state.handled:
            continue
        if state.target.is_gpu:
            consumer = storing(state, blocks[name])
        else:
            info = blocks[name]
            consumer = elementwise_consumer(info, blocks) or turned_consumer(info, blocks)
        if consumer is None or consumer.name != block:
            continue
        if any(
            r.name == "multi-level-tiling" and r.condition(state, name) is not Verdict.PASS
            for r in rules
        ):
            return True
    return False
