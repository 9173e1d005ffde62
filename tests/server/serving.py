"""A server in a thread of the test's process, on a port of its own."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import httpx

from server.app import create_app
from server.http.connections import config
from server.http.serving import Server
from server.programs.pool import Examiner
from server.settings import Settings

EXAMINE_SECONDS = 100.0
"""More than a machine that stands still at times needs for any workload of a test."""


@contextmanager
def serving(
    settings: Settings, tls: ssl.SSLContext | None = None, *, warm: bool = False
) -> Iterator[httpx.Client]:
    """A client of a server that runs while the block does, and has time for its workloads. Its
    process that examines these starts with the first of them, and only with `warm` before."""
    settings = settings.model_copy(update={"examine_seconds": EXAMINE_SECONDS})
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        server = Server(config(create_app(settings), settings))
        thread = threading.Thread(target=server.run, args=([listener],))
        try:
            port = listener.getsockname()[1]
            url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
            with httpx.Client(base_url=url, timeout=120, verify=tls or True) as client:
                with nullcontext() if warm else patch.object(Examiner, "start", _wait):
                    thread.start()
                    client.get("/healthz").raise_for_status()
                yield client
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive(), "the server did not stop"


def _wait(examiner: Examiner) -> None:
    """Most tests send no workload: a process that is ready for one costs a second of processor."""
