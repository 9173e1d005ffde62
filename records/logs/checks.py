"""What is looked at before a workload of somebody else's is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from records.types import Workload

Check = Callable[[Workload], Workload]
"""The workload of a line as it may be stored. Raises RecordError for one whose text, by which it
would be tuned, is not of its key: the first that is stored stays."""


def without_text(workload: Workload) -> Workload:
    """Where nobody can tell what a text is of, none is taken."""
    return replace(workload, text=None)


def as_it_is(workload: Workload) -> Workload:
    """For entries of a store of one's own."""
    return workload
