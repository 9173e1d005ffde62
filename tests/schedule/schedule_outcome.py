"""What schedules compute, and whether two programs are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autosched.tir import interp
from autosched.tir.affine import Affine
from autosched.tir.expr import Var
from autosched.tir.nodes import (
    Access,
    Block,
    Buffer,
    For,
    Node,
    PrimFunc,
    Site,
    inputs_of,
    kind_vars,
    sites,
)


def outputs(func: PrimFunc, like: PrimFunc, seed: int) -> list[np.ndarray]:
    """What `func` computes on random inputs; `like` says which parameters are inputs."""
    rng = np.random.default_rng(seed)
    inputs = {b.name for b in inputs_of(like)}
    arrays = []
    for b in func.params:
        shape = tuple(int(x) for x in b.shape)
        full = rng.integers(-4, 5, shape) if b.name in inputs else np.full(shape, 10**15)
        arrays.append(full.astype(b.dtype))
    interp.run(func, arrays)
    return [x for x, b in zip(arrays, func.params, strict=True) if b.name not in inputs]


def concurrent(func: PrimFunc) -> PrimFunc:
    """The program with the iterations of its parallel and vectorised loops interleaved: each such
    loop is pushed down to the blocks, and buffers that live inside it get one copy an iteration.

    Equal results mean that the iterations do not depend on one another.
    """
    while True:
        loop = next((x for x in _loops(func.body) if x.kind in ("parallel", "vectorized")), None)
        if loop is None:
            return func
        func = _interleave(func, loop)


def _loops(nodes: Sequence[Node]) -> list[For]:
    out: list[For] = []
    for node in nodes:
        if isinstance(node, For):
            out += [node, *_loops(node.body)]
    return out


def _interleave(func: PrimFunc, loop: For) -> PrimFunc:
    below = list(sites(loop))
    inside = {id(s.block) for s in below}
    others = {
        id(a.buffer)
        for s in sites(func)
        if id(s.block) not in inside
        for a in (*s.block.reads, *s.block.writes)
    } | {id(b) for b in func.params}
    private: dict[int, Buffer] = {}
    for s in below:
        lanes = loop.var in kind_vars(s.block, "reduce")  # these combine in one element
        for a in s.block.writes:
            if id(a.buffer) not in others and not lanes:
                new = replace(a.buffer, shape=(loop.extent, *a.buffer.shape), align=())
                private.setdefault(id(a.buffer), new)

    def access(a: Access) -> Access:
        if id(a.buffer) not in private:
            return a
        return Access(private[id(a.buffer)], (Affine.of(loop.var), *a.indices))

    def push(node: Node) -> Node:
        if isinstance(node, For):
            return replace(node, body=tuple(push(n) for n in node.body))
        reads, writes = tuple(map(access, node.reads)), tuple(map(access, node.writes))
        return replace(loop, kind="serial", body=(replace(node, reads=reads, writes=writes),))

    def find(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        out: list[Node] = []
        for node in nodes:
            if node is loop:
                out += [push(n) for n in loop.body]
            elif isinstance(node, For):
                out.append(replace(node, body=find(node.body)))
            else:
                out.append(node)
        return tuple(out)

    return replace(func, body=find(func.body))


# Populations


def assert_same_program(a: PrimFunc, b: PrimFunc) -> None:
    """Equal trees; bindings, accesses and the conjunction of predicates equal at sampled points."""
    _same_nodes(a.body, b.body)
    rng = np.random.default_rng(0)
    for x, y in zip(sites(a), sites(b), strict=True):
        _same_site(x, y, rng)


def _same_nodes(a: Sequence[Node], b: Sequence[Node]) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert type(x) is type(y)
        if isinstance(x, For):
            assert isinstance(y, For)
            assert (x.var.name, x.kind, x.thread, x.annotations) == (
                y.var.name,
                y.kind,
                y.thread,
                y.annotations,
            )
            assert x.extent == y.extent, (x.var.name, x.extent, y.extent)
            _same_nodes(x.body, y.body)
        else:
            assert isinstance(y, Block)
            assert x.name == y.name


def _same_site(x: Site, y: Site, rng: np.random.Generator) -> None:
    a, b = x.block, y.block
    assert [(i.extent, i.kind) for i in a.iters] == [(i.extent, i.kind) for i in b.iters]
    assert (a.init, a.annotations, a.is_reduction) == (b.init, b.annotations, b.is_reduction)
    for p, q in zip((*a.reads, *a.writes), (*b.reads, *b.writes), strict=True):
        assert (p.buffer.name, p.buffer.shape) == (q.buffer.name, q.buffer.shape)
        assert p.buffer.align == q.buffer.align
    points = {loop.var: rng.integers(0, loop.extent, 64) for loop in x.loops}
    others = {q.var: points[p.var] for p, q in zip(x.loops, y.loops, strict=True)}
    visited = _holds(a, points)
    assert np.all(visited == _holds(b, others)), f"predicates of {a.name}"
    for f, g in zip(a.bindings, b.bindings, strict=True):
        differs = f.evaluate(points) != g.evaluate(others)
        assert not np.any(visited & differs), f"bindings of {a.name}"
    axes = {i.var: f.evaluate(points) for i, f in zip(a.iters, a.bindings, strict=True)}
    theirs = {j.var: axes[i.var] for i, j in zip(a.iters, b.iters, strict=True)}
    for p, q in zip((*a.reads, *a.writes), (*b.reads, *b.writes), strict=True):
        # What a condition keeps from being read may be written in different ways.
        read = visited & _inside(p, axes) & _inside(q, theirs)
        assert np.array_equal(visited & _inside(p, axes), read), f"{p.buffer.name} in {a.name}"
        assert np.array_equal(visited & _inside(q, theirs), read), f"{p.buffer.name} in {a.name}"
        for f, g in zip(p.indices, q.indices, strict=True):
            if isinstance(f, Affine) and isinstance(g, Affine):
                differs = f.evaluate(axes) != g.evaluate(theirs)
                assert not np.any(read & differs), f"{p.buffer.name} in {a.name}"


def _inside(access: Access, points: dict[Var, Any]) -> Any:
    """At which points the access is within its buffer."""
    ok = np.ones(64, bool)
    for index, extent in zip(access.indices, access.buffer.shape, strict=True):
        if isinstance(index, Affine):
            value = index.evaluate(points)
            ok &= (value >= 0) & (value < extent)
    return ok


def _holds(block: Block, points: dict[Var, Any]) -> Any:
    ok = np.ones(64, bool)
    for p in block.predicates:
        ok &= p.form.evaluate(points) < p.bound
    return ok
