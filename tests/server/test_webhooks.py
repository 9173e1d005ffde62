"""Webhooks: what arrives and is signed, what is tried again, and where none may lead."""

from __future__ import annotations

import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from problem_shape import check_problem
from server_process import submit, wait_for
from serving import serving

from records import Store
from records.operations.tokens import Tokens
from server.jobs import webhooks
from server.jobs.webhooks import NotAllowed, Targets
from server.settings import Settings

SECRET = "correct-horse-battery"
Seen = list[tuple[str, dict[str, str], bytes]]


@contextmanager
def receiver(status: Callable[[int], int] = lambda n: 204) -> Iterator[tuple[str, Seen]]:
    """An HTTP server that notes what it is sent; `status` of the n-th request."""
    seen: Seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            seen.append((self.path, dict(self.headers), body))
            code = status(len(seen))
            self.send_response(code)
            if code == 302:
                self.send_header("Location", "/inside")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def service(folder: Path, **settings: Any) -> Iterator[httpx.Client]:
    given = {"pool": "replay:model", "poll_seconds": 0.05, "examine_processes": 1} | settings
    with serving(Settings(db=str(folder / "x.db"), **given)) as client:
        yield client


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, "waited a minute"
        time.sleep(0.05)


def hook(client: httpx.Client, url: str) -> dict[str, Any]:
    made = client.post("/v1/webhooks", json={"url": url, "secret": SECRET})
    assert made.status_code == 201, made.text
    assert SECRET not in made.text
    found: dict[str, Any] = made.json()
    return found


def test_the_end_of_a_job_arrives_signed_and_is_tried_again(tmp_path: Path) -> None:
    with (
        receiver(lambda n: 500 if n == 1 else 302 if n == 2 else 204) as (url, seen),
        service(tmp_path, webhook_origins=(url,), webhook_retry_seconds=0.01) as client,
    ):
        made = hook(client, f"{url}/ci?x=1")
        job = submit(client, 4)["id"]
        wait_for(client, job, "succeeded")
        until(lambda: client.get("/v1/webhooks").json()["items"][0]["delivered"])
        assert [path for path, _, _ in seen] == ["/ci?x=1"] * 3, "redirects lead nowhere"
        bodies = [json.loads(body) for _, _, body in seen]
        assert len({body["delivery"] for body in bodies}) == 1
        assert (bodies[2]["job"]["id"], bodies[2]["webhook"]) == (job, made["id"])
        assert bodies[2]["job"]["state"] == "succeeded"
        _, headers, body = seen[2]
        at, _, signed = headers["Autosched-Signature"].partition(",v1=")
        text = at.removeprefix("t=").encode() + b"." + body
        assert hmac.new(SECRET.encode(), text, hashlib.sha256).hexdigest() == signed
        (listed,) = client.get("/v1/webhooks").json()["items"]
        assert (listed["waiting"], listed["failed"]) == (0, 0)
        assert SECRET not in client.get("/v1/webhooks").text
        assert client.delete(f"/v1/webhooks/{made['id']}").status_code == 204
        check_problem(client.delete(f"/v1/webhooks/{made['id']}"), 404)


def test_retries_are_bounded(tmp_path: Path) -> None:
    with (
        receiver(lambda n: 503) as (url, seen),
        service(
            tmp_path, webhook_origins=(url,), webhook_retry_seconds=0.01, webhook_attempts=2
        ) as client,
    ):
        hook(client, url)
        job = submit(client, 4000)["id"]
        client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
        until(lambda: client.get("/v1/webhooks").json()["items"][0]["failed"])
        (listed,) = client.get("/v1/webhooks").json()["items"]
        assert listed["last_error"] == "it answered 503"
        assert len(seen) == 2


def test_an_answer_that_comes_byte_by_byte_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such receiver would keep all others from being told."""
    monkeypatch.setattr(webhooks, "SEND_SECONDS", 0.5)
    over = threading.Event()

    def drip(server: socket.socket) -> None:
        with suppress(OSError):
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 204 No Content\r\nX: ")
                while not over.wait(0.05):
                    connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        thread = threading.Thread(target=drip, args=(server,))
        thread.start()
        try:
            with service(tmp_path, webhook_origins=(url,), webhook_attempts=1) as client:
                hook(client, url)
                job = submit(client, 4000)["id"]
                client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
                until(lambda: client.get("/v1/webhooks").json()["items"][0]["failed"])
                (listed,) = client.get("/v1/webhooks").json()["items"]
                assert listed["last_error"] == "it did not answer within 0.5 s"
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_of_others_and_without_origins(tmp_path: Path) -> None:
    with Store(tmp_path / "x.db") as store:
        ann, bob, root = (
            Tokens(store).create(name, scope, 600)[0]
            for name, scope in (("ann", "submit"), ("bob", "submit"), ("root", "admin"))
        )
    origin = "https://ci.example"
    with service(
        tmp_path, require_tokens=True, jobs_at_once=0, webhook_origins=(origin,)
    ) as client:

        def as_(token: str) -> httpx.Client:
            client.headers["Authorization"] = f"Bearer {token}"
            return client

        made = hook(as_(ann), f"{origin}/a")
        assert as_(bob).get("/v1/webhooks").json()["items"] == []
        check_problem(as_(bob).delete(f"/v1/webhooks/{made['id']}"), 403, "forbidden")
        assert len(as_(root).get("/v1/webhooks").json()["items"]) == 1
        assert as_(root).delete(f"/v1/webhooks/{made['id']}").status_code == 204
    with service(tmp_path, jobs_at_once=0) as client:
        answer = client.post("/v1/webhooks", json={"url": f"{origin}/a", "secret": SECRET})
        problem = check_problem(answer, 422)
        assert problem["type"].endswith(":address-not-allowed")
        assert "webhook_origins" in problem["detail"]


ELSEWHERE = [
    "https://evil.example/", "http://ci.example/", "https://ci.example:444/",
    "https://ci.example@evil.example/", "https://ci.example.evil.example/",
    "https://evil.example#@ci.example/", "https://evil.example\\@ci.example/",
    "https://ci.example:443@169.254.169.254/", "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1/", "http://[::1]/", "http://0x7f000001/", "http://2130706433/",
    "https://user:pw@ci.example/", "https://ci.example/#x", "https:///x", "https://",
]  # fmt: skip


@pytest.mark.parametrize("url", ELSEWHERE)
def test_other_origins_are_refused(url: str) -> None:
    targets = Targets(Settings(webhook_origins=("https://ci.example",)))
    with pytest.raises(NotAllowed):
        targets.check(url)


def test_origins_are_compared_as_they_are_meant() -> None:
    targets = Targets(Settings(webhook_origins=("https://CI.example:443/", "http://[::1]:80")))
    for url in ("https://ci.example/x?y", "https://ci.EXAMPLE:443", "http://[::1]/x"):
        targets.check(url)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "::1", "fe80::1", "fc00::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
    ],
)  # fmt: skip
def test_an_allowed_name_must_not_lead_inside(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever rules the name's zone may have it resolve to anything, now or later."""
    answers = [(0, 0, 0, "", ("93.184.215.14", 443)), (0, 0, 0, "", (address, 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)
    targets = Targets(Settings(webhook_origins=("https://ci.example",)))
    with pytest.raises(NotAllowed, match="webhook_networks"):
        targets.address(targets.check("https://ci.example/"))
    network = f"{address}/128" if ":" in address else f"{address}/32"
    lenient = Targets(
        Settings(webhook_origins=("https://ci.example",), webhook_networks=(network,))
    )
    assert lenient.address(lenient.check("https://ci.example/")) == "93.184.215.14"


def test_the_address_that_was_checked_is_the_one_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is resolved once: it cannot be another one's by the time of the connection."""
    real = socket.getaddrinfo
    asked: list[str] = []

    def resolve(host: Any, *more: Any, **named: Any) -> Any:
        asked.append(str(host))
        return real("127.0.0.1" if host == "ci.example" else host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with receiver() as (url, seen):
        named = url.replace("127.0.0.1", "ci.example")
        with service(
            tmp_path, webhook_origins=(named,), webhook_networks=("127.0.0.0/8",)
        ) as client:
            hook(client, f"{named}/a")
            job = submit(client, 4000)["id"]
            client.post(f"/v1/jobs/{job}/cancel").raise_for_status()
            until(lambda: seen)
    assert asked.count("ci.example") == 1
    assert seen[0][1]["Host"] == named.removeprefix("http://")


@pytest.mark.parametrize("origin", ["ci.example", "ftp://ci.example", "https://ci.example/x", "x"])
def test_what_is_no_origin_is_no_setting(origin: str) -> None:
    with pytest.raises(ValueError, match="is no origin"):
        Settings(webhook_origins=(origin,))
