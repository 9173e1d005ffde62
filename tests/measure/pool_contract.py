"""What every pool does: run over the local, the replaying and the cluster's."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from cluster_doubles import candidates, misfit, vector_add

from autosched.tir.canonical import program_hash
from autosched.tir.nodes import PrimFunc
from measure.pool import JobHandle, Pool
from measure.status import MeasureResult, Status


class PoolContract:
    """Subclasses have a fixture `pool`, of module scope."""

    @pytest.fixture(scope="class")
    @classmethod
    def func(cls) -> PrimFunc:
        return vector_add()

    @pytest.fixture(scope="class")
    @classmethod
    def job(cls, pool: Pool, func: PrimFunc) -> JobHandle:
        opened: JobHandle = pool.open_job(func, seed=1)
        return opened

    def test_pool_offers_what_pools_offer(self, pool: Pool) -> None:
        assert isinstance(pool, Pool)
        assert len(pool.device.fingerprint) == 12
        assert pool.device == pool.device

    def test_pool_job_has_a_baseline(self, job: JobHandle, func: PrimFunc) -> None:
        assert isinstance(job, JobHandle)
        assert job.baseline.ok
        assert (job.baseline.seconds or 0) > 0
        assert job.baseline.program_hash == program_hash(job.baseline_trace.apply(func).func)

    def test_pool_gives_each_candidate_its_own_result(
        self, pool: Pool, job: JobHandle, func: PrimFunc
    ) -> None:
        traces = candidates(func, 9)
        told: dict[int, MeasureResult] = {}
        threads = set()

        def on_results(found: Sequence[tuple[int, MeasureResult]]) -> None:
            assert found
            assert not told.keys() & {place for place, _ in found}
            told.update(found)
            threads.add(threading.current_thread())

        results = pool.measure(job, traces, None, on_results)
        assert [told[n] for n in range(9)] == results
        assert threads == {threading.current_thread()}
        assert [r.status for r in results] == [Status.OK] * 9
        assert all(r.seconds and r.raw_seconds and r.runs for r in results)
        assert [r.program_hash for r in results] == [
            program_hash(t.apply(func).func) for t in traces
        ]

    def test_pool_failing_candidate_is_a_result_among_others(
        self, pool: Pool, job: JobHandle, func: PrimFunc
    ) -> None:
        good = candidates(func, 2)
        results = pool.measure(job, [good[0], misfit(), good[1]])
        assert [r.status for r in results] == [
            Status.OK,
            Status.INSTANTIATION_ERROR,
            Status.OK,
        ]
        assert results[1].error
        assert results[1].seconds is None

    def test_pool_same_candidate_twice_is_measured_twice(
        self, pool: Pool, job: JobHandle, func: PrimFunc
    ) -> None:
        (trace,) = candidates(func, 1)
        first, second = pool.measure(job, [trace, trace])
        assert first.ok
        assert first.program_hash == second.program_hash

    def test_pool_nothing_to_measure(self, pool: Pool, job: JobHandle) -> None:
        assert pool.measure(job, []) == []
        assert pool.remeasure(job, []) == []

    def test_pool_cancelled_before_the_start(
        self, pool: Pool, job: JobHandle, func: PrimFunc
    ) -> None:
        stop = threading.Event()
        stop.set()
        told: list[int] = []
        results = pool.measure(
            job, candidates(func, 5), None, lambda f: told.extend(n for n, _ in f), cancel=stop
        )
        assert [r.status for r in results] == [Status.CANCELLED] * 5
        assert sorted(told) == list(range(5))
        assert all(r.error for r in results)
        timings = pool.remeasure(job, candidates(func, 2), cancel=stop)
        assert [t.status for t in timings] == [Status.CANCELLED] * 2

    def test_pool_cancelled_at_the_first_result_goes_on_afterwards(
        self, pool: Pool, job: JobHandle, func: PrimFunc
    ) -> None:
        stop = threading.Event()
        traces = candidates(func, 40)
        results = pool.measure(job, traces, None, lambda *_: stop.set(), cancel=stop)
        statuses = {r.status for r in results}
        assert statuses <= {Status.OK, Status.CANCELLED}
        assert Status.CANCELLED in statuses
        assert [r.status for r in pool.measure(job, traces[:3])] == [Status.OK] * 3

    def test_pool_goes_on_after_an_error_of_the_callers(
        self, pool: Pool, job: JobHandle, func: PrimFunc
    ) -> None:
        def on_results(found: Sequence[tuple[int, MeasureResult]]) -> None:
            raise KeyError("the caller's own")

        with pytest.raises(KeyError, match="the caller's own"):
            pool.measure(job, candidates(func, 6), None, on_results)
        results = pool.measure(job, candidates(func, 3))
        assert [r.status for r in results] == [Status.OK] * 3

    def test_pool_remeasures_finalists_in_order(
        self, pool: Pool, job: JobHandle, func: PrimFunc
    ) -> None:
        first, bad, second = candidates(func, 1)[0], misfit(), candidates(func, 2)[1]
        timings = pool.remeasure(job, [first, bad, second], rounds=3)
        assert [t.status for t in timings] == [
            Status.OK,
            Status.INSTANTIATION_ERROR,
            Status.OK,
        ]
        assert all(t.seconds and t.seconds > 0 for t in (timings[0], timings[2]))
        assert timings[1].seconds is None

    def test_pool_two_jobs_at_a_time(self, pool: Pool, job: JobHandle, func: PrimFunc) -> None:
        other = pool.open_job(func, seed=2)
        for each in (other, job, other):
            (result,) = pool.measure(each, candidates(func, 1))
            assert result.ok
        other.close()
        other.close()
        (result,) = pool.measure(job, candidates(func, 1))
        assert result.ok
