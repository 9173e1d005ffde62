"""Recurrent layers by te.scan: one step of all directions at a time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.pointwise import ATTRIBUTED, UNARY
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import (
    TensorLike,
    View,
    as_dtype,
    constant,
    parameter,
    widened,
)
from autosched.graph.ops.views import transpose
from autosched.te.tensor import Extent, Tensor

APART = "autosched.GRU"
BYTES = "autosched.LSTM"
"""What the pass `integers` makes of an LSTM whose recurrent weight the file stores as int8."""
Activation = Callable[[Any], Any]
ACTIVATIONS: dict[str, Callable[..., Any]] = {
    **{n: UNARY[n] for n in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")},
    **{n: ATTRIBUTED[n] for n in ("Elu", "HardSigmoid", "LeakyRelu", "ThresholdedRelu")},
    "Affine": lambda x, *, alpha=1.0, beta=0.0: x * alpha + beta,
    "ScaledTanh": lambda x, *, alpha=1.0, beta=1.0: te.tanh(x * beta) * alpha,
}
"""With the defaults of alpha and beta, where they have these."""


class Layer:
    """All directions of a layer of `gates` gates and of H elements of a state: x (T, B, I),
    w (D, G H, I), b (D, 2 G H). The product with the inputs is one for all steps and directions; a
    step is one of all directions. Layers of float16 are computed in float32."""

    def __init__(
        self,
        x: TensorLike,
        w: TensorLike,
        b: TensorLike | None,
        lengths: TensorLike | None,
        gates: int,
        backward: Sequence[bool],
        hidden: Extent,
        batch_first: bool,
    ) -> None:
        self.steps, self.batch, self.width = x.shape
        self.hidden, self.batch_first = hidden, batch_first
        self.gates, self.backward, self.lengths = gates, backward, lengths
        self.x, self.w, self.b = widened(x), w, None if b is None else widened(b)
        self.stored = x.dtype
        self.dtype = self.x.dtype
        self.rows = (self.steps + 1, len(backward), self.batch, self.hidden)

    def at(self, t: Any, d: Any) -> Any:
        """The element of x that step t of direction d reads."""
        return self.by_direction(d, [self.steps - 1 - t if back else t for back in self.backward])

    def by_direction(self, d: Any, values: Sequence[Any]) -> Any:
        """The value of direction d."""
        return values[0] if len(values) == 1 else te.select(d == 0, values[0], values[1])

    def kept(self, t: Any, d: Any, n: Any, made: Any, before: Any) -> Any:
        """The new state of step t - 1, or that before where the sequence has ended, or, backward,
        has not begun."""
        if self.lengths is None:
            return made
        return te.select(self.inside(self.at(t - 1, d), n), made, before)

    def inside(self, place: Any, n: Any) -> Any:
        """Whether a place is in the sequence n."""
        assert self.lengths is not None
        return te.cast(self.lengths(n), "int64") > place

    def bias(self, d: Any, gate: int, h: Any, recurrent: bool) -> Any:
        """A bias; 0 where there is none."""
        if self.b is None:
            return te.const(0.0, self.dtype)
        half = self.gates * self.hidden if recurrent else 0
        return self.b(d, half + gate * self.hidden + h)

    def known(self) -> Callable[..., Any]:
        """w x, at the place that step t reads: a function of (t, d, n, gate, h)."""
        k = te.reduce_axis((0, self.width), name="k")
        weight, w = parameter(self.w), widened(self.w)
        made: Tensor = te.compute(
            (self.steps, self.batch, len(self.backward), self.gates * self.hidden),
            lambda t, n, d, m: te.sum(self.x(t, n, k) * w(d, m, k), axis=k),
            name="known",
            attrs={} if weight is None else {"layout_free_placeholders": [weight]},
        )
        return lambda t, d, n, gate, h: made(self.at(t, d), n, d, gate * self.hidden + h)

    def recurrent(
        self, state: Callable[..., Any], r: TensorLike, gates: Sequence[int], name: str
    ) -> Tensor:
        """r state, for some gates of r, at each place of the scan: (T + 1, D, B, gates, H)."""
        j = te.reduce_axis((0, self.hidden), name="j")
        first, wide = gates[0], as_dtype(r, self.dtype)
        # A weight of which another stage reads other gates stays as it lies.
        weight = parameter(r) if r.shape[1] == len(gates) * self.hidden else None
        made: Tensor = te.compute(
            (*self.rows[:3], len(gates), self.hidden),
            lambda t, d, n, g, h: te.sum(
                state(t, d, n, j) * wide(d, (g + first) * self.hidden + h, j), axis=j
            ),
            name=name,
            attrs={} if weight is None else {"layout_free_placeholders": [weight]},
        )
        return made

    def start(self, initial: TensorLike | None, name: str) -> Tensor:
        """The state before the first step (D, B, H), 0 where it is left out, as the first row."""
        zero = constant(0.0, self.dtype, self.rows[1:])
        given = zero if initial is None else widened(initial)
        made: Tensor = te.compute((1, *self.rows[1:]), lambda t, *at: given(*at), name=name)
        return made

    def results(self, scanned: Sequence[Tensor]) -> tuple[TensorLike, ...]:
        """Y (T, D, B, H), and the last of each state (D, B, H); with the batch first in layout
        1."""

        def every(t: Any, d: Any, n: Any, h: Any) -> Any:
            e = scanned[0](self.at(t, d) + 1, d, n, h)
            if self.lengths is None:
                return e
            return te.select(self.inside(t, n), e, te.const(0, self.dtype))

        y = View([self.steps, *self.rows[1:]], self.dtype, every, "y")
        last = [
            View(self.rows[1:], self.dtype, lambda *at, s=s: s(int(self.steps), *at), "last")
            for s in scanned
        ]
        made, *states = (as_dtype(e, self.stored) for e in (y, *last))
        if not self.batch_first:
            return made, *states
        return transpose(made, perm=[2, 0, 1, 3]), *map(_batch_inner, states)


def _directions(direction: str, count: int) -> list[bool]:
    found = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if found is None or len(found) != count:
        raise Unsupported(f"attribute direction is {direction!r}; the weights have {count}")
    return found


def _batch_inner(t: TensorLike | None) -> Any:
    """With its first two axes exchanged: layout 1 has the batch first."""
    return None if t is None else transpose(t, perm=[1, 0, *range(2, len(t.shape))])


def _activations(
    given: Sequence[str] | None,
    default: Sequence[str],
    n: int,
    clip: float | None,
    *params: Sequence[float] | None,
) -> list[Activation]:
    """The activations of `n` directions, of what `clip` bounds. `params` are the alphas and betas:
    each is the next activation's that has one, the defaults come last."""
    names = list(given or [*default] * n)
    wrong = [a for a in names if a not in ACTIVATIONS]
    if wrong or len(names) != len(default) * n:
        raise Unsupported(
            f"attribute activations is {tuple(names)}; expected {len(default)} a direction of "
            f"{', '.join(ACTIVATIONS)}"
        )
    left = [list(p or ()) for p in params]
    made: dict[tuple[str, tuple[float, ...]], Activation] = {}
    found = []
    for name in names:
        takes = inspect.signature(ACTIVATIONS[name]).parameters.values()
        defaults = {p.name: p.default for p in takes if p.kind is p.KEYWORD_ONLY}
        numbers = {
            k: p.pop(0) if p else d for p, (k, d) in zip(left, defaults.items(), strict=False)
        }
        key = name, tuple(numbers.values())
        found.append(made.setdefault(key, _clipped(partial(ACTIVATIONS[name], **numbers), clip)))
    if any(left):
        raise Unsupported(
            f"attributes activation_alpha and activation_beta are {params}; the activations "
            f"{', '.join(names)} take fewer"
        )
    return found


def _clipped(compute: Activation, clip: float | None) -> Activation:
    """An activation of what lies in [-clip, clip]."""
    return compute if clip is None else lambda x: compute(te.max(te.min(x, clip), -clip))


def _layer(
    x: TensorLike,
    w: TensorLike,
    r: TensorLike,
    b: TensorLike | None,
    lengths: TensorLike | None,
    initial: Sequence[TensorLike | None],
    gates: int,
    default: Sequence[str],
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Layer, list[Activation], list[Tensor]]:
    """A layer, the activations of its directions, and its states before the first step."""
    if layout:
        x, *initial = map(_batch_inner, (x, *initial))
    turned = _directions(direction, int(w.shape[0]))
    params = clip, activation_alpha, activation_beta
    functions = _activations(activations, default, len(turned), *params)
    layer = Layer(x, w, b, lengths, gates, turned, r.shape[2], bool(layout))
    starts = [layer.start(s, f"{n}_start") for n, s in zip("hc", initial, strict=False)]
    return layer, functions, starts


def _function(layer: Layer, d: Any, functions: Sequence[Activation], x: Any) -> Any:
    """An activation of x, that of direction d."""
    if all(f is functions[0] for f in functions):
        return functions[0](x)
    return layer.by_direction(d, [f(x) for f in functions])


@operator("LSTM", attrs_of=_layer)
def lstm(
    x: TensorLike,
    w: TensorLike,
    r: TensorLike,
    b: TensorLike | None = None,
    lengths: TensorLike | None = None,
    initial_h: TensorLike | None = None,
    initial_c: TensorLike | None = None,
    peepholes: TensorLike | None = None,
    *,
    input_forget: int = 0,
    **attrs: Any,
) -> Any:
    """Long short-term memory; gates in the order input, output, forget, cell."""
    return _lstm(x, w, r, None, b, lengths, (initial_h, initial_c), peepholes, input_forget, attrs)


@operator(BYTES, attrs_of=_layer)
def lstm_of_bytes(
    x: TensorLike,
    w: TensorLike,
    r: TensorLike,
    scale: TensorLike,
    b: TensorLike | None = None,
    lengths: TensorLike | None = None,
    initial_h: TensorLike | None = None,
    initial_c: TensorLike | None = None,
    peepholes: TensorLike | None = None,
    *,
    input_forget: int = 0,
    **attrs: Any,
) -> Any:
    """LSTM whose recurrent weight is r times a scale a row: r (D, 4 H, H) of int8, scale (D, 4 H).
    A step reads a fourth of the bytes that floats are."""
    return _lstm(x, w, r, scale, b, lengths, (initial_h, initial_c), peepholes, input_forget, attrs)


def _lstm(
    x: TensorLike,
    w: TensorLike,
    r: TensorLike,
    scale: TensorLike | None,
    b: TensorLike | None,
    lengths: TensorLike | None,
    initial: Sequence[TensorLike | None],
    peepholes: TensorLike | None,
    input_forget: int,
    attrs: Mapping[str, Any],
) -> Any:
    default = "Sigmoid", "Tanh", "Tanh"
    layer, functions, starts = _layer(x, w, r, b, lengths, initial, 4, default, **attrs)
    known = layer.known()
    h, c = (te.placeholder(layer.rows, layer.dtype, name) for name in "hc")
    product = layer.recurrent(lambda t, d, n, j: h(t - 1, d, n, j), r, range(4), "product")

    def step(t: Any, d: Any, n: Any, j: Any) -> Any:
        def gate(k: int) -> Any:
            both = layer.bias(d, k, j, False) + layer.bias(d, k, j, True)
            own = product(t, d, n, k, j)
            if scale is not None:
                own = own * scale(d, k * layer.hidden + j)
            return known(t - 1, d, n, k, j) + own + both

        def peep(k: int, cell: Any) -> Any:
            if peepholes is None:
                return te.const(0.0, layer.dtype)
            return widened(peepholes)(d, k * layer.hidden + j) * cell

        def apply(k: int, e: Any) -> Any:
            return _function(layer, d, functions[k::3], e)

        before = c(t - 1, d, n, j)
        taken = apply(0, gate(0) + peep(0, before))
        left = 1.0 - taken if input_forget else apply(0, gate(2) + peep(2, before))
        cell = left * before
        cell = cell + taken * apply(1, gate(3))
        made = apply(0, gate(1) + peep(1, cell)) * apply(2, cell)
        old = h(t - 1, d, n, j)
        return layer.kept(t, d, n, made, old), layer.kept(t, d, n, cell, before)

    updates = te.compute(layer.rows, step, name="step")
    return layer.results(te.scan(starts, updates, [h, c], name="lstm"))


@operator("GRU", attrs_of=_layer)
def gru(
    x: TensorLike,
    w: TensorLike,
    r: TensorLike,
    b: TensorLike | None = None,
    lengths: TensorLike | None = None,
    initial_h: TensorLike | None = None,
    *,
    linear_before_reset: int = 0,
    **attrs: Any,
) -> Any:
    """Gated recurrent unit; gates in the order update, reset, hidden."""
    return _gru(x, w, r, None, b, lengths, initial_h, linear_before_reset, attrs)


@operator(APART, attrs_of=_layer)
def gru_apart(
    x: TensorLike,
    w: TensorLike,
    r: TensorLike,
    own: TensorLike,
    b: TensorLike | None = None,
    lengths: TensorLike | None = None,
    initial_h: TensorLike | None = None,
    **attrs: Any,
) -> Any:
    """GRU without linear_before_reset whose weights are apart, each in a free layout: r (D, 2 H, H)
    of the update and reset gates, own (D, H, H) of the hidden one."""
    return _gru(x, w, r, own, b, lengths, initial_h, 0, attrs)


def _gru(
    x: TensorLike,
    w: TensorLike,
    r: TensorLike,
    own: TensorLike | None,
    b: TensorLike | None,
    lengths: TensorLike | None,
    initial_h: TensorLike | None,
    linear_before_reset: int,
    attrs: Mapping[str, Any],
) -> Any:
    default = ("Sigmoid", "Tanh")
    layer, functions, starts = _layer(x, w, r, b, lengths, [initial_h], 3, default, **attrs)
    known = layer.known()
    h = te.placeholder(layer.rows, layer.dtype, "h")

    def before(t: Any, d: Any, n: Any, j: Any) -> Any:
        return h(t - 1, d, n, j)

    product = layer.recurrent(before, r, range(3 if linear_before_reset else 2), "product")

    def gate(k: int, t: Any, d: Any, n: Any, j: Any) -> Any:
        both = layer.bias(d, k, j, False) + layer.bias(d, k, j, True)
        e = known(t - 1, d, n, k, j) + product(t, d, n, k, j) + both
        return _function(layer, d, functions[0::2], e)

    inner = None
    if not linear_before_reset:
        reset = te.compute(
            layer.rows, lambda t, *at: gate(1, t, *at) * before(t, *at), name="reset"
        )
        inner = layer.recurrent(reset, *((r, [2]) if own is None else (own, [0])), "inner")

    def step(t: Any, d: Any, n: Any, j: Any) -> Any:
        if inner is None:
            rest = gate(1, t, d, n, j) * (product(t, d, n, 2, j) + layer.bias(d, 2, j, True))
        else:
            rest = inner(t, d, n, 0, j) + layer.bias(d, 2, j, True)
        own = known(t - 1, d, n, 2, j) + layer.bias(d, 2, j, False)
        new = _function(layer, d, functions[1::2], own + rest)
        old = before(t, d, n, j)
        return layer.kept(t, d, n, new + gate(0, t, d, n, j) * (old - new), old)

    update = te.compute(layer.rows, step, name="step")
    return layer.results([te.scan(starts[0], update, h, name="gru")])


@operator("RNN", attrs_of=_layer)
def rnn(
    x: TensorLike,
    w: TensorLike,
    r: TensorLike,
    b: TensorLike | None = None,
    lengths: TensorLike | None = None,
    initial_h: TensorLike | None = None,
    **attrs: Any,
) -> Any:
    """A recurrent layer with one gate."""
    layer, functions, starts = _layer(x, w, r, b, lengths, [initial_h], 1, ("Tanh",), **attrs)
    known = layer.known()
    h = te.placeholder(layer.rows, layer.dtype, "h")
    product = layer.recurrent(lambda t, d, n, j: h(t - 1, d, n, j), r, range(1), "product")

    def step(t: Any, d: Any, n: Any, j: Any) -> Any:
        both = layer.bias(d, 0, j, False) + layer.bias(d, 0, j, True)
        e = known(t - 1, d, n, 0, j) + product(t, d, n, 0, j) + both
        return layer.kept(t, d, n, _function(layer, d, functions, e), h(t - 1, d, n, j))

    update = te.compute(layer.rows, step, name="step")
    return layer.results([te.scan(starts[0], update, h, name="rnn")])
