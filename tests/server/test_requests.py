"""Requests that mean something else than they seem to: misspelt parameters, bodies in codings."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from every_route import ROUTES, Route
from problem_shape import check_problem
from raw_http import JOB, problem_in, send, unbounded

from autosched.tuning import SearchTask
from records.logs.lines import encode_line

MATMUL = SearchTask("matmul", (8, 8, 8)).workload
SOFTMAX = SearchTask("softmax", (8, 8)).workload
LAYER_NORM = SearchTask("layer_norm", (8, 8)).workload
BODY = json.dumps(JOB).encode()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with unbounded(tmp_path_factory.mktemp("requests")) as client:
        yield client


# Queries


@pytest.mark.parametrize("route", [r for r in ROUTES if not r.below], ids=str)
def test_parameters_that_a_route_does_not_have_are_refused(
    client: httpx.Client, route: Route
) -> None:
    answer = client.request(route.method, route.path, params={"limti": 1})
    problem = check_problem(answer, 422)
    assert [e["at"] for e in problem["errors"]] == ["query/limti"]
    assert "no such parameter; there are" in problem["detail"]


@pytest.mark.parametrize("query", ["state=queued&stat=x", "Limit=1", "limit=1&limit=2", "=1", "a"])
def test_queries_that_are_read_otherwise_elsewhere(client: httpx.Client, query: str) -> None:
    check_problem(client.get(f"/v1/jobs?{query}"), 422)


def test_parameters_that_may_stand_several_times(client: httpx.Client) -> None:
    answer = client.get("/submit?operator=matmul&arg=1&arg=2&arg=3")
    assert answer.status_code == 200
    assert client.get("/v1/jobs?state=queued&limit=2").status_code == 200


def test_files_may_have_a_version(client: httpx.Client) -> None:
    assert client.get("/static/style.css?v=1").status_code == 200


def test_lists_show_the_ends_of_long_errors(client: httpx.Client) -> None:
    """A page of 1,000 answered 190 MB."""
    error = "begin " + "x" * 60_000 + " end"
    line = {
        "v": 1, "kind": "trial", "status": "build_error", "job_id": "j1", "round": 0, "slot": 0,
        "workload_key": "w0", "target": "llvm", "device": "d", "seconds": None, "error": error,
        "trace": [], "decisions": {}, "program_hash": "", "created_at": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    workload = {"v": 1, "kind": "workload", "key": "w0", "name": "x", "script": "x"}
    body = "\n".join(map(json.dumps, (workload, line)))
    assert client.post("/v1/records/import", content=body).json()["new"] == 1
    (listed,) = client.get("/v1/records?job_id=j1").json()["items"]
    assert len(listed["error"]) <= 2000
    assert (listed["error"][:6], listed["error"][-4:]) == ("begin ", " end")
    assert client.get(f"/v1/records/{listed['id']}").json()["error"] == error


def test_imported_texts_are_read_by_a_process_of_their_own(client: httpx.Client) -> None:
    """One of another workload is refused; the operator can be tuned all the same."""
    forged = replace(MATMUL, text=SOFTMAX.text)
    hostile = replace(SOFTMAX, text="import os\nos.abort()")
    report = client.post(
        "/v1/records/import", content=b"".join(map(encode_line, (forged, hostile, LAYER_NORM)))
    ).json()
    assert report["refused"] == 2
    assert "line 1: workload" in report["reasons"][0]
    assert "is not what its line says" in report["reasons"][0]
    found = client.get(f"/v1/workloads/{LAYER_NORM.key}").json()
    assert (found["text"], found["flop"]) == (LAYER_NORM.text, LAYER_NORM.flop)
    assert client.post("/v1/jobs", json=JOB).status_code == 201
    assert client.get(f"/v1/workloads/{MATMUL.key}").json()["text"] == MATMUL.text


# Bodies


def post(path: bytes, coding: bytes, body: bytes) -> bytes:
    return (
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\n%s\r\n\r\n%x\r\n%s\r\n0\r\n\r\n"
        % (path, coding, len(body), body)
    )


@pytest.mark.parametrize(
    "coding",
    [b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: identity, chunked",
     b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
     b"Transfer-Encoding: chunked, chunked"],
)  # fmt: skip
@pytest.mark.parametrize("path", [b"/v1/jobs", b"/v1/records/import", b"/logout"])
def test_transfer_codings_are_not_undone(client: httpx.Client, path: bytes, coding: bytes) -> None:
    problem = problem_in(send(client, post(path, coding, BODY)))
    assert problem["status"] in (400, 501)


def test_parts_are_put_together(client: httpx.Client) -> None:
    told = send(client, post(b"/v1/jobs", b"Transfer-Encoding: CHUNKED", BODY))
    assert told.startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize(
    "headers",
    [[("Content-Encoding", "gzip")], [("Content-Encoding", "identity, gzip")],
     [("Content-Encoding", "identity"), ("Content-Encoding", "gzip")],
     [("Content-Type", "application/gzip")], [("Content-Type", "application/x-ndjson")], []],
    ids=str,
)  # fmt: skip
def test_compressed_imports_are_refused(
    client: httpx.Client, headers: list[tuple[str, str]]
) -> None:
    """Whether they are said to be compressed or not: 200 with all lines refused is no answer."""
    body = gzip.compress(b"{}\n" * 1000)
    answer = client.post("/v1/records/import", content=body, headers=headers)
    check_problem(answer, 415)


@pytest.mark.parametrize(
    "start", [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh9", b"\xfd7zXZ\0", b"PK\x03\x04"]
)
def test_archives_are_known_by_how_they_begin(client: httpx.Client, start: bytes) -> None:
    check_problem(client.post("/v1/records/import", content=start + b"x" * 100), 415)


@pytest.mark.parametrize("kind", ["application/x-ndjson", "application/json", "text/plain", ""])
def test_lines_may_be_called_so(client: httpx.Client, kind: str) -> None:
    headers = {"Content-Type": kind} if kind else {}
    answer = client.post("/v1/records/import", content=b"BZ\n", headers=headers)
    assert answer.json()["refused"] == 1


def test_a_body_that_no_route_takes_does_not_matter(client: httpx.Client) -> None:
    answer = client.request("GET", "/v1/jobs", content=b"{", headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 200
    assert client.get("/healthz").status_code == 200
