"""What rules on the form of programs look at: blocks, affine forms, extents."""

from __future__ import annotations

from collections.abc import Iterator

from autosched.tir.affine import Affine, Digit, always
from autosched.tir.nodes import (
    Block,
    PrimFunc,
    sites,
)
from autosched.tir.size import Size


def blocks(func: PrimFunc) -> Iterator[Block]:
    for site in sites(func):
        yield site.block


def forms(block: Block) -> Iterator[tuple[str, Affine]]:
    """Every affine form of a block, with the words for where it stands."""
    for it, binding in zip(block.iters, block.bindings, strict=False):
        yield f"the binding of {it.var.name}", binding
    for p in block.predicates:
        yield "a predicate", p.form + p.bound
    for access in (*block.reads, *block.writes):
        for index in access.indices:
            if isinstance(index, Affine):
                yield f"an index of {access.buffer.name}", index


def is_plain(form: Affine) -> bool:
    """Whether all numbers are Python ints or sizes, and digits are well-formed."""
    for atom, c in form.terms:
        if type(c) not in (int, Size):
            return False
        if isinstance(atom, Digit):
            numbers = (atom.div,) if atom.mod is None else (atom.div, atom.mod)
            if not all(is_size(n) for n in numbers) or not is_plain(atom.base):
                return False
    return type(form.const) in (int, Size)


def is_size(n: object) -> bool:
    """Whether `n` is an extent: a constant or an expression of sizes, and positive."""
    if isinstance(n, Size):
        return always(n >= 1)
    return isinstance(n, int) and not isinstance(n, bool) and n >= 1
