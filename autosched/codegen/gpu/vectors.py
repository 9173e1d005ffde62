"""Which vectorised loops become vector loads and stores, and how wide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autosched.codegen.gpu.dialect import Dialect
from autosched.tir.affine import Affine, Atom, Digit, Int, always, same_int
from autosched.tir.expr import Call, Const, Expr, Slot, Var, walk
from autosched.tir.nodes import Access, Block, For, Predicate, strides

MAX_BYTES = 16


@dataclass(frozen=True, eq=False)
class Vectors:
    """A loop over lanes: its block stores `width` neighbours at once, and loads those of the reads
    numbered `loads`; any other read is one a lane."""

    loop: For
    block: Block
    width: int
    loads: tuple[int, ...]


def vectors_of(
    loop: For,
    extents: Mapping[Var, Int],
    dialect: Dialect,
    known: Sequence[Predicate],
    copies: bool = True,
) -> Vectors | None:
    """How `loop` runs in vectors; None if its stores are not neighbours at an aligned place.
    `copies`: whether what only copies may go in vectors of more lanes than are computed with."""
    if len(loop.body) != 1 or not isinstance(loop.body[0], Block):
        return None
    block = loop.body[0]
    if block.reducer is not None or len(block.writes) != 1:
        return None
    store = block.writes[0]
    widths = dialect.lanes(dialect.stored_type(store.buffer.dtype))
    if copies and copied_by(block) is not None:
        wide = dialect.copied_lanes.get(dialect.stored_type(store.buffer.dtype), ())
        widths = (*(n for n in wide if same_int(loop.extent, n)), *widths)
    for width in widths:
        if not always(loop.extent % width == 0) or not is_vector(
            store, block, loop, width, extents, dialect
        ):
            continue
        if moves_apart(block, loop, width):
            continue
        hidden = guarded(block)
        loads = tuple(
            n
            for n, a in enumerate(block.reads)
            if n not in hidden and is_vector(a, block, loop, width, extents, dialect)
        )
        return Vectors(loop, block, width, loads)
    return None


def copied_by(block: Block) -> tuple[Expr | None, Access] | None:
    """(the condition under which there is something to copy, else zeros; what is copied) of a block
    that only copies: None for always, and for another block."""
    body = block.body[0]
    if len(block.body) != 1 or len(block.writes) != 1:
        return None
    if isinstance(body, Slot):
        return None, block.reads[body.index]
    condition = condition_of(block)
    if condition is None or not isinstance(body, Call) or not isinstance(body.args[1], Slot):
        return None
    if block.writes[0].buffer.dtype == "bool":
        return None
    return condition, block.reads[body.args[1].index]


def condition_of(block: Block) -> Expr | None:
    """Of a body `if_then_else(condition on axes, element, 0)`."""
    body = block.body[0]
    if not isinstance(body, Call) or body.op != "if_then_else":
        return None
    condition, value, other = body.args
    zero = isinstance(other, Const) and str(other.value) in ("0", "0.0")
    plain = not any(isinstance(e, Slot) for e in walk(condition))
    return condition if zero and plain and isinstance(value, Slot) else None


def moves_apart(block: Block, loop: For, width: int) -> bool:
    """Whether of `width` neighbours along a loop some may exist and others not: not where what
    exists ends at a multiple of `width`, as they begin at one."""
    for p in block.predicates:
        form = _separated(p.form, loop.var, width)
        if not form.uses([loop.var]):
            continue
        rest = form - Affine.of(loop.var)
        if rest.uses([loop.var]) or not always((p.bound - rest.const) % width == 0):
            return True
        if not all(is_multiple(a, c, width) for a, c in rest.terms):
            return True
    return False


def guarded(block: Block) -> set[int]:
    """Reads that stand in an `if_then_else`, or index another: what they name may not exist."""
    out = set()
    for e in block.body:
        for x in walk(e):
            if getattr(x, "op", None) == "if_then_else":
                out |= {y.index for y in walk(x) if isinstance(y, Slot)}
    return out


def is_vector(
    a: Access, block: Block, loop: For, width: int, extents: Mapping[Var, Int], dialect: Dialect
) -> bool:
    """Whether the lanes of `a` are neighbours that begin at a multiple of `width`."""
    if a.buffer.scope == "local" or a.buffer.dtype == "bool":
        return False
    kind = dialect.stored_type(a.buffer.dtype)
    if width not in (*dialect.lanes(kind), *dialect.copied_lanes.get(kind, ())):
        return False
    total = offset_of(a, block, extents, (loop.var, width))
    if total is None or total.coefficient(loop.var) != 1:
        return False
    rest = total - Affine.of(loop.var)
    if rest.uses([loop.var]):
        return False
    return always(rest.const % width == 0) and all(is_multiple(a, c, width) for a, c in rest.terms)


def offset_of(
    a: Access, block: Block, extents: Mapping[Var, Int], along: tuple[Var, int] | None = None
) -> Affine | None:
    """Elements from the start of the buffer, over loops; None if data decide. With `along`, the
    variable is taken out of digits in which so many neighbours stay together."""
    total, values = Affine(0), block.values()
    for index, step in zip(a.indices, strides(a.buffer.shape, a.buffer.align), strict=True):
        if not isinstance(index, Affine):
            return None
        form = index.substitute(values, extents)
        total = total + (form if along is None else _separated(form, *along)) * step
    return total


def _separated(form: Affine, v: Var, width: int) -> Affine:
    """`form` with `v` taken out of digits in which `width` neighbours stay together."""
    out = Affine(form.const)
    for atom, c in form.terms:
        part = Affine.of(atom, c)
        if isinstance(atom, Digit) and atom.base.coefficient(v) == 1:
            rest = atom.base - Affine.of(v)
            aligned = all(always(x % width == 0) for x in (rest.const, *(x for _, x in rest.terms)))
            if aligned and not rest.uses([v]):
                if always(atom.div % width == 0):
                    part = Affine.of(Digit(rest, atom.div, atom.mod), c)
                elif atom.div == 1 and atom.mod is not None and always(atom.mod % width == 0):
                    part = Affine.of(Digit(rest, 1, atom.mod), c) + Affine.of(v, c)
        out = out + part
    return out


def is_multiple(atom: Atom, c: Int, width: int) -> bool:
    """Whether `c * atom` is a multiple of `width`."""
    if always(c % width == 0):
        return True
    if not isinstance(atom, Digit) or atom.div != 1 or atom.mod is None:
        return False
    base = atom.base
    return (
        always(atom.mod % width == 0)
        and always(base.const % width == 0)
        and all(is_multiple(a, x, width) for a, x in base.terms)
    )
