"""Candidates of a population: the program of one column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from autosched.tir.affine import Affine, Digit, Extents, Int
from autosched.tir.nodes import Node, PrimFunc, Site
from autosched.tir.numbers import Numbers


def candidate(func: PrimFunc, n: int) -> PrimFunc:
    """The program of candidate `n`, all ints. It keeps variables, and buffers of one shape."""
    return Numbers(_column(n)).func(func)


def candidate_node(node: Node, n: int) -> Node:
    """A part of a program as candidate `n` has it."""
    return Numbers(_column(n)).node(node)


def _column(n: int) -> Callable[[Int], Int]:
    def number(value: Int) -> Int:
        if isinstance(value, np.ndarray):
            return int(value[n])
        return int(value) if isinstance(value, np.integer) else value

    return number


def has_digits_at(site: Site) -> bool:
    """Whether a `(x // d) % m` of a block has numbers that differ by candidate: alone, a candidate
    may then have a simpler form, to which more applies."""
    block = site.block
    if has_digits_in([*block.bindings, *(p.form for p in block.predicates)], site.extents()):
        return True
    accessed = [i for a in (*block.reads, *block.writes) for i in a.indices]
    axes = {it.var: it.extent for it in block.iters}
    return has_digits_in([i for i in accessed if isinstance(i, Affine)], axes)


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
