"""The local pool: every status provoked, and the search goes on after each."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from measure_doubles import PATIENT, Double, limited, make_pool, vector_add

from autosched import te
from autosched.errors import MeasureError
from autosched.schedule import Schedule, Trace
from autosched.tir.nodes import PrimFunc
from autosched.workloads import prim_func_of
from measure.local.build import LocalBuilder
from measure.local.lock import SlotLock
from measure.local.pool import LocalPool
from measure.local.slot import LocalRunner
from measure.pool import JobHandle, Pool
from measure.status import MeasureResult, Status

GOOD = Double("right")
Found = Sequence[tuple[int, MeasureResult]]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    with make_pool(tmp_path_factory.mktemp("lock"), n_parallel=2) as made:
        yield made


@pytest.fixture(scope="module")
def job(pool: LocalPool) -> JobHandle:
    opened = pool.open_job(vector_add())
    opened.spec = dataclasses.replace(opened.spec)
    return opened


@pytest.fixture(scope="module")
def real_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPool]:
    """With the default builder."""
    folder = tmp_path_factory.mktemp("lock")
    runner = LocalRunner(timeout=PATIENT, baseline_timeout=PATIENT, budget_ms=2, lock_folder=folder)
    builder = LocalBuilder(timeout=PATIENT, n_parallel=1)
    with LocalPool(builder=builder, runner=runner) as made:
        yield made


def children_of_template(pool: LocalPool) -> set[int]:
    process = pool._template._process
    if process is None:  # an interrupt in the middle of a fork ends it, and all children with it
        return set()
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return {int(word) for word in text.split()}


EXPECTED = {
    "unschedulable": (Status.INSTANTIATION_ERROR, "this trace fits no program"),
    "build_raises": (Status.BUILD_ERROR, "Traceback"),
    "build_exits": (Status.BUILD_ERROR, "SystemExit: 3"),
    "build_dies": (Status.BUILD_ERROR, "exit code 0 before it answered"),
    "build_segfaults": (Status.BUILD_ERROR, "killed by SIGSEGV"),
    "build_unpicklable": (Status.BUILD_ERROR, "from the builder"),
    "build_returns_nonsense": (Status.BUILD_ERROR, "returned int; expected an Artifact or"),
    "build_returns_lambda": (Status.BUILD_ERROR, "returned function; expected an Artifact or"),
    "build_leaves_grandchild": (Status.BUILD_ERROR, "left a grandchild"),
    "build_eats_memory": (Status.OUT_OF_MEMORY, "MemoryError"),
    "other_params": (Status.BUILD_ERROR, "has the arguments float32[1000], float32[1000];"),
    "segfault": (Status.RUNTIME_ERROR, "killed by SIGSEGV\n--- fault handler"),
    "abort": (Status.RUNTIME_ERROR, "killed by SIGABRT"),
    "illegal_instruction": (Status.RUNTIME_ERROR, "killed by SIGILL"),
    "stack_overflow": (Status.RUNTIME_ERROR, "killed by SIGSEGV"),
    "exit_0": (Status.RUNTIME_ERROR, "exit code 0 before it answered"),
    "undefined_symbol": (Status.RUNTIME_ERROR, "the code cannot be linked"),
    "endless_loop": (Status.RUN_TIMEOUT, "not done within"),
    "wrong_result": (Status.WRONG_RESULT, "out[0] is "),
    "wrong_at_the_end": (Status.WRONG_RESULT, "out[999] is 7.0, expected "),
    "unwritten": (Status.WRONG_RESULT, "out[997] is nan, expected "),
    "reads_unwritten_stack": (Status.WRONG_RESULT, "1000 are NaN"),
    "right_once": (Status.WRONG_RESULT, "the first call was right, a later one was not"),
    "writes_input": (Status.WRONG_RESULT, "input a was changed"),
    "write_after_end": (
        Status.OUT_OF_BOUNDS,
        "bytes after its end, the first",
    ),
    "write_before_start": (Status.OUT_OF_BOUNDS, "bytes before its start, the nearest"),
    "write_far_after_end": (Status.RUNTIME_ERROR, "SIGSEGV"),
    "write_far_before_start": (Status.RUNTIME_ERROR, "SIGSEGV"),
    "write_past_workspace": (Status.OUT_OF_BOUNDS, "the workspace (128 bytes)"),
    "huge_workspace": (Status.OUT_OF_MEMORY, "Unable to allocate 100"),
    "close_stdout": (Status.OK, ""),
    "grandchild": (Status.OK, ""),
    "pair": (Status.OK, ""),
}


# Where the builder did not live to say what it replayed.
NAMELESS = {"unschedulable", "build_dies", "build_segfaults", "build_eats_memory"}


@pytest.mark.parametrize("name", EXPECTED)
def test_local_status_and_going_on(pool: LocalPool, job: JobHandle, name: str) -> None:
    status, text = EXPECTED[name]
    if status is Status.RUN_TIMEOUT:
        with limited(pool, 1.0):
            (bad,) = pool.measure(job, [Double(name)])
        (good,) = pool.measure(job, [GOOD])
    else:
        bad, good = pool.measure(job, [Double(name), GOOD])
    assert (bad.status, good.status) == (status, Status.OK), bad.error
    assert text in bad.error
    assert (bad.seconds is None) == (status is not Status.OK)
    assert bad.retries == 0
    assert bool(bad.program_hash) == (name not in NAMELESS)


def test_local_every_status_is_provoked() -> None:
    """By the table above, `test_local_build_timeout`, `test_local_cancel`, and from outside."""
    provoked = {status for status, _ in EXPECTED.values()}
    assert provoked | {Status.BUILD_TIMEOUT, Status.CANCELLED, Status.DEVICE_LOST} == set(Status)


def test_local_build_timeout(pool: LocalPool, job: JobHandle) -> None:
    before = pool._builders.options
    pool._builders.options = dataclasses.replace(before, timeout=0.2)
    try:
        (bad,) = pool.measure(job, [Double("build_sleeps")])
    finally:
        pool._builders.options = before
    (good,) = pool.measure(job, [GOOD])
    assert (bad.status, good.status) == (Status.BUILD_TIMEOUT, Status.OK)
    assert "not done within 0.2 s" in bad.error


def test_local_fastest_call_takes_longer_than_allowed(pool: LocalPool, job: JobHandle) -> None:
    """What is allowed for handling data is no time for calls."""
    with limited(pool, 1e-3):
        slow, good = pool.measure(job, [Double("slow"), GOOD])
    assert (slow.status, good.status) == (Status.RUN_TIMEOUT, Status.OK)
    assert (slow.seconds, slow.samples) == (None, ())
    assert slow.error.endswith("0.001 s are allowed")


def test_local_leaves_no_grandchildren(pool: LocalPool, job: JobHandle) -> None:
    for name in ("grandchild", "build_leaves_grandchild"):
        pool.measure(job, [Double(name)])
    pool._slot.child.kill()
    pool._builders.kill()
    assert children_of_template(pool) == set()


def test_local_nothing_that_a_builder_started_is_at_work_beside_a_timing(
    pool: LocalPool, job: JobHandle
) -> None:
    bad, good = pool.measure(job, [Double("build_leaves_it_busy"), GOOD])
    assert (bad.status, good.status) == (Status.BUILD_ERROR, Status.OK)
    assert "returned NoneType" in bad.error
    builders = {c.pid for c in pool._builders.children if c.pid is not None}
    assert builders
    for pid in builders:
        assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
    assert children_of_template(pool) == set(pool.processes)


def test_local_builders_stand_still_while_others_are_timed(pool: LocalPool, job: JobHandle) -> None:
    """The threads that one left as well."""
    bad, good = pool.measure(job, [Double("build_leaves_a_busy_thread"), GOOD])
    assert (bad.status, good.status) == (Status.BUILD_ERROR, Status.OK)
    builders = [c.pid for c in pool._builders.children if c.pid is not None]
    assert builders

    def states() -> set[str]:
        return {Path(f"/proc/{p}/stat").read_text().rpartition(")")[2].split()[0] for p in builders}

    until = time.monotonic() + 10
    while states() != {"T"}:  # a thread is stopped when it would run next
        assert time.monotonic() < until, states()
        time.sleep(0.01)


def test_local_builder_that_removes_the_folders_of_all(pool: LocalPool, job: JobHandle) -> None:
    bad, good = pool.measure(job, [Double("build_removes_all_folders"), GOOD])
    assert (bad.status, good.status) == (Status.BUILD_ERROR, Status.OK)
    pool._slot.child.kill()
    pool._builders.kill()
    assert pool.measure(job, [GOOD])[0].ok


def test_local_result_is_complete(pool: LocalPool, job: JobHandle) -> None:
    (found,) = pool.measure(job, [GOOD])
    assert found.ok
    assert found.seconds is not None
    assert found.raw_seconds == min(found.samples)
    assert found.spread is not None
    assert found.noise is not None
    assert found.runs >= len(found.samples) >= 1
    assert found.build_seconds > 0
    assert found.run_wall_seconds > 0
    assert found.program_hash == job.baseline.program_hash
    assert found.error == ""
    assert str(found.status) == "ok"


def test_local_reports_each_result_once_as_it_comes(pool: LocalPool, job: JobHandle) -> None:
    names = ["right", "segfault", "build_raises", "right", "wrong_result"] * 3
    seen: list[tuple[int, MeasureResult]] = []
    results = pool.measure(job, [Double(n) for n in names], on_results=seen.extend)
    assert sorted(n for n, _ in seen) == list(range(15))
    assert all(results[n] is r for n, r in seen)
    assert [str(r.status) for r in results[:5]] == [
        "ok",
        "runtime_error",
        "build_error",
        "ok",
        "wrong_result",
    ]


def test_local_cancel_keeps_what_was_timed(pool: LocalPool, job: JobHandle) -> None:
    cancel = threading.Event()
    results = pool.measure(job, [GOOD] * 120, on_results=lambda _: cancel.set(), cancel=cancel)
    statuses = [str(r.status) for r in results]
    assert statuses == ["ok"] * statuses.count("ok") + ["cancelled"] * statuses.count("cancelled")
    assert 0 < statuses.count("ok") < 120


def test_local_nothing_to_measure(pool: LocalPool, job: JobHandle) -> None:
    assert pool.measure(job, []) == []
    assert pool.remeasure(job, [], rounds=1) == []


def test_local_cancel(pool: LocalPool, job: JobHandle) -> None:
    cancel = threading.Event()

    def stop(found: Found) -> None:
        cancel.set()

    # A failure is known before anything of its group is timed.
    doubles = [Double("build_raises"), *[GOOD] * 19]
    results = pool.measure(job, doubles, on_results=stop, cancel=cancel)
    assert [str(r.status) for r in results] == ["build_error"] + ["cancelled"] * 19
    assert "before it was timed" in results[1].error
    assert "before it was built" in results[19].error


def test_local_interrupt_leaves_all_usable(pool: LocalPool, job: JobHandle) -> None:
    def interrupt(found: Found) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.measure(job, [GOOD] * 3, on_results=interrupt)
    assert pool.measure(job, [GOOD])[0].ok


@pytest.mark.parametrize("name", ["build_sleeps", "endless_loop"])
def test_local_interrupt_while_waiting(pool: LocalPool, job: JobHandle, name: str) -> None:
    assert pool.measure(job, [GOOD])[0].ok
    children = (*pool._builders.children, pool._slot.child)
    stuck = children[:-1] if name == "build_sleeps" else children[-1:]
    over = threading.Event()

    def interrupt() -> None:
        while not over.wait(0.05):
            if all(child.busy for child in stuck):
                os.kill(os.getpid(), signal.SIGINT)
                return

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.measure(job, [Double(name)] * 50)
    finally:
        over.set()
        thread.join()
    assert not any(child.busy for child in children)
    ended = pool._template._process is None
    assert children_of_template(pool) == (set() if ended else set(pool.processes))
    assert len(pool.processes) <= 2 if name == "endless_loop" else len(pool.processes) <= 1
    assert pool.measure(job, [GOOD])[0].ok


def test_local_survives_its_template(pool: LocalPool, job: JobHandle) -> None:
    process = pool._template._process
    assert process is not None
    process.kill()
    process.wait()
    assert pool.measure(job, [GOOD])[0].ok


def test_local_remeasure(pool: LocalPool, job: JobHandle) -> None:
    good, bad, slow = pool.remeasure(job, [GOOD, Double("segfault"), Double("slow")], rounds=3)
    assert good.status is Status.OK
    assert good.timing is not None
    assert len(good.timing.blocks) == 3
    assert good.seconds is not None
    assert slow.seconds is not None
    assert good.seconds < slow.seconds
    assert bad.status is Status.RUNTIME_ERROR
    assert bad.seconds is None


def test_local_is_a_pool(pool: LocalPool, job: JobHandle) -> None:
    assert isinstance(pool, Pool)
    assert isinstance(job, JobHandle)
    assert pool.device.fingerprint in str(pool.device)


def matmul(n: int) -> PrimFunc:
    a = te.placeholder((n, n), name="a")
    b = te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b, c])


def test_local_default_builder(tmp_path: Path) -> None:
    func = matmul(40)
    sch = Schedule(func)
    i, j, k = sch.get_loops(sch.get_block("c"))
    _, inner = sch.split(j, factors=[None, 16])
    sch.reorder(k, inner)
    sch.vectorize(inner)
    sch.parallel(i)
    runner = LocalRunner(lock_folder=tmp_path, budget_ms=2, baseline_timeout=PATIENT)
    with LocalPool(runner=runner) as pool:
        job = pool.open_job(func, seed=3)
        assert job.baseline.ok
        result = pool.measure(job, [sch.trace])[0]
        assert result.ok, result.error
        assert result.program_hash != job.baseline.program_hash
        final = pool.remeasure(job, [sch.trace], rounds=2)[0]
        assert final.status is Status.OK, final.error
        other = pool.open_job(matmul(8))
        assert pool.measure(other, []) == []
        assert pool.measure(job, [sch.trace])[0].ok
        template = pool._template._folder
        assert template is not None
    assert not template.exists()
    assert job.fd == -1


def test_local_parallel_code_leaves_its_process_to_the_next(real_pool: LocalPool) -> None:
    """The runtime's own threads are not taken for something that it left."""
    func = matmul(40)
    sch = Schedule(func)
    i, _, _ = sch.get_loops(sch.get_block("c"))
    sch.parallel(i)
    job = real_pool.open_job(func)
    assert real_pool.measure(job, [sch.trace])[0].ok
    starts = real_pool._slot.child.starts
    assert all(r.ok for r in real_pool.measure(job, [sch.trace, Trace()] * 2))
    assert real_pool._slot.child.starts == starts
    job.close()


def unary(name: str) -> PrimFunc:
    a = te.placeholder((64,), name="a")
    return te.create_prim_func([a, te.compute((64,), lambda i: getattr(te, name)(a[i]), name="o")])


def product(n: int) -> PrimFunc:
    a = te.placeholder((4, n), name="a")
    k = te.reduce_axis((0, n), name="k")
    return te.create_prim_func([a, te.compute((4,), lambda i: te.prod(a[i, k], axis=k), name="o")])


@pytest.mark.parametrize(
    ("func", "recipe"),
    [
        (unary("exp"), "normal"),
        (unary("log"), "positive"),
        (unary("sqrt"), "positive"),
        (product(600), "positive"),
        (prim_func_of("rnn", (40, 1, 16, 32)), "small"),
        (prim_func_of("cumsum", (16, 16)), "normal"),
    ],
    ids=["exp", "log", "sqrt", "prod", "rnn", "cumsum"],
)
def test_local_inputs_give_finite_references(
    real_pool: LocalPool, func: PrimFunc, recipe: str
) -> None:
    job = real_pool.open_job(func)
    assert job.recipe.name == recipe
    assert job.baseline.ok
    assert real_pool.measure(job, [Trace()])[0].ok
    job.close()


def test_local_refuses_a_foreign_target() -> None:
    with LocalPool("llvm -mtriple=aarch64-unknown-linux-gnu") as pool:
        with pytest.raises(MeasureError, match="this machine cannot run"):
            pool.open_job(vector_add())
        assert pool.processes == ()


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "5", True])
def test_local_options_are_checked(wrong: Any) -> None:
    with pytest.raises(MeasureError, match="; expected a number above 0, at most 1e"):
        LocalRunner(timeout=wrong)
    with pytest.raises(MeasureError, match="baseline_timeout is "):
        LocalRunner(baseline_timeout=wrong)
    with pytest.raises(MeasureError, match="timeout is "):
        LocalBuilder(timeout=wrong)


def test_local_lock_that_cannot_be_made() -> None:
    with pytest.raises(MeasureError, match="there can be no lock of cpu in /proc/none: "):
        SlotLock(folder=Path("/proc/none"))


def test_local_timing_options_reach_the_runner(tmp_path: Path) -> None:
    runner = LocalRunner(
        number=2, repeat=3, cooldown_ms=0.1, flush_cache=True, threads=1, lock_folder=tmp_path
    )
    with LocalPool(builder=LocalBuilder(n_parallel=1), runner=runner) as pool:
        job = pool.open_job(unary("exp"))
        (result,) = pool.measure(job, [Trace()])
    assert result.ok
    # Samples that other work disturbed do not count and are taken again.
    assert len(result.samples) >= 2
    assert result.runs >= 2 * len(result.samples)
    assert result.runs % 2 == 0
