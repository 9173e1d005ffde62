"""Which record is the best: the rules that stores and logs share.

A record is handed out only if it is ok and was measured here. The least of many noisy times is
biased, so once some trials of a workload on a device have been measured again, the best is
decided among these. Baselines always take part: nothing slower than they are is handed out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from records.errors import NoRecord, RecordError
from records.types import BASELINE, LOCAL, OK, Record, quoted_text


class Standing(IntEnum):
    """How far a record may be trusted to be the best; without one it is never handed out."""

    REMEASURED = 0
    BASELINE = 1
    ONCE = 2


def standing_of(record: Record) -> Standing | None:
    """The standing of `record`, None if it must not be handed out."""
    if record.status != OK or (record.origin != LOCAL and record.remeasured_seconds is None):
        return None
    if record.kind == BASELINE:
        return Standing.BASELINE
    return Standing.ONCE if record.remeasured_seconds is None else Standing.REMEASURED


class Candidate(NamedTuple):
    """A record that may be handed out; less is better, of one time the first."""

    seconds: float
    id: int
    standing: int


def candidate(record: Record) -> Candidate | None:
    """What `record` is in the choice of the best."""
    standing, seconds = standing_of(record), record.final_seconds
    return None if standing is None or seconds is None else Candidate(seconds, record.id, standing)


def pick(candidates: Collection[Candidate]) -> Candidate | None:
    """The best of `candidates`, which hold at least the first of each standing that there is."""
    decided = any(candidate.standing == Standing.REMEASURED for candidate in candidates)
    allowed = (c for c in candidates if not (decided and c.standing == Standing.ONCE))
    return min(allowed, default=None)


Scope = tuple[str, str]
"""A target and a device fingerprint."""


def choose_scope(
    workload_key: str,
    target: str | None,
    device: str | None,
    scopes: Sequence[Scope],
    has_candidate: Callable[[Scope], bool],
) -> Scope:
    """The only one of `scopes` (all with records of the workload) that fits what was asked for.

    Where several fit, the only one of these with a record that may be handed out: what was imported
    from elsewhere shall not come between a workload and its best. Raises NoRecord if there is none,
    and RecordError if there are several.
    """
    fitting = [(t, d) for t, d in scopes if target in (None, t) and device in (None, d)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise NoRecord(_nothing(workload_key, target, device, scopes))
    usable = [scope for scope in fitting if has_candidate(scope)]
    if len(usable) == 1:
        return usable[0]
    if not usable:
        raise NoRecord(
            f"no valid record of workload {workload_key} that was measured here; there are others "
            f"of:\n{_listing(fitting)}"
        )
    raise RecordError(
        f"records of workload {workload_key} are of several targets or devices; name one:\n"
        + _listing(usable)
    )


@dataclass
class Tally:
    """What a store or log holds of one workload, target and device that has no best record."""

    statuses: Counter[str] = field(default_factory=Counter)
    imported: int = 0
    """How many are ok, but were not measured here."""
    first_error: str | None = None


def no_record(workload_key: str, scope: Scope, tally: Tally, scopes: Sequence[Scope]) -> NoRecord:
    """The error that says why nothing is handed out for `workload_key` in `scope`."""
    if not tally.statuses:
        return NoRecord(_nothing(workload_key, *scope, scopes))
    total = tally.statuses.total()
    by_count = sorted(tally.statuses.items(), key=lambda item: (-item[1], item[0]))
    counts = ", ".join(f"{n} {status}" for status, n in by_count)
    lines = [
        f"no valid record of workload {workload_key} on target {scope[0]!r}, device {scope[1]!r}",
        f"{total} record{'s' if total != 1 else ''}: {counts}",
    ]
    if tally.imported:
        lines.append(
            f"{tally.imported} ok, but imported: these count once they are measured here, as "
            "`autosched records verify` does for those of this machine"
        )
    if set_aside := tally.statuses[OK] - tally.imported:
        lines.append(f"{set_aside} ok, but set aside by the caller")
    if tally.first_error is not None:
        lines.append(f"first error: {quoted_text(tally.first_error)}")
    return NoRecord("\n".join(lines))


def _nothing(
    workload_key: str, target: str | None, device: str | None, scopes: Sequence[Scope]
) -> str:
    wanted: Mapping[str, str | None] = {"target": target, "device": device}
    asked = ", ".join(f"{name} {value!r}" for name, value in wanted.items() if value is not None)
    text = f"no record of workload {workload_key}" + (f" on {asked}" if asked else "")
    if scopes:
        return f"{text}; there are records of:\n{_listing(scopes)}"
    return f"{text}, on any target or device"


def _listing(scopes: Sequence[Scope]) -> str:
    return "\n".join(f"  target {target!r}, device {device!r}" for target, device in scopes)
