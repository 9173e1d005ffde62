"""fuse: groups of operators that become one kernel each.

A group has one anchor (a product, a convolution, several stages, or a reduction), or none. It takes

- its epilogue: where all paths from its result meet again, and every operator up to there computes
  elements of that same shape, those operators;
- its prologue: pointwise producers whose only readers are in the group;
- views, always: a copy of each in every group that reads through it;
- numbers that bytes stand for likewise: kernels store the bytes.

A routine, which runs as it is written, is a group of its own, with views.

Two products with a softmax in between, which is attention, are one group: a block of rows goes
through all of it, and what the first product makes is never in memory as a whole.

Only the last member's results are seen outside, and every member reaches the last one; so no two
groups depend on each other. TVM's rules are in the design notes, together with what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autosched.graph.infer import Inference, inference
from autosched.graph.ir import (
    Atom,
    Binding,
    Body,
    Call,
    Const,
    Function,
    Global,
    Value,
    reads,
    type_of,
    with_bodies,
)
from autosched.graph.ops.quantised import SUMS
from autosched.graph.ops.registry import python_name
from autosched.graph.scopes import outlined
from autosched.graph.types import TensorType
from autosched.passes.base import Pass
from autosched.te.prim_func import free_name
from autosched.tir.module import GraphFunction, IRModule

MAX_OPERATORS = 32
MAX_PARAMS = 12
"""Of one group: past these, registers and stack get short."""
MAX_VIEWS = 32
"""Views one behind the other through which a group reads: the index of each stands in the next."""
PRODUCTS = ("MatMul", SUMS["MatMul"])
LEAST_ROWS, MOST_COLUMNS = 16, 4
"""Rows from which on attention is one group, and columns a row up to which: scores of fewer rows
are small, and packing more columns costs more than it saves."""
_RANK = {"anchor": 0, "reduction": 1, "map": 2, "pointwise": 3}
"""Who chooses its neighbours first."""
NOWHERE = -1


@dataclass(frozen=True)
class Node:
    """A binding with what is known of it; no inference for what is no operator on tensors."""

    binding: Binding
    info: Inference | None

    @property
    def kind(self) -> str:
        """Kind for fusion."""
        return "host" if self.info is None else self.info.kind

    @property
    def shape(self) -> object:
        """Shape of the only result; None for several."""
        t = self.binding.vars[0].type
        return t.shape if len(self.binding.vars) == 1 and isinstance(t, TensorType) else None


class Groups:
    """The groups of one body: `of[n]` is the group of binding n, named by its anchor's number."""

    def __init__(self, body: Body) -> None:
        self.nodes = [Node(b, _info(b)) for b in body.bindings]
        self.maker = {id(v): n for n, node in enumerate(self.nodes) for v in node.binding.vars}
        self.results = {self.maker[id(a)] for a in body.results if id(a) in self.maker}
        self.users: list[list[int]] = [[] for _ in self.nodes]
        for n, node in enumerate(self.nodes):
            for made in self.sources(node.binding.value):
                self.users[made].append(n)
        self.of: dict[int, int] = {}
        self.members: dict[int, list[int]] = {}
        self.tip: dict[int, int] = {}
        self.bytes = {n for n in range(len(self.nodes)) if self._is_of_bytes(n)}
        self.stored = self._stored()
        self._dominators()
        self._form()
        self._chain()

    def _is_of_bytes(self, n: int) -> bool:
        """Whether a binding makes numbers of stored bytes, for kernels alone."""
        value = self.nodes[n].binding.value
        if not isinstance(value, Call) or value.callee != "DequantizeLinear" or n in self.results:
            return False
        t = type_of(value.args[0]) if value.args[0] is not None else None
        if not isinstance(t, TensorType) or t.dtype not in ("int8", "uint8"):
            return False
        return bool(self.users[n]) and all(self.nodes[u].kind != "host" for u in self.users[n])

    def _stored(self) -> set[int]:
        """Views that are stored, like what is computed: each last one of MAX_VIEWS in a row."""
        stored: set[int] = set()
        depth = [0] * len(self.nodes)
        for n, node in enumerate(self.nodes):
            if node.kind == "view" or n in self.bytes:
                depth[n] = 1 + max((depth[made] for made in self.sources(node.binding.value)),
                                   default=0)  # fmt: skip
                if depth[n] == MAX_VIEWS:
                    depth[n] = 0
                    stored.add(n)
        self.bytes -= stored
        return stored

    def through(self, n: int) -> bool:
        """Whether what reads a binding reads through it, as it is a view that is not stored."""
        return n in self.bytes or (self.nodes[n].kind == "view" and n not in self.stored)

    def sources(self, value: Value) -> Iterator[int]:
        """The bindings whose results a value reads, each once."""
        yield from dict.fromkeys(self.maker[id(a)] for a in reads(value) if id(a) in self.maker)

    def _dominators(self) -> None:
        """`meet[n]`: the next binding that every path from n passes; NOWHERE for none."""
        self.meet = [NOWHERE] * len(self.nodes)
        depth = [0] * len(self.nodes)
        for n in range(len(self.nodes) - 1, -1, -1):
            if n in self.results or not self.users[n]:
                continue
            found = self.users[n][0]
            for other in self.users[n][1:]:
                while found != other:
                    if found == NOWHERE or other == NOWHERE:
                        found = other = NOWHERE
                    elif depth[found] >= depth[other]:
                        found = self.meet[found]
                    else:
                        other = self.meet[other]
            self.meet[n] = found
            depth[n] = depth[found] + 1 if found != NOWHERE else 1

    def _form(self) -> None:
        kinds = [node.kind for node in self.nodes]
        for n, kind in enumerate(kinds):
            if kind == "routine":  # alone
                self.of[n], self.members[n], self.tip[n] = n, [n], n
        for rank in range(3):
            for n, kind in enumerate(kinds):
                if _RANK.get(kind) == rank and n not in self.of:
                    self._grow(n)
        self._prologues()
        for n, kind in enumerate(kinds):
            if kind == "pointwise" and n not in self.of and n not in self.bytes:
                self._grow(n)
        self._prologues()

    def _grow(self, anchor: int) -> None:
        """Begin a group and let it take its epilogue."""
        self.of[anchor] = anchor
        self.members[anchor] = [anchor]
        self.tip[anchor] = anchor
        while True:
            tip = self.tip[anchor]
            end = self.meet[tip]
            while end in self.bytes:
                end = self.meet[end]
            shape = self.nodes[tip].shape
            if end == NOWHERE or shape is None:
                return
            path = self._between(tip, end)
            fits = all(
                self.nodes[n].kind == "pointwise"
                and n not in self.of
                and self.nodes[n].shape == shape
                for n in path
            )
            if not fits or not self._room(anchor, path):
                return
            self._join(anchor, path)
            self.tip[anchor] = end

    def _between(self, first: int, last: int) -> list[int]:
        """Bindings on paths from `first`, without it, to `last`."""
        seen = {last}
        stack = [n for n in self.users[first] if n != last]
        while stack:
            n = stack.pop()
            if n not in seen:
                seen.add(n)
                stack += self.users[n]
        return sorted(seen)

    def _room(self, group: int, more: Sequence[int]) -> bool:
        members = [*self.members[group], *more]
        return len(members) <= MAX_OPERATORS and len(self._inputs(members)) <= MAX_PARAMS

    def _join(self, group: int, more: Sequence[int]) -> None:
        for n in more:
            self.of[n] = group
        self.members[group] = sorted({*self.members[group], *more})

    def _inputs(self, members: Sequence[int]) -> list[Atom]:
        """Atoms that a group takes from outside: variables, and constants of several elements."""
        inside = set(members)
        found = {
            id(a): a
            for n in members
            for a in reads(self.nodes[n].binding.value)
            if self.maker.get(id(a), NOWHERE) not in inside and not _literal(a)
        }
        return list(found.values())

    def _prologues(self) -> None:
        """Pointwise producers join the group of their readers, last ones first."""
        for n in range(len(self.nodes) - 1, -1, -1):
            node = self.nodes[n]
            placed = n in self.of or n in self.results or n in self.bytes
            if node.kind != "pointwise" or placed:
                continue
            groups = {self.of.get(u, NOWHERE) for u in self.readers(n)}
            if len(groups) != 1:
                continue
            (group,) = groups
            if group == NOWHERE or self.nodes[group].kind == "routine":
                continue
            if not self._room(group, [n]):
                continue
            reused = self.nodes[group].kind == "anchor"
            assert node.info is not None
            if not (reused and node.info.expensive):
                self._join(group, [n])

    def _chain(self) -> None:
        """Join the groups of attention: a product, a softmax along its columns, and a product that
        alone reads its result, as it is. Products with constants are packed beforehand, apart."""
        for last in list(filter(self._is_product, self.members)):
            softmax = self._sole_maker(last)
            if softmax == NOWHERE or not self._is_of_rows(softmax):
                continue
            first = self._sole_maker(softmax)
            if first == NOWHERE or not self._is_product(first):
                continue
            more = [*self.members[first], *self.members[softmax]]
            if not self._room(last, more):
                continue
            self._join(last, more)
            for gone in (first, softmax):
                del self.members[gone], self.tip[gone]

    def _is_product(self, n: int) -> bool:
        value = self.nodes[n].binding.value
        if not isinstance(value, Call) or value.callee not in PRODUCTS:
            return False
        return not isinstance(value.args[1], Const)

    def _is_of_rows(self, n: int) -> bool:
        """Whether this is a softmax along the last axis, with rows enough for a block."""
        value, shape = self.nodes[n].binding.value, self.nodes[n].shape
        if not isinstance(value, Call) or value.callee != "Softmax" or not isinstance(shape, tuple):
            return False
        if len(shape) < 2 or not all(isinstance(m, int) for m in shape):
            return False
        rows, columns = shape[-2:]
        fits = rows >= LEAST_ROWS and columns <= MOST_COLUMNS * rows
        return fits and value.attr("axis", -1) in (-1, len(shape) - 1)

    def _sole_maker(self, group: int) -> int:
        """The group whose result reaches the first argument of another one's anchor through nothing
        but members of both, which alone read it; else NOWHERE."""
        anchor = self.nodes[group].binding.value
        assert isinstance(anchor, Call)
        first = anchor.args[0]
        made = self.maker.get(id(first), NOWHERE)
        while made != NOWHERE and self.of.get(made) == group:  # a prologue, on the same elements
            value = self.nodes[made].binding.value
            assert isinstance(value, Call)
            inside = [
                m for m in self.sources(value) if self.nodes[m].shape == self.nodes[made].shape
            ]
            made = inside[0] if len(inside) == 1 else NOWHERE
        if made == NOWHERE or made in self.results:
            return NOWHERE
        found = self.of.get(made, NOWHERE)
        if found == NOWHERE or self.tip.get(found) != made:
            return NOWHERE
        alone = all(self.of.get(u) == group for u in self.users[made])
        return found if alone else NOWHERE

    def readers(self, n: int) -> set[int]:
        """Readers of a result, those through views in the place of the views."""
        out: set[int] = set()
        stack = list(self.users[n])
        seen: set[int] = set()
        while stack:
            user = stack.pop()
            if user in seen:
                continue
            seen.add(user)
            if self.through(user) and user not in self.results:
                stack += self.users[user]
            else:
                out.add(user)
        return out

    def with_views(self, members: Sequence[int]) -> list[int]:
        """Members and the views through which they read, in order."""
        found = set(members)
        stack = list(members)
        while stack:
            for made in self.sources(self.nodes[stack.pop()].binding.value):
                if made not in found and self.through(made):
                    found.add(made)
                    stack.append(made)
        return sorted(found)


def _info(b: Binding) -> Inference | None:
    if isinstance(b.value, Call) and isinstance(b.value.callee, str):
        found = inference(b.value, len(b.vars))
        return None if found.kind == "host" else found
    return None


def _literal(a: Atom) -> bool:
    """A number that stands in the kernel's code."""
    return isinstance(a, Const) and a.type.elements <= 1


class _Fuser:
    """Rewrites bodies; equal groups become one function of the module."""

    def __init__(self, taken: set[str]) -> None:
        self.taken = taken
        self.functions: dict[str, Function] = {}
        self.names: dict[object, str] = {}

    def body(self, body: Body) -> Body:
        groups = Groups(body)
        last = {tip: group for group, tip in groups.tip.items()}
        needed = self._views_needed(groups)
        out: list[Binding] = []
        for n, node in enumerate(groups.nodes):
            if n in last:
                members = groups.with_views(groups.members[last[n]])
                out.append(self._call(groups, members, node.binding, last[n]))
            elif node.kind == "view" and n in needed:
                out.append(self._call(groups, groups.with_views([n]), node.binding, n))
            elif node.kind == "host":
                out.append(Binding(node.binding.vars, with_bodies(node.binding.value, self.body)))
        return Body(tuple(out), body.results)

    def _views_needed(self, groups: Groups) -> set[int]:
        """Views whose results are needed as they are: by the caller, on the host, or as they are
        stored."""
        return {
            n
            for n, node in enumerate(groups.nodes)
            if node.kind == "view"
            and (
                n in groups.results
                or n in groups.stored
                or any(groups.nodes[u].kind == "host" for u in groups.users[n])
            )
        }

    def _call(self, groups: Groups, members: Sequence[int], last: Binding, anchor: int) -> Binding:
        bindings = [groups.nodes[n].binding for n in members]
        inputs = groups._inputs(members)
        name = _name(bindings, groups, members)
        made = outlined(name, bindings, inputs, last.vars, ("primitive", True))
        return Binding(last.vars, Call(Global(self._named(made)), tuple(inputs)))

    def _named(self, function: Function) -> str:
        key = structure(function)
        if key not in self.names:
            name = self.names[key] = free_name(function.name, self.taken)
            self.functions[name] = function.renamed(name)
        return self.names[key]


def _name(bindings: Sequence[Binding], groups: Groups, members: Sequence[int]) -> str:
    """`fused_conv_add_relu`; views are named only where there is nothing else."""
    computing = [
        b for n, b in zip(members, bindings, strict=True) if groups.nodes[n].kind != "view"
    ] or list(bindings)
    words = [
        python_name(b.value.callee)
        for b in computing
        if isinstance(b.value, Call) and isinstance(b.value.callee, str)
    ]
    if len(words) > 5:
        words = [*words[:4], f"and_{len(words) - 4}"]
    return words[0] if len(words) == 1 else "_".join(["fused", *(w.rstrip("_") for w in words)])


def structure(function: Function) -> object:
    """What two primitive functions have in common if they are the same but for names."""
    number: dict[int, int] = {id(p): n for n, p in enumerate(function.params)}

    def atom(a: Atom | None) -> object:
        if isinstance(a, Const):
            return (a.type, a.digest)
        return None if a is None else number[id(a)]

    rows = []
    for b in function.body.bindings:
        assert isinstance(b.value, Call)
        rows.append((b.value.callee, tuple(map(atom, b.value.args)), b.value.attrs))
        for v in b.vars:
            number[id(v)] = len(number)
    types = tuple(p.type for p in function.params)
    results = tuple((atom(a), a.type) for a in function.body.results if not isinstance(a, Global))
    return (types, tuple(rows), results, function.attrs)


def _fuse(module: IRModule) -> IRModule:
    fuser = _Fuser({*module.functions, *module.graphs})
    graphs: dict[str, GraphFunction] = {}
    for name, f in module.graphs.items():
        if not isinstance(f, Function) or f.attr("types"):  # general functions have no kernels
            graphs[name] = f
            continue
        done = f.is_primitive or f.is_external
        fused = f if done else Function(name, f.params, fuser.body(f.body), f.attrs)
        graphs[name] = fused
    return IRModule(module.functions, {**graphs, **fuser.functions})


fuse = Pass("fuse", _fuse)
"""The pass."""
