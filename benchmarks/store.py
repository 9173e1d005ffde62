"""A store of many records: the best of a workload, pages, inserts, and the curve of a long job.

    python benchmarks/store.py [--records 10000000] [--only sqlite | postgresql] [--folder DIR]

Builds the records in bulk, in SQLite and in a private PostgreSQL cluster (left out, and said so,
where there are no server programs), then asks through `records.Store` as the service would. With
`--folder` the databases stay there, and those that are there are asked as they are: building ten
million takes a quarter of an hour each. `benchmarks/records.py` is the same.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import common
from sqlalchemy import Connection, text

from records import Record, Store, Workload, export_jsonl, import_jsonl
from records.sql.schema import RecordRow

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "records"))
import postgres

RECORDS = 200_000
JOB = 100_000
"""Trials of a job."""
TOGETHER = 4
"""Jobs whose records come in turns, as those of a service that runs several."""
WORKLOADS = 20
TARGETS = ("llvm -mcpu=znver5 -num-cores=2", "llvm -mcpu=x86-64-v3 -num-cores=8")
DEVICES = ("zen5-2c", "zen4-8c", "skx-8c")
STEP = 1_000_000

BEST_S, PAGE_S, CURVE_S, INSERTS = 10e-3, 50e-3, 200e-3, 5000
GROWTH = 16e6
"""Bytes by which memory may grow while a log is written or read."""

_FILL = """
{series}
INSERT INTO records (job_id, kind, round, slot, workload_key, target, device, toolchain, trace_id,
    decisions, program_hash, status, error, seconds, spread, noise, runs, build_seconds, origin,
    created_at, remeasured_seconds, standing, ranked_seconds)
SELECT {job_id}, 'trial', k / 64, k % 64, workload_key, target, device,
    'autosched 0.1.0, llvmlite 0.45', 1 + i % {traces}, '{{"t0": 4, "t1": 16, "t2": 8}}', 'p' || i,
    CASE WHEN ok THEN 'ok' ELSE 'build_error' END, CASE WHEN ok THEN NULL ELSE 'it broke' END,
    CASE WHEN ok THEN seconds END, seconds / 100, 0.01, 10, 0.02, 'local', created_at, NULL,
    CASE WHEN ok THEN 2 END, CASE WHEN ok THEN seconds END
FROM (
    SELECT i, j.id AS job_id, j.workload_key, j.target, j.device, j.created_at,
        (i % ({job} * {together})) / {together} AS k,
        (1 + (i * 7919 + 99000) % 100003) * 1e-6 AS seconds, (i * 31) % 10 < 7 AS ok
    FROM n JOIN jobs AS j ON j.id = {job_id_of}
) AS rows
"""


def fill(store: Store, records: int) -> None:
    """Put that many records into an empty store, in jobs of JOB trials."""
    together = max(1, min(TOGETHER, records // JOB))
    sqlite = store.name.startswith("sqlite")
    for n in range(WORKLOADS):
        store.put_workload(Workload(key=f"w{n}", name="matmul", script=f"def main_{n}(): ...\n"))
    jobs = -(-records // (JOB * together)) * together
    for n in range(jobs):
        store.create_job(
            f"w{n % WORKLOADS}",
            TARGETS[n // WORKLOADS % len(TARGETS)],
            device=DEVICES[n % len(DEVICES)],
            seed=n,
            trials_requested=JOB,
            state="succeeded",
            job_id=f"{n:032}",
        )
    store.add_records([record(n, f"{jobs - 1:032}", -n - 1, workload_key="w0") for n in range(50)])
    job_number = f"i / ({JOB} * {together}) * {together} + i % {together}"
    with store._db.transaction(writes=True) as connection:
        traces = connection.execute(text("SELECT count(*) FROM traces")).scalar_one()
        connection.execute(text("DELETE FROM records"))
    indexes = sorted(RecordRow.__table__.indexes, key=lambda i: str(i.name))  # type: ignore[attr-defined]
    with store._db.transaction(writes=True) as connection:
        for index in indexes:
            index.drop(connection)
    for start in range(0, records, STEP):
        last = min(start + STEP, records) - 1
        if sqlite:
            series = (
                f"WITH RECURSIVE n(i) AS (SELECT {start} UNION ALL SELECT i + 1 FROM n "
                f"WHERE i < {last})"
            )
            name = f"printf('%032d', {job_number})"
        else:
            series = f"WITH n(i) AS (SELECT generate_series({start}, {last})::bigint)"
            name = f"lpad(({job_number})::text, 32, '0')"
        with store._db.transaction(writes=True) as connection:
            _run(connection, _FILL.format(
                series=series, job_id="job_id", job_id_of=name, traces=traces, job=JOB,
                together=together,
            ))  # fmt: skip
    with store._db.transaction(writes=True) as connection:
        for index in indexes:
            index.create(connection)
    if not sqlite:
        with store._db.engine.connect() as plain:
            plain.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM ANALYZE"))


def _run(connection: Connection, statement: str) -> None:
    connection.exec_driver_sql(statement.replace("%", "%%") if "lpad" in statement else statement)


def record(slot: int, job_id: str, number: int, **changes: Any) -> Record:
    """One of a job's trials; some dozens of different traces, as of a search's variants."""
    steps = [["get_block", ["#0"], ["b0"]], ["get_loops", ["b0"], ["l0", "l1", "l2"]]]
    steps += [["split", [f"l{n % 3}", f"?t{n}"], [f"l{n + 3}"]] for n in range(20 + slot % 30)]
    values: dict[str, Any] = {
        "job_id": job_id, "kind": "trial", "round": 10**6 + number, "slot": slot,
        "workload_key": "w0", "target": TARGETS[0], "device": DEVICES[0], "status": "ok",
        "seconds": 1.0 + slot, "trace": steps, "decisions": {f"t{n}": n + slot for n in range(20)},
        "program_hash": f"{number}-{slot}", "toolchain": "autosched 0.1.0, llvmlite 0.45",
        "spread": 1e-6, "noise": 0.01, "runs": 10, "build_seconds": 0.02,
    }  # fmt: skip
    return Record(**values | changes)


def times(calls: Sequence[Callable[[], object]]) -> list[float]:
    """Seconds that each call takes."""
    found = []
    for call in calls:
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return found


def p99(seconds: Sequence[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(seconds, n=100)[98]


def measure(name: str, store: Store, records: int) -> dict[str, Any]:
    """Fill a store, if it is empty, and ask it; the figures in seconds and bytes."""
    start = time.perf_counter()
    if next(store.workloads(), None) is None:
        fill(store, records)
    filled = time.perf_counter() - start
    with store._db.transaction(writes=False) as connection:
        found = connection.execute(text("SELECT count(*), max(id) FROM records")).one()
    if found[0] < records:
        raise SystemExit(f"{store.name} has {found[0]} records and is of another run; remove it")
    size = size_of(store)
    print(f"{name}: {found[0]:,} records made in {filled:.0f} s, {size / 1e9:.2f} GB", flush=True)
    return {"fill_s": filled, "bytes": size} | ask(store, *found, f"{0:032}")


def processor_seconds(store: Store) -> float:
    """Processor time of this process and, for PostgreSQL, of its server's processes for it."""
    used = time.process_time()
    if not store.name.startswith("sqlite"):
        query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
        with store._db.transaction(writes=False) as connection:
            for pid in connection.execute(text(query)).scalars().all():
                used += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) * 1e-9
    return used


def size_of(store: Store) -> int:
    """Bytes of a database, indexes included."""
    if store.name.startswith("sqlite"):
        query = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
    else:
        query = "SELECT pg_database_size(current_database())"
    with store._db.transaction(writes=False) as connection:
        return int(connection.execute(text(query)).scalar_one())


def ask(store: Store, records: int, last: int, job: str) -> dict[str, Any]:
    """Ask a filled store, whose last id is `last`, and add to it."""
    rng = random.Random(0)
    scopes = [(f"w{n}", *scope) for n in range(WORKLOADS) for scope in store.devices(f"w{n}")]
    processor: dict[str, float] = {}

    def timed(name: str, calls: Sequence[Callable[[], object]]) -> list[float]:
        before = processor_seconds(store)
        found = times(calls)
        processor[f"{name}_cpu_s"] = (processor_seconds(store) - before) / len(calls)
        return found

    # What a lookup by the primary key takes: the machine's own unrest shows in its 99th percentile.
    one = timed("get", [partial(store.get, last - 2000 - n) for n in range(1000)])
    best = timed("best", [partial(store.best, *rng.choice(scopes)) for _ in range(1000)])
    filters: list[Any] = [
        {"workload_key": "w3"}, {"workload_key": "w3", "status": "ok"}, {"job_id": job}, {},
        {"workload_key": scopes[0][0], "target": scopes[0][1], "device": scopes[0][2]},
        {"status": "run_timeout"}, {"job_id": job, "status": "wrong_result"},
    ]  # fmt: skip

    def page(chosen: Any, after: int) -> None:
        store.page(**chosen, after_id=after, limit=100)

    asked = [partial(page, rng.choice(filters), rng.randrange(last)) for _ in range(500)]
    pages = timed("page", asked)
    curve = timed("curve", [lambda: store.curve(job) for _ in range(7)])
    points = len(store.curve(job))
    figures: dict[str, Any] = {
        "records": records, "get_p50_s": statistics.median(one),
        "get_p99_s": p99(one), "best_p50_s": statistics.median(best),
        "best_p99_s": p99(best), "page_p50_s": statistics.median(pages), "page_p99_s": p99(pages),
        "curve_s": statistics.median(curve), "curve_points": points,
    }  # fmt: skip
    for size in (64, 500):
        batches = [
            [record(slot, job, last + size + n) for slot in range(size)]
            for n in range(10_000 // size)
        ]
        add = [partial(store.add_records, batch) for batch in batches]
        took = sum(timed(f"inserts_of_{size}", add))
        figures[f"inserts_per_s_of_{size}"] = len(batches) * size / took
        processor[f"insert_of_{size}_cpu_s"] = processor.pop(f"inserts_of_{size}_cpu_s") / size
    for name in ("get", "best", "page"):
        p50, most = figures[f"{name}_p50_s"] * 1e3, figures[f"{name}_p99_s"] * 1e3
        used = processor[f"{name}_cpu_s"] * 1e3
        print(f"  {name}: p50 {p50:.2f} ms, p99 {most:.2f}, processor {used:.2f}")
    print(
        f"  curve of {JOB:,} trials {figures['curve_s'] * 1e3:.0f} ms ({points} points), processor "
        f"{processor['curve_cpu_s'] * 1e3:.0f}"
    )
    for size in (64, 500):
        print(
            f"  {figures[f'inserts_per_s_of_{size}']:,.0f} inserts a second in batches of {size}, "
            f"processor {processor[f'insert_of_{size}_cpu_s'] * 1e6:.0f} us each",
            flush=True,
        )
    return figures | processor


class Watched:
    """A file that is written or read line by line, and how much memory the process had at the
    beginning and at most."""

    def __init__(self, file: IO[bytes], lines: int) -> None:
        self._file, self._begun = file, lines // 10
        self.lines, self.first, self.most = 0, 0, 0

    def write(self, data: bytes) -> int:
        self._look()
        return self._file.write(data)

    def readline(self, size: int = -1) -> bytes:
        self._look()
        return self._file.readline(size)

    def _look(self) -> None:
        self.lines += 1
        if self.lines % 1000 == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            self.most = max(self.most, pages * os.sysconf("SC_PAGE_SIZE"))
            if self.lines <= self._begun:
                self.first = self.most


def exchange(store: Store, folder: Path, lines: int) -> dict[str, Any]:
    """A log written of a store and taken into another: lines a second, and the growth of memory
    after the first tenth, in bytes."""
    log = folder / "log.jsonl"
    figures: dict[str, Any] = {"lines": lines}
    with open(log, "wb") as file:
        out = Watched(file, lines)
        (took,) = times([lambda: export_jsonl(store, cast("IO[bytes]", out), limit=lines)])
    figures |= {"export_lines_per_s": lines / took, "export_growth": out.most - out.first}
    with Store(folder / "copy.db") as copy, open(log, "rb") as file:
        into = Watched(file, lines)
        (took,) = times([lambda: import_jsonl(copy, cast("IO[bytes]", into))])
        figures["imported"] = copy.page(limit=1).records[0].origin == "import"
    figures |= {"import_lines_per_s": lines / took, "import_growth": into.most - into.first}
    rates = [figures[f"{way}_lines_per_s"] for way in ("export", "import")]
    grown = [figures[f"{way}_growth"] / 1e6 for way in ("export", "import")]
    print(
        f"  {lines:,} lines out at {rates[0]:,.0f} a second, in at {rates[1]:,.0f}; "
        f"memory grew by {grown[0]:.1f} and {grown[1]:.1f} MB",
        flush=True,
    )
    return figures


def bars(name: str, figures: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table of bars."""

    def below(case: str, key: str, limit: float) -> dict[str, Any]:
        found = figures[key]
        text = f"{found * 1e3:.2f} ms"
        return common.bar(f"{name}: {case}", f"< {limit * 1e3:.0f} ms", text, found < limit)

    rate = figures["inserts_per_s_of_500"]
    grown = []
    if (log := figures.get("exchange")) is not None:
        growth = max(log["export_growth"], log["import_growth"])
        case = f"{name}: memory of {log['lines']:,} lines out and in"
        text = f"+{growth / 1e6:.1f} MB"
        grown = [common.bar(case, f"< {GROWTH / 1e6:.0f} MB", text, growth < GROWTH)]
    return [
        below("best of a workload, p99", "best_p99_s", BEST_S),
        below("page of 100, p99", "page_p99_s", PAGE_S),
        below(f"curve of {JOB:,} trials", "curve_s", CURVE_S),
        common.bar(f"{name}: inserts", f">= {INSERTS} /s", f"{rate:,.0f} /s", rate >= INSERTS),
        *grown,
    ]


@contextmanager
def kept(folder: Path | None) -> Iterator[Path]:
    """A folder for databases: the one given, or one that is removed."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@contextmanager
def postgresql(folder: Path | None) -> Iterator[Store]:
    """A store in a private cluster, in `folder/postgresql` if that is to stay."""
    cluster = postgres.Cluster(durable=True, folder=folder and folder / "postgresql")
    try:
        with Store(cluster.database("records")) as store:
            yield store
    finally:
        cluster.stop()


def main() -> None:
    """Print and end with one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument(
        "--lines", type=int, default=20_000, help="of a log written and read (bar: 1000000)"
    )
    parser.add_argument("--only", choices=["sqlite", "postgresql"])
    parser.add_argument(
        "--folder", type=Path, help="where to make the databases, which stay, or where they are"
    )
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    if options.only != "postgresql":
        with kept(options.folder) as folder, Store(folder / "records.db") as store:
            found["sqlite"] = measure("sqlite", store, options.records)
            if lines := min(options.lines, options.records):
                with tempfile.TemporaryDirectory(dir=folder) as scratch:
                    found["sqlite"]["exchange"] = exchange(store, Path(scratch), lines)
    if options.only != "sqlite" and (reason := postgres.missing()) is not None:
        print(f"postgresql: left out, {reason}")
    elif options.only != "sqlite":
        with postgresql(options.folder) as store:
            found["postgresql"] = measure("postgresql", store, options.records)
    table = [row for name, figures in found.items() for row in bars(name, figures)]
    common.finish("store", {"databases": found, "bars": table})


if __name__ == "__main__":
    main()
