"""Which parallel loops of routines have iterations that are apart, so that threads may share them.

An iteration must touch what no other one stores. That is proved buffer by buffer, of each that the
body stores to and does not allocate: one dimension of all its accesses is `a * i + r`, where i is
the loop's variable and the values of r, of all accesses together, lie within a of each other. Where
a is not 1, the whole index must be known not to wrap round, since a * i of 64 bits could be equal
in two iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autosched.tir.expr import Call, Const, Expr, Var, walk
from autosched.tir.nodes import Buffer, Element, ExternCall, Pointer
from autosched.tir.routine import (
    Alloc,
    Let,
    Loop,
    Routine,
    Statement,
    Store,
    statements_of,
    values_of,
)
from autosched.tir.size import MAX_SIZE
from autosched.tir.verify_routine import Span, loop_span, span_of


def loops_apart(func: Routine) -> set[int]:
    """The parallel loops (by id) whose iterations are proved to be apart."""
    spans: dict[int, Span] = {id(v): (1, MAX_SIZE) for v in func.sizes}
    found: set[int] = set()
    for s in statements_of(func.body):  # what stands around comes first
        if isinstance(s, Let):
            spans[id(s.var)] = span_of(s.value, spans)
        elif isinstance(s, Loop):
            spans[id(s.var)] = loop_span(s, spans)
    for s in statements_of(func.body):
        if isinstance(s, Loop) and s.kind == "parallel" and s.step == 1 and _are_apart(s, spans):
            found.add(id(s))
    return found


def expressions(body: tuple[Statement, ...]) -> Iterator[Expr]:
    """All expressions in statements, with those in them."""
    return (e for s in statements_of(body) for value in values_of(s) for e in walk(value))


def _are_apart(loop: Loop, spans: Mapping[int, Span]) -> bool:
    every = list(expressions(loop.body))
    if any(isinstance(e, (ExternCall, Pointer)) for e in every):
        return False
    inside = {id(s.buffer) for s in statements_of(loop.body) if isinstance(s, Alloc)}
    stored = {
        id(s.target.buffer): s.target.buffer
        for s in statements_of(loop.body)
        if isinstance(s, Store) and id(s.target.buffer) not in inside
    }
    return all(
        _is_apart([e for e in every if isinstance(e, Element) and e.buffer is b], b, loop, spans)
        for b in stored.values()
    )


def _is_apart(
    accesses: list[Element], buffer: Buffer, loop: Loop, spans: Mapping[int, Span]
) -> bool:
    """Whether accesses in different iterations differ in one of the dimensions."""
    for d in range(len(buffer.shape)):
        steps: set[int] = set()
        rests: list[Span] = []
        for e in accesses:
            step, rest = _split(e.indices[d], loop.var, spans)
            if step != 1 and span_of(e.indices[d], spans) is None:
                rest = None  # it may wrap round
            steps.add(step)
            rests.append(rest)
        known = [r for r in rests if r is not None]
        if len(steps) == 1 and len(known) == len(rests):
            (step,) = steps
            if max(r[1] for r in known) - min(r[0] for r in known) < step:
                return True
    return False


def _split(e: Expr, var: Var, spans: Mapping[int, Span]) -> tuple[int, Span]:
    """(a, the span of r) where `e` is a * var + r."""
    if e is var:
        return 1, (0, 0)
    if isinstance(e, Call) and e.op in ("add", "sub"):
        (a, r), (b, s) = (_split(x, var, spans) for x in e.args)
        if r is None or s is None:
            return a, None
        return (a + b, (r[0] + s[0], r[1] + s[1])) if e.op == "add" else (
            a - b, (r[0] - s[1], r[1] - s[0])
        )  # fmt: skip
    if isinstance(e, Call) and e.op == "mul":
        for x, y in (e.args, e.args[::-1]):
            if isinstance(y, Const) and int(y.value) > 0:
                a, r = _split(x, var, spans)
                n = int(y.value)
                return a * n, None if r is None else (r[0] * n, r[1] * n)
    return 0, span_of(e, spans)
