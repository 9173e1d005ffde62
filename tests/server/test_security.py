"""Attacks, as far as they can be tried: hosts and origins, slow and many connections, hostile
bodies and headers, secrets in logs."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import logging
import random
import re
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from every_route import ROUTES
from problem_shape import check_problem
from script_fuzz import corpus, damaged
from serving import serving

from server.security import HEADERS, host_of, is_loopback
from server.settings import Settings

JSON = {"Content-Type": "application/json"}
JOB = {"workload": {"name": "matmul", "args": [8, 8, 8]}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = Settings(
        db=str(tmp_path_factory.mktemp("security") / "x.db"),
        jobs_at_once=0,
        requests_per_second=0,
        jobs_queued_per_client=10**6,
        jobs_queued=10**6,
    )
    with serving(settings) as client:
        yield client


# Browsers


def test_every_answer_has_the_security_headers(client: httpx.Client) -> None:
    paths = {r.path for r in ROUTES if r.method == "GET" and "export" not in r.path}
    kinds = ["application/json", "text/html"]
    for path, accept in product([*sorted(paths), "/none", "/jobs/%00"], kinds):
        answer = client.get(path, headers={"Accept": accept})
        for name in HEADERS:
            assert name in answer.headers, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "http" not in policy
        assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["x-request-id"])
        assert "server" not in answer.headers
        assert not {h for h in answer.headers if h.startswith("access-control")}


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "127.0.0.1@evil", "::",
     "[::2]", "0.0.0.0", "127.1", "2130706433", "evil.example:80", "localhost, evil.example"],
)  # fmt: skip
def test_a_name_that_resolves_to_here_is_not_enough(client: httpx.Client, host: str) -> None:
    check_problem(client.get("/v1/jobs", headers={"Host": host}), 400)


@pytest.mark.parametrize("host", ["127.0.0.1", "LOCALHOST:1", "localhost.", "[::1]:8000"])
def test_names_of_loopback(client: httpx.Client, host: str) -> None:
    assert client.get("/v1/jobs", headers={"Host": host}).status_code == 200


def test_two_hosts_are_none(client: httpx.Client) -> None:
    told = send(
        client,
        b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )
    assert told.startswith(b"HTTP/1.1 400 ")


CROSS = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://localhost"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", CROSS, ids=str)
def test_what_other_sites_send_is_refused(client: httpx.Client, headers: dict[str, str]) -> None:
    """A form can be sent across sites, and needs no answer to do harm."""
    for route in [r for r in ROUTES if r.method == "POST"]:
        answer = client.post(route.path, content="a=b", headers=headers)
        assert check_problem(answer, 403)["type"].endswith(":cross-site")
    # To look is harmless: the answer cannot be read there.
    assert client.get("/v1/jobs", headers=headers).status_code == 200


def test_what_pages_of_this_server_send_is_taken(client: httpx.Client) -> None:
    own = str(client.base_url).rstrip("/")
    headers = {"Origin": own, "Sec-Fetch-Site": "same-origin"}
    assert client.post("/v1/jobs", json=JOB, headers=headers).status_code == 201


def test_a_host_is_a_host() -> None:
    assert [host_of(h) for h in ("A.b:80", "[::1]:80", "[::1]", "x.", "")] == [
        *("a.b", "[::1]", "[::1]", "x", ""),
    ]
    assert is_loopback("[::1]")
    assert not is_loopback("localhost.example")


# Connections


def connect(client: httpx.Client) -> socket.socket:
    found = socket.create_connection((client.base_url.host, client.base_url.port or 80), 20)
    found.settimeout(20)
    return found


def all_of(stream: socket.socket) -> bytes:
    """What arrives until the server closes."""
    parts = []
    while part := stream.recv(65536):
        parts.append(part)
    return b"".join(parts)


def send(client: httpx.Client, data: bytes) -> bytes:
    """The answer to raw bytes, after which the server closes."""
    with connect(client) as stream:
        stream.sendall(data)
        return all_of(stream)


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


def problem_in(told: bytes) -> dict[str, Any]:
    """The problem in an answer of raw bytes."""
    head, _, body = told.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, told
    found: dict[str, Any] = json.loads(body)
    return found


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
    assert problem["status"] == 422, problem  # by the headers it is no JSON, and not for elsewhere


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


# Bodies and parameters


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"workload":' * 5000 + b"1" + b"}" * 5000,
        b'{"workload": {"name": "matmul", "args": [NaN, 1, 1]}}',
        b'{"workload": {"name": "matmul", "args": [1e999, 1, 1]}}',
        b'{"workload": {"name": "matmul", "args": [' + b"9" * 10_000 + b", 1, 1]}}",
        b'{"workload": {"name": "matmul", "name": "softmax", "args": [8, 8, 8]}}',
        b'{"workload": {"name": "\\ud800", "args": []}}',
        b'{"workload": {"name": "a\\u0000", "args": []}}',
        b'{"__proto__": {}, "workload": {"name": "matmul", "args": [8, 8, 8]}}',
        b'{"workload": {"name": "/etc/passwd:x", "args": []}}',
        b'{"workload": {"name": "x.py:f", "args": []}}',
        b'{"workload": {"name": "matmul", "args": [8, 8, 8], "script": "x"}}',
        b'{"workload": {"name": "matmul", "args": [[8], 8, 8]}}',
        b'{"workload": {"name": "matmul", "args": [8, 8, 8]}, "target": "llvm -mcpu=$(id)"}',
        b'{"workload": {"name": "matmul", "args": [8, 8, 8]}, "target": "cuda; rm -rf /"}',
        b'{"workload": {"name": "matmul", "args": [8, 8, 8]}, "options": {"pool": "tls://x:1"}}',
        b'{"workload": {"name": "matmul", "args": [8, 8, 8]}, "options": {"builder": "os:system"}}',
        b'{"workload": {"name": "matmul", "args": [8, 8, 8]}, "options": {"seed": -1}}',
        b'{"workload": {"name": "matmul", "args": [8, 8, 8]}, "priority": 1e300}',
        b'{"workload": {"script": "import os; os.system(\'touch /tmp/x\')"}}',
        b"\x80\x04\x95\x00.",
    ],
    ids=range(21),
)
def test_hostile_bodies(client: httpx.Client, body: bytes) -> None:
    check_problem(client.post("/v1/jobs", content=body, headers=JSON), 400, 422)


def test_a_large_body_of_numbers_is_refused_quickly_enough(client: httpx.Client) -> None:
    body = b'{"workload": {"name": "matmul", "args": [' + b"1," * 1_000_000 + b"1]}}"
    check_problem(client.post("/v1/jobs", content=body, headers=JSON), 422)


def test_other_requests_are_answered_while_a_hostile_script_is_read(client: httpx.Client) -> None:
    """Many blocks: reading and proving them takes seconds of Python."""
    line = "    for i in T.serial(8):\n        with T.block('b%d'):\n            B[i] = A[i]\n"
    text = "@T.prim_func\ndef main(A: T.Buffer((8,), 'int8'), B: T.Buffer((8,), 'int8')):\n"
    script = text + "".join(line % n for n in range(3000))
    answer = client.post("/v1/jobs", json={"workload": {"script": script}})
    check_problem(answer, 422)


def test_damaged_scripts_are_told_what_they_lack(client: httpx.Client) -> None:
    taken = 0
    for seed in range(60):
        script = damaged(random.Random(seed), corpus()) or "x"
        body = json.dumps({"workload": {"script": script}})
        answer = client.post("/v1/jobs", content=body, headers=JSON)
        if answer.status_code != 201:
            check_problem(answer, 400, 422)
        taken += answer.status_code == 201
    assert taken < 40


@pytest.mark.parametrize("key", ["a" * 201, "é", "\x7f", ""])
def test_idempotency_keys_that_are_none(client: httpx.Client, key: str) -> None:
    headers = {"Idempotency-Key": key.encode("utf-8")}
    check_problem(client.post("/v1/jobs", json=JOB, headers=headers), 400, 422)


def test_a_key_of_another_request_is_refused(client: httpx.Client) -> None:
    headers = {"Idempotency-Key": "once"}
    first = client.post("/v1/jobs", json=JOB, headers=headers).raise_for_status().json()
    assert client.post("/v1/jobs", json=JOB, headers=headers).json()["id"] == first["id"]
    other = JOB | {"options": {"seed": 99}}
    check_problem(client.post("/v1/jobs", json=other, headers=headers), 409)


@pytest.mark.parametrize(
    "inside", [b"9" * 20, b"-1", b"' OR 1=1", b"\0", b"\xff", b"\n1", b"\xd9\xa3", b"", b"x" * 100]
)
def test_cursors_that_were_tampered_with(client: httpx.Client, inside: bytes) -> None:
    for of in ("jobs", "records", "workloads"):
        cursor = base64.urlsafe_b64encode(f"2:{of}:".encode() + inside).decode().rstrip("=")
        answer = client.get(f"/v1/{of}", params={"cursor": cursor})
        if of != "records" and re.fullmatch(rb"[ -~]+", inside):  # as good as any position
            assert answer.status_code == 200
        else:
            check_problem(answer, 400)
    for cursor in ("Li4vLi4v", "=" * 200):
        check_problem(client.get("/v1/jobs", params={"cursor": cursor}), 400)


@pytest.mark.parametrize(
    "path",
    ["/../etc/passwd", "/static/../../etc/passwd", "/static/%2e%2e/%2e%2e/app.py", "//etc/passwd",
     "/v1/jobs/%2e%2e%2f", "/v1/../healthz", "/static/..%5c..%5capp.py", "/v1/records/1;x=1",
     "/v1/jobs%00", "/v1/jobs/%ff", "/%", "/static/%00", "/v1/jobs/\u202e"],
)  # fmt: skip
def test_paths_that_lead_elsewhere(client: httpx.Client, path: str) -> None:
    told = send(
        client,
        b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        % path.encode("ascii", "ignore"),
    )
    status = int(told.split(b" ", 2)[1])
    assert status in (400, 404, 405, 422), told
    assert b"root:" not in told
    assert b"def " not in told


def test_headers_are_not_injected(client: httpx.Client) -> None:
    answer = client.get("/v1/jobs/a%0d%0aSet-Cookie:%20x=y")
    assert "set-cookie" not in answer.headers
    assert answer.status_code == 400


# Secrets


def test_tls(tmp_path: Path) -> None:
    """A certificate, and the same connections."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make_certificate(key, cert)
    settings = Settings(
        db=str(tmp_path / "x.db"), jobs_at_once=0, tls_certificate=str(cert), tls_key=str(key)
    )
    context = ssl.create_default_context(cafile=str(cert))
    with serving(settings, tls=context) as client:
        assert client.get("/v1/jobs").status_code == 200


def make_certificate(key: Path, cert: Path) -> None:
    """A certificate of 127.0.0.1, signed by itself."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(private, hashes.SHA256())
    )
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


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
