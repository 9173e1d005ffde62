"""The rules of routines, and which of their accesses are in bounds whatever they are called with.

Types, ranks and names are checked here as they are in every program. Bounds are proved where the
ranges of loops tell them; where they do not, `unproved` says so, and the interpreter and the code
generator test the index before each such access.
"""

from __future__ import annotations

from collections.abc import Mapping

from autosched.errors import VerifyError
from autosched.tir import dtypes
from autosched.tir.expr import Call, Const, Expr, Slot, Var, walk
from autosched.tir.nodes import Element, ExternCall, Pointer
from autosched.tir.routine import (
    Alloc,
    Assert,
    Evaluate,
    If,
    Let,
    Loop,
    Routine,
    Statement,
    Store,
    While,
    bodies,
    values_of,
)
from autosched.tir.size import MAX_SIZE, Size

Span = tuple[int, int] | None
"""The least and the largest value of an integer; None where they are not known."""
_LARGEST = 1 << 62
_ANY = -(1 << 63), (1 << 63) - 1
_WIDE = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32")


def verify_routine(func: Routine) -> Routine:
    """`func`. Raises VerifyError for types that do not fit, and names out of their scope."""
    seen = {id(b) for b in func.params}
    known: set[int] = {id(v) for v in func.sizes}
    for b in func.params:
        _check_buffer(func, b.shape, b.name, known)
    _check(func, func.body, seen, known)
    return func


def _fail(func: Routine, problem: str) -> VerifyError:
    return VerifyError(f"routine {func.name}: {problem}")


def _check_buffer(func: Routine, shape: tuple[object, ...], name: str, known: set[int]) -> None:
    for n in shape:
        if isinstance(n, Size) and any(id(v) not in known for v in n.variables()):
            raise _fail(func, f"{name} has a size that no parameter has")


def _check(func: Routine, body: tuple[Statement, ...], seen: set[int], known: set[int]) -> None:
    seen, known = set(seen), set(known)
    for s in body:
        for e in values_of(s):
            for x in walk(e):
                _check_expr(func, x, seen, known)
        if isinstance(s, Alloc):
            if any(isinstance(n, Size) for n in s.buffer.shape):
                raise _fail(func, f"{s.buffer.name} has a symbolic size; only parameters may")
            seen.add(id(s.buffer))
        elif isinstance(s, Let):
            if s.var.dtype != s.value.dtype:
                raise _fail(func, f"{s.var.name} is {s.var.dtype}, its value {s.value.dtype}")
            known.add(id(s.var))
        elif isinstance(s, Store):
            if s.target.dtype != s.value.dtype:
                raise _fail(
                    func,
                    f"{s.value.dtype} is stored into {s.target.buffer.name}, "
                    f"which holds {s.target.dtype}",
                )
        elif isinstance(s, Loop):
            if {s.begin.dtype, s.end.dtype, s.var.dtype} != {dtypes.INDEX} or s.step < 1:
                raise _fail(func, f"loop {s.var.name} has int64 ends and a positive step")
        elif isinstance(s, Evaluate):
            if not isinstance(s.value, ExternCall):
                raise _fail(func, "only a call of a C function does something by itself")
        elif s.condition.dtype != "bool":
            raise _fail(func, f"a condition is bool, found {s.condition.dtype}")
        inside = {*known, id(s.var)} if isinstance(s, Loop) else known
        for inner in bodies(s):
            _check(func, inner, seen, inside)


def _check_expr(func: Routine, x: Expr, seen: set[int], known: set[int]) -> None:
    if isinstance(x, Element):
        if id(x.buffer) not in seen:
            raise _fail(func, f"{x.buffer.name} is used outside of its statements")
        if len(x.indices) != len(x.buffer.shape) or x.dtype != x.buffer.dtype:
            raise _fail(func, f"an element of {x.buffer.name} has the wrong rank or dtype")
        if any(i.dtype != dtypes.INDEX for i in x.indices):
            raise _fail(func, f"an index of {x.buffer.name} is not int64")
    elif isinstance(x, Pointer):
        if id(x.buffer) not in seen or x.buffer.align:
            raise _fail(func, f"{x.buffer.name} is used outside of its statements, or has gaps")
    elif isinstance(x, ExternCall):
        found = [f"{i.dtype}*" if isinstance(i, Pointer) else i.dtype for i in x.indices]
        if found != list(x.function.args) or x.dtype != x.function.returns:
            raise _fail(
                func,
                f"{x.function.name} takes ({', '.join(x.function.args)}), found "
                f"({', '.join(found)})",
            )
    elif isinstance(x, Var) and id(x) not in known:
        raise _fail(func, f"{x.name} is used outside of its statements")
    elif isinstance(x, Slot):
        raise _fail(func, "a slot stands for a read of a block, and there is none")


def unproved(func: Routine) -> dict[int, tuple[int, ...]]:
    """The dimensions of elements (by id) at which no proof keeps the index inside."""
    found: dict[int, tuple[int, ...]] = {}
    spans: dict[int, Span] = {id(v): (1, MAX_SIZE) for v in func.sizes}
    _prove(func.body, spans, found)
    return found


def _prove(
    body: tuple[Statement, ...], spans: dict[int, Span], found: dict[int, tuple[int, ...]]
) -> None:
    """A variable has one binding, so its span holds wherever it is in scope."""
    for s in body:
        for e in values_of(s):
            _prove_expr(e, spans, found)
        if isinstance(s, Let):
            spans[id(s.var)] = span_of(s.value, spans)
        elif isinstance(s, Loop):
            spans[id(s.var)] = loop_span(s, spans)
            _prove(s.body, spans, found)
        elif isinstance(s, If):
            _prove(s.yes, _narrowed(s.condition, spans), found)
            _prove(s.no, _narrowed(s.condition, spans, False), found)
        elif isinstance(s, Assert):
            spans = _narrowed(s.condition, spans)
        elif isinstance(s, While):
            _prove(s.body, spans, found)


def loop_span(s: Loop, spans: Mapping[int, Span]) -> Span:
    """What the variable of a loop lies between."""
    begin, end = span_of(s.begin, spans), span_of(s.end, spans)
    if begin is None or end is None or begin[0] >= end[1]:
        return None
    return begin[0], end[1] - 1


def _prove_expr(e: Expr, spans: dict[int, Span], found: dict[int, tuple[int, ...]]) -> None:
    if isinstance(e, Element):
        for i in e.indices:
            _prove_expr(i, spans, found)
        left = []
        for n, (i, extent) in enumerate(zip(e.indices, e.buffer.shape, strict=True)):
            ends = span_of(i, spans)
            most = None if isinstance(extent, Size) else int(extent)
            # Of symbolic sizes nothing is proved.
            if ends is None or ends[0] < 0 or most is None or ends[1] >= most:
                left.append(n)
        if left:
            found[id(e)] = tuple(left)
    elif isinstance(e, ExternCall):
        for x in e.indices:
            _prove_expr(x, spans, found)
    elif isinstance(e, Call):
        if e.op == "if_then_else":
            _prove_expr(e.args[0], spans, found)
            _prove_expr(e.args[1], _narrowed(e.args[0], spans), found)
            _prove_expr(e.args[2], _narrowed(e.args[0], spans, False), found)
            return
        for x in e.args:
            _prove_expr(x, spans, found)


_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "ne": "eq"}


def _narrowed(condition: Expr, spans: Mapping[int, Span], holds: bool = True) -> dict[int, Span]:
    """Spans where a condition on variables holds, or does not."""
    out = dict(spans)
    if not holds:
        if not isinstance(condition, Call) or condition.op not in _OPPOSITE:
            return out
        condition = Call(_OPPOSITE[condition.op], condition.args, "bool")
    stack = [condition]
    while stack:
        e = stack.pop()
        if not isinstance(e, Call):
            continue
        if e.op == "and":
            stack += e.args
        elif e.op == "if_then_else" and isinstance(e.args[2], Const) and not e.args[2].value:
            stack += e.args[:2]  # `a and b`, of which b is evaluated only if a holds
        elif e.op in ("lt", "le", "gt", "ge", "eq"):
            a, b = e.args
            swapped = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}[e.op]
            _narrow(a, e.op, span_of(b, out), out)
            _narrow(b, swapped, span_of(a, out), out)
    return out


def _narrow(e: Expr, op: str, bound: Span, spans: dict[int, Span]) -> None:
    """Note of `e`, if it is a variable (plus a constant), that `e op` something within `bound`."""
    shift = 0
    if isinstance(e, Call) and e.op in ("add", "sub") and isinstance(e.args[1], Const):
        shift = int(e.args[1].value) * (1 if e.op == "add" else -1)
        e = e.args[0]
    if not isinstance(e, Var) or e.dtype != dtypes.INDEX or bound is None:
        return
    low, high = spans.get(id(e)) or _ANY
    if shift and max(abs(low + shift), abs(high + shift)) > _LARGEST:
        return  # the sum may wrap round
    if op in ("lt", "le", "eq"):
        high = min(high, bound[1] - (op == "lt") - shift)
    if op in ("gt", "ge", "eq"):
        low = max(low, bound[0] + (op == "gt") - shift)
    if low <= high:  # else nothing there is ever run
        spans[id(e)] = low, high


def span_of(e: Expr, spans: Mapping[int, Span]) -> Span:
    """What an integer lies between; None where that is not known, or beyond 62 bits, so that
    no sum wraps round."""
    found = _span(e, spans)
    if found is None or max(abs(found[0]), abs(found[1])) > _LARGEST:
        return None
    return found


def _span(e: Expr, spans: Mapping[int, Span]) -> Span:
    if isinstance(e, Const):
        return (int(e.value), int(e.value)) if dtypes.is_int(e.dtype) else None
    if isinstance(e, Var):
        return spans.get(id(e))
    if isinstance(e, (Element, ExternCall)):
        return _of_type(e.dtype)
    if not isinstance(e, Call):
        return None
    if e.op == "cast":
        inner = span_of(e.args[0], spans) or _of_type(e.args[0].dtype)
        mine = _of_type(e.dtype)
        wide = e.dtype == "int64" and dtypes.is_int(e.args[0].dtype)
        fits = inner is not None and (
            wide or (mine is not None and mine[0] <= inner[0] and inner[1] <= mine[1])
        )
        return inner if fits and e.args[0].dtype != "uint64" else mine
    if e.dtype != dtypes.INDEX or e.op == "reinterpret":
        return _of_type(e.dtype)
    if e.op in ("select", "if_then_else"):
        yes = span_of(e.args[1], _narrowed(e.args[0], spans))
        no = span_of(e.args[2], _narrowed(e.args[0], spans, False))
        return None if yes is None or no is None else (min(yes[0], no[0]), max(yes[1], no[1]))
    if e.op in ("min", "max"):
        return _ends(e, spans)
    if len(e.args) != 2:
        return None
    a, b = (span_of(x, spans) for x in e.args)
    if e.op == "floormod" and b is not None and b[0] > 0:
        if a is not None and a[0] >= 0 and a[1] < b[0]:
            return a
        return 0, b[1] - 1
    if a is None or b is None:
        return None
    return _combined(e.op, a, b)


def _ends(e: Expr, spans: Mapping[int, Span]) -> tuple[int, int]:
    """As `span_of`, with the ends of int64 where nothing is known: one operand of min and max
    bounds the result on one side."""
    if isinstance(e, Call) and e.op in ("min", "max"):
        a, b = (_ends(x, spans) for x in e.args)
        pick = min if e.op == "min" else max
        return pick(a[0], b[0]), pick(a[1], b[1])
    return span_of(e, spans) or _ANY


def _combined(op: str, a: tuple[int, int], b: tuple[int, int]) -> Span:
    if op == "add":
        return a[0] + b[0], a[1] + b[1]
    if op == "sub":
        return a[0] - b[1], a[1] - b[0]
    if op == "mul":
        corners = [x * y for x in a for y in b]
        return min(corners), max(corners)
    if op == "floordiv" and b[0] > 0:
        corners = [x // y for x in a for y in b]
        return min(corners), max(corners)
    return None


def _of_type(dtype: str) -> Span:
    """The values of an integer type of at most 32 bits."""
    if dtype == "bool":
        return 0, 1
    if dtype not in _WIDE or dtype == "int64":
        return None
    return int(dtypes.minimum(dtype)), int(dtypes.maximum(dtype))
