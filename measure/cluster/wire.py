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
from measure.status import Distribution, MeasureResult, Status
from measure.timing.timing import Timing

PROTOCOL = 1
"""Version of everything in this module."""
LONGEST_ERROR = 16_384
LONGEST_TEXT = 1_000
LONGEST_HASH = 128
MOST_SAMPLES = 100_000
LONGEST_SECONDS = 1e12
"""More than any time of day. A larger integer may have no float."""
LARGEST_COUNT = 2**31 - 1
"""What a column of a database holds: what cannot be recorded would end the search."""

JsonDict = dict[str, Any]


class WireError(MeasureError):
    """An answer that is not as agreed: the worker that gave it is not to be believed."""


def encode_result(result: MeasureResult) -> JsonDict:
    """A result as JSON values; errors longer than LONGEST_ERROR lose their middle."""
    return _encoded(result, *_TIMED, "samples")


def encode_distribution(timing: Distribution) -> JsonDict:
    """A finalist's timings as JSON values."""
    return _encoded(timing, *_TIMED, "rounds")


def encode_hello(hello: Hello) -> JsonDict:
    """What a worker says of itself, as JSON values."""
    return {**_encoded(hello), "device": _encoded(hello.device), "protocol": PROTOCOL}


def _encoded(value: Any, *timed: str) -> JsonDict:
    """Its fields, with these parts of its timing in that one's place."""
    out = {k: getattr(value, k) for k in (*vars(value), *timed) if k != "timing"}
    if timed:
        out |= {"status": str(value.status), "error": shortened(value.error)}
    return {k: list(v) if type(v) is tuple else v for k, v in out.items()}


def shortened(error: str) -> str:
    """At most LONGEST_ERROR characters, all of which can be sent (a file's name may hold others);
    what went wrong stands at the two ends of a text."""
    error = error.encode(errors="backslashreplace").decode()
    if len(error) <= LONGEST_ERROR:
        return error
    half = LONGEST_ERROR // 2 - 32
    return f"{error[:half]}\n[… {len(error) - 2 * half} characters …]\n{error[-half:]}"


def _text(limit: int) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, str) and len(v) <= limit


def _is_hash(value: Any) -> bool:
    """Whether it is text that any database stores."""
    return (
        isinstance(value, str)
        and len(value) <= LONGEST_HASH
        and value.isascii()
        and value.isprintable()
    )


def is_seconds(value: Any) -> bool:
    """Whether it is a number from 0 to LONGEST_SECONDS."""
    kind = type(value)
    return (kind is float or kind is int) and 0 <= value <= LONGEST_SECONDS


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


def _maybe_seconds(value: Any) -> bool:
    return value is None or is_seconds(value)


_NUMBERS = {int, float}
_TIMED = frozenset({"seconds", "raw_seconds", "spread", "noise", "runs"})
"""Parts of a timing that every answer has."""
_STATUSES = {str(status): status for status in Status}
_COMMON: dict[str, Callable[[Any], bool]] = {
    "status": lambda v: isinstance(v, str) and v in _STATUSES,
    "error": _text(LONGEST_ERROR),
    "seconds": _maybe_seconds,
    "raw_seconds": _maybe_seconds,
    "spread": _maybe_seconds,
    "noise": _maybe_seconds,
    "runs": is_count,
}
_RESULT = _COMMON | {
    "samples": _times,
    "build_seconds": is_seconds,
    "queue_seconds": is_seconds,
    "run_wall_seconds": is_seconds,
    "verify_seconds": is_seconds,
    "program_hash": _is_hash,
    "started_at": is_seconds,
    "finished_at": is_seconds,
    "retries": is_count,
}
_DISTRIBUTION = _COMMON | {"rounds": _times, "level": _text(LONGEST_TEXT)}
_DEVICE: dict[str, Callable[[Any], bool]] = {
    "model": _text(LONGEST_TEXT),
    "arch": _text(LONGEST_TEXT),
    "cores": is_count,
    "caches": lambda v: is_list(v) and len(v) < 100 and all(map(_text(LONGEST_TEXT), v)),
    "features": _text(LONGEST_TEXT),
}
_HELLO: dict[str, Callable[[Any], bool]] = {
    "protocol": is_count,
    "device": lambda v: isinstance(v, dict),
    "target": _text(10 * LONGEST_TEXT),
    "toolchain": _text(LONGEST_TEXT),
    "canary_seconds": is_seconds,
}


def _checked(raw: Any, what: str, form: Mapping[str, Callable[[Any], bool]]) -> JsonDict:
    if not isinstance(raw, dict):
        raise WireError(f"expected {what}, found {type(raw).__name__}")
    if raw.keys() != form.keys():
        odd = sorted(map(str, raw.keys() ^ form.keys()))
        raise WireError(f"expected {what} with {', '.join(form)}; missing or unknown: {odd[:8]}")
    for name, check in form.items():
        if not check(raw[name]):
            raise WireError(f"{what} has {name} = {repr(raw[name])[:80]}")
    return raw


def _timed(raw: JsonDict, what: str) -> JsonDict:
    """Times belong to `ok`, and to nothing else."""
    status = _STATUSES[raw["status"]]
    missing = (raw["seconds"], raw["raw_seconds"], raw["spread"], raw["noise"]).count(None)
    if status is Status.OK:
        if missing or not raw["seconds"]:
            raise WireError(f"{what} is ok and has seconds {raw['seconds']}")
    elif missing < 4:
        raise WireError(f"{what} is {status} and has times")
    found = {**raw, "status": status}
    timing = {name: found.pop(name) for name in _TIMED}
    for name, part in (("samples", "samples"), ("rounds", "blocks")):
        if name in found:
            timing[part] = tuple(found.pop(name))
    found["timing"] = Timing(**timing) if status is Status.OK else None
    return found


def decode_result(raw: Any) -> MeasureResult:
    """What `encode_result` made. Raises WireError."""
    found = _timed(_checked(raw, "a result", _RESULT), "a result")
    if found["timing"] is not None and found["timing"].runs < 1:
        raise WireError("a result is ok and has runs 0")
    return MeasureResult(**found)


def decode_distribution(raw: Any) -> Distribution:
    """What `encode_distribution` made. Raises WireError."""
    found = _timed(_checked(raw, "a timing", _DISTRIBUTION), "a timing")
    return Distribution(**found)


def decode_hello(raw: Any) -> Hello:
    """What `encode_hello` made. Raises WireError."""
    spoken = raw.get("protocol") if isinstance(raw, dict) else None
    if spoken != PROTOCOL:
        raise WireError(
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
