"""A request whose target is a whole URL."""

from __future__ import annotations

from pathlib import Path

from raw_http import problem_in, send
from serving import serving

from server.settings import Settings


def test_the_host_of_a_target_counts_and_not_the_header(tmp_path: Path) -> None:
    """A server that took the header would answer to names that it does not have."""
    head = "GET http://{}/healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n"
    with serving(Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)) as client:
        own = f"{client.base_url.host}:{client.base_url.port}"
        refused = send(client, head.format("evil.example", own).encode())
        assert problem_in(refused)["type"].endswith(":bad-host")
        assert b" 200 " in send(client, head.format(own, "evil.example").encode())
