"""The dispatcher: what it does about each thing that devices may do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pool_simulation import HELLO, Simulation

from measure.cluster.dispatch import SPARED
from measure.cluster.orders import Answer, Cancelled, Check, Command, Lost, Send, Stop
from measure.cluster.registry import Sighting, State


def ready(count: int, names: str = "ab", strikes: int = 3) -> Simulation:
    """A simulation whose devices are checked, with a call begun."""
    s = Simulation(strikes)
    for name in names:
        s.join(name)
    s.look()
    s.go()
    for name in names:
        s.serve(name)
    s.begin(count)
    return s


def sends(commands: list[Command]) -> list[Send]:
    return [c for c in commands if isinstance(c, Send)]


def test_a_device_gets_work_after_its_canary_and_one_batch_at_a_time() -> None:
    s = Simulation()
    s.begin(100)
    s.join("a")
    s.look()
    (check,) = s.go()
    assert isinstance(check, Check)
    assert s.go() == []
    s.serve("a")
    (send,) = s.go()
    assert isinstance(send, Send)
    assert s.go() == []
    s.join("b")
    s.look()
    assert [type(c) for c in s.go()] == [Check]
    s.serve("b")
    (other,) = s.go()
    assert isinstance(other, Send)
    assert other.name == "b"
    assert not set(other.items) & set(send.items)


def two_in_flight(s: Simulation) -> tuple[Send, Send]:
    """The only device has a batch in work, and the next one waits behind it."""
    (first,) = sends(s.go())
    s.dispatcher.beat(first.batch, s.now)
    (second,) = sends(s.go())
    assert first.name == second.name
    assert not set(first.items) & set(second.items)
    assert sends(s.go()) == []
    return first, second


def test_a_device_gets_its_next_batch_shortly_before_it_wants_it() -> None:
    s = ready(100, "a")
    s.registry.did("a", 1, 0.5)  # 8 take 4 seconds
    (first,) = sends(s.go())
    s.dispatcher.beat(first.batch, s.now)
    s.now += 1.9
    assert sends(s.go()) == []
    s.now += 0.2
    (second,) = sends(s.go())
    s.now += 1.9
    assert sends(s.go()) == []
    s.serve("a")
    assert len(s.outcomes) == 16
    assert s.registry["a"].seconds_each == pytest.approx(0.25)  # the second took no time at all
    assert second.name == "a"


@pytest.mark.parametrize("together", [False, True])
def test_that_the_next_batch_has_begun_may_be_told_before_the_end_of_the_one_ahead(
    together: bool,
) -> None:
    s = ready(100, "a")
    s.registry.did("a", 1, 0.5)
    (first,) = sends(s.go())
    s.dispatcher.beat(first.batch, s.now)
    s.now += 2.1
    (second,) = sends(s.go())
    s.now += 1.9
    for item in first.items:
        s.answer(first.batch, item)
    s.dispatcher.beat(second.batch, s.now)
    assert together or sends(s.go()) == []
    s.dispatcher.ended(first.batch, None, s.now)
    s.at_work["a"].remove(first.batch)
    s.now += 1.9
    assert together or sends(s.go()) == []
    s.now += 0.2
    (third,) = sends(s.go())
    assert third.name == "a"


@pytest.mark.parametrize("which_is_told", [0, 1])
def test_who_dies_repeats_the_batch_in_work_and_not_what_waits_behind(which_is_told: int) -> None:
    s = ready(40, "a")
    flights = two_in_flight(s)
    s.answer(flights[0].batch, flights[0].items[0])
    s.dispatcher.ended(flights[which_is_told].batch, "KilledWorker", s.now)
    s.dispatcher.ended(flights[1 - which_is_told].batch, "KilledWorker", s.now)
    s.at_work["a"].clear()
    assert (s.registry["a"].faults, s.registry["a"].strikes) == (1, 1)
    for _ in range(40):
        s.go()
        s.serve("a")
    assert s.dispatcher.done
    assert s.dispatcher.counters.repeats == len(flights[0].items) - 1
    again = {n for n, o in s.outcomes.items() if isinstance(o, Answer) and o.retries}
    assert again == set(flights[0].items[1:])


def test_what_waits_behind_a_slow_batch_is_done_by_who_has_nothing_to_do() -> None:
    s = ready(16, "a")
    slow, waiting = two_in_flight(s)
    s.join("b")
    s.look()
    stops: list[Command] = []
    while len(s.outcomes) < 16 - len(slow.items) and s.now < 10.0:
        s.now += 0.6
        s.dispatcher.beat(slow.batch, s.now)
        stops += [c for c in s.go() if isinstance(c, Stop)]
        s.serve("b")
    assert stops == [Stop(waiting.batch, "a", forget=True)]
    assert {o.name for o in s.outcomes.values() if isinstance(o, Answer)} == {"b"}
    assert set(s.outcomes) == set(range(16)) - set(slow.items)
    s.at_work["a"].remove(waiting.batch)
    s.serve("a")
    assert s.dispatcher.done
    assert s.dispatcher.counters.repeats == 0
    assert s.registry["a"].faults == 0


def test_a_device_that_is_unwell_does_not_begin_what_waits() -> None:
    s = ready(40, "a")
    first, second = two_in_flight(s)
    s.dispatcher.unfit(first.batch, first.items[0], "its canary failed", s.now)
    assert Stop(second.batch, "a", forget=True) in s.go()
    s.at_work["a"].remove(second.batch)
    s.answered[first.batch].add(first.items[0])
    s.serve("a")
    assert [type(c) for c in s.go()] == [Check]


def test_batches_shrink_towards_the_end_and_with_slow_candidates() -> None:
    s = ready(24)
    sizes = []
    while not s.dispatcher.done:
        sizes += [len(c.items) for c in sends(s.go())]
        s.now += 0.1
        s.serve("a")
        s.serve("b")
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1], sum(sizes)) == (6, 1, 24)
    s.registry.did("a", 1, 3.0)
    s.registry.did("b", 1, 3.0)
    s.begin(24)
    assert {len(c.items) for c in sends(s.go())} == {2}


def test_who_kills_its_device_is_lost_alone_and_its_neighbours_are_measured() -> None:
    s = ready(20, "ab", strikes=100)
    killer = 5
    with_killer: list[int] = []
    while not s.dispatcher.done:
        for send in sends(s.go()):
            if killer in send.items:
                with_killer.append(len(send.items))
                s.dispatcher.beat(send.batch, s.now)
                s.dispatcher.ended(send.batch, "KilledWorker", s.now)
                s.at_work[send.name].clear()
        s.serve("a")
        s.serve("b")
    assert len(with_killer) == 3
    assert with_killer[0] > with_killer[1] >= with_killer[2] == 1
    lost = s.outcomes.pop(killer)
    assert isinstance(lost, Lost)
    assert lost.attempts == 3
    assert "KilledWorker" in lost.why
    assert {type(o) for o in s.outcomes.values()} == {Answer}


def test_a_batch_that_never_began_blames_no_candidate() -> None:
    s = ready(2, "a", strikes=100)
    for _ in range(SPARED):
        (send,) = sends(s.go())
        s.dispatcher.ended(send.batch, "KilledWorker", s.now)
        s.at_work["a"].clear()
        s.go()
        s.serve("a")
    assert not s.outcomes
    assert s.dispatcher.counters.repeats == 0


def test_who_kills_workers_before_they_tell_that_they_began_is_found_out() -> None:
    s = ready(8, "a", strikes=100)
    for _ in range(100):
        s.now += 1.0
        for send in sends(s.go()):
            if 3 in send.items:
                s.at_work["a"].clear()
                s.dispatcher.ended(send.batch, "KilledWorker", s.now)
        s.take()
        s.serve("a")
    assert set(s.outcomes) == set(range(8))
    assert [item for item, found in s.outcomes.items() if isinstance(found, Lost)] == [3]


def test_a_silent_device_is_given_up_and_its_late_answer_kept_once() -> None:
    s = ready(2)
    first, second = sends(s.go())
    s.dispatcher.beat(first.batch, s.now)
    s.serve("b")
    for _ in range(25):
        s.now += 1.0
        s.dispatcher.roster(
            {"b": Sighting("l", "b:2", 0.0), "a": Sighting("l", "a:1", s.now)}, s.now
        )
        s.go()
    (again,) = (c for b, c in s.sent.items() if b > second.batch and isinstance(c, Send))
    assert (again.name, again.items) == ("b", first.items)
    assert s.registry["a"].state is State.JOINING
    assert "silent for" in s.registry["a"].why
    s.answer(first.batch, first.items[0])
    assert isinstance(s.outcomes[first.items[0]], Answer)
    assert s.outcomes[first.items[0]].name == "a"
    s.serve("b")
    assert s.dispatcher.counters.late == 1
    assert s.dispatcher.counters.dropped == 1
    assert s.dispatcher.done


def test_a_device_that_builds_with_other_tools_gets_no_work() -> None:
    s = ready(8, "a")
    s.join("b")
    s.look()
    (check,) = (c for c in s.go() if isinstance(c, Check))
    s.dispatcher.beat(check.batch, s.now)
    s.dispatcher.passed(check.batch, replace(HELLO, toolchain="other tools"), s.now)
    s.dispatcher.ended(check.batch, None, s.now)
    s.at_work["b"].clear()
    while not s.dispatcher.done:
        assert {c.name for c in sends(s.go())} <= {"a"}
        s.serve("a")
    assert s.registry["b"].state is State.FOREIGN
    assert s.registry["b"].why == "builds with other tools; this pool's candidates with tools"


def test_a_stalled_batch_is_given_up_though_its_worker_lives() -> None:
    s = ready(1, "ab")
    (send,) = sends(s.go())
    for _ in range(110):
        s.now += 1.0
        s.dispatcher.beat(send.batch, s.now)
        s.look()
        commands = s.go()
        if commands:
            break
    assert Stop(send.batch, send.name, forget=True) in commands
    assert "though its worker lives" in s.registry[send.name].why


def test_after_a_malformed_answer_nothing_of_the_batch_counts() -> None:
    s = ready(4, "a")
    (send,) = sends(s.go())
    s.answer(send.batch, send.items[0])
    s.dispatcher.garbage(send.batch, "seconds = nan", s.now)
    s.dispatcher.answers(send.batch, [(send.items[1], "lies")], s.now)
    s.take()
    assert sorted(s.outcomes) == [send.items[0]]
    assert s.registry["a"].state is State.JOINING


def test_cancelling_decides_at_once_and_later_answers_are_dropped() -> None:
    s = ready(10, "a")
    (send,) = sends(s.go())
    s.answer(send.batch, send.items[0])
    s.dispatcher.cancel()
    assert Stop(send.batch, "a", forget=False) in s.go()
    assert sum(isinstance(o, Cancelled) for o in s.outcomes.values()) == 9
    s.dispatcher.answers(send.batch, [(send.items[1], "late")], s.now)
    s.begin(3)
    s.dispatcher.answers(send.batch, [(send.items[0], "of the call before")], s.now)
    assert s.go() == []  # the device still has the batch
    s.dispatcher.ended(send.batch, None, s.now)
    assert [c.name for c in sends(s.go())] == ["a"]
    assert s.registry["a"].faults == 0


def test_a_device_with_faults_in_a_row_rests_and_the_rest_doubles() -> None:
    s = ready(50, "ab")
    for _ in range(3):
        for send in sends(s.go()):
            if send.name == "a":
                s.dispatcher.beat(send.batch, s.now)
                s.dispatcher.ended(send.batch, "broken", s.now)
                s.at_work["a"].clear()
        s.go()
        s.serve("a")
    assert s.registry["a"].state is State.QUARANTINED
    assert s.registry["a"].rest_until == s.now + 60.0
    while not s.dispatcher.done:
        assert all(c.name == "b" for c in s.go())
        s.serve("b")
    assert all(isinstance(o, Answer) for o in s.outcomes.values())
    s.now += 61.0
    s.look()
    (check,) = s.go()
    assert (type(check), check.name) == (Check, "a")
    s.serve("a")
    assert s.registry["a"].state is State.READY
    s.registry.fault("a", "again", s.now)
    assert s.registry["a"].rest_until == s.now + 120.0


def test_a_lost_scheduler_blames_nobody_and_all_goes_on_when_it_is_back() -> None:
    s = ready(6)
    before = sends(s.go())
    s.dispatcher.disconnected("the scheduler is gone", s.now)
    assert s.go() == []
    assert s.registry.workforce == 0
    s.answer(before[0].batch, before[0].items[0])  # it was under way
    s.join("a")
    s.join("b")
    s.look()
    for _ in range(6):
        s.go()
        s.serve("a")
        s.serve("b")
    assert s.dispatcher.done
    assert {type(o) for o in s.outcomes.values()} == {Answer}
    assert {o.retries for o in s.outcomes.values()} == {0}
    assert [d.faults for d in s.registry.listing()] == [0, 0]


def test_a_drained_device_finishes_its_candidate_and_takes_no_more() -> None:
    s = ready(40, "ab")
    mine, others = sends(s.go())
    s.dispatcher.beat(mine.batch, s.now)
    s.answer(mine.batch, mine.items[0])
    s.dispatcher.drain(["a"])
    assert s.go() == [Stop(mine.batch, "a", forget=False)]
    s.answer(mine.batch, mine.items[1])  # that it was at
    s.now += 1.0
    s.dispatcher.ended(mine.batch, None, s.now)
    s.at_work["a"].remove(mine.batch)
    device = s.registry["a"]
    assert (device.state, device.faults, device.trials) == (State.DRAINED, 0, 2)
    assert device.busy_seconds >= 1.0
    s.dispatcher.drain(["a"])
    assert all(send.name == "b" for send in sends(s.go()))
    while not s.dispatcher.done:
        s.serve("b")
        assert all(send.name == "b" for send in sends(s.go()))
    s.take()
    assert len(s.outcomes) == 40
    assert all(isinstance(o, Answer) and not o.retries for o in s.outcomes.values())
    assert others.name == "b"
    s.dispatcher.drain([])
    s.begin(4)
    assert {send.name for send in sends(s.go())} == {"a", "b"}


def test_what_waits_behind_or_has_not_begun_is_taken_from_a_drained_device() -> None:
    s = ready(40, "a")
    first, second = two_in_flight(s)
    s.dispatcher.drain(["a"])
    assert set(s.go()) == {
        Stop(first.batch, "a", forget=False), Stop(second.batch, "a", forget=True)
    }  # fmt: skip
    s.join("b")
    s.dispatcher.drain(["a", "b"])
    s.look()
    s.go()
    s.serve("b")
    assert s.registry["b"].state is State.DRAINED  # it passed its canary, and gets nothing


def test_the_timing_of_finalists_is_finished_on_a_drained_device() -> None:
    s = ready(0, "a")
    s.dispatcher.begin(1, alike=False)
    (send,) = sends(s.go())
    s.dispatcher.beat(send.batch, s.now)
    s.dispatcher.drain(["a"])
    assert s.go() == []
    s.serve("a")
    s.take()
    assert isinstance(s.outcomes[0], Answer)
    assert (s.registry["a"].state, s.registry["a"].trials) == (State.DRAINED, 0)
