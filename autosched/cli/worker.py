"""`autosched worker`."""

from __future__ import annotations

import argparse
import queue
import signal
import socket
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from autosched.cli.common import at_least, filled, printable
from autosched.cli.scheduler import add_tls
from autosched.errors import MeasureError
from autosched.extras import require

if TYPE_CHECKING:
    from measure.cluster.supervisor import SlotOptions

_EPILOG = """\
A slot is a device that measures one candidate at a time. By default this machine's processor is one
slot, and kernels may use all its cores. With --slots N its cores are divided into N slots, each
pinned to its own: N candidates are measured at a time, of kernels for that many cores.

With --target "cuda -arch=sm_90" or --target opencl a slot is a GPU, and --device says which.

examples:
  autosched worker --scheduler tcp://127.0.0.1:8786 --label cpu
  autosched worker --scheduler tls://10.0.0.1:8786 --label h200 --target cuda --device 0 --device 1
  autosched worker --scheduler tls://10.0.0.1:8786 --label cpu-znver5 --slots 2 --tls-dir certs

A slot whose process dies is started again; one that loses the scheduler waits for it. Two workers
cannot serve the same slot of a machine. Ctrl-C ends everything; what was being measured is measured
elsewhere.

A worker runs what its port is sent. With tcp:// it listens on the loopback address and asks for no
certificate: every account of this machine can run programs as you. With tls:// only holders of a
certificate can; `autosched cluster local` does that on one machine.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--scheduler",
        type=filled,
        required=True,
        metavar="ADDR",
        help="tls://host:port, or tcp://127.0.0.1:port on this machine, every account of which can "
        "then run programs as you",
    )
    add_slots(parser)
    parser.add_argument(
        "--host",
        type=filled,
        help="this machine's address as the scheduler sees it (default: found out; with tcp:// the "
        "loopback address, and no other)",
    )
    parser.add_argument(
        "--name",
        type=printable,
        help="what this machine is called in the cluster (default: its host name)",
    )
    parser.add_argument(
        "--engine",
        type=filled,
        metavar="MODULE:FUNCTION",
        help="what makes the pool that measures in a slot, from a target and the slot's name "
        "(default: this machine's processor); with it slots are not pinned",
    )
    add_tls(parser, "worker")


def add_slots(parser: argparse.ArgumentParser, label: str | None = None) -> None:
    """--label, --slots, --target and --device: what is served."""
    parser.add_argument(
        "--label",
        type=printable,
        required=label is None,
        default=label,
        metavar="L",
        help="what kind of device this is; a tuning run measures on devices of one label"
        + (f" (default: {label})" if label else ""),
    )
    parser.add_argument(
        "--slots", type=at_least(1), default=1, metavar="N", help="default: %(default)s"
    )
    parser.add_argument(
        "--target", default="llvm", help="what the slots run (default: this machine's processor)"
    )
    parser.add_argument(
        "--device",
        type=at_least(0),
        action="append",
        metavar="N",
        help="with a GPU's target: number of the GPU, once for each (default: 0)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until Ctrl-C, SIGTERM or SIGHUP."""
    from measure.cluster.settings import certificates, check_address, listening_host

    require("a worker", "distributed")
    listening_host(check_address(options.scheduler, options.tls_dir), options.host)
    if options.tls_dir is not None:
        certificates(options.tls_dir, "worker")
    from measure.cluster.supervisor import Supervisor

    slots = slots_of(options, options.host, options.name, options.engine)
    over: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, lambda number, _: over.put(number))
    with Supervisor(slots, say) as supervisor:
        supervisor.run(over)
    return 0


def slots_of(
    options: argparse.Namespace,
    host: str | None = None,
    name: str | None = None,
    engine: str | None = None,
) -> list[SlotOptions]:
    """The slots that `add_slots` names, of the scheduler at `options.scheduler`."""
    from autosched.target import Target
    from measure.cluster.supervisor import (
        SlotOptions,
        slots_of_cpu,
        slots_of_engine,
        slots_of_gpus,
    )

    target = Target(options.target)
    if options.device is not None and not target.is_gpu:
        raise MeasureError(f"--device is a GPU's number, and the target is {target}")
    common = SlotOptions(
        scheduler=options.scheduler,
        label=options.label,
        name=name or socket.gethostname(),
        tls_dir=None if options.tls_dir is None else str(options.tls_dir.absolute()),
        host=host,
        # A slot of some of the cores recommends itself for these.
        target=str(target) if target.is_gpu else options.target,
    )
    if engine is not None:
        return slots_of_engine(replace(common, engine=engine), options.slots)
    if not target.is_gpu:
        return slots_of_cpu(common, options.slots)
    if options.slots != 1:
        raise MeasureError("--slots divides a processor; of GPUs each --device is a slot")
    return slots_of_gpus(common, target.kind, options.device or [0])


def say(text: str) -> None:
    """What the supervisor tells."""
    print(text, file=sys.stderr, flush=True)
