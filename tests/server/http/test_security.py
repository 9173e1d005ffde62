"""Attacks, as far as they can be tried: hosts and origins, hostile bodies and headers."""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import random
import re
import ssl
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from every_route import ROUTES
from problem_shape import check_problem
from raw_http import JOB, send, unbounded
from script_fuzz import corpus, damaged
from serving import serving

from server.http.security import HEADERS, host_of, is_loopback
from server.settings import Settings

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with unbounded(tmp_path_factory.mktemp("security")) as client:
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


# Bodies and parameters


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 10_000,
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
    check_problem(client.post("/v1/jobs", content=body, headers=JSON), 413)


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


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [("POST", "/v1/jobs", "idempotency-key"), ("GET", "/v1/jobs/abcd/events", "last-event-id")],
)
def test_a_header_that_stands_twice_is_refused(
    client: httpx.Client, method: str, path: str, name: str
) -> None:
    """As a parameter of the query is: one of them would be taken unseen."""
    before = client.get("/v1/jobs").json()
    answer = client.request(method, path, headers=[(name, "1"), (name.title(), "2")], json=JOB)
    check_problem(answer, 422)
    (found,) = answer.json()["errors"]
    assert (found["at"], "stands twice" in found["message"]) == (f"header/{name}", True)
    assert client.get("/v1/jobs").json() == before


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


# TLS


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
