"""Loop and Scan: dataflow where the turns are few and known, else a closure that is called over and
over."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.graph.builder import make_call
from autosched.graph.errors import Unsupported
from autosched.graph.fold import constant
from autosched.graph.higher import lengths
from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    Var,
    tensor_type,
    type_of,
)
from autosched.graph.onnx_import.scope import (
    Listed,
    Scope,
    Value,
    identifier,
    operator_name,
    tensors,
)
from autosched.graph.onnx_import.tensors import declared_type
from autosched.graph.onnx_import.upgrade import upgraded
from autosched.graph.types import ANY, TensorType, Type

if TYPE_CHECKING:
    import onnx

    from autosched.graph.onnx_import.reader import Reader

Args = Sequence["Atom | None"]
Given = Sequence["Value | None"]
Parts = tuple[tuple[tuple[int, ...] | None, str], ...]


def repeated(
    reader: Reader,
    node: onnx.NodeProto,
    given: Given,
    names: Sequence[str],
    scope: Scope,
    depth: int,
) -> Sequence[Value]:
    """Loop and Scan: a closure, and the operator that calls it over and over."""
    name = operator_name(node)
    graph = next((a.g for a in node.attribute if a.name == "body"), None)
    if graph is None:
        raise Unsupported("the attribute body is missing")
    attrs = {a.name: reader.tensors.attribute(a) for a in node.attribute if a.name != "body"}
    if name == "Loop" and any(isinstance(a, Listed) for a in given[2:]):
        return _unrolled(reader, graph, given, _most_turns(given), (), scope, depth)
    args = tensors(given)
    if name == "Loop":
        count, go = TensorType((), "int64"), TensorType((), "bool")
        types: list[Type] = [count, go, *map(_present, args[2:])]
    else:
        if scope.opsets.get("", 1) < 9:
            raise Unsupported("the Scan of opset 8 is not supported; export with opset 9 or newer")
        states = len(args) - int(attrs["num_scan_inputs"])
        axes = attrs.get("scan_input_axes") or [0] * (len(args) - states)
        slices = (_slice(_present(a), x) for a, x in zip(args[states:], axes, strict=True))
        types = [*map(_present, args[:states]), *slices]
    if len(graph.input) != len(types):
        raise Unsupported(f"its body has {len(graph.input)} inputs; expected {len(types)}")
    skip = 2 if name == "Loop" else 0
    while True:
        inner = reader.inner(graph, scope)
        params = []
        for info, t in zip(graph.input, types, strict=True):
            v = Var(identifier(info.name), t)
            inner.define(info.name, v, "an input of its body")
            params.append(v)
        results = tuple(a for a in tensors(reader.body(graph, inner, depth + 1)) if a is not None)
        # A state whose type changes from turn to turn has none that is known.
        states = len(args) - 2 if name == "Loop" else len(args) - int(attrs["num_scan_inputs"])
        after = results[1 if name == "Loop" else 0 :][:states]
        changed = [
            n for n, a in enumerate(after, skip) if types[n] != ANY and type_of(a) != types[n]
        ]
        if not changed:
            break
        for n in changed:
            types[n] = ANY
    closure = Function(identifier(graph.name or "body"), tuple(params),
                       Body(tuple(inner.bindings), results))  # fmt: skip
    scanned = len(results) - len(after) - (name == "Loop")
    parts = _parts(results[len(results) - scanned :], graph.output[len(results) - scanned :])
    if name == "Loop":
        turns = _turns(args, closure, inner.bindings)
        if turns is not None:
            return _unrolled(reader, graph, args, turns, parts, scope, depth)
        return _bound_loop(scope, closure, [*args, None, None][:2], args[2:], names, parts)
    steps = _steps(args[states:], axes)
    if steps is not None:
        return _as_loop(scope, closure, args, attrs, steps, names, parts)
    f = Var(closure.name, closure.type)
    scope.bindings.append(Binding((f,), closure))
    call = Call(name, (f, *args), tuple(sorted({**attrs, "parts": parts}.items())))
    return scope.bind(call, names)


def _bound_loop(
    scope: Scope,
    closure: Function,
    before: Args,
    states: Args,
    names: Sequence[str],
    parts: Parts,
) -> Sequence[Atom]:
    """The results of a Loop over a function."""
    f = Var(closure.name, closure.type)
    scope.bindings.append(Binding((f,), closure))
    attrs: tuple[tuple[str, Any], ...] = (("parts", parts),) if parts else ()
    turns, go = _known_turns(before), before[1]
    if turns is not None and _stays(closure) and (go is None or isinstance(go, Const)):
        attrs = (*attrs, ("turns", turns))
    return scope.bind(Call("Loop", (*before, f, *states), attrs), names)


def _parts(scanned: Sequence[Atom], declared: Sequence[onnx.ValueInfoProto]) -> Parts:
    """Shape and dtype of what is scanned in a turn, so that the result of no turn has one: as they
    follow, or as the body declares them."""
    out: list[tuple[tuple[int, ...] | None, str]] = []
    for a, info in zip(scanned, declared, strict=True):
        t = type_of(a)
        if not isinstance(t, TensorType) or not t.is_static:
            t = declared_type(info) or t
        static = isinstance(t, TensorType) and t.is_static
        shape = tuple(int(n) for n in t.known) if static else None  # type: ignore[union-attr]
        out.append((shape, t.dtype if isinstance(t, TensorType) else ""))
    return tuple(out)


MOST_TURNS, MOST_BINDINGS = 8, 128
"""Of a Loop that becomes dataflow, all turns together."""


def _turns(args: Args, closure: Function, bindings: Sequence[Binding]) -> int | None:
    """How often a Loop runs, where that is known and what it computes may stand in line: no turn,
    or a few with a condition that stays true."""
    turns, go = _known_turns(args), [*args, None, None][1]
    if turns is None:
        return None
    stays = _stays(closure)
    known = go is None or isinstance(go, Const)
    small = turns <= MOST_TURNS and turns * len(bindings) <= MOST_BINDINGS
    return turns if turns == 0 or (stays and known and small) else None


def _stays(closure: Function) -> bool:
    """Whether the condition of a Loop stays true."""
    ends = closure.body.results[0]
    return (isinstance(ends, Const) and bool(ends.value.any())) or ends is closure.params[1]


def _known_turns(args: Given) -> int | None:
    """How often a Loop runs at most, where that is known."""
    count, go = [*args, None, None][:2]
    if isinstance(go, Const) and not bool(go.value.any()):
        return 0
    return max(int(count.value.reshape(-1)[0]), 0) if isinstance(count, Const) else None


def _most_turns(given: Given) -> int:
    """How often a Loop that carries a sequence runs at most; one without a count ends by its
    condition, which is computed turn by turn as the file is read. Raises Unsupported."""
    count, go = given[:2]
    turns = _known_turns(given)
    if turns != 0 and (isinstance(count, Var) or isinstance(go, Var)):
        raise Unsupported("it carries a sequence, and how often it runs is not known")
    return sys.maxsize if turns is None else turns


def _unrolled(
    reader: Reader,
    graph: onnx.GraphProto,
    args: Given,
    turns: int,
    parts: Parts,
    scope: Scope,
    depth: int,
) -> Sequence[Value]:
    """The results of a Loop, its turns one after the other; `parts` are known where there is a type
    for each state."""
    states = list(args[2:])
    if any(a is None for a in states):
        raise Unsupported("a state has no initial value")
    scanned: list[list[Atom]] = [[] for _ in graph.output[1 + len(states) :]]
    for n in range(turns):
        reader.count(1)
        inner = reader.inner(graph, scope)
        first = [constant(np.asarray(n, np.int64)), constant(np.asarray(True))]
        for info, a in zip(graph.input, [*first, *states], strict=True):
            assert a is not None
            inner.define(info.name, a, "an input of its body")
        go, *results = reader.body(graph, inner, depth + 1)
        scope.bindings += inner.bindings
        rows = tensors(results[len(states) :])
        states = [*results[: len(states)]]
        for into, row in zip(scanned, rows, strict=True):
            assert row is not None
            into += scope.emit("Unsqueeze", [row, constant(np.array([0], np.int64))], {})
        if not isinstance(go, Const):
            raise Unsupported("it carries a sequence, and when it ends is known only as it runs")
        if not go.value.any():
            break
    out = [a for a in states if a is not None]
    return [*out, *_stacked(scope, scanned, parts)]


def _stacked(
    scope: Scope,
    scanned: Sequence[list[Atom]],
    parts: Parts,
) -> Sequence[Atom]:
    """What the turns give, one upon the other; `parts` are shape and dtype of one."""
    out: list[Atom] = []
    for n, rows in enumerate(scanned):
        if not rows:
            shape, dtype = parts[n] if parts else (None, "")
            if shape is None:
                raise Unsupported("it has no turn, and the shape of what it scans is not known")
            rows.append(constant(np.empty((0, *shape), dtype)))
        if len(rows) > 1:
            call = upgraded(scope, "Concat", rows, {"axis": 0}, 1)
            rows = [*scope.emit(call.name, call.args, call.attrs)]
        out += rows
    return out


def _steps(inputs: Args, axes: Sequence[int]) -> int | None:
    """How many slices all scanned inputs have; None where that is not known, or there are none.
    Raises Unsupported where inputs have different numbers of slices."""
    found: list[int | None] = []
    for a, axis in zip(inputs, axes, strict=True):
        t = _present(a)
        static = isinstance(t, TensorType) and t.is_static and bool(t.known)
        found.append(int(t.known[axis % len(t.known)]) if static else None)  # type: ignore[union-attr]
    known = lengths(n for n in found if n is not None)
    return known.pop() if known and None not in found and 0 not in known else None


def _as_loop(
    scope: Scope,
    closure: Function,
    args: Args,
    attrs: Mapping[str, Any],
    steps: int,
    names: Sequence[str],
    parts: Parts,
) -> Sequence[Atom]:
    """The results of a Scan as those of a Loop whose turns pick their slices: a Loop of kernels is
    one native call a turn."""
    inputs = int(attrs["num_scan_inputs"])
    states = len(args) - inputs
    axes = attrs.get("scan_input_axes") or [0] * inputs
    back = attrs.get("scan_input_directions") or [0] * inputs
    number, go = Var("i", TensorType((), "int64")), Var("go", TensorType((), "bool"))
    bindings: list[Binding] = []
    for x, v, axis, reverse in zip(args[states:], closure.params[states:], axes, back, strict=True):
        at: Atom = number
        if reverse:
            at = Var("at", number.type)
            last = constant(np.asarray(steps - 1, np.int64))
            bindings.append(Binding((at,), Call("Sub", (last, number))))
        rank = len(tensor_type(v).known) + 1
        call, _ = make_call("Gather", [x, at], {"axis": axis % rank})
        bindings.append(Binding((v,), call))
    body = Body((*bindings, *closure.body.bindings), (go, *closure.body.results))
    made = Function(closure.name, (number, go, *closure.params[:states]), body)
    count = constant(np.asarray(steps, np.int64))
    scanned = len(closure.body.results) - states
    ends = attrs.get("scan_output_axes") or [0] * scanned
    turned = attrs.get("scan_output_directions") or [0] * scanned
    out = list(_bound_loop(scope, made, [count, None], args[:states], names, parts))
    for n, (axis, reverse) in enumerate(zip(ends, turned, strict=True), states):
        if n >= len(out):
            break
        if reverse:
            low = constant(np.array([-(1 << 62)], np.int64))
            minus, zero = (constant(np.array([k], np.int64)) for k in (-1, 0))
            (out[n],) = scope.emit("Slice", [out[n], minus, low, zero, minus], {})
        shape = tensor_type(closure.body.results[n]).shape
        if shape is None and axis != 0:
            raise Unsupported("scan_output_axes of a result whose rank is not known")
        rank = 1 if shape is None else len(shape) + 1
        if axis % rank:
            perm = [*range(1, rank)]
            perm.insert(axis % rank, 0)
            (out[n],) = scope.emit("Transpose", [out[n]], {"perm": tuple(perm)})
    return out


def _present(a: Atom | None) -> Type:
    return ANY if a is None else type_of(a)


def _slice(t: Type, axis: int) -> Type:
    if not isinstance(t, TensorType) or t.shape is None:
        return ANY
    at = axis % max(len(t.shape), 1)
    return TensorType(t.shape[:at] + t.shape[at + 1 :], t.dtype)
