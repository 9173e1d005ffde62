"""Records as the search sees them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from autosched.schedule.portable import encode_trace, trace_text
from autosched.schedule.trace import DIALECT
from autosched.search.evolution import UNTOLD, Measured
from autosched.sketch.space import Space
from autosched.tir.canonical import of_this_version
from records import OK, Record
from records.types import LOCAL


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
        """The variant that a record is of; None for one that is not in the space, or whose trace
        or hash is of another version: it may mean anything."""
        if record.dialect != DIALECT or not of_this_version(record.program_hash):
            return None
        known = self._by_id.get(id(record.trace))
        return self._by_text.get(trace_text(record.trace)) if known is None else known

    def shared(self, record: Record) -> Record:
        """The record with the trace that all records of its variant share, if it has a variant."""
        variant = self.variant(record)
        return record if variant is None else replace(record, trace=self.traces[variant])

    def measured(self, records: Iterable[Record]) -> list[Measured]:
        """Those of a job's own records that are candidates of the space, in their order."""
        return self._held((r, r.round, r.slot, True) for r in records)

    def preloaded(
        self, records: Iterable[Record], round: int, device: str | None
    ) -> list[Measured]:
        """The same of other jobs', all in one round. What was cancelled, lost, measured elsewhere
        (on another device than `device`, where given) or imported is still to be measured here."""
        return self._held((r, round, n, _is_known(r, device)) for n, r in enumerate(records))

    def _held(self, found: Iterable[tuple[Record, int, int, bool]]) -> list[Measured]:
        out: list[Measured] = []
        for r, round_, slot, here in found:
            variant = self.variant(r)
            if variant is not None:
                seconds = (r.seconds if r.status == OK else None) or math.inf
                values = dict(r.decisions)
                out.append(Measured(round_, slot, variant, values, r.status, seconds, here))
        known = self.space.holds([(m.variant, m.values) for m in out])
        return [m for m, there in zip(out, known.tolist(), strict=True) if there]


def _is_known(record: Record, device: str | None) -> bool:
    own = record.origin == LOCAL or record.remeasured_seconds is not None
    return own and device in (None, record.device) and record.status not in UNTOLD
