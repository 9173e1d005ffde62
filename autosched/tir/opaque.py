"""Opaque blocks: routines between the loop nests of a function.

What blocks cannot state may stand in a function as a routine (`tir/routine.py`) over some of its
buffers. Such a block stands beside the nests, not in a loop; it runs as it is written, and nothing
is scheduled across it. To analysis it is a block without axes that reads and writes whole buffers:
each index is a `Whole`, each value an `Opaque`.

A buffer that it writes and does not read is 0 at first, so that what it holds afterwards depends on
nothing else. Operators of the graph, which set all of these before they read them, leave that out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from autosched.errors import CodegenError
from autosched.tir import dtypes
from autosched.tir.expr import Expr
from autosched.tir.nodes import (
    Access,
    Annotations,
    Block,
    Buffer,
    Foreign,
    Node,
    PrimFunc,
    buffers_of,
    foreign,
    sites,
)
from autosched.tir.printer import Names
from autosched.tir.routine import Routine, print_statements


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Whole(Expr):
    """An index that takes every value that it can."""

    dtype: str = dtypes.INDEX

    def __repr__(self) -> str:
        return ":"


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Opaque(Foreign):
    """What a routine leaves in a buffer. `buffers` are its arguments, buffers of the function.

    `sets_all`: it sets all that it writes before it reads that, so that nothing need be 0. No text
    says so, as it is not proved: a program that is read computes the same from zeros.
    """

    routine: Routine
    buffers: tuple[Buffer, ...]
    sets_all: bool = False

    def __deepcopy__(self, memo: dict[int, Any]) -> Opaque:
        """Of a function that is copied, the buffers are others."""
        return replace(self, buffers=deepcopy(self.buffers, memo))

    def text(self, names: Names, depth: int) -> list[str]:
        """The routine's statements, over the function's buffers."""
        outer = {id(p): names.by_id.get(id(p)) for p in self.routine.params}
        inner = [names.of(b) for b in self.buffers]
        names.by_id.update(zip(outer, inner, strict=True))
        lines = print_statements(self.routine, names, depth)
        # A parameter may be a buffer of the function, too, in the place of which it runs on a copy.
        names.by_id.update({k: name for k, name in outer.items() if name is not None})
        return lines

    def run(self, block: Block, memory: Mapping[int, Any]) -> None:
        """Run the routine, by the interpreter."""
        from autosched.tir.run_routine import run_routine

        for b in starts_as_zero(block):
            memory[id(b)].fill(0)
        run_routine(self.routine, [memory[id(b)] for b in self.buffers])

    def __repr__(self) -> str:
        return f"{self.routine.name}({', '.join(b.name for b in self.buffers)})"


def opaque_block(
    routine: Routine,
    buffers: Sequence[Buffer],
    reads: Sequence[Buffer],
    writes: Sequence[Buffer],
    annotations: Annotations = (),
    sets_all: bool = False,
) -> Block:
    """The block that runs `routine` on `buffers` of a function, of which it reads and writes some.
    It bears the routine's name."""
    read, written = (
        tuple(Access(b, tuple(Whole() for _ in b.shape)) for b in part) for part in (reads, writes)
    )
    body = tuple(Opaque(b.dtype, routine, tuple(buffers), sets_all) for b in writes)
    return Block(routine.name, (), (), (), read, written, body, annotations=annotations)


def opaque_of(node: Node) -> Opaque | None:
    """What an opaque block runs; None for every other block, and for loops."""
    value = foreign(node)
    return value if isinstance(value, Opaque) else None


def opaque_blocks(func: PrimFunc) -> list[Block]:
    """The opaque blocks of a function, in its order, wherever they stand."""
    return [s.block for s in sites(func) if opaque_of(s.block) is not None]


def has_opaque(func: PrimFunc) -> bool:
    """Whether a function has opaque blocks where they may stand: beside its loop nests."""
    return any(opaque_of(node) is not None for node in func.body)


def starts_as_zero(block: Block) -> list[Buffer]:
    """The buffers that an opaque block writes and does not read; none where it sets all of them."""
    read, value = {id(a.buffer) for a in block.reads}, opaque_of(block)
    every = () if value is not None and value.sets_all else block.writes
    return [a.buffer for a in every if id(a.buffer) not in read]


def pieces(func: PrimFunc) -> list[PrimFunc | Block]:
    """A function cut at its opaque blocks: these, and between them functions of the nests there.

    The parameters of such a function are those of `func` that it accesses, in their order, then the
    intermediates that something outside it accesses as well.
    """
    groups = list(_groups(func.body))
    users: dict[int, int] = {}
    for group in groups:
        for b in {id(b): b for node in group for b in buffers_of(node)}.values():
            users[id(b)] = users.get(id(b), 0) + 1
    params = {id(b): n for n, b in enumerate(func.params)}
    out: list[PrimFunc | Block] = []
    for n, group in enumerate(groups):
        if isinstance(group[0], Block) and opaque_of(group[0]) is not None:
            out.append(group[0])
            continue
        mine = list({id(b): b for node in group for b in buffers_of(node)}.values())
        outer = sorted((b for b in mine if id(b) in params), key=lambda b: params[id(b)])
        outer += [b for b in mine if id(b) not in params and users[id(b)] > 1]
        known, listed = {id(b) for b in outer}, {id(b) for b in mine}
        allocs = tuple(b for b in func.allocs if id(b) in listed - known)
        out.append(PrimFunc(f"{func.name}_{n}", tuple(outer), tuple(group), (), allocs))
    return out


def _groups(body: Sequence[Node]) -> Iterator[list[Node]]:
    """Neighbouring nests together, opaque blocks alone."""
    group: list[Node] = []
    for node in body:
        if opaque_of(node) is None:
            group.append(node)
            continue
        if group:
            yield group
        yield [node]
        group = []
    if group:
        yield group


def shared_buffers(func: PrimFunc) -> list[Buffer]:
    """The intermediates that several pieces of a function access, in the order of first use."""
    params = {id(b) for b in func.params}
    found: dict[int, Buffer] = {}
    for part in pieces(func):
        every = part.params if isinstance(part, PrimFunc) else tuple(buffers_of(part))
        found |= {id(b): b for b in every if id(b) not in params}
    return list(found.values())


def joined(func: PrimFunc, parts: Sequence[PrimFunc | Block]) -> PrimFunc:
    """`func` with its pieces changed, as lowering does: what they share is allocated for the
    call."""
    allocs = {id(b): b for b in shared_buffers(func)}
    body: list[Node] = []
    for part in parts:
        if isinstance(part, PrimFunc):
            allocs |= {id(b): b for b in part.allocs}
            body += part.body
        else:
            body.append(part)
    return replace(func, body=tuple(body), allocs=tuple(allocs.values()))


def rejoined(func: PrimFunc, change: Callable[[PrimFunc], PrimFunc]) -> PrimFunc:
    """`func` with `change` done to the nests between its opaque blocks."""
    body: list[Node] = []
    for part in pieces(func):
        body += change(part).body if isinstance(part, PrimFunc) else (part,)
    return replace(func, body=tuple(body))


def refuse_opaque(func: PrimFunc, what: str) -> None:
    """Raise CodegenError if a function has opaque blocks, for which there is no `what`."""
    for block in opaque_blocks(func):
        raise CodegenError(
            f"{func.name} has the opaque block {block.name}, which autosched.build compiles for "
            f"CPUs; {what} has no form of it"
        )
