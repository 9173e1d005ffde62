"""Keeps the slots of this host served: one process each, started again when it dies.

It lives as long as the slots do, and loads no Dask.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from autosched.closing import Closing
from autosched.errors import MeasureError
from measure.process.template_client import environment, wait_or_kill

CLAIMED = 3
"""Exit status: another worker of this host has the slot."""
LOOK_SECONDS = 0.1
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 10.0
STEADY_SECONDS = 10.0
END_SECONDS = 10.0


@dataclass(frozen=True)
class SlotOptions:
    """One slot. `name` is unique in the cluster, `slot` on this host (it names the lock, or a GPU).

    `cores`: what the process may use, empty for all. `engine`: "module:function" that makes the
    pool which measures (see `cluster.worker.Engine`). `host`: the address that the scheduler and
    this worker reach each other by, None to find out. `target`: what its canary is built for.
    """

    scheduler: str
    label: str
    name: str
    slot: str = "cpu"
    cores: tuple[int, ...] = ()
    engine: str = "measure.cluster.worker:local_engine"
    tls_dir: str | None = None
    host: str | None = None
    target: str = "llvm"

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> SlotOptions:
        """What `to_json` wrote."""
        values = json.loads(text)
        return SlotOptions(**{**values, "cores": tuple(values["cores"])})


def slots_of_cpu(common: SlotOptions, count: int) -> list[SlotOptions]:
    """`count` slots that share this process's cores evenly; each is pinned to its own.

    `common` has what they have in common, `name` being this machine's. One slot is the whole
    processor, as for a local pool. Raises MeasureError if the cores cannot be divided so: slots of
    different sizes would not compare.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) % count:
        raise MeasureError(
            f"{len(cores)} cores do not divide into {count} equal slots; choose another number, or "
            "limit the cores with taskset"
        )
    if count == 1:
        return [replace(common, name=f"{common.label}@{common.name}")]
    size = len(cores) // count
    parts = [tuple(cores[n * size : (n + 1) * size]) for n in range(count)]
    # The lock of "cpu/0-1" excludes the whole's timing too: see measure.local.lock.
    return [_slot(common, f"cpu/{'-'.join(map(str, part))}", part) for part in parts]


def slots_of_gpus(common: SlotOptions, kind: str, devices: Sequence[int]) -> list[SlotOptions]:
    """One slot a GPU: of OpenCL or CUDA, by their numbers."""
    return [_slot(common, f"{kind}/{n}") for n in devices]


def slots_of_engine(common: SlotOptions, count: int) -> list[SlotOptions]:
    """`count` slots of a user's engine, which knows itself what they stand for."""
    return [replace(s, slot=s.name) for s in (_slot(common, str(n)) for n in range(count))]


def _slot(common: SlotOptions, slot: str, cores: tuple[int, ...] = ()) -> SlotOptions:
    return replace(common, name=f"{common.label}@{common.name}:{slot}", slot=slot, cores=cores)


@dataclass
class _Slot:
    options: SlotOptions
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = FIRST_PAUSE
    due: float = 0.0


class Supervisor(Closing):
    """The slot processes. A context manager; `run` serves until it is told to end."""

    def __init__(self, slots: Sequence[SlotOptions], say: Callable[[str], None]) -> None:
        self._slots = [_Slot(options) for options in slots]
        self._say = say

    @property
    def processes(self) -> tuple[int, ...]:
        """Ids of the slot processes that are alive, in order of the slots."""
        alive = (s.process for s in self._slots)
        return tuple(p.pid for p in alive if p is not None and p.poll() is None)

    def run(self, over: queue.SimpleQueue[int]) -> None:
        """Serve until `over` has something, which a handler of a signal may put there: it would
        wait for itself at an event whose lock this thread holds. Raises MeasureError if a slot is
        another worker's."""
        while True:
            try:
                over.get(timeout=LOOK_SECONDS)
                return
            except queue.Empty:
                self.look()

    def look(self) -> None:
        """Start what is not running and due. Raises MeasureError if a slot is another worker's."""
        now = time.monotonic()
        for slot in self._slots:
            if slot.process is not None and (status := slot.process.poll()) is not None:
                if status == CLAIMED:
                    raise MeasureError(f"{slot.options.name} cannot be served; see above")
                slot.process = None
                steady = now - slot.started > STEADY_SECONDS
                slot.pause = FIRST_PAUSE if steady else min(2 * slot.pause, LONGEST_PAUSE)
                slot.due = now + slot.pause
                self._say(f"{slot.options.name}: ended ({_ending(status)}), to be started again")
            if slot.process is None and now >= slot.due:
                slot.process = _start(slot.options)
                slot.started = now

    def close(self) -> None:
        """End all slot processes, and with them all that they started."""
        running = [s.process for s in self._slots if s.process is not None]
        for process in running:
            process.terminate()
        end = time.monotonic() + END_SECONDS
        for process in running:
            wait_or_kill(process, max(0.0, end - time.monotonic()))
        for slot in self._slots:
            slot.process = None


def _start(options: SlotOptions) -> subprocess.Popen[bytes]:
    # No secrets, no thread variables, no settings of Dask: what a slot does depends on its options.
    command = [sys.executable, "-P", "-m", "measure.cluster.slot_process", str(os.getpid())]
    return subprocess.Popen(
        [*command, options.to_json()],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the supervisor, which then ends them in order
    )


def _ending(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"
