"""What is written whole with a checksum: damage of any kind is seen when it is read."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched import graph
from autosched.errors import ArgumentError
from autosched.graph import saved
from autosched.graph.stored import checksum, seal, unseal, write_whole

NAMES = ("kernels.json", "model.json", "weights.bin")


def _product(value: float, n: int = 16) -> graph.CompiledModel:
    x = graph.var("x", (2, n), "float32")
    w = graph.const(np.full((n, n), value, "f4"))
    return graph.build(graph.module(main=graph.function([x], graph.op.matmul(x, w))))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    _product(2).save(made)
    return made


@st.composite
def damages(draw: st.DrawFn) -> tuple[str, str, float, int]:
    kind = draw(st.sampled_from(["flip", "cut", "zero", "more"]))
    return draw(st.sampled_from(NAMES)), kind, draw(st.floats(0, 1)), draw(st.integers(0, 7))


@settings(max_examples=200, deadline=None)
@given(damages())
def test_no_damaged_file_of_a_model_is_loaded(folder: Path, damage: tuple[str, str, float, int]):
    name, kind, place, bit = damage
    sound = (folder / name).read_bytes()
    raw = bytearray(sound)
    at = int(place * (len(raw) - 1))
    if kind == "flip":
        raw[at] ^= 1 << bit
    elif kind == "zero":
        raw[at : at + 64] = bytes(len(raw[at : at + 64]))
    else:
        raw = raw[:at] if kind == "cut" else raw + bytes(bit + 1)
    try:
        (folder / name).write_bytes(raw)
        if raw == sound:
            graph.load(folder)
        else:
            with pytest.raises(ArgumentError, match=rf"{name} is damaged, or .*compile the model"):
                graph.load(folder)
    finally:
        (folder / name).write_bytes(sound)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_another_model_is_not_loaded(folder: Path, tmp_path: Path, name: str):
    _product(3, 8).save(tmp_path)
    (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ArgumentError, match=r"or another model's than model\.json"):
        graph.load(tmp_path)


def test_a_file_without_a_checksum_is_of_another_version(folder: Path, tmp_path: Path):
    for name in NAMES:
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    text = (tmp_path / "model.json").read_bytes()
    (tmp_path / "model.json").write_text(json.dumps(unseal(text)))
    with pytest.raises(ArgumentError, match="written by another version"):
        graph.load(tmp_path)


def test_a_model_of_another_schema_is_of_another_version(folder: Path, tmp_path: Path):
    for name in NAMES:
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    data = unseal((tmp_path / "model.json").read_bytes())
    (tmp_path / "model.json").write_bytes(seal({**data, "schema": 2, "program": "of that version"}))
    with pytest.raises(ArgumentError, match="expected its schema to be 1, found 2"):
        graph.load(tmp_path)


@pytest.mark.parametrize("name", NAMES[::2])
def test_a_file_that_another_process_writes_meanwhile_is_not_taken(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    """Two processes save models in one folder: what they leave is one of them, or is refused."""

    def interleaved(path: Path, parts: Iterable[Any]) -> int:
        found = write_whole(path, parts)
        if path.name == name:
            path.write_bytes((folder / name).read_bytes())
        return found

    monkeypatch.setattr(saved, "write_whole", interleaved)
    _product(3, 8).save(tmp_path)
    with pytest.raises(ArgumentError, match=rf"{name} is damaged, or another model's"):
        graph.load(tmp_path)


def test_kernels_of_the_cache_that_are_damaged_are_compiled_again(tmp_path: Path):
    x = graph.var("x", (2, 16), "float32")
    module = graph.module(main=graph.function([x], graph.op.tanh(x)))
    graph.build(module, cache=tmp_path)
    (kernel,) = tmp_path.iterdir()
    sound = kernel.read_bytes()
    code = bytearray(sound)
    at = code.index(b'"code": "') + 60
    code[at] = ord("A") if code[at] != ord("A") else ord("B")  # still base64
    kernel.write_bytes(code)
    graph.build(module, cache=tmp_path)
    assert kernel.read_bytes() == sound


@given(st.binary(max_size=9000), st.integers(0, 8999), st.integers(1, 255))
def test_the_checksum_sees_each_byte_and_the_length(data: bytes, at: int, change: int):
    raw = np.frombuffer(data, np.uint8)
    assert checksum(np.append(raw, np.uint8(0))) != checksum(raw)
    if at < len(raw):
        other = raw.copy()
        other[at] ^= change
        assert checksum(other) != checksum(raw)


@given(st.integers(0, 1535), st.integers(0, 1535))
def test_the_checksum_sees_the_order_of_words(a: int, b: int):
    words = np.arange(1536, dtype=np.uint64)
    other = words.copy()
    other[[a, b]] = other[[b, a]]
    same = checksum(words.view(np.uint8)) == checksum(other.view(np.uint8))
    assert same == (a == b)


@given(st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=9))
def test_what_is_sealed_is_read_again_and_is_json(data: object):
    assert unseal(seal(data)) == json.loads(seal(data))["data"] == data


def test_a_file_is_whole_and_others_may_read_it(tmp_path: Path):
    before = os.umask(0o022)
    try:
        write_whole(tmp_path / "x", [b"a", b"b"])
    finally:
        os.umask(before)
    assert (tmp_path / "x").read_bytes() == b"ab"
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o644

    def parts():
        yield b"c"
        raise OSError(errno.ENOSPC, "the disk is full")

    with pytest.raises(OSError, match=r"full: '.*/x'"):
        write_whole(tmp_path / "x", parts())
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("x", b"ab")]
