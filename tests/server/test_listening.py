"""Attacks on the number of connections: by one address, by handshakes that never end."""

from __future__ import annotations

import resource
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from raw_http import all_of, problem_in
from serving import serving
from test_security import make_certificate

from server.http import listening
from server.http.listening import Door, Place, most_connections, network_of
from server.http.security import Proxies
from server.settings import Settings


def settings(folder: Path, **more: object) -> Settings:
    return Settings(db=str(folder / "x.db"), jobs_at_once=0, **more)  # type: ignore[arg-type]


def connect(client: httpx.Client, source: str = "127.0.0.1") -> socket.socket:
    """A connection from an address of this machine."""
    address = client.base_url.host, client.base_url.port or 80
    found = socket.create_connection(address, 20, source_address=(source, 0))
    found.settimeout(20)
    return found


def ask(client: httpx.Client, path: str, source: str = "127.0.0.1") -> bytes:
    with connect(client, source) as stream:
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        stream.settimeout(5)
        return stream.recv(65536)


@contextmanager
def held(client: httpx.Client, count: int, source: str = "127.0.0.1") -> Iterator[None]:
    """Connections that say nothing."""
    streams = [connect(client, source) for _ in range(count)]
    try:
        yield
    finally:
        for stream in streams:
            stream.close()


def test_one_address_cannot_take_all_connections(tmp_path: Path) -> None:
    """While it holds all it may, others are answered; and who asks for health, from anywhere."""
    bounds = {"connections": 40, "connections_per_address": 8, "head_seconds": 60}
    with serving(settings(tmp_path, **bounds)) as client, held(client, 10, "127.0.0.2"):
        problem = problem_in(ask(client, "/v1/jobs", "127.0.0.2"))
        assert problem["status"] == 503
        assert "8 connections of your address are open" in problem["detail"]
        assert b" 200 OK" in ask(client, "/healthz", "127.0.0.2")
        assert b" 200 OK" in ask(client, "/v1/jobs", "127.0.0.3")


def test_health_is_told_where_all_places_are_taken(tmp_path: Path) -> None:
    bounds = {"connections": 5, "head_seconds": 60}
    with serving(settings(tmp_path, **bounds)) as client, held(client, 5, "127.0.0.2"):
        told = ask(client, "/healthz")
        assert b" 200 OK" in told
        assert b"connection: close" in told.lower()
        assert b" 200 OK" in ask(client, "/readyz?")
        assert problem_in(ask(client, "/v1/jobs"))["status"] == 503
        assert problem_in(ask(client, "/healthz/"))["status"] == 503


def test_a_reserved_place_is_for_one_request(tmp_path: Path) -> None:
    bounds = {"connections": 5, "head_seconds": 60}
    get = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        serving(settings(tmp_path, **bounds)) as client,
        held(client, 5, "127.0.0.2"),
        connect(client) as stream,
    ):
        stream.sendall(get % b"healthz" + get % b"v1/jobs")
        assert b'"items"' not in all_of(stream)


def test_a_handshake_that_does_not_come_is_given_up(tmp_path: Path) -> None:
    """TLS has the same deadline as a head, and counts among the connections from the start."""
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    make_certificate(key, cert)
    tls = {"tls_certificate": str(cert), "tls_key": str(key)}
    context = ssl.create_default_context(cafile=str(cert))
    bounds = {"connections": 3, "head_seconds": 1.0}
    with serving(settings(tmp_path, **tls, **bounds), tls=context) as client:
        for begun in (b"", b"\x16\x03\x01\x02\x00\x01\x00"):
            with connect(client) as stream:
                stream.sendall(begun)
                with connect(client) as second, connect(client) as third:
                    assert [all_of(s) for s in (stream, second, third)] == [b"", b"", b""]
        deadline = time.monotonic() + 60
        while client.get("/v1/jobs").status_code != 200:
            assert time.monotonic() < deadline


# Places


def test_places_are_given_back() -> None:
    door = Door(3, 2)
    mine = [door.enter("10.0.0.1") for _ in range(3)]
    assert [v.place for v in mine if v] == [Place.OPEN, Place.OPEN, Place.HEALTH]
    other = [door.enter("10.0.0.2") for _ in range(2)]
    assert [v.place for v in other if v] == [Place.OPEN, Place.HEALTH]
    for visit in (*mine, *other, *mine):
        assert visit is not None
        visit.leave()
    assert all(not counter for counter in door._open.values())


def test_refusals_are_bounded() -> None:
    door = Door(1, 1)
    for n in range(1 + listening.RESERVE + listening.REFUSALS):
        assert door.enter(f"10.0.{n // 2}.1") is not None
    assert door.enter("10.1.0.1") is None


def test_connections_of_a_trusted_proxy_are_many_clients() -> None:
    door = Door(10, 2, Settings(trusted_proxies=("10.0.0.1",)).proxies)
    assert [door.enter("10.0.0.1").place for _ in range(5)] == [Place.OPEN] * 5  # type: ignore[union-attr]
    assert Proxies().has("10.0.0.1") is False


@pytest.mark.parametrize(
    ("address", "network"),
    [("10.0.0.1", "10.0.0.1"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
     ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::/64"), ("unknown", "unknown")],
)  # fmt: skip
def test_what_one_client_has(address: str, network: str) -> None:
    assert network_of(address) == network


def test_connections_stay_below_the_limit_on_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    limits = [(256, 256)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: limits.__setitem__(0, new))
    assert most_connections(settings(tmp_path)) == 256 - 128 - 16 - 64
    assert "48 connections at most, not 1024" in caplog.text
    caplog.clear()
    limits[0] = (256, 4096)
    assert most_connections(settings(tmp_path)) == 1024
    assert limits[0] == (1024 + 128 + 16 + 64, 4096)
    assert caplog.text == ""
