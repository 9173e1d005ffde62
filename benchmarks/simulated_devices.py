"""Devices that exist in a process of their own only, for tests and benchmarks of the dispatcher.

They take as long for a candidate as they are told to, one batch after the other, and answer as a
slot's worker does: that they have begun, then answers together now and then, then the end. All say
the same of every candidate.
What goes between the two processes is JSON, one value a line. A batch's line begins with the little
that such devices look at, and then has the whole request, which is sent as to others, and not read:
their process has no cores of its own, as real devices would.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

from autosched.schedule import Trace
from measure.cluster.registry import Hello, Sighting
from measure.cluster.transport import Ended, Event, Listing, Message
from measure.cluster.wire import JsonDict, encode_hello, encode_result
from measure.status import MeasureResult

ROSTER_SECONDS = 1.0
END_SECONDS = 10.0
READ_BYTES = 1 << 20


class SimulatedTransport:
    """See `measure.cluster.transport.Transport`.

    `devices` maps names to what each says of itself. A candidate takes `seconds_each` and has the
    result `result`; a message is under way for `latency`.
    """

    def __init__(
        self,
        devices: Mapping[str, Hello],
        result: MeasureResult,
        seconds_each: float,
        latency: float = 0.001,
        label: str = "simulated",
    ) -> None:
        self._listing = Listing({name: Sighting(label, name, 0.0) for name in devices})
        self._listed = 0.0
        self._unsent: list[str] = []
        self._torn = b""
        options = {
            "devices": {name: encode_hello(hello) for name, hello in devices.items()},
            "result": encode_result(result),
            "seconds_each": seconds_each,
            "latency": latency,
        }
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "simulated_devices"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._write(options)

    def send(self, batch: int, address: str, label: str, request: JsonDict) -> None:
        """See `Transport.send`."""
        head: JsonDict = {"kind": request["kind"], "batch": batch, "device": address}
        if "items" in request:
            head["items"] = [item for item, _ in request["items"]]
            head["flush_seconds"] = request["flush_seconds"]
        self._unsent.append(f"{json.dumps(head)}{_REST}{json.dumps(request)}")

    def stop(self, batch: int, address: str, forget: bool) -> None:
        """See `Transport.stop`: nothing more is told of the batch, but that it ended."""
        self._write({"kind": "stop", "batch": batch, "forget": forget})

    def receive(self, seconds: float) -> list[Event]:
        """See `Transport.receive`."""
        self._flush()
        out: list[Event] = []
        now = time.monotonic()
        if now >= self._listed + ROSTER_SECONDS:
            self._listed, seconds = now, 0.0
            out.append(self._listing)
        source = self._process.stdout
        if source is None or not select.select([source], [], [], seconds)[0]:
            return out
        *lines, self._torn = (self._torn + os.read(source.fileno(), READ_BYTES)).split(b"\n")
        for line in lines:
            body: Any = json.loads(line)
            out.append(Ended(body, None) if isinstance(body, int) else Message(body))
        return out

    def close(self) -> None:
        """See `Transport.close`."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.stdin = self._process.stdout = None
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write(self, value: JsonDict) -> None:
        self._unsent.append(json.dumps(value))

    def _flush(self) -> None:
        """Send what was said since the last time, together."""
        if self._unsent and self._process.stdin is not None:
            text = memoryview(("\n".join(self._unsent) + "\n").encode())
            self._unsent = []
            while text:
                text = text[self._process.stdin.write(text) or 0 :]


_REST = "\t"
"""Stands before the part of a line that devices do not read; in JSON it is written as an escape."""
_FREE = ""
"""Due when a device is through with a batch: a line that is not sent."""


class _Devices:
    """The devices' side: what is due when, as lines of JSON."""

    def __init__(self, options: JsonDict) -> None:
        self._hellos: JsonDict = options["devices"]
        self._each: float = options["seconds_each"]
        self._latency: float = options["latency"]
        self._result = json.dumps(options["result"])
        self._baseline = {"result": options["result"], "trace": Trace().to_json()}
        self._due: list[tuple[float, int, int, str]] = []
        self._order = itertools.count()
        self._stopped: set[int] = set()
        self._forgotten: set[int] = set()
        self._queues: dict[str, deque[JsonDict]] = defaultdict(deque)  # the one in work is first
        self._devices: dict[int, str] = {}

    def take(self, request: JsonDict) -> None:
        """Plan what comes of a request."""
        if request["kind"] == "stop":
            (self._forgotten if request["forget"] else self._stopped).add(request["batch"])
            return
        device = self._devices[request["batch"]] = request["device"]
        self._queues[device].append(request)
        if len(self._queues[device]) == 1:
            self._begin(request, time.monotonic() + self._latency)

    def _begin(self, request: JsonDict, now: float) -> None:
        """Plan what a device that is free says of a request."""
        batch, kind = request["batch"], request["kind"]
        said = now + self._latency
        self._post(said, batch, "[]")
        if kind == "check":
            self._post(said, batch, "[]", json.dumps(self._hellos[request["device"]]))
        elif kind == "open":
            self._post(said, batch, json.dumps([[0, self._baseline]]))
        elif batch not in self._stopped | self._forgotten:
            now = self._work(batch, request, now)
        self._at(now, batch, _FREE)
        self._at(now + self._latency, batch, str(batch))

    def _work(self, batch: int, request: JsonDict, now: float) -> float:
        """Plan the answers to a batch; when the last is given."""
        together: list[str] = []
        said = now
        for n, item in enumerate(request["items"], 1):
            together.append(f"[{item},{self._result}]")
            then = now + n * self._each
            if then - said >= request["flush_seconds"] or n == len(request["items"]):
                self._post(then + self._latency, batch, f"[{','.join(together)}]")
                together, said = [], then
        return now + len(request["items"]) * self._each

    def _post(self, then: float, batch: int, answers: str, hello: str = "null") -> None:
        text = f'{{"batch":{batch},"answers":{answers},"unfit":[],"hello":{hello}}}'
        self._at(then, batch, text)

    def _at(self, then: float, batch: int, text: str) -> None:
        heapq.heappush(self._due, (then, next(self._order), batch, text))

    def ready(self) -> str:
        """The lines that are due."""
        out: list[str] = []
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            then, _, batch, text = heapq.heappop(self._due)
            if text == _FREE:
                waiting = self._queues[self._devices.pop(batch)]
                waiting.popleft()
                if waiting:
                    self._begin(waiting[0], then)
                continue
            silent = self._forgotten if text == str(batch) else self._stopped | self._forgotten
            if batch not in silent:
                out.append(text + "\n")
        return "".join(out)

    def wait_seconds(self) -> float:
        """Until something is due."""
        return max(0.0, self._due[0][0] - time.monotonic()) if self._due else 1.0


def main() -> None:
    """Serve requests from standard input until its end."""
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    source = sys.stdin.buffer

    def read() -> None:
        # Always reads, so that no two writers ever wait for each other.
        for line in source:
            requests.put(line.partition(_REST.encode())[0])
        requests.put(None)

    devices = _Devices(json.loads(source.readline()))
    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = requests.get(timeout=devices.wait_seconds())
            while line is not None:
                devices.take(json.loads(line))
                line = requests.get_nowait()
            return
        except queue.Empty:
            pass
        try:
            sys.stdout.write(devices.ready())
            sys.stdout.flush()
        except BrokenPipeError:
            os._exit(0)


if __name__ == "__main__":
    main()
