"""The rule on reductions whose element moves while they reduce. See `verify` and `scatter`."""

from __future__ import annotations

from collections.abc import Iterator

from autosched.tir.faults import WRITES, Fault
from autosched.tir.nodes import PrimFunc, sites
from autosched.tir.printer import Names, format_access
from autosched.tir.scatter import moving_axes


def initial(func: PrimFunc) -> Iterator[Fault]:
    """A reduction does not initialise elements that its own axes move: at its first point it would
    set one of them, and add to others that hold nothing."""
    for site in sites(func):
        block = site.block
        moving = moving_axes(block)
        if not block.init or not moving:
            continue
        element = format_access(block.writes[0], Names(), block.reads)
        axes = ", ".join(v.name for v in moving)
        yield Fault(
            block,
            f"block {block.name!r} combines into {element}, which moves with its reduction axis "
            f"{axes}, so that its init sets only the element of the first point; set all of "
            f"{block.writes[0].buffer.name} in a block before it, and leave the init out",
            WRITES,
        )
