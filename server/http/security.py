"""What browsers are told and what is taken from them: hosts, origins, headers.

A server on loopback needs no token, so a web page that a user of the machine visits must not be
able to use it: neither by naming a host of its own that resolves to 127.0.0.1 (the Host header is
checked), nor by sending a form or a request across sites (Sec-Fetch-Site and Origin are).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import Scope

from server.http.problems import refused

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
"""On every response; a route may set one of them itself."""


def is_loopback(host: str) -> bool:
    """Whether `host`, an address or a name to listen on, is reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class BrowserRules:
    """Which hosts may be named (None: any), lower case and without a port."""

    hosts: frozenset[str] | None

    def check(self, method: str, headers: Headers) -> None:
        """Raises ProblemError for a request that names another host or comes from another site."""
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise refused("bad-host", f"expected one Host header, found {len(hosts)}")
        host = host_of(hosts[0])
        if not host:
            raise refused("bad-host", "the Host header is no host, or a host and a port")
        if self.hosts is not None and host not in self.hosts:
            raise refused(
                "bad-host",
                f"this server is not {host!r}; it answers to {', '.join(sorted(self.hosts))} "
                "(setting allowed_hosts)",
            )
        if method in SAFE_METHODS:
            return
        site = headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            raise refused("cross-site", f"the request comes from another site ({site})")
        origin = headers.get("origin")
        # The scheme is left out: a proxy in front may speak TLS.
        if origin is not None and origin.lower().partition("://")[2] != hosts[0].lower():
            raise refused("cross-site", f"the request comes from {origin}, not from this server")


_HOST = re.compile(r"(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{0,5})?")


def host_of(header: str) -> str:
    """The host that a Host header names, lower case, without the port; empty for what is none.

    The whole of it is read: `127.0.0.1:80@evil.com` names another host to who reads it as a URL.
    """
    found = _HOST.fullmatch(header.strip().lower())
    return "" if found is None else found["host"].rstrip(".")


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True)
class Proxies:
    """Those whose word is taken for where a request comes from, and whether by TLS."""

    networks: tuple[Network, ...] = ()

    def seen(self, scope: Scope) -> Scope:
        """The request as it came to the first of them: `X-Forwarded-For`, read from its end up to
        an address that is no proxy's, and `X-Forwarded-Proto`. From elsewhere they say nothing."""
        client = scope.get("client")
        if not self.networks or client is None or not self.has(client[0]):
            return scope
        headers = Headers(scope=scope)
        given = ",".join(headers.getlist("x-forwarded-for")).split(",")
        address = client[0]
        for text in reversed([part.strip() for part in given]):
            if _address(text) is None:
                break
            address = text
            if not self.has(text):
                break
        scheme = headers.get("x-forwarded-proto", "").strip().lower()
        told = {"scheme": scheme} if scheme in ("http", "https") else {}
        return {**scope, "client": (address, client[1]), **told}

    def has(self, text: str) -> bool:
        """Whether an address is one of them."""
        address = _address(text)
        return address is not None and any(address in network for network in self.networks)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
