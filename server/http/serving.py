"""uvicorn's server behind our door, ending in order: streams end and jobs are parked before it
waits for either."""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any

import uvicorn

from server.http.connections import Connection
from server.http.listening import Listener, Visit
from server.state import Service

STARTUP_FAILED = 3
"""uvicorn's exit status."""


class Server(uvicorn.Server):
    """A server of `create_app`'s application.

    uvicorn waits for open connections before it tells the application to stop, and event streams
    are open connections.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, then listen. `sockets`: those that are listened on."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILED)
        config, loop = self.config, asyncio.get_running_loop()
        made: type[Connection] = config.http_protocol_class  # type: ignore[assignment]

        def make(visit: Visit) -> Connection:
            protocol = made(config, self.server_state, self.lifespan.state, loop)
            protocol.visit = visit
            return protocol

        seconds = made.head_seconds
        self.servers: list[Any] = [
            Listener(one, made.door, make, config.ssl, seconds) for one in sockets or ()
        ]
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        service: Service | None = getattr(self.config.app.state, "service", None)  # type: ignore[union-attr]
        if service is not None:
            service.begin_to_stop()
        await super().shutdown(sockets)
