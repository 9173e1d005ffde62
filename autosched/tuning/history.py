"""Records as the search sees them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from autosched.schedule.portable import encode_trace, trace_text
from autosched.search.evolution import Measured
from autosched.sketch.space import Space
from records import OK, Record


class Reading:
    """Finds the variants of one space by the traces of records.

    `traces[v]` is variant v's trace as records have it: the same object in all of them, since a
    trace is some ten thousand objects and a run has thousands of records.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.traces: list[Sequence[Any]] = [
            encode_trace(space.func, v.trace) for v in space.variants
        ]
        self._by_text = {trace_text(trace): n for n, trace in enumerate(self.traces)}
        self._by_id = {id(trace): n for n, trace in enumerate(self.traces)}

    def variant(self, record: Record) -> int | None:
        """The variant that a record is of; None for one that is not in the space."""
        known = self._by_id.get(id(record.trace))
        return self._by_text.get(trace_text(record.trace)) if known is None else known

    def shared(self, record: Record) -> Record:
        """The record with the trace that all records of its variant share, if it has a variant."""
        variant = self.variant(record)
        return record if variant is None else replace(record, trace=self.traces[variant])

    def measured(self, records: Iterable[Record], round: int | None = None) -> list[Measured]:
        """Those of the records that are candidates of the space, in their order; with `round` they
        all count as measured in that one."""
        out: list[Measured] = []
        for n, r in enumerate(records):
            variant = self.variant(r)
            if variant is not None:
                at = (r.round, r.slot) if round is None else (round, n)
                seconds = (r.seconds if r.status == OK else None) or math.inf
                out.append(Measured(*at, variant, dict(r.decisions), r.status, seconds))
        known = self.space.holds([(m.variant, m.values) for m in out])
        return [m for m, there in zip(out, known.tolist(), strict=True) if there]
