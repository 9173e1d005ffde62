"""Threads of a runner: cores of their own where that can be had, and the time without one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
from calls import calling

from measure.machine.threads import Threads, counted
from measure.process.child import Child
from measure.process.template_client import Limits, Template


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    made = Template(preload=["measure_doubles"])
    yield made
    made.close()


def test_threads_waiting_is_counted_for_each_thread() -> None:
    if not counted():
        pytest.skip("this system does not count how long threads wait")
    threads = Threads()
    before = threads.waited()
    stop = threading.Event()
    others = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in others:
        thread.start()
    threads.follow()
    assert len(threads._counts) >= 4
    assert threads.waited() >= before >= 0
    stop.set()
    for thread in others:
        thread.join()
    # A thread that has been joined may take a moment to be gone.
    end = time.monotonic() + 60
    while len(os.listdir("/proc/self/task")) > 1 + len(threads._strangers):
        assert time.monotonic() < end
        time.sleep(0.001)
    threads.follow()
    assert len(threads._counts) == 1


def test_a_thread_that_has_ended_waits_for_nothing_more() -> None:
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    threads = Threads()
    other.start()
    threads.follow()
    stop.set()
    other.join()
    end = time.monotonic() + 60
    while str(other.native_id) in os.listdir("/proc/self/task"):
        assert time.monotonic() < end
        time.sleep(0.001)
    assert str(other.native_id) in threads._counts
    assert threads.waited() >= 0


def test_threads_of_an_urgent_child_have_a_core_each(template: Template) -> None:
    ours = os.nice(0)  # which whoever runs the tests may have lowered
    usual = Child(template, Limits())
    assert usual.call(calling("measure_doubles:cores_of_threads"), timeout=60).value[0] == ours
    usual.kill()
    urgent = Child(template, Limits(urgent=True))
    priority, cores = urgent.call(calling("measure_doubles:cores_of_threads"), timeout=60).value
    urgent.kill()
    if priority == ours:
        pytest.skip("this user may not raise a priority")
    assert priority == max(ours - 20, -20)
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) > 1:
        assert cores == [[mine[0]], [mine[1]]]
