"""A server in a process of its own, as users start it, which can be killed and started again."""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from serving import EXAMINE_SECONDS

REPLAY = "replay:model?seconds=0.01"
START_SECONDS = 120.0
_URL = re.compile(r"http://127\.0\.0\.1:\d+")


class ServerProcess:
    """`autosched serve` on a database. A context manager; leaving kills what is there."""

    def __init__(self, folder: Path, db: str, pool: str = REPLAY, **settings: object) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        usual = {"poll_seconds": 0.1, "lease_seconds": 10, "examine_processes": 1}
        given = usual | {"examine_seconds": EXAMINE_SECONDS} | settings
        self.environment = os.environ | {
            f"AUTOSCHED_{name.upper()}": str(value) for name, value in given.items()
        }
        self.command = [sys.executable, "-m", "autosched.cli", "serve", "--port", "0"]
        self.command += ["--db", db, "--pool", pool]
        self.process: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> ServerProcess:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        if error is not None and self.log.exists():
            print(self.log.read_text()[-5000:])

    def start(self) -> None:
        """Start it, and wait until it serves."""
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                self.command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=self.environment,
                cwd=Path(__file__).parents[2],
            )
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            assert selector.select(START_SECONDS), "the server did not say that it serves"
        found = _URL.search(line := self.process.stdout.readline())
        assert found, f"expected a URL, found {line!r}: {self.log.read_text()[-3000:]}"
        self.url = found.group()

    def kill(self) -> None:
        """kill -9, as the kernel does when memory is short."""
        if self.process is not None:
            self.process.kill()
            self._reap()

    def terminate(self, seconds: float = 60.0) -> None:
        """SIGTERM, and wait until it has ended in order."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(seconds) == 0
        self._reap()

    def _reap(self) -> None:
        if self.process is not None:
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """A client of the server that runs now."""
        with httpx.Client(base_url=self.url, timeout=120) as client:
            yield client


def runners_of(job_id: str) -> list[int]:
    """The processes that work on a job, whoever started them."""
    titles = {int(f.name): _title(f.name) for f in Path("/proc").iterdir() if f.name.isdigit()}
    return [
        pid for pid, title in titles.items() if "server.jobs.runner" in title and job_id in title
    ]


def _title(pid: int | str) -> str:
    """The command line of a process; empty if it has ended, or is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def submit(client: httpx.Client, trials: int, **more: Any) -> dict[str, Any]:
    """Submit a small job; the job."""
    args = more.pop("args", [32, 32, 32])
    options = {"num_measure_trials": trials, "num_measures_per_round": 8} | more.pop("options", {})
    headers = more.pop("headers", {})
    body = {"workload": {"name": "matmul", "args": args}, "options": options} | more
    answer = client.post("/v1/jobs", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def wait_for(
    client: httpx.Client, job_id: str, *states: str, trials: int = 0, seconds: float = 120.0
) -> dict[str, Any]:
    """The job once it is in one of `states` (any, if none is named) with at least so many trials
    done."""
    deadline = time.monotonic() + seconds
    while True:
        job: dict[str, Any] = client.get(f"/v1/jobs/{job_id}").raise_for_status().json()
        if (not states or job["state"] in states) and job["trials_done"] >= trials:
            return job
        assert time.monotonic() < deadline, f"waited {seconds} s for {states}: {job}"
        time.sleep(0.05)
