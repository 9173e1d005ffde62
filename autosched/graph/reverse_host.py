"""What operators that NumPy computes pass back: calls of other operators, by a rule each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from autosched.graph.builder import const
from autosched.graph.errors import Unsupported
from autosched.graph.infer import infer
from autosched.graph.ir import Atom, Binding, Call, Const, tensor_type
from autosched.graph.ops.host_adjoint import NAME as HOST_ADJOINT
from autosched.graph.ops.tensors import normal_axis
from autosched.graph.ops.transforms import pieces, transformed
from autosched.graph.ops.unpool import blocks, unpooled
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
            raise Unsupported(
                f"{self.call.callee} has no adjoint where input {n} is of type {t}; its sizes have "
                "to be numbers"
            )
        return tuple(int(m) for m in t.known)

    def op(self, name: str, *args: Atom | None, **attrs: Any) -> Atom:
        """The result of an operator."""
        return self.to.operator(name, args, **attrs)

    def known(self, n: int) -> Any:
        """The array of an input that is a constant; None where it is left out."""
        a = self.call.args[n] if n < len(self.call.args) else None
        if a is not None and not isinstance(a, Const):
            raise Unsupported(
                f"{self.call.callee} has no adjoint where input {n} is computed; make it a constant"
            )
        return None if a is None else a.value

    def filled(self, n: int, value: float) -> Atom:
        """An array like an input, of one value."""
        return const(np.full(self.shape(n), value, tensor_type(self.arg(n)).dtype))


def _factor(p: Passing, written: Callable[..., Atom], read: Callable[[Atom], Atom]) -> Atom:
    """By an update that others multiply: their product, also where it or one of them is zero."""
    zero = const(0, tensor_type(p.arg(0)).dtype)
    nothing = {k: p.op("Equal", p.arg(k), zero) for k in (0, 2)}
    parts = [p.op("Where", n, p.filled(k, 1), p.arg(k)) for k, n in nothing.items()]
    zeros = [p.op("Cast", n, to="int32") for n in nothing.values()]
    product = p.op("Div", read(written(*parts, "mul")), parts[1])
    among = p.op("Sub", read(written(*zeros, "add")), zeros[1])
    others = p.op("Where", p.op("Equal", among, const(0, "int32")), product, zero)
    return p.op("Mul", read(p.given), others)


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
            return _factor(p, written, read)
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
    image, block = p.known(1), p.known(2)
    how = (p.call.attr(k) for k in ("dilations", "pads", "strides"))
    far, by, around, full, steps = blocks(image, block, *how)
    kernel, rank = block.tolist(), len(image)
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


def _compress(p: Passing) -> Atom:
    """Zeros with what comes back in the places that were kept."""
    places, shape, axis = np.flatnonzero(p.known(1)), p.shape(0), p.call.attr("axis")
    if axis is None:
        flat = const(np.zeros(int(np.prod(shape)), tensor_type(p.given).dtype))
        made = p.op("ScatterElements", flat, const(places), p.given)
        return p.op("Reshape", made, shape=shape)
    at = normal_axis(axis, len(shape))
    given = [len(places) if d == at else n for d, n in enumerate(shape)]
    column = places.reshape([-1 if d == at else 1 for d in range(len(shape))])
    every = const(np.broadcast_to(column, given).copy())
    return p.op("ScatterElements", p.filled(0, 0), every, p.given, axis=at)


def _fitted(p: Passing, a: Atom, axis: int, extent: int) -> Atom:
    """An array with its first elements along an axis, or zeros after its last."""
    shape = tensor_type(a).known
    have = int(shape[axis])
    if have > extent:
        return p.op("Slice", a, starts=(0,), ends=(extent,), axes=(axis,))
    pads = [0] * (2 * len(shape))
    pads[len(shape) + axis] = extent - have
    return p.op("Pad", a, pads=tuple(pads)) if have < extent else a


def _conjugate(p: Passing, given: Atom, axis: int, n: int) -> Atom:
    """The adjoint of a transform of `n` elements, of which the first may have been kept."""
    whole = p.op("DFT", _fitted(p, given, axis, n), axis=axis, inverse=1)
    return p.op("Mul", whole, const(n, tensor_type(given).dtype))


def _dft(p: Passing) -> Atom:
    shape, attrs = p.shape(0), dict(p.call.attrs)
    inverse, onesided = (bool(attrs.get(k, 0)) for k in ("inverse", "onesided"))
    along, n = transformed(shape, p.known(1), p.known(2), attrs.get("axis", 1), inverse, onesided)
    if not inverse:
        back = _conjugate(p, p.given, along, n)
    else:
        dtype = tensor_type(p.given).dtype
        # One that is not kept is the conjugate of one that is: both have come back.
        twice = np.full(n // 2 + 1 if onesided else n, 2.0 if onesided else 1.0)
        if onesided:
            twice[[0, n // 2] if n % 2 == 0 else [0]] = 1
        by = (twice / n).reshape([-1 if d == along else 1 for d in range(len(shape))])
        back = p.op("DFT", p.given, axis=along, onesided=int(onesided))
        back = p.op("Mul", back, const(by.astype(dtype)))
    return _fitted(p, _fitted(p, back, along, shape[along]), len(shape) - 1, shape[-1])


def _stft(p: Passing) -> Atom:
    """By the window what each of its elements was multiplied with; by the signal the sum of the
    pieces that an element is in."""
    shape, window = p.shape(0), p.call.args[2] if len(p.call.args) > 2 else None
    wide = None if window is None else p.shape(2)[0]
    by, n, frames = pieces(shape, p.known(1), wide, p.known(3))
    before = (n - (wide or n)) // 2
    parts = shape[2] if len(shape) == 3 else 1
    back = _fitted(p, _conjugate(p, p.given, 2, n), 3, parts)
    if p.n == 2:
        signal = p.op("Reshape", p.arg(0), shape=(shape[0], shape[1], parts))
        places = const(np.arange(frames)[:, None] * by + np.arange(n))
        both = p.op("Mul", back, p.op("Gather", signal, places, axis=1))
        whole = p.op("ReduceSum", both, axes=(0, 1, 3), keepdims=0)
        return p.op("Slice", whole, starts=(before,), ends=(before + (wide or n),), axes=(0,))
    if window is not None and wide is not None:
        full = p.op("Pad", window, pads=(before, n - wide - before))
        back = p.op("Mul", back, p.op("Reshape", full, shape=(1, 1, n, 1)))
    columns = p.op("Transpose", back, perm=(0, 3, 2, 1))
    columns = p.op("Reshape", columns, shape=(shape[0], parts * n, frames))
    sizes = [const(np.array([m], np.int64)) for m in (shape[1], n)]
    summed = p.op("Col2Im", columns, *sizes, strides=(by,))
    return p.op("Reshape", p.op("Transpose", summed, perm=(0, 2, 1)), shape=shape)


def _in_numpy(p: Passing) -> Atom:
    """By the function of `ops.host_adjoint`."""
    call = p.call
    return p.op(HOST_ADJOINT, p.given, *call.args, of=call.callee, wrt=p.n, attrs=call.attrs)


def _deform_conv(p: Passing) -> Atom:
    return p.op("ReduceSum", p.given, axes=(0, 2, 3), keepdims=0) if p.n == 3 else _in_numpy(p)


LINEAR = {"DeformConv": {0, 1, 4}, "GridSample": {0}, "RoiAlign": {0}}
"""Inputs in which an operator with a HostAdjoint is linear, with DeformConv's bias left out and
RoiAlign's mode avg."""


def _again(p: Passing) -> Atom | None:
    """The adjoint of a HostAdjoint: where the operator is linear in the input, the operator."""
    of, wrt, attrs = (p.call.attr(k) for k in ("of", "wrt", "attrs"))
    given = dict(attrs or ())
    if wrt not in LINEAR.get(of, ()) or given.get("mode") == "max" or p.n not in (0, 1 + wrt):
        what = "what comes back to it" if p.n == 0 else f"input {p.n - 1}"
        raise Unsupported(
            f"the adjoint of {of} by its input {wrt} has no adjoint by {what}: second derivatives "
            "are known by inputs in which the operator is linear, twice the same"
        )
    if p.n > 0:
        return None
    inputs = list(p.call.args[1:])
    if of == "DeformConv" and len(inputs) > 3:
        inputs[3] = None
    inputs[wrt] = p.given
    return p.op(of, *inputs, **given)


RULES: dict[str, tuple[frozenset[int], Callable[[Passing], Atom | None]]] = {
    "Col2Im": (frozenset({0}), _col2im),
    "Compress": (frozenset({0}), _compress),
    "DFT": (frozenset({0}), _dft),
    "DeformConv": (frozenset(range(5)), _deform_conv),
    "Det": (frozenset({0}), _in_numpy),
    "GridSample": (frozenset({0, 1}), _in_numpy),
    "MaxUnpool": (frozenset({0}), _max_unpool),
    "ReverseSequence": (frozenset({0}), _reverse_sequence),
    "RoiAlign": (frozenset({0, 1}), _in_numpy),
    "STFT": (frozenset({0, 2}), _stft),
    "Scatter": (frozenset({0, 2}), _scatter("GatherElements")),
    "ScatterElements": (frozenset({0, 2}), _scatter("GatherElements")),
    "ScatterND": (frozenset({0, 2}), _scatter("GatherND")),
    "TensorScatter": (frozenset({0, 1}), _tensor_scatter),
    "TopK": (frozenset({0}), _top_k),
    HOST_ADJOINT: (frozenset(range(6)), _again),
}
"""Operators, the inputs that something comes back to, and what comes back to one of these."""


def from_host(to: Bindings, b: Binding, n: int, given: Atom | None) -> Atom | None:
    """What comes back to input n of an operator on the host; None where nothing does. Raises
    Unsupported, naming the operator, for one without a rule."""
    assert isinstance(b.value, Call)
    name = str(b.value.callee)
    if name not in RULES:
        raise Unsupported(
            f"{name} has no adjoint: it is computed on the host, and no rule says what it passes "
            "back; leave parameters that it depends on out of wrt"
        )
    inputs, rule = RULES[name]
    if given is None or n not in inputs:
        return None
    return rule(Passing(to, b, b.value, given, n))
