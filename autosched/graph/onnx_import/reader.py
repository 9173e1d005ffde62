"""Graphs and nodes of an ONNX model, as bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from autosched.errors import AutoschedError
from autosched.graph import ops
from autosched.graph.errors import Unsupported
from autosched.graph.fold import constant
from autosched.graph.ir import Atom, Body, Const, Function, Var
from autosched.graph.onnx_import import functions, learned, sequences, subgraphs
from autosched.graph.onnx_import.files import MALFORMED, Bounds
from autosched.graph.onnx_import.scope import (
    Listed,
    Origins,
    Scope,
    Value,
    identifier,
    inputs_of,
    operator_name,
    ordered,
    tensors,
    title,
)
from autosched.graph.onnx_import.tensors import Tensors, input_types
from autosched.graph.onnx_import.upgrade import FOUR_BITS, upgraded

if TYPE_CHECKING:
    import onnx


class Reader:
    """Reads one model; see `autosched.graph.onnx_import.from_onnx`."""

    def __init__(self, model: onnx.ModelProto, folder: Path | None, bounds: Bounds) -> None:
        self.model, self.bounds, self.tensors = model, bounds, Tensors(folder, bounds)
        self.nodes = 0
        self.weights: dict[str, Value] | None = None
        """The constants of the model's graph, which all modules read from it share."""
        self.opsets = functions.opsets(model.opset_import) or {"": 1}
        self.functions = {(f.domain, f.name): f for f in model.functions}
        self.narrow: WeakKeyDictionary[Const, int] = WeakKeyDictionary()
        """The element types of constants of four bits, which are stored as bytes."""

    def main(self, shapes: Mapping[str, Sequence[int]], origins: Origins | None = None) -> Function:
        """The graph of the model; `shapes` as those of `from_onnx`. What is computed while it is
        read is noted in `origins`."""
        graph = self.model.graph
        self.nodes = 0
        functions.check_opset(self.opsets)
        scope = Scope(self.bounds, opsets=self.opsets, origins=origins)
        if self.weights is None:
            self.initializers(graph, scope)
            self.weights = dict(scope.values)
        scope.values.update(self.weights)
        params: list[Var] = []
        infos = inputs_of(graph)
        names_in = [i.name for i in infos]
        for info, t in zip(infos, input_types(infos, shapes, self.bounds), strict=True):
            v = Var(identifier(info.name), t)
            # What has no elements is known.
            empty = t.elements == 0
            atom = constant(np.empty([int(n) for n in t.known], t.dtype)) if empty else v
            scope.define(info.name, atom, "an input")
            params.append(v)
        results = self.results_of(graph, scope)
        names = tuple(o.name for o in graph.output)
        body = Body(tuple(scope.bindings), results)
        inputs = ("inputs", tuple(names_in))
        return Function("main", tuple(params), body, (inputs, ("outputs", names)))

    def results_of(self, graph: onnx.GraphProto, scope: Scope) -> tuple[Atom, ...]:
        """The results of the model. Raises Unsupported for one that is no tensor."""
        results = self.body(graph, scope, 0)
        for info, value in zip(graph.output, results, strict=True):
            if isinstance(value, Listed):
                raise Unsupported(f"the output {info.name!r} is a sequence; expected a tensor")
        return tuple(a for a in tensors(results) if a is not None)

    def initializers(self, graph: onnx.GraphProto, scope: Scope) -> None:
        """Define the constants of a graph."""
        for tensor in graph.initializer:
            where = f"the initializer {tensor.name!r}"
            scope.define(tensor.name, self.known(tensor, where), where)
        if graph.sparse_initializer:
            raise Unsupported("sparse initializers are not supported")

    def known(self, tensor: onnx.TensorProto, where: str) -> Const:
        """A tensor of the file as a constant."""
        made = constant(self.tensors.array(tensor, where))
        if tensor.data_type in FOUR_BITS:
            self.narrow[made] = tensor.data_type
        return made

    def inner(self, graph: onnx.GraphProto, scope: Scope) -> Scope:
        """The scope of a graph inside one."""
        inner = Scope(self.bounds, outer=scope, opsets=scope.opsets, origins=scope.origins)
        self.initializers(graph, inner)
        return inner

    def body(self, graph: onnx.GraphProto, scope: Scope, depth: int) -> tuple[Value, ...]:
        """The results of a graph, whose nodes are bound in `scope`."""
        if depth > self.bounds.depth:
            raise Unsupported(f"graphs nest more than {self.bounds.depth} deep")
        for n, node in enumerate(ordered(graph.node, lambda name: scope.find(name) is not None)):
            self.node(node, n, scope, depth)
        out = []
        for info in graph.output:
            atom = scope.find(info.name)
            if atom is None:
                raise Unsupported(f"the output {info.name!r} is computed by no node")
            out.append(atom)
        return tuple(out)

    def count(self, nodes: int) -> None:
        """Raises Unsupported where these nodes are more than are read."""
        self.nodes += nodes
        if self.nodes > self.bounds.nodes:
            raise Unsupported(f"the model has more than {self.bounds.nodes} nodes")

    def node(self, node: onnx.NodeProto, n: int, scope: Scope, depth: int) -> None:
        """Bind the results of a node. Raises Unsupported naming it."""
        self.count(1)
        where = title(node, n)
        args: list[Value | None] = []
        for name in node.input:
            atom = scope.find(name) if name else None
            if name and atom is None and name not in scope.absent:
                raise Unsupported(f"{where} reads {name!r}, which no node before it computes")
            args.append(atom)
        outputs = list(node.output)
        while outputs and not outputs[-1]:
            outputs.pop()
        try:
            results = self.results(node, args, [*outputs] or [""], scope, depth)
        except Unsupported as e:
            said = f"{where}: {e}" if not str(e).startswith("node ") else str(e)
            raise type(e)(said) from e
        except AutoschedError as e:
            raise Unsupported(f"{where}: {e}") from e
        except MALFORMED as e:
            raise Unsupported(f"{where} is malformed: {type(e).__name__}: {e}") from e
        for name, atom in zip(outputs, results, strict=False):
            if name and atom is not None:
                scope.define(name, atom, where)

    def results(
        self,
        node: onnx.NodeProto,
        args: list[Value | None],
        names: Sequence[str],
        scope: Scope,
        depth: int,
    ) -> Sequence[Value | None]:
        """The results of a node under their names; None for those that nothing computes."""
        name = operator_name(node)
        if name == "Constant":
            return [self.constant(node)]
        if name in subgraphs.READ:
            return subgraphs.READ[name](self, node, args, names, scope, depth)
        if name in sequences.RULES:
            return sequences.read(self, node, args, scope)
        if name == "Identity" and isinstance(args[0], Listed):
            return args
        if any(isinstance(a, Listed) for a in args) and name not in ops.OPERATORS:
            return functions.inlined(self, node, args, names, scope, depth)
        attrs = {a.name: self.tensors.attribute(a) for a in node.attribute}
        if name == "QuantizeLinear" and isinstance(zero := args[-1], Const) and zero in self.narrow:
            attrs["output_dtype"] = self.narrow[zero]
        if name in learned.NAMES and (node.domain, node.op_type) not in self.functions:
            return learned.read(scope, name, tensors(args), attrs)
        call = upgraded(scope, name, tensors(args), attrs, len(names))
        if call.name == "Identity" and call.args[0] is not None:
            return [call.args[0], *call.more]
        made: Sequence[Value | None]
        if call.name not in ops.OPERATORS:
            made = functions.inlined(self, node, call.args, names, scope, depth)
        else:
            made = scope.emit(call.name, call.args, call.attrs, names)
        if call.after is None:
            return made
        (first,) = tensors(made[:1])
        return [None if first is None else call.after(first)]

    def constant(self, node: onnx.NodeProto) -> Const:
        """What a node Constant has."""
        if len(node.attribute) != 1:
            raise Unsupported(f"expected one attribute, found {len(node.attribute)}")
        (a,) = node.attribute
        if a.name == "value":
            return self.known(a.t, "attribute value")
        kinds = {"value_float": "float32", "value_floats": "float32", "value_int": "int64",
                 "value_ints": "int64"}  # fmt: skip
        if a.name not in kinds:
            raise Unsupported(f"attribute {a.name} is not supported")
        return constant(np.asarray(self.tensors.attribute(a), kinds[a.name]))
