"""What pools and workers say to each other: JSON values, and nothing taken on trust.

Requests carry programs as script and candidates as traces in JSON. Whatever a worker answers is
checked field by field; the first thing that is not as agreed makes a `WireError`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autosched.errors import AutoschedError, MeasureError, ScheduleError, TargetError
from autosched.schedule import Trace
from autosched.target import Target
from measure.cluster.registry import Hello
from measure.devices import Device
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing

PROTOCOL = 2
"""Version of everything in this module."""
LONGEST_ERROR = 16_384
LONGEST_TEXT = 1_000
LONGEST_HASH = 128
MOST_SAMPLES = 100_000
SHORTEST_SECONDS = 1e-12
"""No run of a program takes less; its rate would leave the range of a double."""
LONGEST_SECONDS = 1e12
"""More than any time of day. A larger integer may have no float."""
LARGEST_COUNT = 2**31 - 1
"""What a column of a database holds: what cannot be recorded would end the search."""

JsonDict = dict[str, Any]
Check = Callable[[Any], bool]


class WireError(MeasureError):
    """An answer that is not as agreed: the worker that gave it is not to be believed."""


class OtherProtocol(WireError):
    """A worker of another version, which stays one until it is started again."""


def encode_result(result: MeasureResult) -> JsonDict:
    """A result as JSON values; errors longer than LONGEST_ERROR lose their middle."""
    timing = None if result.timing is None else _encoded(result.timing, _TIMING)
    texts = {"status": str(result.status), "error": shortened(result.error)}
    return {**_encoded(result, _RESULT), **texts, "timing": timing}


def encode_hello(hello: Hello) -> JsonDict:
    """What a worker says of itself, as JSON values."""
    return {**vars(hello), "device": _encoded(hello.device, _DEVICE), "protocol": PROTOCOL}


def _encoded(value: Any, form: Mapping[str, Check]) -> JsonDict:
    """What a form has of a value."""
    fields = {name: getattr(value, name) for name in form}
    return {name: list(v) if type(v) is tuple else v for name, v in fields.items()}


def shortened(error: str) -> str:
    """At most LONGEST_ERROR characters, all of which can be sent (a file's name may hold others);
    what went wrong stands at the two ends of a text."""
    error = error.encode(errors="backslashreplace").decode()
    if len(error) <= LONGEST_ERROR:
        return error
    half = LONGEST_ERROR // 2 - 32
    return f"{error[:half]}\n[… {len(error) - 2 * half} characters …]\n{error[-half:]}"


def _text(limit: int) -> Check:
    return lambda v: isinstance(v, str) and len(v) <= limit


def _is_hash(value: Any) -> bool:
    """Whether it is text that any database stores."""
    return _text(LONGEST_HASH)(value) and value.isascii() and value.isprintable()


def is_seconds(value: Any) -> bool:
    """Whether it is a number from 0 to LONGEST_SECONDS."""
    return type(value) in _NUMBERS and 0 <= value <= LONGEST_SECONDS


def is_count(value: Any) -> bool:
    """Whether it is an integer from 0 to LARGEST_COUNT."""
    return type(value) is int and 0 <= value <= LARGEST_COUNT


def is_list(value: Any) -> bool:
    """Whether it is a list; some carriers make tuples of them."""
    return type(value) is list or type(value) is tuple


def _times(value: Any) -> bool:
    if not is_list(value) or len(value) > MOST_SAMPLES or not set(map(type, value)) <= _NUMBERS:
        return False
    # The sum of what holds a NaN is one, and no comparison with it is true.
    return not value or (min(value) >= 0 and sum(value) <= LONGEST_SECONDS)


_NUMBERS = {int, float}
_STATUSES = {str(status): status for status in Status}
_TIMING: dict[str, Check] = {
    "seconds": lambda v: is_seconds(v) and v >= SHORTEST_SECONDS,
    "raw_seconds": is_seconds,
    "spread": is_seconds,
    "noise": is_seconds,
    "runs": lambda v: is_count(v) and v > 0,
    "samples": _times,
    "blocks": _times,
}
_RESULT: dict[str, Check] = {
    "status": lambda v: isinstance(v, str) and v in _STATUSES,
    "error": _text(LONGEST_ERROR),
    "timing": lambda v: v is None or isinstance(v, dict),
    "build_seconds": is_seconds,
    "queue_seconds": is_seconds,
    "run_wall_seconds": is_seconds,
    "verify_seconds": is_seconds,
    "program_hash": _is_hash,
    "retries": is_count,
}
_DEVICE: dict[str, Check] = {
    "model": _text(LONGEST_TEXT),
    "arch": _text(LONGEST_TEXT),
    "cores": is_count,
    "caches": lambda v: is_list(v) and len(v) < 100 and all(map(_text(LONGEST_TEXT), v)),
    "features": _text(LONGEST_TEXT),
}
_HELLO: dict[str, Check] = {
    "protocol": is_count,
    "device": lambda v: isinstance(v, dict),
    "target": _text(10 * LONGEST_TEXT),
    "toolchain": _text(LONGEST_TEXT),
    "canary_seconds": is_seconds,
}


def _checked(raw: Any, what: str, form: Mapping[str, Check]) -> JsonDict:
    if not isinstance(raw, dict):
        raise WireError(f"expected {what}, found {type(raw).__name__}")
    if raw.keys() != form.keys():
        odd = sorted(map(str, raw.keys() ^ form.keys()))
        raise WireError(f"expected {what} with {', '.join(form)}; missing or unknown: {odd[:8]}")
    for name, check in form.items():
        if not check(raw[name]):
            raise WireError(f"{name} of {what} is {repr(raw[name])[:80]}")
    return raw


def decode_result(raw: Any) -> MeasureResult:
    """What `encode_result` made. Raises WireError."""
    found = _checked(raw, "a result", _RESULT)
    status, times = _STATUSES[found["status"]], found["timing"]
    if (times is not None) is not (status is Status.OK):
        raise WireError(f"a result is {status} and has {'no ' if times is None else ''}times")
    timing = None
    if times is not None:
        parts = _checked(times, "a result's times", _TIMING)
        lists = {name: tuple(parts[name]) for name in ("samples", "blocks")}
        timing = Timing(**{**parts, **lists})
    return MeasureResult(**{**found, "status": status, "timing": timing})


def decode_hello(raw: Any) -> Hello:
    """What `encode_hello` made. Raises WireError."""
    spoken = raw.get("protocol") if isinstance(raw, dict) else None
    if spoken != PROTOCOL:
        raise OtherProtocol(
            f"the worker speaks protocol {repr(spoken)[:80]}, this pool {PROTOCOL}; "
            "run the same version of autosched on both sides"
        )
    found = dict(_checked(raw, "a worker's introduction", _HELLO))
    del found["protocol"]
    device = _checked(found["device"], "a device", _DEVICE)
    try:
        Target(found["target"])
    except TargetError as e:  # whoever asks for nothing else would be told so in the end
        raise WireError(f"a worker recommends itself for a target that is none: {e}") from e
    found["device"] = Device(**{**device, "caches": tuple(device["caches"])})
    return Hello(**found)


def decode_trace(raw: Any) -> Trace:
    """A trace that a worker sent as JSON text. Raises WireError."""
    if not isinstance(raw, str):
        raise WireError(f"expected a trace in JSON, found {type(raw).__name__}")
    try:
        return Trace.from_json(raw)
    except ScheduleError as e:
        raise WireError(str(e)) from e


def explained(e: BaseException) -> str:
    """An error as one text: ours by their message, others with their kind."""
    text = str(e) if isinstance(e, AutoschedError) else f"{type(e).__name__}: {e}"
    return shortened(text or type(e).__name__)
