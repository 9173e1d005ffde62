"""How each operator is padded; see `padded`."""

from __future__ import annotations

from collections.abc import Sequence

from autosched.graph.dynamic.moves import MOVES
from autosched.graph.dynamic.norms import NORMS
from autosched.graph.dynamic.reshape import RESHAPES
from autosched.graph.dynamic.scaled import SCALED
from autosched.graph.dynamic.sums import SUMS
from autosched.graph.dynamic.values import Masks, Padded, Rule, Step, emit, fixed, needs_fixed
from autosched.graph.dynamic.windows import WINDOWS
from autosched.graph.errors import Unsupported
from autosched.graph.infer import inference

KEEP_ZERO = frozenset({"Abs", "Cast", "Identity", "Neg", "Relu", "Sign", "Sqrt", "Tanh"})
"""Functions of one number that are 0 at 0."""

BATCHED = frozenset({"DepthToSpace", "LRN", "SpaceToDepth"})
"""Operators that take the elements along their first axis one by one."""


def rule_of(step: Step) -> Rule:
    """The rule of an operator. Raises Unsupported where there is none."""
    if _is_fixed(step):
        return fixed
    found = RULES.get(step.name)
    if found is not None:
        return found
    if step.name in BATCHED:
        return _batched
    if inference(step.calls[0], len(step.outs)).kind == "pointwise":
        return _pointwise
    raise Unsupported(f"{step.name} of an axis whose size depends on the length is not padded")


def _is_fixed(step: Step) -> bool:
    """Whether a call has no padding, and is the same at all lengths."""
    if any(a is not None and a.axes for a in step.args):
        return False
    if any(len(set(shapes)) != 1 for shapes in step.outs):
        return False
    return all(c.attrs == step.calls[0].attrs for c in step.calls)


def _pointwise(pad: Masks, step: Step) -> Sequence[Padded]:
    (ends,) = step.ends
    for a in step.args:
        for own, end in zip(() if a is None else a.ends[::-1], ends[::-1], strict=False):
            if own is not None and own != end:
                raise Unsupported(f"{step.name} of axes of different lengths")
    zero = frozenset[int]()
    if step.name in KEEP_ZERO and step.args[0] is not None:
        zero = step.args[0].zero
    return [Padded(emit(step, step.args)[0], ends, zero)]


def _batched(pad: Masks, step: Step) -> Sequence[Padded]:
    data, *others = step.args
    if data is None or any(o is not None and o.axes for o in others) or len(step.ends) > 1:
        raise Unsupported(f"{step.name}: an input depends on the length")
    if data.axes != [0] or [n for n, e in enumerate(step.ends[0]) if e is not None] != [0]:
        raise Unsupported(f"{step.name} along an axis whose size depends on the length")
    return [Padded(emit(step, step.args)[0], step.ends[0])]


def _along(pad: Masks, step: Step) -> Sequence[Padded]:
    """An operator along one axis, which takes what stands at the others one by one."""
    data = step.args[0]
    assert data is not None
    if any(a is not None and a.axes for a in step.args[1:]):
        raise Unsupported(f"{step.name}: an input depends on the length")
    needs_fixed(step, data, [step.attr("axis", -1) % len(data.ends)])
    return fixed(pad, step)


def _one_hot(pad: Masks, step: Step) -> Sequence[Padded]:
    if any(a is not None and a.axes for a in step.args[1:]):
        raise Unsupported(f"{step.name}: an input depends on the length")
    return fixed(pad, step)


RULES: dict[str, Rule] = {
    **MOVES,
    **NORMS,
    **RESHAPES,
    **SCALED,
    **SUMS,
    **WINDOWS,
    "OneHot": _one_hot,
    **dict.fromkeys(("Hardmax", "LpNormalization", "TopK"), _along),
}
