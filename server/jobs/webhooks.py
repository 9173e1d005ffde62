"""Telling webhooks that jobs have ended: signed, tried again, and to allowed addresses only.

A webhook's URL is given by a client, and the request is made by this server, from inside its
network. So its origin has to be one that the administrator lists, and the address that its name
resolves to, which is the one connected to, has to be a public one, or in a network that is listed
as well. Redirects are not followed, proxies of the environment not used, and nothing of an answer
is kept but its status.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import httpx

from autosched.errors import AutoschedError
from records import RecordError, Store
from records.queue.webhooks import Due, Webhooks
from server.http.origins import PORTS, of_url, origin_of
from server.http.problems import refused
from server.jobs.answers import shown
from server.settings import Settings
from server.storage.outage import Outage

_log = logging.getLogger("autosched.webhooks")

SIGNATURE = "Autosched-Signature"
LOOK_SECONDS = 1.0
SEND_SECONDS = 10.0
"""What one delivery may take from connecting to the answer's head, however slowly either comes: a
receiver that sends a byte now and then keeps no other waiting."""
HELD_SECONDS = 120.0
"""A delivery that was taken and not settled after so long is sent again: its server has died."""
SENDERS = 4
TOGETHER = 16
FORGET_SECONDS = 7 * 86400.0
Address = IPv4Address | IPv6Address


class NotAllowed(AutoschedError):
    """An address that the administrator does not let this server send to."""


class Targets:
    """Which URLs may be told."""

    def __init__(self, settings: Settings) -> None:
        self._origins = frozenset(origin_of(text) for text in settings.webhook_origins)
        self._networks: Sequence[IPv4Network | IPv6Network] = settings.webhook_allowed_networks

    def check(self, url: str) -> httpx.URL:
        """The URL, whose origin is allowed. Raises NotAllowed."""
        if not self._origins:
            raise NotAllowed(
                "this server tells no webhooks: its administrator lists no origins "
                "(webhook_origins)"
            )
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, ValueError) as e:
            raise NotAllowed(f"not a URL: {e}") from e
        if parsed.userinfo or parsed.fragment:
            raise NotAllowed("a webhook's URL has neither a password nor a fragment")
        if of_url(parsed) not in self._origins:
            allowed = ", ".join(sorted(f"{s}://{h}:{p}" for s, h, p in self._origins))
            raise NotAllowed(
                f"{parsed.scheme}://{parsed.host} is not among the origins that this server may "
                f"send to: {allowed}"
            )
        return parsed

    def address(self, url: httpx.URL) -> str:
        """The address to connect to: the first one that the name has, all of which have to be
        allowed. Raises NotAllowed, OSError for a name that does not resolve."""
        host, port = url.host, url.port or PORTS[url.scheme]
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
        literal = _literal(host)
        for one in addresses:
            if one != literal and not self._reachable(one):
                raise NotAllowed(
                    f"{host} is {one}, which is no public address and in none of the networks "
                    "that this server may send to (webhook_networks)"
                )
        return str(addresses[0])

    def _reachable(self, address: Address) -> bool:
        inner = getattr(address, "ipv4_mapped", None) or address
        inside = any(
            one.version == network.version and one in network
            for one in (address, inner)
            for network in self._networks
        )
        return inside or (inner.is_global and not inner.is_multicast)


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def signature(secret: str, body: bytes, at: int) -> str:
    """`t=TIME,v1=HEX`: HMAC-SHA256 (RFC 2104) of the time, a dot and the body."""
    signed = hmac.new(secret.encode(), b"%d." % at + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={signed}"


class Sender:
    """Sends what is due, from `start` to `stop`."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._webhooks, self.targets = Webhooks(store), Targets(settings)
        self._tls: ssl.SSLContext | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)
        self._forget_at = 0.0
        self._outage = Outage(_log, "webhooks cannot be looked at")

    def start(self) -> None:
        """Begin, if there is anybody whom this server may tell."""
        if self._settings.webhook_origins:
            self._thread.start()

    def stop(self) -> None:
        """End, when what is on its way has arrived or failed. Harmless when repeated."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        self._tls = ssl.create_default_context()  # the certificates that this machine trusts
        with ThreadPoolExecutor(SENDERS, thread_name_prefix="webhook") as pool:
            while not self._stopping.wait(LOOK_SECONDS):
                try:
                    due = self._webhooks.take(TOGETHER, HELD_SECONDS)
                    list(pool.map(self._deliver, due))
                    self._forget()
                    self._outage.over()
                except RecordError as e:
                    self._outage.failed(e)
                except Exception:
                    # One delivery that fails must not leave all others untold.
                    _log.exception("telling webhooks failed")

    def _forget(self) -> None:
        if time.monotonic() >= self._forget_at:
            self._webhooks.forget(FORGET_SECONDS)
            self._forget_at = time.monotonic() + 3600.0

    def _deliver(self, due: Due) -> None:
        error = self._send(due)
        pause = None
        if error is not None and due.attempts < self._settings.webhook_attempts:
            pause = self._settings.webhook_retry_seconds * 4 ** (due.attempts - 1)
        self._webhooks.settle(due.id, error, pause)
        _log.info(
            "delivery %d to webhook %s, attempt %d: %s",
            *(due.id, due.webhook_id, due.attempts, error or "arrived"),
            extra={"job_id": due.job_id},
        )

    def _send(self, due: Due) -> str | None:
        """What went wrong; None if it arrived."""
        (job,) = shown(self._store, [self._store.job(due.job_id)])
        told = {"type": "job.ended", "delivery": due.id, "webhook": due.webhook_id}
        body = json.dumps({**told, "job": job.model_dump(mode="json")}).encode()
        try:
            url = self.targets.check(due.url)
            address = self.targets.address(url)
            headers = {
                "Host": url.netloc.decode("ascii"),
                "Content-Type": "application/json",
                "User-Agent": "autosched",
                SIGNATURE: signature(due.secret, body, int(time.time())),
            }
            status = asyncio.run(self._post(url, address, body, headers))
        except TimeoutError:
            return f"it did not answer within {SEND_SECONDS:g} s"
        except (NotAllowed, OSError, httpx.HTTPError) as e:
            return f"{type(e).__name__}: {e}"
        return None if 200 <= status < 300 else f"it answered {status}"

    async def _post(
        self, url: httpx.URL, address: str, body: bytes, headers: Mapping[str, str]
    ) -> int:
        """The status of the answer. Raises TimeoutError after SEND_SECONDS."""
        # No proxies of the environment, and no limits of single waits: one holds for all of them.
        client = httpx.AsyncClient(trust_env=False, timeout=None, verify=self._tls or True)
        async with (
            asyncio.timeout(SEND_SECONDS),
            client as http,
            http.stream(
                "POST",
                url.copy_with(host=address),
                content=body,
                headers=headers,
                extensions={"sni_hostname": url.host},
            ) as response,
        ):
            return response.status_code


def check_url(sender: Sender, url: str) -> None:
    """Raises ProblemError (422) for a URL that may not be told."""
    try:
        sender.targets.check(url)
    except NotAllowed as e:
        raise refused("address-not-allowed", str(e)) from e
