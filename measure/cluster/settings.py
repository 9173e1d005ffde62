"""How Dask is used by the scheduler, the workers and the pool: its settings, addresses and TLS.

Dask carries batches and knows who is there. It does not retry, steal, spill or profile: which
attempt counts is decided in `dispatch`, and hangs are contained in the worker's own pool.
"""

from __future__ import annotations

import ipaddress
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from autosched.errors import MeasureError

if TYPE_CHECKING:
    from distributed.security import Security

Role = Literal["scheduler", "worker", "client"]
PORT = 8786
CA = "ca.pem"
EXTENSION = "autosched"
"""Name under which a worker's service is found."""
ROSTER = "autosched_roster"
"""The scheduler's call that lists workers."""
STOP = "autosched_stop"
"""The worker's call that ends a batch; the scheduler passes it on (`Scheduler.broadcast`)."""

SETTINGS: dict[str, Any] = {
    # A lost batch comes back to the dispatcher at once, which knows better what to do with it.
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.comm.timeouts.connect": "5s",
    "distributed.comm.timeouts.tcp": "20s",
    "distributed.comm.tls.min-version": 1.3,
    "distributed.comm.compression": None,
    # Every topic and worker keeps so many past messages; nobody reads them.
    "distributed.admin.low-level-log-length": 2,
    "distributed.admin.tick.limit": "1h",
    "distributed.diagnostics.nvml": False,
}

NO_DASHBOARD = "127.0.0.1:0"
"""Dask always opens a port for HTTP; without routes, and for this machine only."""


def check_address(address: str, tls_dir: Path | None) -> str:
    """The address of a scheduler, with its port. Raises MeasureError if it may not be used.

    `tls://host:port` needs certificates. `tcp://` is taken for this machine only: Dask's messages
    hold pickles, which nobody may send who has not shown a certificate.
    """
    found = urlsplit(address)
    if found.scheme not in ("tls", "tcp") or not found.hostname:
        raise MeasureError(
            f"expected an address such as tls://host:{PORT}, or tcp://127.0.0.1:{PORT} on this "
            f"machine; found {address!r}"
        )
    if found.scheme == "tls" and tls_dir is None:
        raise MeasureError(
            f"{address} needs the folder of certificates that `autosched cluster certs` made; "
            "name it: --tls-dir DIR, or, in a pool's address, tls://HOST:PORT?tls-dir=DIR"
        )
    if found.scheme == "tcp" and tls_dir is not None:
        raise MeasureError(f"{address} is not encrypted, and certificates are given; use tls://")
    if found.scheme == "tcp" and not is_loopback(found.hostname):
        raise MeasureError(
            f"{address} is another machine, and tcp:// is neither encrypted nor authenticated; "
            "use tls:// with certificates from `autosched cluster certs`"
        )
    try:
        port = found.port or PORT
    except ValueError as e:
        raise MeasureError(f"the port of {address!r} is no port: {e}") from e
    host = f"[{found.hostname}]" if ":" in found.hostname else found.hostname
    return f"{found.scheme}://{host}:{port}"


def listening_host(address: str, host: str | None) -> str | None:
    """The host that a worker of the scheduler at `address` listens on; None: any, under TLS.

    Dask runs what is sent to a worker's port, so that without TLS the port must not be reached
    from elsewhere. Raises MeasureError for a `host` that would be.
    """
    found = urlsplit(address)
    if found.scheme == "tls":
        return host
    if host is not None and not is_loopback(host):
        raise MeasureError(
            f"a worker of {address} listens on this machine's loopback address only, since tcp:// "
            f"asks nobody for a certificate; found --host {host}: leave it out, or use tls:// with "
            "certificates from `autosched cluster certs`"
        )
    return loopback_address(host or found.hostname or "")


def loopback_address(host: str) -> str:
    """A loopback host as an address: what a name resolves to is up to the system's files."""
    return "127.0.0.1" if host == "localhost" else host


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its loopback address."""
    try:
        return ipaddress.ip_address(loopback_address(host)).is_loopback
    except ValueError:
        return False


def certificates(tls_dir: Path, role: Role) -> tuple[Path, Path, Path]:
    """Files of the authority, of a role's certificate, and of its key.

    Raises MeasureError if a file is missing, others may read the key, or the certificate has
    expired or is another authority's.
    """
    names = CA, f"{role}.pem", f"{role}-key.pem"
    authority, certificate, key = files = tuple(tls_dir / name for name in names)
    for path in files:
        if not path.is_file():
            raise MeasureError(
                f"no {path}; a {role} needs {', '.join(names)} from `autosched cluster certs`"
            )
    if key.stat().st_mode & 0o077:
        raise MeasureError(f"others may read the private key {key}; run: chmod 600 {key}")
    from measure.cluster.certs import check_certificate

    check_certificate(certificate, authority)
    return authority, certificate, key


def security(tls_dir: Path | None, role: Role) -> Security | None:
    """Certificates of a role, both sides of every connection to be authenticated by one CA. Raises
    MeasureError as `certificates` does."""
    if tls_dir is None:
        return None
    from distributed.security import Security

    ca, cert, key = map(str, certificates(tls_dir, role))
    return Security(
        require_encryption=True,
        tls_ca_file=ca,
        **{f"tls_{role}_cert": cert, f"tls_{role}_key": key},
    )


def quiet() -> None:
    """Dask logs what we report ourselves, with tracebacks; only let it speak of the worst."""
    for name in [n for n in logging.root.manager.loggerDict if n.split(".")[0] == "distributed"]:
        logging.getLogger(name).setLevel(logging.CRITICAL)
