"""Files that are not what `autosched records` and `autosched db` expect: what they say then."""

from __future__ import annotations

import gzip
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runner import Cli

from records import RecordError, Store, StoreDamaged, StoreUnavailable, Workload
from records.logs.exchange import write_entries
from records.logs.lines import encode_line

WORKLOAD = encode_line(Workload(key="w0", name="m", script="def main(): ..."))


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (gzip.compress(WORKLOAD), "gunzip -c FILE | autosched records import -"),
        (b"\x28\xb5\x2f\xfd1234", "zstd -dc FILE"),
        (b"\xfd7zXZ\x001234", "xz -dc FILE"),
        (b"BZh91AY", "bzip2 -dc FILE"),
        (b"PK\x03\x04123", "unzip -p FILE"),
        (b"SQLite format 3\x00123", "`autosched records merge FILE --into URL` takes it"),
        (b"what a day\n", "0 new, 0 known, 1 refused"),
    ],
    ids=["gzip", "zstd", "xz", "bzip2", "zip", "sqlite", "text"],
)
def test_an_import_of_nothing_fails(cli: Cli, tmp_path: Path, data: bytes, advice: str) -> None:
    log = tmp_path / "log"
    log.write_bytes(data)
    done = cli("records", "import", log, "--db", tmp_path / "x.db")
    assert done.status == 1
    assert advice in done.err
    assert "skipped" not in done.err, "a refused line is told of once"
    assert not (tmp_path / "x.db").exists(), "an empty database is left behind"


@pytest.mark.parametrize("action", ["verify", "repair"])
def test_what_is_not_there_is_not_made(cli: Cli, tmp_path: Path, action: str) -> None:
    done = cli("records", action, "--db", tmp_path / "typo.db")
    assert (done.status, list(tmp_path.iterdir())) == (1, [])
    assert "there is no such file" in done.err


@pytest.mark.parametrize("command", [["import", "LOG"], ["verify"], ["repair"]])
def test_a_log_is_no_database(cli: Cli, tmp_path: Path, command: list[str]) -> None:
    log = tmp_path / "x.jsonl"
    log.write_bytes(WORKLOAD)
    words = [log if word == "LOG" else word for word in command]
    done = cli("records", *words, "--db", log)
    assert done.status == 1
    assert f"`autosched records import {log} --db NAME.db`" in done.err
    assert log.read_bytes() == WORKLOAD


def test_what_was_not_written_in_full_has_no_name(tmp_path: Path) -> None:
    def entries() -> Iterator[Workload]:
        yield Workload(key="w0", name="m", script="def main(): ...")
        assert [p.suffix for p in tmp_path.iterdir()] == [".part"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_entries(tmp_path / "x.jsonl", entries())
    assert list(tmp_path.iterdir()) == []


def test_what_came_into_being_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    def entries() -> Iterator[Workload]:
        yield Workload(key="w0", name="m", script="def main(): ...")
        (tmp_path / "x.jsonl").write_text("another's")

    with pytest.raises(RecordError, match="there already"):
        write_entries(tmp_path / "x.jsonl", entries())
    assert [p.read_text() for p in tmp_path.iterdir()] == ["another's"]


def damaged(file: Path) -> None:
    """A database whose table of workloads is unreadable."""
    with Store(file) as store:
        store.put_workload(Workload(key="w1", name="m", script="x" * 20_000))
    with sqlite3.connect(file) as raw:
        (root,) = raw.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'workloads'"
        ).fetchone()
        (size,) = raw.execute("PRAGMA page_size").fetchone()
    raw.close()
    with open(file, "r+b") as stream:
        stream.seek((root - 1) * size)
        stream.write(b"\xff" * size)


def test_a_damaged_database_ends_an_import(cli: Cli, tmp_path: Path) -> None:
    db, log = tmp_path / "x.db", tmp_path / "x.jsonl"
    damaged(db)
    log.write_bytes(WORKLOAD)
    done = cli("records", "import", log, "--db", db)
    assert done.status == 1
    assert "malformed; restore it from a copy" in done.err
    assert "refused" not in done.err


def test_a_file_that_is_no_database_is_said_to_be_none(cli: Cli, tmp_path: Path) -> None:
    db = tmp_path / "x.db"
    db.write_bytes(b"no database " * 500)
    done = cli("db", "upgrade", "--db", db)
    assert done.status == 1
    assert "expected the file of an SQLite database" in done.err
    with pytest.raises(StoreDamaged):
        Store(db)


def test_a_full_disk_is_said_to_be_full(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        with store._db.transaction(writes=True) as connection:
            connection.exec_driver_sql("PRAGMA max_page_count = 1")
        workload = Workload(key="w0", name="m", script="x" * 4_000_000)
        with pytest.raises(StoreUnavailable, match="full; make room on its disk"):
            store.put_workload(workload)
        assert list(store.workloads()) == []
    with Store(tmp_path / "x.db") as store:
        store.put_workload(workload)


@pytest.mark.parametrize("url", ["mysql://x/y", "http://x/y", "oracle://x"])
def test_other_kinds_of_databases_are_refused(cli: Cli, url: str) -> None:
    done = cli("db", "check", "--db", url)
    assert done.status == 1
    assert "expected the path of an SQLite file, sqlite:///PATH or postgresql://" in done.err
