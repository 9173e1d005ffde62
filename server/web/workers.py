"""The page of workers: how each is, and the button that drains it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from records.operations.tokens import ADMIN
from server.http.auth import ClientOf
from server.http.problems import ProblemError
from server.routes import workers as api
from server.state import ServiceOf
from server.web.forms import FormOf
from server.web.render import page

router = APIRouter(include_in_schema=False)


@router.get("/workers")
def workers_page(request: Request, service: ServiceOf, client: ClientOf) -> HTMLResponse:
    """The devices that measure."""
    return page(
        request,
        "workers.html",
        items=api.list_devices(service),
        several=len(service.workers.pools) > 1,
        may_drain=client.scope == ADMIN,
    )


@router.post("/workers")
async def change_worker(service: ServiceOf, client: ClientOf, fields: FormOf) -> RedirectResponse:
    """The buttons."""
    name, action = fields.get("name", ""), fields.get("action")
    if action not in ("drain", "admit"):
        raise ProblemError(422, f"action is {str(action)[:80]!r}; expected drain or admit")
    await api.change(service, client, [name], drain=action == "drain")
    return RedirectResponse("/workers", 303)
