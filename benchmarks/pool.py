"""A pool of devices elsewhere: how busy it stays, what dispatching costs, and what faults cost.

    python benchmarks/pool.py                    # all parts, some four minutes
    python benchmarks/pool.py --part simulated --part same --part local --part far --part kills

- `simulated`: 1,000 devices at 200 ms a candidate, in another process, on the same dispatcher and
  pool as real ones; proposals are replayed, and every result is committed to a SQLite store.
  `dispatcher_ms` is all processor time of this process a candidate, but for what committing took.
- `same`: a search on two real workers that replay a model, against the same search in this process.
- `local`: two slots of one core each against the local pool, on kernels of one thread.
- `far`: two real workers at 50 ms a candidate whose messages take 10 ms each way: busy share with
  the next batch sent ahead, and without, in turns.
- `kills`: four real workers, one killed every 5 seconds.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simulated_devices import SimulatedTransport

import autosched as at
from autosched.codegen.build import toolchain
from autosched.schedule import Trace
from autosched.target import Target
from autosched.tuning.pools import made_up_machine
from measure.cluster.dask_transport import DaskTransport
from measure.cluster.flights import Limits
from measure.cluster.pool import ClusterPool
from measure.cluster.registry import Hello
from measure.cluster.transport import Event, Transport
from measure.cluster.wire import JsonDict
from measure.devices import Device
from measure.local.pool import LocalPool
from measure.pool import Pool
from measure.replay import ReplayPool, modelled
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing
from records import Record, Store, Workload

DEVICE = Device("simulated", "x86_64", 1, (), "none")
JOIN_SECONDS = 120.0
TRACE = [["get_block", ["#0"], {}, ["b0"]]]
"""One for all records, as a search's candidates of one variant share theirs."""
ONE_CORE = Target("llvm -num-cores=1")
PARTS = ("simulated", "same", "local", "far", "kills")


def model_engine(target: Target, slot: str) -> Pool:
    """For workers: a made-up machine that answers at once."""
    return ReplayPool(DEVICE, modelled(made_up_machine(target)))


def paced_engine(target: Target, slot: str) -> Pool:
    """For workers: a made-up machine that takes 50 ms a candidate."""
    return ReplayPool(DEVICE, modelled(made_up_machine(target)), 0.05)


def some_traces(task: at.SearchTask, count: int) -> list[Trace]:
    """Candidates of a task."""
    policy = at.SketchPolicy(task, seed=0)
    space = policy.space
    population = policy.sample_initial_population(min(count, 256))
    found = [space.candidate(population, row) for row in range(len(population))]
    return [space.trace(*found[n % len(found)]) for n in range(count)]


# A thousand devices -----------------------------------------------------------------------------


def simulated() -> dict[str, Any]:
    """Busy share, processor time a candidate, and records committed a second: without a store,
    and with one, to which the thread that takes the results commits them."""
    return {"alone": _simulated(keep=False), "with_store": _simulated(keep=True)}


def _simulated(
    keep: bool, devices: int = 1000, each: float = 0.2, rounds: int = 120
) -> dict[str, Any]:
    task = at.SearchTask("matmul", (64, 64, 64), target=ONE_CORE)
    result = MeasureResult(
        Status.OK, timing=Timing(1e-3, 1e-3, runs=20, samples=(1e-3,) * 20),
        program_hash="0" * 24,
    )  # fmt: skip
    hello = Hello(DEVICE, str(ONE_CORE), toolchain(), 1e-4)
    count = devices * rounds
    traces = some_traces(task, count)
    # So many objects, which a search would not have at once, are not looked through for garbage.
    gc.collect()
    gc.freeze()
    transport = SimulatedTransport({f"d{n:04}": hello for n in range(devices)}, result, each)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "pool.db") as store:
        keeper = Keeper(store)
        with ClusterPool("simulated", transport=transport, target=ONE_CORE) as pool:
            job = pool.open_job(task.prim_func)
            wait_ready(pool, devices)
            start, used = time.perf_counter(), time.process_time()
            results = pool.measure(job, traces, None, keeper.add if keep else None)
            took = time.perf_counter() - start
            used = time.process_time() - used
            batches = pool.counters["batches"]
        assert all(r.ok for r in results)
        if keep:
            assert sum(1 for _ in store.records()) == count
    gc.unfreeze()
    return {
        "devices": devices,
        "candidates": count,
        "busy": round(count * each / (devices * took), 4),
        "dispatcher_ms": round(1e3 * (used - keeper.used) / count, 4),
        "batches": batches,
        "commit_ms": round(1e3 * keeper.used / count, 4) if keep else None,
        "records_per_second": round(count / keeper.busy) if keep else None,
        "commits": keeper.commits,
        "seconds": round(took, 1),
    }


class Keeper:
    """Commits results as they come, all that there are at a time, as a tuning run does.

    `busy` are the seconds that this took, `used` those of the processor.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.store.put_workload(Workload(key="w", name="matmul", script="def main(): ...\n"))
        self.job = store.create_job("w", str(ONE_CORE), device="d", seed=0, trials_requested=1).id
        self.busy = self.used = 0.0
        self.commits = 0

    def add(self, found: Sequence[tuple[int, MeasureResult]]) -> None:
        """Take results."""
        start, used = time.perf_counter(), time.thread_time()
        self.store.add_records([self._record(n, r) for n, r in found])
        self.busy += time.perf_counter() - start
        self.used += time.thread_time() - used
        self.commits += 1

    def _record(self, place: int, result: MeasureResult) -> Record:
        return Record(
            job_id=self.job, kind="trial", round=place // 1000, slot=place % 1000, workload_key="w",
            target=str(ONE_CORE), device="d", toolchain="t", status=str(result.status),
            trace=TRACE, decisions={"a": place},
            program_hash=f"{place:x}", seconds=result.seconds, spread=0.0, noise=0.0, runs=20,
        )  # fmt: skip


# Real workers -----------------------------------------------------------------------------------


@contextmanager
def cluster(engine: str | None, slots: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A scheduler and a worker on this machine: the address, the worker's process."""
    command = [sys.executable, "-m", "autosched.cli"]
    here = Path(__file__).parent
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parent)])}
    scheduler = subprocess.Popen(
        [*command, "scheduler", "--port", "0"], stdout=subprocess.PIPE, text=True, env=env
    )
    assert scheduler.stdout is not None
    address = scheduler.stdout.readline().split()[-1]
    more = [] if engine is None else ["--engine", f"pool:{engine}"]
    worker = subprocess.Popen(
        [*command, "worker", "--scheduler", address, "--label", "bench", "--slots", str(slots)]
        + more,
        stderr=subprocess.DEVNULL,
        text=True,
        env=env,
    )
    try:
        yield address, worker
    finally:
        for process in (worker, scheduler):
            process.terminate()
            process.wait(30)
        scheduler.stdout.close()


def wait_ready(pool: ClusterPool, count: int) -> None:
    """Until so many devices may work. Raises TimeoutError if they never do."""
    end = time.monotonic() + JOIN_SECONDS
    while sum(d.state in ("ready", "busy") for d in pool.devices()) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"{count} devices did not join within {JOIN_SECONDS:g} s")
        time.sleep(0.05)  # workers join one by one


def same(trials: int = 128) -> dict[str, Any]:
    """Whether two workers give the proposals that this process alone does."""
    task = at.SearchTask("matmul_add", (128, 128, 128), target=ONE_CORE)

    def tune(pool: Pool, folder: str) -> list[Any]:
        store = Path(folder) / f"{type(pool).__name__}.db"
        options = at.TuningOptions(
            num_measure_trials=trials, pool=pool, verbose=0,
            measure_callbacks=[at.RecordToStore(store)],
        )  # fmt: skip
        task.tune(options)
        with Store(store) as source:
            rows = [(r.round, r.slot, r.decisions, r.program_hash) for r in source.records()]
        return sorted(rows, key=lambda row: row[:2])

    with (
        tempfile.TemporaryDirectory() as folder,
        cluster("model_engine", 2) as (address, _),
        ClusterPool(address, target=ONE_CORE) as pool,
    ):
        wait_ready(pool, 2)
        return {
            "trials": trials,
            "same": tune(pool, folder) == tune(model_engine(ONE_CORE, ""), folder),
        }


def local(count: int = 128, turns: int = 3) -> dict[str, Any]:
    """Candidates a second of two slots over those of the local pool, in turns."""
    task = at.SearchTask("matmul_add", (128, 128, 128), target=ONE_CORE)
    traces = some_traces(task, count)
    rates: dict[str, list[float]] = {"cluster": [], "local": []}
    with (
        cluster(None, 2) as (address, _),
        ClusterPool(address, target=ONE_CORE) as far,
        LocalPool(ONE_CORE) as near,
    ):
        wait_ready(far, 2)
        pools: list[tuple[str, Any]] = [("cluster", far), ("local", near)]
        jobs = {name: pool.open_job(task.prim_func) for name, pool in pools}
        for _ in range(turns):
            for name, pool in pools:
                start = time.perf_counter()
                results = pool.measure(jobs[name], traces)
                rates[name].append(count / (time.perf_counter() - start))
                assert sum(r.ok for r in results) > 0.9 * count
    best = {name: max(found) for name, found in rates.items()}
    return {
        "cluster_per_second": round(best["cluster"], 1),
        "local_per_second": round(best["local"], 1),
        "ratio": round(best["cluster"] / best["local"], 3),
    }


class Distant:
    """A transport whose messages are under way for `latency` seconds, each way."""

    def __init__(self, near: Transport, latency: float) -> None:
        self.near, self.latency = near, latency
        self.out: list[tuple[float, int, Callable[[], None]]] = []
        self.back: list[tuple[float, int, Event]] = []
        self.order = itertools.count()

    def send(self, batch: int, address: str, label: str, request: JsonDict) -> None:
        self._later(lambda: self.near.send(batch, address, label, request))

    def stop(self, batch: int, address: str, forget: bool) -> None:
        self._later(lambda: self.near.stop(batch, address, forget))

    def _later(self, act: Callable[[], None]) -> None:
        heapq.heappush(self.out, (time.monotonic() + self.latency, next(self.order), act))

    def receive(self, seconds: float) -> list[Event]:
        end, found = time.monotonic() + seconds, list[Event]()
        while True:
            for event in self.near.receive(min(0.002, seconds)):
                then = time.monotonic() + self.latency
                heapq.heappush(self.back, (then, next(self.order), event))
            now = time.monotonic()
            while self.out and self.out[0][0] <= now:
                heapq.heappop(self.out)[2]()
            while self.back and self.back[0][0] <= now:
                found.append(heapq.heappop(self.back)[2])
            if found or now >= end:
                return found

    def close(self) -> None:
        self.near.close()


def far(count: int = 256, each: float = 0.05, turns: int = 3) -> dict[str, Any]:
    """Busy share of two workers 20 ms away, in batches of one second."""
    task = at.SearchTask("matmul", (64, 64, 64), target=ONE_CORE)
    traces = some_traces(task, count)
    busy: dict[str, list[float]] = {"ahead": [], "in_turn": []}
    with cluster("paced_engine", 2) as (address, _):
        for _, (name, lead) in itertools.product(
            range(turns), (("ahead", Limits.lead), ("in_turn", float("-inf")))
        ):
            limits = Limits(batch_seconds=1.0, lead=lead)
            transport = Distant(DaskTransport(address), 0.01)
            with ClusterPool(address, target=ONE_CORE, limits=limits, transport=transport) as pool:
                wait_ready(pool, 2)
                job = pool.open_job(task.prim_func)
                pool.measure(job, traces[:16])
                start = time.perf_counter()
                pool.measure(job, traces)
                busy[name].append(count * each / 2 / (time.perf_counter() - start))
    return {name: round(max(shares), 3) for name, shares in busy.items()}


def kills(seconds: float = 120.0, every: float = 5.0) -> dict[str, Any]:
    """What is lost and what repeated while one of four workers is killed again and again."""
    task = at.SearchTask("matmul", (64, 64, 64), target=ONE_CORE)
    traces = some_traces(task, 64)
    rng = random.Random(0)
    killed = lost = measured = 0
    with (
        cluster("paced_engine", 4) as (address, worker),
        ClusterPool(address, target=ONE_CORE) as pool,
    ):
        wait_ready(pool, 4)
        job = pool.open_job(task.prim_func)
        over = threading.Event()

        def kill() -> None:
            nonlocal killed
            while not over.wait(every):
                children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text()
                os.kill(int(rng.choice(children.split())), signal.SIGKILL)
                killed += 1

        killer = threading.Thread(target=kill)
        killer.start()
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                results = pool.measure(job, traces * 4)
                measured += len(results)
                lost += sum(not r.ok for r in results)
        finally:
            over.set()
            killer.join()
        repeats = pool.counters["repeats"]
        largest = pool.limits.batch_items
    return {
        "killed": killed,
        "candidates": measured,
        "lost": lost,
        "repeats": repeats,
        "repeats_per_kill": round(repeats / max(1, killed), 2),
        "repeats_allowed": killed * largest,
    }


def main() -> None:
    """Run the parts that are asked for; the last line is JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS)
    options = parser.parse_args()
    found = {}
    for part in options.part or PARTS:
        found[part] = globals()[part]()
        print(part, found[part], flush=True)
    print(json.dumps({"benchmark": "pool", **found}))


if __name__ == "__main__":
    main()
