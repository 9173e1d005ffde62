"""Methods of `Schedule` that TVM's schedules have beside primitives: random numbers, the function
that is worked on, and the root block.

They are functions here and methods there, so that the class stays readable.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from autosched.checks import shown
from autosched.errors import ScheduleError
from autosched.integers import integer
from autosched.schedule import annotate as _annotate
from autosched.schedule.check import refuse
from autosched.schedule.handles import BlockRV, LoopRV, as_data, index_of, text_of
from autosched.tir.annotations import DOUBLE_BUFFER_SCOPE, KEYS, annotation_fault
from autosched.tir.nodes import PrimFunc
from autosched.tir.scope import SHARED

if TYPE_CHECKING:
    from autosched.schedule.schedule import Schedule

LAYOUT_FREE = "layout_free"
"""An attribute that the function itself states; the verifier checks it."""


def seed(sch: Schedule, seed: int) -> None:
    """Begin the random choices anew: those of `sample_perfect_tile` and its like."""
    sch.random = random_of("seed: the seed", seed)


def fork_seed(sch: Schedule) -> int:
    """A number drawn from the random choices, to seed another schedule with."""
    return sch.random.randrange(1 << 31)


def random_of(what: str, value: int | None) -> Random:
    """The random choices of a seed, from 0 up; None makes others each time."""
    return Random(None if value is None else integer(what, value, 0, ScheduleError))


def work_on(sch: Schedule, func_name: str) -> None:
    """Say which function is scheduled: the only one that a schedule has, so this checks the name.
    Of another function of a module, make a schedule of its own."""
    if text_of(func_name, "work_on: the name") not in ("main", sch.func.name):
        raise ScheduleError(
            f"work_on: this schedule is of {sch.func.name!r}; found {shown(func_name)}; expected "
            "that name, or a schedule of its own: Schedule(mod[name])"
        )


def enter_postproc(sch: Schedule) -> None:
    """Does nothing: a trace here has no second part."""


def annotate(sch: Schedule, place: BlockRV | LoopRV | str, key: str, value: Any) -> None:
    """Attach a key and a JSON value (or a Decision); see `annotate.annotate`. To the root block:
    an attribute of the function, of any key that means nothing."""
    as_data(value)
    key = text_of(key, "annotate: the key")
    if sch._is_root(place):
        sch.func = _annotated_root(sch.func, key, sch._value(value))
    elif key == DOUBLE_BUFFER_SCOPE and _writes_shared(sch, place, value):
        sch.double_buffer(place)  # type: ignore[arg-type]
        return
    else:
        sch.func = _annotate.annotate(sch.func, sch._place(place), key, sch._value(value))
    sch._record("annotate", (place, key, value))


def _writes_shared(sch: Schedule, place: BlockRV | LoopRV | str, value: Any) -> bool:
    """Whether a block writes to shared memory what its double_buffer_scope names."""
    if not isinstance(place, BlockRV):
        return False
    writes = sch.get(place).writes
    number = index_of(value, "annotate: double_buffer_scope, a number of a write,")
    return 0 <= number < len(writes) and writes[number].buffer.scope in SHARED


def unannotate(sch: Schedule, place: BlockRV | LoopRV | str, key: str) -> None:
    """Remove an annotation; see `annotate.unannotate`."""
    key = text_of(key, "unannotate: the key")
    if sch._is_root(place):
        sch.func = _unannotated_root(sch.func, key)
    else:
        sch.func = _annotate.unannotate(sch.func, sch._place(place), key)
    sch._record("unannotate", (place, key))


def _annotated_root(func: PrimFunc, key: str, value: Any) -> PrimFunc:
    """The function with an annotation of its root block, which is an attribute."""
    if key in (*KEYS, LAYOUT_FREE):
        refuse(f"annotate: {key!r} means nothing on the root block; expected another key")
    fault = annotation_fault(key, value, "root block")
    if fault is not None:
        refuse(f"annotate: {fault}")
    return replace(func, attrs=tuple({**dict(func.attrs), key: value}.items()))


def _unannotated_root(func: PrimFunc, key: str) -> PrimFunc:
    """The function without an attribute."""
    left = dict(func.attrs)
    if key not in left:
        have = ", ".join(left) or "none"
        refuse(f"unannotate: the root block has no annotation {key!r}; it has {have}")
    return replace(func, attrs=tuple(x for x in func.attrs if x[0] != key))
