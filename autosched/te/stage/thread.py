"""te.thread_axis: the GPU axes that a stage's loops are bound to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autosched.checks import shown
from autosched.errors import ScheduleError
from autosched.integers import as_int
from autosched.te.tensor import positive

TAGS = (*(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz"), "vthread")


@dataclass(frozen=True, eq=False, slots=True)
class ThreadAxis:
    """A GPU axis. `extent` is None where the loop that is bound to it decides."""

    tag: str
    extent: int | None
    name: str

    @property
    def var(self) -> ThreadAxis:
        """What conditions are on: `tx.var.equal(0)`."""
        return self

    def equal(self, value: Any) -> FirstThread:
        """The condition that a thread is the first along the axis, for `set_store_predicate`: value
        is 0."""
        if as_int(value) != 0:
            raise ScheduleError(
                f"{self.name}.equal({shown(value)}): expected 0; results are stored by the first "
                "thread along an axis"
            )
        return FirstThread(self)


@dataclass(frozen=True, eq=False, slots=True)
class FirstThread:
    """The threads that are the first along an axis."""

    axis: ThreadAxis


def thread_axis(dom: Any = None, tag: str = "", name: str = "") -> ThreadAxis:
    """A GPU axis to bind loops to: `te.thread_axis("threadIdx.x")`, `te.thread_axis(64,
    "threadIdx.x")`, `te.thread_axis((0, 64), "threadIdx.x")`.

    `tag` is blockIdx or threadIdx with .x, .y or .z, or "vthread": each such object is a virtual
    axis of its own. With a domain the loop must have its extent. Raises ScheduleError on another
    tag, TensorExprError on a domain that is none.
    """
    if isinstance(dom, str):
        dom, tag, name = None, dom, tag if isinstance(name, str) and not name else name
    if not isinstance(tag, str) or tag not in TAGS:
        raise ScheduleError(f"thread_axis: no tag {shown(tag)}; expected one of {', '.join(TAGS)}")
    if not isinstance(name, str):
        raise ScheduleError(f"thread_axis: name is {shown(name)}; expected a text")
    extent = None
    if dom is not None:
        begin, end = dom if isinstance(dom, (tuple, list)) and len(dom) == 2 else (0, dom)
        if as_int(begin) != 0:
            raise ScheduleError(f"thread_axis: a thread axis begins at 0; found {shown(begin)}")
        found = positive(end, f"extent of thread axis {tag}")
        if not isinstance(found, int):
            raise ScheduleError(f"thread_axis: the extent {found} is symbolic; give an int or none")
        extent = found
    return ThreadAxis(tag, extent, name or tag)
