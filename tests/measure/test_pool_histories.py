"""The dispatcher under random histories: each candidate is decided once, by the first answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_simulation import NAMES, Simulation

from measure.cluster.dispatch import RETRIES
from measure.cluster.orders import Cancelled, Lost, Send

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "join", "leave", "restart", "look", "go", "go", "serve", "answer", "answer",
                "end", "fail", "garbage", "unfit", "beat", "wait", "long_wait", "cut", "back",
                "cancel", "begin", "stray", "drain", "admit",
            ]
        ),
        st.sampled_from(NAMES),
        st.integers(0, 30),
    ),
    max_size=80,
)  # fmt: skip


def act(s: Simulation, action: str, name: str, number: int) -> None:
    """One thing that happens to a pool."""
    s.now += 0.6
    batches = [b for b in s.sent if isinstance(s.sent[b], Send)]
    batch = batches[-1 - number % min(6, len(batches))] if batches else None
    d = s.dispatcher
    if action == "join" and name not in s.here:
        s.join(name)
    elif action == "leave":
        s.leave(name)
    elif action == "restart" and name in s.here:
        s.join(name)
    elif action == "look":
        s.look()
    elif action == "go":
        s.go()
    elif action == "serve" and name in s.here:
        s.serve(name)
    elif action == "wait":
        s.now += number
    elif action == "long_wait":
        s.now += 100.0
    elif action == "cut":
        s.reachable = False
        d.disconnected("cut", s.now)
    elif action == "back":
        s.reachable = True
    elif action == "cancel":
        d.cancel()
    elif action == "drain":
        d.drain({name, *s.registry.drained})
    elif action == "admit":
        d.drain(s.registry.drained - {name})
    elif action == "begin":
        s.take()
        s.begin(1 + number)
    elif action == "stray":
        d.answers(10_000 + number, [(number, "nobody asked")], s.now)
    elif batch is not None:
        command = s.sent[batch]
        assert isinstance(command, Send)
        item = command.items[number % len(command.items)]
        if action == "answer" and item not in s.answered[batch]:
            s.answer(batch, item)
        elif action == "answer":
            d.answers(batch, [(item, "a second answer")], s.now)
        elif action == "end":
            d.ended(batch, None, s.now)
        elif action == "fail":
            d.ended(batch, "KilledWorker", s.now)
        elif action == "garbage":
            d.garbage(batch, "nonsense", s.now)
        elif action == "unfit":
            s.answered[batch].add(item)
            d.unfit(batch, item, "its canary failed", s.now)
        elif action == "beat":
            d.beat(batch, s.now)
        if action in ("end", "fail", "garbage"):
            for queue in s.at_work.values():
                if batch in queue:
                    queue.remove(batch)
    s.take()


def run_history(actions: list[tuple[str, str, int]], count: int) -> None:
    s = Simulation()
    s.begin(count)
    cancelled = False
    for action, name, number in actions:
        act(s, action, name, number)
        if action == "begin":
            cancelled = False
        cancelled = cancelled or action == "cancel"
    s.heal()
    for outcome in s.outcomes.values():
        assert not isinstance(outcome, Cancelled) or cancelled
        assert not isinstance(outcome, Lost) or outcome.attempts == RETRIES + 1


@settings(max_examples=150, deadline=None, derandomize=True)
@given(ACTIONS, st.integers(1, 40))
def test_each_item_is_decided_once_whatever_happens(
    actions: list[tuple[str, str, int]], count: int
) -> None:
    run_history(actions, count)


@pytest.mark.long
@settings(max_examples=4000, deadline=None, derandomize=True)
@given(ACTIONS, st.integers(1, 40))
def test_each_item_is_decided_once_in_many_histories(
    actions: list[tuple[str, str, int]], count: int
) -> None:
    run_history(actions, count)
