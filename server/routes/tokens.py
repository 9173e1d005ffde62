"""Tokens: made, rotated, limited and revoked by admins; what one's own may still spend."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Response

from records.operations.tokens import Token as StoredToken
from records.operations.tokens import Tokens
from records.queue.submissions import Quota
from server.http.auth import Client, ClientOf
from server.http.problems import refused
from server.routes.common import ModelRoute, answers, written
from server.schemas import (
    MadeToken,
    Page,
    QuotaRequest,
    RotateRequest,
    Token,
    TokenRequest,
    Usage,
)
from server.state import Service, ServiceOf

_log = logging.getLogger("autosched.tokens")

router = APIRouter(prefix="/v1/tokens", tags=["tokens"], route_class=ModelRoute)

TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$", examples=["0123456789ab"])]
T = TypeVar("T", bound=Token)
_NOT_KEPT = {"Cache-Control": "no-store"}


@router.get("", operation_id="list_tokens", responses=answers(403))
async def list_tokens(service: ServiceOf, client: ClientOf) -> Page[Token]:
    """All tokens with their quotas and what is used of them, never their secrets. For admins."""
    return await service.reading.do(("tokens", client.key), lambda: Page(items=listed(service)))


def listed(service: Service) -> list[Token]:
    """All tokens, those that are over too, in the order in which they were made."""
    tokens = Tokens(service.store)
    return [_shown(tokens, token) for token in tokens.all()]


@router.get("/self", operation_id="get_own_token", responses=answers(404))
async def get_own_token(service: ServiceOf, client: ClientOf) -> Token:
    """The token that the request was made with, its quotas, and what is used of them."""
    mine = client.spender.token_id

    def read() -> Token:
        tokens = Tokens(service.store)
        return next(_shown(tokens, token) for token in tokens.all() if token.id == mine)

    if mine is None:
        raise refused("not-found", "the request was made without a token, as this server allows")
    return await service.reading.do(("token", mine), read)


@router.post(
    "", operation_id="create_token", status_code=201, response_model=MadeToken,
    responses=answers(403),
)  # fmt: skip
async def create_token(service: ServiceOf, client: ClientOf, request: TokenRequest) -> Response:
    """Make a token. This answer alone has its text; a request that is repeated makes another one.
    For admins who have a token themselves, as everything but reading one's own."""

    def make(tokens: Tokens) -> MadeToken:
        seconds = request.expires_seconds
        text, token = tokens.create(request.name, request.scope, seconds, _quota(request))
        return MadeToken(**_values(tokens, token), token=text)

    made = await _administer(service, client, "created", make)
    return written(made, 201, _NOT_KEPT)


@router.post(
    "/{token_id}/rotate", operation_id="rotate_token", response_model=MadeToken,
    responses=answers(403, 404, 409),
)  # fmt: skip
async def rotate_token(
    service: ServiceOf, client: ClientOf, token_id: TokenId, request: RotateRequest
) -> Response:
    """Give a token another secret, told in this answer alone. The old one is taken for the grace;
    who was logged in with it, or follows events with it, is let go then. What is used of its quotas
    stays."""

    def rotate(tokens: Tokens) -> MadeToken:
        text, token = tokens.rotate(token_id, request.grace_seconds)
        return MadeToken(**_values(tokens, token), token=text)

    made = await _administer(service, client, f"rotated ({request.grace_seconds:g} s)", rotate)
    return written(made, 200, _NOT_KEPT)


@router.post("/{token_id}/limit", operation_id="limit_token", responses=answers(403, 404))
async def limit_token(
    service: ServiceOf, client: ClientOf, token_id: TokenId, request: QuotaRequest
) -> Token:
    """Give a token other quotas; those left out are lifted."""
    return await _administer(
        service,
        client,
        "limited",
        lambda tokens: _shown(tokens, tokens.limit(token_id, _quota(request))),
    )


@router.post("/{token_id}/revoke", operation_id="revoke_token", responses=answers(403, 404))
async def revoke_token(service: ServiceOf, client: ClientOf, token_id: TokenId) -> Token:
    """Make a token invalid, and the secret before its last rotation with it."""
    return await _administer(
        service, client, "revoked", lambda tokens: _shown(tokens, tokens.revoke(token_id))
    )


async def _administer(service: Service, client: Client, what: str, do: Callable[[Tokens], T]) -> T:
    """What `do` makes, which is logged."""
    client.check_administers()
    made = await service.writing.do(lambda: do(Tokens(service.store)))
    _log.info(
        "token %s of %s, scope %s: %s by %s", made.id, made.name, made.scope, what, client.name,
        extra={"token_id": made.id, "by": client.spender.token_id},
    )  # fmt: skip
    return made


def _quota(request: QuotaRequest) -> Quota:
    return Quota(request.max_jobs, request.max_trials, request.max_device_seconds)


def _shown(tokens: Tokens, token: StoredToken) -> Token:
    return Token(**_values(tokens, token))


def _values(tokens: Tokens, token: StoredToken) -> dict[str, Any]:
    state = "revoked" if token.revoked_at else "valid" if token.valid else "expired"
    used = Usage.model_validate(tokens.usage(token.id)._asdict())
    return {**vars(token), "state": state, "used": used}
