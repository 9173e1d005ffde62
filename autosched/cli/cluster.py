"""`autosched cluster`: certificates, and who is there."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from autosched.cli.common import at_least, positive_seconds
from autosched.cli.scheduler import add_tls
from autosched.errors import MeasureError

_EPILOG = """\
examples:
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
    certs.add_argument("folder", type=Path, metavar="DIR", help="where to; nothing is overwritten")
    certs.add_argument(
        "--days",
        type=at_least(1),
        default=825,
        metavar="N",
        help="how long they are valid (default: %(default)s)",
    )
    devices = actions.add_parser("devices", help="list the devices of a cluster, checking each")
    devices.add_argument("address", metavar="ADDR", help="the scheduler, as for `worker`")
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
    return _devices(options)


def _certs(folder: Path, days: int) -> int:
    try:
        from measure.certs import make_certs
    except ImportError as e:
        raise MeasureError(
            "certificates need the package cryptography; run: pip install 'autosched[cluster]'"
        ) from e
    for path in make_certs(folder, days):
        print(path)
    return 0


def _devices(options: argparse.Namespace) -> int:
    from measure.cluster import ClusterPool

    with ClusterPool(options.address, tls_dir=options.tls_dir) as pool:
        end = time.monotonic() + options.wait
        found = pool.devices()
        while time.monotonic() < end and (not found or pool.settling):
            time.sleep(0.1)
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
