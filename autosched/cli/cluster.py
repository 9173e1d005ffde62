"""`autosched cluster`: certificates, a cluster on one machine, and who is there."""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from autosched.cli.common import at_least, filled, filled_path, port, positive_seconds
from autosched.cli.scheduler import add_tls
from autosched.cli.worker import add_slots, say, slots_of
from autosched.errors import AutoschedError
from autosched.extras import require

_EPILOG = """\
examples:
  autosched cluster local                     # this machine alone, with TLS: makes certificates,
                                              # runs scheduler and worker, prints the pool's address
  autosched cluster certs certs               # then copy the folder to every machine
  autosched cluster devices tls://10.0.0.1:8786 --tls-dir certs

Whoever holds a certificate may have a worker run anything: keep the folder as you keep keys.
Workers need ca.pem, worker.pem and worker-key.pem only, tuning runs the client's, the scheduler its
own. ca-key.pem is needed for no machine; keep it apart.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    certs = actions.add_parser("certs", help="make an authority and a certificate for each role")
    certs.add_argument(
        "folder", type=filled_path, metavar="DIR", help="where to; nothing is overwritten"
    )
    certs.add_argument(
        "--days",
        type=at_least(1),
        default=825,
        metavar="N",
        help="how long they are valid (default: %(default)s)",
    )
    local = actions.add_parser(
        "local", help="certificates, a scheduler and a worker on this machine, until Ctrl-C"
    )
    local.add_argument(
        "--port", type=port, default=8786, help="the port, 0 for any (default: %(default)s)"
    )
    local.add_argument(
        "--tls-dir",
        type=filled_path,
        metavar="DIR",
        help="folder of certificates, made if it is not there (default: autosched/tls in "
        "XDG_STATE_HOME, or in ~/.local/state)",
    )
    add_slots(local, label="local")
    devices = actions.add_parser("devices", help="list the devices of a cluster, checking each")
    devices.add_argument(
        "address", type=filled, metavar="ADDR", help="the scheduler, as for `worker`"
    )
    devices.add_argument(
        "--wait",
        type=positive_seconds,
        default=10.0,
        metavar="S",
        help="for how long to wait for devices that are being checked (default: %(default)s)",
    )
    devices.add_argument("--json", action="store_true", help="one JSON object a device")
    add_tls(devices, "client")


def run(options: argparse.Namespace) -> int:
    """Do what ACTION says."""
    if options.action == "certs":
        return _certs(options.folder, options.days)
    if options.action == "local":
        return _local(options)
    return _devices(options)


def _certs(folder: Path, days: int) -> int:
    for path in _make_certs(folder, days):
        print(path)
    return 0


def _make_certs(folder: Path, days: int) -> list[Path]:
    require("a certificate", "cryptography")
    from measure.cluster.certs import make_certs

    return make_certs(folder, days)


def _local(options: argparse.Namespace) -> int:
    """Scheduler and worker in one process, which ends with the scheduler."""
    require("a cluster", "distributed")
    from measure.cluster.scheduler import serve
    from measure.cluster.settings import CA

    folder = (options.tls_dir or _state_folder() / "tls").absolute()
    if not (folder / CA).exists():
        _make_certs(folder, 825)
        print(f"certificates in {folder}", flush=True)
    options.tls_dir = folder
    worker = _Worker(options)

    def say(text: str) -> None:
        options.scheduler = text.split()[-1]
        pool = f"{options.scheduler}?tls-dir={quote(str(folder))}"
        print(f'{text}\nautosched tune WORKLOAD ARGS --pool "{pool}"', flush=True)
        worker.start()

    try:
        serve("127.0.0.1", options.port, folder, say)
    finally:
        worker.end()
    return 0


class _Worker:
    """The worker's supervisor, in a thread. Where it fails, so does the process: as by SIGTERM."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._over: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._failed: AutoschedError | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Serve the scheduler at `options.scheduler`."""
        self._thread.start()

    def end(self) -> None:
        """End it. Raises what it failed with."""
        self._over.put(0)
        if self._thread.ident is not None:
            self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        from measure.cluster.supervisor import Supervisor

        try:
            with Supervisor(slots_of(self._options, "127.0.0.1"), say) as supervisor:
                supervisor.run(self._over)
        except AutoschedError as e:
            self._failed = e
            os.kill(os.getpid(), signal.SIGTERM)


def _state_folder() -> Path:
    """Where this user's programs keep what they need again."""
    state = os.environ.get("XDG_STATE_HOME", "")
    try:
        return (Path(state) if state else Path.home() / ".local" / "state") / "autosched"
    except RuntimeError as e:  # no HOME, and an account that the system does not know
        raise AutoschedError(
            "no home folder to keep certificates in; name a folder: --tls-dir DIR"
        ) from e


def _devices(options: argparse.Namespace) -> int:
    from measure.cluster.pool import ClusterPool

    with ClusterPool(options.address, tls_dir=options.tls_dir) as pool:
        end = time.monotonic() + options.wait
        found = pool.devices()
        while time.monotonic() < end and (not found or pool.settling):
            time.sleep(0.1)  # workers join one by one, until --wait is over
            found = pool.devices()
    now = time.monotonic()
    for d in found:
        row: dict[str, Any] = {
            "name": d.name,
            "label": d.label,
            "state": str(d.state),
            "fingerprint": d.fingerprint or None,
            "device": None if d.device is None else str(d.device),
            "target": d.target or None,
            "canary_seconds": d.canary_seconds,
            "faults": d.faults,
            "last_seen_seconds": round(now - d.last_seen, 1),
            "why": d.why or None,
        }
        if options.json:
            print(json.dumps(row))
        else:
            why = f"; {d.why}" if d.why else ""
            print(f"{d.name}: {d.state}, label {d.label}, {row['device'] or 'not checked'}{why}")
    if not found and not options.json:
        print("no worker is connected")
    return 0
