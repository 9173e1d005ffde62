"""PostgreSQL: `StoreContract`, and what is particular to it."""

from __future__ import annotations

import threading
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
    failure,
    slots,
    trial,
    with_job,
)
from repair_contract import RepairContract
from store_contract import StoreContract
from trials_contract import TrialsContract

from records import JobQueue, Lease, LeaseLost, Store, StoreUnavailable, Workload, new_job_id
from records.logs.importing import import_entries
from records.queue.lease import check_lease
from records.queue.submissions import Bounds, Entrance, Submission
from records.sql import database, frontier, jobs, lookup
from records.sql.insertion import put
from records.sql.traces import Traces


class TestPostgresStore(
    StoreContract,
    QueueContract,
    RepairContract,
    LifecycleContract,
    AgainContract,
    BatchContract,
    TrialsContract,
):
    @pytest.fixture
    def address(self, postgres_url):
        return postgres_url

    def test_writers_at_once(self, store, address):
        """The same slots, in opposite order: no deadlock, and each is stored once."""
        barrier = threading.Barrier(4)

        def write(n):
            with Store(address) as mine:
                barrier.wait()
                for start in range(0, 200, 20):
                    batch = [trial(s, trace=[["step", s]]) for s in range(start, start + 20)]
                    mine.add_records(batch if n % 2 else batch[::-1])

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        assert sorted(slots(store)) == list(range(200))
        assert store.job(JOB).trials_done == 200

    def test_stores_opened_at_once_make_the_tables_once(self, cluster):
        address = cluster.database()
        barrier = threading.Barrier(4)

        def open_store(_):
            barrier.wait()
            with Store(address) as store:
                store.put_workload(WORKLOAD)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(open_store, range(4)))
        with Store(address) as store:
            assert list(store.workloads()) == [WORKLOAD]

    def test_a_claim_does_not_wait_for_another(self, store, address):
        queue = JobQueue(store)
        job = queue.claim("first", 60)
        lease = Lease(job.id, 1)
        queue.park(lease)
        other = store.create_job(KEY, TARGET, seed=1, trials_requested=1, job_id=new_job_id())
        with store._db.transaction(writes=True) as connection:
            with pytest.raises(LeaseLost):
                check_lease(connection, lease)
            assert queue.claim("second", 60).id == other.id, "it waited for, or took, a locked job"

    def test_nobody_waits_forever_for_who_holds_the_entrance(self, store, address):
        """As a server may that was stopped."""
        job = Submission(workload=WORKLOAD, target=TARGET, seed=0, trials_requested=1)
        with Store(address, busy_seconds=0.2) as other:
            queue = JobQueue(other)
            with store._db.transaction(writes=True) as connection:
                Entrance(connection, Bounds())
                with pytest.raises(StoreUnavailable, match="lock timeout"):
                    queue.submit(job)
            assert queue.submit(job)[1]

    def test_who_was_stopped_in_a_transaction_loses_it(self, address, monkeypatch):
        """A server that stands still, or is cut off, with the queue's entrance."""
        job = Submission(workload=WORKLOAD, target=TARGET, seed=0, trials_requested=1)
        taken = []

        def stand_still():
            with stopped._db.transaction(writes=True) as connection:
                Entrance(connection, Bounds())
                taken.append(queue.submit(job)[1])
                Entrance(connection, Bounds())

        with Store(address) as other:
            queue = JobQueue(other)
            monkeypatch.setattr(database, "IDLE_SECONDS", 3.0)
            with Store(address) as stopped:
                with pytest.raises(StoreUnavailable):
                    stand_still()
                assert taken == [True]
                assert JobQueue(stopped).submit(job)[1], "it goes on with another connection"

    def test_a_page_passes_over_nothing_that_is_stored_meanwhile(self, store, monkeypatch):
        monkeypatch.setattr("records.store.WINDOW", 4)
        store.add_records([failure(n) for n in range(3)])
        fetch = store._traces.fetch
        late = [trial(3)]

        def overtaken(connection, query, parameters=None):
            found = fetch(connection, query, parameters)
            if late and query is not None and "most" in (parameters or {}):
                store.add_records([late.pop()])
            return found

        monkeypatch.setattr(store._traces, "fetch", overtaken)
        page = store.page(job_id=JOB, status="ok", limit=4)
        seen = [record.slot for record in page.records]
        while page.after_id is not None:
            page = store.page(job_id=JOB, status="ok", limit=4, after_id=page.after_id)
            seen += [record.slot for record in page.records]
        assert seen == [3]

    @pytest.mark.parametrize("both", ["the same", "opposite"])
    def test_batches_that_make_the_same_rows(self, store, address, both):
        """Logs with the same new workloads, jobs and records, and jobs of the same workloads,
        taken in at once in whatever order."""
        workloads = [Workload(key=f"w{n}", name="m", script=f"{n}") for n in range(1, 60)]
        records = [
            trial(n, job_id=f"{n:032}", workload_key=w.key, trace=[["step", n]])
            for n, w in enumerate(workloads)
        ]
        entries = list(enumerate([*workloads, *records], 1))
        barrier = threading.Barrier(3)

        def take(n):
            with Store(address) as mine:
                barrier.wait()
                back = both == "opposite" and n
                if n == 2:
                    made = [
                        Submission(workload=w, target=TARGET, seed=0, trials_requested=1)
                        for w in (workloads[::-1] if back else workloads)
                    ]
                    assert all(isinstance(a, tuple) for a in JobQueue(mine).submit_many(made))
                    return 0
                first, last = entries[: len(workloads)], entries[len(workloads) :]
                report = import_entries(
                    mine, first[::-1] + last[::-1] if back else entries, "import"
                )
                assert report.refused == []
                return report.new

        with ThreadPoolExecutor(3) as pool:
            assert sum(pool.map(take, range(3))) == len(records)
        assert sum(1 for _ in store.records()) == len(records)

    def test_a_deadlock_is_no_trouble_of_the_caller(self, store, address):
        """Each of two transactions holds what the other one wants: the server ends one."""
        for job_id in "ab":
            with_job(store, job_id)
        both_hold = threading.Barrier(2)
        begun = []

        def write(order):
            def work(connection):
                begun.append(order)
                for n, job_id in enumerate(order):
                    jobs.job_of(connection, job_id, lock=True)
                    if n == 0 and begun.count(order) == 1:
                        both_hold.wait()
                return jobs.change(connection, order[0], {"error": order})

            with Store(address) as mine:
                mine._db.write(work)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(write, ["ab", "ba"]))
        assert len(begun) >= 3  # both, where the server waited for its own reasons
        assert [store.job(job_id).error for job_id in "ab"] == ["ab", "ba"]

    def test_a_transaction_is_not_tried_for_ever(self, store, monkeypatch):
        tried = []

        def work(connection):
            tried.append(1)
            connection.exec_driver_sql("DO $$ BEGIN RAISE SQLSTATE '40001'; END $$")

        with pytest.raises(StoreUnavailable):
            store._db.write(work)
        assert len(tried) == database.ATTEMPTS

    def test_records_do_not_wait_for_who_holds_their_job(self, store):
        """The lock of a lease leaves those alone who insert rows that name the job."""
        with store._db.transaction(writes=True) as connection:
            jobs.job_of(connection, JOB, lock=True)
            with store._db.transaction(writes=True) as other:
                record = failure(0, kind="baseline", round=-1)  # it changes nothing in the job
                put(other, Traces(), {record.key: record})
        assert slots(store) == [0]

    @pytest.mark.parametrize("batch", [1, 3])
    def test_a_listing_waits_for_smaller_ids(self, store, address, monkeypatch, batch):
        """Of two who insert the later one commits first."""
        monkeypatch.setattr(frontier, "WAIT_SECONDS", 60.0)  # however slow the machine is
        begun, seen = threading.Event(), threading.Event()
        other = "2" * 32
        with_job(store, other)

        def slow():
            with Store(address) as mine, mine._db.transaction(writes=True) as connection:
                rows = [trial(n, trace=[["other"]]) for n in range(batch)]
                put(connection, Traces(), {r.key: r for r in rows})
                begun.set()
                seen.wait(60)
                time.sleep(0.05)

        thread = threading.Thread(target=slow)
        thread.start()
        assert begun.wait(60)
        store.add_records([trial(n, job_id=other) for n in range(5)])
        of_job = store.page(job_id=other, limit=2)
        assert [r.slot for r in of_job.records] == [0, 1], "its own job's records nobody holds up"
        seen.set()
        found, after = [], 0
        while after is not None:
            page = store.page(workload_key=KEY, limit=2, after_id=after)
            found += [(r.job_id[0], r.slot) for r in page.records]
            after = page.after_id
        thread.join()
        assert found == [("1", n) for n in range(batch)] + [("2", n) for n in range(5)]

    def test_a_listing_passes_over_who_stands_still(self, store, address, monkeypatch):
        monkeypatch.setattr(frontier, "WAIT_SECONDS", 0.05)
        other, next_one = "2" * 32, "3" * 32
        with_job(store, other)
        with_job(store, next_one)
        with Store(address) as mine, mine._db.transaction(writes=True) as connection:
            put(connection, Traces(), {trial(0).key: trial(0, trace=[["other"]])})
            store.add_records([trial(n, job_id=other) for n in range(5)])
            clock = Clock()
            monkeypatch.setattr(frontier, "time", clock)
            assert [r.slot for r in store.page(limit=2).records] == [0, 1]
            before = clock.now
            assert [r.slot for r in store.page(limit=2).records] == [0, 1]
            assert clock.now == before, "it was waited for once"
            with Store(address) as third, third._db.transaction(writes=True) as its:
                late = trial(5, job_id=next_one)
                put(its, Traces(), {late.key: late})
                store.add_records([trial(n, job_id=other) for n in range(6, 9)])
                assert len(store.page(limit=8).records) == 8
                assert clock.now > before, "others are waited for as before"
        assert slots(store) == [0, *range(9)]

    def test_the_best_is_looked_up_in_its_index(self, store):
        store.add_records([trial(0)])
        asked = {"workload_key": KEY, "target": TARGET, "device": DEVICE, "exclude": [5, 6]}
        query = lookup.firsts(exclude=True).params(asked)
        with store._db.transaction(writes=False) as connection:
            connection.exec_driver_sql("SET enable_seqscan = off")
            compiled = query.compile(connection, compile_kwargs={"literal_binds": True})
            lines = [r[0] for r in connection.exec_driver_sql(f"EXPLAIN {compiled}")]
        reads = [line for line in lines if " on records" in line]
        assert len(reads) == 3
        assert all("Index Only Scan using ix_records_best" in line for line in reads)
        assert not any("Sort" in line for line in lines)

    def test_statements_are_planned_for_their_own_limits(self, store):
        """psycopg prepares what it sees often, and a prepared page is planned as a whole table."""
        for _ in range(12):
            store.page(status="run_timeout")
        with store._db.transaction(writes=False) as connection:
            count = connection.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements")
            assert count.scalar() == 0

    def test_the_driver_need_not_be_named(self, store, address):
        assert address.startswith("postgresql://")
        assert store.name.startswith("postgresql://tests@")

    def test_a_connection_that_broke_is_replaced(self, store, address, monkeypatch):
        with store._db.transaction(writes=False) as connection:
            connection.exec_driver_sql("SELECT 1")
        monkeypatch.setattr(database, "REST_SECONDS", 0.0)
        with store._db.engine.connect() as idle:
            pid = idle.connection.driver_connection.info.backend_pid
        with Store(address) as other, other._db.transaction(writes=True) as connection:
            connection.exec_driver_sql(f"SELECT pg_terminate_backend({pid})")
        with_job(store)
        assert store.job(JOB).id == JOB


def test_a_server_that_is_away(tmp_path):
    pytest.importorskip("psycopg", reason="no PostgreSQL driver")
    with pytest.raises(StoreUnavailable, match="cannot be used now"):
        Store(f"postgresql://nobody:secret@/x?host={tmp_path}")


def test_a_password_is_not_shown(tmp_path):
    for url in (
        f"postgresql://nobody:secret@/x?host={tmp_path}",
        f"postgresql://nobody@/x?host={tmp_path}&password=secret",
    ):
        with pytest.raises(StoreUnavailable) as caught:
            Store(url)
        assert "secret" not in str(caught.value)
