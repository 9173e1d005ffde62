"""Einstein's summation."""

from __future__ import annotations

from typing import Any

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import TensorLike, stage


@operator("Einsum")
def einsum(*tensors: TensorLike, equation: str) -> Any:
    """Products of elements, summed over the letters that the result does not have."""
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
    summed = [n for n in extents if n not in kept]

    def element(*at: Any) -> Any:
        place: dict[str, Any] = dict(zip(kept, at, strict=True))
        over = {n: te.reduce_axis((0, extents[n]), name=f"r{n}") for n in summed}
        place |= over
        product: Any = None
        for t, letters in zip(tensors, labels, strict=True):
            e = t(*(0 if m == 1 else place[n] for n, m in zip(letters, t.shape, strict=True)))
            product = e if product is None else product * e
        return te.sum(product, axis=list(over.values())) if over else product

    return stage([extents[n] for n in kept], element, "einsum")


def _labels(term: str, dots: int) -> list[str]:
    before, ellipsis, after = term.partition("...")
    middle = [str(n) for n in range(dots - 1, -1, -1)] if ellipsis else []
    return [*before, *middle, *after]
