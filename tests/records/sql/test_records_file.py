"""The file of an SQLite database that is moved, deleted, replaced, missing, empty or read only."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from records import NoRecord, Store, StoreUnavailable, open_records
from records.opening import open_store
from records.sql import sqlite_file
from tests.records.records_factory import WORKLOAD

CHANGES: dict[str, Callable[[Path], object]] = {
    "moved": lambda path: path.rename(path.with_name("old.db")),
    "deleted": lambda path: path.unlink(),
    "replaced": lambda path: os.replace(_copy(path), path),
    "emptied": lambda path: (path.unlink(), path.touch()),
}


def _copy(path: Path) -> Path:
    return Path(shutil.copy(path, path.with_name("copy.db")))


@pytest.mark.parametrize("change", CHANGES)
def test_a_store_whose_file_is_not_at_its_path_is_away(change: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Store(path) as store:
        store.try_write()
        CHANGES[change](path)
        before = path.stat().st_size if path.exists() else None
        for use in (store.try_write, store.version, lambda: list(store.workloads())):
            with pytest.raises(StoreUnavailable, match=r"a\.db cannot be used now: .* was opened"):
                use()
        store._db.engine.dispose()  # a new connection makes no file, either
        with pytest.raises(StoreUnavailable, match="was opened"):
            store.try_write()
        assert (path.stat().st_size if path.exists() else None) == before


def test_a_store_is_back_with_its_file(tmp_path: Path) -> None:
    path, aside = tmp_path / "a.db", tmp_path / "aside.db"
    with Store(path) as store:
        path.rename(aside)
        with pytest.raises(StoreUnavailable):
            store.try_write()
        aside.rename(path)
        store.try_write()


def test_a_database_that_must_be_there_is_not_made(tmp_path: Path) -> None:
    missing, empty, bare = (tmp_path / name for name in ("no.db", "e.db", "bare.db"))
    empty.touch()
    shutil.copy(_without_tables(tmp_path), bare)
    with pytest.raises(StoreUnavailable, match="expected a database"):
        Store(missing, make=False)
    assert not missing.exists()
    for path, why in ((empty, "the file is empty"), (bare, "it has no tables")):
        size = path.stat().st_size
        for opened in (open_records, lambda p: open_store(p, make=False)):
            with pytest.raises(NoRecord, match=why):
                opened(path)
        assert path.stat().st_size == size
    Store(empty).close()
    open_records(empty).close()


def _without_tables(folder: Path) -> Path:
    path = folder / "without.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("DROP TABLE t")
    connection.close()
    return path


def test_a_database_on_a_read_only_file_system_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a file beside it, which a read-only file system does not allow."""
    path = tmp_path / "a #%.db"
    workload = WORKLOAD
    with Store(path) as store:
        store.put_workload(workload)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    monkeypatch.setattr(sqlite_file, "is_read_only", lambda path: True)
    with open_records(path) as source:
        assert source.workload(workload.key) == workload
        assert [p.name for p in tmp_path.iterdir()] == [path.name]
    with open_store(path, make=False) as store, pytest.raises(StoreUnavailable, match="readonly"):
        store.try_write()
