"""Several workloads in one submission, tuned on one budget."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from html_check import problems_of
from serving import serving

from records import Store
from records.operations.tokens import Tokens
from records.queue.submissions import Quota
from server.settings import Settings

MATMUL = {"workload": {"name": "matmul", "args": [16, 16, 16]}, "weight": 2.0}
WIDE = {"workload": {"name": "matmul", "args": [8, 32, 16]}}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    path = tmp_path_factory.mktemp("batches") / "x.db"
    settings = Settings(
        db=str(path), pool="replay:model?seconds=0.01", poll_seconds=0.1, jobs_at_once=2
    )
    with serving(settings) as client:
        yield client


def submit(client: httpx.Client, trials: int, *items: Any, **more: Any) -> httpx.Response:
    options = {"num_measure_trials": trials, "num_measures_per_round": 4}
    headers = more.pop("headers", {})
    body = {"workloads": list(items), "options": options | more.pop("options", {})} | more
    return client.post("/v1/batches", json=body, headers=headers)


def wait(client: httpx.Client, batch_id: str, *states: str, trials: int = 0) -> dict[str, Any]:
    """The batch once all of its jobs are in one of the states."""
    deadline = time.monotonic() + 180
    while True:
        batch: dict[str, Any] = client.get(f"/v1/batches/{batch_id}").raise_for_status().json()
        if set(batch["states"]) <= set(states) and batch["trials_done"] >= trials:
            return batch
        assert time.monotonic() < deadline, batch
        time.sleep(0.2)


@pytest.mark.long
def test_a_batch_spends_its_budget_exactly_and_is_listed(client: httpx.Client) -> None:
    answer = submit(client, 21, MATMUL, WIDE, name="net", tags=["night"],
                    headers={"Idempotency-Key": "one"})  # fmt: skip
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert answer.headers["location"] == f"/v1/batches/{made['id']}"
    assert made["trials_requested"] == 21
    again = submit(client, 21, MATMUL, WIDE, name="net", tags=["night"],
                   headers={"Idempotency-Key": "one"})  # fmt: skip
    assert again.json()["id"] == made["id"]
    other = submit(client, 22, MATMUL, WIDE, headers={"Idempotency-Key": "one"})
    assert other.status_code == 409
    done = wait(client, made["id"], "succeeded", "failed")
    assert done["states"] == {"succeeded": 2}
    assert (done["trials_done"], done["trials_requested"]) == (21, 21)
    assert all(job["trials_done"] == job["trials_requested"] > 0 for job in done["jobs"])
    assert all(job["best_seconds"] and job["name"] == "net" for job in done["jobs"])
    assert [job["workload_args"] for job in done["jobs"]] == [[16, 16, 16], [8, 32, 16]]
    for job in done["jobs"]:
        page = {"limit": 500}, {"Accept": "application/json"}
        told = client.get(f"/v1/jobs/{job['id']}/events", params=page[0], headers=page[1]).json()
        phases = [e["data"]["phase"] for e in told["items"] if e["kind"] == "phase"]
        assert phases == ["space", "reference", "baselines", "searching", "finalists"]
    assert made["id"] in [b["id"] for b in client.get("/v1/batches").json()["items"]]
    found = client.get("/v1/jobs", params={"batch_id": made["id"]}).json()["items"]
    assert {job["id"] for job in found} == {job["id"] for job in done["jobs"]}
    for path in (f"/batches/{made['id']}", "/batches", f"/jobs/{found[0]['id']}"):
        page = client.get(path, headers={"Accept": "text/html"})
        assert page.status_code == 200, page.text
        assert problems_of(page.text) == []
        assert f'href="/batches/{made["id"]}"' in page.text or path.startswith("/batches/")


@pytest.mark.long
def test_a_batch_is_paused_and_goes_on_and_a_member_is_cancelled(client: httpx.Client) -> None:
    batch_id = submit(client, 60, MATMUL, WIDE).json()["id"]
    wait(client, batch_id, "running", trials=4)
    client.post(f"/v1/batches/{batch_id}/pause").raise_for_status()
    paused = wait(client, batch_id, "paused")
    assert 4 <= paused["trials_done"] < 60
    assert paused["trials_requested"] == 60
    resumed = client.post(f"/v1/batches/{batch_id}/resume").raise_for_status().json()
    assert set(resumed["states"]) <= {"queued", "running"}
    wait(client, batch_id, "running", trials=paused["trials_done"] + 4)
    first, second = (job["id"] for job in resumed["jobs"])
    client.post(f"/v1/jobs/{first}/cancel").raise_for_status()
    done = wait(client, batch_id, "cancelled", "succeeded", "failed")
    states = {job["id"]: job["state"] for job in done["jobs"]}
    assert states == {first: "cancelled", second: "succeeded"}
    assert done["trials_requested"] == 60, "nobody was given what the cancelled one had left"
    kept = next(job for job in done["jobs"] if job["id"] == second)
    assert kept["trials_done"] == kept["trials_requested"]
    places = [
        (r["job_id"], r["round"], r["slot"])
        for job in states
        for r in client.get("/v1/records", params={"job_id": job, "limit": 1000}).json()["items"]
    ]
    assert len(places) == len(set(places))


@pytest.mark.long
def test_a_batch_that_is_over_early_says_why(client: httpx.Client) -> None:
    batch_id = submit(client, 5000, MATMUL, WIDE, options={"early_stopping": 8}).json()["id"]
    done = wait(client, batch_id, "succeeded", "failed")
    assert done["trials_done"] < 5000
    for job in done["jobs"]:
        assert "of 5000 trials" in job["notice"], job
    cancelled = client.post(f"/v1/batches/{batch_id}/cancel").json()
    assert cancelled["states"] == done["states"], "what has ended stays"


def test_the_time_budget_of_a_batch_counts_from_the_claim(client: httpx.Client) -> None:
    """The process alone takes longer to start."""
    batch_id = submit(client, 16, MATMUL, WIDE, options={"time_budget_s": 0.05}).json()["id"]
    failed = wait(client, batch_id, "succeeded", "failed")
    assert (failed["states"], failed["trials_done"]) == ({"failed": 2}, 0)
    for job in failed["jobs"]:
        assert "the time budget was over in the phase" in job["error"]


def test_what_is_no_batch_is_refused(client: httpx.Client) -> None:
    for wrong, part in (
        (submit(client, 8, MATMUL, MATMUL), "stands twice"),
        (submit(client, 1, MATMUL, WIDE), "a trial for each of the 2 workloads"),
        (submit(client, 8), "workloads"),
        (submit(client, 8, MATMUL, {"workload": {"name": "nothing", "args": []}}), "nothing"),
        (submit(client, 99, *[MATMUL] * 33), "workloads"),
    ):
        assert (wrong.status_code, part in wrong.text) == (422, True), wrong.text
    assert client.get(f"/v1/batches/{'0' * 32}").status_code == 404
    assert client.post(f"/v1/batches/{'0' * 32}/cancel").status_code == 404


def test_a_quota_takes_a_batch_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with Store(path) as store:
        secret, _ = Tokens(store).create("ann", "submit", None, Quota(trials=10))
    settings = Settings(db=str(path), pool="replay:model", require_tokens=True, jobs_at_once=0)
    with serving(settings) as client:
        client.headers["Authorization"] = f"Bearer {secret}"
        refused = submit(client, 11, MATMUL, WIDE)
        assert (refused.status_code, "quota-exceeded" in refused.text) == (403, True)
        assert client.get("/v1/jobs").json()["items"] == []
        assert submit(client, 10, MATMUL, WIDE).status_code == 201
