"""Many HTTP clients in one process, light enough to leave the processor to the server.

Each client is a task with one connection that is kept; a request is written as it stands, and of
an answer the head and the body are read, and nothing is made of them but what is asked for.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Tally:
    """Seconds of the answers of each kind of request, and what went wrong."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


class Connection:
    """One connection to a server, to ask one thing after the other."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(
        self, method: str, path: str, body: bytes = b"", headers: str = ""
    ) -> tuple[int, bytes]:
        """Status and body of an answer. Raises OSError or EOFError where the connection breaks.

        Servers close connections that rest, and a request may cross that on its way: as every
        client does, one that got nothing back on a connection that is not new is made again.
        """
        while True:
            used = self._reader is not None
            reader, writer = await self.open()
            writer.write(self._request(method, path, body, headers))
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                break
            except (OSError, EOFError) as e:
                if not used or (isinstance(e, asyncio.IncompleteReadError) and e.partial):
                    raise
                self.close()
        status = int(head.split(" ", 2)[1])
        length = next(
            (int(v) for k, _, v in map(_field, head.split("\r\n")) if k == "content-length"), None
        )
        if length is not None:
            answer = await reader.readexactly(length)
        else:
            answer = b""
            while size := int(await reader.readline(), 16):
                answer += await reader.readexactly(size)
                await reader.readexactly(2)
            await reader.readexactly(2)
        if "connection: close" in head:
            self.close()
        return status, answer

    async def open_stream(self, path: str) -> asyncio.StreamReader:
        """Ask for a stream of events, and read its head."""
        reader, writer = await self.open()
        writer.write(self._request("GET", path, b"", "Accept: text/event-stream\r\n"))
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise OSError(f"a stream was answered with {head[:200]!r}")
        return reader

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The two sides of the connection, which is made if there is none."""
        if self._reader is None or self._writer is None:
            # A small buffer: a reader that does not read shows at once.
            found = await asyncio.open_connection(self._host, self._port, limit=1 << 16)
            self._reader, self._writer = found
        return self._reader, self._writer

    def close(self) -> None:
        """Drop the connection."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
        self._reader = self._writer = None

    def _request(self, method: str, path: str, body: bytes, headers: str) -> bytes:
        if body:
            headers += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
        accept = "" if "Accept:" in headers else "Accept: application/json\r\n"
        return f"{head}{accept}{headers}\r\n".encode() + body


def _field(line: str) -> tuple[str, str, str]:
    name, colon, value = line.partition(":")
    return name.strip(), colon, value.strip()


Turn = Callable[["Clients", int], Awaitable[None]]


class Clients:
    """Clients that take turns without a pause until the time is over, and their `tally`."""

    def __init__(self, urls: dict[str, str]) -> None:
        self.tally = Tally()
        self._urls = urls
        self._connections: dict[tuple[int, str], Connection] = {}

    async def ask(
        self, client: int, server: str, kind: str, method: str, path: str,
        body: bytes = b"", headers: str = "", expected: int = 200,
    ) -> object:  # fmt: skip
        """Time one request of a client; its JSON, None where it failed."""
        key = client, server
        connection = self._connections.setdefault(key, Connection(self._urls[server]))
        began = time.perf_counter()
        try:
            status, answer = await connection.ask(method, path, body, headers)
        except (OSError, EOFError, ValueError) as e:
            connection.close()
            self.tally.errors.append(f"{kind}: {type(e).__name__}: {e}")
            return None
        self.tally.seconds.setdefault(kind, []).append(time.perf_counter() - began)
        if status != expected:
            self.tally.errors.append(f"{kind}: {status}: {answer[:200].decode(errors='replace')}")
            return None
        found: object = json.loads(answer)
        return found

    async def run(self, count: int, seconds: float, turn: Turn) -> None:
        """`count` clients, for so many seconds."""
        end = time.monotonic() + seconds

        async def one(client: int) -> None:
            while time.monotonic() < end:
                await turn(self, client)

        await asyncio.gather(*(one(client) for client in range(count)))
        for connection in self._connections.values():
            connection.close()
