"""The service under load: its answers, its memory, and what it costs a tuning run.

    python benchmarks/service.py [--seconds 60] [--pairs 7] [--only sqlite | postgresql]

1. On SQLite and on PostgreSQL: 64 clients submit, list, read events and ask for the best without a
   pause, while two jobs tune on a made-up device at twenty trials a second. Then, for half of the
   time, they do it with reading questions of which no two are the same, so that none share a read.
   In turns with the first part, for a quarter of the time and while the jobs go on, as many clients
   ask a second server, whose one route is empty: the ratio says what the service adds.
2. 200 streams of events, half of them unread, and the server's memory.
3. The trials a second of a job of the service against those of the command line, in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import common
from http_load import Clients, Connection

from autosched.cli.common import at_least, positive_seconds
from records import Store
from server.client import Client

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "records"))
sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "server"))
import postgres
from server_process import ServerProcess

ROOT = Path(__file__).resolve().parents[1]

CLIENTS, STREAMS, ROUNDS = 64, 200, 6
POOL = "replay:model?seconds=0.05"
"""Twenty trials a second."""
P99_S, STREAM_BYTES, OVERHEAD = 0.25, 256 << 10, 0.03
_NO_LIMITS = {
    "requests_per_second": 0,
    "jobs_queued": 10**6,
    "jobs_queued_per_client": 10**6,
    "jobs_at_once": 2,
}
_EMPTY = """
import sys, uvicorn
from fastapi import FastAPI
app = FastAPI()

@app.get("/")
def nothing() -> dict[str, str]:
    return {}

uvicorn.run(app, port=int(sys.argv[1]), log_level="warning", access_log=False)
"""


@contextmanager
def empty_server() -> Iterator[tuple[str, int]]:
    """URL and process of a server with one route that does nothing, as ours do it: in a thread."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", _EMPTY, str(port)])
    end = time.monotonic() + 60
    try:
        while process.poll() is None and time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)  # until it listens
        else:
            raise RuntimeError(f"the empty server does not answer; its status: {process.poll()}")
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.kill()
        process.wait()


def p99(seconds: list[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(seconds, n=100)[98]


def under_load(
    db: str, folder: Path, seconds: float, others: dict[str, int] | None = None
) -> dict[str, Any]:
    """Part 1 on one database; `others` are processes whose processor time is told besides, with
    that of their children."""
    others = others or {}
    with (
        ServerProcess(folder, db, POOL, **_NO_LIMITS) as server,
        empty_server() as (nothing, nothing_pid),
    ):
        assert server.process is not None
        with Client(server.url) as client:
            jobs = [
                client.submit("matmul", (64, 64, 64), trials=100_000, seed=n, priority=100)
                for n in range(2)
            ]
            for job in jobs:  # the first trial of each is there: there is a best
                next(e for e in client.follow(job.id) if e.data.get("best_seconds"))
            before = [client.job(job.id).trials_done for job in jobs]
            parents = {"server": server.process.pid, "empty": nothing_pid} | others
            began, took, empty_s = time.monotonic(), 0.0, 0.0
            cpu: Counter[str] = Counter()
            clients = Clients({"service": server.url, "nothing": nothing})
            acknowledged: set[str] = set()
            turns = _turns(jobs, acknowledged)
            for _ in range(ROUNDS):  # in turns: what else the machine does, both meet
                first, at = _cpu_by_process(parents), time.monotonic()
                asyncio.run(clients.run(CLIENTS, seconds / ROUNDS, turns))
                took += time.monotonic() - at
                after = _cpu_by_process(parents)
                cpu.update({who: now - first.get(who, 0.0) for who, now in after.items()})
                asyncio.run(clients.run(CLIENTS, seconds / 4 / ROUNDS, _ask_nothing))
                empty_s += _cpu_by_process(parents)["empty"] - after["empty"]
            trials = sum(client.job(job.id).trials_done for job in jobs) - sum(before)
            whole = time.monotonic() - began
            served = _cpu_by_process(parents)["server"]
            unlike = Clients({"service": server.url})
            asyncio.run(unlike.run(CLIENTS, seconds / 2, _turns(jobs, acknowledged, unlike=True)))
            unlike_s = _cpu_by_process(parents)["server"] - served
            del cpu["empty"]
        log = server.log.read_text()
    with Store(db) as store:
        stored = {row.id for row in _jobs(store)}
    tally = clients.tally
    nothing_s = tally.seconds.pop("nothing")
    answers = [s for kind in tally.seconds.values() for s in kind]
    others_s = [s for kind in unlike.tally.seconds.values() for s in kind]
    errors = tally.errors + unlike.tally.errors
    return {
        "seconds": took,
        "answers_per_s": len(answers) / took,
        "errors": len(errors) + log.count('"level": "error"'),
        "first_errors": errors[:5],
        "lost": len(acknowledged - stored),
        "submitted": len(acknowledged),
        "trials_per_s": trials / whole,
        "p50_s": statistics.median(answers),
        "p99_s": p99(answers),
        "p99_by_kind_s": {kind: p99(s) for kind, s in tally.seconds.items()},
        "unlike_p99_s": p99(others_s),
        "unlike_answers_per_s": len(others_s) / (seconds / 2),
        "unlike_cpu_s": unlike_s / len(others_s),
        "empty_p50_s": statistics.median(nothing_s),
        "empty_p99_s": p99(nothing_s),
        "p99_ratio": p99(answers) / p99(nothing_s),
        "cpu_s": cpu["server"] / len(answers),
        "cpu_ratio": cpu["server"] / len(answers) / (empty_s / len(nothing_s)),
        "cores_by_process": {who: seconds / took for who, seconds in cpu.items()},
    }


def _jobs(store: Store) -> Iterator[Any]:
    page = store.jobs(limit=500)
    while True:
        yield from page.jobs
        if page.before is None:
            return
        page = store.jobs(limit=500, before=page.before)


def _turns(jobs: list[Any], acknowledged: set[str], unlike: bool = False) -> Any:
    """What each client does over and over: a request of the service; `unlike`: hardly ever one that
    others make at the time. There is but one best: a job by its id stands in for it then."""
    rng = random.Random(0)
    made = sorted(acknowledged) + [job.id for job in jobs]
    best = f"/v1/best?workload_key={jobs[0].workload_key}"
    body = json.dumps(
        {
            "workload": {"name": "matmul", "args": [64, 64, 64]},
            "options": {"num_measure_trials": 1},
            "priority": -100,
        }
    ).encode()

    async def turn(clients: Clients, client: int) -> None:
        kind = rng.choices(("submit", "list", "events", "best"), (1, 3, 3, 3))[0]
        if kind == "submit":
            name = f"Idempotency-Key: {client}-{rng.random()}\r\n"
            job = await clients.ask(
                client, "service", kind, "POST", "/v1/jobs", body, name, expected=201
            )
            if isinstance(job, dict):
                acknowledged.add(job["id"])
        else:
            events = f"/v1/jobs/{rng.choice(jobs).id}/events?limit=20"
            path = {
                "list": f"/v1/jobs?limit={10 + client % 21 if unlike else 20}",
                "events": f"{events}&after={rng.randrange(100)}" if unlike else events,
                "best": f"/v1/jobs/{rng.choice(made)}" if unlike else best,
            }[kind]
            await clients.ask(client, "service", kind, "GET", path)

    return turn


async def _ask_nothing(clients: Clients, client: int) -> None:
    await clients.ask(client, "nothing", "nothing", "GET", "/")


def with_streams(folder: Path, seconds: float) -> dict[str, Any]:
    """Part 2: half of the readers read, the others never do."""
    with ServerProcess(folder, str(folder / "streams.db"), POOL, **_NO_LIMITS) as server:
        with Client(server.url) as client:
            job = client.submit("matmul", (64, 64, 64), trials=100_000)
            for event in client.follow(job.id):
                if event.data.get("trials_done", 0) >= 20:
                    break
        assert server.process is not None
        pid = server.process.pid
        before = _resident(pid)
        told, peak = asyncio.run(_read(server.url, f"/v1/jobs/{job.id}/events", pid, seconds))
    return {
        "streams": STREAMS, "told": told, "resident_before": before, "resident_peak": peak,
        "bytes_a_stream": (peak - before) / STREAMS,
    }  # fmt: skip


async def _read(url: str, path: str, pid: int, seconds: float) -> tuple[int, int]:
    """How many events the readers were told, and the most memory that the server had."""
    connections = [Connection(url) for _ in range(STREAMS)]
    streams = [await connection.open_stream(path) for connection in connections]
    told, peak = 0, 0

    async def follow(stream: asyncio.StreamReader) -> None:
        nonlocal told
        async for line in stream:
            told += line.startswith(b"event:")

    async def look() -> None:
        nonlocal peak
        while True:
            peak = max(peak, _resident(pid))
            await asyncio.sleep(0.5)

    tasks = [asyncio.create_task(follow(stream)) for stream in streams[::2]]
    tasks.append(asyncio.create_task(look()))
    await asyncio.sleep(seconds)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for connection in connections:
        connection.close()
    return told, peak


def _cpu_by_process(parents: dict[str, int]) -> dict[str, float]:
    """Seconds of processor time of the clients (this process), of `parents`, and of the children of
    each of these, by what they do."""
    found = {"clients": _cpu(os.getpid())}
    for who, pid in parents.items():
        found[who] = _cpu(pid)
        for child in Path(f"/proc/{pid}/task").glob("*/children"):
            for number in map(int, child.read_text().split()):
                with suppress(FileNotFoundError):  # it has just ended
                    title = Path(f"/proc/{number}/cmdline").read_text()
                    known = [n for n in ("runner", "examine") if f"server.{n}" in title]
                    name = known[0] if known else f"{who}'s children"
                    found[name] = found.get(name, 0.0) + _cpu(number)
    return found


def _cpu(pid: int) -> float:
    """Seconds of processor time that a process has used, without its children's."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def overhead(folder: Path, pairs: int, trials: int) -> dict[str, Any]:
    """Part 3: trials a second, from a job's first trial to its last, in turns."""
    here, there = folder / "here.db", folder / "there.db"
    ratios = []
    with ServerProcess(folder, str(there), POOL) as server, Client(server.url) as client:
        for pair in range(pairs):
            ours = [str(here), str(there)]
            for side in range(2) if pair % 2 else reversed(range(2)):
                if side == 0:
                    _tune(here, trials, pair)
                else:
                    job = client.submit("matmul", (64, 64, 64), trials=trials, seed=pair)
                    for _ in client.follow(job.id):
                        pass
            rates = [_rate(path, pair) for path in ours]
            ratios.append(rates[1] / rates[0])
            print(f"  command line {rates[0]:.2f}, service {rates[1]:.2f} trials/s", flush=True)
    return {"pairs": ratios, "median": statistics.median(ratios)}


def _tune(db: Path, trials: int, seed: int) -> None:
    command = [sys.executable, "-m", "autosched.cli", "tune", "matmul", "64", "64", "64"]
    command += ["--trials", str(trials), "--seed", str(seed), "--db", str(db), "--pool", POOL]
    subprocess.run([*command, "--quiet"], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)


def _rate(db: str, seed: int) -> float:
    """Trials a second of the job of that seed."""
    with Store(db) as store:
        job = next(job for job in _jobs(store) if job.seed == seed)
        times = [record.created_at for record in store.records(job_id=job.id, kind="trial")]
    return (len(times) - 1) / (max(times) - min(times)).total_seconds()


def bars(loads: dict[str, Any], streams: dict[str, Any], cost: dict[str, Any]) -> list[Any]:
    """The rows of the table of bars."""
    rows = []
    for name, found in loads.items():
        bad = found["errors"] + found["lost"]
        rows.append(common.bar(f"{name}: errors, and jobs lost", "0", str(bad), bad == 0))
        shown = (
            f"{found['p99_s'] * 1e3:.0f} ms, {found['p99_ratio']:.1f} of an empty route's; "
            f"processor {found['cpu_s'] * 1e3:.2f} ms, {found['cpu_ratio']:.1f} of it"
        )
        met = found["p99_s"] < P99_S
        rows.append(common.bar(f"{name}: p99 of {CLIENTS} clients", "< 250 ms", shown, met))
        unlike = found["unlike_p99_s"]
        case = f"{name}: the same, no two questions alike"
        rows.append(common.bar(case, "< 250 ms", f"{unlike * 1e3:.0f} ms", unlike < P99_S))
    each = streams["bytes_a_stream"]
    case = f"memory of each of {STREAMS} streams"
    limit = f"< {STREAM_BYTES >> 10} KiB"
    rows.append(common.bar(case, limit, f"{each / 1024:.0f} KiB", each < STREAM_BYTES))
    lost = 1 - cost["median"]
    case = "trials a second lost to the service"
    rows.append(common.bar(case, f"< {OVERHEAD:.0%}", f"{lost:.1%}", lost < OVERHEAD))
    return rows


def main() -> None:
    """Print and end with one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seconds", type=positive_seconds, default=60.0)
    parser.add_argument("--pairs", type=at_least(1), default=7)
    parser.add_argument("--trials", type=at_least(2), default=200, help="of each run of a pair")
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    options = parser.parse_args()
    loads: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.only != "postgresql":
            loads["sqlite"] = under_load(str(folder / "load.db"), folder, options.seconds)
        if options.only != "sqlite" and (reason := postgres.missing()) is not None:
            print(f"postgresql: left out, {reason}")
        elif options.only != "sqlite":
            cluster = postgres.Cluster(durable=True)
            try:
                database, pid = cluster.database(), {"postgresql": cluster.pid}
                loads["postgresql"] = under_load(database, folder, options.seconds, pid)
            finally:
                cluster.stop()
        for database, found in loads.items():
            print(f"{database}: {json.dumps(found, indent=1)}", flush=True)
        streams = with_streams(folder, options.seconds / 2)
        print(f"streams: {json.dumps(streams)}", flush=True)
        cost = overhead(folder, options.pairs, options.trials)
    figures = {"load": loads, "streams": streams, "overhead": cost}
    common.finish("service", figures | {"bars": bars(loads, streams, cost)})


if __name__ == "__main__":
    main()
