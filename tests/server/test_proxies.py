"""Who a request comes from, and for whom it is: Host headers, proxies in front, TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from serving import serving
from starlette.datastructures import Headers

from records import Store
from records.operations.tokens import Tokens
from server.http.problems import ProblemError
from server.http.security import BrowserRules, host_of
from server.settings import Settings, load

ATTACKS = [
    "127.0.0.1:80@evil.com", "127.0.0.1:@evil.com", "localhost:80/evil.com", "127.0.0.1:80#",
    "localhost:80?x", "localhost:80:80", "localhost:http", "[::1]evil.com", "[::1]@evil.com",
    "[::1", "[]", "localhost\\evil.com", "localhost%00.evil.com", "local host", "localhost:800000",
    "user@localhost", "localhost:80@", "[::1]:80@evil.com", "[::1]:80.evil.com",
]  # fmt: skip


@pytest.mark.parametrize("host", ATTACKS)
@pytest.mark.parametrize("known", [Settings().hosts, None], ids=["loopback", "any"])
def test_a_host_is_read_to_its_end(host: str, known: frozenset[str] | None) -> None:
    assert host_of(host) == ""
    with pytest.raises(ProblemError, match="Host header is no host"):
        BrowserRules(known).check("GET", Headers({"host": host}))


@pytest.mark.parametrize(
    "host", ["a.b_c-d.example:8000", "[2001:db8::1]:1", "LOCALHOST", "1.2.3.4:"]
)
def test_hosts(host: str) -> None:
    BrowserRules(None).check("GET", Headers({"host": host}))


SCOPE = {"type": "http", "scheme": "http", "headers": []}


def seen(peer: str, trusted: str, **headers: str) -> tuple[str, str]:
    """The address and the scheme that a request is taken to have."""
    raw = [(name.replace("_", "-").encode(), text.encode()) for name, text in headers.items()]
    settings = Settings(trusted_proxies=tuple(trusted.split()))
    found = settings.proxies.seen({**SCOPE, "headers": raw, "client": (peer, 1)})
    return found["client"][0], found["scheme"]


@pytest.mark.parametrize(
    ("peer", "trusted", "forwarded", "address"),
    [
        ("10.0.0.9", "", "1.1.1.1", "10.0.0.9"),
        ("10.0.0.9", "10.0.0.1", "1.1.1.1", "10.0.0.9"),
        ("10.0.0.1", "10.0.0.1", "1.1.1.1", "1.1.1.1"),
        ("10.0.0.1", "10.0.0.0/8", "6.6.6.6, 1.1.1.1, 10.2.2.2", "1.1.1.1"),
        ("10.0.0.1", "10.0.0.1", "6.6.6.6, evil, 1.1.1.1", "1.1.1.1"),
        ("10.0.0.1", "10.0.0.0/8", "evil", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.0/8", "", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.0/8", "10.3.3.3", "10.3.3.3"),
        ("::1", "::1", "2001:db8::1", "2001:db8::1"),
    ],
)
def test_whose_word_is_taken(peer: str, trusted: str, forwarded: str, address: str) -> None:
    told = seen(peer, trusted, x_forwarded_for=forwarded, x_forwarded_proto="https")
    believed = address != peer or peer in trusted or trusted.endswith("/8")
    assert told == (address, "https" if believed else "http")


def test_another_scheme_is_none() -> None:
    assert seen("::1", "::1", x_forwarded_proto="javascript") == ("::1", "http")


def test_proxies_that_are_none_are_refused() -> None:
    with pytest.raises(ValidationError, match="does not appear to be an IPv4 or IPv6 network"):
        Settings(trusted_proxies=("proxy.example",))
    given = load({}, {"AUTOSCHED_TRUSTED_PROXIES": "10.0.0.1, ::1"})
    assert given.trusted_proxies == ("10.0.0.1", "::1")


def login(settings: Settings, **headers: str) -> tuple[str, str | None]:
    """The cookie that a login sets, and what is told of TLS."""
    with Store(settings.db) as store:
        text, _ = Tokens(store).create("ann", "admin", 60)
    with serving(settings) as client:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = client.post("/login", data={"token": text}, headers=given)
        assert answer.status_code == 303
        return answer.headers["set-cookie"], answer.headers.get("strict-transport-security")


def test_a_cookie_behind_a_proxy_that_speaks_tls(tmp_path: Path) -> None:
    db = str(tmp_path / "x.db")
    usual = Settings(db=db, jobs_at_once=0, hsts_seconds=600)
    cookie, told = login(usual, X_Forwarded_Proto="https")
    assert ("Secure" not in cookie, told) == (True, None)
    trusting = usual.model_copy(update={"trusted_proxies": ("127.0.0.1",)})
    cookie, told = login(trusting, X_Forwarded_Proto="https", X_Forwarded_For="1.2.3.4")
    assert ("; Secure" in cookie, told) == (True, "max-age=600")
    forced = Settings(db=db, jobs_at_once=0, secure_cookies=True)
    cookie, told = login(forced)
    assert ("; Secure" in cookie, told) == (True, None)
