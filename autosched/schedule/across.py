"""Opaque blocks stand still: no primitive changes one, nor moves a computation across it.

What a routine does to its buffers is not analysed, so that two computations between which it stands
keep their order. Each program that a primitive makes is compared here with the one before.
"""

from __future__ import annotations

from collections.abc import Sequence

from autosched.errors import ScheduleError
from autosched.tir.nodes import Block, Buffer, PrimFunc, Site, buffers_of, sites
from autosched.tir.opaque import Opaque, opaque_blocks, opaque_of

ALLOWED = (
    "annotate",
    "unannotate",
    "cache_inplace",
    "get_loops",
    "get_producers",
    "get_consumers",
)
"""Methods of a schedule that take an opaque block."""


def require_schedulable(block: Block, method: str) -> None:
    """Raise ScheduleError if `method` is for blocks that are analysed, and `block` is opaque."""
    if opaque_of(block) is not None and method not in ALLOWED:
        raise ScheduleError(
            f"{method}: block {block.name!r} is opaque: it runs as it is written, and nothing of "
            "it is scheduled"
        )


def require_still(old: PrimFunc, new: PrimFunc, updated: str | None = None) -> None:
    """Raise ScheduleError if `new`, made of `old`, has another order around opaque blocks. The
    block `updated` may run on other buffers."""
    before = opaque_blocks(old)
    if not before:
        return
    for block, after in zip(before, opaque_blocks(new), strict=True):
        kept = block.name == updated or _same(block, after)
        if not kept or all(after is not node for node in new.body):
            raise ScheduleError(
                f"opaque block {block.name!r} runs as it is written, on whole dense buffers in "
                "global memory; this would change it, or a buffer of it"
            )
    places, now = _places(old), _places(new)
    for name, place in places.items():
        if now.get(name, place) != place:
            _refuse(name, before, place, now[name])
    left = {id(b) for b in buffers_of(new)}
    users: dict[int, set[int]] = {}
    for site in sites(old):
        for b in _used(site.block):
            if id(b) not in left:
                users.setdefault(id(b), set()).add(places[site.block.name])
    for name in places.keys() - now.keys():
        block = next(s.block for s in sites(old) if s.block.name == name)
        for b in _used(block):
            across = users.get(id(b), set()) - {places[name]}
            if across:
                _refuse(name, before, places[name], min(across))


def before_opaque(order: Sequence[Site]) -> Sequence[Site]:
    """The first of some blocks in program order, up to one that is opaque: what stands behind
    that stays there, whatever is done here."""
    for n, site in enumerate(order):
        if opaque_of(site.block) is not None:
            return order[:n]
    return order


def _used(block: Block) -> list[Buffer]:
    return [a.buffer for a in (*block.reads, *block.writes)]


def _same(a: Block, b: Block) -> bool:
    """Whether two opaque blocks run one routine on the same buffers."""
    x, y = opaque_of(a), opaque_of(b)
    assert isinstance(x, Opaque)
    assert isinstance(y, Opaque)
    mine, theirs = [id(v) for v in _used(a)], [id(v) for v in _used(b)]
    return x.routine is y.routine and x.buffers == y.buffers and mine == theirs


def _places(func: PrimFunc) -> dict[str, int]:
    """By block, how many opaque blocks stand before it."""
    out: dict[str, int] = {}
    count = 0
    for site in sites(func):
        if opaque_of(site.block) is None:
            out[site.block.name] = count
        else:
            count += 1
    return out


def _refuse(name: str, opaque: list[Block], place: int, other: int) -> None:
    between = opaque[min(place, other)].name
    raise ScheduleError(
        f"block {name!r} would move across the opaque block {between!r}, of which nothing is known "
        "but the buffers that it reads and writes"
    )
