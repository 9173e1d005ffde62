"""Rules on opaque blocks and on what crosses them. See `verify`.

The nests between opaque blocks are verified as functions of their own, of which the buffers that
cross an opaque block are parameters. What is left to say here is where opaque blocks may stand, and
that such a buffer is written before it is read.
"""

from __future__ import annotations

from collections.abc import Iterator

from autosched.errors import VerifyError
from autosched.tir.expr import walk
from autosched.tir.faults import READS, Fault, Rule
from autosched.tir.nodes import Block, Buffer, Element, Pointer, PrimFunc, sites
from autosched.tir.opaque import Opaque, opaque_blocks, opaque_of, pieces
from autosched.tir.routine import Routine, Store, statements_of, values_of
from autosched.tir.verify_routine import verify_routine


def opaque(func: PrimFunc) -> Iterator[Fault]:
    """Opaque blocks stand beside the nests and run on whole buffers, which they list."""
    beside = {id(node) for node in func.body}
    for block in opaque_blocks(func):
        says = f"opaque block {block.name!r}"
        if id(block) not in beside:
            yield Fault(block, f"{says} stands in a loop; expected it beside the loop nests")
        if block.predicates:
            yield Fault(block, f"{says} has a predicate; expected that it always runs")
        if func.sizes:
            yield Fault(block, f"{says} stands in a function of symbolic sizes; specialize it")
        found = opaque_of(block)
        assert found is not None
        wrong = _mismatch(block, found) or _accesses(block, found)
        if wrong is not None:
            yield Fault(block, f"{says} {wrong}")
    names = [s.block.name for s in sites(func)]
    for block in opaque_blocks(func):
        if names.count(block.name) > 1:
            yield Fault(block, f"{names.count(block.name)} blocks are named {block.name!r}")


def _mismatch(block: Block, found: Opaque) -> str | None:
    """What is wrong with the buffers that a routine is run on."""
    listed = {id(a.buffer) for a in (*block.reads, *block.writes)}
    given = [id(b) for b in found.buffers]
    if set(given) != listed or len(given) != len(listed):
        return "runs on other buffers than it reads and writes"
    for parts in (block.reads, block.writes):
        if len({id(a.buffer) for a in parts}) != len(parts):
            return "lists a buffer twice"
    params = found.routine.params
    if [(b.shape, b.dtype) for b in params] != [(b.shape, b.dtype) for b in found.buffers]:
        wanted = ", ".join(f"{b.dtype}{list(b.shape)}" for b in params)
        return f"runs on buffers that do not fit; expected {wanted}"
    for b in found.buffers:
        if b.scope != "global" or b.align:
            return f"runs on {b.name}, which is not dense in global memory"
    return None


def _accesses(block: Block, found: Opaque) -> str | None:
    """What is wrong with what a routine does to its buffers."""
    try:
        verify_routine(found.routine)
    except VerifyError as e:
        return f"breaks a rule: {e}"
    outer = {id(p): b for p, b in zip(found.routine.params, found.buffers, strict=True)}
    writes = {id(a.buffer) for a in block.writes}
    for b in _stored(found.routine):
        mine = outer.get(id(b))
        if mine is not None and id(mine) not in writes:
            return f"stores to {mine.name}, which T.writes does not list"
    used = {id(b) for b in _used(found.routine)}
    for p, b in zip(found.routine.params, found.buffers, strict=True):
        if id(p) not in used:
            return f"does not use {b.name}, which it lists"
    return None


def _stored(routine: Routine) -> Iterator[Buffer]:
    return (s.target.buffer for s in statements_of(routine.body) if isinstance(s, Store))


def _used(routine: Routine) -> Iterator[Buffer]:
    for s in statements_of(routine.body):
        for value in values_of(s):
            for e in walk(value):
                if isinstance(e, (Element, Pointer)):
                    yield e.buffer


def crossing(func: PrimFunc) -> Iterator[Fault]:
    """An intermediate that crosses an opaque block is written before it is read."""
    written = {id(b) for b in func.params}
    for part in pieces(func):
        stored = {id(a.buffer) for s in sites(part) for a in s.block.writes}
        # Of what a nest reads and writes, its own rules know the order.
        known = written | stored if isinstance(part, PrimFunc) else written
        for site in sites(part):
            for a in site.block.reads:
                if id(a.buffer) not in known:
                    name = site.block.name
                    text = f"block {name!r} reads {a.buffer.name}, which nothing before it writes"
                    yield Fault(site.block, text, READS)
        written |= stored


OPAQUE = (
    Rule("opaque", "opaque blocks stand beside the nests and list their buffers", opaque),
    Rule("crossing", "what crosses an opaque block is written before it is read", crossing),
)
