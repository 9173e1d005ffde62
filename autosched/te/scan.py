"""te.scan: recurrences over the first axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from autosched.errors import TensorExprError
from autosched.te.prim_func import topological
from autosched.te.tensor import (
    ComputeOp,
    Extent,
    ExternOp,
    IterVar,
    PlaceholderOp,
    ScanOp,
    Tensor,
    TensorRead,
    check_attrs,
    check_name,
    check_tag,
)
from autosched.tir import dtypes
from autosched.tir.affine import Affine, always
from autosched.tir.from_expr import from_expr
from autosched.tir.height import nodes


def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state_placeholder: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor] | None = None,
    name: str = "scan",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """The recurrence whose step t is `update[t, …]`, computed from earlier steps. (TVM te.scan.)

        state = te.placeholder((T, n))
        init = te.compute((1, n), lambda _, i: X[0, i])
        update = te.compute((T, n), lambda t, i: state[t - 1, i] + X[t, i])
        result = te.scan(init, update, state, inputs=[X])        # cumulative sum along axis 0

    Args:
        init: shape (k, …), the first k steps (1 <= k < T).
        update: a computation of shape (T, …); its elements from step k on are computed.
        state_placeholder: a placeholder of shape (T, …) that stands for the result where `update`
            and the computations that it needs read earlier steps, each as `state[t - d, …]` with t
            their first axis and 1 <= d <= k.
        inputs: accepted as TVM has it. What the update reads is found without it, so it is only
            checked to be tensors, not against the body.

    Lists of equal length give several states, whose shapes differ in all but the first dimension;
    the results are a list then. A computation on the way from a state to an update is a stage of
    the step: its first axis is the step as well, and others read it at their own step. An update
    may be read so, too: that is the state's new value.
    The result's `.op.scan_axis` is the axis of the steps, [k, T).

    Raises TensorExprError where the shapes do not fit, a state is read at the current or a later
    step, or a stage is read at another step than its own.
    """
    label = check_name(name, "a scan")
    kept = check_attrs(attrs, f"scan {label}")
    check_tag(tag, f"scan {label}")
    many = isinstance(state_placeholder, (list, tuple))
    inits = _tensors(init, "init", label)
    updates = _tensors(update, "update", label)
    states = _tensors(state_placeholder, "state_placeholder", label)
    given = () if inputs is None else _tensors(inputs, "inputs", label)
    if not len(inits) == len(updates) == len(states) > 0:
        raise TensorExprError(
            f"scan {label} has {len(inits)} inits, {len(updates)} updates and {len(states)} "
            "states; expected as many of each, and at least one"
        )
    for i, u, s in zip(inits, updates, states, strict=True):
        _check_state(label, i, u, s)
    _check_lengths(label, inits, states)
    for what, tensors in (("state", states), ("update", updates)):
        for n, t in enumerate(tensors):
            if any(t is other for other in tensors[:n]):
                raise TensorExprError(f"{t.name} is the {what} of two states of scan {label}")
    first, steps = _constant(inits[0].shape[0], label), states[0].shape[0]
    stages = _stages(label, updates, states)
    for t in inits:
        if any(_reaches(t, states)):
            raise TensorExprError(f"the init {t.name} of scan {label} reads a state")
    for op in stages:
        _Steps(label, op, stages, states, updates, first, steps).check()
    axis = updates[0].op.axis[0]
    scan_axis = IterVar(axis.name, dtypes.INDEX, first, steps - first, "sequential", label)
    made = ScanOp(
        label, scan_axis, inits, updates, states, stages, given,
        MappingProxyType(kept), tag, name == "scan",
    )  # fmt: skip
    if not many:
        return Tensor(label, states[0].shape, states[0].dtype, made)
    if len(states) == 1:
        return [Tensor(label, states[0].shape, states[0].dtype, made)]
    return [Tensor(f"{label}_v{n}", s.shape, s.dtype, made, n) for n, s in enumerate(states)]


def _constant(first: Extent, label: str) -> int:
    if not isinstance(first, int):
        raise TensorExprError(
            f"the inits of scan {label} give {first} steps; expected a constant number"
        )
    return first


def _tensors(value: Any, what: str, label: str) -> tuple[Tensor, ...]:
    found = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    for t in found:
        if not isinstance(t, Tensor):
            raise TensorExprError(f"{what} of scan {label} holds {t!r}; expected a Tensor")
    return found


def _check_state(label: str, init: Tensor, update: Tensor, state: Tensor) -> None:
    where = f"of scan {label}"
    if not isinstance(state.op, PlaceholderOp):
        raise TensorExprError(
            f"the state {state.name} {where} is computed; expected a placeholder that stands for "
            "the result"
        )
    if not isinstance(update.op, ComputeOp):
        raise TensorExprError(f"the update {update.name} {where} is not made by te.compute")
    if not state.shape:
        raise TensorExprError(f"the state {state.name} {where} has no dimension to step along")
    for what, t in (("init", init), ("update", update)):
        if t.dtype != state.dtype:
            raise TensorExprError(
                f"the {what} {t.name} {where} has dtype {t.dtype}, its state {state.name} "
                f"{state.dtype}; expected the same"
            )
    if tuple(update.shape) != tuple(state.shape):
        raise TensorExprError(
            f"the update {update.name} {where} has shape {update.shape}, its state {state.name} "
            f"{state.shape}; expected the same"
        )
    if len(init.shape) != len(state.shape) or tuple(init.shape[1:]) != tuple(state.shape[1:]):
        expected = ", ".join(["k", *map(str, state.shape[1:])])
        raise TensorExprError(
            f"the init {init.name} {where} has shape {init.shape}; expected ({expected}), the "
            f"first k steps of {state.name}"
        )


def _check_lengths(label: str, inits: Sequence[Tensor], states: Sequence[Tensor]) -> None:
    firsts = [t.shape[0] for t in inits]
    steps = [t.shape[0] for t in states]
    if len(set(firsts)) > 1:
        raise TensorExprError(f"the inits of scan {label} give {firsts} steps; expected the same")
    if len(set(steps)) > 1:
        raise TensorExprError(f"the states of scan {label} have {steps} steps; expected the same")
    if not always(firsts[0] <= steps[0]) or always(firsts[0] == steps[0]):
        raise TensorExprError(
            f"the init of scan {label} gives {firsts[0]} of {steps[0]} steps; nothing is left to "
            "update"
        )


def _reaches(tensor: Tensor, states: Sequence[Tensor]) -> Iterator[Tensor]:
    """The states among what `tensor` is computed from."""
    seen: set[int] = set()
    stack = [tensor]
    while stack:
        t = stack.pop()
        if id(t) in seen:
            continue
        seen.add(id(t))
        if any(t is s for s in states):
            yield t
        stack += t.op.input_tensors


def _stages(
    label: str, updates: Sequence[Tensor], states: Sequence[Tensor]
) -> tuple[ComputeOp, ...]:
    """The computations of one step, producers first: the updates and what they need of what
    depends on a state."""
    inside = {id(s.op) for s in states}
    found: list[ComputeOp] = []
    for op in topological([t.op for t in updates]):
        reads_state = any(id(t.op) in inside for t in op.input_tensors)
        if not reads_state and all(t.op is not op for t in updates):
            continue
        if isinstance(op, ScanOp):
            raise TensorExprError(
                f"a step of scan {label} holds the scan {op.name}, which depends on a state; scans "
                "do not nest: give its states to the outer scan"
            )
        if isinstance(op, ExternOp):
            raise TensorExprError(
                f"a step of scan {label} holds the extern {op.name}, which depends on a state; a "
                "routine runs before or after a scan, or does all of it"
            )
        assert isinstance(op, ComputeOp)  # an input depends on nothing
        inside.add(id(op))
        found.append(op)
    return tuple(found)


class _Steps:
    """At which steps one stage reads the states and the other stages."""

    def __init__(
        self,
        label: str,
        op: ComputeOp,
        stages: Sequence[ComputeOp],
        states: Sequence[Tensor],
        updates: Sequence[Tensor],
        first: int,
        steps: Extent,
    ) -> None:
        self.label, self.op, self.states, self.updates = label, op, states, updates
        self.stages = {id(s) for s in stages}
        self.first, self.steps = first, steps
        self.what = f"stage {op.name} of scan {label}"

    def check(self) -> None:
        """Raise TensorExprError unless all is as `scan` says."""
        if not self.op.axis or self.op.axis[0].extent != self.steps:
            raise TensorExprError(
                f"{self.what} has shape {self.op.shape}; it depends on a state, so its first axis "
                f"must be the step, of extent {self.steps}"
            )
        for root in self.op.body:
            for e in nodes(root):
                if isinstance(e, TensorRead):
                    if any(e.tensor is s for s in self.states):
                        self.check_state(e)
                    elif id(e.tensor.op) in self.stages:
                        self.check_stage(e)

    def back(self, e: TensorRead) -> int | None:
        """How many steps back an element is read; None if that is no constant."""
        form = from_expr(e.indices[0])
        if form is None:
            return None
        distance = Affine.of(self.op.axis[0]) - form
        return int(distance.const) if distance.is_const() else None

    def check_state(self, e: TensorRead) -> None:
        """It is read 1 to `first` steps back."""
        t = self.op.axis[0].name
        back = self.back(e)
        if back is not None and 1 <= back <= self.first:
            return
        if back is None:
            found = f"at step {e.indices[0]!r}"
        elif back == 0:
            found = "at the current step, which is not computed yet"
        elif back < 0:
            found = f"at the future step {t} + {-back}"
        else:
            found = f"{back} steps back, and init gives only the first {self.first}"
        raise TensorExprError(
            f"{self.what} reads the state {e!r} {found}; expected {e.tensor.name}[{t} - d, …] with "
            f"d from 1 to {self.first}"
        )

    def check_stage(self, e: TensorRead) -> None:
        """It is read at the step itself."""
        if self.back(e) == 0:
            return
        t = self.op.axis[0].name
        states = [s for s, u in zip(self.states, self.updates, strict=True) if u is e.tensor]
        hint = (
            f"read its state {states[0].name} there"
            if states
            else "only states are kept from step to step: make it one"
        )
        raise TensorExprError(
            f"{self.what} reads the stage {e!r} at another step than {t}, its own; {hint}"
        )
