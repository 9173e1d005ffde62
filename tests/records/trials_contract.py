"""What every store tells of a job's trials as a table, and of what devices could do."""

from __future__ import annotations

import pytest
from records_factory import DEVICE, JOB, KEY, after_first_select, baseline, failure, trial

from records import JobQueue, RecordError, Store
from records.operations import listing, roofline
from records.operations.roofline import DeviceLimits, Traffic, bound

LIMITS = DeviceLimits(device=DEVICE, flops=1e9, bytes_per_second=1e8, cache_bytes=1000)


class TrialsContract:
    """Mixed into `StoreContract`, whose fixture `store` it uses: there is one job, and it waits."""

    @pytest.fixture
    def measured(self, store: Store) -> Store:
        """Times 5, 3, none, 3, none, 1 seconds; baselines are no trials."""
        store.add_records([baseline(1, 2.0)])
        store.add_records(
            [
                *(trial(0, 5.0, decisions={"a.1": 1}), trial(1, 3.0, decisions={"a.1": 2})),
                *(failure(2, decisions={"a.1": 1, "b": -7}), trial(3, 3.0, decisions={"b": 2})),
                *(failure(4, "run_timeout"), trial(5, 1.0, decisions={"a.1": 2, "b": 2})),
            ]
        )
        return store

    def numbers(self, store: Store, **asked: object) -> list[int]:
        """The numbers of the trials, page by page."""
        found: list[int] = []
        after = None
        while True:
            page = listing.listed(store, JOB, after=after, **asked)  # type: ignore[arg-type]
            found += [one.trial for one in page.trials]
            if (after := page.after) is None:
                return found

    @pytest.mark.parametrize("limit", [1, 2, 4, 100])
    @pytest.mark.parametrize(
        ("sort", "order"),
        [
            ("trial", [1, 2, 3, 4, 5, 6]),
            ("-trial", [6, 5, 4, 3, 2, 1]),
            ("seconds", [6, 2, 4, 1, 3, 5]),
            ("-seconds", [1, 2, 4, 6, 3, 5]),
        ],
    )
    def test_trials_are_paged_in_every_order(self, measured, sort, order, limit):
        assert self.numbers(measured, sort=sort, limit=limit) == order

    def test_a_page_is_of_one_moment(self, measured):
        """Another process deletes the job between the statements that make the page."""
        JobQueue(measured).cancel(JOB)
        with after_first_select(measured, lambda: measured.delete_job(JOB)):
            assert self.numbers(measured) == [1, 2, 3, 4, 5, 6]
        assert self.numbers(measured) == []

    def test_trials_are_found_by_status_and_decisions(self, measured):
        assert self.numbers(measured, status="ok", sort="seconds") == [6, 2, 4, 1]
        assert self.numbers(measured, status="run_timeout") == [5]
        assert self.numbers(measured, decisions={"a.1": 2}) == [2, 6]
        assert self.numbers(measured, decisions={"a.1": 2, "b": 2}, limit=1) == [6]
        assert self.numbers(measured, decisions={"b": -7}) == [3]
        assert self.numbers(measured, decisions={"'; --": 1}) == []
        assert self.numbers(measured, decisions={'a"."1': 1}) == []
        with pytest.raises(RecordError, match="sort is 'faster'; expected one of trial"):
            listing.listed(measured, JOB, sort="faster")

    def test_a_page_holds_while_trials_come(self, measured):
        first = listing.listed(measured, JOB, sort="seconds", limit=2)
        measured.add_records([trial(6, 0.5), trial(7, 4.0)])
        rest = listing.listed(measured, JOB, sort="seconds", limit=9, after=first.after)
        assert [one.trial for one in rest.trials] == [4, 8, 1, 3, 5]

    def test_all_trials_are_exported_in_order(self, measured, monkeypatch):
        monkeypatch.setattr(listing, "EXPORTED", 2)
        assert [one.trial for one in listing.every(measured, JOB)] == [1, 2, 3, 4, 5, 6]
        assert list(listing.every(measured, "nobody")) == []

    def test_a_sample_of_those_with_a_time(self, measured):
        assert [one.trial for one in listing.tried(measured, JOB, 100)] == [1, 2, 4, 6]
        assert [one.trial for one in listing.tried(measured, JOB, 2)] == [1, 4]
        assert listing.tried(measured, "nobody", 5) == []

    # The roofline

    def test_limits_are_kept_and_replaced(self, store):
        assert roofline.limits_of(store, DEVICE) is None
        assert roofline.limits_of(store, None) is None
        roofline.put_limits(store, LIMITS)
        roofline.put_limits(store, DeviceLimits(**vars(LIMITS) | {"flops": 2e9}))
        found = roofline.limits_of(store, DEVICE)
        assert (found.flops, found.cache_bytes) == (2e9, 1000)
        assert roofline.all_limits(store) == [found]
        for wrong in ({"flops": 0.0}, {"bytes_per_second": float("nan")}, {"cache_bytes": -1}):
            with pytest.raises(RecordError, match="expected over 0"):
                roofline.put_limits(store, DeviceLimits(**vars(LIMITS) | wrong))

    def test_traffic_is_kept_once(self, store):
        roofline.put_traffic(store, Traffic(workload_key=KEY, bytes=8, dtype="float32"))
        roofline.put_traffic(store, Traffic(workload_key=KEY, bytes=9, dtype=None))
        assert roofline.traffic_of(store, [KEY, "nothing"]) == {
            KEY: Traffic(workload_key=KEY, bytes=8, dtype="float32")
        }

    def test_the_bests_of_workloads_on_devices(self, measured):
        measured.update_job(JOB, state="succeeded")
        (one,) = roofline.reached(measured, None, 10)
        assert (one.workload_key, one.seconds, one.job_id, one.device) == (KEY, 1.0, JOB, DEVICE)
        assert roofline.reached(measured, "another", 10) == []


def test_the_bound_is_that_of_the_higher_side() -> None:
    small = Traffic(workload_key="w", bytes=1000, dtype="float32")
    large = Traffic(workload_key="w", bytes=10**8, dtype="float32")
    other = Traffic(workload_key="w", bytes=10**8, dtype="float64")
    assert vars(bound(2e9, small, LIMITS)) == {"seconds": 2.0, "by": "arithmetic"}
    assert vars(bound(1e8, large, LIMITS)) == {"seconds": 1.0, "by": "memory"}
    assert bound(0.0, small, LIMITS) is None  # it fits the cache, and computes nothing
    assert bound(1e8, other, LIMITS) is None
    assert bound(1e8, None, LIMITS) is None
    assert bound(1e8, large, None) is None
