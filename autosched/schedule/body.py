"""Rewriting what a block computes: its reads and the slots that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from autosched.errors import NotBatchable, ScheduleError
from autosched.tir import expr as ex
from autosched.tir.affine import Affine, Digit, Extents, Int, is_zero
from autosched.tir.expr import Call, Expr, Slot, Var
from autosched.tir.height import MAX_HEIGHT, height, size
from autosched.tir.nodes import Access, Block, Buffer, Index

Inline = Callable[[tuple[Index, ...]], Expr]
"""The expression that takes the place of a read at these indices."""


MAX_NODES = 2000
"""Of an expression after a producer's took the place of reads. Each of a chain of producers that
uses the one before twice doubles what there is, and whatever asks about a body walks all of it."""


class Reads:
    """The reads of a block under construction; equal accesses share a slot."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []

    def slot(self, access: Access) -> Slot:
        """The slot of `access`, added where it is new."""
        for n, old in enumerate(self.accesses):
            if old.buffer is access.buffer and all(map(same_index, old.indices, access.indices)):
                return Slot(n, access.buffer.dtype)
        self.accesses.append(access)
        return Slot(len(self.accesses) - 1, access.buffer.dtype)


def same_index(a: Index, b: Index) -> bool:
    """Whether two indices are equal as written."""
    if isinstance(a, Affine) and isinstance(b, Affine):
        return a.same(b)
    return isinstance(a, Expr) and isinstance(b, Expr) and ex.same(a, b)


def to_expr(index: Index) -> Expr:
    """An index as an expression. Raises NotBatchable for a form that differs by candidate."""
    return index if isinstance(index, Expr) else index.to_expr()


def value_expr(form: Affine) -> Expr:
    """An affine number as a value in a body, where its numbers may differ by candidate.

    Those stand in it as variables without a value: nothing that a population is asked evaluates a
    body, and its operations are the same for all candidates. Raises NotBatchable where they are
    not: a factor of 0 or 1 for some, or digits.
    """
    if not has_arrays(form):
        return form.to_expr()
    plain: list[tuple[Var, Int]] = []
    for atom, c in form.terms:
        if not isinstance(atom, Var) or (isinstance(c, np.ndarray) and (c < 2).any()):
            raise NotBatchable("operations on an axis's value differ by candidate")
        plain.append((atom, c))
    offset = form.const
    if isinstance(offset, np.ndarray):
        if (offset != offset[0]).any():
            raise NotBatchable("an offset of an axis's value differs by candidate")
        offset = int(offset[0])
    terms = [
        atom * Var("each") if isinstance(c, np.ndarray) else Affine.of(atom, c).to_expr()
        for atom, c in plain
    ]
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total if is_zero(offset) else total + Affine(offset).to_expr()


def has_arrays(form: Affine) -> bool:
    """Whether any number in the form differs by candidate."""
    if isinstance(form.const, np.ndarray):
        return True
    for atom, c in form.terms:
        if isinstance(c, np.ndarray):
            return True
        if isinstance(atom, Digit) and (
            isinstance(atom.div, np.ndarray)
            or isinstance(atom.mod, np.ndarray)
            or has_arrays(atom.base)
        ):
            return True
    return False


class Rewriter:
    """Copies expressions of a block into another one.

    Axes are replaced by `axes`; a read of a buffer in `inlined` becomes the expression given for
    its indices, any other read a slot of `into`.
    """

    def __init__(
        self,
        block: Block,
        into: Reads,
        axes: Mapping[Var, Index],
        extents: Extents,
        inlined: Mapping[Buffer, Inline] | None = None,
    ) -> None:
        self.block = block
        self.into = into
        self.axes = axes
        self.extents = extents
        self.inlined = dict(inlined or {})
        self.slots: dict[int, Expr] = {}
        # A condition may be decided when a candidate is lowered, by numbers that must be there.
        conditions = (
            e
            for body in block.body
            for e in ex.walk(body)
            if isinstance(e, Call) and e.dtype == "bool"
        )
        self.deciding = {x for e in conditions for x in ex.walk(e) if isinstance(x, Var)}

    def expr(self, e: Expr) -> Expr:
        """An expression of the block, rewritten."""
        return ex.rewrite(e, self._leaf)

    def index(self, index: Index) -> Index:
        """An index of the block, rewritten; affine stays affine where the axes do."""
        if isinstance(index, Affine):
            used = {v: self.axes[v] for v in index.variables() if v in self.axes}
            if not used:
                return index
            forms = {v: f for v, f in used.items() if isinstance(f, Affine)}
            if len(forms) == len(used):
                return index.substitute(forms, self.extents)
        return self.expr(to_expr(index))

    def access(self, access: Access) -> Access:
        """An access of the block, rewritten."""
        return replace(access, indices=tuple(self.index(i) for i in access.indices))

    def _leaf(self, e: Expr) -> Expr | None:
        if isinstance(e, Slot):
            if e.index not in self.slots:
                self.slots[e.index] = self._read(self.block.reads[e.index])
            return self.slots[e.index]
        if isinstance(e, Var) and e in self.axes:
            form = self.axes[e]
            if isinstance(form, Affine) and e not in self.deciding:
                return value_expr(form)
            return to_expr(form)
        return None

    def _read(self, access: Access) -> Expr:
        indices = tuple(self.index(i) for i in access.indices)
        inline = self.inlined.get(access.buffer)
        if inline is not None:
            return inline(indices)
        return self.into.slot(Access(access.buffer, indices))


def rewrite_block(
    block: Block,
    axes: Mapping[Var, Index],
    extents: Extents,
    inlined: Mapping[Buffer, Callable[[Reads], Inline]] | None = None,
) -> tuple[tuple[Access, ...], tuple[Access, ...], tuple[Expr, ...]]:
    """(reads, writes, body) of `block` with its axes replaced and reads inlined."""
    reads = Reads()
    makers = {buffer: make(reads) for buffer, make in (inlined or {}).items()}
    rewriter = Rewriter(block, reads, axes, extents, makers)
    writes = tuple(rewriter.access(a) for a in block.writes)
    body = tuple(rewriter.expr(e) for e in block.body)
    for e in body:
        if height(e) > MAX_HEIGHT:
            raise ScheduleError(
                f"the expression of {block.name} would nest {height(e)} deep; at most "
                f"{MAX_HEIGHT} levels are taken"
            )
    return tuple(reads.accesses), writes, body


def merged_size(producer: Block, consumer: Block) -> tuple[int, int]:
    """(nodes, levels) that the consumer's expressions have at most once they hold the producer's
    in place of its results."""
    values = {id(a.buffer): body for a, body in zip(producer.writes, producer.body, strict=True)}
    put = {n: values[id(a.buffer)] for n, a in enumerate(consumer.reads) if id(a.buffer) in values}
    nodes = sum(map(size, consumer.body))
    for body in consumer.body:
        for e in ex.walk(body):
            if isinstance(e, Slot) and e.index in put:
                nodes += size(put[e.index])
    levels = max(map(height, consumer.body)) + max(map(height, put.values()), default=0)
    return nodes, levels


def value_of(block: Block, number: int, dims: Sequence[Var]) -> Callable[[Reads], Inline]:
    """What `block` writes as its write `number`, as an expression of the element's indices.

    `dims` are the axes that index the write.
    """

    def make(reads: Reads) -> Inline:
        def inline(indices: tuple[Index, ...]) -> Expr:
            axes = dict(zip(dims, indices, strict=True))
            return Rewriter(block, reads, axes, {}).expr(block.body[number])

        return inline

    return make
