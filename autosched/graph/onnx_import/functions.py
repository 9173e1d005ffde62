"""Operators without a definition, by their function bodies: those of the file, those that ONNX has
for its operators, and those of `microsoft`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autosched.graph.errors import Unsupported
from autosched.graph.ir import tensor_type
from autosched.graph.onnx_import import microsoft
from autosched.graph.onnx_import.attention import INSTEAD, Call
from autosched.graph.onnx_import.scope import Listed, Scope, Value, captured, operator_name
from autosched.graph.onnx_import.tensors import type_proto

if TYPE_CHECKING:
    import onnx

    from autosched.graph.onnx_import.reader import Reader

Opsets = Mapping[str, int]


def opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Versions of operator sets by domain; ONNX's own is ""."""
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in imports}


def check_opset(found: Opsets) -> None:
    """Raises Unsupported for a version of ONNX's operators that nobody knows."""
    from onnx import defs

    version, last = found.get("", 1), defs.onnx_opset_version()
    if not 1 <= version <= last:
        raise Unsupported(f"the model is of opset {version}; opsets 1 to {last} are known")


def inlined(
    reader: Reader,
    node: onnx.NodeProto,
    args: Sequence[Value | None],
    names: Sequence[str],
    scope: Scope,
    depth: int,
) -> Sequence[Value | None]:
    """The results of a function body; None for those that it does not compute."""
    body = _body(reader, node, args, names, scope)
    if body is None:
        if node.domain in ("", "ai.onnx"):
            raise Unsupported("this operator is not supported")
        raise Unsupported(
            f"this operator is not supported: the file has no function for it, and of the domain "
            f"{node.domain!r} it is none that is known"
        )
    if depth >= reader.bounds.depth:
        raise Unsupported(f"functions nest more than {reader.bounds.depth} deep")
    given = {a.name: a for a in node.attribute}
    declared = {*body.attribute, *(a.name for a in body.attribute_proto)}
    unknown = [n for n, a in given.items() if n not in declared and (a.i or a.f or a.s)]
    if unknown and node.domain == microsoft.DOMAIN:
        raise Unsupported(f"attribute {unknown[0]} is not supported; {INSTEAD}")
    # A graph that is an attribute stands in the body: what it reads from around is known there.
    around = {n: a for n in captured(node) for a in [scope.find(n)] if a is not None}
    values = {n: a for n, a in zip(body.input, args, strict=False) if a is not None}
    inner = Scope(
        reader.bounds,
        values={**around, **values},
        bindings=scope.bindings,
        opsets=opsets(body.opset_import),
        absent=frozenset(body.input) - values.keys(),
        origins=scope.origins,
    )
    defaults = {**_defaults(node, scope), **{a.name: a for a in body.attribute_proto}}
    for n, one in enumerate(body.node):
        reader.node(_bound(one, {**defaults, **given}), n, inner, depth + 1)
    out: list[Value | None] = []
    for name, wanted in zip(body.output, names, strict=False):
        atom = inner.find(name)
        if atom is None and wanted:
            raise Unsupported(f"its function body computes no {name!r}")
        out.append(atom)
    return out


def _body(
    reader: Reader,
    node: onnx.NodeProto,
    args: Sequence[Value | None],
    names: Sequence[str],
    scope: Scope,
) -> onnx.FunctionProto | None:
    from onnx import FunctionProto, defs

    own = reader.functions.get((node.domain, node.op_type))
    known = node.domain == microsoft.DOMAIN or operator_name(node) in microsoft.OWN_DOMAIN
    if own is None and known:
        attrs = {a.name: reader.tensors.attribute(a) for a in node.attribute}
        own = microsoft.body(node.op_type, Call(args, attrs, names))
    if own is not None or known:
        return own
    version = scope.opsets.get(node.domain or "", 1)
    try:
        schema: Any = defs.get_schema(node.op_type, version, node.domain)
    except defs.SchemaError:
        return None
    if schema.has_function:
        found: FunctionProto = schema.function_body
        return found
    if schema.has_context_dependent_function:
        types = [_type(a) for a in args]
        text = schema.get_context_dependent_function(
            _present(node, args).SerializeToString(), [t.SerializeToString() for t in types]
        )
        made: FunctionProto = FunctionProto.FromString(text)
        return made
    return None


def _present(node: onnx.NodeProto, args: Sequence[Value | None]) -> onnx.NodeProto:
    """A node that names no input which a call around it leaves out."""
    from onnx import NodeProto

    out = NodeProto()
    out.CopyFrom(node)
    out.input[:] = [n if a is not None else "" for n, a in zip(node.input, args, strict=False)]
    return out


def _type(value: Value | None) -> onnx.TypeProto:
    """The type of an argument as ONNX writes it."""
    from onnx import TypeProto, helper

    if value is None:
        return TypeProto()
    if isinstance(value, Listed):
        if not value.items:
            raise Unsupported("the type of a sequence without elements is not known")
        made: TypeProto = helper.make_sequence_type_proto(type_proto(tensor_type(value.items[0])))
        return made
    return type_proto(tensor_type(value))


def _bound(node: onnx.NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """A node of a function body with the attributes of the call."""
    import onnx

    if not any(a.ref_attr_name for a in node.attribute):
        return node
    out = onnx.NodeProto()
    out.CopyFrom(node)
    del out.attribute[:]
    for a in node.attribute:
        if not a.ref_attr_name:
            out.attribute.add().CopyFrom(a)
        elif a.ref_attr_name in attributes:
            out.attribute.add().CopyFrom(attributes[a.ref_attr_name])
            out.attribute[-1].name = a.name
    return out


def _defaults(node: onnx.NodeProto, scope: Scope) -> dict[str, onnx.AttributeProto]:
    """Attributes of an operator of ONNX's own that a node may leave out."""
    from onnx import defs

    try:
        schema: Any = defs.get_schema(node.op_type, scope.opsets.get(node.domain, 1), node.domain)
    except defs.SchemaError:
        return {}
    return {n: a.default_value for n, a in schema.attributes.items() if a.default_value.name}
