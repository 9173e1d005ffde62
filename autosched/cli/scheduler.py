"""`autosched scheduler`."""

from __future__ import annotations

import argparse

from autosched.cli.common import filled, filled_path, port
from autosched.extras import require

_EPILOG = """\
One scheduler brings tuning runs and workers together. It measures nothing, keeps nothing, and may
be started again at any time: workers and running tunings connect anew and go on.

on one machine with TLS, scheduler and worker in one:
  autosched cluster local

on one machine that has no other users; without TLS, every account of it can run programs as you:
  autosched scheduler
  autosched worker --scheduler tcp://127.0.0.1:8786 --label cpu
  autosched tune matmul_add 1024 1024 1024 --pool tcp://127.0.0.1:8786

on several, which takes certificates (`autosched cluster certs certs`, the folder copied to each):
  autosched scheduler --host 10.0.0.1 --tls-dir certs
  autosched worker --scheduler tls://10.0.0.1:8786 --label cpu-znver5 --tls-dir certs
  autosched tune matmul_add 1024 1024 1024 --pool "tls://10.0.0.1:8786?tls-dir=certs"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--host",
        type=filled,
        default="127.0.0.1",
        help="the address to listen on (default: %(default)s, this machine only)",
    )
    parser.add_argument(
        "--port", type=port, default=8786, help="the port, 0 for any (default: %(default)s)"
    )
    add_tls(parser, "scheduler")


def add_tls(parser: argparse.ArgumentParser, role: str) -> None:
    """--tls-dir."""
    parser.add_argument(
        "--tls-dir",
        type=filled_path,
        metavar="DIR",
        help=f"folder with ca.pem, {role}.pem and {role}-key.pem, from `autosched cluster certs`; "
        "needed for anything but this machine's own loopback address",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    require("a scheduler", "distributed")
    from measure.cluster.scheduler import serve

    serve(options.host, options.port, options.tls_dir, lambda text: print(text, flush=True))
    return 0
