"""HEAD answers what GET does, without the body."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from every_route import ROUTES, Route
from server_process import submit
from serving import serving

from server.settings import Settings

RECORDS = Path(__file__).parents[2] / "tuning" / "golden_records.jsonl"
CHANGING = {"x-request-id", "date", "age"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = Settings(db=str(tmp_path_factory.mktemp("heads") / "x.db"), jobs_at_once=0)
    with serving(settings) as client:
        client.post("/v1/records/import", content=RECORDS.read_bytes()).raise_for_status()
        yield client


def same(client: httpx.Client, path: str, **kw: dict[str, str]) -> None:
    got, head = client.get(path, **kw), client.head(path, **kw)
    assert head.status_code == got.status_code
    assert head.content == b""
    assert {k: v for k, v in head.headers.items() if k not in CHANGING} == {
        k: v for k, v in got.headers.items() if k not in {*CHANGING, "transfer-encoding"}
    }


@pytest.mark.parametrize(
    "route", [r for r in ROUTES if r.method == "GET" and r.path != "/metrics"],
    ids=lambda r: r.template,
)  # fmt: skip
def test_every_route_that_has_get(client: httpx.Client, route: Route) -> None:
    # As they are: compressed, the random key of a form changes the length.
    same(client, route.path, headers={"Accept-Encoding": "identity"})
    same(client, route.path, headers={"Accept-Encoding": "identity", "Accept": "text/html"})


@pytest.mark.parametrize("path", ["/v1/records/1", "/static/style.css", "/workloads", "/metrics"])
def test_what_is_there(client: httpx.Client, path: str) -> None:
    assert client.head(path).status_code == 200
    if path != "/metrics":  # whose length changes as requests are counted
        same(client, path)


def test_no_other_route(client: httpx.Client) -> None:
    head = client.head("/logout")
    assert (head.status_code, head.headers["allow"], head.content) == (405, "POST", b"")
    answer = client.put("/v1/jobs")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")


def test_streams_end_with_their_head(client: httpx.Client) -> None:
    """A job that waits has events without end; an export is not read."""
    job = submit(client, 8)
    answer = client.head(f"/v1/jobs/{job['id']}/events")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert client.head("/v1/records/export").headers["content-type"] == "application/x-ndjson"
    assert "autosched_streams_open 0.0" in client.get("/metrics").text
