"""The pool over a transport that a test plays: what is late, what blocks, what breaks."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from cluster_doubles import DEVICE, candidates, vector_add

from autosched.codegen.build import toolchain
from autosched.errors import MeasureError
from autosched.schedule import Trace
from measure.cluster import driver
from measure.cluster.flights import Limits
from measure.cluster.pool import ClusterPool
from measure.cluster.registry import Hello, Sighting
from measure.cluster.transport import Ended, Event, Listing, Message
from measure.cluster.wire import JsonDict, encode_hello, encode_result
from measure.status import MeasureResult, Status
from measure.timing.timing import Timing

FUNC = vector_add()
LIMITS = Limits(batch_seconds=4.0, batch_items=8, silence=0.3, stall=60.0, check=60.0)
HELLO = Hello(DEVICE, "llvm -num-cores=1", toolchain(), 1e-3)
Play = Callable[[int, str, JsonDict], None]
Found = Sequence[tuple[int, MeasureResult]]


def timed(seconds: float) -> MeasureResult:
    return MeasureResult(Status.OK, timing=Timing(seconds, seconds))


class Played:
    """Devices "a", "b", …: they pass their canaries and open jobs; the rest is `play`'s, which is
    told of each batch of candidates (its number, the device, the request)."""

    def __init__(self, names: str = "ab") -> None:
        self.names = names
        self.events: queue.SimpleQueue[Event | BaseException] = queue.SimpleQueue()
        self.play: Play = self.measure
        self.on_stop: Callable[[int, bool], None] = lambda batch, forget: None
        self.sent: dict[int, list[int]] = {}
        self.devices: dict[int, str] = {}

    def send(self, batch: int, address: str, label: str, request: JsonDict) -> None:
        if request["kind"] == "measure":
            self.sent[batch] = [item for item, _ in request["items"]]
            self.devices[batch] = address
            self.play(batch, address, request)
            return
        more: JsonDict = {"hello": encode_hello(HELLO)}
        if request["kind"] == "open":
            baseline = {"result": encode_result(timed(1.0)), "trace": Trace().to_json()}
            more = {"answers": [(0, baseline)]}
        self.say(batch, more)
        self.events.put(Ended(batch, None))

    def stop(self, batch: int, address: str, forget: bool) -> None:
        self.on_stop(batch, forget)

    def receive(self, seconds: float) -> list[Event]:
        out: list[Event] = [Listing({n: Sighting("l", n, 0.0) for n in self.names})]
        try:
            found = self.events.get(timeout=min(seconds, 0.02))
            while True:
                if isinstance(found, BaseException):
                    raise found
                out.append(found)
                found = self.events.get_nowait()
        except queue.Empty:
            return out

    def close(self) -> None:
        pass

    def say(self, batch: int, more: JsonDict) -> None:
        body: Any = {"batch": batch, "answers": [], "unfit": [], "hello": None} | more
        self.events.put(Message(body))

    def answer(self, batch: int, items: Sequence[int], scale: float = 1.0) -> None:
        """Item n takes n + 1 seconds, times `scale`."""
        answers = [(n, encode_result(timed(scale * (n + 1)))) for n in items]
        self.say(batch, {"answers": answers})

    def measure(self, batch: int, device: str, request: JsonDict) -> None:
        """All at once, and right."""
        self.answer(batch, self.sent[batch])
        self.events.put(Ended(batch, None))


@contextmanager
def pool_of(played: Any, wait_seconds: float = 30.0) -> Iterator[ClusterPool]:
    """A pool of which nothing is left at the end."""
    with ClusterPool(
        "played", target="llvm -num-cores=1", transport=played, limits=LIMITS,
        wait_seconds=wait_seconds,
    ) as pool:  # fmt: skip
        yield pool
    assert not [t for t in threading.enumerate() if t.name == "autosched-dispatch"]


def seconds_of(results: Sequence[MeasureResult]) -> list[float | None]:
    return [r.seconds for r in results]


def test_driver_answer_that_comes_after_its_candidates_were_given_to_another() -> None:
    played = Played()
    stopped: list[tuple[int, bool]] = []
    played.on_stop = lambda batch, forget: stopped.append((batch, forget))

    def play(batch: int, device: str, request: JsonDict) -> None:
        if device == "a" and "a" not in list(played.devices.values())[:-1]:
            played.say(batch, {})  # it begins, and is silent from then on
            return
        for other, name in played.devices.items():
            if name == "a" and other < batch and set(played.sent[batch]) <= set(played.sent[other]):
                played.answer(other, played.sent[batch], scale=10.0)
        played.measure(batch, device, request)

    played.play = play
    with pool_of(played) as pool:
        job = pool.open_job(FUNC)
        told: list[int] = []
        results = pool.measure(
            job, candidates(FUNC, 4), None, lambda found: told.extend(n for n, _ in found)
        )
        late = min(b for b, name in played.devices.items() if name == "a")
        mine = played.sent[late]
        # The first answer counts, whoever gives it; the second is dropped.
        assert seconds_of(results) == [(10.0 if n in mine else 1.0) * (n + 1) for n in range(4)]
        assert sorted(told) == [0, 1, 2, 3]
        assert stopped == [(late, True)]
        assert [r.retries for r in results] == [int(n in mine) for n in range(4)]
        counters = pool.counters
        assert counters["repeats"] == counters["late"] == counters["dropped"] == len(mine) > 0


def test_driver_answers_for_a_cancelled_call_are_not_those_of_the_next() -> None:
    played = Played("a")
    cancel = threading.Event()

    def play(batch: int, device: str, request: JsonDict) -> None:
        played.answer(batch, played.sent[batch][:1])

    def late(batch: int, forget: bool) -> None:
        assert not forget
        played.answer(batch, played.sent[batch][1:], scale=100.0)
        played.events.put(Ended(batch, None))
        played.play = played.measure

    played.play, played.on_stop = play, late
    with pool_of(played) as pool:
        job = pool.open_job(FUNC)
        first = pool.measure(job, candidates(FUNC, 16), None, lambda _: cancel.set(), cancel)
        answered = {items[0] for items in played.sent.values()}
        late_ones = sum(map(len, played.sent.values())) - len(answered)
        assert {n for n, r in enumerate(first) if r.status is Status.OK} == answered
        assert sum(r.status is Status.CANCELLED for r in first) == 16 - len(answered)
        second = pool.measure(job, candidates(FUNC, 16))
        assert seconds_of(second) == [n + 1.0 for n in range(16)]
        assert pool.counters["dropped"] == late_ones > 0
        assert pool.counters["late"] == 0
        assert {d.faults for d in pool.devices()} == {0}


def test_driver_devices_go_on_while_results_are_dealt_with() -> None:
    played = Played()
    everything = threading.Event()

    def play(batch: int, device: str, request: JsonDict) -> None:
        played.measure(batch, device, request)
        if sum(map(len, played.sent.values())) == 64:
            everything.set()

    played.play = play
    bunches: list[list[int]] = []

    def commit(found: Found) -> None:
        assert everything.wait(30), "a device waits for the caller"
        bunches.append([n for n, _ in found])

    with pool_of(played) as pool:
        job = pool.open_job(FUNC)
        results = pool.measure(job, candidates(FUNC, 64), None, commit)
    assert seconds_of(results) == [n + 1.0 for n in range(64)]
    assert sorted(n for bunch in bunches for n in bunch) == list(range(64))
    # All that came while the first was dealt with came together.
    assert len(bunches) <= 2
    assert max(map(len, bunches)) >= 32


def test_driver_hands_over_so_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MOST_TOGETHER", 10)
    bunches: list[int] = []
    with pool_of(Played()) as pool:
        job = pool.open_job(FUNC)
        results = pool.measure(job, candidates(FUNC, 64), None, lambda f: bunches.append(len(f)))
    assert seconds_of(results) == [n + 1.0 for n in range(64)]
    assert sum(bunches) == 64
    assert max(bunches) == 10


def test_driver_nothing_of_a_malformed_message_counts() -> None:
    played = Played("ab")

    def play(batch: int, device: str, request: JsonDict) -> None:
        if batch != min(played.sent):
            played.measure(batch, device, request)
            return
        good, bad = played.sent[batch][0], played.sent[batch][1]
        answers = [
            (good, encode_result(timed(77.0))),
            (bad, encode_result(timed(1.0)) | {"timing": "1"}),
        ]
        played.say(batch, {"answers": answers})

    played.play = play
    with pool_of(played) as pool:
        results = pool.measure(pool.open_job(FUNC), candidates(FUNC, 16))
        assert seconds_of(results) == [n + 1.0 for n in range(16)]
        assert sum(d.faults for d in pool.devices()) == 1


@pytest.mark.parametrize("error", [MeasureError("the cable is cut"), RuntimeError("a mistake")])
def test_driver_what_breaks_below_is_raised_where_it_is_waited_for(error: Exception) -> None:
    played = Played()
    played.play = lambda batch, device, request: played.events.put(error)
    with pool_of(played) as pool:
        job = pool.open_job(FUNC)
        with pytest.raises(type(error), match=str(error)):
            pool.measure(job, candidates(FUNC, 4))


def test_driver_finalists_are_lost_where_no_device_comes_back() -> None:
    """What was measured as a trial stands; only where nothing was is it an error."""
    played = Played()
    with pool_of(played, wait_seconds=0.2) as pool:
        job = pool.open_job(FUNC)
        played.names = ""
        lost = pool.remeasure(job, candidates(FUNC, 3))
        assert [d.status for d in lost] == [Status.DEVICE_LOST] * 3
        assert "no device of the pool could work for" in lost[0].error
        pool._driver._wait_seconds = 1e9  # a second attempt does not wait as long again
        assert pool.remeasure(job, candidates(FUNC, 3)) == lost
        pool._driver._wait_seconds = 0.2
        with pytest.raises(MeasureError, match="no device of the pool could work for"):
            pool.measure(job, candidates(FUNC, 3))


def test_driver_interrupted_caller_leaves_a_usable_pool() -> None:
    played = Played()

    def interrupt(found: Found) -> None:
        raise KeyboardInterrupt

    with pool_of(played) as pool:
        job = pool.open_job(FUNC)
        with pytest.raises(KeyboardInterrupt):
            pool.measure(job, candidates(FUNC, 40), None, interrupt)
        results = pool.measure(job, candidates(FUNC, 5))
        assert seconds_of(results) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_driver_pool_that_is_closed_while_it_measures_says_so() -> None:
    played = Played()

    def play(batch: int, device: str, request: JsonDict) -> None:
        if device == "a":  # of the other one nothing is heard
            played.measure(batch, device, request)

    played.play = play
    with pool_of(played) as pool:
        job = pool.open_job(FUNC)
        with pytest.raises(MeasureError, match="closed while it measured"):
            pool.measure(job, candidates(FUNC, 40), None, lambda found: pool.close())


def test_driver_asks_large_pools_for_fewer_messages() -> None:
    asked: list[float] = []
    for count in (1, 700):
        played = Played("".join(chr(0x4E00 + n) for n in range(count)))

        def play(batch: int, device: str, request: JsonDict, at: Played = played) -> None:
            asked.append(request["flush_seconds"])
            at.measure(batch, device, request)

        played.play = play
        with pool_of(played) as pool:
            job = pool.open_job(FUNC)
            while sum(d.state == "ready" for d in pool.devices()) < count:
                time.sleep(0.01)
            pool.measure(job, candidates(FUNC, 1))
    assert asked == [0.5, 1.4]


def test_driver_pool_of_workers_of_another_version_does_not_wait() -> None:
    """Nothing but another worker would help, and who waits would be told nothing."""
    played = Played()

    def send(batch: int, address: str, label: str, request: JsonDict) -> None:
        played.say(batch, {"hello": encode_hello(HELLO) | {"protocol": 1}})
        played.events.put(Ended(batch, None))

    played.send = send  # type: ignore[method-assign]
    with (
        pool_of(played, wait_seconds=1000.0) as pool,
        pytest.raises(MeasureError, match=r"no device is ready(.|\n)*speaks protocol 1"),
    ):
        pool.open_job(FUNC)
