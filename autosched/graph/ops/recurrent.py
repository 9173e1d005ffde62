"""Recurrent layers by te.scan: one step of all directions at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import TensorLike, View, constant
from autosched.graph.ops.views import transpose
from autosched.te.tensor import Tensor

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "HardSigmoid": lambda x: te.max(te.min(x * 0.2 + 0.5, 1.0), 0.0),
    "Relu": lambda x: te.max(x, 0.0),
    "Sigmoid": te.sigmoid,
    "Softsign": lambda x: x / (1.0 + te.abs(x)),
    "Tanh": te.tanh,
}


class Layer:
    """One direction of a layer of `gates` gates: x (T, B, I), w (D, G H, I), r (D, G H, H),
    b (D, 2 G H). The product with the inputs is one for all steps."""

    def __init__(
        self,
        x: TensorLike,
        w: TensorLike,
        r: TensorLike,
        b: TensorLike | None,
        gates: int,
        direction: int,
        backward: bool,
    ) -> None:
        self.steps, self.batch, self.width = x.shape
        self.hidden = r.shape[2]
        self.dtype, self.direction, self.gates = x.dtype, direction, gates
        self.x, self.w, self.r, self.b, self.backward = x, w, r, b, backward
        self.lengths: TensorLike | None = None

    def at(self, t: Any) -> Any:
        """The element of x that step t of this direction reads."""
        return self.steps - 1 - t if self.backward else t

    def kept(self, t: Any, n: Any, made: Any, before: Any) -> Any:
        """The new state of step t - 1, or that before where the sequence has ended, or, backward,
        has not begun."""
        if self.lengths is None:
            return made
        return te.select(self.inside(self.at(t - 1), n), made, before)

    def inside(self, place: Any, n: Any) -> Any:
        """Whether a place is in the sequence n."""
        assert self.lengths is not None
        return te.cast(self.lengths(n), "int64") > place

    def bias(self, gate: Any, h: Any, recurrent: bool) -> Any:
        """A bias; 0 where there is none."""
        if self.b is None:
            return te.const(0.0, self.dtype)
        half = self.gates * self.hidden if recurrent else 0
        return self.b(self.direction, half + gate * self.hidden + h)

    def known(self) -> Tensor:
        """w x[t], gate by gate: (T, B, G, H)."""
        k = te.reduce_axis((0, self.width), name="k")
        made: Tensor = te.compute(
            (self.steps, self.batch, self.gates, self.hidden),
            lambda t, n, g, h: te.sum(
                self.x(self.at(t), n, k) * self.w(self.direction, g * self.hidden + h, k), axis=k
            ),
            name=f"known{self.direction}",
        )
        return made

    def recurrent(
        self, state: Callable[..., Any], gates: Sequence[int], name: str, steps: int
    ) -> Tensor:
        """r state, for some gates, at each of `steps` places of the scan."""
        j = te.reduce_axis((0, self.hidden), name="j")
        first = gates[0]
        made: Tensor = te.compute(
            (steps, self.batch, len(gates), self.hidden),
            lambda t, n, g, h: te.sum(
                state(t, n, j) * self.r(self.direction, (g + first) * self.hidden + h, j), axis=j
            ),
            name=f"{name}{self.direction}",
        )
        return made


def _directions(direction: str, count: int) -> list[bool]:
    found = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if found is None or len(found) != count:
        raise Unsupported(f"attribute direction is {direction!r}; the weights have {count}")
    return found


def _refuse(clip: float | None, *numbers: Any) -> None:
    if clip is not None:
        raise Unsupported("attribute clip is not supported")
    if any(numbers):
        raise Unsupported("attributes activation_alpha and activation_beta are not supported")


def _batch_inner(t: TensorLike | None) -> Any:
    """With its first two axes exchanged: layout 1 has the batch first."""
    return None if t is None else transpose(t, perm=[1, 0, *range(2, len(t.shape))])


def _batch_outer(y: TensorLike, states: Sequence[TensorLike]) -> tuple[TensorLike, ...]:
    """The results of layout 1: (B, T, D, H) and (B, D, H)."""
    return transpose(y, perm=[2, 0, 1, 3]), *(_batch_inner(s) for s in states)


def _activations(given: Sequence[str] | None, default: Sequence[str], n: int) -> list[Any]:
    names = list(given or [*default] * n)
    wrong = [a for a in names if a not in ACTIVATIONS]
    if wrong or len(names) != len(default) * n:
        raise Unsupported(
            f"attribute activations is {tuple(names)}; expected {len(default)} a direction of "
            f"{', '.join(ACTIVATIONS)}"
        )
    return [ACTIVATIONS[a] for a in names]


def _initial(h: TensorLike | None, layer: Layer) -> TensorLike:
    if h is not None:
        return h
    return constant(0.0, layer.dtype, (layer.direction + 1, layer.batch, layer.hidden))


def _start(h: TensorLike, layer: Layer, name: str) -> Tensor:
    """The state before the first step, as the first row of the scan."""
    made: Tensor = te.compute(
        (1, layer.batch, layer.hidden),
        lambda t, n, j: h(layer.direction, n, j),
        name=f"{name}{layer.direction}",
    )
    return made


def _results(
    whole: Sequence[tuple[Layer, Sequence[Tensor]]],
) -> tuple[TensorLike, list[TensorLike]]:
    """Y (T, D, B, H), and the last of each state (D, B, H), of rows that begin before the first
    step."""
    first = whole[0][0]
    count, shape = len(whole), (first.batch, first.hidden)

    def every(t: Any, d: Any, n: Any, h: Any) -> Any:
        found: Any = None
        for layer, states in reversed(whole):
            e = states[0](layer.at(t) + 1, n, h)
            if layer.lengths is not None:
                e = te.select(layer.inside(t, n), e, te.const(0, layer.dtype))
            found = e if found is None else te.if_then_else(d == layer.direction, e, found)
        return found

    def last(k: int) -> TensorLike:
        def element(d: Any, n: Any, h: Any) -> Any:
            found: Any = None
            for layer, states in reversed(whole):
                e = states[k](int(first.steps), n, h)
                found = e if found is None else te.if_then_else(d == layer.direction, e, found)
            return found

        return View([count, *shape], first.dtype, element, "last")

    y = View([first.steps, count, *shape], first.dtype, every, "y")
    return y, [last(k) for k in range(len(whole[0][1]))]


@operator("LSTM")
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
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:
    """Long short-term memory; gates in the order input, output, forget, cell."""
    _refuse(clip, activation_alpha, activation_beta)
    if layout:
        x, initial_h, initial_c = map(_batch_inner, (x, initial_h, initial_c))
    if input_forget:
        raise Unsupported("attribute input_forget is 1; only 0 is supported")
    turned = _directions(direction, int(w.shape[0]))
    functions = _activations(activations, ("Sigmoid", "Tanh", "Tanh"), len(turned))
    whole: list[tuple[Layer, Sequence[Tensor]]] = []
    for d, backward in enumerate(turned):
        f, g, o = functions[3 * d : 3 * d + 3]
        layer = Layer(x, w, r, b, 4, d, backward)
        layer.lengths = lengths
        known = layer.known()
        rows = (layer.steps + 1, layer.batch, layer.hidden)
        h = te.placeholder(rows, x.dtype, f"h{d}")
        c = te.placeholder(rows, x.dtype, f"c{d}")
        product = layer.recurrent(
            lambda t, n, j, h=h: h(t - 1, n, j), range(4), "product", layer.steps + 1
        )

        def step(
            t: Any, n: Any, j: Any, layer: Any = layer, known: Any = known, product: Any = product,
            c: Any = c, h: Any = h, f: Any = f, g: Any = g, o: Any = o,
        ) -> Any:  # fmt: skip
            def gate(k: int) -> Any:
                both = layer.bias(k, j, False) + layer.bias(k, j, True)
                return known(t - 1, n, k, j) + product(t, n, k, j) + both

            def peep(k: int, cell: Any) -> Any:
                if peepholes is None:
                    return te.const(0.0, layer.dtype)
                return peepholes(layer.direction, k * layer.hidden + j) * cell

            before = c(t - 1, n, j)
            cell = f(gate(2) + peep(2, before)) * before + f(gate(0) + peep(0, before)) * g(gate(3))
            made = f(gate(1) + peep(1, cell)) * o(cell)
            return layer.kept(t, n, made, h(t - 1, n, j)), layer.kept(t, n, cell, before)

        new_h, new_c = te.compute(rows, step, name=f"step{d}")
        starts = [
            _start(_initial(initial_h, layer), layer, "h_start"),
            _start(_initial(initial_c, layer), layer, "c_start"),
        ]
        whole.append((layer, te.scan(starts, [new_h, new_c], [h, c], name=f"lstm{d}")))
    y, last = _results(whole)
    return _batch_outer(y, last) if layout else (y, *last)


@operator("GRU")
def gru(
    x: TensorLike,
    w: TensorLike,
    r: TensorLike,
    b: TensorLike | None = None,
    lengths: TensorLike | None = None,
    initial_h: TensorLike | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:
    """Gated recurrent unit; gates in the order update, reset, hidden."""
    _refuse(clip, activation_alpha, activation_beta)
    if layout:
        x, initial_h = map(_batch_inner, (x, initial_h))
    turned = _directions(direction, int(w.shape[0]))
    functions = _activations(activations, ("Sigmoid", "Tanh"), len(turned))
    whole: list[tuple[Layer, Sequence[Tensor]]] = []
    for d, backward in enumerate(turned):
        f, g = functions[2 * d : 2 * d + 2]
        layer = Layer(x, w, r, b, 3, d, backward)
        layer.lengths = lengths
        known = layer.known()
        rows = (layer.steps + 1, layer.batch, layer.hidden)
        h = te.placeholder(rows, x.dtype, f"h{d}")

        def before(t: Any, n: Any, j: Any, h: Any = h) -> Any:
            return h(t - 1, n, j)

        gates = range(3) if linear_before_reset else range(2)
        product = layer.recurrent(before, gates, "product", layer.steps + 1)

        def gate(
            k: int, t: Any, n: Any, j: Any, layer: Any = layer, known: Any = known,
            product: Any = product,
        ) -> Any:  # fmt: skip
            both = layer.bias(k, j, False) + layer.bias(k, j, True)
            return known(t - 1, n, k, j) + product(t, n, k, j) + both

        if not linear_before_reset:
            reset = te.compute(
                rows,
                lambda t, n, j, f=f, gate=gate, h=h: f(gate(1, t, n, j)) * h(t - 1, n, j),
                name=f"reset{d}",
            )
            inner = layer.recurrent(reset, [2], "inner", layer.steps + 1)

        def step(
            t: Any, n: Any, j: Any, layer: Any = layer, known: Any = known, product: Any = product,
            f: Any = f, g: Any = g, gate: Any = gate, before: Any = before,
            inner: Any = None if linear_before_reset else inner,
        ) -> Any:  # fmt: skip
            z = f(gate(0, t, n, j))
            own = known(t - 1, n, 2, j) + layer.bias(2, j, False)
            if inner is None:
                rest = f(gate(1, t, n, j)) * (product(t, n, 2, j) + layer.bias(2, j, True))
            else:
                rest = inner(t, n, 0, j) + layer.bias(2, j, True)
            new = g(own + rest)
            old = before(t, n, j)
            return layer.kept(t, n, new + z * (old - new), old)

        made = te.compute(rows, step, name=f"step{d}")
        start = _start(_initial(initial_h, layer), layer, "h_start")
        whole.append((layer, [te.scan(start, made, h, name=f"gru{d}")]))
    y, last = _results(whole)
    return _batch_outer(y, last) if layout else (y, *last)


@operator("RNN")
def rnn(
    x: TensorLike,
    w: TensorLike,
    r: TensorLike,
    b: TensorLike | None = None,
    lengths: TensorLike | None = None,
    initial_h: TensorLike | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> Any:
    """A recurrent layer with one gate."""
    _refuse(clip, activation_alpha, activation_beta)
    if layout:
        x, initial_h = map(_batch_inner, (x, initial_h))
    turned = _directions(direction, int(w.shape[0]))
    functions = _activations(activations, ("Tanh",), len(turned))
    whole: list[tuple[Layer, Sequence[Tensor]]] = []
    for d, backward in enumerate(turned):
        layer = Layer(x, w, r, b, 1, d, backward)
        layer.lengths = lengths
        known = layer.known()
        rows = (layer.steps + 1, layer.batch, layer.hidden)
        h = te.placeholder(rows, x.dtype, f"h{d}")
        product = layer.recurrent(
            lambda t, n, j, h=h: h(t - 1, n, j), range(1), "product", layer.steps + 1
        )

        def step(
            t: Any, n: Any, j: Any, layer: Any = layer, known: Any = known, product: Any = product,
            f: Any = functions[d], h: Any = h,
        ) -> Any:  # fmt: skip
            both = layer.bias(0, j, False) + layer.bias(0, j, True)
            made = f(known(t - 1, n, 0, j) + product(t, n, 0, j) + both)
            return layer.kept(t, n, made, h(t - 1, n, j))

        made = te.compute(rows, step, name=f"step{d}")
        start = _start(_initial(initial_h, layer), layer, "h_start")
        whole.append((layer, [te.scan(start, made, h, name=f"rnn{d}")]))
    y, last = _results(whole)
    return _batch_outer(y, last) if layout else (y, *last)
