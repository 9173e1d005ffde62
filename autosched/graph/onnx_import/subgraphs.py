"""Nodes with graphs inside: If; Loop and Scan are in `loops`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from autosched.graph.errors import Unsupported
from autosched.graph.ir import Binding, Body, Call, Const, If, Var, type_of
from autosched.graph.onnx_import.loops import Given, repeated
from autosched.graph.onnx_import.scope import Scope, Unfit, Value, identifier, tensors
from autosched.graph.types import TensorType, joined

if TYPE_CHECKING:
    import onnx

    from autosched.graph.onnx_import.reader import Reader


def branch(
    reader: Reader,
    node: onnx.NodeProto,
    given: Given,
    names: Sequence[str],
    scope: Scope,
    depth: int,
) -> Sequence[Value]:
    """If: the branch taken where the condition is known."""
    graphs, args = {a.name: a.g for a in node.attribute}, tensors(given)
    if len(args) != 1 or args[0] is None or not {"then_branch", "else_branch"} <= graphs.keys():
        raise Unsupported("expected a condition and the attributes then_branch and else_branch")
    condition = args[0]
    if isinstance(condition, Const):
        taken = graphs["then_branch" if bool(condition.value.any()) else "else_branch"]
        inner = reader.inner(taken, scope)
        results = reader.body(taken, inner, depth + 1)
        scope.bindings += inner.bindings
        return results
    both: list[Body | Unfit] = []
    for key in ("then_branch", "else_branch"):
        try:
            both.append(_branch(reader, key, graphs[key], names, scope, depth))
        except Unfit as e:
            both.append(e)
    then, other = (_refused(x, both[1 - n]) for n, x in enumerate(both))
    variables = tuple(
        Var(identifier(name), joined(type_of(a), type_of(b)))
        for name, a, b in zip(names, then.results, other.results, strict=True)
    )
    scope.bindings.append(Binding(variables, If(condition, then, other)))
    return variables


def _branch(
    reader: Reader,
    key: str,
    graph: onnx.GraphProto,
    names: Sequence[str],
    scope: Scope,
    depth: int,
) -> Body:
    inner = reader.inner(graph, scope)
    results = reader.body(graph, inner, depth + 1)
    if len(results) != len(names):
        raise Unsupported(f"attribute {key} has {len(results)} results; the node has {len(names)}")
    atoms = tuple(a for a in tensors(results) if a is not None)
    return Body(tuple(inner.bindings), atoms)


def _refused(branch: Body | Unfit, other: Body | Unfit) -> Body:
    """A branch; one that does not fit the sizes that the inputs have, as one for another sampling
    rate, is refused when it is taken, if the other one does."""
    if isinstance(branch, Body):
        return branch
    if isinstance(other, Unfit):
        raise branch
    types = [type_of(a) for a in other.results]
    tensors = [t for t in types if isinstance(t, TensorType)]
    if len(tensors) != len(types):
        raise branch
    given = tuple((t.shape, t.dtype) for t in tensors)
    results = tuple(Var("refused", t) for t in tensors)
    call = Call("Refused", (), (("message", str(branch)), ("results", given)))
    return Body((Binding(results, call),), results)


READ: dict[str, Callable[..., Sequence[Value]]] = {
    "If": branch, "Loop": repeated, "Scan": repeated
}  # fmt: skip
"""Operators with graphs inside."""
