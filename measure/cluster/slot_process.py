"""The process of one device slot: a Dask worker with one thread, around `worker.Service`.

Started by `supervisor`, and ends with it. It outlives the scheduler: when the connection is
lost it waits for the scheduler to come back, with its pool still warm.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
from distributed import Worker

from autosched.errors import MeasureError
from autosched.target import Target
from measure.cluster.settings import (
    EXTENSION,
    NO_DASHBOARD,
    SETTINGS,
    STOP,
    check_address,
    listening_host,
    quiet,
    security,
)
from measure.cluster.supervisor import CLAIMED, SlotOptions
from measure.cluster.wire import explained
from measure.cluster.worker import Service
from measure.local.lock import at_once, open_lock, runtime_folder
from measure.process.containment import PR_SET_PDEATHSIG, prctl
from measure.process.folders import private_folder
from measure.process.protocol import resolve

RETRY_SECONDS = 1.0
CONNECT_SECONDS = 10
CLOSE_SECONDS = 5


@contextlib.contextmanager
def claimed(slot: str) -> Iterator[None]:
    """Hold a slot of this host. Raises MeasureError if another worker has it."""
    fd = open_lock(runtime_folder(), f"claim-{slot}.lock")
    try:
        if not at_once(fd, fcntl.LOCK_EX):
            owner = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
            raise MeasureError(
                f"the slot {slot} of this machine has a worker already (process {owner}); "
                "end that one, or leave this slot to it"
            )
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


async def _connected(options: SlotOptions, service: Service, folder: str) -> None:
    """One connection to the scheduler, from start to end. Raises OSError and the like."""
    tls_dir = None if options.tls_dir is None else Path(options.tls_dir)
    scheduler = check_address(options.scheduler, tls_dir)
    # A worker that ends would close the service if it were the extension itself.
    extensions: dict[str, Any] = {EXTENSION: lambda _: SimpleNamespace(service=service)}
    worker = Worker(
        scheduler,
        name=options.name,
        nthreads=1,
        resources={options.label: 1},
        memory_limit=0,
        local_directory=folder,
        security=security(tls_dir, "worker"),
        extensions=extensions,
        dashboard_address=NO_DASHBOARD,
        host=listening_host(scheduler, options.host),
        death_timeout=CONNECT_SECONDS,
    )
    worker.handlers[STOP] = service.stop
    try:
        await worker
        _say(options, f"connected to {options.scheduler}")
        await worker.finished()
        _say(options, "the connection to the scheduler is lost")
    finally:
        service.stop_all()
        await worker.close(timeout=CLOSE_SECONDS, nanny=False)


async def _serve(options: SlotOptions, service: Service) -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    end = asyncio.ensure_future(over.wait())
    said = ""
    with private_folder() as folder:
        while not over.is_set():
            connected = asyncio.ensure_future(_connected(options, service, str(folder)))
            await asyncio.wait({connected, end}, return_when=asyncio.FIRST_COMPLETED)
            connected.cancel()
            try:
                await connected
                said = ""
            except asyncio.CancelledError:
                return
            except (TimeoutError, OSError, ValueError, RuntimeError, MeasureError) as e:
                # Certificates may have expired meanwhile: they are read anew each time.
                text = f"cannot reach {options.scheduler} yet: {explained(e)}"
                if text != said:
                    _say(options, text)
                said = text
            await asyncio.wait({end}, timeout=RETRY_SECONDS)


def _say(options: SlotOptions, text: str) -> None:
    print(f"{options.name}: {text}", file=sys.stderr, flush=True)


def main(argv: list[str]) -> int:
    """Serve one slot until SIGTERM or the parent's end; `argv`: the parent's id, the options."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(argv[0]):
        return 1
    options = SlotOptions.from_json(argv[1])
    quiet()
    if options.cores:
        os.sched_setaffinity(0, options.cores)
    try:
        engine: Any = resolve(options.engine)
        with (
            claimed(options.slot),
            Service(engine, options.slot, Target(options.target)) as service,
            dask.config.set(SETTINGS),
        ):
            asyncio.run(_serve(options, service))
    except MeasureError as e:
        _say(options, str(e))
        return CLAIMED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
