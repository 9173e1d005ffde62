"""Schema versions: databases of every release are upgraded, others refused."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from records_factory import DEVICE, JOB, KEY, TARGET, WORKLOAD, slots, trial
from sqlalchemy import Connection, inspect, text

from autosched.cli.main import main
from records import JobQueue, RecordError, SchemaVersionError, Store
from records.operations.tokens import Tokens
from records.queue.model_tasks import Part, of_batch
from records.queue.submissions import Quota
from records.sql import filesystem, versions
from records.sql.database import Database, address
from records.sql.schema import REVISION, Base

SCHEMAS = Path(__file__).parents[1] / "schemas"
MIGRATIONS = Path(versions.__file__).parent / "migrations"


def sqlite_of(name: str, folder: Path) -> Path:
    """A database as an earlier release left it."""
    path = folder / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript((SCHEMAS / f"{name}.sql").read_text())
    connection.close()
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The address of an empty database."""
    if request.param == "sqlite":
        return tmp_path / "new.db"
    return request.getfixturevalue("cluster").database()


def shape(connection: Connection) -> dict[str, Any]:
    """Tables, columns, keys and indexes, as the database tells them."""
    look = inspect(connection)
    return {
        table: (
            {c["name"]: (str(c["type"]), c["nullable"], c["default"])
             for c in look.get_columns(table)},
            look.get_pk_constraint(table)["constrained_columns"],
            sorted(str(f["constrained_columns"]) + f["referred_table"]
                   for f in look.get_foreign_keys(table)),
            sorted((i["name"] or "", *i["column_names"]) for i in look.get_indexes(table)),
            sorted(str(u["column_names"]) for u in look.get_unique_constraints(table)),
        )
        for table in look.get_table_names()
    }  # fmt: skip


def test_the_package_has_all_migrations_in_one_line() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [REVISION]
    revisions = [r.revision for r in script.walk_revisions()]
    assert revisions[-1] == versions.FIRST
    stored = {p.stem for p in SCHEMAS.glob("*.sql")}
    assert stored == {f"v{int(revision)}" for revision in revisions}, "a dump of each is stored"


def test_migrations_lead_to_the_tables_of_the_models(empty: Any, tmp_path: Path) -> None:
    database = Database(address(empty), any_version=True)
    with database.transaction(writes=True) as connection:
        versions._run(connection, "upgrade")
        by_migrations = shape(connection)
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, Base.metadata) == []
    database.close()
    with Store(empty) as store:
        assert list(store.workloads()) == []
    with Store(tmp_path / "made.db") as store, store._db.transaction(writes=False) as connection:
        if database.is_sqlite:
            assert shape(connection) == by_migrations


@pytest.mark.parametrize("missing", ["DROP TABLE traffic", ""])
@pytest.mark.parametrize("revision", ["0006", "0009"])
def test_what_was_made_before_a_migration_was_finished_is_mended(
    empty: Any, revision: str, missing: str
) -> None:
    """Revision 0006 was changed while databases with it were in use."""
    database = Database(address(empty), any_version=True)
    with database.transaction(writes=True) as connection:
        versions._run(connection, "upgrade", "0006")
        connection.exec_driver_sql("ALTER TABLE jobs DROP COLUMN device_part")
        connection.exec_driver_sql(missing or "SELECT 1")
        versions._run(connection, "upgrade", revision)
    assert database.upgrade() == revision
    with database.transaction(writes=True) as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    database.close()
    with Store(empty) as store:
        store.put_workload(WORKLOAD)
        assert store.create_job(KEY, TARGET, seed=0, trials_requested=8).state == "queued"


@pytest.mark.parametrize("name", sorted(p.stem for p in SCHEMAS.glob("*.sql")))
def test_a_stored_database_of_each_release_is_upgraded(name: str, tmp_path: Path) -> None:
    path = sqlite_of(name, tmp_path)
    number = int(name[1:])
    if number < int(REVISION):
        advice = f"run `autosched db upgrade --db .*{path.name}`"
        with pytest.raises(SchemaVersionError, match=advice):
            Store(path)
    assert main(["db", "upgrade", "--db", str(path)]) == 0
    with Store(path) as store:
        assert slots(store) == [0, 1, 2, 0, 3]
        best = store.best(KEY, TARGET, DEVICE)
        assert (best.slot, best.final_seconds) == (0, 2.5e-3)
        assert [m.seconds for m in store.measurements(best.id)] == [2.5e-3]
        job = store.job(JOB)
        assert (job.state, job.trials_done, job.priority, job.lease_epoch) == ("succeeded", 4, 0, 0)
        assert store.workload("w1").args is None
        assert store.workload("w1").text is None
        assert (job.client, job.best_seconds, job.best_record_id) == ("", 2.5e-3, best.id)
        assert (job.name, list(job.tags), job.run_seconds) == (None, [], 0.0)
        assert job.ended_at == job.updated_at
        if number > 1:
            other = store.job("2" * 32)
            assert (other.client, other.lease_epoch, other.error) == ("ann", 1, "it broke")
            assert (other.best_seconds, other.claimed_at) == (None, None)
            assert [event.kind for event in store.events(other.id)] == ["round"]
        if number > 3:
            (token,) = Tokens(store).all()
            assert (token.id, token.quota) == ("0123456789ab", Quota())
        if number > 7:
            parts = [task.part for task in of_batch(store, "4" * 32)]
            assert parts == [Part(0, "conv2d", 3.0, 0.006), Part(1, "dense", 1.0, 0.0005)]
            usage, spent = Tokens(store).usage(token.id), (16, 2.5) if number > 8 else (0, 0.0)
            assert (usage.trials, usage.device_seconds) == (8 + spent[0], 299.0 + spent[1])
            with store._db.transaction(writes=False) as connection:
                served = connection.execute(text("SELECT name, served_at FROM clients")).all()
            assert [tuple(row) for row in served] == [("bob", "2026-11-22 09:00:01.000")]
        queue = JobQueue(store)
        queue.resume(JOB, 8)
        assert queue.claim("w", 60).id == JOB  # type: ignore[union-attr]
        store.add_records([trial(9)])
        store.add_event(JOB, "round", {})
        with Store(tmp_path / "made.db") as made:
            assert _shape_of(store) == _shape_of(made)


def _shape_of(store: Store) -> dict[str, Any]:
    with store._db.transaction(writes=False) as connection:
        return shape(connection)


def postgresql_of_the_first_release(cluster: Any) -> str:
    url: str = cluster.database()
    database = Database(address(url), any_version=True)
    with database.transaction(writes=True) as connection:
        versions._run(connection, "upgrade", versions.FIRST)
        connection.execute(text("DROP TABLE alembic_version"))
        connection.execute(text("INSERT INTO meta VALUES ('schema_version', '1')"))
        connection.execute(
            text("INSERT INTO workloads VALUES ('w0', 'm', NULL, 's', 1, '2026-01-01T00:00:00Z')")
        )
    database.close()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def first(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of the first release."""
    if request.param == "sqlite":
        return str(sqlite_of("v1", tmp_path))
    return postgresql_of_the_first_release(request.getfixturevalue("cluster"))


def test_a_database_of_the_first_release_on_postgresql(cluster: Any) -> None:
    url = postgresql_of_the_first_release(cluster)
    with pytest.raises(SchemaVersionError, match=r"schema version 0001, .* uses 0010: stop"):
        Store(url)
    database = Database(address(url), any_version=True)
    assert database.upgrade() == "0001"
    assert database.upgrade() == REVISION
    database.close()
    with Store(url) as store:
        assert store.workload("w0").script == "s"


_STOPS_BEFORE_THE_COMMIT = """
import sys
from records.sql import versions
from records.sql.database import Database, address
upgrade = versions.upgrade
def stops(*args):
    upgrade(*args)
    print("done", flush=True)
    sys.stdin.read()
versions.upgrade = stops
Database(address(sys.argv[1]), any_version=True).upgrade()
"""


def test_an_upgrade_that_is_killed_leaves_the_old_version(first: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _STOPS_BEFORE_THE_COMMIT, first],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"done\n"
        child.kill()
    database = Database(address(first), any_version=True)
    assert database.version() == "0001"
    assert database.upgrade() == "0001"
    database.close()
    with Store(first) as store:
        assert store.workload("w0").key == "w0"


def test_upgrades_at_once_upgrade_once(first: str) -> None:
    barrier = threading.Barrier(3)

    def upgrade(_: int) -> str | None:
        database = Database(address(first), any_version=True)
        barrier.wait()
        try:
            return database.upgrade()
        finally:
            database.close()

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(upgrade, range(3)))
    assert sorted(map(str, found)) == ["0001", REVISION, REVISION]
    Store(first).close()


def test_an_upgrade_is_done_in_full_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = sqlite_of("v1", tmp_path)
    database = Database(address(path), any_version=True)
    real = versions.found

    def fails(connection: Connection, name: str) -> str | None:
        monkeypatch.setattr(versions, "upgrade", broken)
        return real(connection, name)

    upgrade = versions.upgrade

    def broken(connection: Connection, before: str | None, name: str) -> None:
        upgrade(connection, before, name)
        assert real(connection, name) == REVISION
        raise OSError("the machine goes down")

    monkeypatch.setattr(versions, "found", fails)
    with pytest.raises(OSError, match="goes down"):
        database.upgrade()
    monkeypatch.undo()
    assert database.version() == "0001"
    with database.transaction(writes=False) as connection:
        assert "events" not in inspect(connection).get_table_names()
        assert connection.execute(text("SELECT count(*) FROM records")).scalar() == 5
    database.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("UPDATE alembic_version SET version_num = '9999'",
         "has schema version 9999, .* uses 0010: install a newer autosched"),
        ("DELETE FROM alembic_version", "has schema version none, .*: install a newer"),
    ],
)  # fmt: skip
def test_another_version_is_refused(empty: Any, change: str, message: str) -> None:
    with Store(empty) as store, store._db.transaction(writes=True) as connection:
        connection.exec_driver_sql(change)
    with pytest.raises(SchemaVersionError, match=message):
        Store(empty)
    database = Database(address(empty), any_version=True)
    with pytest.raises(SchemaVersionError, match=message):
        database.upgrade()
    database.close()


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(action: str, path: Path) -> tuple[int, str]:
        status = main(["db", action, "--db", str(path)])
        out, err = capsys.readouterr()
        return status, out + err

    old, new = sqlite_of("v1", tmp_path), tmp_path / "new.db"
    assert run("check", new) == (1, f"{new}: there is no such file; the first use makes it\n")
    assert not new.exists()
    assert run("check", old)[0] == 1
    assert "schema version 0001, this autosched uses 0010" in run("check", old)[1]
    assert "schema version 0001 -> 0010" in run("upgrade", old)[1]
    assert run("check", old)[0] == 0
    assert "nothing to do" in run("upgrade", old)[1]
    assert "schema version none -> 0010" in run("upgrade", new)[1]
    notes = tmp_path / "notes.db"
    notes.write_text("not a database\n" * 100)
    status, text = run("upgrade", notes)
    assert (status, "file is not a database" in text) == (1, True)


# Network file systems

MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /home rw shared:2 - nfs4 server:/home rw
31 30 8:2 / /home/ann/local\040disk rw - xfs /dev/sdb1 rw
32 22 0:41 / /srv rw - ext4 /dev/sdc rw
33 32 0:42 / /srv rw - cifs //server/srv rw
34 22 0:43 / /mnt/far rw - fuse.sshfs ann@host: rw
35 22 0:44 / /mnt/near rw - fuse.ntfs-3g /dev/sdd rw
"""


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(MOUNTS.lstrip())
    monkeypatch.setattr(filesystem, "MOUNTS", file)


@pytest.mark.parametrize(
    ("path", "kind", "network"),
    [
        ("/var/x.db", "ext4", False),
        ("/home/ann/x.db", "nfs4", True),
        ("/homes/x.db", "ext4", False),
        ("/home/ann/local disk/x.db", "xfs", False),
        ("/srv/x.db", "cifs", True),
        ("/mnt/far/a/x.db", "fuse.sshfs", True),
        ("/mnt/near/x.db", "fuse.ntfs-3g", False),
    ],
)
def test_telling_file_systems_apart(mounts: None, path: str, kind: str, network: bool) -> None:
    assert filesystem.kind_of(Path(path)) == kind
    assert filesystem.is_network(kind) is network


def test_sqlite_on_a_network_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mountinfo"
    file.write_text(
        f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:9 / {tmp_path} rw - nfs s:/ rw\n"
    )
    monkeypatch.setattr(filesystem, "MOUNTS", file)
    link = tmp_path / "x.db"
    with pytest.raises(RecordError, match=r"network file system \(nfs\).*postgresql://USER@HOST"):
        Store(link)
    assert not link.exists()
    monkeypatch.setattr(filesystem, "MOUNTS", tmp_path / "nothing")
    Store(link).close()
