"""Names of a graph and the bindings made for it; the order of its nodes."""

from __future__ import annotations

import heapq
import keyword
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from autosched.graph import ops
from autosched.graph.builder import make_call
from autosched.graph.errors import Unsupported
from autosched.graph.fold import constant, folded, is_weight
from autosched.graph.infer import infer
from autosched.graph.ir import Atom, Binding, Call, Const, Var
from autosched.graph.onnx_import.files import BOUNDS, Bounds
from autosched.graph.onnx_import.row_ranges import of_row_range
from autosched.graph.onnx_import.tensors import check_shape
from autosched.graph.types import TensorType

if TYPE_CHECKING:
    import onnx


class Unfit(Unsupported):
    """A call of an operator that there is, on arguments that it does not take."""


@dataclass(frozen=True, eq=False)
class Listed:
    """A sequence by its elements; or an optional value that is `absent`."""

    items: tuple[Atom, ...]
    absent: bool = False


Value = Union[Atom, Listed]
"""What a name of a file stands for."""


def tensors(values: Sequence[Value | None]) -> list[Atom | None]:
    """Arguments or results that must be tensors. Raises Unsupported for a sequence."""
    out: list[Atom | None] = []
    for n, v in enumerate(values):
        if isinstance(v, Listed):
            kind = "an absent optional value" if v.absent else f"a sequence of {len(v.items)}"
            raise Unsupported(f"value {n} is {kind}; expected a tensor")
        out.append(v)
    return out


@dataclass
class Origins:
    """Where constants come from and go to that are computed during the import."""

    made: dict[int, tuple[Call, int, Const]] = field(default_factory=dict)
    """By id: the call, the number of its result, and the constant itself, so that its id stays in
    use."""
    given: dict[int, tuple[Call, tuple[Atom | None, ...]]] = field(default_factory=dict)
    """Of calls by id, the arguments before constants became attributes."""


@dataclass
class Scope:
    """Names of one graph: what they stand for, and where those around it are looked up. `absent`
    are inputs of a function that its call leaves out; `origins` notes what constants come from."""

    bounds: Bounds = BOUNDS
    values: dict[str, Value] = field(default_factory=dict)
    outer: Scope | None = None
    bindings: list[Binding] = field(default_factory=list)
    opsets: Mapping[str, int] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    origins: Origins | None = None

    def find(self, name: str) -> Value | None:
        """What a name stands for, here or around."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None

    def define(self, name: str, atom: Value, what: str) -> None:
        """Give a value its name. Raises Unsupported where there is one."""
        if not name or name in self.values:
            raise Unsupported(f"{what}: the name {name!r} is defined twice" if name else
                              f"{what} has no name")  # fmt: skip
        self.values[name] = atom

    def emit(
        self,
        name: str,
        args: Sequence[Atom | None],
        attrs: Mapping[str, Any],
        names: Sequence[str] = ("",),
    ) -> Sequence[Atom]:
        """The results of a call, which is bound to variables of these names unless it can be
        computed now."""
        given = list(args)
        while given and given[-1] is None:
            given.pop()
        call, _ = make_call(name, given, attrs)
        rows = of_row_range(call, self.maker)
        if rows is not None:
            call = rows
        elif self.origins is not None and ops.find(name).static:
            self.origins.given[id(call)] = call, tuple(given)
        try:
            done = None if is_weight(call) else folded(call, len(names))
            if done is None:
                return self.bind(call, names)
        except Unsupported as e:
            raise Unfit(str(e)) from e
        return done if self.origins is None else self._noted(call, done, self.origins)

    def maker(self, a: Atom) -> Call | None:
        """The call whose one result an atom is, here or around."""
        scope: Scope | None = self
        while scope is not None:
            for b in reversed(scope.bindings):
                if b.vars[0] is a:
                    one = len(b.vars) == 1 and isinstance(b.value, Call)
                    return b.value if one else None  # type: ignore[return-value]
            scope = scope.outer
        return None

    def _noted(self, call: Call, done: Sequence[Const], origins: Origins) -> Sequence[Const]:
        # Constants of equal calls are one object, whatever their arguments were computed from.
        own = [replace(c) for c in done]
        origins.made.update((id(c), (call, n, c)) for n, c in enumerate(own))
        return own

    def bind(self, call: Call, names: Sequence[str]) -> Sequence[Atom]:
        """The results of a call of an operator, bound to variables of these names."""
        types = infer(call, len(names))
        for t in types:
            if isinstance(t, TensorType) and t.shape is not None:
                check_shape(t.shape, "the result", self.bounds)
        variables = tuple(
            Var(identifier(n or str(call.callee)), t) for n, t in zip(names, types, strict=True)
        )
        self.bindings.append(Binding(variables, call))
        return [_known_empty(v) for v in variables]


def _known_empty(v: Var) -> Atom:
    """A result without elements is known; a kernel has none such."""
    t = v.type
    if isinstance(t, TensorType) and t.is_static and t.elements == 0:
        return constant(np.empty([int(n) for n in t.known], t.dtype))
    return v


def identifier(name: str) -> str:
    """A name of Python's that looks like `name`."""
    found = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")[:60] or "v"
    return f"v_{found}" if found[0].isdigit() or keyword.iskeyword(found) else found


def operator_name(node: onnx.NodeProto) -> str:
    """The operator of a node, with its domain where that is not ONNX's own."""
    own = node.domain in ("", "ai.onnx")
    # What a file says may steer terminals.
    return ascii(node.op_type if own else f"{node.domain}.{node.op_type}")[1:-1]


def ordered(
    nodes: Sequence[onnx.NodeProto], known: Callable[[str], bool]
) -> Sequence[onnx.NodeProto]:
    """The nodes, each after those whose results it reads: as they stand where they do so, else
    moved as little as that needs. Raises Unsupported, naming two nodes, for a cycle."""
    reads = [set(_reads(node)) for node in nodes]
    seen: set[str] = set()
    makers: dict[str, int] = {}
    sorted_ = True
    for n, node in enumerate(nodes):
        makers.update((name, n) for name in node.output if name)
        sorted_ = sorted_ and all(name in seen or known(name) for name in reads[n])
        seen.update(node.output)
    if sorted_:
        return nodes
    waits = [{makers[r] for r in rs if r in makers and not known(r)} for rs in reads]
    followers: dict[int, list[int]] = {}
    for n, before in enumerate(waits):
        for m in before:
            followers.setdefault(m, []).append(n)
    ready = [n for n, before in enumerate(waits) if not before]
    out: list[int] = []
    while ready:
        n = heapq.heappop(ready)
        out.append(n)
        for m in followers.get(n, ()):
            waits[m].discard(n)
            if not waits[m]:
                heapq.heappush(ready, m)
    if len(out) < len(nodes):
        _refuse_cycle(nodes, waits)
    return [nodes[n] for n in out]


def _refuse_cycle(nodes: Sequence[onnx.NodeProto], waits: Sequence[set[int]]) -> None:
    # From a node that waits backwards, a node comes twice: it is on a cycle.
    at, seen = next(n for n, before in enumerate(waits) if before), set()
    while at not in seen:
        seen.add(at)
        at = min(waits[at])
    a, b = nodes[at], nodes[min(waits[at])]
    raise Unsupported(
        f"{title(a, at)} is on a cycle: it reads what {title(b, min(waits[at]))} computes, which "
        f"reads, in the end, its result"
    )


def title(node: onnx.NodeProto, n: int) -> str:
    """How errors name node n of a graph."""
    return f"node {node.name or n!r} ({operator_name(node)})"


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, its subgraphs included: those that they do not define."""
    yield from (name for name in node.input if name)
    yield from captured(node)


def captured(node: onnx.NodeProto) -> Iterator[str]:
    """Names that the subgraphs of a node read, and do not define."""
    stack = [(a.g, frozenset[str]()) for a in node.attribute if a.HasField("g")]
    while stack:
        graph, outer = stack.pop()
        own = outer | {i.name for i in graph.input} | {t.name for t in graph.initializer}
        own |= {name for n in graph.node for name in n.output}
        for n in graph.node:
            yield from (name for name in n.input if name and name not in own)
            stack += [(a.g, own) for a in n.attribute if a.HasField("g")]
        yield from (o.name for o in graph.output if o.name not in own)


def inputs_of(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs of a model that are no constants; those of text, which no kernel takes, only where
    something reads them."""
    import onnx

    read = {o.name for o in graph.output}.union(*([*n.input, *captured(n)] for n in graph.node))
    constants = {t.name for t in graph.initializer}
    text = onnx.TensorProto.STRING
    return [
        i
        for i in graph.input
        if i.name not in constants and (i.name in read or i.type.tensor_type.elem_type != text)
    ]
