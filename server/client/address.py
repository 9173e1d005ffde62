"""Where a service is: its address as people write it."""

from __future__ import annotations

from urllib.parse import quote

import httpx

from server.client.answers import ServiceError

API = "/v1"
_EXPECTED = "expected http://HOST:PORT"


def address_of(text: str) -> httpx.URL:
    """The address of a service without the slash at its end, or the /v1 that all routes of its API
    begin with. A path before that stays: a proxy may have put the service there.

    Raises ServiceError for what is none, or holds more than an address. The text may hold a
    password, so it is not repeated in full.
    """
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as e:
        raise ServiceError(f"the address of the service cannot be used: {e}") from e
    if url.scheme not in ("http", "https") or not url.host:
        shown = "what was given" if "@" in text else repr(text[:80])
        raise ServiceError(f"{shown} is no address of a server; {_EXPECTED}")
    if url.port is not None and not 0 < url.port < 1 << 16:
        raise ServiceError(f"the address of the service has the port {url.port}; {_EXPECTED}")
    if url.userinfo:
        raise ServiceError(
            f"the address of a service has no user and no password; {_EXPECTED}, and the token "
            "apart from it (--token-file, $AUTOSCHED_TOKEN, or Client's `token`)"
        )
    if url.query or url.fragment:
        raise ServiceError(f"the address of a service ends with its path; {_EXPECTED}, no ? or #")
    path = url.path.rstrip("/").removesuffix(API).rstrip("/")
    return url.copy_with(path=path or "/")


def path_part(text: str) -> str:
    """A text as one part of a path, which it can neither end nor leave."""
    if text in (".", ".."):
        return text.replace(".", "%2E")
    return quote(text, safe="", errors="replace")  # what is no UTF-8 names nothing
