"""Candidates of a population: the program of one column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from autosched.tir.affine import Affine, Digit, Extents, Int
from autosched.tir.nodes import Access, Block, Buffer, Node, Predicate, PrimFunc, sites


def candidate(func: PrimFunc, n: int) -> PrimFunc:
    """The program of candidate `n`, all ints. It keeps variables, and buffers of one shape."""
    column = _Column(n)
    return replace(
        func,
        body=tuple(map(column.node, func.body)),
        allocs=tuple(map(column.buffer, func.allocs)),
    )


def candidate_node(node: Node, n: int) -> Node:
    """A part of a program as candidate `n` has it."""
    return _Column(n).node(node)


def has_digits(func: PrimFunc) -> bool:
    """Whether a `(x // d) % m` of the program has numbers that differ by candidate: alone, a
    candidate may then have a simpler form, to which more applies."""
    for site in sites(func):
        block = site.block
        if has_digits_in([*block.bindings, *(p.form for p in block.predicates)], site.extents()):
            return True
        accessed = [i for a in (*block.reads, *block.writes) for i in a.indices]
        axes = {it.var: it.extent for it in block.iters}
        if has_digits_in([i for i in accessed if isinstance(i, Affine)], axes):
            return True
    return False


def has_digits_in(forms: Iterable[Affine], extents: Extents) -> bool:
    """Whether a digit in one of the forms has numbers or extents that differ by candidate."""
    return any(
        isinstance(atom, Digit)
        and (
            any(isinstance(v, np.ndarray) for v in _numbers(atom))
            or any(isinstance(extents[v], np.ndarray) for v in atom.variables())
            or has_digits_in([atom.base], extents)
        )
        for form in forms
        for atom, _ in form.terms
    )


def _numbers(digit: Digit) -> Iterator[object]:
    yield from (digit.div, digit.mod, digit.base.const)
    yield from (c for _, c in digit.base.terms)


class _Column:
    def __init__(self, n: int) -> None:
        self.n = n
        self.buffers: dict[Buffer, Buffer] = {}

    def int(self, value: Int) -> int:
        return int(value[self.n]) if isinstance(value, np.ndarray) else int(value)

    def form(self, form: Affine) -> Affine:
        terms = []
        for atom, c in form.terms:
            if isinstance(atom, Digit):
                mod = None if atom.mod is None else self.int(atom.mod)
                atom = Digit(self.form(atom.base), self.int(atom.div), mod)
            terms.append((atom, self.int(c)))
        return Affine(self.int(form.const), tuple(terms))

    def buffer(self, old: Buffer) -> Buffer:
        numbers = [*old.shape, *(n for a in old.align for n in a)]
        if not any(isinstance(n, np.ndarray) for n in numbers):
            return old
        if old not in self.buffers:
            align = tuple((a, self.int(f), self.int(o)) for a, f, o in old.align)
            shape = tuple(map(self.int, old.shape))
            self.buffers[old] = replace(old, shape=shape, align=align)
        return self.buffers[old]

    def access(self, access: Access) -> Access:
        indices = (self.form(i) if isinstance(i, Affine) else i for i in access.indices)
        return Access(self.buffer(access.buffer), tuple(indices))

    def node(self, node: Node) -> Node:
        if isinstance(node, Block):
            return replace(
                node,
                iters=tuple(replace(it, extent=self.int(it.extent)) for it in node.iters),
                bindings=tuple(map(self.form, node.bindings)),
                predicates=tuple(
                    Predicate(self.form(p.form), self.int(p.bound)) for p in node.predicates
                ),
                reads=tuple(map(self.access, node.reads)),
                writes=tuple(map(self.access, node.writes)),
                annotations=tuple((k, self.value(v)) for k, v in node.annotations),
            )
        return replace(
            node,
            extent=self.int(node.extent),
            body=tuple(map(self.node, node.body)),
            annotations=tuple((k, self.value(v)) for k, v in node.annotations),
            allocs=tuple(map(self.buffer, node.allocs)),
        )

    def value(self, value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(self.value, value))
        return self.int(value) if isinstance(value, np.ndarray) else value
