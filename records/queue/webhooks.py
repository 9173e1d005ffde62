"""Who is told when a job ends, and what is still to be told: an outbox in the database.

A delivery is entered in the transaction in which its job ends, so none is lost and none is told
that did not happen. A server takes a delivery for some time, sends it, and enters what came of it;
one that dies on the way has it sent again: a receiver may see a delivery twice, under one id.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Label, Select, delete, func, insert, literal, select, update

from records.errors import NoRecord, RecordError
from records.sql.schema import DeliveryRow, WebhookRow, database_time

if TYPE_CHECKING:
    from records.store import Store

WAITING, DELIVERED, FAILED = "waiting", "delivered", "failed"
MOST_OF_CLIENT = 20
_ERROR = 300


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """An address that is told of a client's jobs, without the secret that signs what it is told.
    Numbers of deliveries by what came of them, and the last thing that went wrong."""

    id: str
    client: str
    url: str
    created_at: datetime
    waiting: int
    delivered: int
    failed: int
    last_error: str | None


class Due(NamedTuple):
    """A delivery to be sent now; `attempts`: this one counted."""

    id: int
    webhook_id: str
    url: str
    secret: str
    job_id: str
    attempts: int


def enter(connection: Connection, job_id: str, client: str) -> None:
    """Has all webhooks of a client told of the end of a job, in the transaction at hand."""
    columns = ["webhook_id", "job_id", "state", "attempts", "not_before", "created_at"]
    now = database_time()
    told = select(WebhookRow.id, literal(job_id), literal(WAITING), literal(0), now, now).where(
        WebhookRow.client == client
    )
    connection.execute(insert(DeliveryRow).from_select(columns, told))


class Webhooks:
    """The webhooks of a store. Any number of processes may use them at once."""

    def __init__(self, store: Store) -> None:
        self._db = store._db

    def add(self, client: str, url: str, secret: str) -> Webhook:
        """A new webhook. Raises RecordError if the client has MOST_OF_CLIENT."""
        row = {
            "id": secrets.token_hex(6), "client": client, "url": url, "secret": secret,
            "created_at": database_time(),
        }  # fmt: skip
        mine = select(func.count()).where(WebhookRow.client == client)

        def work(connection: Connection) -> Webhook:
            if connection.execute(mine).scalar_one() >= MOST_OF_CLIENT:
                raise RecordError(f"{client} has {MOST_OF_CLIENT} webhooks, the most; remove one")
            connection.execute(insert(WebhookRow).values(row))
            return _of(connection, str(row["id"]))

        return self._db.write(work)

    def all(self, client: str | None = None) -> list[Webhook]:
        """Those of a client, or all, in the order in which they were made."""
        query = _listing().order_by(WebhookRow.created_at, WebhookRow.id)
        if client is not None:
            query = query.where(WebhookRow.client == client)
        with self._db.transaction(writes=False) as connection:
            return [Webhook(**row._mapping) for row in connection.execute(query)]

    def get(self, webhook_id: str) -> Webhook:
        """One. Raises NoRecord."""
        with self._db.transaction(writes=False) as connection:
            return _of(connection, webhook_id)

    def remove(self, webhook_id: str) -> None:
        """Removes one, with what it is still to be told. Harmless if there is none."""

        def work(connection: Connection) -> None:
            connection.execute(delete(DeliveryRow).where(DeliveryRow.webhook_id == webhook_id))
            connection.execute(delete(WebhookRow).where(WebhookRow.id == webhook_id))

        self._db.write(work)

    def take(self, most: int, seconds: float) -> list[Due]:
        """Deliveries that are due, the oldest first; nobody else takes them for `seconds`."""
        due = (
            select(DeliveryRow.id)
            .where(DeliveryRow.state == WAITING, DeliveryRow.not_before <= database_time())
            .order_by(DeliveryRow.id)
        )
        locked = due.limit(most).with_for_update(skip_locked=True)
        told = (
            select(
                *(DeliveryRow.id, DeliveryRow.webhook_id, WebhookRow.url, WebhookRow.secret),
                *(DeliveryRow.job_id, DeliveryRow.attempts),
            )
            .join(WebhookRow, WebhookRow.id == DeliveryRow.webhook_id)
            .order_by(DeliveryRow.id)
        )

        def work(connection: Connection) -> list[Due]:
            ids = connection.scalars(locked).all()
            mine = DeliveryRow.id.in_(ids)
            held = {"not_before": database_time(seconds), "attempts": DeliveryRow.attempts + 1}
            connection.execute(update(DeliveryRow).where(mine).values(held))
            return [Due(*row) for row in connection.execute(told.where(mine))]

        with self._db.transaction(writes=False) as connection:
            if connection.execute(due.limit(1)).first() is None:
                return []
        return self._db.write(work)

    def settle(self, delivery_id: int, error: str | None, pause: float | None) -> None:
        """Enters what came of a delivery: it arrived (no `error`), is sent again after `pause`
        seconds, or is given up (no pause)."""
        values: dict[str, object] = {"error": None if error is None else error[:_ERROR]}
        if error is None:
            values["state"] = DELIVERED
        elif pause is None:
            values["state"] = FAILED
        else:
            values["not_before"] = database_time(pause)
        mine = update(DeliveryRow).where(DeliveryRow.id == delivery_id).values(values)
        self._db.write(lambda connection: connection.execute(mine))

    def forget(self, seconds: float) -> int:
        """Removes deliveries that are settled and older than that; returns how many."""
        old = delete(DeliveryRow).where(
            DeliveryRow.state != WAITING, DeliveryRow.created_at < database_time(-seconds)
        )
        return self._db.write(lambda connection: connection.execute(old).rowcount)


def _listing() -> Select[Any]:
    mine = DeliveryRow.webhook_id == WebhookRow.id

    def count(state: str) -> Label[Any]:
        found = select(func.count()).where(mine, DeliveryRow.state == state)
        return found.scalar_subquery().label(state)

    last = (
        select(DeliveryRow.error)
        .where(mine, DeliveryRow.error.is_not(None))
        .order_by(DeliveryRow.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return select(
        *(WebhookRow.id, WebhookRow.client, WebhookRow.url, WebhookRow.created_at),
        *(count(state) for state in (WAITING, DELIVERED, FAILED)),
        last.label("last_error"),
    )


def _of(connection: Connection, webhook_id: str) -> Webhook:
    found = connection.execute(_listing().where(WebhookRow.id == webhook_id)).first()
    if found is None:
        raise NoRecord(f"no webhook {webhook_id}")
    return Webhook(**found._mapping)
