"""What workers say is checked field by field."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from cluster_doubles import DEVICE

from measure.cluster.registry import Hello
from measure.cluster.wire import (
    LONGEST_ERROR,
    WireError,
    decode_hello,
    decode_result,
    decode_trace,
    encode_hello,
    encode_result,
)
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing

GOOD = MeasureResult(
    Status.OK, timing=Timing(1e-3, 2e-3, 0.1, 0.2, 3, (1e-3, 2e-3), (1.5e-3,)), build_seconds=0.1,
    program_hash="ab",
)  # fmt: skip
BAD = MeasureResult(Status.RUN_TIMEOUT, "not done within 10 s", build_seconds=0.1, retries=1)
HELLO = Hello(DEVICE, "llvm -num-cores=1", "tools 1", 1e-3)


@pytest.mark.parametrize("result", [GOOD, BAD])
def test_wire_results_come_back(result: MeasureResult) -> None:
    assert decode_result(json.loads(json.dumps(encode_result(result)))) == result


def test_wire_introductions_come_back() -> None:
    assert decode_hello(json.loads(json.dumps(encode_hello(HELLO)))) == HELLO


def test_wire_long_errors_lose_their_middle() -> None:
    raw = encode_result(MeasureResult(Status.BUILD_ERROR, "a" * 50_000 + "the end"))
    found = decode_result(raw)
    assert len(found.error) <= LONGEST_ERROR
    assert found.error.endswith("the end")


def test_wire_errors_hold_what_can_be_sent() -> None:
    raw = encode_result(MeasureResult(Status.BUILD_ERROR, "no file a\udc80"))
    assert raw["error"] == "no file a\\udc80"
    assert encode_result(decode_result(raw)) == raw


@pytest.mark.parametrize(
    "change",
    [
        {"timing": None},
        {"timing": [1.0]},
        {"timing": {}},
        {"status": "splendid"},
        {"status": None},
        {"status": "run_timeout"},
        {"error": "x" * 100_000},
        {"error": None},
        {"program_hash": "x" * 2000},
        {"program_hash": "x\0"},
        {"program_hash": "\ud800"},
        {"retries": -1},
        {"more": 1},
    ],
    ids=str,
)
def test_wire_malformed_results_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        decode_result({**encode_result(GOOD), **change})


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"seconds": -1.0},
        {"seconds": 0.0},
        {"seconds": 5e-324},
        {"seconds": None},
        {"seconds": "1"},
        {"seconds": True},
        {"runs": 0},
        {"runs": 1.5},
        {"runs": 2**31},
        {"samples": [1.0] * 200_000},
        {"samples": [math.nan]},
        {"samples": "1"},
        {"blocks": [-1.0]},
        {"more": 1},
    ],
    ids=str,
)
def test_wire_malformed_times_are_refused(change: dict[str, Any]) -> None:
    raw = encode_result(GOOD)
    with pytest.raises(WireError, match="a result's times"):
        decode_result({**raw, "timing": {**raw["timing"], **change}})


@pytest.mark.parametrize("raw", [None, 3, "text", [], {}, {"status": "ok"}])
def test_wire_what_is_no_result_is_refused(raw: Any) -> None:
    for decode in (decode_result, decode_hello, decode_trace):
        with pytest.raises(WireError):
            decode(raw)


def test_wire_another_protocol_says_what_to_do() -> None:
    with pytest.raises(WireError, match=r"speaks protocol 3, .*run the same version"):
        decode_hello({"protocol": 3, "something": "new"})
    raw = encode_hello(HELLO)
    with pytest.raises(WireError, match="cores of a device is -1"):
        decode_hello({**raw, "device": {**raw["device"], "cores": -1}})
    with pytest.raises(WireError, match="a target that is none: unknown target kind 'nonsense'"):
        decode_hello({**raw, "target": "nonsense"})
