"""What operators that NumPy computes pass back: calls of other operators, by a rule each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from autosched.graph.builder import const
from autosched.graph.errors import Unsupported
from autosched.graph.infer import infer
from autosched.graph.ir import Atom, Binding, Call, Const, tensor_type
from autosched.graph.ops.host import unpooled
from autosched.graph.ops.tensors import normal_axis
from autosched.graph.reverse_types import Bindings


class Passing(NamedTuple):
    """A call that passes back: `given` has come back to its first result, `n` is the input that
    asks."""

    to: Bindings
    binding: Binding
    call: Call
    given: Atom
    n: int

    def arg(self, n: int) -> Atom:
        """An input that is there."""
        found = self.call.args[n]
        assert found is not None
        return found

    def shape(self, n: int) -> tuple[int, ...]:
        """The shape of an input, whose sizes have to be numbers."""
        t = tensor_type(self.arg(n))
        if not t.is_static:
            raise Unsupported(f"{self.call.callee} has no adjoint where input {n} is of type {t}")
        return tuple(int(m) for m in t.known)

    def op(self, name: str, *args: Atom | None, **attrs: Any) -> Atom:
        """The result of an operator."""
        return self.to.operator(name, args, **attrs)

    def filled(self, n: int, value: float) -> Atom:
        """An array like an input, of one value."""
        return const(np.full(self.shape(n), value, tensor_type(self.arg(n)).dtype))


def _scatter(take: str) -> Callable[[Passing], Atom]:
    """The rule of an operator that writes updates at places, which the operator `take` reads."""

    def rule(p: Passing) -> Atom:
        name, attrs = str(p.call.callee), dict(p.call.attrs)
        how, indices = attrs.pop("reduction", "none"), p.arg(1)

        def read(a: Atom) -> Atom:
            return p.op(take, a, indices, **attrs)

        def written(into: Atom, updates: Atom, reduction: str) -> Atom:
            more = {} if name == "Scatter" else {"reduction": reduction}
            return p.op(name, into, indices, updates, **attrs, **more)

        if how == "none":
            return read(p.given) if p.n == 2 else written(p.given, p.filled(2, 0), how)
        if how == "add":
            return read(p.given) if p.n == 2 else p.given
        if how == "mul":
            if p.n == 0:
                return p.op("Mul", p.given, written(p.filled(0, 1), p.arg(2), how))
            raise Unsupported(
                f"{name} has no adjoint by its updates where reduction is 'mul': what the others "
                "multiply to is not known; use reduction='add' of logarithms"
            )
        # Of several elements that are the largest, each has an equal part.
        y, dtype = p.binding.vars[0], tensor_type(p.arg(0)).dtype
        first = p.op("Cast", p.op("Equal", p.arg(0), y), to=dtype)
        others = p.op("Cast", p.op("Equal", p.arg(2), read(y)), to=dtype)
        part = p.op("Div", p.given, p.op("Max", written(first, others, "add"), const(1, dtype)))
        return p.op("Mul", first, part) if p.n == 0 else p.op("Mul", others, read(part))

    return rule


def _top_k(p: Passing) -> Atom:
    call, both = p.call, p.binding.vars
    if len(both) == 1:  # the indices, which nothing else reads
        both = p.to.bind(call, infer(call, 2), "top_k")
    axis = call.attr("axis", -1)
    return p.op("ScatterElements", p.filled(0, 0), both[1], p.given, axis=axis)


def _reverse_sequence(p: Passing) -> Atom:
    return p.op("ReverseSequence", p.given, p.arg(1), **dict(p.call.attrs))


def _tensor_scatter(p: Passing) -> Atom:
    begin = p.call.args[2] if len(p.call.args) > 2 else None
    attrs = dict(p.call.attrs)
    if p.n == 0:
        return p.op("TensorScatter", p.given, p.filled(1, 0), begin, **attrs)
    past, update = p.shape(0), p.shape(1)
    at = normal_axis(attrs.get("axis", -2), len(past))
    row = [1] * len(past)
    row[at] = update[at]
    places: Atom = const(np.arange(update[at], dtype=np.int64).reshape(row))
    if begin is not None:
        first = p.op("Reshape", begin, shape=(update[0], *([1] * (len(past) - 1))))
        places = p.op("Add", p.op("Cast", first, to="int64"), places)
        places = p.op("Mod", places, const(past[at], "int64"))
    places = p.op("Expand", places, shape=update)
    return p.op("GatherElements", p.given, places, axis=at)


def _max_unpool(p: Passing) -> Atom:
    """Read at the places that were written to; they count in the array without padding."""
    attrs = dict(p.call.attrs)
    natural = unpooled(p.shape(0), attrs["kernel_shape"], attrs.get("pads"), attrs.get("strides"))
    given, rank = p.given, len(natural)
    if list(tensor_type(given).known) != natural:
        ends = tuple(natural)
        given = p.op("Slice", given, starts=(0,) * rank, ends=ends, axes=tuple(range(rank)))
    flat = p.op("Reshape", given, shape=(int(np.prod(natural)),))
    return p.op("Gather", flat, p.arg(1), axis=0)


def _col2im(p: Passing) -> Atom:
    """The columns of blocks of what comes back: a Gather at places that are known."""
    image, block = p.call.args[1], p.call.args[2]
    if not isinstance(image, Const) or not isinstance(block, Const):
        raise Unsupported("Col2Im has no adjoint where its image or block shape is no constant")
    sizes, kernel = (tuple(int(n) for n in a.value) for a in (image, block))
    rank = len(sizes)
    ones, nothing = (1,) * rank, (0,) * (2 * rank)
    far, by = (p.call.attr(k) or ones for k in ("dilations", "strides"))
    around = p.call.attr("pads") or nothing
    full = [n + around[d] + around[d + rank] for d, n in enumerate(sizes)]
    steps = [
        (f - d * (k - 1) - 1) // s + 1 for f, d, k, s in zip(full, far, kernel, by, strict=True)
    ]
    grids = np.indices((*kernel, *steps)).reshape(2 * rank, -1)
    at = np.ravel_multi_index(
        [grids[d] * far[d] + grids[rank + d] * by[d] for d in range(rank)], full
    )
    n, channels = tensor_type(p.given).known[:2]
    pads = (0, 0, *around[:rank], 0, 0, *around[rank:])
    wide = p.op("Pad", p.given, pads=pads) if any(pads) else p.given
    flat = p.op("Reshape", wide, shape=(n, channels, int(np.prod(full))))
    places = const(at.reshape(int(np.prod(kernel)), -1).astype(np.int64))
    return p.op("Reshape", p.op("Gather", flat, places, axis=2), shape=p.shape(0))


RULES: dict[str, tuple[frozenset[int], Callable[[Passing], Atom]]] = {
    "Col2Im": (frozenset({0}), _col2im),
    "MaxUnpool": (frozenset({0}), _max_unpool),
    "ReverseSequence": (frozenset({0}), _reverse_sequence),
    "Scatter": (frozenset({0, 2}), _scatter("GatherElements")),
    "ScatterElements": (frozenset({0, 2}), _scatter("GatherElements")),
    "ScatterND": (frozenset({0, 2}), _scatter("GatherND")),
    "TensorScatter": (frozenset({0, 1}), _tensor_scatter),
    "TopK": (frozenset({0}), _top_k),
}
"""Operators, the inputs that something comes back to, and what comes back to one of these."""


def from_host(to: Bindings, b: Binding, n: int, given: Atom | None) -> Atom | None:
    """What comes back to input n of an operator on the host; None where nothing does. Raises
    Unsupported, naming the operator, for one without a rule."""
    assert isinstance(b.value, Call)
    name = str(b.value.callee)
    if name not in RULES:
        raise Unsupported(
            f"{name} has no adjoint: it is computed on the host, and what it passes back is known "
            f"of {', '.join(RULES)} alone"
        )
    inputs, rule = RULES[name]
    if given is None or n not in inputs:
        return None
    return rule(Passing(to, b, b.value, given, n))
