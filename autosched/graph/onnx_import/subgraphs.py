"""Nodes with graphs inside: If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from autosched.graph.errors import Unsupported
from autosched.graph.ir import Atom, Binding, Body, Call, Const, Function, If, Var, type_of
from autosched.graph.onnx_import.scope import Scope, identifier, operator_name
from autosched.graph.types import ANY, TensorType, Type

if TYPE_CHECKING:
    import onnx

    from autosched.graph.onnx_import.reader import Reader

Args = Sequence["Atom | None"]


def branch(
    reader: Reader,
    node: onnx.NodeProto,
    args: Args,
    names: Sequence[str],
    scope: Scope,
    depth: int,
) -> Sequence[Atom]:
    """If: the branch taken where the condition is known."""
    graphs = {a.name: a.g for a in node.attribute}
    if len(args) != 1 or args[0] is None or not {"then_branch", "else_branch"} <= graphs.keys():
        raise Unsupported("expected a condition and the attributes then_branch and else_branch")
    condition = args[0]
    if isinstance(condition, Const):
        taken = graphs["then_branch" if bool(condition.value.any()) else "else_branch"]
        inner = reader.inner(taken, scope)
        results = reader.body(taken, inner, depth + 1)
        scope.bindings += inner.bindings
        return results
    both = []
    for key in ("then_branch", "else_branch"):
        inner = reader.inner(graphs[key], scope)
        results = reader.body(graphs[key], inner, depth + 1)
        if len(results) != len(names):
            raise Unsupported(
                f"attribute {key} has {len(results)} results; the node has {len(names)}"
            )
        both.append(Body(tuple(inner.bindings), results))
    then, other = both
    variables = tuple(
        Var(identifier(name), joined(type_of(a), type_of(b)))
        for name, a, b in zip(names, then.results, other.results, strict=True)
    )
    scope.bindings.append(Binding(variables, If(condition, then, other)))
    return variables


def repeated(
    reader: Reader,
    node: onnx.NodeProto,
    args: Args,
    names: Sequence[str],
    scope: Scope,
    depth: int,
) -> Sequence[Atom]:
    """Loop and Scan: a closure, and the operator that calls it over and over."""
    name = operator_name(node)
    graph = next((a.g for a in node.attribute if a.name == "body"), None)
    if graph is None:
        raise Unsupported("the attribute body is missing")
    attrs = {a.name: reader.tensors.attribute(a) for a in node.attribute if a.name != "body"}
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
        results = reader.body(graph, inner, depth + 1)
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
    f = Var(closure.name, closure.type)
    scope.bindings.append(Binding((f,), closure))
    before = [*args[:2], None, None][:2] if name == "Loop" else []
    given = (*before, f, *(args[2:] if name == "Loop" else args))
    return scope.bind(Call(name, given, tuple(sorted(attrs.items()))), names)


READ: dict[str, Callable[..., Sequence[Atom]]] = {
    "If": branch, "Loop": repeated, "Scan": repeated
}  # fmt: skip
"""Operators with graphs inside."""


def _present(a: Atom | None) -> Type:
    return ANY if a is None else type_of(a)


def _slice(t: Type, axis: int) -> Type:
    if not isinstance(t, TensorType) or t.shape is None:
        return ANY
    at = axis % max(len(t.shape), 1)
    return TensorType(t.shape[:at] + t.shape[at + 1 :], t.dtype)


def joined(a: Type, b: Type) -> Type:
    """The type of what is of one of two types."""
    return a if a == b else ANY
