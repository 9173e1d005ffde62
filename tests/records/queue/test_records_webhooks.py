"""The outbox of webhooks: what is to be told, by whom, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from records import JobQueue, Lease, NoRecord, RecordError, Store, Workload
from records.queue.submissions import Submission
from records.queue.webhooks import MOST_OF_CLIENT, Webhooks

WORKLOAD = Workload(key="w", name="m", script="s")
SECRET = "a secret of a client"


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    sqlite = request.param == "sqlite"
    with Store(tmp_path / "x.db" if sqlite else request.getfixturevalue("postgres_url")) as s:
        yield s


def ended(store: Store, client: str, state: str = "succeeded") -> str:
    """A job of a client that has come to its end."""
    queue = JobQueue(store)
    job, _ = queue.submit(
        Submission(workload=WORKLOAD, target="t", seed=0, trials_requested=1, client=client)
    )
    claimed = queue.claim("w", 60)
    assert claimed is not None
    queue.finish(Lease(job.id, claimed.lease_epoch), state)
    return job.id


def test_the_end_of_a_job_is_told_to_the_webhooks_of_its_client(store: Store) -> None:
    hooks = Webhooks(store)
    first, second = (hooks.add("ann", f"https://x/{n}", SECRET) for n in range(2))
    hooks.add("bob", "https://x/bob", SECRET)
    job = ended(store, "ann", "failed")
    due = hooks.take(10, 60.0)
    assert [(d.webhook_id, d.job_id, d.attempts) for d in due] == [
        (first.id, job, 1), (second.id, job, 1),
    ]  # fmt: skip
    assert due[0].secret == SECRET
    assert hooks.take(10, 60.0) == [], "somebody is at it"
    hooks.settle(due[0].id, None, None)
    hooks.settle(due[1].id, "it answered 500", 0.0)
    (again,) = hooks.take(10, 60.0)
    assert (again.webhook_id, again.attempts) == (second.id, 2)
    hooks.settle(again.id, "x" * 1000, None)
    assert hooks.take(10, 60.0) == []
    told = hooks.all("ann")
    assert [(w.waiting, w.delivered, w.failed) for w in told] == [(0, 1, 0), (0, 0, 1)]
    assert len(told[1].last_error or "") == 300
    assert hooks.forget(0.0) == 2
    assert SECRET not in repr(told)


def test_a_cancelled_job_is_told_of_and_one_that_is_put_back_is_not(store: Store) -> None:
    hooks, queue = Webhooks(store), JobQueue(store)
    hooks.add("ann", "https://x/", SECRET)
    job, _ = queue.submit(
        Submission(workload=WORKLOAD, target="t", seed=0, trials_requested=1, client="ann")
    )
    claimed = queue.claim("w", 60)
    assert claimed is not None
    queue.park(Lease(job.id, claimed.lease_epoch))
    assert hooks.take(10, 60.0) == []
    queue.cancel(job.id)
    queue.cancel(job.id)
    assert len(hooks.take(10, 60.0)) == 1
    store.delete_job(job.id)
    assert hooks.all()[0].waiting == 0


def test_what_is_taken_and_never_settled_is_taken_again(store: Store) -> None:
    hooks = Webhooks(store)
    hooks.add("ann", "https://x/", SECRET)
    ended(store, "ann")
    (first,) = hooks.take(1, 0.0)  # its server dies at once
    (again,) = hooks.take(1, 60.0)
    assert (again.id, again.attempts) == (first.id, 2)


def test_removing_and_bounds(store: Store) -> None:
    hooks = Webhooks(store)
    made = [hooks.add("ann", "https://x/", SECRET) for _ in range(MOST_OF_CLIENT)]
    with pytest.raises(RecordError, match="20 webhooks"):
        hooks.add("ann", "https://x/", SECRET)
    hooks.add("bob", "https://x/", SECRET)
    ended(store, "ann")
    for webhook in made:
        hooks.remove(webhook.id)
    assert (hooks.take(100, 1.0), hooks.all("ann")) == ([], [])
    with pytest.raises(NoRecord):
        hooks.get(made[0].id)
