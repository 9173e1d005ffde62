"""Requests that are asked again: answered by what is stored now, and past the same gate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from problem_shape import check_problem
from raw_http import JOB
from serving import serving
from starlette.types import Scope, Send

from records import Store
from records.operations.tokens import READ, Tokens
from server.http import prepared
from server.http.prepared import PreparedRead
from server.settings import Settings

JSON = {"Accept": "application/json"}


class Watched(NamedTuple):
    client: httpx.Client
    paths: list[str]
    """Paths of the requests that were not routed."""


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    paths: list[str] = []
    plain = prepared._answer

    async def noted(scope: Scope, send: Send, read: PreparedRead) -> None:
        paths.append(scope["path"])
        await plain(scope, send, read)

    monkeypatch.setattr(prepared, "_answer", noted)
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, examine_processes=1)
    with serving(settings) as client:
        yield Watched(client, paths)


def submit(client: httpx.Client) -> str:
    return str(client.post("/v1/jobs", json=JOB).raise_for_status().json()["id"])


def test_what_is_asked_again_is_read_again_without_routing(watched: Watched) -> None:
    client, paths = watched
    first = submit(client)
    for path in ("/v1/jobs?limit=20", f"/v1/jobs/{first}", f"/v1/jobs/{first}/events"):
        paths.clear()
        answers = [client.get(path, headers=JSON) for _ in range(2)]
        assert answers[0].json() == answers[1].json()
        kinds = [{k: a.headers.get(k) for k in ("content-type", "vary")} for a in answers]
        assert kinds[0] == kinds[1]
        assert {"x-request-id", "x-content-type-options"} <= set(answers[1].headers)
        assert paths == [path.partition("?")[0]]
    second = submit(client)
    found = client.get("/v1/jobs?limit=20", headers=JSON).json()["items"]
    assert [job["id"] for job in found] == [second, first]
    client.post(f"/v1/jobs/{first}/cancel").raise_for_status()
    assert client.get(f"/v1/jobs/{first}", headers=JSON).json()["state"] == "cancelled"


def test_what_is_gone_is_told_with_the_id_of_its_own_request(watched: Watched) -> None:
    client, paths = watched
    job = submit(client)
    client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
    for _ in range(2):
        client.get(f"/v1/jobs/{job}").raise_for_status()
    client.delete(f"/v1/jobs/{job}").raise_for_status()
    answers = [client.get(f"/v1/jobs/{job}") for _ in range(2)]
    problems = [check_problem(answer, 404) for answer in answers]
    assert [p["request_id"] for p in problems] == [a.headers["x-request-id"] for a in answers]
    assert len(paths) == 3


def test_a_stream_is_not_answered_by_the_page_of_the_same_path(watched: Watched) -> None:
    client, _ = watched
    job = submit(client)
    path = f"/v1/jobs/{job}/events"
    for _ in range(2):
        client.get(path, headers=JSON).raise_for_status()
    with client.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
    last = client.get(path, headers=JSON).json()["last_id"]
    come_back = JSON | {"Last-Event-ID": str(last)}
    assert client.get(path, headers=come_back).json()["items"] == []


def test_the_beginning_of_an_id_may_mean_another_job_later(watched: Watched) -> None:
    client, paths = watched
    job = submit(client)
    for _ in range(2):
        assert client.get(f"/v1/jobs/{job[:8]}").json()["id"] == job
    assert paths == []


def test_what_does_not_fit_is_refused_each_time(watched: Watched) -> None:
    client, paths = watched
    for _ in range(2):
        check_problem(client.get("/v1/jobs?limit=0"), 422)
        check_problem(client.get("/v1/jobs?limits=1"), 422)
    assert paths == []


def test_few_requests_of_few_bytes_are_kept(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, paths = watched
    monkeypatch.setattr(prepared, "KEPT", 2)
    for limit in (1, 2, 3, 1, 3):
        client.get(f"/v1/jobs?limit={limit}").raise_for_status()
    assert len(paths) == 1  # the last one
    monkeypatch.setattr(prepared, "KEPT_BYTES", 10)
    for _ in range(2):
        client.get("/v1/jobs?limit=5").raise_for_status()
    assert len(paths) == 1


def test_known_requests_need_a_token(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), host="0.0.0.0", jobs_at_once=0)
    with Store(settings.db) as store:
        text, _ = Tokens(store).create("reader", READ, 600)
        with serving(settings) as client:
            for _ in range(2):
                client.get(
                    "/v1/jobs", headers={"Authorization": f"Bearer {text}"}
                ).raise_for_status()
            check_problem(client.get("/v1/jobs"), 401)
            check_problem(client.get("/v1/jobs", headers={"Authorization": f"Bearer {text}x"}), 401)
