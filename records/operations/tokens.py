"""Tokens of the service: who may do what, until when.

A token is `as_<id>_<secret>`. The store keeps the id and a hash of the secret, which is 256 random
bits: a plain hash of that many cannot be searched for.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sqlalchemy import case, func, insert, select, update

from records.errors import NoRecord, RecordError
from records.queue.submissions import NO_QUOTA, Quota, Usage, usage
from records.sql.schema import TokenRow, database_time

if TYPE_CHECKING:
    from records.sql.database import Database
    from records.store import Store

READ, SUBMIT, ADMIN = "read", "submit", "admin"
SCOPES = (READ, SUBMIT, ADMIN)
"""Each may do what those before it may."""

LONGEST_DAYS = 3650
LONGEST_GRACE_DAYS = 30
_FORM = re.compile(r"as_(?P<id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{43})", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Token:
    """What is known of a token; its secret is not. `expires_at` None: never."""

    id: str
    name: str
    scope: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    max_jobs: int | None = None
    max_trials: int | None = None
    max_device_seconds: float | None = None
    previous_until: datetime | None = None
    """Until when the secret before the last rotation is taken as well."""
    valid: bool

    @property
    def quota(self) -> Quota:
        """What the jobs that are submitted with it may come to."""
        return Quota(self.max_jobs, self.max_trials, self.max_device_seconds)

    def allows(self, scope: str) -> bool:
        """Whether `scope` is this token's or one that it contains."""
        return SCOPES.index(scope) <= SCOPES.index(self.scope)


class Tokens:
    """The tokens of a store. Any number of processes may use them at once."""

    def __init__(self, store: Store) -> None:
        self._db: Database = store._db

    def create(
        self, name: str, scope: str, seconds: float | None, quota: Quota = NO_QUOTA
    ) -> tuple[str, Token]:
        """A new token, its text (told this once), valid for so many seconds (None: for ever).

        Raises RecordError for a name, a scope or a quota that cannot be.
        """
        for what, most in quota._asdict().items():
            if most is not None and not 0 <= most < 1 << 53:
                raise RecordError(f"a quota of {most} {what}: expected a number from 0 to 2^53")
        if not _NAME.fullmatch(name):
            raise RecordError(
                f"a token's name is 1 to 64 letters, digits, spaces and ._@-; found {name!r}"
            )
        if scope not in SCOPES:
            raise RecordError(f"scope {scope!r}: expected one of {', '.join(SCOPES)}")
        if seconds is not None and not 0 < seconds <= LONGEST_DAYS * 86400:
            raise RecordError(
                f"a token is valid for more than 0 and at most {LONGEST_DAYS} days, or for ever; "
                f"found {seconds:g} seconds"
            )
        token_id, secret = secrets.token_hex(6), _secret()
        row = {
            "id": token_id,
            "name": name,
            "scope": scope,
            "hash": _hash(secret),
            "created_at": database_time(),
            "expires_at": None if seconds is None else database_time(seconds),
            **{f"max_{what}": most for what, most in quota._asdict().items()},
        }
        with self._db.transaction(writes=True) as connection:
            connection.execute(insert(TokenRow).values(row))
            made = connection.execute(_TOKENS.where(TokenRow.id == token_id)).one()
        return _text(token_id, secret), Token(**made._mapping)

    def rotate(self, token_id: str, grace: float) -> tuple[str, Token]:
        """The token with a new secret, whose text is told this once. The one before is taken for
        `grace` seconds more, at most LONGEST_GRACE_DAYS; one that was rotated out before is not
        taken any more. Id, name, scope, quota and expiry stay.

        Raises NoRecord if there is none, RecordError for one that is not valid, or a wrong grace.
        """
        if not 0 <= grace <= LONGEST_GRACE_DAYS * 86400:
            raise RecordError(
                f"a rotated token's old secret is valid for 0 to {LONGEST_GRACE_DAYS} days; "
                f"found {grace:g} seconds"
            )
        secret = _secret()
        mine = TokenRow.id == token_id
        values = {
            "hash": _hash(secret),
            "previous_hash": TokenRow.hash if grace else None,
            "previous_until": database_time(grace) if grace else None,
        }
        with self._db.transaction(writes=True) as connection:
            connection.execute(update(TokenRow).where(mine, _VALID).values(values))
            found = connection.execute(_TOKENS.where(mine)).first()
        if found is None:
            raise NoRecord(f"no token {token_id}; `autosched token list` shows them")
        token = Token(**found._mapping)
        if not token.valid:
            raise RecordError(f"token {token_id} is revoked or expired: make a new one")
        return _text(token_id, secret), token

    def all(self) -> list[Token]:
        """All tokens, those that are over too, in the order in which they were made."""
        query = _TOKENS.order_by(TokenRow.created_at, TokenRow.id)
        with self._db.transaction(writes=False) as connection:
            return [Token(**row._mapping) for row in connection.execute(query)]

    def usage(self, token_id: str) -> Usage:
        """What the jobs of a token come to now; of one that is not known, nothing."""
        with self._db.transaction(writes=False) as connection:
            return usage(connection, token_id)

    def limit(self, token_id: str, quota: Quota) -> Token:
        """The token with another quota. Raises NoRecord if there is none."""
        mine = TokenRow.id == token_id
        values = {f"max_{what}": most for what, most in quota._asdict().items()}
        with self._db.transaction(writes=True) as connection:
            connection.execute(update(TokenRow).where(mine).values(values))
            found = connection.execute(_TOKENS.where(mine)).first()
        if found is None:
            raise NoRecord(f"no token {token_id}; `autosched token list` shows them")
        return Token(**found._mapping)

    def any_valid(self) -> bool:
        """Whether anybody has a token that is valid now."""
        with self._db.transaction(writes=False) as connection:
            found = connection.execute(select(TokenRow.id).where(_VALID).limit(1)).first()
        return found is not None

    def revoke(self, token_id: str) -> Token:
        """The token, invalid from now on. Raises NoRecord if there is none."""
        mine = TokenRow.id == token_id
        with self._db.transaction(writes=True) as connection:
            ends = func.coalesce(TokenRow.revoked_at, database_time())
            connection.execute(update(TokenRow).where(mine).values(revoked_at=ends))
            found = connection.execute(_TOKENS.where(mine)).first()
        if found is None:
            raise NoRecord(f"no token {token_id}; `autosched token list` shows them")
        return Token(**found._mapping)

    def check(self, text: str) -> Token | None:
        """The valid token of that text; None if it is none, of whatever kind."""
        form = _FORM.fullmatch(text)
        if form is None:
            return None
        query = _SECRETS.where(TokenRow.id == form["id"])
        with self._db.transaction(writes=False) as connection:
            found = connection.execute(query).first()
        values = {} if found is None else dict(found._mapping)
        # Also where there is no such id, so that the time taken does not tell.
        nothing = _hash("")
        expected = values.pop("hash", nothing)
        previous = values.pop("previous_taken", None) or nothing
        given = _hash(form["secret"])
        is_current = hmac.compare_digest(expected, given)
        is_previous = hmac.compare_digest(previous, given)
        if not (is_current or is_previous) or found is None:
            return None
        token = Token(**values)
        return token if token.valid else None


def _secret() -> str:
    return secrets.token_urlsafe(32)


def _text(token_id: str, secret: str) -> str:
    return f"as_{token_id}_{secret}"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


_VALID = TokenRow.revoked_at.is_(None) & (
    TokenRow.expires_at.is_(None) | (TokenRow.expires_at > database_time())
)
_TOKENS = select(
    *(TokenRow.id, TokenRow.name, TokenRow.scope),
    *(TokenRow.created_at, TokenRow.expires_at, TokenRow.revoked_at),
    *(TokenRow.max_jobs, TokenRow.max_trials, TokenRow.max_device_seconds),
    TokenRow.previous_until,
    _VALID.label("valid"),
)
_SECRETS = _TOKENS.add_columns(
    TokenRow.hash,
    case((TokenRow.previous_until > database_time(), TokenRow.previous_hash)).label(
        "previous_taken"
    ),
)
