"""uvicorn's server, ending in order: streams end and jobs are parked before it waits for either."""

from __future__ import annotations

import socket

import uvicorn

from server.state import Service


class Server(uvicorn.Server):
    """A server of `create_app`'s application.

    uvicorn waits for open connections before it tells the application to stop, and event streams
    are open connections.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        service: Service | None = getattr(self.config.app.state, "service", None)  # type: ignore[union-attr]
        if service is not None:
            service.begin_to_stop()
        await super().shutdown(sockets)
