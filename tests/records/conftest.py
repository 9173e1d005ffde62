"""One PostgreSQL server for all tests of a run, started by the first that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import postgres
import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[postgres.Cluster]:
    reason = postgres.missing()
    if reason is not None:
        pytest.skip(reason)
    made = postgres.Cluster()
    yield made
    made.stop()


@pytest.fixture
def postgres_url(cluster: postgres.Cluster) -> Iterator[str]:
    """A database of PostgreSQL without rows."""
    with cluster.lent() as url:
        yield url
