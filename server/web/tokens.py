"""The page of tokens: their quotas, and what is used of them."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from server.routes import tokens as api
from server.state import ServiceOf
from server.web.render import page

router = APIRouter(include_in_schema=False)


@router.get("/tokens")
def tokens_page(request: Request, service: ServiceOf) -> HTMLResponse:
    """All tokens, without their secrets; for admins."""
    return page(request, "tokens.html", items=api.listed(service))
