"""What browsers are told and what is taken from them: hosts, origins, headers.

A server on loopback needs no token, so a web page that a user of the machine visits must not be
able to use it: neither by naming a host of its own that resolves to 127.0.0.1 (the Host header is
checked), nor by sending a form or a request across sites (Sec-Fetch-Site and Origin are).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.datastructures import Headers

from server.problems import refused

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


def host_of(header: str) -> str:
    """The host that a Host header names, lower case, without the port."""
    host = header.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].rstrip(".")
