"""Records as the search sees them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from autosched.schedule.portable import encode_trace, trace_text
from autosched.search.evolution import Measured
from autosched.sketch.space import Space
from records import OK, Record


class Reading:
    """Finds the variants of one space by the traces of records."""

    def __init__(self, space: Space) -> None:
        traces = (encode_trace(space.func, v.trace) for v in space.variants)
        self._variants = {trace_text(trace): n for n, trace in enumerate(traces)}

    def variant(self, record: Record) -> int | None:
        """The variant that a record is of; None for one that is not in the space."""
        return self._variants.get(trace_text(record.trace))

    def measured(self, records: Iterable[Record], round: int | None = None) -> list[Measured]:
        """Those of the records that are in the space, in their order; with `round` they all count
        as measured in that one."""
        out: list[Measured] = []
        for n, r in enumerate(records):
            variant = self.variant(r)
            if variant is not None:
                at = (r.round, r.slot) if round is None else (round, n)
                seconds = (r.seconds if r.status == OK else None) or math.inf
                out.append(Measured(*at, variant, dict(r.decisions), r.status, seconds))
        return out
