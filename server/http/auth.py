"""Who asks, and whether they may: bearer tokens with scopes, deny by default.

Which scope a request needs follows from its method and the template of its route (`needed`), so a
route that is added later is protected without doing anything. Browsers carry the token in a
cookie that the login page sets (HttpOnly, SameSite=Strict).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Annotated

import anyio.to_thread
from fastapi import Depends, Request
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from records import Job, RecordError
from records.operations.tokens import ADMIN, READ, SUBMIT, Token, Tokens
from records.queue.submissions import NO_TOKEN, Spender
from server.http.problems import ProblemError, refused
from server.http.security import SAFE_METHODS

COOKIE = "autosched_token"
LOCAL = "local"
"""The name of whoever needs no token: a user of this machine."""

PUBLIC = frozenset(
    {
        "/healthz",
        "/readyz",
        "/v1/openapi.json",
        "/openapi.json",
        "/login",
        "/logout",
        "/static",
        "/favicon.ico",
    }
)
"""Templates of routes that ask for no token: they tell nothing about jobs or records."""
ADMIN_ONLY = frozenset(
    {
        ("POST", "/v1/records/import"),
        ("PUT", "/v1/roofline/{device}"),
        ("GET", "/tokens"),
        ("GET", "/v1/tokens"),
        ("POST", "/v1/tokens"),
        ("POST", "/v1/tokens/{token_id}/rotate"),
        ("POST", "/v1/tokens/{token_id}/limit"),
        ("POST", "/v1/tokens/{token_id}/revoke"),
        ("POST", "/v1/workers/drain"),
        ("POST", "/v1/workers/admit"),
        ("POST", "/workers"),
    }
)
"""(method, template) of routes that change what others rely on."""

REMEMBERED_SECONDS = 5.0
"""How long a valid token is not asked for again; revoking one takes as long to be noticed."""
_REMEMBERED = 1000

MOST_PRIORITY = 10
"""The highest priority that a token without the scope admin may ask for."""

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="autosched"'}
_HOW = "send `Authorization: Bearer TOKEN`; `autosched token create` on the server makes one"


@dataclass(frozen=True)
class Client:
    """Who asks. `name` is the token's, or LOCAL; `key` tells clients apart where limits count."""

    name: str
    scope: str
    key: str
    spender: Spender = NO_TOKEN
    """The token towards whose quota what they submit counts."""

    @property
    def administers(self) -> bool:
        """Whether they may change what is others'."""
        return self.scope == ADMIN

    def check_administers(self) -> None:
        """Raises ProblemError (403) for who has no token: on loopback anybody with an account may
        do all else, but a token would let them in from elsewhere, and for longer."""
        if self.spender.token_id is None:
            raise refused(
                "forbidden",
                "tokens are administered with a token of the scope admin, also where none is "
                "asked for; `autosched token create --scope admin` on the server makes one",
            )

    def check_priority(self, priority: int) -> None:
        """Raises ProblemError (403) for a priority that is for admins."""
        if self.scope != ADMIN and priority > MOST_PRIORITY:
            raise refused(
                "forbidden",
                f"priority {priority}: a token with the scope {self.scope} may ask for at most "
                f"{MOST_PRIORITY}; more needs the scope {ADMIN}",
            )

    def check_change(self, job: Job) -> None:
        """Raises ProblemError (403) for a job that is not theirs to cancel or resume."""
        if self.scope != ADMIN and job.client != self.name:
            raise refused(
                "forbidden",
                f"job {job.id} is not of {self.name}; changing it needs a token with the scope "
                f"{ADMIN}",
            )


def needed(method: str, template: str) -> str | None:
    """The scope that a request of the route with that template needs; None: anybody may."""
    if template in PUBLIC:
        return None
    if (method, template) in ADMIN_ONLY:
        return ADMIN
    return READ if method in SAFE_METHODS else SUBMIT


@dataclass
class Authenticator:
    """Tells who asks from the headers of a request.

    `required`: whether anybody without a token is refused; else they are LOCAL and may do all.
    """

    tokens: Tokens
    required: bool
    remembered_seconds: float = REMEMBERED_SECONDS
    _seen: OrderedDict[str, tuple[float, Token]] = field(default_factory=OrderedDict)

    async def client(self, headers: Headers, address: str) -> Client | None:
        """The client; None without a token where one is required.

        Raises ProblemError (401) for a token that is not valid, StoreUnavailable if that cannot be
        told now.
        """
        text = presented(headers)
        if text is None:
            return None if self.required else Client(LOCAL, ADMIN, address)
        token = await self._check(text)
        if token is None:
            raise unauthorized("the token is not valid: unknown, expired or revoked")
        return Client(token.name, token.scope, token.id, Spender(token.id, token.quota))

    def knows(self, headers: Headers) -> bool:
        """Whether somebody may ask, as far as can be told at once: their token was valid when the
        database was last asked, or none is required and none presented.

        However long ago that was: who shares an address with a flood of tokens (behind a proxy all
        do) is not to be refused for it every few seconds. One that is not valid any more is asked
        for once, and forgotten.
        """
        try:
            text = presented(headers)
        except ProblemError:
            return False
        if text is None:
            return not self.required
        return text in self._seen

    async def holds(self, headers: Headers, address: str) -> bool:
        """Whether who was let in with these headers would be now; where the database does not say,
        they would."""
        try:
            return await self.client(headers, address) is not None
        except ProblemError:
            return False
        except RecordError:
            return True

    async def _check(self, text: str) -> Token | None:
        now = time.monotonic()
        until, token = self._seen.get(text, (0.0, None))
        if token is not None and now < until:
            return token
        token = await anyio.to_thread.run_sync(self.tokens.check, text)
        self._seen.pop(text, None)
        if token is not None:
            self._seen[text] = now + self.remembered_seconds, token
            if len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
        return token


def presented(headers: Headers) -> str | None:
    """The token that a request carries, in Authorization or in the cookie; None if in neither.

    Raises ProblemError (401) for another kind of authorization.
    """
    given = headers.getlist("authorization")
    if given:
        kind, _, text = given[0].strip().partition(" ")
        if len(given) > 1 or kind.lower() != "bearer" or not text.strip():
            raise unauthorized("expected one Authorization header with a bearer token")
        return text.strip()
    cookie = headers.get("cookie")
    return None if cookie is None else cookie_parser(cookie).get(COOKIE) or None


def unauthorized(detail: str) -> ProblemError:
    """401, with what to do."""
    return refused("unauthorized", f"{detail}; {_HOW}", headers=_CHALLENGE)


def check_scope(client: Client | None, scope: str) -> Client:
    """The client, who may do what needs `scope`. Raises ProblemError: 401 or 403."""
    if client is None:
        raise unauthorized("this needs a token")
    order = (READ, SUBMIT, ADMIN)
    if order.index(client.scope) < order.index(scope):
        raise refused(
            "forbidden",
            f"this needs a token with the scope {scope}; that of {client.name} has {client.scope}",
        )
    return client


def client_of(request: Request) -> Client:
    """Who asks, of a request that the gate has let pass."""
    client: Client = request.scope["autosched.client"]
    return client


async def _client(request: Request) -> Client:  # a plain function would be called in a thread
    return client_of(request)


ClientOf = Annotated[Client, Depends(_client)]
"""A parameter of a route: who asks. The gate has checked that they may."""
