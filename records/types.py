"""The values that stores and logs hold: workloads, jobs, records and measurements.

All are frozen and carry the columns of the tables that bear their names (`schema.py`); a record's
trace stands inline. Sequences and mappings in them are JSON data and are not to be modified.
Times are in seconds, timestamps are timezone-aware and in UTC.
"""

from __future__ import annotations

import json
import math
import reprlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple, TypedDict, get_args

from records.errors import RecordError

TRIAL = "trial"
BASELINE = "baseline"
KINDS = (TRIAL, BASELINE)

LOCAL = "local"
IMPORT = "import"
ORIGINS = (LOCAL, IMPORT)

OK = "ok"
STALE = "stale"
"""A record whose replay gives another program than was measured: reported, never used."""

Status = Literal[
    "ok",
    "instantiation_error",
    "build_error",
    "build_timeout",
    "runtime_error",
    "run_timeout",
    "wrong_result",
    "out_of_bounds",
    "out_of_memory",
    "device_lost",
    "cancelled",
    "stale",
]
STATUSES: tuple[str, ...] = get_args(Status)

QUEUED, RUNNING, CANCELLING = "queued", "running", "cancelling"
PAUSING, PAUSED = "pausing", "paused"
HELD = (RUNNING, PAUSING, CANCELLING)
"""States in which a process may be working on a job."""
ENDED = ("succeeded", "failed", "cancelled")
JOB_STATES = (QUEUED, RUNNING, PAUSING, PAUSED, CANCELLING, *ENDED)

STATE, PHASE = "state", "phase"
"""The kinds of the events that tell of a job's states, and of the phases of one that runs."""

PREPARING = ("starting", "space", "reference", "baselines")
PHASES = (*PREPARING, "searching", "finalists")
"""What a running job is at: its process starts, the search space is built, the untransformed
program gives the reference, the baselines are timed; then trials, then the finalists again."""

BASELINE_ROUND = -1
"""The round of all baselines of a job: they are measured before round 0 and are not trials."""


def utcnow() -> datetime:
    """The current time, aware, in UTC."""
    return datetime.now(UTC)


def new_job_id() -> str:
    """A job id that no other machine makes: 32 hexadecimal digits.

    Job ids travel in logs, and (job, round, slot) names a record across stores.
    """
    return uuid.uuid4().hex


class RecordKey(NamedTuple):
    """What names a record in every store and log."""

    job_id: str
    round: int
    slot: int


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A computation: `key` is the hash of `script`, its canonical text.

    `text` is the script that `autosched.script.parse` makes the computation of, with its own names;
    None where a version of autosched that did not keep it has stored the workload. `name` and
    `args` (JSON data) are the registered function and its arguments from which the workload can be
    built again; `args` is None where it is known by its script alone. `flop` is the number of
    floating-point operations of one run.
    """

    key: str
    name: str
    script: str
    text: str | None = None
    args: Sequence[Any] | None = None
    flop: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Job:
    """A tuning job. The database's clock sets `created_at`, `updated_at` and `claimed_at`, when it
    was last taken up.

    `best_seconds` and `best_record_id` are its best by the rules of `ranking.py`: re-measured where
    anything was, baselines included; `baseline_seconds` its fastest baseline. None without any.
    `device` is None until a device is chosen. Imported jobs (`origin`) only carry their records:
    they are never found for resuming, and their seed is unknown (None). Clients take turns, and of
    one client's queued jobs those of the highest `priority` are claimed first, none before its
    `not_before`; the lease says who works on one (`leases.py`).

    Jobs of a batch (`batch_id`) are worked on by one process, on one budget of trials;
    `device_part` is the part of that process's time that counts for one.
    `name` and `tags` are its submitter's, `token_id` that of the token it was submitted with. A
    running job has a `phase`. `notice` says what its state does not: why it ended with fewer trials
    than were asked for, that nothing was gained. `run_seconds`: how long it was worked on, without
    the run that goes on. `pool` names the server's pool that is to measure; None: any that fits.
    """

    id: str
    workload_key: str
    target: str
    device: str | None
    seed: int | None
    options: Mapping[str, Any]
    state: str
    trials_requested: int
    trials_done: int
    error: str | None
    origin: str
    created_at: datetime
    updated_at: datetime
    priority: int = 0
    client: str = ""
    best_seconds: float | None = None
    claimed_at: datetime | None = None
    lease_owner: str | None = None
    lease_epoch: int = 0
    lease_until: datetime | None = None
    name: str | None = None
    tags: Sequence[str] = ()
    phase: str | None = None
    notice: str | None = None
    best_record_id: int | None = None
    baseline_seconds: float | None = None
    run_seconds: float = 0.0
    not_before: datetime | None = None
    ended_at: datetime | None = None
    token_id: str | None = None
    batch_id: str | None = None
    device_part: float = 1.0
    pool: str | None = None


class SubmissionKey(NamedTuple):
    """By what a client knows a request again that it repeats: of one `client` and `key` there is
    one job. `digest` is a hash of the whole request, which tells a repeated one from another."""

    client: str
    key: str
    digest: str


def state_event(reason: str, job: Mapping[str, Any]) -> dict[str, Any]:
    """What the event of a job's new state says; `job` has the job's columns."""
    return {"reason": reason} | {name: job.get(name) for name in _TOLD}


_TOLD = (
    *("state", "error", "notice", "trials_done", "trials_requested"),
    *("best_seconds", "best_record_id", "baseline_seconds"),
)


class Lease(NamedTuple):
    """The right to work on a job: that of its `epoch`, which each claim raises."""

    job_id: str
    epoch: int


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened to a job; ids grow in the order in which a job's events happened."""

    id: int
    job_id: str
    kind: str
    data: Mapping[str, Any]
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class CurvePoint:
    """A trial that was faster than all before it: the `trial`-th of its job, counted from 1."""

    trial: int
    record_id: int
    seconds: float
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Record:
    """One trial or baseline of a job, measured or failed.

    - `id` is given by the store; in a log it is the number of the line. 0: not stored yet.
    - `round`, `slot`: where the search proposed it. All baselines are in round -1.
    - `device`: fingerprint of the device; `toolchain`: version of what built the program.
    - `trace` (JSON data) with the integers of `decisions` filled in is the schedule; `dialect` is
      the version of the trace's instruction set; `program_hash` names the scheduled program.
    - `seconds`: median of the trial's `runs`; finite and positive if `status` is ok.
      `spread`: seconds between their quartiles. `noise`: estimated relative error of `seconds`.
    - `error`: the full text of what went wrong, None if nothing did.
    - `remeasured_seconds`: median of the measurements made here after the trial; None without.
    """

    job_id: str
    kind: str
    round: int
    slot: int
    workload_key: str
    target: str
    device: str
    status: str
    trace: Sequence[Any]
    decisions: Mapping[str, int]
    program_hash: str
    seconds: float | None = None
    error: str | None = None
    spread: float | None = None
    noise: float | None = None
    runs: int = 0
    build_seconds: float | None = None
    toolchain: str = ""
    dialect: int = 1
    origin: str = LOCAL
    created_at: datetime = field(default_factory=utcnow)
    remeasured_seconds: float | None = None
    id: int = 0

    def __post_init__(self) -> None:
        _one_of("kind", self.kind, KINDS)
        _one_of("status", self.status, STATUSES)
        _one_of("origin", self.origin, ORIGINS)
        if (self.round != BASELINE_ROUND) if self.kind == BASELINE else (self.round < 0):
            raise RecordError(
                f"round {self.round} of a {self.kind}: trials count rounds from 0, and baselines "
                f"are in round {BASELINE_ROUND}"
            )
        if self.slot < 0:
            raise RecordError(f"slot {self.slot}: slots count from 0")
        if self.status == OK:
            _positive("seconds of an ok record", self.seconds)
        _finite("seconds", self.seconds)
        _finite("spread", self.spread)
        _finite("noise", self.noise)
        _finite("build_seconds", self.build_seconds)
        _finite("runs", self.runs)
        _aware("created_at of a record", self.created_at)
        if self.error is not None:
            object.__setattr__(self, "error", error_text(self.error))

    @property
    def key(self) -> RecordKey:
        return RecordKey(self.job_id, self.round, self.slot)

    def stored_as(self, record_id: int, origin: str | None = None) -> Record:
        """This record as a store has it first: under that id, and not measured again.

        What `replace` does, without checking again what cannot have changed, which takes twenty
        times as long.
        """
        stored = object.__new__(Record)
        stored.__dict__.update(self.__dict__, id=record_id, remeasured_seconds=None)
        if origin is not None:
            stored.__dict__["origin"] = origin
        return stored

    @property
    def final_seconds(self) -> float | None:
        """The time to compare by: of the re-measurements if there are any, else the trial's."""
        return self.seconds if self.remeasured_seconds is None else self.remeasured_seconds


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A repeated timing of a valid record on its own device, made after the trial.

    `seconds`, `spread`, `noise` and `runs` mean what they mean for a record. Only measurements
    of local origin decide which record is the best.
    """

    seconds: float
    spread: float | None = None
    noise: float | None = None
    runs: int = 0
    origin: str = LOCAL
    created_at: datetime = field(default_factory=utcnow)
    record_id: int = 0
    id: int = 0

    def __post_init__(self) -> None:
        _one_of("origin", self.origin, ORIGINS)
        _positive("seconds of a measurement", self.seconds)
        _finite("spread", self.spread)
        _finite("noise", self.noise)
        _finite("runs", self.runs)
        _aware("created_at of a measurement", self.created_at)

    @property
    def identity(self) -> tuple[datetime, float]:
        """What two measurements of one record have in common if they are one."""
        return self.created_at, self.seconds


class Filters(TypedDict, total=False):
    """What `records(...)` can select by; a filter that is None or left out selects all."""

    workload_key: str | None
    target: str | None
    device: str | None
    status: str | None
    job_id: str | None
    kind: str | None
    limit: int | None
    after_id: int | None


class Page(NamedTuple):
    """Some records, and the `after_id` at which to go on; None: there are no more."""

    records: list[Record]
    after_id: int | None


class JobPage(NamedTuple):
    """Some jobs, and the `before` at which to go on; None: there are no more."""

    jobs: list[Job]
    before: str | None


class JobChanges(TypedDict, total=False):
    """What `update_job` can set."""

    state: str
    device: str
    options: Mapping[str, Any]
    trials_requested: int
    trials_done: int
    error: str | None
    notice: str | None
    phase: str | None


def canonical_json(value: object) -> str:
    """The one JSON text of a value: sorted keys, no spaces, and no NaN, which is not JSON."""
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as e:
        raise RecordError(f"not JSON data ({e}): {reprlib.repr(value)[:200]}") from e


# A circle ends in a RecursionError as well, and looking for one takes longer than the rest.
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False
).encode


ERROR_LENGTH = 64 << 10
"""Characters of an error's text that are kept: the longest messages of compilers."""


def shortened(text: str, most: int) -> str:
    """`text`, or its beginning and its end, where compilers and tracebacks say what was wrong."""
    if len(text) <= most:
        return text
    half = most // 2 - 40
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


def error_text(text: str) -> str:
    """An error as it is stored: not all of it, where it is long."""
    return storable_text(shortened(text, ERROR_LENGTH))


def quoted_text(text: str) -> str:
    """A text of others inside lines of ours: what would steer a terminal stands as an escape, and
    lines after the first are indented, so that none passes for one of ours."""
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    return "\n  ".join(
        "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in line)
        for line in lines
    )


def storable_text(text: str) -> str:
    """`text` with what no database stores (NUL, lone surrogates) written as escapes."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise RecordError(f"{what} {value!r}: expected one of {', '.join(known)}")


def _positive(what: str, seconds: float | None) -> None:
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        raise RecordError(f"{what}: expected a positive number, found {seconds!r}")


def _finite(what: str, value: float | None) -> None:
    if value is not None and not 0 <= value < math.inf:
        raise RecordError(f"{what}: expected a number that is finite and not negative: {value!r}")


def _aware(what: str, time: datetime) -> None:
    if time.tzinfo is None:
        raise RecordError(f"{what}: {time.isoformat()} has no time zone; use datetime.now(UTC)")
