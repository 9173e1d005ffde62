"""Requests as raw bytes, to a server that bounds nobody's number of requests and jobs."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from serving import serving

from server.settings import Settings

JOB = {"workload": {"name": "matmul", "args": [8, 8, 8]}}


@contextmanager
def unbounded(folder: Path) -> Iterator[httpx.Client]:
    """A client of such a server."""
    settings = Settings(
        db=str(folder / "x.db"),
        jobs_at_once=0,
        requests_per_second=0,
        jobs_queued_per_client=10**6,
        jobs_queued=10**6,
    )
    with serving(settings) as client:
        yield client


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


def problem_in(told: bytes) -> dict[str, Any]:
    """The problem in an answer of raw bytes."""
    head, _, body = told.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, told
    found: dict[str, Any] = json.loads(body)
    return found
