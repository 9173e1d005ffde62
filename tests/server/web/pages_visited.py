"""A page of every kind, and how a tab goes through them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from browser import PATIENCE
from pages_data import Jobs
from playwright.sync_api import Page, expect

from records import Store

BATCH = "b" * 32
expect.set_options(timeout=PATIENCE)


def best_of(database: tuple[Path, Jobs]) -> int:
    with Store(database[0]) as store:
        best = store.tallied(database[1].tuned).best_id
    assert best is not None
    return best


def paths(database) -> list[str]:
    """A page of every kind."""
    _, jobs = database
    best = best_of(database)
    with Store(database[0]) as store:
        key = store.job(jobs.tuned).workload_key
        failed = next(r.id for r in store.records(job_id=jobs.tuned) if r.status != "ok")
    return [
        *("/", "/submit", "/submit?by=script", "/workloads", f"/workloads/{key}", "/workers"),
        *(f"/jobs/{job}" for job in (jobs.tuned, jobs.failed)),
        *(f"/records/{best}", f"/records/{failed}", f"/records/{best}/text/script"),
        f"/records/{best}/listing",
        *(f"/compare?a=1&b={best}", "/login", "/roofline"),
        *(f"/jobs/{jobs.tuned}/{page}" for page in ("trials", "decisions")),
        *("/jobs", "/batches", f"/batches/{BATCH}", "/tokens", "/docs"),
    ]


def visited(page: Page, wanted: list[str]) -> Iterator[str]:
    """Goes to one path after the other, in one tab."""
    for path in wanted:
        page.goto(path)
        if page.locator("#plot").count():
            drawn(page)
        yield path


EMPTY = "#plot[data-drawn='0']"


def drawn(page: Page) -> None:
    """Waits for the plot, which is hidden where there is nothing to be drawn."""
    page.wait_for_selector("#plot[data-drawn]", state="attached")
    expect(page.locator("#plot")).to_be_visible(visible=page.locator(EMPTY).count() == 0)


# From the form to a program that runs
