"""How long the page of a job with 100,000 trials takes, next to that of one with 64.

    python benchmarks/pages.py [--trials N]

Of the server: the page and the plot's data, asked for when nothing of the job is remembered. In a
browser, where there is one: from the click until the text is there, and until the plot is drawn,
with the plotting library in the browser's cache.
"""

from __future__ import annotations

import argparse
import random
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import common
import httpx
import uvicorn
from fastapi import FastAPI

from records import Record, Store, Workload
from server.app import create_app
from server.settings import Settings
from server.web.summaries import Summaries

TRIALS, FEW = 100_000, 64
PAGE_S, DRAWN_S = 0.3, 1.5
"""The bars: the page, and the plot in a browser."""
TURNS = 7
TARGET, DEVICE = "llvm -mcpu=znver5 -num-cores=2", "zen5-2c"


def fill(store: Store, trials: int) -> str:
    """A job with so many trials, one in fourteen of which failed, and two baselines."""
    workload = Workload(key="w", name="matmul", args=[512, 512, 512], script="w", flop=2.0 * 512**3)
    store.put_workload(workload)
    job = store.create_job("w", TARGET, seed=trials, trials_requested=trials, state="succeeded",
                           device=DEVICE)  # fmt: skip
    rng = random.Random(0)
    began = datetime(2026, 1, 1, tzinfo=UTC)
    for first in range(-2, trials, 1000):
        rows = []
        for n in range(first, min(trials, first + 1000)):
            failed = n >= 0 and rng.random() < 0.07
            seconds = 4e-3 * (1 + 0.6 * 0.9999 ** max(n, 0)) * (1 + rng.expovariate(3))
            rows.append(
                Record(
                    job_id=job.id, kind="trial" if n >= 0 else "baseline",
                    round=n // 64 if n >= 0 else -1, slot=n % 64 if n >= 0 else n + 2,
                    workload_key="w", target=TARGET, device=DEVICE,
                    status="run_timeout" if failed else "ok", seconds=None if failed else seconds,
                    error="longer than 2 s" if failed else None, spread=1e-5, noise=0.01, runs=12,
                    trace=[["split", n % 50]], decisions={"a": n}, program_hash=f"p{n}",
                    created_at=began + timedelta(seconds=max(n, 0) / 10),
                )
            )  # fmt: skip
        store.add_records(rows)
    return job.id


@contextmanager
def serving(database: Path) -> Iterator[tuple[FastAPI, str]]:
    """A server of a store, that runs no jobs."""
    app = create_app(Settings(db=str(database), jobs_at_once=0))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield app, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def from_server(app: FastAPI, client: httpx.Client, path: str) -> tuple[float, int]:
    """Seconds, in the median, of a path of which nothing is remembered, and bytes on the wire."""
    times = []
    for _ in range(TURNS):
        app.state.summaries = Summaries()
        began = time.perf_counter()
        answer = client.get(path).raise_for_status()
        times.append(time.perf_counter() - began)
    return statistics.median(times), answer.num_bytes_downloaded


def in_browser(app: FastAPI, address: str, jobs: list[str]) -> list[dict[str, float]]:
    """Seconds, in the median, until text and plot of each job are there."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        for job in jobs:
            text, plot = [], []
            for turn in range(TURNS + 1):
                page.goto(f"{address}/")
                app.state.summaries = Summaries()
                began = time.perf_counter()
                page.goto(f"{address}/jobs/{job}", wait_until="commit")
                page.wait_for_selector("#figures")
                shown = time.perf_counter()
                page.wait_for_selector("#plot[data-drawn]")
                if turn:  # the first one fetched the library
                    text.append(shown - began)
                    plot.append(time.perf_counter() - began)
            found.append({"text_s": statistics.median(text), "plot_s": statistics.median(plot)})
        browser.close()
    return found


def main() -> None:
    """Print and end with one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args()
    figures: dict[str, Any] = {"trials": options.trials}
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "tuning.db"
        with Store(database) as store:
            jobs = {n: fill(store, n) for n in (FEW, options.trials)}
        with (
            serving(database) as (app, address),
            httpx.Client(base_url=address, timeout=60) as client,
        ):
            for n, job in jobs.items():
                page, bytes_of_page = from_server(app, client, f"/jobs/{job}")
                plot, bytes_of_plot = from_server(app, client, f"/jobs/{job}/plot")
                figures[str(n)] = {"page_s": page, "page_bytes": bytes_of_page, "data_s": plot,
                                   "data_bytes": bytes_of_plot}  # fmt: skip
            if shutil.which("chromium"):
                for n, seen in zip(jobs, in_browser(app, address, [*jobs.values()]), strict=True):
                    figures[str(n)] |= seen
            else:
                print("no chromium on this machine: what a browser shows is not measured")
    for n in jobs:
        values = ", ".join(
            f"{name[:-2]} {value * 1e3:.0f} ms" if name.endswith("_s") else f"{name} {value:,}"
            for name, value in figures[str(n)].items()
        )
        print(f"{n:,} trials: {values}", flush=True)
    many, few = figures[str(options.trials)], figures[str(FEW)]
    figures["ratio"] = {name: many[name] / few[name] for name in many}
    rows = [("page", "page_s", PAGE_S), ("plot in a browser", "plot_s", DRAWN_S)]
    figures["bars"] = [
        common.bar(f"a job of {options.trials:,} trials: {what}", f"< {limit:g} s",
                   f"{many[name]:.2f} s", many[name] < limit)
        for what, name, limit in rows if name in many
    ]  # fmt: skip
    common.finish("pages", figures)


if __name__ == "__main__":
    main()
