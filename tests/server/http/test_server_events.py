"""Streams of events: complete, in order, resumable, bounded, and ended with the server."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from server_process import submit
from serving import serving

from records import JobQueue, Lease, Store
from server.http import event_streams, listening
from server.http.connections import Connection, _acknowledged
from server.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        db=str(tmp_path / "x.db"), poll_seconds=0.05, jobs_at_once=0, examine_processes=1
    )


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    with Store(settings.db) as store:
        yield store


@pytest.fixture
def client(settings: Settings, store: Store) -> Iterator[httpx.Client]:
    with serving(settings) as client:
        yield client


def read(lines: Iterator[str], count: int | None = None) -> list[dict[str, Any]]:
    """The next `count` events of a stream, or all to its end."""
    found: list[dict[str, Any]] = []
    event: dict[str, Any] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if name in ("event", "id", "data"):
            event[name] = value
        elif not line and "data" in event:
            body = json.loads(event["data"])
            assert (str(body["id"]), body["kind"]) == (event["id"], event["event"])
            found.append(body)
            event = {}
            if len(found) == count:
                break
    return found


def test_a_stream_tells_all_and_ends_with_the_job(client: httpx.Client, store: Store) -> None:
    job = submit(client, 4)
    queue = JobQueue(store)
    with client.stream("GET", f"/v1/jobs/{job['id']}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert read(lines, 1)[0]["data"]["state"] == "queued"
        queue.claim("test", 60)
        assert read(lines, 1)[0]["data"]["state"] == "running"
        for number in range(40):  # more than a stream holds at a time
            store.add_event(job["id"], "progress", {"number": number})
        queue.finish(Lease(job["id"], 1), "succeeded")
        rest = read(lines)
    assert [e["data"]["number"] for e in rest[:-1]] == list(range(40))
    assert rest[-1]["data"]["state"] == "succeeded"


def test_a_stream_goes_on_after_the_last_event_that_was_seen(
    client: httpx.Client, store: Store
) -> None:
    job = submit(client, 4)
    where = f"/v1/jobs/{job['id']}/events"
    for number in range(10):
        store.add_event(job["id"], "progress", {"number": number})
    with client.stream("GET", where) as stream:
        seen = read(stream.iter_lines(), 5)
    JobQueue(store).cancel(job["id"])
    last = str(seen[-1]["id"])
    with client.stream("GET", where, headers={"Last-Event-ID": last}) as stream:
        rest = read(stream.iter_lines())
    assert [e["data"].get("number") for e in seen + rest] == [None, *range(10), None]
    # The browser's own: what it has seen goes before the URL that it began with.
    asked = {"params": {"after": 0}, "headers": {"Last-Event-ID": str(rest[-1]["id"])}}
    assert client.get(where, **asked).status_code == 204  # type: ignore[arg-type]
    for bad in ("x", "-1", "9" * 20):
        assert client.get(where, headers={"Last-Event-ID": bad}).status_code in (400, 422)


def test_the_polling_twin_tells_the_same(client: httpx.Client, store: Store) -> None:
    job = submit(client, 4)
    for number in range(5):
        store.add_event(job["id"], "progress", {"number": number})
    JobQueue(store).cancel(job["id"])
    where, after, polled = f"/v1/jobs/{job['id']}/events", 0, []
    while True:
        page = client.get(
            where, params={"after": after, "limit": 3}, headers={"Accept": "application/json"}
        ).json()
        polled += page["items"]
        after = page["last_id"]
        if page["ended"]:
            break
    with client.stream("GET", where) as stream:
        assert read(stream.iter_lines()) == polled


def test_a_stream_ends_with_the_server_while_it_asks_about_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_streams, "ALLOWED_SECONDS", 0.01)
    quiet: Any = SimpleNamespace(job_and_events=lambda *_, **__: (SimpleNamespace(state="x"), []))
    hub = event_streams.EventHub(quiet, 0.01)
    asked = 0

    async def allowed() -> bool:
        nonlocal asked
        asked += 1
        if asked == 1:
            hub.close()
        assert asked < 5, "it goes on"
        return True

    async def told() -> list[bytes]:
        return [part async for part in hub.stream("j", 0, allowed)]

    assert asyncio.run(told()) == [b"retry: 2000\n\n"]


@pytest.mark.parametrize("streams", [20, pytest.param(200, marks=pytest.mark.long)])
def test_slow_readers_hold_no_memory(client: httpx.Client, store: Store, streams: int) -> None:
    """Readers that take nothing, while megabytes are told; then they get all of it."""
    job = submit(client, 4)
    began = resident()
    readers = [_reader(client, job["id"]) for _ in range(streams)]
    try:
        text = "x" * 20_000
        for _ in range(100):  # two megabytes for each of them
            store.add_event(job["id"], "progress", {"text": text})
        JobQueue(store).cancel(job["id"])
        time.sleep(2.0)
        assert client.get(f"/v1/jobs/{job['id']}").status_code == 200
        grown = resident() - began
        # What the sockets hold is the kernel's; a stream holds some events, and a part being sent.
        assert grown < streams * 1_000_000 + 50_000_000, f"{grown / streams:.0f} bytes a stream"
        assert _events_of(readers[0]) == 102
    finally:
        for reader in readers:
            reader.close()


def test_who_never_reads_is_cut_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings(
        db=str(tmp_path / "x.db"), poll_seconds=0.05, jobs_at_once=0, examine_processes=1,
        write_seconds=0.5,
    )  # fmt: skip
    with serving(settings) as client, Store(settings.db) as store:
        job = submit(client, 4)
        for _ in range(40):  # more than the sockets hold
            store.add_event(job["id"], "progress", {"text": "x" * 500_000})
        with _reader(client, job["id"], window=4096) as silent:
            deadline = time.monotonic() + 60
            while "its client was behind" not in caplog.text:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            while "autosched_streams_open 0.0" not in client.get("/metrics").text:
                assert time.monotonic() < deadline
            with silent.makefile("rb") as stream, suppress(ConnectionResetError):
                assert not stream.read().endswith(b"0\r\n\r\n"), "it was told all of it"


def test_long_answers_that_nobody_reads_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of one address, whatever its clients ask for; others are answered."""
    monkeypatch.setattr(listening, "UNSENT_BYTES", 32_000_000)
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0, examine_processes=1)
    with serving(settings) as client, Store(settings.db) as store, ExitStack() as stack:
        job = submit(client, 4)
        for _ in range(30):
            store.add_event(job["id"], "progress", {"text": "x" * 500_000})
        path = f"/v1/jobs/{job['id']}/events?limit=100"
        silent = [_asking(client, path, "127.0.0.2", window=4096) for _ in range(4)]
        for one in silent:
            stack.enter_context(one)
        deadline = time.monotonic() + 60
        while caplog.text.count("too many bytes wait") < 3:
            assert time.monotonic() < deadline, caplog.text
            time.sleep(0.05)
        whole = client.get(path, headers={"Accept": "application/json"})
        assert len(whole.json()["items"]) == 31
        assert sum(_whole(one) for one in silent) == 1, "the others were cut"


def test_who_reads_slowly_is_seen_to_read() -> None:
    """Also while the buffers here stay as they are."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as reader,
        listener.accept()[0] as accepted,
    ):
        timers: list[tuple[int, int]] = []
        aborted: list[bool] = []
        made: Any = Connection.__new__(Connection)
        made.write_seconds = 30.0
        made.visit = SimpleNamespace(hold=lambda unsent: True)
        made.loop = SimpleNamespace(call_later=lambda _, __, *args: timers.append(args))
        made.transport = SimpleNamespace(
            get_extra_info=lambda _: accepted,
            get_write_buffer_size=lambda: 1 << 20,
            abort=lambda: aborted.append(True),
        )
        made._watch_reader()
        accepted.sendall(bytes(5000))
        with reader.makefile("rb") as stream:
            stream.read(5000)
        deadline = time.monotonic() + 10
        while _acknowledged(made.transport) - timers[0][1] < 5000:
            if time.monotonic() > deadline:
                pytest.skip("this system does not count what was acknowledged")
            time.sleep(0.001)
        made._judge_reader(*timers[0])
        assert (len(timers), aborted) == (2, [])
        made._judge_reader(*timers[1])
        assert aborted


def _reader(client: httpx.Client, job_id: str, window: int | None = None) -> socket.socket:
    return _asking(client, f"/v1/jobs/{job_id}/events", "127.0.0.1", window, "text/event-stream")


def _asking(
    client: httpx.Client,
    path: str,
    source: str,
    window: int | None = None,
    accept: str = "application/json",
) -> socket.socket:
    """A connection from that address which has asked for `path`."""
    found = socket.socket()
    if window is not None:  # what the kernel takes for a program that does not
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    found.settimeout(60)
    found.bind((source, 0))
    found.connect(("127.0.0.1", client.base_url.port or 80))
    head = f"Host: 127.0.0.1\r\nAccept: {accept}\r\nConnection: close"
    found.sendall(f"GET {path} HTTP/1.1\r\n{head}\r\n\r\n".encode())
    return found


def _whole(stream: socket.socket) -> bool:
    """Whether all of an answer arrives."""
    told = b""
    with suppress(ConnectionResetError):
        while part := stream.recv(1 << 20):
            told += part
    head, _, body = told.partition(b"\r\n\r\n")
    return b"content-length: %d\r\n" % len(body) in head.lower() + b"\r\n"


def _events_of(reader: socket.socket) -> int:
    count = 0
    with reader.makefile("rb") as stream:
        for line in stream:
            count += line.startswith(b"event: ")
    return count


def resident() -> int:
    """Bytes of memory of this process, which the server is part of."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
