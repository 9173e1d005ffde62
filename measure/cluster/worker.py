"""What one device slot does for a pool elsewhere: opens jobs, measures batches, runs its canary.

Knows nothing of how requests come and messages go. All work happens in one thread of its own, since
a pool belongs to one thread; candidates are contained by the slot's own pool, as they are locally.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from autosched import te
from autosched.closing import Closing
from autosched.codegen.build import toolchain
from autosched.errors import AutoschedError, MeasureError
from autosched.schedule import Trace
from autosched.script import parse
from autosched.target import Target, available_cores
from autosched.tir.canonical import workload_key
from autosched.tir.nodes import PrimFunc
from measure.cluster.registry import Hello
from measure.cluster.wire import JsonDict, encode_hello, encode_result, explained
from measure.local.pool import LocalPool
from measure.local.slot import LocalRunner
from measure.pool import Pool
from measure.status import MeasureResult, Status

Post = Callable[[JsonDict], None]
"""Takes a message to the pool that a batch is for; called from any thread."""
Engine = Callable[[Target, str], Pool]
"""Makes the pool that measures in a slot, from the target and the slot's name."""

FLUSH_SECONDS = 0.5
"""Answers travel together so often, or as the request says: a message costs a millisecond of the
tuning process."""
BEAT_SECONDS = 2.0
OPEN_JOBS = 2
FORGOTTEN = 1000
# After one of these it is the device that may be unwell: it answers with its canary first.
SUSPECT = frozenset(
    {
        Status.RUNTIME_ERROR,
        Status.RUN_TIMEOUT,
        Status.WRONG_RESULT,
        Status.OUT_OF_BOUNDS,
        Status.OUT_OF_MEMORY,
        Status.DEVICE_LOST,
    }
)
CANARY_SIDE = 48
GPUS = ("cuda", "opencl")


def local_engine(target: Target, slot: str) -> Pool:
    """The cores that this process may use, or a GPU (a slot such as "cuda/0"), as a device.

    Raises MeasureError if they are too few for the target, or of another kind.
    """
    kind, _, number = slot.partition("/")
    if kind in GPUS or target.is_gpu:
        if kind != target.kind:
            has = f"a device of {kind}" if kind in GPUS else "a processor"
            raise MeasureError(
                f"the slot {slot} is {has} and cannot run {target}; workers of a GPU are started "
                "with autosched worker --target"
            )
        return LocalPool(target, runner=LocalRunner(device=int(number)))
    missing = target.missing_here()
    if missing:
        raise MeasureError(
            f"the slot {slot} cannot run {target}: it lacks {', '.join(missing)}; "
            f"tune for {Target('llvm')}"
        )
    if target.num_cores > available_cores():
        raise MeasureError(
            f"the target asks for {target.num_cores} cores, and the slot {slot} has "
            f"{available_cores()}; tune for {Target('llvm')}"
        )
    return LocalPool(target, runner=LocalRunner(slot=slot))


def canary() -> PrimFunc:
    """The canary kernel: a small matrix product."""
    n = CANARY_SIDE
    a = te.placeholder((n, n), name="a")
    b = te.placeholder((n, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    return te.create_prim_func([a, b, c])


class Service(Closing):
    """A slot at work for pools elsewhere. A context manager; see the module.

    `default_target` is what its canary is built for, and what it recommends itself for.
    """

    def __init__(self, engine: Engine, slot: str, default_target: Target | None = None) -> None:
        self.slot = slot
        self.default_target = default_target or Target("llvm")
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"autosched-{slot}")
        self._pool: Pool | None = None
        self._target = ""
        self._jobs: OrderedDict[str, Any] = OrderedDict()
        self._canary: Any = None
        self._lock = threading.Lock()
        self._running: tuple[str, threading.Event] | None = None
        self._stopped: deque[str] = deque(maxlen=FORGOTTEN)

    def run(self, request: JsonDict, post: Post) -> None:
        """Do what `request` says and post what comes of it; returns when done.

        Raises MeasureError, or whatever goes wrong, when the slot rather than a candidate failed.
        """
        self._thread.submit(self._serve, request, post).result()

    def stop(self, batch: str) -> str:
        """Cancel a batch, which may be running or not have arrived yet. Returns "OK":
        a Dask worker that has no such call answers None."""
        with self._lock:
            self._stopped.append(batch)
            if self._running is not None and self._running[0] == batch:
                self._running[1].set()
        return "OK"

    def stop_all(self) -> None:
        """Whoever asked cannot be reached any more."""
        with self._lock:
            if self._running is not None:
                self._running[1].set()

    def close(self) -> None:
        """End all processes. Waits for the candidate that is being measured."""
        self.stop_all()
        self._thread.submit(self._close_pool).result()
        self._thread.shutdown()

    def _serve(self, request: JsonDict, post: Post) -> None:
        batch = str(request["key"])
        cancel = threading.Event()
        with self._lock:
            if batch in self._stopped:
                return
            self._running = (batch, cancel)
        try:
            every = request.get("flush_seconds", FLUSH_SECONDS)
            with _Reporter(post, request["batch"], every) as reporter:
                getattr(self, f"_do_{request['kind']}")(request, reporter, cancel)
        finally:
            with self._lock:
                self._running = None

    def _do_check(self, _: JsonDict, reporter: _Reporter, cancel: threading.Event) -> None:
        pool = self._pool_for(self._target or str(self.default_target))
        seconds = self._run_canary(pool)
        hello = Hello(pool.device, str(self.default_target), toolchain(), seconds)
        reporter.message({"hello": encode_hello(hello)})

    def _do_open(self, request: JsonDict, reporter: _Reporter, cancel: threading.Event) -> None:
        try:
            pool = self._pool_for(request["job"]["target"])
        except AutoschedError as e:  # the device is well, but not for this target
            reporter.answer(0, {"error": explained(e)})
            return
        # The canary first: what fails afterwards is the workload's own doing.
        self._run_canary(pool)
        try:
            handle = self._job(pool, request["job"])
        except MeasureError as e:
            reporter.answer(0, {"error": explained(e)})
            return
        value = {"result": encode_result(handle.baseline), "trace": handle.baseline_trace.to_json()}
        reporter.answer(0, value)

    def _do_measure(self, request: JsonDict, reporter: _Reporter, cancel: threading.Event) -> None:
        pool = self._pool_for(request["job"]["target"])
        job = self._job(pool, request["job"])
        items = [item for item, _ in request["items"]]
        traces = [Trace.from_json(text) for _, text in request["items"]]
        held: list[tuple[int, MeasureResult]] = []

        def on_results(found: Sequence[tuple[int, MeasureResult]]) -> None:
            for place, result in found:
                if result.status in SUSPECT:
                    held.append((items[place], result))
                elif result.status is not Status.CANCELLED or not cancel.is_set():
                    reporter.answer(items[place], encode_result(result))

        pool.measure(job, traces, request["best_seconds"], on_results, cancel)
        if held:
            self._judge(pool, held, reporter)

    def _judge(
        self, pool: Pool, held: Sequence[tuple[int, MeasureResult]], reporter: _Reporter
    ) -> None:
        """Answer failures, if the device is well; else say that it is not."""
        try:
            self._run_canary(pool)
        except MeasureError as e:
            why = f"its canary failed: {explained(e)}"
            for item, result in held:
                reporter.unfit(item, f"{why}; before that a candidate was {result.status}")
            return
        for item, result in held:
            reporter.answer(item, encode_result(result))

    def _do_remeasure(
        self, request: JsonDict, reporter: _Reporter, cancel: threading.Event
    ) -> None:
        pool = self._pool_for(request["job"]["target"])
        job = self._job(pool, request["job"])
        traces = [Trace.from_json(text) for text in request["traces"]]
        timings = pool.remeasure(job, traces, request["rounds"], cancel)
        reporter.answer(0, {"timings": [encode_result(t) for t in timings]})

    def _pool_for(self, target: str) -> Pool:
        """The slot's pool, made anew for another target."""
        if self._pool is None or self._target != target:
            self._close_pool()
            self._pool, self._target = self._engine(Target(target), self.slot), target
        return self._pool

    def _job(self, pool: Pool, job: JsonDict) -> Any:
        """The open job, opened if it is not; the last few are kept. Raises MeasureError."""
        found = self._jobs.get(job["key"])
        if found is None:
            func = parse(job["script"])
            if not isinstance(func, PrimFunc) or workload_key(func) != job["workload_key"]:
                raise MeasureError(
                    f"the workload {job['workload_key']} was read as another one; "
                    "run the same version of autosched on both sides"
                )
            while len(self._jobs) >= OPEN_JOBS:
                self._jobs.popitem(last=False)[1].close()
            found = self._jobs[job["key"]] = pool.open_job(func, job["seed"])
        self._jobs.move_to_end(job["key"])
        return found

    def _run_canary(self, pool: Pool) -> float:
        """Seconds of the canary. Raises MeasureError if it does not run, or not right."""
        if self._canary is None:
            self._canary = pool.open_job(canary(), 0)
        (result,) = pool.measure(self._canary, [self._canary.baseline_trace])
        if result.seconds is None or not math.isfinite(result.seconds):
            raise MeasureError(f"the canary kernel is {result.status}: {result.error}")
        return result.seconds

    def _close_pool(self) -> None:
        for job in (*self._jobs.values(), *filter(None, [self._canary])):
            job.close()
        self._jobs.clear()
        self._canary = None
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class _Reporter:
    """Posts a batch's messages: at once that it has begun, then answers together, and beats."""

    def __init__(self, post: Post, batch: int, every: float) -> None:
        self._post, self._batch, self._every = post, batch, every
        self._held = _nothing()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._said = 0.0
        self._beats = threading.Thread(target=self._beat, name="autosched-beat", daemon=True)

    def __enter__(self) -> _Reporter:
        self.message({})
        self._beats.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._beats.join()
        self._flush()

    def answer(self, item: int, value: JsonDict) -> None:
        """An item's answer."""
        with self._lock:
            self._held["answers"].append((item, value))

    def unfit(self, item: int, why: str) -> None:
        """An item's failure that is the device's."""
        with self._lock:
            self._held["unfit"].append((item, why))

    def message(self, more: JsonDict) -> None:
        """Post at once."""
        self._said = time.monotonic()
        self._post({"batch": self._batch, "hello": None} | _nothing() | more)

    def _flush(self) -> None:
        with self._lock:
            found, self._held = self._held, _nothing()
        if any(found.values()):
            self.message(found)

    def _beat(self) -> None:
        while not self._over.wait(min(self._every, BEAT_SECONDS)):
            self._flush()
            if time.monotonic() - self._said >= BEAT_SECONDS:
                self.message({})


def _nothing() -> dict[str, list[tuple[int, Any]]]:
    return {"answers": [], "unfit": []}
