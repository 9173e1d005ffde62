"""The lines of a log: encoding, and decoding that refuses with a reason.

A line is a JSON object: a workload, a trial or baseline, or a repeated measurement, by its `kind`.
Every line has the keys `v`, `kind`, `status`, `round`, `slot`, `workload_key`, `target`, `device`,
`seconds` and `error` (null where they mean nothing); the others bear the names of the tables'
columns, and the trace of a record stands inline. A record is named by `job_id`, `round` and `slot`.
Keys that are not known are left alone, so that later versions may add some.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, NoReturn

from records.errors import RecordError
from records.logs.predecessor import command_of, is_line
from records.types import (
    KINDS,
    OK,
    Measurement,
    Record,
    RecordKey,
    Workload,
    storable_text,
)

VERSION = 1

_HASHED = re.compile("1-[0-9a-f]{24}")
"""Keys of this version: 24 digits of the hash of the script (`autosched.tir.canonical`). Others are
taken as they are."""

WORKLOAD = "workload"
MEASUREMENT = "measurement"

_INT_LIMIT = 1 << 31  # what an INTEGER column of PostgreSQL holds
_DECISION_LIMIT = 1 << 63  # columns of populations are int64
_NAME = re.compile("[A-Za-z0-9_-]{1,64}")
_ASCII = re.compile("[ -~]*")
_FORMS: Mapping[str, tuple[re.Pattern[str], str]] = {
    **dict.fromkeys(("job_id", "key", "workload_key"), (_NAME, "1 to 64 letters, digits, - and _")),
    **dict.fromkeys(("target", "device", "program_hash"), (_ASCII, "printable ASCII text")),
}
"""What names things, in URLs and queries, too: what is stored must be found again."""
_LONGEST: Mapping[str, int] = {
    "target": 1000, "device": 1000, "program_hash": 128, "toolchain": 1000, "name": 1000,
}  # fmt: skip
"""Bytes of what indexes hold (PostgreSQL's have room for 2,700 a row), and of what lists show."""
_ARGS_LENGTH = 4000
"""Of an operator's arguments, which lists of jobs show."""
_DEEPEST = 64
"""Levels of JSON data. What is deeper may be read here and be too deep for who reads it next."""
_LEAST_SECONDS, _MOST_SECONDS = 1e-12, 1e12
"""Seconds of a program: beyond these, rates and the axes of figures leave the range of a double."""
_FIRST_YEAR, _LAST_YEAR = 1970, 9000  # in any time zone a time that Python can hold


@dataclass(frozen=True)
class LoggedMeasurement:
    """A repeated measurement as a log holds it: with what it was a measurement of."""

    of: RecordKey
    workload_key: str
    target: str
    device: str
    measurement: Measurement


Entry = Workload | Record | LoggedMeasurement
"""What one line holds."""

_COMMON: Mapping[str, Any] = dict.fromkeys(
    ("status", "round", "slot", "workload_key", "target", "device", "seconds", "error")
)

# Not on the wire: what follows from the lines of measurements, and ids inside one store.
_RECORD_FIELDS = tuple(f.name for f in fields(Record) if f.name != "remeasured_seconds")
_MEASUREMENT_FIELDS = tuple(
    f.name for f in fields(Measurement) if f.name not in ("id", "record_id")
)


def logged(record: Record, measurement: Measurement) -> LoggedMeasurement:
    """A repeated measurement of `record`, for a log."""
    return LoggedMeasurement(
        record.key, record.workload_key, record.target, record.device, measurement
    )


def encode_line(entry: Entry) -> bytes:
    """One line, with its line feed. Raises RecordError if a trace is not JSON data."""
    match entry:
        case Workload():
            values = {f.name: getattr(entry, f.name) for f in fields(entry)}
            return _line(kind=WORKLOAD, workload_key=entry.key, **values)
        case Record():
            return _line(**{name: getattr(entry, name) for name in _RECORD_FIELDS})
        case LoggedMeasurement():
            return _line(
                kind=MEASUREMENT,
                status=OK,
                **entry.of._asdict(),
                workload_key=entry.workload_key,
                target=entry.target,
                device=entry.device,
                **{name: getattr(entry.measurement, name) for name in _MEASUREMENT_FIELDS},
            )


def _line(**values: Any) -> bytes:
    if (time := values.get("created_at")) is not None:
        values["created_at"] = time.astimezone(UTC).isoformat()
    head = {"v": VERSION, "kind": values.pop("kind"), **_COMMON}
    try:
        text = json.dumps(head | values, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise RecordError(f"not JSON data ({e}): {reprlib.repr(values)[:200]}") from e
    return text.encode("ascii") + b"\n"


def decode_line(line: bytes) -> Entry:
    """What a line holds. Raises RecordError with the reason if it cannot be used."""
    try:
        data = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as e:
        raise RecordError(f"not JSON: {str(e)[:100]}") from e
    if not isinstance(data, dict) or "kind" not in data or "v" not in data:
        if is_line(data):
            command = command_of(data)
            raise RecordError(
                "a line of TVM's auto_scheduler, whose steps are not those of this package: tune "
                f"the workload again{'' if command is None else f', {command}'}"
            )
        raise RecordError("not a line of a log of records: no keys 'v' and 'kind'")
    if data["v"] != VERSION:
        raise RecordError(f"format version {str(data['v'])[:20]!r}; this package reads {VERSION}")
    match kind := data["kind"]:
        case "workload":
            return _workload(_Values(data))
        case "measurement":
            return _measurement(_Values(data))
        case _ if kind in KINDS:
            return _record(_Values(data))
    raise RecordError(f"unknown kind {str(kind)[:20]!r}")


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


class _Values:
    """The values of a line by key, checked for their types."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data

    def text(self, key: str, default: str | None = None) -> str:
        value = self._data.get(key, default)
        if not isinstance(value, str):
            self._refuse(key, "a string")
        if value != storable_text(value):
            self._refuse(key, "text that can be stored")
        if key in _FORMS and not _FORMS[key][0].fullmatch(value):
            self._refuse(key, _FORMS[key][1])
        if key in _LONGEST and not value.isprintable():
            self._refuse(key, "printable text")  # nothing that steers a terminal that shows it
        if key in _LONGEST and len(value.encode()) > _LONGEST[key]:
            self._refuse(key, f"at most {_LONGEST[key]} bytes")
        return value

    def optional_text(self, key: str) -> str | None:
        value = self._data.get(key)
        if value is not None and not isinstance(value, str):
            self._refuse(key, "a string or null")
        return value

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._data.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= _INT_LIMIT:
            self._refuse(key, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.optional_number(key)
        if value is None:
            value = default
        if value is None:
            self._refuse(key, "a number")
        return value

    def optional_number(self, key: str) -> float | None:
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            self._refuse(key, "a number or null")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self._refuse(key, "a finite number")
        return number

    def optional_seconds(self, key: str) -> float | None:
        """The time of one run of a program. What is not positive is for `types.py` to judge."""
        value = self.optional_number(key)
        if value is not None and value > 0 and not _LEAST_SECONDS <= value <= _MOST_SECONDS:
            self._refuse(key, f"seconds from {_LEAST_SECONDS} to {_MOST_SECONDS}")
        return value

    def array(self, key: str, most: int | None = None) -> list[Any]:
        value = self._data.get(key)
        if not isinstance(value, list):
            self._refuse(key, "an array")
        if not _is_shallow(value):
            self._refuse(key, f"at most {_DEEPEST} levels")
        if most is not None and len(json.dumps(value)) > most:
            self._refuse(key, f"at most {most} characters as JSON")
        return value

    def integers(self, key: str) -> dict[str, int]:
        value = self._data.get(key)
        if not isinstance(value, dict) or not all(type(n) is int for n in value.values()):
            self._refuse(key, "an object of integers")
        if not all(abs(n) < _DECISION_LIMIT for n in value.values()):
            self._refuse(key, "integers of 64 bits")
        if any(name != storable_text(name) for name in value):
            self._refuse(key, "names that can be stored")
        return value

    def time(self, key: str) -> datetime:
        try:
            time = datetime.fromisoformat(self.text(key))
        except ValueError:
            self._refuse(key, "a time in ISO 8601")
        if not _FIRST_YEAR < time.year < _LAST_YEAR:
            self._refuse(key, f"a year from {_FIRST_YEAR + 1} to {_LAST_YEAR - 1}")
        return time

    def present(self, key: str) -> bool:
        return self._data.get(key) is not None

    def require(self, *keys: str) -> None:
        if missing := [key for key in keys if key not in self._data]:
            raise RecordError(f"no {', '.join(missing)}")

    def _refuse(self, key: str, expected: str) -> NoReturn:
        found = "nothing" if key not in self._data else repr(self._data[key])[:60]
        raise RecordError(f"{key}: expected {expected}, found {found}")


def _is_shallow(value: list[Any]) -> bool:
    """Whether JSON data has at most _DEEPEST levels."""
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for one in level:
            inner += one.values() if type(one) is dict else one
        level = [one for one in inner if type(one) in (list, dict)]
        if not level:
            return True
    return False


def _workload(values: _Values) -> Workload:
    key, script = values.text("key"), values.text("script")
    if _HASHED.fullmatch(key) and key[2:] != hashlib.sha256(script.encode()).hexdigest()[:24]:
        # Else anyone could take the key, and the true workload would be refused from then on.
        raise RecordError(f"workload {key}: the key is not the hash of the script")
    return Workload(
        key=key,
        name=values.text("name"),
        script=script,
        text=values.text("text") if values.present("text") else None,
        args=values.array("args", _ARGS_LENGTH) if values.present("args") else None,
        flop=values.number("flop", 0.0),
    )


def _record(values: _Values) -> Record:
    values.require("seconds", "error")
    return Record(
        id=values.integer("id", 0),
        job_id=values.text("job_id"),
        kind=values.text("kind"),
        round=values.integer("round"),
        slot=values.integer("slot"),
        workload_key=values.text("workload_key"),
        target=values.text("target"),
        device=values.text("device"),
        toolchain=values.text("toolchain", ""),
        trace=values.array("trace"),
        dialect=values.integer("dialect", 1),
        decisions=values.integers("decisions"),
        program_hash=values.text("program_hash"),
        status=values.text("status"),
        error=values.optional_text("error"),
        seconds=values.optional_seconds("seconds"),
        spread=values.optional_number("spread"),
        noise=values.optional_number("noise"),
        runs=values.integer("runs", 0),
        build_seconds=values.optional_number("build_seconds"),
        origin=values.text("origin", "local"),
        created_at=values.time("created_at"),
    )


def _measurement(values: _Values) -> LoggedMeasurement:
    measurement = Measurement(
        seconds=values.optional_seconds("seconds") or values.number("seconds"),
        spread=values.optional_number("spread"),
        noise=values.optional_number("noise"),
        runs=values.integer("runs", 0),
        origin=values.text("origin", "local"),
        created_at=values.time("created_at"),
    )
    of = RecordKey(values.text("job_id"), values.integer("round"), values.integer("slot"))
    return LoggedMeasurement(
        of, values.text("workload_key"), values.text("target"), values.text("device"), measurement
    )
