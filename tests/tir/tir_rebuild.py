"""Copies of programs that share no object and no name with the original."""

from __future__ import annotations

import random
from dataclasses import replace

from autosched.tir.affine import Affine, Digit
from autosched.tir.expr import Expr, Var, rewrite
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    Index,
    Iter,
    Node,
    Predicate,
    PrimFunc,
    Reducer,
    sites,
)


class Rebuild:
    """Rebuilds a function with new variables, buffers, blocks and names, drawn from `seed`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0
        self.vars: dict[Var, Var] = {}
        self.buffers: dict[Buffer, Buffer] = {}

    def name(self) -> str:
        self.count += 1
        return "".join(self.random.choices("abcdefgh", k=4)) + str(self.count)

    def var(self, v: Var) -> Var:
        return self.vars.setdefault(v, Var(self.name(), v.dtype))

    def buffer(self, b: Buffer) -> Buffer:
        if b not in self.buffers:
            self.buffers[b] = replace(b, name=self.name())
        return self.buffers[b]

    def affine(self, form: Affine) -> Affine:
        terms = []
        for atom, c in form.terms:
            if isinstance(atom, Digit):
                terms.append((Digit(self.affine(atom.base), atom.div, atom.mod), c))
            else:
                terms.append((self.var(atom), c))
        self.random.shuffle(terms)
        return Affine(form.const, tuple(terms))

    def expr(self, e: Expr) -> Expr:
        return rewrite(e, lambda x: self.var(x) if isinstance(x, Var) else None)

    def index(self, i: Index) -> Index:
        return self.affine(i) if isinstance(i, Affine) else self.expr(i)

    def access(self, a: Access) -> Access:
        return Access(self.buffer(a.buffer), tuple(self.index(i) for i in a.indices))

    def node(self, node: Node) -> Node:
        if isinstance(node, Block):
            return self.block(node)
        return replace(
            node,
            var=self.var(node.var),
            body=tuple(self.node(n) for n in node.body),
            allocs=tuple(self.buffer(b) for b in node.allocs),
        )

    def block(self, block: Block) -> Block:
        r = block.reducer
        return replace(
            block,
            name=self.name(),
            iters=tuple(Iter(self.var(i.var), i.extent, i.kind) for i in block.iters),
            bindings=tuple(self.affine(b) for b in block.bindings),
            predicates=tuple(Predicate(self.affine(p.form), p.bound) for p in block.predicates),
            reads=tuple(self.access(a) for a in block.reads),
            writes=tuple(self.access(a) for a in block.writes),
            body=tuple(self.expr(e) for e in block.body),
            reducer=None
            if r is None
            else Reducer(
                self.name(),
                tuple(self.var(v) for v in r.lhs),
                tuple(self.var(v) for v in r.rhs),
                tuple(self.expr(e) for e in r.combine),
                r.identity,
            ),
        )

    def function(self, func: PrimFunc) -> PrimFunc:
        """The copy; attributes that name parameters follow their names."""
        params = tuple(self.buffer(b) for b in func.params)
        attrs = dict(func.attrs)
        if "layout_free" in attrs:
            renamed = {b.name: self.buffer(b).name for b in func.params}
            attrs["layout_free"] = tuple(renamed[n] for n in attrs["layout_free"])
        body = tuple(self.node(n) for n in func.body)
        return PrimFunc(self.name(), params, body, tuple(attrs.items()))


def shuffled(func: PrimFunc, seed: int) -> PrimFunc:
    """`func` with its top-level nests in another order that respects what they read and write."""
    chance = random.Random(seed)
    touched = [
        (
            {a.buffer for s in sites(n) for a in s.block.reads},
            {a.buffer for s in sites(n) for a in s.block.writes},
        )
        for n in func.body
    ]

    def ordered(m: int, n: int) -> bool:
        return bool(
            touched[m][1] & (touched[n][0] | touched[n][1]) or touched[m][0] & touched[n][1]
        )

    left = list(range(len(func.body)))
    order: list[Node] = []
    while left:
        ready = [n for n in left if not any(m < n and ordered(m, n) for m in left)]
        pick = chance.choice(ready)
        left.remove(pick)
        order.append(func.body[pick])
    return replace(func, body=tuple(order))
