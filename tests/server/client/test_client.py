"""The typed client, against a server that works and against one that does not."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import httpx
import pytest
from serving import serving

import autosched as at
from measure.cluster.certs import make_certs
from records import ImportReport
from server.client import Client, RequestRefused, ServiceError, ServiceUnreachable
from server.client.address import path_part
from server.client.answers import Retry
from server.routes import exchange
from server.settings import Settings


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server with a pool of made-up devices."""
    settings = Settings(
        db=str(tmp_path_factory.mktemp("client") / "x.db"),
        pool="replay:model?seconds=0.02",
        poll_seconds=0.1,
        examine_processes=1,
    )
    with serving(settings) as plain, Client(str(plain.base_url)) as client:
        yield client


@pytest.fixture(scope="module")
def done(client: Client) -> str:
    """The id of a job of 16 trials that has ended."""
    job = client.submit("matmul", (16, 16, 16), trials=16, options={"num_measures_per_round": 4})
    for _ in client.follow(job.id):
        pass
    assert client.job(job.id).state == "succeeded"
    return job.id


def test_following_a_job_to_its_end(client: Client, done: str) -> None:
    events = list(client.follow(done))
    assert [e.data["state"] for e in events if e.kind == "state"] == [
        "queued", "running", "succeeded",
    ]  # fmt: skip
    told = [r for e in events if e.kind == "progress" for r in e.data["records"]]
    assert sum(record["trial"] is not None for record in told) == 16
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))
    assert [e.id for e in client.follow(done, after=ids[3])] == ids[4:]
    assert list(client.follow(done, after=ids[-1])) == []
    page = client.events(done, limit=500)
    assert ([e.id for e in page.items], page.ended) == (ids, True)


def test_reading_what_there_is(client: Client, done: str) -> None:
    job = client.job(done)
    assert done in [listed.id for listed in client.jobs(state="succeeded")]
    workload = client.workload(job.workload_key)
    assert job.workload_key in [w.key for w in client.workloads()]
    assert (workload.name, workload.flop) == ("matmul", 2.0 * 16**3)
    best = client.best(job.workload_key, job.target)
    assert client.record(best.id).measurements
    assert client.curve(done).points[-1].seconds == job.best_seconds
    records = list(client.records(job_id=done))
    assert len(records) == 18
    assert list(client.records(job_id=done, status="run_timeout")) == []
    task = at.SearchTask("matmul", (16, 16, 16), target=job.target)
    names: dict[str, Callable[[at.Schedule], None]] = {}
    exec(client.text(best.id, "schedule"), names)
    schedule = at.Schedule(task.prim_func)
    names["apply"](schedule)
    assert schedule.func.script() == client.text(best.id, "script")
    assert "define" in client.text(best.id, "source")
    assert ".text" in client.text(best.id, "asm")


def test_submitting_a_script_and_one_key_twice(client: Client) -> None:
    script = at.SearchTask("softmax", (4, 8)).prim_func.script()
    first = client.submit(script=script, trials=1, key="a-key")
    assert client.submit(script=script, trials=1, key="a-key").id == first.id
    with pytest.raises(RequestRefused, match="used before, for another request") as caught:
        client.submit(script=script, trials=2, key="a-key")
    assert (caught.value.status, caught.value.problem is not None) == (409, True)


def test_cancelling_and_resuming(client: Client) -> None:
    job = client.submit("matmul", (16, 16, 32), trials=2000)
    assert client.cancel(job.id).state in ("cancelled", "cancelling")
    list(client.follow(job.id))
    stopped = client.job(job.id)
    assert stopped.state == "cancelled"
    again = client.resume(job.id, 5)
    assert (again.state, again.trials_requested) == ("queued", 2005)
    with pytest.raises(RequestRefused, match="cannot be resumed"):
        client.resume(job.id, 5)
    client.cancel(job.id)


def test_records_go_out_and_come_in(client: Client, done: str) -> None:
    log = b"".join(client.export_records(job_id=done))
    assert sum(json.loads(line)["kind"] == "trial" for line in log.splitlines()) == 16
    report = client.import_records(io.BytesIO(log + b"torn"))
    assert (report.new, report.known, report.refused) == (0, 18, 1)


def test_what_is_refused_says_why(client: Client) -> None:
    with pytest.raises(RequestRefused, match="no job nobody") as caught:
        client.job("nobody")
    assert caught.value.status == 404
    with pytest.raises(RequestRefused, match=r"matmul.*\n?.*'M'|'M'"):
        client.submit("matmul", (4, 5))
    with pytest.raises(RequestRefused, match=r"body/options/num_measure_trials") as caught:
        client.submit("matmul", (4, 5, 6), trials=0)
    assert str(caught.value).count("num_measure_trials") == 1
    with pytest.raises(RequestRefused, match=r"'matmull' in the library \(did you mean matmul\?\)"):
        client.submit("matmull", (4, 5, 6))
    with pytest.raises(ServiceError, match="the name of an operator, a script, or a model"):
        client.submit()


@pytest.mark.parametrize("text", ["../records", "..", ".", "a/b", "a?b=c", "a#b", "a%2Fb", "é b"])
def test_an_id_is_one_part_of_a_path(text: str) -> None:
    url = httpx.URL("http://host").join(f"/v1/jobs/{path_part(text)}/tasks")
    before, found, after = url.raw_path.decode().rsplit("/", 2)
    assert (before, unquote(found), after) == ("/v1/jobs", text, "tasks")
    assert (url.query, url.fragment) == (b"", "")


# A server that fails

JOB = {
    "id": "1" * 32, "state": "queued", "workload_key": "w", "workload_name": "m",
    "workload_args": None, "target": "llvm", "device": None, "seed": 0, "options": {},
    "priority": 0, "client": "", "trials_requested": 1, "trials_done": 0, "best_seconds": None,
    "error": None, "origin": "local", "created_at": "2026-01-31T12:00:00Z",
    "updated_at": "2026-01-31T12:00:00Z",
}  # fmt: skip
PROBLEM = {
    "type": "about:blank", "title": "Busy", "status": 503, "detail": "the database is away",
    "instance": "/", "request_id": "r1",
}  # fmt: skip
Answer = tuple[int, dict[str, str], bytes]
HANG_UP: Answer = (0, {}, b"")
BUSY: Answer = (
    503, {"Retry-After": "0", "Content-Type": "application/problem+json"},
    json.dumps(PROBLEM).encode(),
)  # fmt: skip
FOUND: Answer = (200, {"Content-Type": "application/json"}, json.dumps(JOB).encode())


def stream(*ids: int, torn: bytes = b"") -> Answer:
    """A stream that tells of these events and breaks off."""
    body = b"retry: 2000\n\n: still here\n\n"
    for number in ids:
        event = {"id": number, "job_id": JOB["id"], "kind": "progress", "data": {"n": number},
                 "created_at": "2026-01-31T12:00:00Z"}  # fmt: skip
        body += f"event: progress\ndata: {json.dumps(event)}\nid: {number}\n\n".encode()
    return 200, {"Content-Type": "text/event-stream"}, body + torn


@contextmanager
def failing(*answers: Answer) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The URL of a server that gives these answers, and the headers of the requests it got."""
    left, seen = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({k.lower(): v for k, v in self.headers.items()})
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, body = left.pop(0)
            self.close_connection = True
            if status == 0:
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()
    assert left == [], "the client did not ask often enough"


def test_a_submission_is_repeated_under_one_key() -> None:
    with failing(BUSY, HANG_UP, BUSY, FOUND) as (url, seen), Client(url, "secret") as client:
        assert client.submit("m").id == JOB["id"]
    assert len({headers["idempotency-key"] for headers in seen}) == 1
    assert {headers["authorization"] for headers in seen} == {"Bearer secret"}


def test_patience_ends() -> None:
    answers = [(503, {"Retry-After": "30", "Content-Type": "application/json"}, BUSY[2])]
    with (
        failing(*answers) as (url, _),
        Client(url, patience=5) as client,
        pytest.raises(RequestRefused, match="Busy: the database is away"),
    ):
        client.job("x")
    with (
        Client("http://127.0.0.1:1", patience=0.2) as client,
        pytest.raises(ServiceUnreachable, match=r"does not answer: .*is the server running"),
    ):
        client.job("x")


def test_a_certificate_of_an_unknown_authority_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_certs(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "scheduler.pem", tmp_path / "scheduler-key.pem")
    monkeypatch.setattr(Retry, "pause", lambda *_: pytest.fail("it waits"))
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def shake_hands() -> None:
            with contextlib.suppress(OSError), listener.accept()[0] as accepted:
                context.wrap_socket(accepted, server_side=True).close()

        pool.submit(shake_hands)
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with (
            Client(url, patience=60) as client,
            pytest.raises(ServiceUnreachable, match=r"cannot be trusted: .*CERTIFICATE_VERIFY"),
        ):
            client.submit("matmul", (4, 5, 6))


def test_who_waits_is_told_why_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    busy = (503, {"Retry-After": "3", "Content-Type": "application/json"}, BUSY[2])
    told: list[str] = []
    with failing(busy, busy, FOUND) as (url, _), Client(url, on_wait=told.append) as client:
        client.job("x")
    (why,) = told
    assert "the database is away" in why
    assert "trying again for" in why


def test_taking_in_a_log_may_take_longer_than_an_answer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*_: object, **__: object) -> ImportReport:
        time.sleep(2)
        return ImportReport(new=7)

    monkeypatch.setattr(exchange, "import_jsonl", slowly)
    with Client(client.url, timeout=1, patience=0) as impatient:
        assert impatient.import_records(io.BytesIO(b"{}")).new == 7


def test_resuming_is_not_repeated_when_nobody_knows_whether_it_arrived() -> None:
    with (
        failing(BUSY, HANG_UP) as (url, seen),
        Client(url) as client,
        pytest.raises(ServiceUnreachable, match="nobody knows whether the request arrived"),
    ):
        client.resume("x", 5)
    assert len(seen) == 2


def test_a_stream_that_breaks_off_goes_on_and_tells_each_event_once() -> None:
    half = b'event: progress\ndata: {"id": 4'
    answers = [stream(1, 3, torn=half), HANG_UP, stream(3, 4), BUSY, stream(), (204, {}, b"")]
    with failing(*answers) as (url, seen), Client(url) as client:
        assert [event.id for event in client.follow("x")] == [1, 3, 4]
    assert [headers["last-event-id"] for headers in seen] == ["0", "3", "3", "4", "4", "4"]


def test_a_stream_without_news_for_long_tries_nobodys_patience(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor does who takes long over an event: only waiting counts, and there is none."""
    clock, lines_of, later = time.monotonic, httpx.Response.iter_lines, 0.0
    told: list[str] = []

    def slowly(response: httpx.Response) -> Iterator[str]:
        nonlocal later
        for line in lines_of(response):
            later += 1000.0 * (line == ": still here")
            yield line

    monkeypatch.setattr(time, "monotonic", lambda: clock() + later)
    monkeypatch.setattr(httpx.Response, "iter_lines", slowly)
    answers = failing(stream(1), stream(), (204, {}, b""))
    with answers as (url, _), Client(url, on_wait=told.append) as client:
        for event in client.follow("x"):
            assert event.id == 1
            later += 1000.0
    assert told == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, {}, b"<html>"), "did not answer as this version of autosched expects"),
        ((200, {}, b'{"id": 1}'), "expects, which takes a Job"),
        (
            (404, {}, b"<html><style>p { color: red }</style> <h1>nothing</h1>\n&amp; here\x1b[2J"),
            "was answered with 404: nothing & here\ufffd\\[2J$",
        ),
        ((404, {"Content-Type": "text/html"}, b"<p>no" + b" more" * 9000), "404: no( more)+ mo…$"),
        (
            (302, {"Location": "https://there.example/v1/jobs/x"}, b""),
            "was answered with 302: a redirect to https://there.example/v1/jobs/x; use that addr",
        ),
        ((200, {"Content-Encoding": "gzip"}, b"none"), "does not answer: .*decompressing"),
        ((503, {"Retry-After": "\xb2"}, b"<p>no room"), "was answered with 503: no room"),
    ],
)
def test_another_server_than_ours(answer: Answer, message: str) -> None:
    with (
        failing(answer) as (url, _),
        Client(url, patience=0) as client,
        pytest.raises(ServiceError, match=message) as caught,
    ):
        client.job("x")
    assert len(str(caught.value)) < 400


def test_a_page_is_no_stream_of_events() -> None:
    page: Answer = (200, {"Content-Type": "text/html"}, b"<html>welcome")
    with (
        failing(page) as (url, _),
        Client(url) as client,
        pytest.raises(ServiceError, match="with a stream of events, but with text/html; is it an"),
    ):
        list(client.follow("x"))


def test_a_service_is_looked_for_before_it_is_asked() -> None:
    busy = (503, {"Content-Type": "application/problem+json"}, BUSY[2])
    with failing(busy) as (url, _), Client(url) as client:
        client.probe()
    found: Answer = (404, {"Content-Type": "text/html"}, b"<html><title>Not Found</title>")
    for answer, why in ((found, "answered with 404: Not Found"), (FOUND, "takes a Health")):
        with (
            failing(answer) as (url, _),
            Client(f"{url}/else") as client,
            pytest.raises(ServiceError, match=f"no autosched service at {url}/else: .*{why}"),
        ):
            client.probe()


@pytest.mark.parametrize(
    "url",
    [
        *("localhost:8000", "ftp://x", "", "http://[::1", "http://", "http://x:99999"),
        *("http://ann:secret@x", "http://x?token=secret", "http://x/#secret", "//ann:secret@x"),
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ServiceError, match=r"cannot be used|expected http://HOST:PORT") as caught:
        Client(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("http://x:1/v1", "http://x:1"),
        ("HTTP://X:1/v1/", "http://x:1"),
        ("https://x/tuner/v1", "https://x/tuner"),
        ("http://x/v10", "http://x/v10"),
    ],
)
def test_an_address_is_read_as_it_is_meant(url: str, meant: str) -> None:
    with Client(url) as client:
        assert client.url == meant


def test_a_token_that_no_header_can_hold(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"the token for .* cannot be used"):
        Client("http://127.0.0.1:1", "gehört")
