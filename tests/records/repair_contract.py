"""What `records.repair` finds and puts right, in every store."""

from __future__ import annotations

from records_factory import JOB, KEY, baseline, failure, trial

from records import Measurement, repair


class RepairContract:
    """Mixed into `StoreContract`, whose fixture `store` it uses."""

    def filled(self, store):
        records = store.add_records(
            [trial(0, 3.0), trial(1, 2.0, trace=[["other"]]), failure(2), baseline(0, 5.0)]
        )
        store.add_measurements(records[0].id, [Measurement(seconds=s) for s in (4.0, 1.0, 2.0)])
        store.add_measurements(records[1].id, [Measurement(seconds=9.0, origin="import")])
        return records

    def change(self, store, statement):
        with store._db.transaction(writes=True) as connection:
            connection.exec_driver_sql(statement)

    def test_a_sound_store_stays_as_it_is(self, store):
        self.filled(store)
        report = repair(store)
        assert (report.records, report.jobs, report.traces) == (4, 1, 2)
        assert (report.repaired, report.faults) == ([], [])

    def test_what_follows_from_the_rest_is_put_right(self, store):
        records = self.filled(store)
        self.change(store, "UPDATE records SET standing = NULL, ranked_seconds = NULL")
        self.change(store, "UPDATE records SET remeasured_seconds = 0.5")
        self.change(store, "UPDATE jobs SET trials_done = 77, best_seconds = NULL")
        assert store.get(records[0].id).remeasured_seconds == 0.5
        found = repair(store, dry_run=True).repaired
        assert len(found) == 5 + 2
        assert found[4] == f"job {JOB}: trials_done was 77, is 3"
        # By the ranks as they stand: a dry run puts none of them right.
        assert found[5] == f"job {JOB}: best_record_id was {records[0].id}, is None"
        assert store.job(JOB).trials_done == 77, "a dry run changed something"
        mended = repair(store).repaired
        assert mended[:5] == found[:5]
        assert mended[5:] == [f"job {JOB}: best_seconds was None, is 2.0"]
        assert repair(store).repaired == []
        assert [store.get(r.id).remeasured_seconds for r in records] == [2.0, None, None, None]
        assert (store.job(JOB).trials_done, store.job(JOB).best_seconds) == (3, 2.0)
        assert store.best(KEY).id == records[0].id

    def test_records_of_a_changed_trace_are_stale(self, store):
        records = self.filled(store)
        self.change(store, "UPDATE traces SET data = '[[\"forged\"]]' WHERE data LIKE '%%other%%'"
                    if store.name.startswith("sqlite")
                    else "UPDATE traces SET data = '[[\"forged\"]]' "
                    "WHERE CAST(data AS text) LIKE '%%other%%'")  # fmt: skip
        (line,) = repair(store).repaired
        assert line.startswith(f"record {records[1].id} is stale: trace ")
        assert store.get(records[1].id).status == "stale"
        assert repair(store).repaired == []
