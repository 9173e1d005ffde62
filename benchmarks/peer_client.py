"""Peers from our side: engines in processes of their own, stopped except while they are timed.

The workers of BLAS libraries spin between calls and would take a core from whoever is timed next;
so a peer's process is stopped (SIGSTOP) outside its turns. `peers/serve.py` is the other end.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
PEER_PYTHON = ROOT / ".bench-venv" / "bin" / "python"
SERVER = ROOT / "benchmarks" / "peers" / "serve.py"

Weights = Literal["run-time", "constant"]
_OPEN_SECONDS = 240.0
_TURN_SECONDS = 60.0


class PeerError(Exception):
    """A peer that cannot be opened, or that died; the message carries its own words."""


class Peer:
    """An engine on a workload, in a stopped process. Use as a context; closing ends the process.

    `command` is the server's command line where it is not `peers/serve.py`; it has `open_seconds`
    to be ready. Raises PeerError if the environment is not there or the engine refuses the
    workload.
    """

    def __init__(
        self,
        engine: str,
        workload: str,
        threads: int,
        weights: Weights = "run-time",
        command: Sequence[str] = (),
        open_seconds: float | None = None,
    ) -> None:
        if not command and not PEER_PYTHON.exists():
            raise PeerError(f"{PEER_PYTHON} does not exist; `make bench-setup` makes it")
        self.engine, self.workload, self.threads, self.weights = engine, workload, threads, weights
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the peer
        words = [str(PEER_PYTHON), str(SERVER), "--engine", engine, "--workload", workload]
        words += ["--threads", str(threads), "--weights", weights]
        self._process = subprocess.Popen(
            list(command) or words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **_environment(engine, threads)},
            start_new_session=True,
            # Nothing may be left to flush to a process that has died.
            bufsize=0,
        )
        self._left = b""
        try:
            hello = self._answer(open_seconds or _OPEN_SECONDS)
        except PeerError:
            self.close()
            raise
        if not hello["ready"]:
            self.close()
            raise PeerError(f"{engine} on {workload}: {hello['error']}")
        self.about: dict[str, Any] = hello["about"]
        self._signal(signal.SIGSTOP)

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def turn(self, calls: int, seconds: float) -> tuple[float, float]:
        """At least `calls` calls that fill `seconds`: the minimum in seconds, and that of calls on
        the smallest workload of the kind."""
        self._signal(signal.SIGCONT)
        try:
            request = json.dumps({"calls": calls, "seconds": seconds}) + "\n"
            assert self._process.stdin is not None
            self._process.stdin.write(request.encode())
            answer = self._answer(_TURN_SECONDS)
        except BrokenPipeError as e:
            raise PeerError(f"{self.engine} on {self.workload} died: {self._tail()}") from e
        finally:
            self._signal(signal.SIGSTOP)
        return float(answer["min"]), float(answer["call"])

    def close(self) -> None:
        """End the process and all that it started."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            os.killpg(self._process.pid, number)

    def _answer(self, seconds: float) -> dict[str, Any]:
        """The next line of the server."""
        pipe = self._process.stdout
        assert pipe is not None
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._left:
                if not ready.select(max(0.0, end - time.monotonic())):
                    raise PeerError(f"{self.engine} on {self.workload}: silent for {seconds:.0f} s")
                part = os.read(pipe.fileno(), 1 << 16)
                if not part:
                    raise PeerError(f"{self.engine} on {self.workload} died: {self._tail()}")
                self._left += part
        line, _, self._left = self._left.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _tail(self) -> str:
        self._errors.seek(0)
        return self._errors.read().strip()[-1000:] or f"no message, {self._process.poll()=}"


def _environment(engine: str, threads: int) -> dict[str, str]:
    """Environment under which a library takes its number of threads and its kernels."""
    found = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "OPENBLAS", "MKL")}
    if engine == "numpy-skx":
        # The wheel's OpenBLAS takes AVX2 kernels on processors that it does not know.
        found["OPENBLAS_CORETYPE"] = "SKYLAKEX"
    # Results that an engine allocates come from the heap again, not as fresh pages each call.
    found |= {"MALLOC_MMAP_THRESHOLD_": str(32 << 20), "MALLOC_TRIM_THRESHOLD_": str(1 << 33)}
    return found


def open_peers(
    engines: Iterable[str], workload: str, threads: int, weights: Weights = "run-time"
) -> list[Peer]:
    """Open the engines that can do a workload; those that cannot are printed with the reason.

    Raises PeerError if none can.
    """
    opened: list[Peer] = []
    try:
        for engine in engines:
            try:
                opened.append(Peer(engine, workload, threads, weights))
            except PeerError as e:
                print(f"  left out: {e}")
    except BaseException:
        close(opened)
        raise
    if not opened:
        raise PeerError(f"no engine could be opened for {workload}")
    return opened


def close(peers: Iterable[Peer]) -> None:
    """End all of them."""
    for peer in peers:
        peer.close()


class OtherLoad:
    """How many cores processes that are no part of the benchmark keep busy."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        self._pids = ["self", *(str(peer.pid) for peer in peers)]
        self._start = self._seconds()

    def cores(self) -> float:
        """Mean since this object was made; 0 on an otherwise idle machine."""
        (busy, mine, now), (busy_0, mine_0, start) = self._seconds(), self._start
        return max(0.0, (busy - busy_0 - (mine - mine_0)) / (now - start))

    def _seconds(self) -> tuple[float, float, float]:
        """(busy seconds of all cores, those of our processes, time)."""
        tick = os.sysconf("SC_CLK_TCK")
        first = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(n) for n in first)
        mine = 0
        for pid in self._pids:
            # The name in parentheses may hold blanks; the fields after it do not.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            mine += int(fields[11]) + int(fields[12])
        busy = user + nice + system + irq + softirq + steal
        return busy / tick, mine / tick, time.monotonic()
