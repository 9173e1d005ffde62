"""Webhooks: addresses that are told when jobs end."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from records.operations.tokens import ADMIN
from records.queue.webhooks import Webhooks
from server.http.auth import Client, ClientOf
from server.http.problems import refused
from server.jobs.webhooks import check_url
from server.routes.common import ModelRoute, answers, written
from server.schemas import Page, Webhook, WebhookRequest
from server.state import Service, ServiceOf

router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=ModelRoute)

WebhookId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$", examples=["0123456789ab"])]


@router.get("", operation_id="list_webhooks", responses=answers())
async def list_webhooks(service: ServiceOf, client: ClientOf) -> Page[Webhook]:
    """One's own webhooks, of admins all, with what came of their deliveries in the last week.
    Secrets are never told."""
    whose = None if client.scope == ADMIN else client.name

    def read() -> Page[Webhook]:
        found = Webhooks(service.store).all(whose)
        return Page(items=[Webhook.model_validate(webhook) for webhook in found])

    return await service.reading.do(("webhooks", whose), read)


@router.post(
    "", operation_id="create_webhook", status_code=201, response_model=Webhook,
    responses=answers(409),
)  # fmt: skip
async def create_webhook(service: ServiceOf, client: ClientOf, request: WebhookRequest) -> Response:
    """Have an address told when a job of one's own ends: a POST of JSON with the job, signed with
    the secret in `Autosched-Signature`. Its origin has to be one that the administrator allows."""
    check_url(service.webhooks, request.url)
    made = await service.writing.do(
        lambda: Webhooks(service.store).add(client.name, request.url, request.secret)
    )
    return written(Webhook.model_validate(made), 201)


@router.delete(
    "/{webhook_id}", operation_id="delete_webhook", status_code=204, responses=answers(403, 404)
)
async def delete_webhook(service: ServiceOf, client: ClientOf, webhook_id: WebhookId) -> Response:
    """Remove a webhook, with what it was still to be told. Those of others are for admins."""
    await service.writing.do(lambda: _remove(service, client, webhook_id))
    return Response(status_code=204)


def _remove(service: Service, client: Client, webhook_id: str) -> None:
    webhooks = Webhooks(service.store)
    found = webhooks.get(webhook_id)
    if client.scope != ADMIN and found.client != client.name:
        raise refused("forbidden", f"webhook {webhook_id} is not of {client.name}")
    webhooks.remove(webhook_id)
