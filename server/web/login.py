"""Logging in: a token goes into a cookie that only this server gets.

The cookie is HttpOnly and SameSite=Strict, and the gate refuses whatever another site sends
(`server.http.security`), so the forms of pages carry no token of their own against forgery.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import Headers

from server.http.auth import COOKIE, Authenticator
from server.http.problems import ProblemError
from server.settings import Settings
from server.web.forms import FormOf
from server.web.render import render

router = APIRouter(include_in_schema=False)

KEPT_SECONDS = 30 * 86400
"""How long a browser keeps the token, which may expire or be revoked before."""


@router.get("/login")
async def login_page(next: Annotated[str, Query(max_length=2000)] = "/") -> HTMLResponse:
    """The form; `next`: the page to go to afterwards."""
    return _form(next, "")


@router.post("/login")
async def login(request: Request, fields: FormOf) -> Response:
    """Checks the token and keeps it in the browser."""
    token, there = fields.get("token", "").strip(), fields.get("next", "/")
    authenticator: Authenticator = request.app.state.authenticator
    try:
        if not token.isascii() or not token.isprintable() or not token:
            raise ProblemError(401, "this is no token")
        headers = Headers({"authorization": f"Bearer {token}"})
        await authenticator.client(headers, "")
    except ProblemError as e:
        if e.status != 401:
            raise
        return _form(there, "The token is not valid: unknown, expired or revoked.")
    response = RedirectResponse(_inside(there), 303)
    response.set_cookie(
        COOKIE,
        token,
        max_age=KEPT_SECONDS,
        httponly=True,
        samesite="strict",
        secure=_secure(request),
    )
    return response


@router.post("/logout")
async def logout(request: Request) -> RedirectResponse:
    """Forgets the token in this browser."""
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=_secure(request))
    return response


def _secure(request: Request) -> bool:
    """Whether the browser came by TLS, as far as this server or its settings know."""
    settings: Settings = request.app.state.settings
    return settings.secure_cookies or request.scope["scheme"] == "https"


def _inside(path: str) -> str:
    """`path` if it is one of this server, else the first page: a link to the login page must not
    lead elsewhere."""
    plain = path.isprintable() and path.isascii() and "\\" not in path
    return path if plain and path.startswith("/") and not path.startswith("//") else "/"


def _form(there: str, problem: str) -> HTMLResponse:
    text = render("login.html", "/login", None, next=_inside(there), problem=problem)
    return HTMLResponse(text, 401 if problem else 200, {"Cache-Control": "no-store"})
