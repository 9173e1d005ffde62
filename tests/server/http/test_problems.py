"""Every error of every route has one shape and says what to do."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from every_route import ROUTES, Route, methods_of
from problem_shape import check_problem
from serving import serving
from sqlalchemy.exc import DatabaseError
from starlette.exceptions import HTTPException

from autosched.errors import ScriptError
from records import (
    LeaseLost,
    NoRecord,
    QueueFull,
    RecordError,
    SchemaVersionError,
    Store,
    StoreUnavailable,
)
from records.operations.tokens import Tokens
from records.sql.database import Database
from server.http import problems
from server.http.problems import KINDS, ProblemError, printable, problem_of
from server.settings import Settings

API = [r for r in ROUTES if r.template.startswith("/v1/")]
BARE = ("/cancel", "/pause", "/revoke", "/v1/batches/{batch_id}/resume")
TAKING = [
    r
    for r in API
    if r.method in ("POST", "PUT")
    and (not r.template.endswith(BARE) or r.path == "/v1/jobs/cancel")
]
"""Those that take a body."""


def name(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("problems") / "x.db")


@pytest.fixture(scope="module")
def admin(db: str) -> dict[str, str]:
    """Headers of an admin who has a token: without one the answer is 403 for any token."""
    with Store(db) as store:
        text, _ = Tokens(store).create("root", "admin", None)
    return {"Authorization": f"Bearer {text}"}


@pytest.fixture(scope="module")
def client(db: str) -> Iterator[httpx.Client]:
    settings = Settings(
        db=db,
        jobs_at_once=0,
        requests_per_second=0,
        body_bytes=20_000,
        import_bytes=20_000,
    )
    with serving(settings) as client:
        yield client


def ask(client: httpx.Client, route: Route, **kw: Any) -> httpx.Response:
    return client.request(route.method, route.path, **kw)


@pytest.mark.parametrize("route", [r for r in ROUTES if not r.below], ids=name)
def test_other_methods(client: httpx.Client, route: Route) -> None:
    allowed = methods_of(route.path) | {"HEAD"}  # that one: test_heads.py
    for method in {"PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "MOVE", "POST", "GET"} - allowed:
        answer = client.request(method, route.path)
        check_problem(answer, 405)
        assert route.method in answer.headers["allow"]


@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_paths_that_are_not_there(client: httpx.Client, route: Route) -> None:
    for path in (route.path + "/", route.path + "/none", "/" + route.path.strip("/") + "x"):
        answer = client.request(route.method, path)
        if answer.status_code >= 400:  # the end of a path may be the name of something
            problem = check_problem(answer, 404, 405, 422)
            assert problem["instance"] == path


@pytest.mark.parametrize(
    "route", [r for r in API if "{" in r.template and r.method != "PUT"], ids=name
)
def test_things_that_are_not_there(
    client: httpx.Client, admin: dict[str, str], route: Route
) -> None:
    body = {"json": {}} if route.method == "POST" else {}
    answer = ask(client, route, headers=admin, **body)
    check_problem(answer, 404)
    for wrong in ("%00", "%ff", "x" * 3000, "-1", "0", "%0a", "..%2f..%2fetc", "%F0%9F%98%80", "'"):
        path = re.sub(r"\{\w+\}", wrong, route.template)
        answer = client.request(route.method, path, headers=admin)
        check_problem(answer, 400, 404, 405, 422)


@pytest.mark.parametrize("route", [r for r in API if r.method == "POST"], ids=name)
def test_bodies_that_do_not_fit(client: httpx.Client, admin: dict[str, str], route: Route) -> None:
    headers = {"Content-Type": "application/json", **admin}
    whole = (b"", b"[]", b"null", b"1", b'"a"', b'{"unknown": 1}')
    for body in (*whole, b"{", b"{}{}", b"\xff\xfe", b"\0"):
        answer = ask(client, route, content=body, headers=headers)
        if answer.status_code >= 400:
            check_problem(answer, 400, 404, 409, 415, 422)


@pytest.mark.parametrize("route", TAKING, ids=name)
def test_bodies_that_are_too_large(client: httpx.Client, route: Route) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(30):
            yield b" " * 1000

    json = {"Content-Type": "application/json"}
    check_problem(ask(client, route, content=b" " * 30_000, headers=json), 413)
    answer = ask(client, route, content=parts(), headers=json)
    assert answer.status_code == 413 or (answer.status_code == 404 and "import" not in route.path)


@pytest.mark.parametrize("route", TAKING, ids=name)
def test_compressed_bodies_are_not_read(client: httpx.Client, route: Route) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    check_problem(ask(client, route, content=b"\x1f\x8b", headers=headers), 415)


def test_a_body_that_is_not_said_to_be_json(client: httpx.Client) -> None:
    body = '{"workload": {"name": "matmul", "args": [8, 8, 8]}}'
    for kind in ("application/x-www-form-urlencoded", "text/plain; charset=utf-8"):
        answer = client.post("/v1/jobs", content=body, headers={"Content-Type": kind})
        assert (
            "expected a body with Content-Type application/json"
            in check_problem(answer, 415)["detail"]
        )


@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_heads_that_are_too_large(client: httpx.Client, route: Route) -> None:
    check_problem(ask(client, route, params={"x": "y" * 9000}), 414)
    check_problem(ask(client, route, headers={"X-Long": "y" * 20_000}), 431)
    check_problem(ask(client, route, headers={"Host": "evil.example"}), 400)


@pytest.mark.parametrize("route", API, ids=name)
def test_parameters_that_do_not_fit(
    client: httpx.Client, admin: dict[str, str], route: Route
) -> None:
    known = {"limit": "x", "cursor": "é", "state": "x", "after": "-1", "kind": "x", "points": "1e9"}
    answer = ask(client, route, params=known, headers=admin)
    if answer.status_code >= 400:
        check_problem(answer, 400, 404, 422)


@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_a_database_that_is_away(
    client: httpx.Client, route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(Database, "transaction", away)
    body = {"json": {}} if route.method == "POST" else {}
    if route.path == "/v1/jobs" and route.method == "POST":
        body = {"json": {"workload": {"name": "matmul", "args": [8, 8, 8]}}}
    answer = ask(client, route, **body)
    if answer.status_code >= 400:
        # 403: token routes ask for an admin's token before they look anything up.
        check_problem(answer, 403, 404, 405, 415, 422, 503)
    of_jobs = "job" in route.template or "record" in route.template or route.path == "/readyz"
    if of_jobs and route.method == "GET":
        assert answer.status_code in (503, 422), answer.text


@pytest.mark.parametrize("route", ROUTES, ids=name)
def test_a_mistake_of_ours(
    client: httpx.Client,
    route: Route,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Told with an id that finds it in the log, and without what went wrong."""

    def mistake(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("hunter2")

    monkeypatch.setattr(Database, "transaction", mistake)
    answer = ask(client, route)
    if answer.status_code >= 400:
        problem = check_problem(answer)
        if problem["status"] == 500:
            assert "hunter2" not in answer.text
            logged = [r for r in caplog.records if r.message == "a request failed"]
            assert len(logged) == 1
            assert "hunter2" in str(logged[0].exc_info)


def test_a_database_that_is_damaged(tmp_path: Path) -> None:
    """SQLite does not call that an operational error."""
    path = tmp_path / "x.db"
    with serving(Settings(db=str(path), jobs_at_once=0)) as client:
        assert client.get("/v1/jobs").status_code == 200
        for file in tmp_path.iterdir():
            file.write_bytes(b"not a database\n" * 1000)
        for path in ("/v1/jobs", "/readyz"):
            problem = check_problem(client.get(path), 500)
            assert problem["type"].endswith(":database-damaged")
        assert client.get("/healthz").status_code == 200
        assert "autosched_database_up 0.0" in client.get("/metrics").text


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (StoreUnavailable("busy"), "unavailable"),
        (SchemaVersionError("run db upgrade"), "unavailable"),
        (NoRecord("none"), "not-found"),
        (LeaseLost("late"), "conflict"),
        (RecordError("in that state"), "conflict"),
        (QueueFull("3 jobs wait"), "queue-full"),
        (ScriptError("line 1", 1, 1), "invalid-workload"),
        (ProblemError(409, "so"), "conflict"),
        (ProblemError(418, "teapot"), "malformed-request"),
        (ProblemError(599, "strange"), "internal-error"),
        (HTTPException(404), "not-found"),
        (HTTPException(406), "not-acceptable"),
    ],
)
def test_what_errors_mean(error: Exception, kind: str) -> None:
    found = problem_of(error)
    assert found is not None
    assert found.kind is KINDS[kind]
    assert problem_of(ValueError("ours")) is None
    assert problem_of(FileNotFoundError(errno.ENOENT, "ours")) is None


def test_a_machine_without_room_is_to_be_asked_later() -> None:
    found = problem_of(OSError(errno.ENOSPC, "No space left on device", "/home/ann/x"))
    assert found is not None
    assert (found.status, found.headers) == (503, {"Retry-After": "2"})
    assert "ann" not in found.detail


def test_errors_of_the_database_itself_are_not_the_clients() -> None:
    error = RecordError("disk image is malformed")
    error.__cause__ = DatabaseError("SELECT", {}, Exception("malformed"))
    found = problem_of(error)
    assert found is not None
    assert (found.status, found.headers) == (503, {"Retry-After": "2"})


@pytest.mark.parametrize("error", [StoreUnavailable, SchemaVersionError])
def test_where_the_database_is_is_for_the_log_only(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    found = problem_of(error("sqlite:////home/ann/x.db cannot be used now: locked"))
    assert found is not None
    assert "x.db" not in found.detail
    assert "sqlite:////home/ann/x.db" in caplog.text


def test_texts_of_problems_are_printable() -> None:
    assert printable("a\0\x1b[31m\ud800\u202e\nb") == "a\\x00\\x1b[31m\\ud800\\u202e\nb"
    assert len(printable("x" * 10_000)) == 4001


def test_every_kind_has_a_title_of_its_own() -> None:
    assert len({kind.title for kind in KINDS.values()}) == len(KINDS)
    assert all(name == kind.name for name, kind in KINDS.items())
    assert {problems.refused(name, "x").kind.name for name in KINDS} == set(KINDS)
