"""Strategies: several implementations of one operator, each with a condition and a priority.

    @graph.strategy("conv2d")
    def conv2d_strategy(s, attrs, inputs, target):
        s.add(my.direct, name="conv2d.direct", plevel=10)
        s.add(my.winograd, name="conv2d.winograd", plevel=15, when=attrs.group == 1)

Of those whose condition holds the one with the least recorded time is taken, else the one with the
highest `plevel`; `model.kernels[i].implementation` says which, and why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from autosched.checks import text
from autosched.errors import WorkloadError
from autosched.graph.ir import Call, Const, Function, Var
from autosched.graph.ops.registry import OPERATORS, find
from autosched.graph.types import TensorType
from autosched.target import Target

if TYPE_CHECKING:
    from autosched.schedule import Schedule

Array = npt.NDArray[Any]
NAMES = {"conv2d": "Conv", "conv2d_transpose": "ConvTranspose", "dense": "Gemm", "matmul": "MatMul"}
"""Operators by the names that TVM has for them."""


@dataclass(frozen=True)
class Input:
    """An argument of a call, as conditions ask for it. `constant`: its value is known."""

    shape: tuple[Any, ...]
    dtype: str
    constant: bool


@dataclass(frozen=True)
class Implementation:
    """One way to compute an operator.

    `compute` is a definition like the operator's own. `prepare` changes constant arguments once,
    when the model is compiled: by number, a function of arrays (uint16 bit patterns for bfloat16).
    `schedule`, a function of a Schedule, takes the place of the default schedule.
    """

    name: str
    compute: Callable[..., Any]
    plevel: int = 10
    schedule: Callable[[Schedule], object] | None = None
    prepare: Mapping[int, Callable[[Array], Array]] = field(default_factory=dict)


class Strategy:
    """The implementations of one call."""

    def __init__(self) -> None:
        self.valid: list[Implementation] = []

    def add(
        self,
        compute: Callable[..., Any],
        name: str,
        plevel: int = 10,
        when: bool = True,
        schedule: Callable[[Schedule], object] | None = None,
        prepare: Mapping[int, Callable[[Array], Array]] | None = None,
    ) -> None:
        """Add an implementation, if its condition `when` holds."""
        if when:
            self.valid.append(Implementation(name, compute, plevel, schedule, dict(prepare or {})))


StrategyFunction = Callable[[Strategy, Any, Sequence[Input | None], Target], object]
_STRATEGIES: dict[str, StrategyFunction] = {}


def strategy(name: str) -> Callable[[StrategyFunction], StrategyFunction]:
    """A decorator: the strategy of an operator, in the place of the one it had.

    The function gets a Strategy, the attributes of the call by name, its inputs (None where one is
    left out) and the target. Raises WorkloadError for an operator that there is not.
    """
    name = text("the operator of a strategy", name, WorkloadError)
    operator = find(NAMES.get(name, name)).name

    def register(function: StrategyFunction) -> StrategyFunction:
        _STRATEGIES[operator] = function
        return function

    return register


def anchor_of(function: Function) -> Call | None:
    """The call in a primitive function that has a strategy."""
    from autosched.graph.ops import alternatives  # noqa: F401 - registers the built-in ones

    for b in function.body.bindings:
        v = b.value
        if isinstance(v, Call) and isinstance(v.callee, str) and v.callee in _STRATEGIES:
            return v
    return None


def implementations(function: Function, target: Target) -> list[Implementation]:
    """The implementations of a primitive function's anchor, highest plevel first; none where its
    operator has no strategy. Raises WorkloadError where a strategy gives none."""
    call = anchor_of(function)
    if call is None:
        return []
    assert isinstance(call.callee, str)
    fixed = {id(function.params[n]) for n in function.attr("constants", ())}
    inputs = [
        Input(a.type.known, a.type.dtype, isinstance(a, Const) or id(a) in fixed)
        if isinstance(a, (Var, Const)) and isinstance(a.type, TensorType)
        else None
        for a in call.args
    ]
    found = Strategy()
    _STRATEGIES[call.callee](found, _attributes(call, inputs), inputs, target)
    if not found.valid:
        raise WorkloadError(f"the strategy of {call.callee} has no implementation for {function}")
    return sorted(found.valid, key=lambda i: -i.plevel)


def _attributes(call: Call, inputs: Sequence[Input | None]) -> SimpleNamespace:
    """Attributes by name; those of windows that are left out are as ONNX fills them in."""
    given = {**OPERATORS[str(call.callee)].attributes, **dict(call.attrs)}
    weight = inputs[1] if len(inputs) > 1 else None
    if "kernel_shape" in given and weight is not None:
        window = tuple(weight.shape[2:])
        ones = (1,) * len(window)
        filled = {"kernel_shape": window, "strides": ones, "dilations": ones}
        filled["pads"] = (0,) * (2 * len(window))
        given = {k: filled.get(k) if v is None else v for k, v in given.items()}
    return SimpleNamespace(**given)
