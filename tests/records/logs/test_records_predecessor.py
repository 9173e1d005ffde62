"""Lines of TVM's auto_scheduler are told apart, and say how to tune their workload here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from records.errors import RecordError
from records.logs.lines import decode_line
from records.logs.predecessor import command_of


def line(key: str) -> dict[str, Any]:
    task = [key, "llvm -keys=cpu", [2, 64, 64, 0, 0, 0, 0, 0], "", 2]
    return {"i": [task, [[], [["SP", 2, 0, 64, [1], 1]]]], "r": [[0.1], 0, 0.3, 1], "v": "v0.6"}


@pytest.mark.parametrize(
    ("key", "command"),
    [
        (["matmul_add", 64, 64, 64, "float32"], "autosched tune matmul_add 64 64 64 float32"),
        (["conv", 1.5, True, "a b"], "autosched tune conv 1.5 true 'a b'"),
        (["softmax"], "autosched tune softmax"),
        (["f", "$(rm -r x)"], "autosched tune f '$(rm -r x)'"),
        (["6b7583cf23c7c37d3212cad9d06e58c1", [1, 64]], None),
        (["conv", [1, 64]], None),
        (["conv", None], None),
        (["a b", 1], None),
        (["f", "x\n"], None),
        (["f", "x" * 300], None),
        ([], None),
        ("text", None),
    ],
)
def test_a_plain_key_says_what_to_tune(key: Any, command: str | None) -> None:
    assert command_of(line(json.dumps(key))) == command


@pytest.mark.parametrize("key", ["k", "[1", "[" * 100_000, 5, None, ["x"]])
def test_a_key_that_is_none_says_nothing(key: Any) -> None:
    assert command_of(line(key)) is None
    assert command_of({"i": [], "r": []}) is None
    assert command_of({"i": 5, "r": []}) is None


def test_the_refusal_of_a_line_tells_the_command() -> None:
    text = json.dumps(line('["matmul", 8, 8, 8]')).encode()
    with pytest.raises(RecordError, match=r"tune the workload again, autosched tune matmul 8 8 8$"):
        decode_line(text)
    with pytest.raises(RecordError, match=r"tune the workload again$"):
        decode_line(json.dumps(line("k")).encode())
