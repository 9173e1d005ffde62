"""SQLite: `StoreContract`, and what is particular to it."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from again_contract import AgainContract
from batch_contract import BatchContract
from lifecycle_contract import LifecycleContract
from queue_contract import QueueContract
from records_factory import (
    DEVICE,
    JOB,
    KEY,
    TARGET,
    WORKLOAD,
    Clock,
    slots,
    trial,
    with_job,
)
from repair_contract import RepairContract
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable
from store_contract import StoreContract
from trials_contract import TrialsContract

from records import RecordError, Store, StoreUnavailable
from records.sql import database, lookup
from records.sql.schema import Base


class TestSqliteStore(
    StoreContract,
    QueueContract,
    RepairContract,
    LifecycleContract,
    AgainContract,
    BatchContract,
    TrialsContract,
):
    @pytest.fixture
    def address(self, tmp_path):
        return tmp_path / "tuning.db"

    def test_threads_and_processes_are_waited_for_together(self, store, address, monkeypatch):
        """Not so long for the one and then as long for the other."""
        clock = Clock()
        monkeypatch.setattr(database, "time", clock)
        with Store(address, busy_seconds=60.0) as mine, ThreadPoolExecutor(1) as pool:
            other = sqlite3.connect(address, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            mine._db._writer.acquire()
            asked = clock.asked
            writing = pool.submit(mine.put_workload, WORKLOAD)
            while clock.asked == asked:  # until it knows how long it waits
                time.sleep(0.001)
            clock.sleep(59.0)
            mine._db._writer.release()
            with pytest.raises(StoreUnavailable, match="cannot be used now"):
                writing.result()
            assert clock.now < 1065.0
            other.execute("ROLLBACK")
            other.close()

    def test_a_url_names_the_same_file(self, store, address):
        store.add_records([trial(0)])
        with Store(f"sqlite:///{address}") as second:
            assert slots(second) == [0]
            assert second.name == store.name == f"sqlite:///{address}"

    def test_settings_of_the_connection(self, store):
        with store._db.transaction(writes=False) as connection:

            def pragma(name):
                return connection.exec_driver_sql(f"PRAGMA {name}").scalar()

            assert (pragma("journal_mode"), pragma("foreign_keys")) == ("wal", 1)
            assert (pragma("synchronous"), pragma("busy_timeout")) == (2, 30_000)
            assert (pragma("cache_size"), pragma("wal_autocheckpoint")) == (-8_000, 8_000)

    def test_readers_do_not_wait_for_a_writer(self, store, address):
        store.add_records([trial(0)])
        with sqlite3.connect(address) as writer:
            writer.execute("BEGIN IMMEDIATE")
            writer.execute("DELETE FROM records")
            assert slots(store) == [0]
            writer.rollback()
        writer.close()

    def test_a_writer_that_waited_too_long_says_so(self, address):
        with Store(address, busy_seconds=0.05) as store:
            with_job(store)
            other = sqlite3.connect(address)
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                StoreUnavailable, match=r"database is locked; .* wait for it, or end it"
            ):
                store.add_records([trial(0)])
            other.rollback()
            other.close()
            store.add_records([trial(0)])
            assert slots(store) == [0]

    def test_foreign_keys_hold(self, store):
        with (
            pytest.raises(RecordError, match="FOREIGN KEY"),
            store._db.transaction(writes=True) as connection,
        ):
            connection.exec_driver_sql("UPDATE jobs SET workload_key = 'w9'")

    def test_what_is_no_store_is_refused_and_left_alone(self, tmp_path):
        text = tmp_path / "notes.db"
        text.write_text("these are notes, not a database\n" * 100)
        with pytest.raises(RecordError, match="file is not a database"):
            Store(text)
        assert text.read_text().startswith("these are notes")
        foreign = sqlite3.connect(tmp_path / "foreign.db")
        foreign.execute("CREATE TABLE songs (title TEXT)")
        with pytest.raises(RecordError, match=r"holds other tables \(songs\) and no records"):
            Store(tmp_path / "foreign.db")
        foreign.close()

    @pytest.mark.parametrize(
        ("address", "message"),
        [
            ("sqlite://", "a store in memory would be lost"),
            ("sqlite:///:memory:", "a store in memory would be lost"),
            ("sqlite:///", "a store in memory would be lost"),
            ("sqlite:///a%00b.db", r"file of the URL is 'a\\x00b.db'; expected a path"),
            ("sqlite:///x.db?timeout=soon", r"soon has an option of another form after its \?"),
            ("nothing://x", "no such kind of database"),
            ("://", "is not the URL of a database"),
            ("postgresql://ann:secret@[::1/x", r"'postgresql://…@\[::1/x' is not the URL of"),
            ("postgresql://ann:secret@h:port/x", "'postgresql://…@h:port/x' is not the URL of"),
            ("postgresql://ann:se/cr@et@h:port/x", "'postgresql://…@h:port/x' is not the URL of"),
            ("no/such/folder/x.db", "no folder .*no/such/folder to keep"),
        ],
    )
    def test_addresses_that_cannot_be(self, address, message):
        with pytest.raises(RecordError, match=message):
            Store(address)

    def test_a_password_is_not_shown(self):
        url = database.address("postgresql+psycopg://user:secret@host/name")
        assert "secret" not in url.render_as_string(hide_password=True)


def test_the_tables_are_made_for_postgresql():
    dialect = postgresql.dialect()
    tables = Base.metadata.sorted_tables
    text = "\n".join(str(CreateTable(table).compile(dialect=dialect)) for table in tables)
    assert "id BIGSERIAL NOT NULL" in text
    assert "created_at TIMESTAMP WITH TIME ZONE NOT NULL" in text
    assert "decisions JSON NOT NULL" in text
    for table in tables:
        for index in table.indexes:
            assert str(CreateIndex(index).compile(dialect=dialect))
    query = str(lookup.firsts(exclude=True).compile(dialect=dialect))
    assert query.count("UNION ALL") == 2


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A store of 100,000 trials, half of them failures, in two scopes and eight jobs."""
    path = tmp_path_factory.mktemp("many") / "many.db"
    with Store(path) as store:
        for job in range(8):
            with_job(store, f"{job:032}")
        store.add_records([trial(0, 9.0, job_id=f"{0:032}")])
        with store._db.transaction(writes=True) as connection:
            connection.exec_driver_sql(
                """
                WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
                INSERT INTO records (job_id, kind, round, slot, workload_key, target, device,
                    toolchain, trace_id, decisions, program_hash, status, seconds, runs, origin,
                    created_at, standing, ranked_seconds)
                SELECT printf('%032d', i % 8), kind, i / 64, i, workload_key, target,
                    CASE WHEN i % 3 THEN device ELSE 'other' END, toolchain, trace_id, decisions,
                    'p' || i, CASE WHEN i % 2 THEN 'ok' ELSE 'build_error' END,
                    CASE WHEN i % 2 THEN 1 + (i * 7919) % 100003 END, runs, origin, created_at,
                    CASE WHEN i % 2 THEN 2 END,
                    CASE WHEN i % 2 THEN 1 + (i * 7919) % 100003 END
                FROM n, records WHERE records.id = 1
                """
            )
        yield store


def asked(query):
    values = {"workload_key": KEY, "target": TARGET, "device": DEVICE, "exclude": [5, 6]}
    return query.params(values)


def plan(store, query):
    with store._db.transaction(writes=False) as connection:
        compiled = query.compile(connection, compile_kwargs={"literal_binds": True})
        rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}").all()
    return [row[-1] for row in rows]


def steps(store, call):
    """Thousands of instructions that SQLite runs for a call."""
    count = 0

    def tick():
        nonlocal count
        count += 1
        return 0

    with store._db.engine.connect() as connection:
        driver = connection.connection.driver_connection
        driver.set_progress_handler(tick, 1000)
    call()
    driver.set_progress_handler(None, 0)
    return count


def test_the_best_is_looked_up_in_its_index(many):
    lines = plan(many, asked(lookup.firsts(exclude=True)))
    reads = [line for line in lines if "records" in line]
    assert len(reads) == 3
    for line in reads:
        assert line.startswith("SEARCH records USING COVERING INDEX ix_records_best")
    assert not any("TEMP B-TREE" in line for line in lines)


def test_the_best_of_many_is_found_without_reading_them(many):
    expected = min(
        (r for r in many.records(status="ok", device=DEVICE)), key=lambda r: (r.seconds, r.id)
    )
    assert many.best(KEY, TARGET, DEVICE) == expected
    assert steps(many, lambda: many.best(KEY, TARGET, DEVICE)) <= 2
    assert steps(many, lambda: many.best(KEY, TARGET, DEVICE, exclude=[expected.id])) <= 2
    assert many.devices(KEY) == [(TARGET, "other"), (TARGET, DEVICE)]
    assert steps(many, lambda: many.devices(KEY)) <= 2


def test_a_page_is_found_without_reading_the_rest(many):
    for filters in (
        {"workload_key": KEY},
        {"workload_key": KEY, "target": TARGET, "device": DEVICE},
        {"job_id": f"{3:032}"},
        {"job_id": f"{3:032}", "status": "ok"},
        {},
    ):
        page = list(many.records(**filters, after_id=50_000, limit=100))
        assert len(page) == 100
        assert (
            steps(many, lambda f=filters: list(many.records(**f, after_id=50_000, limit=100))) < 120
        )


def test_a_page_that_hardly_any_record_passes_takes_no_longer(many):
    for filters in (
        {"status": "run_timeout"},
        {"job_id": f"{3:032}", "status": "run_timeout"},
        {"workload_key": KEY, "device": "elsewhere"},
    ):
        assert many.page(**filters).records == []
        assert steps(many, lambda f=filters: many.page(**f)) < 120


def test_threads_write_in_turns_and_not_for_ever(tmp_path):
    with Store(tmp_path / "x.db", busy_seconds=0.5) as store:
        with_job(store)
        with store._db.transaction(writes=True), ThreadPoolExecutor(1) as other:
            waiting = other.submit(store.update_job, JOB, state="failed")
            with pytest.raises(StoreUnavailable, match="other threads have been writing to it"):
                waiting.result()
        assert store.update_job(JOB, state="failed").state == "failed"
