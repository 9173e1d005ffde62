"""Convolutions over any number of spatial axes, as ONNX writes them: N, C, spatial; padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autosched import te
from autosched.graph.errors import Unsupported
from autosched.graph.ops.registry import operator
from autosched.graph.ops.tensors import TensorLike, View, rounded, stage, wider
from autosched.ops.convolution import AXES
from autosched.tir import dtypes

Ints = Sequence[int]


class Window:
    """Extents, strides, dilations and paddings of a sliding window, from a call's attributes."""

    def __init__(
        self,
        spatial: Sequence[Any],
        *,
        kernel_shape: Ints,
        strides: Ints | None = None,
        dilations: Ints | None = None,
        pads: Ints | None = None,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
    ) -> None:
        rank = _spatial_rank(spatial)
        self.kernel = tuple(kernel_shape)
        self.strides = tuple(strides or [1] * rank)
        self.dilations = tuple(dilations or [1] * rank)
        self.spatial = tuple(spatial)
        for name, values in (("kernel_shape", self.kernel), ("strides", self.strides),
                             ("dilations", self.dilations)):  # fmt: skip
            if len(values) != rank or min(values) < 1:
                raise Unsupported(f"attribute {name} is {values}; expected {rank} positive numbers")
        if pads and (len(pads) != 2 * rank or min(pads) < 0):
            raise Unsupported(f"attribute pads is {tuple(pads)}; expected {2 * rank} numbers >= 0")
        self.before, self.after = self._pads(rank, pads, auto_pad)
        self.out = []
        for d in range(rank):
            room = self.spatial[d] + self.before[d] + self.after[d] - self.reach(d)
            steps = -(-room // self.strides[d]) if ceil_mode else room // self.strides[d]
            if ceil_mode and steps * self.strides[d] >= self.spatial[d] + self.before[d]:
                steps -= 1  # a window that starts in the padding at the end is none
            if isinstance(room, int) and room < 0:
                raise Unsupported(
                    f"a window of {self.reach(d)} does not fit into {self.spatial[d]} elements "
                    f"and a padding of {self.before[d] + self.after[d]}"
                )
            self.out.append(steps + 1)

    def reach(self, d: int) -> int:
        """Elements from the first to the last of the window."""
        return (self.kernel[d] - 1) * self.dilations[d] + 1

    def _pads(self, rank: int, pads: Ints | None, auto_pad: str) -> tuple[list[Any], list[Any]]:
        if auto_pad in ("NOTSET", "VALID", ""):
            given = list(pads or [0] * (2 * rank)) if auto_pad != "VALID" else [0] * (2 * rank)
            return given[:rank], given[rank:]
        if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
            raise Unsupported(f"attribute auto_pad is {auto_pad!r}")
        before, after = [], []
        for d in range(rank):
            n, s = self.spatial[d], self.strides[d]
            total = max((-(-n // s) - 1) * s + self.reach(d) - n, 0)
            less = total // 2
            before.append(less if auto_pad == "SAME_UPPER" else total - less)
            after.append(total - before[-1])
        return before, after

    @property
    def beyond(self) -> list[Any]:
        """What the windows reach beyond the ends."""
        need = [
            (o - 1) * s + self.reach(d) - n - b
            for d, (o, s, n, b) in enumerate(
                zip(self.out, self.strides, self.spatial, self.before, strict=True)
            )
        ]
        return [max(n, 0) if isinstance(n, int) else self.after[d] for d, n in enumerate(need)]

    def padded(self, x: TensorLike, value: Any) -> TensorLike:
        """`x` (N, C, spatial) with what the windows reach beyond it."""
        return pad(x, [0, 0, *self.before], [0, 0, *self.beyond], value)

    def axes(self) -> list[Any]:
        """Reduction axes over the window."""
        labels = AXES[len(self.kernel)]
        return [
            te.reduce_axis((0, k), name=f"r{a}") for a, k in zip(labels, self.kernel, strict=True)
        ]

    def at(self, position: Sequence[Any], window: Sequence[Any]) -> list[Any]:
        """Where in the padded input the window's element is."""
        return [
            y * s + r * d
            for y, s, r, d in zip(position, self.strides, window, self.dilations, strict=True)
        ]

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the axes of the result."""
        return ("n", "c", *AXES[len(self.kernel)])


def _spatial_rank(spatial: Sequence[Any]) -> int:
    """The number of spatial axes. Raises Unsupported where no window is over as many."""
    if len(spatial) not in AXES:
        raise Unsupported(f"a window over {len(spatial)} spatial axes; 1 to 3 are supported")
    return len(spatial)


def pad(x: TensorLike, before: Sequence[Any], after: Sequence[Any], value: Any) -> TensorLike:
    """`x` with elements of `value` around it."""
    if not any(not (isinstance(n, int) and n == 0) for n in (*before, *after)):
        return x
    shape = [n + b + a for n, b, a in zip(x.shape, before, after, strict=True)]

    def element(*at: Any) -> Any:
        inside = []
        for i, n, b, a in zip(at, x.shape, before, after, strict=True):
            if not (isinstance(b, int) and b == 0):
                inside.append(i >= b)
            if not (isinstance(a, int) and a == 0):
                inside.append(i < n + b)
        moved = [
            i if isinstance(b, int) and b == 0 else i - b for i, b in zip(at, before, strict=True)
        ]
        return te.if_then_else(te.all(*inside), x(*moved), value)

    made: TensorLike = stage(shape, element, "pad")
    return made


def window_of(
    x: TensorLike,
    w: TensorLike,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Window:
    """The window of a convolution of x (N, C, spatial) with w (M, C / group, window). Raises
    Unsupported where attributes and shapes do not go together."""
    channels, (filters, depth) = x.shape[1], w.shape[:2]
    kernel = [int(n) for n in w.shape[2:]]
    if kernel_shape is not None and list(kernel_shape) != kernel:
        raise Unsupported(f"attribute kernel_shape is {kernel_shape}; the weight has {kernel}")
    if group < 1 or channels != depth * group or filters % group:
        raise Unsupported(
            f"attribute group is {group}; the input has {channels} channels and the weight has "
            f"the shape {w.shape}"
        )
    return Window(
        x.shape[2:], kernel_shape=kernel, strides=strides, dilations=dilations, pads=pads,
        auto_pad=auto_pad,
    )  # fmt: skip


@operator("Conv", spatial=True, attrs_of=window_of)
def conv(
    x: TensorLike, w: TensorLike, b: TensorLike | None = None, *, group: int = 1, **attrs: Any
) -> Any:
    """Convolution of x (N, C, spatial) with w (M, C / group, window); b (M,)."""
    window = window_of(x, w, group=group, **attrs)
    return with_bias(x, w, b, group, window)


def with_bias(
    x: TensorLike,
    w: TensorLike,
    b: TensorLike | None,
    group: int,
    window: Window,
    free: TensorLike | None = None,
) -> Any:
    """The convolution, its sums of float16 taken in float32, and b (M,); `free` as in
    `convolved`."""
    out = convolved(x, w, group, window, te.const(0, x.dtype), wider(x.dtype), free)
    return biased(rounded(out, x.dtype, window.labels), b, window)


def biased(out: TensorLike, b: TensorLike | None, window: Window) -> Any:
    """A convolution (N, M, spatial) and b (M,)."""
    if b is None:
        return out
    return stage(out.shape, lambda n, c, *at: out(n, c, *at) + b(c), "bias", axes=window.labels)


def convolved(
    x: TensorLike,
    w: TensorLike,
    group: int,
    window: Window,
    fill: Any,
    total: str,
    free: TensorLike | None = None,
) -> Any:
    """Sums of dtype `total` of the products of x, with `fill` around it, and w, whose layout is
    free; `free` is what w is a view of, if not itself."""
    filters, depth = w.shape[:2]
    source = window.padded(x, fill)
    each = filters // group

    def element(n: Any, co: Any, *at: Any) -> Any:
        r = window.axes()
        rc = te.reduce_axis((0, depth), name="rc")
        over = [*r, rc] if depth > 1 else r
        inner = rc if depth > 1 else 0
        first = 0 if group == 1 else (co if each == 1 else co // each) * depth
        data, weight = source(n, first + inner, *window.at(at, r)), w(co, inner, *r)
        data, weight = (e if e.dtype == total else te.cast(e, total) for e in (data, weight))
        return te.sum(data * weight, axis=over)

    shape = [x.shape[0], filters, *window.out]
    return stage(shape, element, "conv", free=w if free is None else free, axes=window.labels)


@operator("ConvTranspose", spatial=True)
def conv_transpose(
    x: TensorLike,
    w: TensorLike,
    b: TensorLike | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints | None = None,
    group: int = 1,
    kernel_shape: Ints | None = None,
    output_padding: Ints | None = None,
    output_shape: Ints | None = None,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Any:
    """The gradient of a convolution, its sums of float16 taken in float32: w (C, M / group,
    window)."""
    rank = _spatial_rank(x.shape[2:])
    kernel = [int(n) for n in w.shape[2:]]
    stride = list(strides or [1] * rank)
    dilation = list(dilations or [1] * rank)
    extra = list(output_padding or [0] * rank)
    begin, end = list(pads or [0] * (2 * rank))[:rank], list(pads or [0] * (2 * rank))[rank:]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    spatial = x.shape[2:]
    full = [(n - 1) * s + r + e for n, s, r, e in zip(spatial, stride, reach, extra, strict=True)]
    if output_shape is not None or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = list(output_shape or [n * s for n, s in zip(spatial, stride, strict=True)])[-rank:]
        for d in range(rank):
            total = max(full[d] - wanted[d], 0)
            less = total // 2
            upper = auto_pad == "SAME_UPPER"
            begin[d] = less if upper else total - less
            end[d] = total - begin[d]
            full[d] = wanted[d] + total
    out = [f - a - z for f, a, z in zip(full, begin, end, strict=True)]
    channels, each = x.shape[1], w.shape[1]
    depth, filters = channels // group, each * group
    labels = ("n", "c", *AXES[rank])

    # Position y takes x[i] * w[k] where y + begin = i * stride + k * dilation. Without dilation the
    # remainder of y + begin says which k these are, every stride-th: so only they are summed.
    apart = [1 if s == 1 or d > 1 else s for s, d in zip(stride, dilation, strict=True)]
    taps = [-(-k // s) for k, s in zip(kernel, apart, strict=True)]
    wide = [
        o if s == 1 else -(-(o + p) // s) * s for o, p, s in zip(out, begin, apart, strict=True)
    ]
    shift = [0 if s > 1 else p for p, s in zip(begin, apart, strict=True)]

    # Where no remainder is to be asked for, zeros around x stand for what is not there.
    around: list[tuple[int, int] | None] = []
    for d, n in enumerate(spatial):
        s, step = apart[d], dilation[d] if apart[d] == 1 else 1
        known = isinstance(n, int) and isinstance(wide[d], int) and stride[d] in (1, s)
        far = (wide[d] - 1) // s + shift[d] - (n - 1) if known else 0
        around.append((max((taps[d] - 1) * step - shift[d], 0), max(far, 0)) if known else None)
    before, after = ([0, 0, *(side[k] if side else 0 for side in around)] for k in (0, 1))
    padded = pad(x, before, after, te.const(0, x.dtype))

    def element(n: Any, co: Any, *at: Any) -> Any:
        r = [
            te.reduce_axis((0, m), name=f"r{a}") if m > 1 else 0
            for a, m in zip(AXES[rank], taps, strict=True)
        ]
        rc = te.reduce_axis((0, depth), name="rc")
        inside: list[Any] = []
        taken: list[Any] = []
        places, window = [], []
        for d, (y, m) in enumerate(zip(at, r, strict=True)):
            s, last = apart[d], (wide[d] - 1) // apart[d]
            if s > 1:
                place, k = y // s - m, y % s + m * s
                if kernel[d] % s:
                    taken.append(k < kernel[d])
            else:
                k, steps = m, y + shift[d] - m * dilation[d]
                place = steps if stride[d] == 1 else steps // stride[d]
                last = None
                if stride[d] > 1:
                    inside.append(steps % stride[d] == 0)
            beside = around[d]
            if beside is not None:
                place = place + beside[0] if beside[0] else place
            else:
                if last is None or taps[d] > 1:
                    inside.append(place >= 0)
                if last is None or not isinstance(spatial[d], int) or last >= spatial[d]:
                    inside.append(place < spatial[d])
            places.append(place)
            window.append(k)
        ci = rc if group == 1 else co // each * depth + rc
        factors = padded(n, ci, *places), w(ci, co if group == 1 else co % each, *window)
        data, weight = (te.cast(e, wider(x.dtype)) for e in factors)
        if taken:
            weight = te.if_then_else(te.all(*taken), weight, te.const(0, weight.dtype))
        term = data * weight
        over = [*(m for m in r if not isinstance(m, int)), rc]
        if inside:
            term = te.if_then_else(te.all(*inside), term, te.const(0, term.dtype))
        return te.sum(term, axis=over)

    whole = stage([x.shape[0], filters, *wide], element, "conv_transpose", free=w, axes=labels)
    cut = [p - q for p, q in zip(begin, shift, strict=True)]
    shape = [x.shape[0], filters, *out]

    def made(n: Any, c: Any, *at: Any) -> Any:
        return whole(n, c, *(y + p if p else y for y, p in zip(at, cut, strict=True)))

    if b is not None:
        found = stage(shape, lambda n, c, *at: made(n, c, *at) + b(c), "bias", axes=labels)
    else:
        same = not any(cut) and wide == out
        found = whole if same else View(shape, whole.dtype, made, "crop")
    return rounded(found, x.dtype, labels)


@operator("Pad", static={1: "pads", 3: "axes"})
def pad_operator(
    x: TensorLike,
    fill: TensorLike | None = None,
    *,
    pads: Ints,
    axes: Ints | None = None,
    mode: str = "constant",
    value: float = 0.0,
) -> Any:
    """Elements around: a constant, the edge, or what is inside, reflected or wrapped around."""
    rank = len(x.shape)
    before, after = [0] * rank, [0] * rank
    along = list(range(rank)) if axes is None else [a % rank for a in axes]
    for n, axis in enumerate(along):
        before[axis], after[axis] = pads[n], pads[n + len(along)]
    # Negative ones cut elements off, before others are put around what is left.
    if min(*before, *after, 0) < 0:
        x = _cut(x, before, after)
        before, after = ([max(p, 0) for p in side] for side in (before, after))
    if mode == "constant":
        number = te.const(value if dtypes.is_float(x.dtype) else int(value), x.dtype)
        return pad(x, before, after, number if fill is None else _scalar(fill))
    shape = [n + b + a for n, b, a in zip(x.shape, before, after, strict=True)]

    def place(i: Any, n: Any, b: int, a: int) -> Any:
        if not b and not a:
            return i
        at = i - b
        if mode == "edge":
            return te.max(te.min(at, n - 1), 0)
        if mode == "wrap":
            return te.floormod(at, n)
        if n == 1:
            return 0
        last = 2 * n - 2
        near = isinstance(n, int) and max(b, a) < n  # so that each end turns once
        turned = te.max(at, 0 - at) if near else te.floormod(at, last)
        return te.min(turned, last - turned)

    if mode not in ("edge", "wrap", "reflect"):
        raise Unsupported(f"attribute mode is {mode!r}")

    def element(*at: Any) -> Any:
        found = x(*map(place, at, x.shape, before, after))
        if not rank or not (before[-1] or after[-1]):
            return found
        # Almost all of a row lies inside, where it is read as it stands.
        *outer, last = at
        inner = last - before[-1]
        plain = x(*map(place, outer, x.shape, before, after), inner)
        return te.if_then_else(te.all(inner >= 0, inner < x.shape[-1]), plain, found)

    return stage(shape, element, "pad")


def _cut(x: TensorLike, before: Ints, after: Ints) -> TensorLike:
    """x without what negative pads cut off. Raises Unsupported where nothing is left."""
    first = [max(-p, 0) for p in before]
    shape = [n - f - max(-p, 0) for n, f, p in zip(x.shape, first, after, strict=True)]
    if any(isinstance(n, int) and n <= 0 for n in shape):
        raise Unsupported(
            f"attribute pads is {(*before, *after)}, which cuts off all of the shape {x.shape}"
        )
    return View(shape, x.dtype, lambda *at: x(*(i + f for i, f in zip(at, first, strict=True))),
                "cut")  # fmt: skip


def _scalar(x: TensorLike) -> Any:
    return x(*(0 for _ in x.shape))
