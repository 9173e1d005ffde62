"""Einstein's summation, in pairs of operands."""

from __future__ import annotations

import itertools
import operator as python
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import TensorLike, rounded, sums, widened
from autosched.te.tensor import Extent

UNKNOWN = 64
"""What an extent that is not known counts where an order of contractions is sought."""


@operator("Einsum")
def einsum(*tensors: TensorLike, equation: str) -> Any:
    """Products of elements, summed over the letters that the result does not have.

    Letters of one operand alone are summed first. Of three operands and more those two are
    contracted first whose product has fewest elements beside their own (opt_einsum's `greedy`)."""
    if not isinstance(equation, str):
        raise Unsupported(f"attribute equation is {equation!r}; expected a text")
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(tensors):
        raise Unsupported(f"attribute equation is {equation!r}; there are {len(tensors)} inputs")
    widths = [
        len(t.shape) - len(term.replace("...", "")) for t, term in zip(tensors, terms, strict=True)
    ]
    dots = max((w for w, term in zip(widths, terms, strict=True) if "..." in term), default=0)
    # The axes of an ellipsis count from the last: numbers stand for them.
    labels = [_labels(term, w) for w, term in zip(widths, terms, strict=True)]
    extents: dict[str, Any] = {}
    for t, letters in zip(tensors, labels, strict=True):
        if len(letters) != len(t.shape):
            raise Unsupported(f"attribute equation is {equation!r}; an input has {t.shape}")
        for name, n in zip(letters, t.shape, strict=True):
            if extents.setdefault(name, n) != n and n != 1:
                if extents[name] != 1:
                    raise Unsupported(f"axis {name} has the extents {extents[name]} and {n}")
                extents[name] = n
    if arrow:
        kept = _labels(right, dots)
    else:
        once = sorted(n for n in extents if not n.isdigit() and left.count(n) == 1)
        kept = [*_labels("...", dots), *once]
    if len(set(kept)) != len(kept) or not set(kept) <= extents.keys():
        raise Unsupported(f"attribute equation is {equation!r}")
    return _summed(tensors, labels, extents, kept)


def _labels(term: str, dots: int) -> list[str]:
    before, ellipsis, after = term.partition("...")
    middle = [str(n) for n in range(dots - 1, -1, -1)] if ellipsis else []
    return [*before, *middle, *after]


def _summed(
    tensors: Sequence[TensorLike],
    labels: Sequence[Sequence[str]],
    extents: Mapping[str, Extent],
    kept: Sequence[str],
) -> Any:
    """The sums of the products of tensors, whose axes have letters, for the letters `kept`."""
    factors = [_read(*pair) for pair in zip(tensors, labels, strict=True)]
    dtype = tensors[0].dtype
    if all(n in kept for f in factors for n in f.letters):
        return _Contraction(extents, kept, dtype).stage(factors, kept, "einsum")
    # Sums of float16 are taken in float32.
    wide = [widened(t) for t in tensors]
    factors = [_read(*pair) for pair in zip(wide, labels, strict=True)]
    made = _Contraction(extents, kept, wide[0].dtype).whole(factors)
    return rounded(made, dtype)


@dataclass(frozen=True)
class _Factor:
    """A function of the places of some letters, each of which it has once. `computed`: a product,
    which is stored nowhere."""

    letters: tuple[str, ...]
    at: Callable[[Mapping[str, Any]], Any]
    computed: bool = False


def _read(tensor: TensorLike, labels: Sequence[str]) -> _Factor:
    """The elements of a tensor; of an axis of one element the first, whatever the place."""
    single = [isinstance(n, int) and n == 1 for n in tensor.shape]
    pairs = list(zip(labels, single, strict=True))
    letters = dict.fromkeys(name for name, one in pairs if not one)
    return _Factor(
        tuple(letters), lambda place: tensor(*(0 if one else place[name] for name, one in pairs))
    )


@dataclass(frozen=True)
class _Contraction:
    """Sums of products, of which the letters `kept` are left."""

    extents: Mapping[str, Extent]
    kept: Sequence[str]
    dtype: str

    def whole(self, factors: Sequence[_Factor]) -> Any:
        """The sums of the product of all factors."""
        every, left = set(_union(factors)), list(factors)
        for n, f in enumerate(factors):
            # Of one that has all letters a sum of its own would save no products.
            if set(f.letters) != every:
                left[n] = self.contracted([f], [*factors[:n], *factors[n + 1 :]])
        while len(left) > 2:
            first, second = self.best(left)
            rest = [f for n, f in enumerate(left) if n not in (first, second)]
            left = [*rest, self.contracted([left[first], left[second]], rest)]
        return self.stage(self.stored(left), self.kept, "einsum")

    def best(self, left: Sequence[_Factor]) -> tuple[int, int]:
        """The numbers of the two factors to be contracted first."""

        def cost(pair: tuple[int, int]) -> tuple[bool, int, int]:
            a, b = (left[n].letters for n in pair)
            rest = [f for n, f in enumerate(left) if n not in pair]
            made = self.size(self.needed(_union([left[n] for n in pair]), rest))
            apart = set(a).isdisjoint(b)
            return apart, made - self.size(a) - self.size(b), self.size({*a, *b})

        return min(itertools.combinations(range(len(left)), 2), key=cost)

    def contracted(self, pair: Sequence[_Factor], rest: Sequence[_Factor]) -> _Factor:
        """The product of factors, summed over the letters that neither the result has nor the
        rest of the factors."""
        union = _union(pair)
        letters = self.needed(union, rest)
        if letters == union:
            return _product(pair)
        made = self.stage(self.stored(pair), letters, "part")
        return _Factor(letters, lambda place: made(*(place[n] for n in letters)))

    def stored(self, factors: Sequence[_Factor]) -> list[_Factor]:
        """Factors to be multiplied; products whose elements are read several times are stored."""
        union = set(_union(factors))
        return [
            _read(self.stage([f], f.letters, "part"), f.letters)
            if f.computed and set(f.letters) != union
            else f
            for f in factors
        ]

    def needed(self, letters: Sequence[str], rest: Sequence[_Factor]) -> tuple[str, ...]:
        """Those of some letters that the result has, or the rest of the factors."""
        wanted = {*self.kept, *(n for f in rest for n in f.letters)}
        return tuple(n for n in letters if n in wanted)

    def size(self, letters: Collection[str]) -> int:
        """Elements of a tensor with these letters."""
        extents = (self.extents[n] for n in letters)
        return prod(n if isinstance(n, int) else UNKNOWN for n in extents)

    def stage(self, factors: Sequence[_Factor], letters: Sequence[str], name: str) -> Any:
        """The product of factors as a tensor with these letters; the others are summed."""
        union = _union(factors)
        over = [n for n in self.extents if n in union and n not in letters]
        whole = _product(factors)

        def element(*at: Any) -> Any:
            axes = {n: te.reduce_axis((0, self.extents[n]), name=f"r{n}") for n in over}
            product = whole.at({**dict(zip(letters, at, strict=True)), **axes})
            return te.sum(product, axis=list(axes.values())) if axes else product

        shape = [self.extents[n] for n in letters]
        return sums(shape, element, [self.extents[n] for n in over], self.dtype, name)


def _union(factors: Sequence[_Factor]) -> tuple[str, ...]:
    """The letters of factors, each once."""
    return tuple(dict.fromkeys(n for f in factors for n in f.letters))


def _product(factors: Sequence[_Factor]) -> _Factor:
    """The product of factors, computed where it is read."""
    if len(factors) == 1:
        return factors[0]
    return _Factor(
        _union(factors), lambda place: reduce(python.mul, (f.at(place) for f in factors)), True
    )
