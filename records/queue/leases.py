"""The queue of jobs: who works on which, decided by the database and its clock.

A worker claims a job for some seconds, and renews the lease while it works. Who dies, or is cut
off, stops renewing; `reap` puts the job back, and the next claim raises the lease's epoch, so that
what the first one writes late is refused (`LeaseLost`). Each change of a state is an event of the
job (kind `state`), in the same transaction. States:

    queued ──claim──► running ──finish──► succeeded | failed | cancelled ──resume──► queued
                         │  retry──► queued (not before a pause), or failed
       │                 │  cancel──► cancelling ──finish, park, reap──► cancelled
       │                 │  pause──► pausing ──park, reap──► paused ──resume──► queued
       │                 └──park, reap──► queued
       └──cancel──► cancelled, pause──► paused
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, delete, select
from sqlalchemy.orm import aliased

from records.errors import KeyReused, RecordError, StoreUnavailable
from records.queue import fair_share, resuming
from records.queue.lease import check_lease
from records.queue.resuming import RESUMED
from records.queue.submissions import (
    NO_TOKEN,
    Answers,
    Bounds,
    Entrance,
    Spender,
    Submission,
    take,
    taken,
    usage,
)
from records.queue.transitions import change, free, put_back
from records.sql import events
from records.sql.jobs import job_of
from records.sql.rows import chunks
from records.sql.schema import (
    EventRow,
    JobRow,
    SubmissionRow,
    TokenRow,
    database_time,
)
from records.types import (
    CANCELLING,
    ENDED,
    HELD,
    LOCAL,
    PAUSED,
    PAUSING,
    PHASE,
    PREPARING,
    QUEUED,
    RUNNING,
    STATE,
    Job,
    Lease,
    SubmissionKey,
    Workload,
    error_text,
)

if TYPE_CHECKING:
    from records.sql.database import Database
    from records.store import Store


KILLED = "killed"
"""That of the event with which a job waits whose process was killed."""
_WORKLOADS_KEPT = 1000
_REMOVED_TOGETHER = 2_000


class JobQueue:
    """The jobs of a store as a queue. Any number of processes may use one at once."""

    def __init__(self, store: Store, bounds: Bounds = Bounds()) -> None:  # noqa: B008 - frozen
        self._db: Database = store._db
        self._bounds = bounds
        self._stored: dict[str, Workload] = {}

    @property
    def store_name(self) -> str:
        """The URL of the store, without its password."""
        return self._db.name

    def submit(self, submission: Submission) -> tuple[Job, bool]:
        """A new job that waits, with its workload, in one transaction; and whether it is new.

        A request that is repeated under the same key gives the job of the first time, as it is
        now. Raises KeyReused if the key was used for another request, and QueueFull.
        """
        (answer,) = self.submit_many([submission])
        if isinstance(answer, RecordError):
            raise answer
        return answer

    def submitted(self, key: SubmissionKey) -> Job | None:
        """The job that was submitted under the key; None if none was. Raises KeyReused."""
        with self._db.transaction(writes=False) as connection:
            job_id = taken(connection, key)
            return None if job_id is None else job_of(connection, job_id)

    def submit_many(self, submissions: Sequence[Submission]) -> Answers:
        """As many `submit`s in one transaction: each one's answer, or why it was refused.

        Raises StoreUnavailable, and then none was taken. Of rows that the database refuses only
        the submissions are refused that they belong to.
        """

        def work(connection: Connection) -> tuple[Answers, dict[str, Workload]]:
            stored = dict(self._stored) if len(self._stored) <= _WORKLOADS_KEPT else {}
            return take(connection, submissions, self._bounds, stored), stored

        try:
            answers, self._stored = self._db.write(work)
            return answers
        except StoreUnavailable:
            raise
        except RecordError as e:
            if len(submissions) == 1:
                return [e]
            return self._submit_each(submissions)

    def _submit_each(self, submissions: Sequence[Submission]) -> Answers:
        """A transaction for each; where the database goes away, that is the answer of the rest."""
        answers: Answers = []
        for number, one in enumerate(submissions):
            try:
                answers += self.submit_many([one])
            except StoreUnavailable as e:
                return answers + [e] * (len(submissions) - number)
        return answers

    def forget_submissions(self, seconds: float) -> int:
        """Keys of submissions older than that may be used anew; returns how many there were."""
        old = delete(SubmissionRow).where(SubmissionRow.created_at < database_time(-seconds))
        return self._db.write(lambda connection: connection.execute(old).rowcount)

    def forget_events(self, kind: str, seconds: float) -> int:
        """Removes the events of a kind of jobs that ended longer ago than that; returns how many
        there were. What they told of is in the records."""
        old = (
            select(EventRow.id)
            .join(JobRow, JobRow.id == EventRow.job_id)
            .where(EventRow.kind == kind, JobRow.state.in_(ENDED))
            .where(JobRow.ended_at < database_time(-seconds))
            .limit(_REMOVED_TOGETHER)
        )

        def work(connection: Connection) -> int:
            ids = connection.scalars(old).all()
            for chunk in chunks(ids):
                connection.execute(delete(EventRow).where(EventRow.id.in_(chunk)))
            return len(ids)

        removed = 0
        while found := self._db.write(work):
            removed += found
        return removed

    def claim(
        self, owner: str, seconds: float, scope: fair_share.Scope = fair_share.EVERYTHING
    ) -> Job | None:
        """The first of what `claim_together` claims; None if none waits."""
        found = self.claim_together(owner, seconds, scope)
        return found[0] if found else None

    def claim_together(
        self, owner: str, seconds: float, scope: fair_share.Scope = fair_share.EVERYTHING
    ) -> list[Job]:
        """The next job of `scope`, running under a new lease of `owner` for `seconds`, and those of
        its batch that wait, too, for one process to work on; empty if none waits.

        Of the client that has the fewest jobs running, of these the one whose turn is longest ago;
        of its jobs that of the highest priority, then the oldest. Jobs that wait out a pause
        (`retry`) are passed over.
        """

        def work(connection: Connection) -> list[Job]:
            first = connection.execute(fair_share.next_of(scope)).scalar()
            if first is None:
                return []
            waiting = connection.scalars(_MATES, {"first": first}).all()
            ids = [first, *(one for one in waiting if one != first)]
            values = {
                "state": RUNNING,
                "error": None,
                "lease_owner": owner,
                "lease_epoch": JobRow.lease_epoch + 1,
                "lease_until": database_time(seconds),
                "claimed_at": database_time(),
                "not_before": None,
                "phase": PREPARING[0],
                "notice": None,
                "device_part": 1.0 / len(ids),
            }
            claimed = [change(connection, job_id, values, "claimed") for job_id in ids]
            fair_share.served(connection, claimed[0].client)
            return claimed

        return self._db.write(work)

    def submit_batch(
        self, submissions: Sequence[Submission], key: SubmissionKey | None
    ) -> tuple[str, bool]:
        """The id of the batch of the jobs submitted, all in one transaction or none, and whether it
        is new; `key` names them as one request, and is that of the first.

        Raises KeyReused, QueueFull, QuotaExceeded and what else one of them is refused for.
        """
        batch_id = submissions[0].batch_id
        assert batch_id is not None

        def work(connection: Connection) -> tuple[str, bool]:
            Entrance(connection, self._bounds)  # nobody else takes the key meanwhile
            if key is not None and (known := taken(connection, key)) is not None:
                found = job_of(connection, known).batch_id
                if found is None:
                    raise KeyReused(f"the key {key.key!r} was used before, for a single job")
                return found, False
            for answer in take(connection, submissions, self._bounds, {}):
                if isinstance(answer, RecordError):
                    raise answer
            return batch_id, True

        return self._db.write(work)

    def place(self, job_id: str) -> int | None:
        """The place of a job that waits, from 1 (`fair_share.place`); None if it does not."""
        with self._db.snapshot() as connection:
            return fair_share.place(connection, job_id)

    def device_seconds_left(self, job: Job) -> float | None:
        """How long jobs of the token that `job` was submitted with may still be worked on; None:
        for any time."""
        if job.token_id is None:
            return None
        most = select(TokenRow.max_device_seconds).where(TokenRow.id == job.token_id)
        with self._db.transaction(writes=False) as connection:
            limit = connection.execute(most).scalar()
            if limit is None:
                return None
            return float(limit) - usage(connection, job.token_id).device_seconds

    def renew(self, lease: Lease, seconds: float) -> Job:
        """The job, held for `seconds` from now; its state says whether it is to be cancelled.

        Raises LeaseLost.
        """
        values = {"lease_until": database_time(seconds)}
        return self._leased(lease, lambda connection: change(connection, lease.job_id, values))

    def _leased(self, lease: Lease, work: Callable[[Connection], Job]) -> Job:
        """What `work` makes of the job that is held under `lease`. Raises LeaseLost."""

        def fenced(connection: Connection) -> Job:
            check_lease(connection, lease)
            return work(connection)

        return self._db.write(fenced)

    def enter(self, lease: Lease, phase: str) -> Job:
        """The job, at `phase` from now on, which is told. Raises LeaseLost."""

        def work(connection: Connection) -> Job:
            job = change(connection, lease.job_id, {"phase": phase})
            events.add(connection, job.id, PHASE, {"phase": phase})
            return job

        return self._leased(lease, work)

    def finish(
        self, lease: Lease, state: str, error: str | None = None, notice: str | None = None
    ) -> Job:
        """The job, ended in `state`. Raises LeaseLost; RecordError for a state that ends none."""
        if state not in ENDED:
            raise RecordError(f"a job ends as one of {', '.join(ENDED)}; found {state!r}")
        values = {
            "state": state,
            "error": None if error is None else error_text(error),
            "notice": None if notice is None else error_text(notice),
            "ended_at": database_time(),
            **free(),
        }
        return self._leased(
            lease, lambda connection: change(connection, lease.job_id, values, "ended")
        )

    def park(self, lease: Lease) -> Job:
        """The job, back in the queue for anybody (cancelled, if that was asked for).

        Raises LeaseLost.
        """
        return self._leased(lease, lambda connection: put_back(connection, lease.job_id, "parked"))

    def retry(self, lease: Lease, error: str, *, most: int, pause: float) -> Job:
        """The job, whose process was killed from outside: back in the queue for a pause of `pause`
        seconds, twice as long each time; failed with `error` where that has happened more than
        `most` times without a new trial; cancelled, if that was asked for.

        Raises LeaseLost.
        """

        def work(connection: Connection) -> Job:
            job = job_of(connection, lease.job_id, lock=True)
            if job.state in (CANCELLING, PAUSING):
                return put_back(connection, job.id, "asked for")
            kills = _kills(connection, job)
            text = error_text(error)
            if kills >= most:
                tried = f"{kills + 1} processes of this job in a row were killed before a new trial"
                values: dict[str, Any] = {"state": "failed", "error": f"{tried}: {text}"}
                values |= {"ended_at": database_time(), **free()}
                return change(connection, job.id, values, "ended")
            values = {"state": QUEUED, "error": text, **free()}
            values["not_before"] = database_time(pause * 2**kills)
            return change(connection, job.id, values, KILLED)

        return self._leased(lease, work)

    def reap(self) -> list[Job]:
        """Puts jobs back whose leases are over; returns them.

        A lease that was renewed in what is now the future, since the clock was set back, is as long
        as it was from now on: who renews it does so again, and of who is dead it ends.
        """
        late = (
            select(JobRow.id)
            .where(JobRow.state.in_(HELD), JobRow.lease_until < database_time())
            .order_by(JobRow.id)
            .with_for_update(skip_locked=True, key_share=True)
        )

        def work(connection: Connection) -> list[Job]:
            for job in connection.execute(_AHEAD):
                left = (job.lease_until - job.updated_at).total_seconds()
                change(connection, job.id, {"lease_until": database_time(max(0.0, left))})
            jobs = connection.scalars(late).all()
            return [put_back(connection, job_id, "lease over", late=True) for job_id in jobs]

        return self._db.write(work)

    def cancel(self, job_id: str) -> Job:
        """The job, cancelled if nobody works on it under a lease, else cancelling; an ended one
        stays as it is.

        Raises NoRecord.
        """

        def work(connection: Connection) -> Job:
            job = job_of(connection, job_id, lock=True)
            # A run of the command line has no lease: it may be over long since, and nobody knows.
            left = job.state in (QUEUED, PAUSED)
            if left or (job.state == RUNNING and job.lease_owner is None):
                values = {"state": "cancelled", "ended_at": database_time()}
                return change(connection, job_id, values, "asked for")
            if job.state in (RUNNING, PAUSING):
                return change(connection, job_id, {"state": CANCELLING}, "asked for")
            return job

        return self._db.write(work)

    def pause(self, job_id: str) -> Job:
        """The job, paused if nobody works on it, else pausing: nobody takes it up until it is
        resumed, and it keeps what was measured and what is left of its budgets; one that is paused
        stays as it is. Raises NoRecord, and RecordError for a job that has ended or is about to."""
        (job,) = self.pause_together([job_id])
        return job

    def pause_together(self, job_ids: Sequence[str]) -> list[Job]:
        """`pause` of all of the jobs, or of none."""

        def work(connection: Connection) -> list[Job]:
            return [resuming.pause(connection, job_id) for job_id in sorted(job_ids)]

        return self._db.write(work)

    def resume(self, job_id: str, additional_trials: int = 0, spender: Spender = NO_TOKEN) -> Job:
        """A job that is paused or has ended, queued again, with more trials (`resuming.resume`).
        Raises RecordError for others, and beyond `resuming.MOST_TRIALS`, QueueFull and
        QuotaExceeded."""
        (job,) = self.resume_together([job_id], additional_trials, spender)
        return job

    def resume_together(
        self, job_ids: Sequence[str], additional_trials: int = 0, spender: Spender = NO_TOKEN
    ) -> list[Job]:
        """`resume` of all of the jobs, among which the additional trials are parted, or of none:
        those of a batch are taken up together."""
        part, rest = divmod(additional_trials, len(job_ids))

        def work(connection: Connection) -> list[Job]:
            entrance = Entrance(connection, self._bounds)
            return [
                resuming.resume(connection, entrance, job_id, part + (n < rest), spender)
                for n, job_id in enumerate(sorted(job_ids))
            ]

        return self._db.write(work)


_OF_FIRST = aliased(JobRow)
_MATES = (
    select(JobRow.id)
    .join(_OF_FIRST, _OF_FIRST.batch_id == JobRow.batch_id)
    .where(_OF_FIRST.id == bindparam("first"))
    .where(JobRow.state == QUEUED, JobRow.origin == LOCAL)
    .where(JobRow.pool.is_not_distinct_from(_OF_FIRST.pool))
    .order_by(JobRow.id)
    .with_for_update(skip_locked=True, key_share=True, of=JobRow)
)
"""The jobs of the batch of one that wait."""
_AHEAD = (
    select(JobRow.id, JobRow.lease_until, JobRow.updated_at)
    .where(JobRow.state.in_(HELD), JobRow.lease_until.is_not(None))
    .where(JobRow.updated_at > database_time(1.0))
    .order_by(JobRow.id)
    .with_for_update(skip_locked=True, key_share=True)
)
"""Jobs that were changed in the future, leases renewed among them."""


def _kills(connection: Connection, job: Job) -> int:
    """How many processes of a job were killed since it was submitted or resumed, or since its last
    new trial."""
    killed = select(EventRow.data).where(EventRow.job_id == job.id, EventRow.kind == STATE)
    kills = 0
    for data in connection.scalars(killed.order_by(EventRow.id.desc())):
        if data["reason"] == RESUMED or data.get("trials_done") != job.trials_done:
            break
        kills += data["reason"] == KILLED
    return kills
