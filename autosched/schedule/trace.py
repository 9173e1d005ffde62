"""Traces: a schedule as data.

A `Trace` is a tuple of frozen steps. It is the candidate of a search, the record in a store, the
Python text that users read and what is replayed. Handles are names (`b0`, `l3`); integers may be
`Decision`s, filled in by `bind` or, with arrays, by `apply` on a population.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from keyword import iskeyword
from math import isfinite
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from autosched.checks import mapping, shown
from autosched.errors import ScheduleError
from autosched.integers import integer
from autosched.tir.affine import Int
from autosched.tir.shown import Shown

if TYPE_CHECKING:
    from autosched.schedule.schedule import Schedule
    from autosched.tir.module import IRModule
    from autosched.tir.nodes import PrimFunc

DIALECT = 1
"""Version of the steps' meaning. It grows when an old trace would replay to another program."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A block or loop by its name in the trace: `b0`, `l3`."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Decision:
    """A free integer of a trace, by name."""

    name: str

    def __repr__(self) -> str:
        return f"Decision({_quoted(self.name)})"


@dataclass(frozen=True, slots=True)
class Step:
    """One primitive: `outs = op(*args, **kwargs)`. Values are JSON values, `Ref`s and `Decision`s;
    sequences are tuples."""

    op: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    outs: tuple[str, ...] = ()
    _json: str = field(default="", init=False, compare=False, repr=False)
    # Kept, since the candidates of a variant have most of their steps in common.

    def values(self) -> Iterator[Any]:
        """Every leaf among the arguments."""
        yield from _leaves(self.args)
        for _, value in self.kwargs:
            yield from _leaves(value)

    def map(self, change: Callable[[Any], Any]) -> Step:
        """This step with every leaf among the arguments changed; itself, where none is another."""
        args, kwargs = _map(self.args, change), self.kwargs
        if kwargs:
            values = tuple(v for _, v in kwargs)
            changed = _map(values, change)
            if changed is not values:
                kwargs = tuple((k, v) for (k, _), v in zip(kwargs, changed, strict=True))
        if args is self.args and kwargs is self.kwargs:
            return self
        return replace(self, args=args, kwargs=kwargs)

    def to_json(self) -> str:
        """As it stands in a trace's JSON. Raises ScheduleError where it holds an array."""
        if not self._json:
            form = [self.op, self.args, dict(self.kwargs), self.outs]
            object.__setattr__(self, "_json", _ENCODER.encode(form))
        return self._json


@dataclass(frozen=True, slots=True)
class Trace(Shown):
    """The steps of a schedule, in order."""

    steps: tuple[Step, ...] = ()

    def __len__(self) -> int:
        return len(self.steps)

    def decisions(self) -> tuple[str, ...]:
        """Names of the free integers, in order of first appearance."""
        names = (v.name for s in self.steps for v in s.values() if isinstance(v, Decision))
        return tuple(dict.fromkeys(names))

    def bind(self, values: Mapping[str, int]) -> Trace:
        """The trace with decisions replaced by integers; names absent from `values` stay free."""

        given = mapping("values", values, "a mapping from decisions' names to ints", ScheduleError)
        numbers = {
            name: integer(f"decision {name!r}", n, -(1 << 63), ScheduleError)
            for name, n in given.items()
        }

        def change(value: Any) -> Any:
            return numbers.get(value.name, value) if isinstance(value, Decision) else value

        return Trace(tuple(s.map(change) for s in self.steps))

    def apply(
        self,
        target: Schedule | PrimFunc | IRModule,
        values: Mapping[str, Int] | None = None,
    ) -> Schedule:
        """A new schedule: `target` with every step replayed.

        `values` gives each decision an int, or an int64 array of shape (N,) to replay N candidates
        at once. Raises ScheduleError where a step does not apply, with the step's number and text.
        """
        from autosched.schedule.schedule import Schedule

        expected = "a mapping from decisions' names to ints or arrays of them"
        values = mapping("values", values, expected, ScheduleError)
        if isinstance(target, Schedule):
            schedule = target.copy()
            schedule.decisions = {**target.decisions, **values}
        else:
            schedule = Schedule(target, decisions=values)
        missing = [n for n in self.decisions() if n not in schedule.decisions]
        if missing:
            raise ScheduleError(
                f"the trace has decisions without a value: {', '.join(missing)}; "
                "pass them in `values`"
            )
        schedule.replay(self)
        return schedule

    def to_json(self) -> str:
        """One line of JSON. Raises ScheduleError where a step holds an array."""
        steps = ",".join([s._json or s.to_json() for s in self.steps])
        return f'{{"dialect":{DIALECT},"steps":[{steps}]}}'

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace that `to_json` wrote. Raises ScheduleError on anything else."""
        if not isinstance(text, str):
            raise ScheduleError(f"not a trace in JSON: expected a text, found {shown(text)}")
        try:
            data = json.loads(text)
            dialect = data["dialect"]
            if dialect != DIALECT:
                raise ScheduleError(
                    f"the trace has dialect {dialect!r}; this version reads {DIALECT}"
                )
            steps = [
                Step(
                    str(op),
                    tuple(_decode(a) for a in args),
                    tuple((str(k), _decode(v)) for k, v in kwargs.items()),
                    tuple(str(o) for o in outs),
                )
                for op, args, kwargs, outs in data["steps"]
            ]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
            raise ScheduleError(f"not a trace in JSON: {e}; found {text[:80]!r}") from e
        return Trace(tuple(steps))

    def as_python(self, name: str = "apply") -> str:
        """Source of a function that does the same to a fresh Schedule: `def apply(sch): …`."""
        if not isinstance(name, str) or not name.isidentifier() or iskeyword(name):
            raise ScheduleError(f"as_python: no function can be named {shown(name)}")
        lines = [f"def {name}(sch):"]
        if self.decisions():
            lines.append("    from autosched.schedule import Decision")
        lines += [f"    {step_text(step)}" for step in self.steps]
        if not self.steps:
            lines.append("    pass")
        return "\n".join(lines) + "\n"

    def __str__(self) -> str:
        return self.as_python()


def step_text(step: Step) -> str:
    """The step as a Python statement on `sch`."""
    args = [_text(a) for a in step.args]
    args += [f"{k}={_text(v)}" for k, v in step.kwargs]
    call = f"sch.{step.op}({', '.join(args)})"
    if not step.outs:
        return call
    # Primitives that return tuples do so whatever their length.
    if len(step.outs) == 1 and step.op in RETURN_TUPLES:
        return f"({step.outs[0]},) = {call}"
    return f"{', '.join(step.outs)} = {call}"


RETURN_TUPLES = frozenset(
    {
        "get_loops",
        "get_blocks",
        "get_child_blocks",
        "get_producers",
        "get_consumers",
        "get_output_blocks",
        "cache_index",
        "cache_inplace",
        "loop_partition",
        "pad_axis",
        "split",
        "split_axis",
        "parallel_scan",
        "single_pass_scan",
    }
)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for v in value:
            yield from _leaves(v)
    else:
        yield value


def _map(value: Any, change: Callable[[Any], Any]) -> Any:
    """`value` with its leaves changed; itself, where none is another."""
    if isinstance(value, tuple):
        changed = tuple([_map(v, change) for v in value])
        return value if all(map(is_, changed, value)) else changed
    return change(value)


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_text(v) for v in value)}]"
    if isinstance(value, float) and not isfinite(value):
        return f'float("{value}")'
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _encode(value: Any) -> Any:
    """What JSON has no form of its own for."""
    if isinstance(value, Ref):
        return {"ref": value.name}
    if isinstance(value, Decision):
        return {"decision": value.name}
    if isinstance(value, np.ndarray):
        raise ScheduleError(
            "a step holds an array, which JSON traces do not; "
            "pass a Decision instead and give the array to Schedule(decisions=…)"
        )
    raise TypeError(f"a step holds {type(value).__name__}, which JSON has no form for")


# Tuples of frozen values hold no circles; to look for some takes longer than the rest.
_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_encode, check_circular=False)


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decode(v) for v in value)
    if isinstance(value, dict):
        if value.keys() == {"ref"}:
            return Ref(str(value["ref"]))
        if value.keys() == {"decision"}:
            return Decision(str(value["decision"]))
        raise ScheduleError(f"a trace holds handles, decisions and plain values; found {value!r}")
    return value
