"""Clusters of real processes for tests: a scheduler and workers, started as users start them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from measure.cluster.flights import Limits
from measure.cluster.pool import ClusterPool
from measure.cluster.registry import State

AUTOSCHED = (sys.executable, "-m", "autosched.cli")
HERE = Path(__file__).parent
START_SECONDS = 120.0
QUICK = Limits(batch_seconds=1.0, batch_items=8, silence=12.0, stall=60.0, check=60.0)
"""Patience for tests: what is silent for 12 seconds is given up."""


class Process:
    """A command line whose standard error, or output, is read as it comes."""

    def __init__(self, *arguments: str, prefix: tuple[str, ...] = ()) -> None:
        path = os.pathsep.join([str(HERE), str(HERE.parent.parent)])
        self.popen = subprocess.Popen(
            [*prefix, *AUTOSCHED, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append(line.rstrip("\n"))

    def wait_for(self, text: str, count: int = 1) -> str:
        """The `count`-th line with `text`, once it has come."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            found = [line for line in list(self.lines) if text in line]
            if len(found) >= count:
                return found[count - 1]
            if self.popen.poll() is not None and not self._reader.is_alive():
                break
            time.sleep(0.02)
        raise AssertionError(f"no line with {text!r} in {self.lines}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; the exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        status = self.popen.wait(60)
        self._reader.join(10)
        assert self.popen.stdout is not None
        self.popen.stdout.close()
        return status


class Cluster:
    """A scheduler and any number of workers. A context manager."""

    def __init__(self, host: str = "127.0.0.1", tls_dir: Path | None = None, port: int = 0) -> None:
        self.tls = () if tls_dir is None else ("--tls-dir", str(tls_dir))
        self.tls_dir = tls_dir
        self.host = host
        self.workers: list[Process] = []
        self.scheduler = self._start(port)
        self.address = self.scheduler.wait_for("scheduler at").split()[-1]

    def _start(self, port: int) -> Process:
        return Process("scheduler", "--host", self.host, "--port", str(port), *self.tls)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        for process in [*self.workers, self.scheduler]:
            process.end()

    def work(
        self,
        label: str,
        engine: str,
        slots: int = 1,
        prefix: tuple[str, ...] = (),
        wait: bool = True,
        name: str = "here",
        host: str = "",
    ) -> Process:
        """A worker of `cluster_doubles`' engine; returns once its slots are connected."""
        options = ("--scheduler", self.address, "--label", label, "--slots", str(slots))
        what: tuple[str, ...] = ("--engine", f"cluster_doubles:{engine}", "--name", name)
        if host:
            what += ("--host", host)
        started = Process("worker", *options, *what, *self.tls, prefix=prefix)
        self.workers.append(started)
        if wait:
            started.wait_for("connected", slots)
        return started

    def restart_scheduler(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the scheduler and start another at the same address."""
        self.scheduler.end(number)
        self.scheduler = self._start(int(self.address.rpartition(":")[2]))
        self.scheduler.wait_for("scheduler at")

    def pool(self, label: str, limits: Limits = QUICK, wait_seconds: float = 60.0) -> ClusterPool:
        """A pool of the devices of a label."""
        return ClusterPool(
            self.address, label, self.tls_dir, target="llvm -num-cores=1", limits=limits,
            wait_seconds=wait_seconds,
        )  # fmt: skip


def wait_ready(pool: ClusterPool, count: int) -> None:
    """Until `count` devices of the pool may work."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        states = [d.state for d in pool.devices()]
        if sum(s in (State.READY, State.BUSY) for s in states) >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"not {count} devices ready: {pool.devices()}")


def slot_processes(worker: Process) -> list[int]:
    """Ids of a worker's slot processes, in the order in which they were started."""
    pid = worker.popen.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in children.split()]
