"""Attacks on connections: what is no HTTP, slow and many clients, queues and rates."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from problem_shape import check_problem
from raw_http import JOB, all_of, connect, problem_in, send, unbounded
from serving import serving

from server.http import gate
from server.settings import Settings
from server.storage import writing


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with unbounded(tmp_path_factory.mktemp("connections")) as client:
        yield client


def drip(stream: socket.socket) -> None:
    """Send a head that has no end, a letter at a time."""
    for _ in range(400):
        stream.sendall(b"G")
        time.sleep(0.02)


def flood(stream: socket.socket, begun: bytes) -> None:
    """Send what has no end after `begun`: two megabytes of it."""
    stream.sendall(begun)
    for _ in range(2000):
        stream.sendall(b"a" * 1000)
        time.sleep(0.0005)


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\nHost: localhost\n\n",
        b"GET / HTTP/9.9\r\nConnection: close\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA B: c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: \x00\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n folded: x\r\nConnection: close\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: "
        + b"x" * 100_000
        + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=range(15),
)
def test_what_is_no_http_is_told_so(client: httpx.Client, data: bytes) -> None:
    problem = problem_in(send(client, data))
    assert problem["status"] in (400, 431), problem


def test_lengths_that_contradict_smuggle_nothing(client: httpx.Client) -> None:
    told = send(
        client,
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/workers HTTP/1.1\r\n"
        b"Host: localhost\r\n\r\n",
    )
    assert b'"slots"' not in told


def test_heads_without_an_end_are_bounded(client: httpx.Client) -> None:
    for begun in (b"GET /", b"GET / HTTP/1.1\r\nX: ", b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 9000):
        with connect(client) as stream, pytest.raises((BrokenPipeError, ConnectionResetError)):
            flood(stream, begun)


def test_what_stands_around_the_parts_of_a_body_is_bounded(client: httpx.Client) -> None:
    head = (
        b"POST /v1/records/import HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: application/x-ndjson\r\n\r\n1\r\n\n\r\n"
    )
    for begun in (b"1;x=", b"0\r\nTrailer: "):
        with connect(client) as stream, pytest.raises((BrokenPipeError, ConnectionResetError)):
            flood(stream, head + begun)


def test_trailers_are_no_headers(client: httpx.Client) -> None:
    told = send(
        client,
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
        b"Content-Type: application/json\r\nHost: elsewhere\r\n\r\n",
    )
    problem = problem_in(told)
    assert problem["status"] == 415, problem  # by the headers it is no JSON, and not for elsewhere


def test_an_upgrade_that_is_not_known_is_an_ordinary_request(client: httpx.Client) -> None:
    told = send(
        client,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\n"
        b"Upgrade: websocket\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n"
        b"Connection: close\r\n\r\n",
    )
    assert told.count(b"HTTP/1.1 200") == 2, told


@pytest.mark.parametrize("cut", [0, 60, 170, 230])
def test_a_body_behind_an_offer_of_http_2_is_read(client: httpx.Client, cut: int) -> None:
    """Java's clients and `curl --http2` make it with each request."""
    body = b'{"workload": {"name": "no_such"}}'
    post = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nContent-Length: %d\r\n\r\n%s"
    ) % (len(body), body)
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with connect(client) as stream:
        stream.sendall(post[:cut])
        time.sleep(0.05)
        stream.sendall(post[cut:] * 3 if not cut else post[cut:])
        stream.sendall(last)
        told = all_of(stream)
    assert told.count(b"HTTP/1.1 422") == (1 if cut else 3), told
    assert b"no_such" in told
    assert told.count(b"HTTP/1.1 200") == 1, told


def test_slow_heads_are_given_up(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, head_seconds=1.5)
    with serving(settings) as client:
        for begun in (b"", b"GET /healthz HTTP/1.1\r\nX: "):
            with connect(client) as stream:
                stream.sendall(begun)
                assert problem_in(all_of(stream))["status"] == 408
        with connect(client) as stream, pytest.raises((BrokenPipeError, ConnectionResetError)):
            drip(stream)
        with connect(client) as stream:  # and a second head on a connection that is kept
            stream.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert stream.recv(65536).startswith(b"HTTP/1.1 200")
            stream.sendall(b"GET /healthz HTTP/1.1\r\n")
            assert b" 408 " in all_of(stream)
        assert client.get("/healthz").status_code == 200


def test_slow_bodies_are_given_up(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, body_seconds=0.3)
    head = (
        b"POST /v1/%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{"
    )
    with serving(settings) as client:
        for path in (b"jobs", b"records/import"):
            with connect(client) as stream:
                stream.sendall(head % path)
                told = all_of(stream)
                assert problem_in(told)["status"] == 408, told


def test_bodies_that_wait_for_their_end_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of connections may each bring megabytes and keep back the last of them."""
    monkeypatch.setattr(gate, "BODIES_BYTES", 0)  # four of the largest, of one client one
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, body_bytes=2000)
    body = b'{"workload": "%s"}' % (b"x" * 1500)
    head = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Connection: close\r\nContent-Length: %d\r\n\r\n"
    ) % len(body)
    with serving(settings) as client, connect(client) as slow:
        slow.sendall(head + body[:-1])
        deadline = time.monotonic() + 60
        while (status := problem_in(told := send(client, head + body))["status"]) == 422:
            assert time.monotonic() < deadline
        assert (status, b"retry-after: 2" in told.lower()) == (503, True)
        slow.sendall(body[-1:])
        assert problem_in(all_of(slow))["status"] == 422
        assert problem_in(send(client, head + body))["status"] == 422, "its place is free again"


def test_imports_at_a_time_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may fill a file."""
    monkeypatch.setattr(writing, "IMPORTS", 1)
    head = (
        b"POST /v1/records/import HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Length: 3\r\n\r\n{"
    )
    with serving(Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)) as client:
        with connect(client) as slow:
            slow.sendall(head)
            deadline = time.monotonic() + 60
            while b" 200 OK" in (told := send(client, head + b"}\n")):
                assert time.monotonic() < deadline
            assert "imports are being taken in" in problem_in(told)["detail"]
            assert b"retry-after: 10" in told.lower()
        while b" 200 OK" not in send(client, head + b"}\n"):  # when it is seen to have left
            assert time.monotonic() < deadline


def answers(client: httpx.Client) -> bool:
    """Whether a new connection is taken; one that is refused may break while it is written to."""
    try:
        return httpx.get(f"{client.base_url}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def test_connections_are_bounded(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, connections=5, head_seconds=60)
    with serving(settings) as client:
        held = [connect(client) for _ in range(6)]  # the client may keep one besides
        with connect(client) as stream:
            told = all_of(stream)
            assert problem_in(told)["status"] == 503
            assert b"Retry-After: 2" in told
        for stream in held:
            stream.close()
        deadline = time.monotonic() + 60
        while not answers(client):
            assert time.monotonic() < deadline


def test_streams_are_bounded(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, streams_per_client=2)
    with serving(settings) as client:
        job = client.post("/v1/jobs", json=JOB).raise_for_status().json()["id"]
        path = f"/v1/jobs/{job}/events"
        with client.stream("GET", path) as one, client.stream("GET", path) as two:
            assert one.status_code == two.status_code == 200
            check_problem(client.get(path), 429)
            assert client.get(path, headers={"Accept": "application/json"}).status_code == 200
            assert "autosched_streams_open 2.0" in client.get("/metrics").text
        deadline = time.monotonic() + 60
        while "autosched_streams_open 0.0" not in client.get("/metrics").text:
            assert time.monotonic() < deadline


def test_rates_are_bounded(tmp_path: Path) -> None:
    settings = Settings(
        db=str(tmp_path / "x.db"), jobs_at_once=0, requests_per_second=0.1, request_burst=5
    )
    with serving(settings) as client:
        found = [client.get("/v1/jobs").status_code for _ in range(6)]
        assert found[0] == 200
        problem = check_problem(client.get("/v1/jobs"), 429)
        assert problem["type"].endswith(":rate-limited")
        check_problem(client.get("/v1/jobs", headers={"X-Forwarded-For": "1.2.3.4"}), 429)


def test_queues_are_bounded(tmp_path: Path) -> None:
    """However many submissions come at once, exactly as many are taken as may wait."""
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, jobs_queued_per_client=7)
    with serving(settings) as client:

        def submit(seed: int) -> httpx.Response:
            return client.post("/v1/jobs", json=JOB | {"options": {"seed": seed}})

        with ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(submit, range(24)))
        assert sorted(a.status_code for a in answers) == [201] * 7 + [429] * 17
        problem = check_problem(submit(99), 429)
        assert problem["type"].endswith(":queue-full")
        assert len(client.get("/v1/jobs").json()["items"]) == 7
        job_id = next(a.json()["id"] for a in answers if a.status_code == 201)
        client.post(f"/v1/jobs/{job_id}/cancel").raise_for_status()
        assert submit(100).status_code == 201
        again = client.post(f"/v1/jobs/{job_id}/resume", json={})
        assert check_problem(again, 429)["type"].endswith(":queue-full")


def test_one_submission_repeated_at_once_is_one_job(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)
    with serving(settings) as client:

        def submit(n: int) -> httpx.Response:
            body = JOB if n % 3 else JOB | {"priority": 1}
            return client.post("/v1/jobs", json=body, headers={"Idempotency-Key": "the same"})

        with ThreadPoolExecutor(24) as pool:
            answers = list(pool.map(submit, range(24)))
        assert len({a.json()["id"] for a in answers if a.status_code == 201}) == 1
        taken = {n % 3 == 0 for n, a in enumerate(answers) if a.status_code == 201}
        assert len(taken) == 1, "of two requests under one key, one was taken"
        assert {a.status_code for a in answers} == {201, 409}
        assert len(client.get("/v1/jobs").json()["items"]) == 1


def test_who_leaves_before_the_answers_is_no_mistake_of_ours(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Several requests at once, the last of them broken, by clients that do not wait."""
    get = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n"
    cut = (
        b"POST /v1/records/import HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
        b"BREW / HTTP/1.1\r\n\r\n",
        b"",
    )
    with caplog.at_level(logging.ERROR):
        for end in cut:
            for count in range(1, 6):
                with connect(client) as stream:
                    stream.sendall(get * count + end)
        assert client.get("/v1/jobs").status_code == 200
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


def test_requests_sent_ahead_are_bounded(client: httpx.Client) -> None:
    get = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(client) as stream:
        stream.sendall(get * 50 + get.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert all_of(stream).count(b"HTTP/1.1 200") == 51
    assert "ahead of their answers" in problem_in(send(client, get * 1000))["detail"]


def test_a_server_that_stops_answers_what_it_gives_up(tmp_path: Path) -> None:
    """A request that outlasts the grace of a server that stops: here its body does not arrive."""
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, grace_seconds=1)
    with serving(settings) as client:
        stream = connect(client)
        stream.sendall(
            b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        client.get("/healthz").raise_for_status()  # the other request has arrived, too
    with stream:
        found = problem_in(all_of(stream))
    assert found["status"] == 503
    assert "is stopping" in found["detail"]
