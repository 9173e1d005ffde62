"""Lists come in pages whose cursors lead through all of it once."""

from __future__ import annotations

from pathlib import Path

import pytest
from server_process import submit
from serving import serving

from autosched.tuning import SearchTask
from records.store import Store
from server.settings import Settings


def test_the_pages_of_jobs_hold_each_job_once_newest_first(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)
    task = SearchTask("softmax", (8, 16))
    with Store(settings.db) as store:
        store.put_workload(task.workload)
        made = [
            store.create_job(task.workload_key, "llvm", seed=n, trials_requested=1).id
            for n in range(7)
        ]
    found: list[str] = []
    with serving(settings) as client:
        cursor: str | None = None
        while True:
            given = {} if cursor is None else {"cursor": cursor}
            page = client.get("/v1/jobs", params={"limit": 3, **given}).raise_for_status().json()
            found += [job["id"] for job in page["items"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
    assert sorted(found) == sorted(made)
    assert len(found) == 7


@pytest.mark.parametrize("cursor", ["%%%", "AAAA", "Mjpqb2JzOjE=x", "MTpqb2JzOjE", "MjpqzA"])
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/records", "/v1/workloads"])
def test_what_is_no_cursor_is_refused(tmp_path: Path, path: str, cursor: str) -> None:
    with serving(Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)) as client:
        answer = client.get(path, params={"cursor": cursor})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert "cursor" in answer.json()["detail"]


def test_a_cursor_of_another_list_is_refused(tmp_path: Path) -> None:
    with serving(Settings(db=str(tmp_path / "x.db"), jobs_at_once=0)) as client:
        for n in (1, 2):
            submit(client, 1, args=[8 * n, 8, 8])
        lists = ("/v1/jobs", "/v1/workloads")
        pages = {path: client.get(path, params={"limit": 1}).json() for path in lists}
        for path in ("/v1/jobs", "/v1/workloads", "/v1/records"):
            for of, page in pages.items():
                answer = client.get(path, params={"cursor": page["next_cursor"]})
                assert answer.status_code == (200 if of == path else 400)
