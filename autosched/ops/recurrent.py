"""Recurrences along the first axis: running sums and means, and the cells of recurrent networks.

The cells are PyTorch's `nn.RNN`, `nn.LSTM` and `nn.GRU` of one layer in one direction, and take its
weights as they are; states are zero before the first step. Weights are layout-free.
"""

from __future__ import annotations

from autosched import te
from autosched.ops.registry import operator, require
from autosched.te import Tensor
from autosched.tir.expr import Expr


@operator
def cumsum(N: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """cumsum[t, j] = sum of data[s, j] over s <= t; both (N, M)."""
    require("cumsum", 2, N=N)
    require("cumsum", 1, M=M)
    data = te.placeholder((N, M), name="data", dtype=dtype)
    state = te.placeholder((N, M), name="state", dtype=dtype)
    first = te.compute((1, M), lambda t, j: data[t, j], name="first")
    step = te.compute((N, M), lambda t, j: state[t - 1, j] + data[t, j], name="step")
    return [data, te.scan(first, step, state, inputs=[data], name="cumsum")]


@operator
def ema(N: int, M: int, dtype: str = "float32") -> list[Tensor]:
    """Exponential moving average along axis 0 of data (N, M), with a weight alpha (M,) a column.

    ema[0] = data[0]; ema[t] = ema[t-1] + alpha * (data[t] - ema[t-1]).
    """
    require("ema", 2, N=N)
    require("ema", 1, M=M)
    data = te.placeholder((N, M), name="data", dtype=dtype)
    alpha = te.placeholder((M,), name="alpha", dtype=dtype)
    state = te.placeholder((N, M), name="state", dtype=dtype)
    first = te.compute((1, M), lambda t, j: data[t, j], name="first")
    step = te.compute(
        (N, M),
        lambda t, j: state[t - 1, j] + alpha[j] * (data[t, j] - state[t - 1, j]),
        name="step",
    )
    return [data, alpha, te.scan(first, step, state, inputs=[data, alpha], name="ema")]


class _Cell:
    """The parameters of a cell with `gates` gates, and its products with the weights.

    data (T, B, I), w_ih (gates * H, I), w_hh (gates * H, H), b_ih and b_hh (gates * H,).
    """

    def __init__(self, gates: int, T: int, B: int, I: int, H: int, dtype: str) -> None:  # noqa: E741
        self.gates, self.steps, self.batch, self.size, self.width = gates, T, B, I, H
        self.dtype = dtype
        self.data = te.placeholder((T, B, I), name="data", dtype=dtype)
        self.w_ih = te.placeholder((gates * H, I), name="w_ih", dtype=dtype)
        self.w_hh = te.placeholder((gates * H, H), name="w_hh", dtype=dtype)
        self.b_ih = te.placeholder((gates * H,), name="b_ih", dtype=dtype)
        self.b_hh = te.placeholder((gates * H,), name="b_hh", dtype=dtype)
        self.inputs = [self.data, self.w_ih, self.w_hh, self.b_ih, self.b_hh]

    def state(self, name: str) -> Tensor:
        """A state: (T, B, H)."""
        return te.placeholder((self.steps, self.batch, self.width), name=name, dtype=self.dtype)

    def projected(self) -> Tensor:
        """The part of the gates that is known beforehand, w_ih @ data: (T, B, gates, H)."""
        k = te.reduce_axis((0, self.size), name="k")
        data, weight, H = self.data, self.w_ih, self.width
        result: Tensor = te.compute(
            (self.steps, self.batch, self.gates, H),
            lambda t, b, g, h: te.sum(data[t, b, k] * weight[g * H + h, k], axis=k),
            name="projected",
            attrs={"layout_free_placeholders": [weight]},
        )
        return result

    def recurrent(self, hidden: Tensor) -> Tensor:
        """The part that depends on the step before, w_hh @ hidden: (T, B, gates, H)."""
        r = te.reduce_axis((0, self.width), name="r")
        weight, H = self.w_hh, self.width
        result: Tensor = te.compute(
            (self.steps, self.batch, self.gates, H),
            lambda t, b, g, h: te.sum(hidden[t - 1, b, r] * weight[g * H + h, r], axis=r),
            name="recurrent",
            attrs={"layout_free_placeholders": [weight]},
        )
        return result

    def known(self, hidden_bias: bool = True) -> Tensor:
        """`projected` with its bias (`hidden_bias`: both biases)."""
        product, H = self.projected(), self.width

        def gate(t: Expr, b: Expr, g: Expr, h: Expr) -> Expr:
            biased: Expr = product[t, b, g, h] + self.b_ih[g * H + h]
            return biased + self.b_hh[g * H + h] if hidden_bias else biased

        return te.compute(product.shape, gate, name="known")  # type: ignore[no-any-return]


@operator
def rnn(T: int, B: int, I: int, H: int, dtype: str = "float32") -> list[Tensor]:  # noqa: E741
    """Elman cell: h[t] = tanh(w_ih @ x[t] + b_ih + w_hh @ h[t-1] + b_hh), h[-1] = 0.

    data (T, B, I), w_ih (H, I), w_hh (H, H), b_ih and b_hh (H,); h (T, B, H).
    """
    _require("rnn", T, B, I, H)
    cell = _Cell(1, T, B, I, H, dtype)
    hidden = cell.state("hidden")
    known, product = cell.known(), cell.recurrent(hidden)
    h0 = te.compute((1, B, H), lambda t, b, h: te.tanh(known[t, b, 0, h]), name="h0")
    step = te.compute(
        (T, B, H), lambda t, b, h: te.tanh(known[t, b, 0, h] + product[t, b, 0, h]), name="step"
    )
    return [*cell.inputs, te.scan(h0, step, hidden, inputs=cell.inputs, name="h")]


@operator
def lstm(T: int, B: int, I: int, H: int, dtype: str = "float32") -> list[Tensor]:  # noqa: E741
    """LSTM cell, gates in the order input, forget, cell, output:

    (i, f, g, o) = w_ih @ x[t] + b_ih + w_hh @ h[t-1] + b_hh, h[-1] = c[-1] = 0;
    c[t] = sigmoid(f) * c[t-1] + sigmoid(i) * tanh(g); h[t] = sigmoid(o) * tanh(c[t]).
    data (T, B, I), w_ih (4H, I), w_hh (4H, H), b_ih and b_hh (4H,); h (T, B, H).
    """
    _require("lstm", T, B, I, H)
    cell = _Cell(4, T, B, I, H, dtype)
    hidden, carried = cell.state("hidden"), cell.state("carried")
    known, product = cell.known(), cell.recurrent(hidden)

    def first(t: Expr, b: Expr, h: Expr) -> tuple[Expr, Expr]:
        c = te.sigmoid(known[t, b, 0, h]) * te.tanh(known[t, b, 2, h])
        return te.sigmoid(known[t, b, 3, h]) * te.tanh(c), c

    def second(t: Expr, b: Expr, h: Expr) -> tuple[Expr, Expr]:
        i, f, g, o = (known[t, b, n, h] + product[t, b, n, h] for n in range(4))
        c = te.sigmoid(f) * carried[t - 1, b, h] + te.sigmoid(i) * te.tanh(g)
        return te.sigmoid(o) * te.tanh(c), c

    h0, c0 = te.compute((1, B, H), first, name="h0")
    # One computation of both states, so that a tile of them needs its gates once.
    h, c = te.compute((T, B, H), second, name="step")
    result, _ = te.scan([h0, c0], [h, c], [hidden, carried], inputs=cell.inputs, name="lstm")
    return [*cell.inputs, result]


@operator
def gru(T: int, B: int, I: int, H: int, dtype: str = "float32") -> list[Tensor]:  # noqa: E741
    """GRU cell, gates in the order reset, update, new; ONNX calls it linear_before_reset:

    (r, z, n) = w_ih @ x[t] + b_ih, (r', z', n') = w_hh @ h[t-1] + b_hh, h[-1] = 0;
    new = tanh(n + sigmoid(r + r') * n'); h[t] = new + sigmoid(z + z') * (h[t-1] - new).
    data (T, B, I), w_ih (3H, I), w_hh (3H, H), b_ih and b_hh (3H,); h (T, B, H).
    """
    _require("gru", T, B, I, H)
    cell = _Cell(3, T, B, I, H, dtype)
    hidden, bias = cell.state("hidden"), cell.b_hh
    known, product = cell.known(hidden_bias=False), cell.recurrent(hidden)

    def new(known: list[Expr], other: list[Expr]) -> Expr:
        return te.tanh(known[2] + te.sigmoid(known[0] + other[0]) * other[2])

    def first(t: Expr, b: Expr, h: Expr) -> Expr:
        mine = [known[t, b, g, h] for g in range(3)]
        other = [bias[g * H + h] for g in range(3)]
        return new(mine, other) * (1.0 - te.sigmoid(mine[1] + other[1]))

    def second(t: Expr, b: Expr, h: Expr) -> Expr:
        mine = [known[t, b, g, h] for g in range(3)]
        other = [product[t, b, g, h] + bias[g * H + h] for g in range(3)]
        fresh, kept = new(mine, other), te.sigmoid(mine[1] + other[1])
        moved: Expr = fresh + kept * (hidden[t - 1, b, h] - fresh)
        return moved

    h0 = te.compute((1, B, H), first, name="h0")
    step = te.compute((T, B, H), second, name="step")
    return [*cell.inputs, te.scan(h0, step, hidden, inputs=cell.inputs, name="h")]


def _require(name: str, T: int, B: int, I: int, H: int) -> None:  # noqa: E741
    require(name, 2, T=T)
    require(name, 1, B=B, I=I, H=H)
