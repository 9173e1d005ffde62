"""The scheduler of a cluster: a Dask scheduler that knows who is there and carries batches."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import dask
from distributed import Scheduler

from autosched.errors import MeasureError
from measure.cluster.settings import (
    NO_DASHBOARD,
    PORT,
    ROSTER,
    SETTINGS,
    is_loopback,
    loopback_address,
    quiet,
    security,
)


def serve(
    host: str = "127.0.0.1",
    port: int = PORT,
    tls_dir: Path | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Run a scheduler until SIGINT or SIGTERM.

    Raises MeasureError if `host` is more than this machine and there are no certificates, or if the
    port is taken.
    """
    if tls_dir is None and not is_loopback(host):
        raise MeasureError(
            f"a scheduler on {host} can be reached from elsewhere and needs certificates: run "
            "`autosched cluster certs DIR`, then give --tls-dir DIR; or listen on 127.0.0.1"
        )
    quiet()
    with dask.config.set(SETTINGS):
        asyncio.run(_serve(host, port, tls_dir, say))


async def _serve(host: str, port: int, tls_dir: Path | None, say: Callable[[str], None]) -> None:
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    protocol = "tcp" if tls_dir is None else "tls"
    scheduler = Scheduler(
        host=loopback_address(host),
        port=port,
        protocol=protocol,
        security=security(tls_dir, "scheduler") or {},
        dashboard=False,
        dashboard_address=NO_DASHBOARD,
    )
    scheduler.handlers[ROSTER] = lambda: roster(scheduler)
    try:
        await scheduler
    except OSError as e:
        raise MeasureError(f"cannot listen on {protocol}://{host}:{port}: {e}") from e
    try:
        say(f"scheduler at {scheduler.address}")
        await over.wait()
    finally:
        # Workers wait for a scheduler to come back; they are not told to end.
        await scheduler.close(reason="interrupted")


def roster(scheduler: Scheduler) -> tuple[str, list[tuple[str, str, str, float]]]:
    """The scheduler's own id, and of every worker: name, label, address, and seconds since it was
    last heard of."""
    now = time.time()
    rows = [
        (str(w.name), next(iter(w.resources), ""), w.address, max(0.0, now - w.last_seen))
        for w in scheduler.workers.values()
    ]
    return scheduler.id, rows
