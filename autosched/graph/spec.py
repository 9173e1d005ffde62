"""What a compiled body does, as plain data: steps over slots.

A slot holds an array, or a function value. The first slots are the parameters. `Spec` names
kernels, constants and host operators; it is all that the executor needs, and what a saved model
has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Union

from autosched.graph.plan import Plan

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """A value in the workspace: `shape` is the one it is stored with."""

    slot: int
    offset: int
    shape: Shape
    dtype: str


@dataclass(frozen=True)
class Fresh:
    """A result: a new array a call."""

    slot: int
    shape: Shape
    dtype: str


@dataclass(frozen=True)
class KernelCall:
    """A kernel with its arguments, inputs then outputs: slots, and constants as -1 - number."""

    kernel: str
    args: tuple[int, ...]
    result: str


@dataclass(frozen=True)
class RunStep:
    """Kernels in a row."""

    calls: tuple[KernelCall, ...]


@dataclass(frozen=True)
class HostStep:
    """An operator computed in NumPy; an argument is None where it is left out."""

    operator: str
    attrs: Mapping[str, Any]
    args: tuple[int | None, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class IfStep:
    """One of two bodies, each with the slots that are its parameters."""

    condition: int
    then: Spec
    then_args: tuple[int, ...]
    other: Spec
    other_args: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class ClosureStep:
    """A function value: a body, and the slots that are its first parameters."""

    body: Spec
    captured: tuple[int, ...]
    result: int


@dataclass(frozen=True)
class ExternalStep:
    """A function in Python that an external code generator made."""

    function: str
    args: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True)
class CallStep:
    """A call of a function of `Spec.functions`."""

    function: str
    args: tuple[int, ...]
    results: tuple[int, ...]


Step = Union[RunStep, HostStep, IfStep, ClosureStep, ExternalStep, CallStep]


@dataclass(frozen=True)
class Spec:
    """A body. `constants`: (slot, number). `copied`: numbers of the results that are copied, since
    they are no fresh arrays. `functions` are those that the main body calls, and its functions."""

    slots: int
    places: tuple[Place, ...]
    fresh: tuple[Fresh, ...]
    constants: tuple[tuple[int, int], ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    copied: tuple[int, ...]
    plan: Plan
    functions: tuple[tuple[str, Spec], ...] = ()

    def nested(self) -> Iterator[Spec]:
        """The bodies inside it, and its functions."""
        for step in self.steps:
            if isinstance(step, IfStep):
                yield from (step.then, step.other)
            elif isinstance(step, ClosureStep):
                yield step.body
        yield from (spec for _, spec in self.functions)

    def calls(self) -> Iterator[KernelCall]:
        """Its kernels in order, those of bodies inside it included."""
        for step in self.steps:
            if isinstance(step, RunStep):
                yield from step.calls
        for inner in self.nested():
            yield from inner.calls()

    def externals(self) -> Iterator[ExternalStep]:
        """Its calls of external functions in Python, those of bodies inside it included."""
        yield from (step for step in self.steps if isinstance(step, ExternalStep))
        for inner in self.nested():
            yield from inner.externals()


def to_json(spec: Spec) -> dict[str, Any]:
    """The spec as JSON data."""
    out = asdict(spec)
    out["steps"] = [_step_to_json(s) for s in spec.steps]
    out["functions"] = [[name, to_json(f)] for name, f in spec.functions]
    return out


def _step_to_json(step: Step) -> dict[str, Any]:
    out: dict[str, Any] = {"step": type(step).__name__}
    for name, value in vars(step).items():
        out[name] = to_json(value) if isinstance(value, Spec) else value
    if isinstance(step, RunStep):
        out["calls"] = [vars(c) for c in step.calls]
    return out


def from_json(data: Mapping[str, Any]) -> Spec:
    """The inverse of `to_json`."""
    from autosched.graph.plan import Life

    plan = data["plan"]
    return Spec(
        slots=data["slots"],
        places=tuple(Place(**_tuples(p)) for p in data["places"]),
        fresh=tuple(Fresh(**_tuples(f)) for f in data["fresh"]),
        constants=frozen(data["constants"]),
        steps=tuple(_step_from_json(s) for s in data["steps"]),
        results=tuple(data["results"]),
        copied=tuple(data["copied"]),
        plan=Plan(tuple(Life(**x) for x in plan["lives"]), tuple(plan["offsets"]), plan["bytes"]),
        functions=tuple((name, from_json(f)) for name, f in data.get("functions", ())),
    )


def _step_from_json(data: Mapping[str, Any]) -> Step:
    kind = {c.__name__: c for c in (RunStep, HostStep, IfStep, ClosureStep, CallStep)}[data["step"]]
    given = _tuples({k: v for k, v in data.items() if k != "step"})
    for name in ("then", "other", "body"):
        if name in given:
            given[name] = from_json(data[name])
    if kind is RunStep:
        given["calls"] = tuple(KernelCall(**_tuples(c)) for c in data["calls"])
    if kind is HostStep:
        given["attrs"] = {k: frozen(v) for k, v in data["attrs"].items()}
    made: Step = kind(**given)
    return made


def _tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: frozen(v) if isinstance(v, list) else v for k, v in data.items()}


def frozen(value: Any) -> Any:
    """Lists as tuples, so that what JSON gives can be compared and hashed."""
    return tuple(map(frozen, value)) if isinstance(value, (list, tuple)) else value
