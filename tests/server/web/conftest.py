"""A browser, a filled database, and a server that runs no jobs, for the tests of pages."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path

import browser as browsers
import pages_data
import pytest
from pages_data import Jobs
from pages_visited import BATCH
from serving import serving

from records import JobQueue, Store
from records.queue import batches
from records.queue.submissions import Submission
from server.settings import Settings


@pytest.fixture(scope="module")
def browser():
    with browsers.browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def database(tmp_path_factory) -> tuple[Path, Jobs]:
    path = tmp_path_factory.mktemp("pages") / "tuning.db"
    jobs = pages_data.fill(path)
    with Store(path) as store:
        _add_batch(store, jobs)
    return path, jobs


def _add_batch(store: Store, jobs: Jobs) -> None:
    """A batch, cancelled: no process claims its jobs."""
    like, queue = store.job(jobs.tuned), JobQueue(store)
    members = [
        Submission(
            workload=store.workload(key),
            target=like.target,
            seed=0,
            trials_requested=8,
            options={"place": place, "weight": 1.5},
            batch_id=BATCH,
        )
        for place, key in enumerate((like.workload_key, "0" * 24))
    ]
    queue.submit_batch(members, None)
    for job in batches.batch_of(store, BATCH).jobs:
        queue.cancel(job.id)


@pytest.fixture(scope="module")
def jobs(database) -> Jobs:
    return database[1]


@pytest.fixture(scope="module")
def site(database) -> str:
    """The address of a server that runs no jobs."""
    with serving(Settings(db=str(database[0]), jobs_at_once=0)) as client:
        yield str(client.base_url)


@pytest.fixture
def opened(browser, site):
    """Opens tabs that are checked at the end of the test."""

    @contextmanager
    def open_tab(path: str, **options):
        with browsers.tab(browser, site, **options) as tab:
            tab.page.goto(path)
            yield tab

    return open_tab
