"""`autosched workers`: the workers of a service, from here."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from autosched.cli.common import filled
from autosched.cli.service import add_server, client_of
from autosched.cli.text import plain

if TYPE_CHECKING:
    from server.schemas import Worker

_EPILOG = """\
examples:
  autosched workers list
  autosched workers drain lab@rack1:cpu/0-7 --server http://tuner:8000
  autosched workers admit lab@rack1:cpu/0-7

A drained worker finishes the trial that it is at and takes no more, also after it was started
again; the rest goes to other workers, and the jobs of a pool that has no other wait. Load and
trials a second are those of the last five minutes, faults those of the last day.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="the workers, and how they are")
    drain = actions.add_parser("drain", help="have workers take no more work; needs scope admin")
    admit = actions.add_parser("admit", help="let drained workers work again; needs scope admin")
    for action in (drain, admit):
        action.add_argument(
            "names", type=filled, metavar="NAME", nargs="+", help="as `list` shows them"
        )
    for action in (listing, drain, admit):
        add_server(action)
        action.add_argument("--json", action="store_true", help="JSON objects, one a line")


def run(options: argparse.Namespace) -> int:
    """Do it and print the workers that it was about."""
    with client_of(options) as client:
        client.probe()
        if options.action == "list":
            found = client.workers()
        elif options.action == "drain":
            found = client.drain(options.names)
        else:
            found = client.admit(options.names)
    for worker in found:
        print(worker.model_dump_json() if options.json else _row(worker))
    if not found and not options.json:
        print("no worker is connected")
    return 0


def _row(worker: Worker) -> str:
    seen = "never"
    if worker.last_seen is not None:
        seen = f"{max(0.0, (datetime.now(UTC) - worker.last_seen).total_seconds()):.0f} s ago"
    jobs = ", ".join(job[:12] for job in worker.jobs) or "no job"
    return plain(
        f"{worker.name} of pool {worker.pool}: {worker.state}, load {worker.load:.2f}, "
        f"{worker.trials_per_second:.3g} trials/s, {worker.faults} faults, seen {seen}, {jobs}"
    )
