"""Origins of URLs: scheme, host and port."""

from __future__ import annotations

import httpx

PORTS = {"http": 80, "https": 443}
Origin = tuple[str, str, int]


def origin_of(text: str) -> Origin:
    """The origin that a text such as https://ci.example names. Raises ValueError."""
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as e:
        raise ValueError(f"{text!r}: {e}") from e
    if url.scheme not in PORTS or not url.host or url.userinfo or url.raw_path not in (b"", b"/"):
        raise ValueError(f"{text!r} is no origin; expected such as https://ci.example:8443")
    return of_url(url)


def of_url(url: httpx.URL) -> Origin:
    """The origin of a URL."""
    return url.scheme, url.host.lower(), url.port or PORTS.get(url.scheme, 0)
