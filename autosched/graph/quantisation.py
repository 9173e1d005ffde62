"""Quantising a float model: `graph.quantise`.

Layers (convolutions and products with constant weights) get operands of 8 bits: activations as
uint8 in steps that samples say, weights as int8 with a scale a column. What is written is what
quantisers write, QuantizeLinear and DequantizeLinear around each operand; a build makes integer
products of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from autosched.checks import choice, instance, listed, mapping, shown, unmasked
from autosched.errors import ArgumentError
from autosched.graph.calibration import SCHEMES, Array, Observer, has_steps, steps_of
from autosched.graph.compile import check_sizes, compile_module, main_of
from autosched.graph.fold import constant
from autosched.graph.ir import Atom, Binding, Body, Call, Const, Function, Var, tensor_type
from autosched.graph.model import CompiledModel
from autosched.graph.passes import common_subexpressions, dead_code, fold, simplify
from autosched.graph.types import TensorType
from autosched.tir.module import IRModule

LAYERS = ("Conv", "Gemm", "MatMul")
"""Operators whose products become integer ones."""
PERCENTILE = 99.99


@dataclass(frozen=True)
class LayerError:
    """What quantisation does to one layer: `low` and `high` are the range of its activations;
    `error` is that of its result, of all layers before it too, as a part of the result's norm."""

    name: str
    operator: str
    low: float
    high: float
    error: float

    @property
    def decibels(self) -> float:
        """Signal to noise."""
        return float(-20 * np.log10(max(self.error, 1e-12)))


@dataclass(frozen=True, eq=False)
class QuantisedModel:
    """A quantised module; `layers` in the order in which they run, `outputs` the error of each
    result of the model, by name, as a part of its norm."""

    module: IRModule
    scheme: str
    layers: tuple[LayerError, ...]
    outputs: Mapping[str, float]

    def table(self) -> str:
        """The errors as text, a line a layer."""
        width = max([len(x.name) for x in self.layers] + [len(n) for n in self.outputs] + [5])
        lines = [f"{'layer':{width}}  operator        from          to      error    dB"]
        lines += [
            f"{x.name:{width}}  {x.operator:8} {x.low:11.4g} {x.high:11.4g} {x.error:10.2e} "
            f"{x.decibels:5.1f}"
            for x in self.layers
        ]
        lines += [f"{n:{width}}  {'(output)':32} {e:10.2e}" for n, e in self.outputs.items()]
        return "\n".join(lines)


class _Layer(NamedTuple):
    binding: Binding
    call: Call
    data: Var
    weight: Const


def quantise(
    module: IRModule,
    samples: Any,
    scheme: str = "minmax",
    percentile: float = PERCENTILE,
    skip: Sequence[str] = (),
) -> QuantisedModel:
    """A float module with layers of 8 bits, and what that changes on the samples.

    Args:
        samples: arrays by the names of main's inputs, whose first axis may be a multiple of the
            input's: then they are so many samples; or a list of such mappings, one a sample.
        scheme: how the range of activations follows from the samples: "minmax", "percentile"
            (keeping `percentile` percent of them) or "entropy".
        skip: layers that stay as they are, by the names that the report has.

    The module is compiled for this machine, to observe and to compare. Raises ArgumentError for
    samples that do not fit the inputs, or of which a layer reads NaN, infinities or nothing but 0,
    and for layers whose weights are not finite; Unsupported where a size is symbolic.
    """
    instance("the module", module, IRModule, "a module of graph.from_onnx", ArgumentError)
    taken = choice("scheme", scheme, SCHEMES, ArgumentError)
    if not isinstance(percentile, (int, float)) or not 50 < percentile <= 100:
        raise ArgumentError(f"percentile is {shown(percentile)}; expected a number in (50, 100]")
    listed("skip", skip, str, "names of layers", ArgumentError)
    check_sizes(main_of(module))
    ready = module
    for one in (fold, simplify, common_subexpressions, dead_code):
        ready = one(ready)
    main = main_of(ready)
    given = list(_samples(main, samples))
    found = list(_layers(main))
    names = [layer.binding.vars[0].name for layer in found]
    if wrong := [n for n in skip if n not in names]:
        raise ArgumentError(f"skip has {wrong[0]!r}; the layers are {', '.join(names)}")
    layers = [layer for layer in found if layer.binding.vars[0].name not in skip]
    observed = list({id(layer.data): layer.data for layer in layers}.values())
    seen, wanted = _observe(main, layers, observed, given, counted=taken != "minmax")
    ranges = {i: o.range(taken, percentile) for i, o in seen.items()}
    _check_ranges(layers, ranges)
    made, results = _quantised(main, layers, ranges)
    errors = _errors(_with_results(made, results), given, wanted)
    report = tuple(
        LayerError(x.binding.vars[0].name, str(x.call.callee), *ranges[id(x.data)], e)
        for x, e in zip(layers, errors, strict=False)
    )
    outputs = dict(zip(_outputs(main), errors[len(layers) :], strict=True))
    return QuantisedModel(ready.with_function("main", made), taken, report, outputs)


def _outputs(main: Function) -> list[str]:
    names: Sequence[str] = main.attr("outputs") or [
        getattr(a, "name", f"output{n}") for n, a in enumerate(main.body.results)
    ]
    return list(names)


def _samples(main: Function, samples: Any) -> Iterator[dict[str, Array]]:
    """Arrays by name, one mapping a run. Raises ArgumentError."""
    what = "arrays by the names of inputs, or a list of such mappings"
    rows = samples if isinstance(samples, (list, tuple)) else [samples]
    if not rows:
        raise ArgumentError(f"samples is empty; expected {what}")
    names: Sequence[str] = main.attr("inputs") or [p.name for p in main.params]
    for row in rows:
        given = mapping("samples", row, what, ArgumentError)
        for name, a in given.items():
            unmasked(f"the sample {name}", a, ArgumentError)
        arrays = {n: np.asarray(a) for n, a in given.items()}
        if set(arrays) != set(names):
            raise ArgumentError(
                f"samples has {', '.join(sorted(arrays)) or 'no arrays'}; expected "
                f"{', '.join(names)}"
            )
        counts = set()
        for name, p in zip(names, main.params, strict=True):
            counts.add(_count(name, arrays[name], tensor_type(p)))
        if len(counts) != 1:
            raise ArgumentError(
                f"the arrays of samples hold {', '.join(map(str, sorted(counts)))} samples; "
                "expected as many of each input"
            )
        for n in range(counts.pop()):
            yield {
                name: _part(arrays[name], n, tensor_type(p))
                for name, p in zip(names, main.params, strict=True)
            }


def _count(name: str, array: Array, t: TensorType) -> int:
    """How many samples an array has."""
    shape = tuple(int(n) for n in t.known)
    if array.dtype.name != t.dtype:
        raise ArgumentError(f"the samples of {name} are {array.dtype.name}; expected {t.dtype}")
    if array.shape == shape:
        return 1
    fits = array.ndim == len(shape) > 0 and array.shape[1:] == shape[1:] and shape[0] > 0
    if not fits or array.shape[0] % shape[0] or not array.size:
        raise ArgumentError(
            f"the samples of {name} have the shape {array.shape}; expected {shape}, or a multiple "
            "of its first axis"
        )
    return int(array.shape[0] // shape[0])


def _part(array: Array, n: int, t: TensorType) -> Array:
    shape = tuple(int(m) for m in t.known)
    return array if array.shape == shape else array[n * shape[0] : (n + 1) * shape[0]]


def _layers(main: Function) -> Iterator[_Layer]:
    """The layers with weights of float32; those in bodies of branches and loops are left."""
    for b in main.body.bindings:
        call = b.value
        if not isinstance(call, Call) or call.callee not in LAYERS or call.attr("transA", 0):
            continue
        data, weight = call.args[:2]
        if isinstance(data, Var) and isinstance(weight, Const) and weight.array is not None:
            types = tensor_type(data), weight.type
            if all(t.dtype == "float32" for t in types) and len(weight.type.known) >= 2:
                yield _Layer(b, call, data, weight)


def _with_results(main: Function, more: Sequence[Atom]) -> Function:
    """main with results in front of its own."""
    names = (*(f"observed{n}" for n in range(len(more))), *_outputs(main))
    attrs = {**dict(main.attrs), "outputs": names}
    body = Body(main.body.bindings, (*more, *main.body.results))
    return Function("main", main.params, body, tuple(sorted(attrs.items())))


def _compiled(main: Function) -> CompiledModel:
    return compile_module(IRModule({}, {"main": main}))


def _observe(
    main: Function,
    layers: Sequence[_Layer],
    observed: Sequence[Var],
    samples: Sequence[Mapping[str, Array]],
    counted: bool,
) -> tuple[dict[int, Observer], list[list[Array]]]:
    """What the samples make of the layers' data, by id; and, for each sample, the results of the
    layers and of the model."""
    inputs = {id(p): n for p, n in zip(main.params, main.attr("inputs") or
                                       [p.name for p in main.params], strict=True)}  # fmt: skip
    inner = [v for v in observed if id(v) not in inputs]
    layered = [layer.binding.vars[0] for layer in layers]
    model = _compiled(_with_results(main, [*inner, *layered]))
    seen = {id(v): Observer() for v in observed}
    wanted: list[list[Array]] = []
    for again in range(2 if counted else 1):
        for number, sample in enumerate(samples):
            results = [np.array(r) for r in model.run(sample)]
            values = dict(zip(map(id, inner), results, strict=False))
            for v in observed:
                value = sample[inputs[id(v)]] if id(v) in inputs else values[id(v)]
                if not np.isfinite(value).all():
                    raise _not_finite(_reader(layers, v), number, sample)
                (seen[id(v)].count if again else seen[id(v)].widen)(value)
            if not again:
                wanted.append(results[len(inner) :])
    return seen, wanted


def _reader(layers: Sequence[_Layer], data: Var) -> str:
    """The name of the first layer that reads `data`."""
    return next(x.binding.vars[0].name for x in layers if x.data is data)


def _not_finite(layer: str, number: int, sample: Mapping[str, Array]) -> ArgumentError:
    """What a layer reads has no range."""
    bad = [n for n, a in sample.items() if a.dtype.kind == "f" and not np.isfinite(a).all()]
    where = f"input {', '.join(map(repr, bad))} holds" if bad else "its inputs are finite, yet make"
    return ArgumentError(
        f"sample {number} (the first is 0) gives layer {layer!r} no range: {where} NaN or infinity "
        "there; expected finite numbers where a layer reads, or the layer in skip"
    )


def _check_ranges(layers: Sequence[_Layer], ranges: Mapping[int, tuple[float, float]]) -> None:
    """Raises ArgumentError for a layer whose steps would follow from no value but 0."""
    for layer in layers:
        low, high = ranges[id(layer.data)]
        if not has_steps(low, high):
            name = layer.binding.vars[0].name
            read = "nothing but 0" if low == high else f"nothing beyond {low:g} to {high:g}"
            raise ArgumentError(
                f"layer {name!r} reads {read} in all samples, which has no steps; "
                f"expected samples like the inputs of calls, or {name!r} in skip"
            )


def _quantised(
    main: Function, layers: Sequence[_Layer], ranges: Mapping[int, tuple[float, float]]
) -> tuple[Function, list[Var]]:
    """main with quantised operands, and the layers' results in it."""
    changed = {id(layer.binding): layer for layer in layers}
    narrow: dict[int, Var] = {}
    out: list[Binding] = []
    for b in main.body.bindings:
        layer = changed.get(id(b))
        if layer is None:
            out.append(b)
            continue
        x = layer.data
        if id(x) not in narrow:
            scale, zero = (constant(np.asarray(a)) for a in steps_of(*ranges[id(x)]))
            shape = tensor_type(x).known
            q = Var(f"{x.name}_q", TensorType(shape, "uint8"))
            out.append(Binding((q,), Call("QuantizeLinear", (x, scale, zero))))
            narrow[id(x)] = Var(f"{x.name}_dq", TensorType(shape, "float32"))
            out.append(Binding((narrow[id(x)],), Call("DequantizeLinear", (q, scale, zero))))
        w = Var(f"{b.vars[0].name}_w", layer.weight.type)
        out.append(Binding((w,), _weight(layer)))
        rest = layer.call.args[2:]
        call = Call(layer.call.callee, (narrow[id(x)], w, *rest), layer.call.attrs)
        out.append(Binding(b.vars, call))
    body = Body(tuple(out), main.body.results)
    return Function("main", main.params, body, main.attrs), [x.binding.vars[0] for x in layers]


def _weight(layer: _Layer) -> Call:
    """A weight as int8 with a scale a column."""
    w = np.asarray(layer.weight.value)
    if not np.isfinite(w).all():
        name = layer.binding.vars[0].name
        raise ArgumentError(
            f"the weight of layer {name!r} holds NaN or infinity, which have no steps; expected "
            f"{name!r} in skip"
        )
    first = layer.call.callee == "Conv" or layer.call.attr("transB", 0)
    axis = 0 if first else w.ndim - 1
    others = tuple(d for d in range(w.ndim) if d != axis)
    largest = np.abs(w).max(others, keepdims=True) if w.size else np.ones([1] * w.ndim)
    scale = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    steps = np.clip(np.rint(w / scale), -127, 127).astype(np.int8)
    args = (constant(steps), constant(scale.reshape(-1)))
    return Call("DequantizeLinear", args, () if axis == 1 else (("axis", axis),))


def _errors(
    made: Function, samples: Sequence[Mapping[str, Array]], wanted: Sequence[Sequence[Array]]
) -> list[float]:
    """The norm of each result's difference from what is wanted, as a part of its norm."""
    model = _compiled(made)
    total = np.zeros((2, len(wanted[0])))
    for sample, true in zip(samples, wanted, strict=True):
        for n, (a, b) in enumerate(zip(model.run(sample), true, strict=True)):
            a, b = np.asarray(a, np.float64), b.astype(np.float64)
            total[:, n] += np.sum((a - b) ** 2), np.sum(b**2)
    return [float(np.sqrt(e / n)) if n else float(e > 0) for e, n in total.T]
