"""Changes of programs: those that may make one wrong, and those that make it smaller."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from program_exprs import E, axis, call, const, unbounded, walk
from script_programs import Program, Stage

# Wrong programs


def spoiled(program: Program, rng: random.Random) -> Program:
    """`program` with one change that may make it wrong. Elements may then hold what its expressions
    were not made for: what a buffer was filled with, say."""
    n = rng.randrange(len(program.stages))
    stage = program.stages[n]
    kind = rng.choice(("index", "index", "write", "drop", "order", "where", "extent", "guard"))
    stages = list(program.stages)
    if kind == "drop" and len(stages) > 1:
        rest = (*stages[:n], *stages[n + 1 :])
        # A parameter without a writer is an input: its values lie outside the bounds that were
        # assumed for its readers.
        if replace(program, stages=rest).outputs() == program.outputs():
            stages = list(rest)
    elif kind == "order" and len(stages) > 1:
        m = rng.randrange(len(stages))
        stages[n], stages[m] = stages[m], stages[n]
    elif kind == "where":
        stages[n] = replace(stage, where=None)
    elif kind == "write":
        stages[n] = _respoiled_write(stage, rng)
    elif kind == "guard":
        stages[n] = _changed(stage, rng, "if_then_else", lambda e: e.args[rng.choice((1, 2))])
    else:
        step = const(rng.choice((1, 1, -1, 2)))
        stages[n] = _changed(
            stage, rng, "load",
            lambda e: _with_arg(e, rng, lambda x: call("add", x, step)) if len(e.args) > 1 else e,
        )  # fmt: skip
    changed = tuple(
        replace(s, stores=tuple(replace(x, value=unbounded(x.value)) for x in s.stores))
        for s in stages
    )
    return replace(program, stages=changed, kinds=(*program.kinds, f"spoiled {kind}"))


def _respoiled_write(stage: Stage, rng: random.Random) -> Stage:
    k = rng.randrange(len(stage.stores))
    store = stage.stores[k]
    if not store.at:
        return stage
    n = rng.randrange(len(store.at))
    old = store.at[n]
    extent = store.buf.shape[n]
    axes = [axis(a.name, a.extent) for a in stage.axes]
    choices = [const(0), call("add", old, const(1)), call("floordiv", old, const(2))]
    if axes:
        v = rng.choice(axes)
        choices += [v, call("floormod", call("add", old, v), const(extent)), call("add", old, v)]
    new = rng.choice(choices)
    at = (*store.at[:n], new, *store.at[n + 1 :])
    stores = (*stage.stores[:k], replace(store, at=at), *stage.stores[k + 1 :])
    return replace(stage, stores=stores)


def _with_arg(e: E, rng: random.Random, change: Callable[[E], E]) -> E:
    k = rng.randrange(1, len(e.args))
    return replace(e, args=(*e.args[:k], change(e.args[k]), *e.args[k + 1 :]))


def _changed(stage: Stage, rng: random.Random, op: str, change: Callable[[E], E]) -> Stage:
    """`stage` with one expression of kind `op` in a value changed."""
    found = [e for s in stage.stores for e in walk(s.value) if e.op == op]
    if not found:
        return stage
    chosen = rng.choice(found)
    new = change(chosen)
    stores = tuple(replace(s, value=substituted(s.value, chosen, new)) for s in stage.stores)
    return replace(stage, stores=stores)


def substituted(e: E, old: E, new: E) -> E:
    """`e` with a part, by identity, replaced."""
    if e is old:
        return new
    if not any(isinstance(a, E) for a in e.args):
        return e
    args = tuple(substituted(a, old, new) if isinstance(a, E) else a for a in e.args)
    if all(a is b for a, b in zip(args, e.args, strict=True)):
        return e
    return replace(e, args=args)


# Smaller programs


def smaller(program: Program) -> Iterator[Program]:
    """Programs with a part less, for the search of a small one that fails as well."""
    for n in range(len(program.stages)):
        yield _trimmed(replace(program, stages=program.stages[:n] + program.stages[n + 1 :]))
    for n, stage in enumerate(program.stages):
        for other in _smaller_stages(stage):
            stages = (*program.stages[:n], other, *program.stages[n + 1 :])
            yield _trimmed(replace(program, stages=stages))


def _smaller_stages(stage: Stage) -> Iterator[Stage]:
    for k, store in enumerate(stage.stores):
        for e in walk(store.value):
            if e.op in ("const", "axis"):
                continue
            same = [a for a in e.args if isinstance(a, E) and a.dtype == e.dtype]
            for new in (const(1, e.dtype), *same):
                if e.dtype == "bool" and new.op == "const":
                    continue
                value = substituted(store.value, e, new)
                stores = (*stage.stores[:k], replace(store, value=value), *stage.stores[k + 1 :])
                yield replace(stage, stores=stores)
    if stage.where is not None:
        yield replace(stage, where=None)


def _trimmed(program: Program) -> Program:
    """Without buffers that nothing uses."""
    used = {
        x.args[0].name
        for s in program.stages
        for store in s.stores
        for e in (store.value, *store.at)
        for x in walk(e)
        if x.op == "load"
    }
    used |= {store.buf.name for s in program.stages for store in s.stores}
    return replace(
        program,
        params=tuple(b for b in program.params if b.name in used),
        inner=tuple(b for b in program.inner if b.name in used),
    )
