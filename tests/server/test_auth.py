"""Who may do what: every route, every kind of token."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx
import pytest
from every_route import ROUTES, Route
from problem_shape import check_problem
from serving import serving
from starlette.datastructures import Headers

from records import Store, StoreUnavailable
from records.operations.tokens import ADMIN, READ, SCOPES, SUBMIT, Tokens
from records.sql.database import Database
from server.http import auth, event_streams
from server.http.problems import ProblemError
from server.settings import Settings


class Guarded(NamedTuple):
    """A server that asks for tokens, with one of each scope, and some that are over."""

    client: httpx.Client
    tokens: dict[str, str]
    ids: dict[str, str]
    store: Store


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    settings = Settings(
        db=str(tmp_path_factory.mktemp("auth") / "x.db"), host="0.0.0.0", jobs_at_once=0
    )
    with Store(settings.db) as store:
        tokens = Tokens(store)
        made = {scope: tokens.create(f"{scope}er", scope, 600) for scope in SCOPES}
        made["revoked"] = tokens.create("old", ADMIN, 600)
        tokens.revoke(made["revoked"][1].id)
        made["expired"] = tokens.create("late", ADMIN, 1e-3)
        with serving(settings) as client:
            texts = {name: text for name, (text, _) in made.items()}
            yield Guarded(client, texts, {n: t.id for n, (_, t) in made.items()}, store)


def ask(guarded: Guarded, route: Route, **headers: str) -> httpx.Response:
    body: dict[str, Any] = {} if route.method == "GET" else {"json": {}}
    return guarded.client.request(route.method, route.path, headers=headers, **body)


def bearer(guarded: Guarded, name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {guarded.tokens[name]}"}


def test_there_are_routes_of_each_kind() -> None:
    needed = [auth.needed(r.method, r.template) for r in ROUTES]
    assert {None, READ} <= set(needed)
    known = {r.template for r in ROUTES}
    for method, template in auth.ADMIN_ONLY:
        assert Route(method, template) in ROUTES, "a route that is guarded and does not exist"
    assert {"/healthz", "/readyz", "/v1/openapi.json"} <= known


def test_what_needs_no_token_is_what_is_listed_here() -> None:
    """Anything new needs a token until somebody writes it down twice."""
    free = {r.template for r in ROUTES if auth.needed(r.method, r.template) is None}
    assert free <= {
        *("/healthz", "/readyz", "/v1/openapi.json", "/openapi.json"),
        *("/login", "/logout", "/static", "/favicon.ico"),
    }


@pytest.mark.parametrize("route", ROUTES, ids=lambda r: f"{r.method} {r.path}")
def test_the_matrix_of_scopes_and_routes(guarded: Guarded, route: Route) -> None:
    needed = auth.needed(route.method, route.template)
    for scope in SCOPES:
        answer = ask(guarded, route, **bearer(guarded, scope))
        enough = needed is None or SCOPES.index(scope) >= SCOPES.index(needed)
        assert (answer.status_code not in (401, 403)) == enough, (scope, answer.text)
        if not enough:
            problem = check_problem(answer, 403)
            assert (
                f"a token with the scope {needed}; that of {scope}er has {scope}"
                in (problem["detail"])
            )
    wrong = [
        {},
        bearer(guarded, "revoked"),
        bearer(guarded, "expired"),
        {"Authorization": f"Bearer {guarded.tokens[ADMIN][:-1]}"},
        {"Authorization": f"Basic {guarded.tokens[ADMIN]}"},
        {"Authorization": guarded.tokens[ADMIN]},
        {"Authorization": "Bearer"},
        {"Cookie": f"{auth.COOKIE}=x"},
        {"X-Forwarded-For": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
    ]
    for headers in wrong:
        answer = ask(guarded, route, **headers)
        if needed is None:
            assert answer.status_code not in (401, 403), headers
        else:
            check_problem(answer, 401)
            assert answer.headers["www-authenticate"] == 'Bearer realm="autosched"'


def test_a_token_in_the_query_is_none(guarded: Guarded) -> None:
    """Addresses stand in logs and histories."""
    answer = guarded.client.get("/v1/jobs", params={"token": guarded.tokens[ADMIN]})
    assert answer.status_code == 401


def test_two_tokens_are_none(guarded: Guarded) -> None:
    twice = [("Authorization", f"Bearer {guarded.tokens[s]}") for s in (READ, ADMIN)]
    check_problem(guarded.client.get("/v1/jobs", headers=twice), 401)


def test_a_browser_sends_its_token_as_a_cookie(guarded: Guarded) -> None:
    cookie = {"Cookie": f"a=b; {auth.COOKIE}={guarded.tokens[READ]}; c=d"}
    assert guarded.client.get("/v1/jobs", headers=cookie).status_code == 200
    # What the header says goes first: a cookie does not make up for it.
    wrong = {**cookie, "Authorization": "Bearer x"}
    assert guarded.client.get("/v1/jobs", headers=wrong).status_code == 401


def test_unknown_paths_ask_for_nothing_and_tell_nothing(guarded: Guarded) -> None:
    check_problem(guarded.client.get("/v1/secrets"), 404)


def test_a_body_is_not_read_before_it_is_known_who_asks(guarded: Guarded) -> None:
    def endless() -> Iterator[bytes]:
        yield b"[" * 10

    posts = [r for r in ROUTES if r.method == "POST" and auth.needed(r.method, r.template)]
    for route in posts:
        answer = guarded.client.post(
            route.path, content=endless(), headers={"Content-Type": "application/json"}
        )
        check_problem(answer, 401)


def test_revoking_is_noticed(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    text, token = Tokens(guarded.store).create("brief", READ, 600)
    headers = {"Authorization": f"Bearer {text}"}
    assert guarded.client.get("/v1/jobs", headers=headers).status_code == 200
    Tokens(guarded.store).revoke(token.id)
    later = SimpleNamespace(monotonic=lambda: time.monotonic() + auth.REMEMBERED_SECONDS + 0.1)
    monkeypatch.setattr(auth, "time", later)
    assert guarded.client.get("/v1/jobs", headers=headers).status_code == 401


@pytest.mark.parametrize("known", [True, False], ids=["remembered", "asked"])
def test_a_stream_ends_when_its_token_is_revoked(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(event_streams, "ALLOWED_SECONDS", 0.05)
    body = {"workload": {"name": "matmul", "args": [8, 8, 8]}}
    post = guarded.client.post("/v1/jobs", json=body, headers=bearer(guarded, SUBMIT))
    path = f"/v1/jobs/{post.raise_for_status().json()['id']}/events"  # which waits for ever
    text, token = Tokens(guarded.store).create("brief", READ, 600)
    headers = {"Authorization": f"Bearer {text}"}
    with guarded.client.stream("GET", path, headers=headers) as stream:
        lines = stream.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: state"
        if not known:
            later = SimpleNamespace(monotonic=lambda: time.monotonic() + auth.REMEMBERED_SECONDS)
            monkeypatch.setattr(auth, "time", later)
        Tokens(guarded.store).revoke(token.id)
        assert not [line for line in lines if line.startswith("event:")]  # and they end
    assert guarded.client.get(path, headers=headers).status_code == 401


def test_without_a_database_nobody_is_let_in(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the database is away")

    text, _ = Tokens(guarded.store).create("new", ADMIN, 600)
    monkeypatch.setattr(Database, "transaction", away)
    answer = guarded.client.get("/v1/jobs", headers={"Authorization": f"Bearer {text}"})
    check_problem(answer, 503)


def test_on_loopback_tokens_are_not_asked_for_but_checked(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)
    with serving(settings) as client:
        assert client.get("/v1/jobs").status_code == 200
        answer = client.get("/v1/jobs", headers={"Authorization": "Bearer wrong"})
        check_problem(answer, 401)
    with serving(Settings(**{**settings.model_dump(), "require_tokens": True})) as client:
        check_problem(client.get("/v1/jobs"), 401)


def test_jobs_of_others_are_for_admins(guarded: Guarded) -> None:
    body = {"workload": {"name": "matmul", "args": [8, 8, 8]}}
    mine = bearer(guarded, SUBMIT)
    job = guarded.client.post("/v1/jobs", json=body, headers=mine).raise_for_status().json()
    assert job["client"] == "submiter"
    other, _ = Tokens(guarded.store).create("other", SUBMIT, 600)
    others = {"Authorization": f"Bearer {other}"}
    for action in ("cancel", "resume"):
        path = f"/v1/jobs/{job['id']}/{action}"
        problem = check_problem(guarded.client.post(path, json={}, headers=others), 403)
        assert "is not of other" in problem["detail"]
    path = f"/v1/jobs/{job['id']}/cancel"
    assert guarded.client.post(path, headers=mine).json()["state"] == "cancelled"
    again = guarded.client.post(
        path.replace("cancel", "resume"), json={}, headers=bearer(guarded, ADMIN)
    )
    assert again.json()["state"] == "queued"


def test_a_flood_of_invalid_tokens_does_not_reach_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    check = Tokens.check
    monkeypatch.setattr(Tokens, "check", lambda self, text: asked.append(text) or check(self, text))
    settings = Settings(
        db=str(tmp_path / "x.db"), require_tokens=True, jobs_at_once=0,
        requests_per_second=0.001, request_burst=5,
    )  # fmt: skip
    with serving(settings) as client:
        found = []
        for n in range(12):
            headers = {"Authorization": f"Bearer as_{n:012x}_{'x' * 43}"}
            found.append(client.get("/v1/jobs", headers=headers).status_code)
    # One of the five was taken by who asked whether the server is up.
    assert found == [401] * 4 + [429] * 8
    assert len(asked) == 4


def test_a_token_that_was_valid_is_known_until_it_is_not(tmp_path: Path) -> None:
    """Else whoever floods the server from the same address has it refused."""
    with Store(tmp_path / "x.db") as store:
        tokens = Tokens(store)
        text, token = tokens.create("ann", READ, None)
        authenticator = auth.Authenticator(tokens, required=True, remembered_seconds=0.0)
        headers = Headers({"authorization": f"Bearer {text}"})
        assert not authenticator.knows(headers)
        assert asyncio.run(authenticator.client(headers, "a")) is not None
        assert authenticator.knows(headers)
        tokens.revoke(token.id)
        with pytest.raises(ProblemError):
            asyncio.run(authenticator.client(headers, "a"))
        assert not authenticator.knows(headers)
