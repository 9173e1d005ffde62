"""The door: which connections are let in, counted from the moment when they are accepted.

uvicorn counts a connection when its TLS handshake is done, of which there may be any number until
then, and those of one client may be all. Here each is counted by its address first; some places
are kept for who asks whether the server lives.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from server.http.limits import HeldBytes
from server.http.security import Proxies
from server.settings import Settings

_log = logging.getLogger("server.listening")

RESERVE = 16
"""Places besides for who asks for the server's health."""
RESERVE_PER_ADDRESS = 4
REFUSALS = 64
"""Connections that are told that there is no place; more are closed without a word."""
UNSENT_BYTES = 256 << 20
"""Of answers whose clients are behind; of one address half: hundreds of connections may each ask
for megabytes, and read them by the kilobyte."""
FILES_KEPT = 128
"""Files that are left for the database, for processes and what they say."""
FEWEST = 16
PAUSE_SECONDS = 0.5
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Place(Enum):
    """What a connection may do."""

    OPEN = "open"
    HEALTH = "health"
    """Ask for the server's health, once."""
    NONE = "none"
    """Be told that there is no place."""


@dataclass
class Visit:
    """A connection's place, until it leaves; `why`: what there are too many of."""

    place: Place
    why: str
    _leave: Callable[[], None]
    _add: Callable[[int], bool] = lambda count: True
    _gone: bool = False
    _unsent: int = 0

    def hold(self, unsent: int) -> bool:
        """Have so many bytes wait to be sent, in place of those before; False where they may not
        wait."""
        allowed = self._gone or self._add(unsent - self._unsent)
        if allowed:
            self._unsent = unsent
        return allowed

    def leave(self) -> None:
        """Give the place back. Harmless when repeated."""
        if not self._gone:
            self.hold(0)
            self._gone = True
            self._leave()


@dataclass
class Door:
    """How many connections there are, in all and by address. Those of trusted proxies are many
    clients', and bounded in all only."""

    most: int
    most_per_address: int
    proxies: Proxies = field(default_factory=Proxies)
    unsent: HeldBytes = field(default_factory=lambda: HeldBytes(UNSENT_BYTES, UNSENT_BYTES // 2))
    _open: dict[Place, Counter[str]] = field(default_factory=lambda: {p: Counter() for p in Place})

    def enter(self, address: str) -> Visit | None:
        """A place for a connection from there; None where not even a refusal has one."""
        whose = network_of(address)
        mine = self._open[Place.OPEN][whose]
        if self.count >= self.most:
            why = f"{self.most} connections are open"
        elif mine >= self.most_per_address and not self.proxies.has(address):
            why = f"{mine} connections of your address are open"
        else:
            shared = self.proxies.has(address)
            return self._visit(Place.OPEN, whose, "", None if shared else whose)
        health = self._open[Place.HEALTH]
        if health.total() < RESERVE and health[whose] < RESERVE_PER_ADDRESS:
            return self._visit(Place.HEALTH, whose, why)
        if self._open[Place.NONE].total() < REFUSALS:
            return self._visit(Place.NONE, whose, why)
        return None

    @property
    def count(self) -> int:
        """Connections that are open for any request."""
        return self._open[Place.OPEN].total()

    def _visit(self, place: Place, whose: str, why: str, client: str | None = None) -> Visit:
        open_ = self._open[place]
        open_[whose] += 1

        def leave() -> None:
            open_[whose] -= 1
            if not open_[whose]:
                del open_[whose]

        return Visit(place, why, leave, partial(self.unsent.add, client))


def network_of(address: str) -> str:
    """What one client has: an address, of IPv6 the 64 bits before those that it chooses."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def most_connections(settings: Settings) -> int:
    """The connections that the settings ask for, or as many as this process may have files for."""
    wanted = settings.connections
    needed = wanted + FILES_KEPT + RESERVE + REFUSALS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return wanted
    raised = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        soft = raised
    most = max(FEWEST, min(wanted, soft - (needed - wanted)))
    if most < wanted:
        _log.warning(
            "%d connections at most, not %d (setting connections): this process may open %d files; "
            "raise its limit (ulimit -n, or LimitNOFILE= of a systemd unit)",
            *(most, wanted, soft),
        )
    return most


class Listener:
    """Accepts connections on a socket until it is closed. `make` gives the protocol of a visit.

    `handshake_seconds`: how long a client may take for TLS, as for a head.
    """

    def __init__(
        self,
        listening: socket.socket,
        door: Door,
        make: Callable[[Visit], asyncio.Protocol],
        tls: ssl.SSLContext | None,
        handshake_seconds: float,
    ) -> None:
        self._socket, self._door, self._make = listening, door, make
        self._tls, self._seconds = tls, handshake_seconds
        self._coming: set[asyncio.Task[None]] = set()
        listening.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """As a server of asyncio has them."""
        return (self._socket,)

    def close(self) -> None:
        """Accept no more."""
        self._accepting.cancel()
        for task in self._coming:
            task.cancel()

    async def wait_closed(self) -> None:
        """Until nothing is on its way in."""
        await asyncio.gather(self._accepting, *self._coming, return_exceptions=True)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(self._socket)
            except OSError as e:
                if e.errno in _EXHAUSTED:
                    _log.error("no connection can be accepted: %s", e)
                    await asyncio.sleep(PAUSE_SECONDS)
                continue  # or the client has gone by now
            visit = self._door.enter(str(address[0]))
            if visit is None or (self._tls is not None and visit.place is Place.NONE):
                accepted.close()
                if visit is not None:
                    visit.leave()
                continue
            task = loop.create_task(self._connect(accepted, visit))
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _connect(self, accepted: socket.socket, visit: Visit) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make(visit),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._seconds,
            )
        except OSError:  # SSLError and TimeoutError are: the client's doing, who is not told
            visit.leave()
            accepted.close()
        except asyncio.CancelledError:
            visit.leave()
            accepted.close()
            raise
