"""branches: both bodies of an If are computed where that is cheaper than a branch."""

from __future__ import annotations

from collections.abc import Mapping

from autosched.graph.infer import inference
from autosched.graph.ir import Atom, Binding, Body, Call, Const, If, Var
from autosched.graph.ops.row_range import NAME as ROW_RANGE
from autosched.graph.passes.bodies import Renaming, body_pass
from autosched.graph.types import TensorType

MAX_ELEMENTS = 16384
"""Elements of all that both bodies compute: some microseconds, as long as a branch takes."""
TRAPS = frozenset({"Div", "Mod"})
"""Operators that end the process on integers that do not suit them."""


@body_pass("branches")
def branches(body: Body) -> Body:
    """A branch with few pointwise operators in either body becomes a selection.

    rewrite:
        if p:
            y = op.mul(x, G.const(0.5, …))
        else:                                      ->      a = op.mul(x, G.const(0.5, …))
            y = op.relu(x)                                 b = op.relu(x)
                                                           y = op.where(p, a, b)
    """
    now = Renaming()
    equal: dict[int, set[int]] = {}
    for b in body.bindings:
        value = now.value(b.value)
        if isinstance(value, Call) and value.callee == "Equal":
            equal[id(b.vars[0])] = set(map(id, value.args))
        if not isinstance(value, If) or not _cheap(value, b, equal):
            now.out.append(Binding(b.vars, value))
            continue
        now.out += [*value.then.bindings, *value.other.bindings]
        for v, x, y in zip(b.vars, value.then.results, value.other.results, strict=True):
            now.out.append(Binding((v,), Call("Where", (value.condition, x, y))))
    return now.body(body.results)


def _cheap(branch: If, b: Binding, equal: Mapping[int, set[int]]) -> bool:
    """`equal`: the ids of what is compared, by the id of the result."""
    condition = _type(branch.condition)
    if condition is None or condition.elements != 1 or condition.dtype != "bool":
        return False
    for v, x, y in zip(b.vars, branch.then.results, branch.other.results, strict=True):
        t = _type(v)
        if t is None or _type(x) != t or _type(y) != t or len(t.known) < len(condition.known):
            return False
    inner = [*branch.then.bindings, *branch.other.bindings]
    bounds = equal.get(id(branch.condition))
    plain = all(_is_plain(b) or _is_empty_range(b, bounds) for b in inner)
    return plain and sum(map(_elements, inner)) <= MAX_ELEMENTS


def _is_empty_range(b: Binding, bounds: set[int] | None) -> bool:
    """Whether it reduces rows between `bounds`, which are none where the bounds are equal."""
    value = b.value
    if not isinstance(value, Call) or value.callee != ROW_RANGE or len(value.args) > 3:
        return False
    return bounds == set(map(id, value.args[1:]))


def _is_plain(b: Binding) -> bool:
    """Whether it may be computed though nobody asks for it: elements of fixed shapes."""
    if not isinstance(b.value, Call) or not isinstance(b.value.callee, str):
        return False
    types = [_type(v) for v in b.vars]
    if any(t is None for t in types):
        return False
    if b.value.callee in TRAPS and not all(t and t.dtype.startswith("float") for t in types):
        return False
    return inference(b.value, len(b.vars)).kind in ("pointwise", "view")


def _elements(b: Binding) -> int:
    return sum(t.elements for v in b.vars for t in [_type(v)] if t is not None)


def _type(a: Atom) -> TensorType | None:
    """The type of a tensor all whose sizes are fixed."""
    t = a.type if isinstance(a, (Var, Const)) else None
    return t if isinstance(t, TensorType) and t.is_static else None
