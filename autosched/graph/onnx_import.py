"""ONNX models as modules of the graph level.

Operators keep their names and attributes. Inputs that are known become attributes where the
definition wants them so, small constant expressions (shape arithmetic) are computed at once, and an
operator without a definition comes in by its function body. A file is someone else's: names,
sizes, numbers of nodes and depth are checked, and nothing is read from outside of its folder.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Union

import numpy as np

from autosched.errors import AutoschedError
from autosched.graph import ops
from autosched.graph.builder import make_call
from autosched.graph.errors import Unsupported
from autosched.graph.fold import constant, folded
from autosched.graph.higher import HIGHER
from autosched.graph.infer import infer, is_text
from autosched.graph.ir import (
    Array,
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    If,
    Var,
    tensor_type,
    type_of,
)
from autosched.graph.spec import frozen
from autosched.graph.types import ANY, TensorType, Type
from autosched.tir import dtypes
from autosched.tir.module import IRModule

if TYPE_CHECKING:
    import onnx

ModelLike = Union[str, "os.PathLike[str]", bytes, "onnx.ModelProto"]


@dataclass(frozen=True)
class Bounds:
    """What a file may ask for: `bytes` of the file, `nodes` with those of subgraphs and function
    bodies, `depth` of subgraphs, `elements` of one tensor."""

    bytes: int = 1 << 31
    nodes: int = 100_000
    depth: int = 16
    elements: int = 1 << 32


BOUNDS = Bounds()
_MALFORMED = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What protobuf, onnx and NumPy raise where a file breaks the rules of its format."""
_READ = frozenset({*dtypes.DTYPES, "uint16", "uint32", "uint64"})
"""Element types of constants; te has fewer."""


def from_onnx(
    model: ModelLike,
    shapes: Mapping[str, Sequence[int]] | None = None,
    bounds: Bounds = BOUNDS,
) -> IRModule:
    """The module of a model: its graph is the function `main`.

    `model`: a path, the file's bytes, or a ModelProto. `shapes` fixes the shapes of inputs by
    name; sizes that the file leaves open must be given. Raises Unsupported, naming node, operator
    and attribute.
    """
    proto, folder = _load(model, bounds)
    try:
        reader = _Reader(proto, folder, bounds)
    except _MALFORMED as e:
        raise Unsupported(f"the model is malformed: {type(e).__name__}: {e}") from e
    try:
        return IRModule({}, {"main": reader.main(dict(shapes or {}))})
    except _MALFORMED as e:
        raise Unsupported(f"the model is malformed: {type(e).__name__}: {e}") from e


def _load(model: ModelLike, bounds: Bounds) -> tuple[onnx.ModelProto, Path | None]:
    try:
        import onnx
    except ImportError as e:
        raise Unsupported(
            "reading ONNX files needs the package onnx: pip install 'autosched[onnx]'"
        ) from e
    from google.protobuf.message import DecodeError

    if isinstance(model, onnx.ModelProto):
        return model, None
    folder = None
    if not isinstance(model, bytes):
        path = Path(model)
        size = path.stat().st_size
        if size > bounds.bytes:
            raise Unsupported(f"{path} has {size} bytes; at most {bounds.bytes} are read")
        folder, model = path.parent, path.read_bytes()
    if len(model) > bounds.bytes:
        raise Unsupported(f"the model has {len(model)} bytes; at most {bounds.bytes} are read")
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(model)
    except (DecodeError, RuntimeError, ValueError) as e:
        raise Unsupported(f"no ONNX model: {e}") from e
    if not proto.HasField("graph"):
        raise Unsupported("no ONNX model: the file has no graph")
    return proto, folder


@dataclass
class _Scope:
    """Names of one graph: what they stand for, and where those around it are looked up."""

    values: dict[str, Atom] = field(default_factory=dict)
    outer: _Scope | None = None
    bindings: list[Binding] = field(default_factory=list)
    opsets: Mapping[str, int] = field(default_factory=dict)

    def find(self, name: str) -> Atom | None:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None


class _Reader:
    def __init__(self, model: onnx.ModelProto, folder: Path | None, bounds: Bounds) -> None:
        self.model, self.folder, self.bounds = model, folder, bounds
        self.nodes = 0
        self.opsets = {o.domain or "": o.version for o in model.opset_import} or {"": 1}
        self.functions = {(f.domain, f.name): f for f in model.functions}

    # Graphs

    def main(self, shapes: dict[str, Sequence[int]]) -> Function:
        graph = self.model.graph
        scope = _Scope(opsets=self.opsets)
        self.initializers(graph, scope)
        params: list[Var] = []
        names_in: list[str] = []
        for info in graph.input:
            if info.name in scope.values:
                continue
            given = shapes.pop(info.name, None)
            t = _input_type(info, given, self.bounds)
            v = Var(identifier(info.name), t)
            # What has no elements is known.
            empty = t.elements == 0
            atom = constant(np.empty([int(n) for n in t.known], t.dtype)) if empty else v
            self.define(scope, info.name, atom, "an input")
            params.append(v)
            names_in.append(info.name)
        if shapes:
            have = ", ".join(i.name for i in graph.input)
            raise Unsupported(f"no input is named {next(iter(shapes))!r}; there are {have}")
        results = self.body(graph, scope, 0)
        names = tuple(o.name for o in graph.output)
        body = Body(tuple(scope.bindings), results)
        inputs = ("inputs", tuple(names_in))
        return Function("main", tuple(params), body, (inputs, ("outputs", names)))

    def initializers(self, graph: onnx.GraphProto, scope: _Scope) -> None:
        for tensor in graph.initializer:
            where = f"the initializer {tensor.name!r}"
            self.define(scope, tensor.name, constant(self.array(tensor, where)), where)
        if graph.sparse_initializer:
            raise Unsupported("sparse initializers are not supported")

    def body(self, graph: onnx.GraphProto, scope: _Scope, depth: int) -> tuple[Atom, ...]:
        if depth > self.bounds.depth:
            raise Unsupported(f"graphs nest more than {self.bounds.depth} deep")
        for n, node in enumerate(graph.node):
            self.node(node, n, scope, depth)
        out = []
        for info in graph.output:
            atom = scope.find(info.name)
            if atom is None:
                raise Unsupported(f"the output {info.name!r} is computed by no node")
            out.append(atom)
        return tuple(out)

    def define(self, scope: _Scope, name: str, atom: Atom, what: str) -> None:
        if not name or name in scope.values:
            raise Unsupported(f"{what}: the name {name!r} is defined twice" if name else
                              f"{what} has no name")  # fmt: skip
        scope.values[name] = atom

    # Nodes

    def node(self, node: onnx.NodeProto, n: int, scope: _Scope, depth: int) -> None:
        self.nodes += 1
        if self.nodes > self.bounds.nodes:
            raise Unsupported(f"the model has more than {self.bounds.nodes} nodes")
        where = f"node {node.name or n!r} ({_operator(node)})"
        args: list[Atom | None] = []
        for name in node.input:
            atom = scope.find(name) if name else None
            if name and atom is None:
                raise Unsupported(f"{where} reads {name!r}, which no node before it computes")
            args.append(atom)
        outputs = list(node.output)
        while outputs and not outputs[-1]:
            outputs.pop()
        try:
            results = self.results(node, args, max(len(outputs), 1), scope, depth)
        except Unsupported as e:
            raise Unsupported(f"{where}: {e}" if not str(e).startswith("node ") else str(e)) from e
        except AutoschedError as e:
            raise Unsupported(f"{where}: {e}") from e
        except _MALFORMED as e:
            raise Unsupported(f"{where} is malformed: {type(e).__name__}: {e}") from e
        for name, atom in zip(outputs, results, strict=False):
            if name and atom is not None:
                self.define(scope, name, atom, where)

    def results(
        self,
        node: onnx.NodeProto,
        args: list[Atom | None],
        outputs: int,
        scope: _Scope,
        depth: int,
    ) -> Sequence[Atom | None]:
        name = _operator(node)
        if name == "Constant":
            return [self.constant(node)]
        if name == "If":
            return self.branch(node, args, scope, depth)
        attrs = {a.name: self.attribute(a, scope, depth) for a in node.attribute
                 if a.name != "body"}  # fmt: skip
        if name in HIGHER:
            return self.loop(node, name, args, attrs, outputs, scope, depth)
        opset = scope.opsets.get("", 1)
        args = _aligned(scope, name, args, attrs, opset)
        name, args, attrs = normalised(name, args, attrs, opset)
        if name == "Identity" and args[0] is not None:
            return [args[0], *_masks(args[0], outputs - 1, opset)]
        if name not in ops.OPERATORS:
            return self.inlined(node, args, attrs, outputs, scope, depth)
        return emit(scope.bindings, name, args, attrs, _names(node, outputs))

    def constant(self, node: onnx.NodeProto) -> Const:
        if len(node.attribute) != 1:
            raise Unsupported(f"expected one attribute, found {len(node.attribute)}")
        (a,) = node.attribute
        if a.name == "value":
            return constant(self.array(a.t, "attribute value"))
        kinds = {"value_float": "float32", "value_floats": "float32", "value_int": "int64",
                 "value_ints": "int64"}  # fmt: skip
        if a.name not in kinds:
            raise Unsupported(f"attribute {a.name} is not supported")
        return constant(np.asarray(self.attribute(a, None, 0), kinds[a.name]))

    def branch(
        self, node: onnx.NodeProto, args: list[Atom | None], scope: _Scope, depth: int
    ) -> Sequence[Atom]:
        graphs = {a.name: a.g for a in node.attribute}
        if len(args) != 1 or args[0] is None or not {"then_branch", "else_branch"} <= graphs.keys():
            raise Unsupported("expected a condition and the attributes then_branch and else_branch")
        condition = args[0]
        if isinstance(condition, Const):
            taken = graphs["then_branch" if bool(condition.value.any()) else "else_branch"]
            inner = self.inner(taken, scope)
            results = self.body(taken, inner, depth + 1)
            scope.bindings += inner.bindings
            return results
        both = []
        for key in ("then_branch", "else_branch"):
            inner = self.inner(graphs[key], scope)
            results = self.body(graphs[key], inner, depth + 1)
            both.append(Body(tuple(inner.bindings), results))
        then, other = both
        variables = tuple(
            Var(identifier(name), joined(type_of(a), type_of(b)))
            for name, a, b in zip(node.output, then.results, other.results, strict=True)
        )
        scope.bindings.append(Binding(variables, If(condition, then, other)))
        return variables

    def inner(self, graph: onnx.GraphProto, scope: _Scope) -> _Scope:
        inner = _Scope(outer=scope, opsets=scope.opsets)
        self.initializers(graph, inner)
        return inner

    def loop(
        self,
        node: onnx.NodeProto,
        name: str,
        args: list[Atom | None],
        attrs: dict[str, Any],
        outputs: int,
        scope: _Scope,
        depth: int,
    ) -> Sequence[Atom]:
        graph = next((a.g for a in node.attribute if a.name == "body"), None)
        if graph is None:
            raise Unsupported("the attribute body is missing")
        inner = self.inner(graph, scope)
        if name == "Loop":
            count = TensorType((), "int64")
            types: list[Type] = [count, TensorType((), "bool"), *map(_present, args[2:])]
        else:
            states = len(args) - int(attrs["num_scan_inputs"])
            axes = attrs.get("scan_input_axes") or [0] * (len(args) - states)
            types = [
                *map(_present, args[:states]),
                *(_slice(_present(a), x) for a, x in zip(args[states:], axes, strict=True)),
            ]
        if len(graph.input) != len(types):
            raise Unsupported(f"its body has {len(graph.input)} inputs; expected {len(types)}")
        params = []
        for info, t in zip(graph.input, types, strict=True):
            v = Var(identifier(info.name), t)
            self.define(inner, info.name, v, "an input of its body")
            params.append(v)
        results = self.body(graph, inner, depth + 1)
        closure = Function(identifier(graph.name or "body"), tuple(params),
                           Body(tuple(inner.bindings), results))  # fmt: skip
        f = Var(closure.name, closure.type)
        scope.bindings.append(Binding((f,), closure))
        before = [*args[:2], None, None][:2] if name == "Loop" else []
        given = (*before, f, *(args[2:] if name == "Loop" else args))
        call = Call(name, given, tuple(sorted(attrs.items())))
        named = zip(_names(node, outputs), infer(call, outputs), strict=True)
        variables = tuple(Var(identifier(n or name), t) for n, t in named)
        scope.bindings.append(Binding(variables, call))
        return variables

    def inlined(
        self,
        node: onnx.NodeProto,
        args: list[Atom | None],
        attrs: dict[str, Any],
        outputs: int,
        scope: _Scope,
        depth: int,
    ) -> Sequence[Atom | None]:
        """The function body of an operator that has no definition here."""
        found = self.function_body(node, args, scope)
        if found is None:
            raise Unsupported("this operator is not supported")
        body, opsets = found
        if depth >= self.bounds.depth:
            raise Unsupported(f"functions nest more than {self.bounds.depth} deep")
        inner = _Scope(opsets=opsets, bindings=scope.bindings)
        for name, atom in zip(body.input, args, strict=False):
            if atom is not None:
                inner.values[name] = atom
        given = {a.name: a for a in node.attribute}
        defaults = {**_defaults(node, scope), **{a.name: a for a in body.attribute_proto}}
        for n, one in enumerate(body.node):
            self.node(_bound(one, {**defaults, **given}), n, inner, depth + 1)
        out: list[Atom | None] = []
        for name in body.output[:outputs]:
            atom = inner.find(name)
            if atom is None and _names(node, outputs)[len(out)]:
                raise Unsupported(f"its function body computes no {name!r}")
            out.append(atom)
        return out

    def function_body(
        self, node: onnx.NodeProto, args: list[Atom | None], scope: _Scope
    ) -> tuple[onnx.FunctionProto, Mapping[str, int]] | None:
        from onnx import FunctionProto, TypeProto, defs

        own = self.functions.get((node.domain, node.op_type))
        if own is not None:
            return own, {o.domain or "": o.version for o in own.opset_import}
        version = scope.opsets.get(node.domain or "", 1)
        try:
            schema: Any = defs.get_schema(node.op_type, version, node.domain)
        except defs.SchemaError:
            return None
        if schema.has_function:
            body = schema.function_body
            return body, {o.domain or "": o.version for o in body.opset_import}
        if schema.has_context_dependent_function:
            types = [TypeProto() if a is None else _type_proto(tensor_type(a)) for a in args]
            text = schema.get_context_dependent_function(
                node.SerializeToString(), [t.SerializeToString() for t in types]
            )
            body = FunctionProto.FromString(text)
            return body, {o.domain or "": o.version for o in body.opset_import}
        return None

    # Attributes and tensors

    def attribute(self, a: onnx.AttributeProto, scope: _Scope | None, depth: int) -> Any:
        import onnx

        kind = onnx.AttributeProto
        if a.type == kind.INT:
            return a.i
        if a.type == kind.FLOAT:
            return a.f
        if a.type == kind.STRING:
            return a.s.decode("utf-8", "replace")
        if a.type == kind.INTS:
            return tuple(a.ints)
        if a.type == kind.FLOATS:
            return tuple(a.floats)
        if a.type == kind.STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in a.strings)
        if a.type == kind.TENSOR:
            return self.array(a.t, f"attribute {a.name}")
        raise Unsupported(f"attribute {a.name} is of a type that is not supported")

    def array(self, tensor: onnx.TensorProto, where: str) -> Array:
        import onnx
        from onnx import numpy_helper

        count = 1
        for n in tensor.dims:
            count *= n
            if n < 0 or count > self.bounds.elements:
                raise Unsupported(
                    f"{where} has the shape {tuple(tensor.dims)}; expected sizes >= 0 and at most "
                    f"{self.bounds.elements} elements"
                )
        try:
            if tensor.data_location == onnx.TensorProto.EXTERNAL:
                tensor = self.external(tensor, where)
            array = numpy_helper.to_array(tensor)
        except Unsupported:
            raise
        except Exception as e:  # onnx raises whatever NumPy and protobuf do
            raise Unsupported(f"{where} cannot be read: {type(e).__name__}: {e}") from e
        if array.dtype.name not in _READ and not is_text(array):
            raise Unsupported(f"{where} has the element type {array.dtype.name}")
        return array

    def external(self, tensor: onnx.TensorProto, where: str) -> onnx.TensorProto:
        import onnx

        entries = {e.key: e.value for e in tensor.external_data}
        name = entries.get("location", "")
        if self.folder is None:
            raise Unsupported(f"{where} is in another file, {name!r}; give the model by its path")
        folder = self.folder.resolve()
        path = (folder / name).resolve()
        if not path.is_relative_to(folder) or not path.is_file():
            raise Unsupported(f"{where} is in {name!r}, which is no file in the model's folder")
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", 0))
        size = path.stat().st_size
        if offset < 0 or length < 0 or offset + length > size:
            raise Unsupported(f"{where} reaches beyond the end of {name!r}")
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(length or size - offset)
        out = onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type, name=tensor.name)
        out.raw_data = data
        return out


def emit(
    bindings: list[Binding],
    name: str,
    args: Sequence[Atom | None],
    attrs: Mapping[str, Any],
    names: Sequence[str],
) -> Sequence[Atom]:
    """The results of a call, which is bound to variables of these names unless it can be computed
    now."""
    given = list(args)
    while given and given[-1] is None:
        given.pop()
    call, _ = make_call(name, given, attrs)
    done = folded(call, len(names))
    if done is not None:
        return done
    types = infer(call, len(names))
    variables = tuple(Var(identifier(n or name), t) for n, t in zip(names, types, strict=True))
    bindings.append(Binding(variables, call))
    return [_known_empty(v) for v in variables]


def _known_empty(v: Var) -> Atom:
    """A result without elements is known; a kernel has none such."""
    t = v.type
    if isinstance(t, TensorType) and t.is_static and t.elements == 0:
        return constant(np.empty([int(n) for n in t.known], t.dtype))
    return v


def _operator(node: onnx.NodeProto) -> str:
    own = node.domain in ("", "ai.onnx")
    # What a file says may steer terminals.
    return ascii(node.op_type if own else f"{node.domain}.{node.op_type}")[1:-1]


def _names(node: onnx.NodeProto, outputs: int) -> list[str]:
    return [*node.output, *([""] * outputs)][:outputs]


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


def identifier(name: str) -> str:
    """A name of Python's that looks like `name`."""
    import keyword

    found = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:60] or "v"
    return f"v_{found}" if found[0].isdigit() or keyword.iskeyword(found) else found


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


def _defaults(node: onnx.NodeProto, scope: _Scope) -> dict[str, onnx.AttributeProto]:
    """Attributes of an operator of ONNX's own that a node may leave out."""
    from onnx import defs

    try:
        schema: Any = defs.get_schema(node.op_type, scope.opsets.get(node.domain, 1), node.domain)
    except defs.SchemaError:
        return {}
    return {n: a.default_value for n, a in schema.attributes.items() if a.default_value.name}


def _type_proto(t: TensorType) -> onnx.TypeProto:
    from onnx import helper

    return helper.make_tensor_type_proto(
        helper.np_dtype_to_tensor_dtype(np.dtype(t.dtype)), [int(n) for n in t.known]
    )


def _input_type(
    info: onnx.ValueInfoProto, given: Sequence[int] | None, bounds: Bounds
) -> TensorType:
    where = f"the input {info.name!r}"
    if info.type.WhichOneof("value") != "tensor_type":
        raise Unsupported(f"{where} is no tensor")
    tensor = info.type.tensor_type
    dtype = dtype_name(tensor.elem_type, where)
    declared = [
        d.dim_value if d.WhichOneof("value") == "dim_value" else d.dim_param or "?"
        for d in tensor.shape.dim
    ]
    if given is None:
        if not tensor.HasField("shape"):
            raise Unsupported(f"{where} has no shape; give it: shapes={{{info.name!r}: (...)}}")
        open_ = [str(d) for d in declared if isinstance(d, str)]
        if open_:
            raise Unsupported(
                f"{where} has the shape ({', '.join(map(str, declared))}), whose size "
                f"{', '.join(open_)} is open; fix it: shapes={{{info.name!r}: (...)}}, or on the "
                f"command line --shape {info.name}=..."
            )
        given = [int(d) for d in declared]
    elif tensor.HasField("shape") and (
        len(given) != len(declared)
        or any(isinstance(d, int) and d != n for d, n in zip(declared, given, strict=True))
    ):
        raise Unsupported(f"{where} has the shape {tuple(declared)}; shapes gives {tuple(given)}")
    total = 1
    for n in given:
        total *= int(n)
        if int(n) < 0 or total > bounds.elements:
            raise Unsupported(
                f"{where} has the shape {tuple(given)}; expected sizes >= 0, and at most "
                f"{bounds.elements} elements"
            )
    return TensorType(tuple(int(n) for n in given), dtype)


def dtype_name(number: int, where: str) -> str:
    """The dtype that a number of ONNX's stands for. Raises Unsupported."""
    import onnx

    names = {v: k.lower() for k, v in onnx.TensorProto.DataType.items()}
    found = {"float": "float32", "double": "float64"}.get(names.get(number, ""), names.get(number))
    if found not in dtypes.ARITHMETIC:
        raise Unsupported(f"{where} has the element type {found or number}, which is not supported")
    assert isinstance(found, str)
    return found


def normalised(
    name: str, args: list[Atom | None], attrs: dict[str, Any], opset: int
) -> tuple[str, list[Atom | None], dict[str, Any]]:
    """An operator of any opset as the registry has it."""
    out = dict(attrs)
    for key in ("to", "dtype", "output_dtype"):
        if isinstance(out.get(key), int):
            out[key] = dtype_name(out[key], f"attribute {key}") if out[key] else None
    if name == "ConstantOfShape":
        value = out.pop("value", None)
        if value is not None:
            out["value"], out["dtype"] = value.reshape(-1)[0].item(), value.dtype.name
    elif name == "Range" and args[0] is not None:
        out["dtype"] = tensor_type(args[0]).dtype
    elif name == "Dropout" and not _training(args, opset):
        return "Identity", args[:1], {}
    elif name == "BatchNormalization":
        if opset < 7 and not out.pop("is_test", 0):
            _refuse(name, f"opset {opset} without is_test = 1 trains")
        for key in ("consumed_inputs", "is_test"):
            out.pop(key, None)
    elif name in ("Softmax", "LogSoftmax", "Hardmax") and opset < 13:
        axis = out.setdefault("axis", 1)
        assert args[0] is not None
        shape = tensor_type(args[0]).shape
        if shape is not None and axis % len(shape) != len(shape) - 1:
            _refuse(name, f"attribute axis is {axis} in opset {opset}: it flattens; only "
                           "the last axis is supported there")  # fmt: skip
    elif name == "Upsample":
        scales = out.pop("scales", None)
        if scales is not None:
            out["scales"] = tuple(scales)
        args = [args[0], None, args[1] if len(args) > 1 else None]
        mode = "nearest" if out.get("mode", "nearest") == "nearest" else "linear"
        extra = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return "Resize", args, {**out, **extra, "mode": mode}
    elif name == "Resize" and opset < 11:
        extra = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return "Resize", [args[0], None, args[1]], {**out, **extra}
    return name, args, {k: frozen(v) for k, v in out.items()}


_ALIGNED = ("Add", "And", "Div", "Equal", "Gemm", "Greater", "Less", "Mul", "Or", "Pow", "Sub",
            "Xor")  # fmt: skip
"""Operators with an attribute broadcast in opsets before 7."""


def _aligned(
    scope: _Scope, name: str, args: list[Atom | None], attrs: dict[str, Any], opset: int
) -> list[Atom | None]:
    """The arguments with the second one's axes where old opsets have them: from an axis of the
    first one on, and the slopes of PRelu at the channels."""
    axis = None
    if opset < 7 and name in _ALIGNED:
        attrs.pop("broadcast", 0)
        axis = attrs.pop("axis", None) if name != "Gemm" else None
    elif opset < 9 and name == "PRelu":
        axis = 1
    if axis is None or len(args) < 2 or args[0] is None or args[1] is None:
        return args
    wide, narrow = (tensor_type(a).shape for a in args[:2] if a is not None)
    if wide is None or narrow is None:
        _refuse(name, f"the shapes that it aligns in opset {opset} are not known")
    after = len(wide) - axis % max(len(wide), 1) - len(narrow)
    if after <= 0 or not narrow or narrow == (1,):
        return args
    shape = constant(np.array([*narrow, *([1] * after)], np.int64))
    return [args[0], *emit(scope.bindings, "Reshape", [args[1], shape], {}, ["aligned"]), *args[2:]]


def _masks(x: Atom, number: int, opset: int) -> list[Atom]:
    """What Dropout keeps, which is all."""
    t = tensor_type(x)
    if number and t.shape is None:
        _refuse("Dropout", "the shape of its mask is not known")
    kind = "bool" if opset >= 10 else t.dtype
    return [constant(np.ones([int(n) for n in t.known], kind)) for _ in range(number)]


def _training(args: list[Atom | None], opset: int) -> bool:
    if opset < 12 or len(args) < 3 or args[2] is None:
        return False
    # With a ratio of 0 nothing is left out.
    if isinstance(args[1], Const) and not args[1].value.any():
        return False
    return not isinstance(args[2], Const) or bool(args[2].value.any())


def _refuse(name: str, why: str) -> NoReturn:
    raise Unsupported(f"{name}: {why}")
